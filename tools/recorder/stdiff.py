"""The family `stdiff`: STDiff's own code, its vendored diffusers and torchsde, from `packages` beside this file:

    packages/STDiffproject    a checkout of anirudhp3010/STDiffproject (or of XiYe20/STDiffProject)
    packages/torchsde         the package's folder
    packages/trampoline.py    what it depends on

Recorded as {"py": "stdiff.py", "args": {...}} with inputs "custom" and build "real". Replaced here: diffusers' configuration and saving,
einops by the views it makes, xformers by PyTorch's memory-efficient kernel, random numbers by those of the recorder, and the
times of the equation by real numbers on the host (a loop that asks a tensor without data whether time is up would never end).
part "unet" is the denoiser alone, with motion features as an input that wants a gradient."""
import dataclasses, functools, inspect, os, sys, types
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _disable_current_modes

PACKAGES = os.path.join('/'.join(os.path.abspath(sys.argv[0]).split('/')[:-1]), 'packages')
PROJECT = os.path.join(PACKAGES, 'STDiffproject')
Settings = types.SimpleNamespace


def module(name, path=None, **attributes):
    m = sys.modules[name] = types.ModuleType(name)
    if path: m.__path__ = [path]
    m.__dict__.update(attributes)
    return m


# ---------------------------------------------------------------- what the code imports
class BaseOutput(OrderedDict):
    def __post_init__(self):
        for f in dataclasses.fields(self): self[f.name] = getattr(self, f.name)


class ModelMixin(torch.nn.Module):
    @property
    def dtype(self): return next(self.parameters()).dtype


def register_to_config(init):
    @functools.wraps(init)
    def inner(self, *args, **kwargs):
        given = inspect.signature(init).bind(self, *args, **kwargs)
        given.apply_defaults()
        init(self, *args, **kwargs)
        self.config = Settings(**{k: v for k, v in given.arguments.items() if k != 'self'})
    return inner


def rearrange(x, pattern, **sizes):
    if pattern == '(N T) C H W -> N T C H W': return x.reshape(sizes['N'], sizes['T'], *x.shape[1:])
    assert pattern in ('t N (C H W) -> t N C H W', 'N (C H W) -> N C H W'), pattern
    return x.reshape(*x.shape[:-1], sizes['C'], sizes['H'], sizes['W'])


def memory_efficient_attention(q, k, v, attn_bias=None, op=None):
    q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, False)[0].squeeze(1)


def imported():
    sys.path.insert(0, PACKAGES)
    ops = module('xformers.ops', memory_efficient_attention=memory_efficient_attention)
    module('xformers', '', ops=ops)
    module('einops', rearrange=rearrange, repeat=lambda x, pattern, N: x.unsqueeze(0).expand(N, *x.shape))
    module('torchdiffeq', odeint_adjoint=None)
    module('omegaconf', '', OmegaConf=None)
    module('omegaconf.omegaconf', open_dict=lambda c: __import__('contextlib').nullcontext(), ListConfig=list)
    source = os.path.join(PROJECT, 'CustomDiffusers/src/diffusers')
    mixins = dict(ConfigMixin=type('ConfigMixin', (), {}), register_to_config=register_to_config)
    package = module('diffusers', source, ModelMixin=ModelMixin, **mixins)
    module('diffusers.models', os.path.join(source, 'models'))
    module('diffusers.models.modeling_utils', ModelMixin=ModelMixin)
    module('diffusers.configuration_utils', **mixins)
    module('diffusers.utils', '', BaseOutput=BaseOutput, deprecate=None, logging=Settings(get_logger=lambda name: None))
    module('diffusers.utils.import_utils', is_xformers_available=lambda: True)
    from diffusers.models.unet_2d_motion_cond import UNet2DMotionCond
    package.UNet2DMotionCond = UNet2DMotionCond
    module('stdiff_models', os.path.join(PROJECT, 'stdiff/models'))
    from stdiff_models import diff_unet, stdiff_diffusers
    from torchsde._brownian import brownian_interval
    brownian_interval._randn = lambda size, dtype, device, seed: torch.randn(size, dtype=dtype, device=device)
    return UNet2DMotionCond, diff_unet, stdiff_diffusers.STDiffDiffusers


