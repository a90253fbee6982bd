"""Denoisers that the AI Toolkit has its own code for, trained as diffusers_transformers.py trains those of diffusers. packages/hidream/models
and packages/omnigen2 beside this file are the folders hidream/src/models and omnigen2/src of its extensions_built_in/diffusion_models;
packages/einops is the package's source folder. Experts get as many tokens as one another: what bincount would count is not known."""
import sys, types

import torch
import torch.nn.functional as F

import diffusers_transformers as dt
from diffusers_models import preload  # noqa: F401


class EvenCounts:
    """tensor.bincount() of which expert each row goes to, and the way it goes to the host."""
    experts = 1

    def __init__(self, rows): self.rows, self.counts = rows.shape[0], torch.empty(self.experts, dtype=torch.int64, device=rows.device)
    def cpu(self): return self

    def numpy(self):
        import numpy
        return numpy.array([self.rows // self.experts + (i < self.rows % self.experts) for i in range(self.experts)])


class HiDream(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        from hidream.models.transformers.transformer_hidream_image import HiDreamImageTransformer2DModel
        self.states = config.pop('llama_states', 32)
        blocks = config.get('num_layers', 16) + config.get('num_single_layers', 32)
        config.setdefault('llama_layers', [min(i, self.states - 1) for i in range(blocks)])
        config.setdefault('caption_channels', [4096, 4096])
        EvenCounts.experts = config.get('num_routed_experts', 4)
        torch.Tensor.bincount = lambda rows: EvenCounts(rows)
        self.net = HiDreamImageTransformer2DModel.from_config(config)

    def inputs(self, c):
        config, text = self.net.config, c.text_tokens or 128
        t5, llama = config.caption_channels
        return (c.batch, config.in_channels, c.height // 8, c.width // 8), dict(
            t5=(c.batch, text, t5), llama=(self.states, c.batch, text, llama), pooled=(c.batch, config.text_emb_dim))

    def forward(self, latents, timestep, t5, llama, pooled):
        return self.net(hidden_states=latents, timesteps=timestep, encoder_hidden_states=[t5, llama], pooled_embeds=pooled, return_dict=False)[0]


def with_triton(on):
    """OmniGen2 takes its norms from Triton where that is installed, as PyTorch for CUDA does: their Python code runs, no kernel does."""
    import omnigen2.utils.import_utils as installed
    installed._triton_available = on
    if not on: return

    class Kernel:
        def __init__(self, function): pass
        def __getitem__(self, grid): return lambda *args, **kwargs: None

    def decorator(*args, **kwargs): return lambda function: function
    language = types.ModuleType('triton.language')
    language.constexpr = int
    triton = types.ModuleType('triton')
    triton.__dict__.update(jit=Kernel, autotune=decorator, heuristics=decorator, Config=lambda *a, **k: None, language=language,
                           next_power_of_2=lambda n: 1 << (n - 1).bit_length())
    sys.modules.update({'triton': triton, 'triton.language': language})
    torch.cuda.get_device_properties = lambda *a: types.SimpleNamespace(multi_processor_count=132, warp_size=32)  # an H100's
    torch.cuda.current_device = lambda: 0
    from omnigen2.ops.triton import layer_norm
    layer_norm.torch.cuda.device = lambda index: __import__('contextlib').nullcontext()
    del sys.modules['triton'], sys.modules['triton.language']


class OmniGen2(torch.nn.Module):
    """Captions fill their tokens; what a network learns of reference images has none to work on."""
    def __init__(self, config):
        super().__init__()
        with_triton(config.pop('triton', True))
        from omnigen2.models.transformers.transformer_omnigen2 import OmniGen2Transformer2DModel
        from omnigen2.models.transformers.repo import OmniGen2RotaryPosEmbed
        torch.nn.init.trunc_normal_ = lambda tensor, **kwargs: tensor  # draws until it likes the values, of which there are none
        self.net = OmniGen2Transformer2DModel.from_config(config)
        c = self.net.config
        self.freqs_cis = OmniGen2RotaryPosEmbed.get_freqs_cis(c.axes_dim_rope, c.axes_lens, theta=10000)  # on the host

    def inputs(self, c):
        config, text = self.net.config, c.text_tokens or 256
        return (c.batch, config.in_channels, c.height // 8, c.width // 8), dict(text=(c.batch, text, config.text_feat_dim), mask=((c.batch, text), torch.long))

    def forward(self, latents, timestep, text, mask):
        return self.net(latents, timestep, text, self.freqs_cis, mask)


CLASSES = {'HiDreamImageTransformer2DModel': HiDream, 'OmniGen2Transformer2DModel': OmniGen2}


class Training(torch.nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.net = CLASSES[args['class']]({k: v for k, v in args.items() if k not in dt.OWN})

    def gradient_checkpointing_enable(self, **kwargs): self.net.net.enable_gradient_checkpointing()
    def enable_input_require_grads(self): pass

    def example_inputs(self, batch, seq, device):
        weights = next(self.net.parameters()).dtype
        latents, conditions = self.net.inputs(dt.Canvas(batch, seq, self.args))

        def new(sizes, dtype=weights): return torch.empty(sizes, dtype=dtype, device=device)
        return dict(latents=new(latents), timestep=new((batch,), torch.long), target=new(latents),
                    **{k: new(*v) if isinstance(v[0], tuple) else new(v) for k, v in conditions.items()})

    def forward(self, latents, timestep, target, **conditions):
        prediction = self.net(latents, timestep, **conditions)
        return F.mse_loss(prediction.float(), target.float())


def build(**args):
    return Training(args)