# ---------------------------------------------------------------- the model
class Training(torch.nn.Module):
    def __init__(self, H=64, Wd=512, To=3, Tp=3, ch=(128, 256, 256, 512, 512), head=128, ckpt=False, xformers_on=True, part='whole',
                 in_channels=2, out_channels=1, layers_per_block=2, model_channels=64, n_downs=2, n_layers=2, dt=0.1, image_channels=1,
                 autoregressive=True, down_block_types=None, up_block_types=None):
        super().__init__()
        UNet2DMotionCond, diff_unet, STDiffDiffusers = imported()
        above = len(ch) - 1
        motion = model_channels * 2 ** n_downs
        unet = dict(sample_size=(H, Wd), in_channels=in_channels, out_channels=out_channels, m_channels=motion,
                    layers_per_block=layers_per_block, block_out_channels=tuple(ch),
                    attention_head_dim=tuple(head) if isinstance(head, list) else head,
                    down_block_types=down_block_types or ('DownBlock2D',) + ('AttnDownBlock2D',) * above,
                    up_block_types=up_block_types or ('AttnUpBlock2D',) * above + ('UpBlock2D',))
        self.of = Settings(H=H, W=Wd, To=To, Tp=Tp, C=image_channels, noise=out_channels, motion=(motion, H >> n_downs, Wd >> n_downs),
                           noisy=in_channels - (image_channels if autoregressive else 0), autoregressive=autoregressive, part=part)
        if part == 'unet':
            self.net = UNet2DMotionCond(**unet)
        else:
            encoder = Settings(learn_diff_image=True, image_size=[H, Wd], in_channels=image_channels, model_channels=model_channels, n_downs=n_downs)
            options = Settings(noise_type='diagonal', sde_type='stratonovich', dt=dt, rtol=1e-3, atol=1e-3, adaptive=False)
            self.net = STDiffDiffusers(unet, Settings(autoregressive=autoregressive, super_res_training=False, MotionEncoder=encoder,
                                                      DiffUnet=Settings(n_layers=n_layers, nonlinear='tanh'),
                                                      Int=Settings(sde=True, method='euler_heun', sde_options=options, ode_options=None)))
            sdeint = diff_unet.sdeint
            diff_unet.sdeint = lambda sde, y0, ts, **more: sdeint(sde, y0, self.times(ts.shape[0]), **more)
        for m in self.net.modules():
            if hasattr(m, 'gradient_checkpointing'): m.gradient_checkpointing = ckpt
            if hasattr(m, '_use_memory_efficient_attention_xformers'): m._use_memory_efficient_attention_xformers = xformers_on

    def times(self, count):
        with _disable_current_modes(): return torch.arange(self.of.To - 1, self.of.To - 1 + count, dtype=torch.float64)

    def example_inputs(self, batch, seq, device):
        of, B = self.of, batch * self.of.Tp
        new = functools.partial(torch.empty, device=device)
        inputs = dict(Vo=new(batch, of.To, of.C, of.H, of.W), Vp=new(batch, of.Tp, of.C, of.H, of.W), Vo_last=new(batch, 1, of.C, of.H, of.W),
                      noise=new(B, of.noise, of.H, of.W), t=torch.zeros(B, dtype=torch.long, device=device),
                      noisy=new(B, of.noisy, of.H, of.W), idx_o=new(of.To), idx_p=new(of.Tp))
        if of.part == 'unet': inputs['m_feat'] = new(B, *of.motion).requires_grad_()
        return inputs

    def forward(self, Vo, Vp, Vo_last, noise, t, noisy, idx_o, idx_p, m_feat=None):
        if m_feat is None:
            out = self.net(Vo, idx_o, idx_p, noisy, t, Vp, Vo_last).sample
        else:
            x = torch.cat([noisy, torch.cat([Vo_last, Vp[:, :-1]], dim=1).flatten(0, 1)], dim=1) if self.of.autoregressive else noisy
            out = self.net(x, t, m_feat=m_feat).sample
        with torch.autocast(Vo.device.type, enabled=False):
            return F.l1_loss(out.float(), noise, reduction='none').mean()


def build(**args):
    here = os.getcwd()
    os.chdir('/tmp')  # the model appends to a file in the working directory
    try: return Training(**args)
    finally: os.chdir(here)
