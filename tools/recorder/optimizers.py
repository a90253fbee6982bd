"""Optimizers that torch.optim does not have, in a recorded run: their own Python code, from the folder packages/ beside this file
(lion_pytorch, prodigyopt, pytorch_optimizer, bitsandbytes, schedulefree, optimi, grokadamw, galore_torch, apollo_torch, lomo_optim and came_pytorch:
source folders, those of GaLore and APOLLO with an empty __init__.py; soap.py, sophia.py and torchdistx's anyprecision_optimizer.py: the files of their repositories).
Also recipes of several optimizers, the optimizer in backward, and averages of the weights."""
import functools, os, sys, types

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'packages'))


class Recipe:
    """Several optimizers stepped one after the other."""
    def __init__(self, *parts): self.parts = parts
    @property
    def state(self): return {p: s for part in self.parts for p, s in part.state.items()}
    def step(self):
        for part in self.parts: part.step()
    def zero_grad(self, set_to_none=True):
        for part in self.parts: part.zero_grad(set_to_none=set_to_none)


def muon_and_adamw(params, lr, **args):
    """As in the docstring of torch.optim.Muon."""
    matrices, rest = [p for p in params if p.ndim == 2], [p for p in params if p.ndim != 2]
    return Recipe(torch.optim.Muon(matrices, lr=lr, **args), torch.optim.AdamW(rest, lr=lr))


def lion(params, lr, foreach=False, **args):
    if foreach: from lion_pytorch.foreach import Lion
    else: from lion_pytorch import Lion
    return Lion(params, lr=lr, **args)


def scalable_shampoo(params, lr, **args):
    """Its partition is made of small integer tensors on the CPU, which must be real; inference mode would hide the ops inside others."""
    import pytorch_optimizer.optimizer.shampoo_utils as u
    from torch.utils._python_dispatch import _disable_current_modes
    init = u.BlockPartitioner.__init__

    def plain(self, var, rank, block_size, pre_conditioner_type):
        class Shape: shape = var.shape
        with _disable_current_modes():
            init(self, Shape, rank, block_size, pre_conditioner_type)
            self.split_sizes = [(i, sizes.tolist()) for i, sizes in self.split_sizes]
            self.pre_conditioner_shapes = [s and [int(d) for d in s] for s in self.pre_conditioner_shapes]
    u.BlockPartitioner.__init__ = plain
    u.power_iteration = functools.partial(u.power_iteration, num_iters=1)  # each of the hundred does the same
    u.compute_power_schur_newton = torch.no_grad()(u.compute_power_schur_newton.__wrapped__)
    from pytorch_optimizer.optimizer.shampoo import ScalableShampoo
    return ScalableShampoo(params, lr=lr, **args)


def soap(params, lr, **args):
    from soap import SOAP
    return SOAP(params, lr=lr, **args)


def sophia(params, lr, **args):
    from sophia import SophiaG
    return SophiaG(params, lr=lr, **args)


def prodigy(params, lr, **args):
    from prodigyopt.prodigy import Prodigy
    return Prodigy(params, lr=lr, **args)


def bitsandbytes_class(name, tracer):
    """Paged states come from cudaMallocManaged, which PyTorch's allocator does not see: here a tensor on the CPU."""
    import adapters
    bnb = adapters.load_bitsandbytes(tracer)
    import bitsandbytes.functional as F, bitsandbytes.optim.optimizer as o

    def get_paged(*shape, dtype=torch.float32, device=None):
        t = torch.empty(shape, dtype=dtype, device='cpu')
        t.is_paged = True
        return t
    F.get_paged, F.fill, F.prefetch_tensor = get_paged, lambda *a, **k: None, lambda *a, **k: None
    o.sync_gpu = lambda t: None
    F.optimizer_update_32bit = F.optimizer_update_8bit_blockwise = lambda *a, **k: None  # in place
    F.create_dynamic_map = lambda signed=True: torch.empty(256)
    return getattr(bnb.optim, name)


def schedule_free(name):
    def make_one(params, lr, **args):
        import schedulefree
        o = getattr(schedulefree, name)(params, lr=lr, **args)
        o.train()
        return o
    return make_one


def of_package(package, name):
    def make_one(params, lr, **args):
        import importlib
        return getattr(importlib.import_module(package), name)(params, lr=lr, **args)
    return make_one


def low_rank(net, tracer, package, name, params, lr, target_modules='all-linear', rank=128, proj_type='std', **args):
    """With the groups of transformers' _setup_low_rank_optimizer. Every step computes the projection anew."""
    import importlib
    from transformers.trainer_utils import check_target_module_exists
    for name_of, names in (('tensorly', {'tenalg': None}), ('tensorly.decomposition', {'tucker': None})):  # of tensors of more dimensions
        sys.modules.setdefault(name_of, types.ModuleType(name_of)).__dict__.update(names)
    if package == 'galore_torch.adamw8bit':
        bitsandbytes_class('AdamW8bit', tracer)
        torch.cuda.synchronize = lambda *a: None
    group = dict(rank=rank, update_proj_gap=1, scale=0.25, proj_type=proj_type)
    if package == 'apollo_torch.apollo': group.update(proj=args.pop('proj', 'random'), scale_type=args.pop('scale_type', 'channel'))
    if package == 'apollo_torch.apollo':  # a generator of its own needs a real device
        import apollo_torch.random_projector as r
        r.stable_randn = lambda shape, seed, device=None, dtype=None: torch.randn(shape, device=device, dtype=dtype)
    chosen = {n + '.weight' for n, m in net.named_modules() if isinstance(m, torch.nn.Linear) and
              (target_modules == 'all-linear' or check_target_module_exists(target_modules, n))}
    named = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    groups = [{'params': [p for n, p in named if n not in chosen]}, {'params': [p for n, p in named if n in chosen], **group}]
    o = getattr(importlib.import_module(package), name)(groups, lr=lr, **args)
    if package != 'galore_torch.adamw8bit': return o
    step = o.step

    def step_and_tag():  # weights are in new storages afterwards
        step()
        for p in params: tracer.retag(p.data, 'param')
    o.step = step_and_tag
    return o


def lomo(name, params, tracer, lr, **args):
    """Its hooks are on the gradients; fused_backward ends with the update of the last parameter, here in step(). What it does in backward
    is counted as the optimizer's."""
    import lomo_optim
    named = [(str(i), p) for i, p in enumerate(params)]

    class Model:
        def named_parameters(self): return iter(named)
        def parameters(self): return iter(params)

    of_class = getattr(lomo_optim, name)
    fuse_update = of_class.fuse_update

    def as_optimizer(self):
        update = fuse_update(self)

        def run(x):
            phase, tracer.phase = tracer.phase, 'optim'
            try: return update(x)
            finally: tracer.phase = phase
        return run

    of_class.fuse_update = as_optimizer
    o = of_class(Model(), lr=lr, **args)
    of_class.fuse_update = fuse_update
    o.step = lambda: o.grad_func(0)
    if name == 'AdaLomo':
        o.step_num = 1
        for n, p in named:
            for moments in (o.exp_avg_sq, o.exp_avg_sq_row, o.exp_avg_sq_col):
                if n in moments: o.state[p][str(id(moments))] = moments[n]
    return o


MAKERS = {**{n: schedule_free(n) for n in ('AdamWScheduleFree', 'RAdamScheduleFree', 'SGDScheduleFree')},
          'StableAdamW': of_package('optimi', 'StableAdamW'), 'GrokAdamW': of_package('grokadamw', 'GrokAdamW'),
          'AnyPrecisionAdamW': of_package('anyprecision_optimizer', 'AnyPrecisionAdamW'),
          'Muon+AdamW': muon_and_adamw, 'lion_pytorch.Lion': lion, 'ScalableShampoo': scalable_shampoo, 'SOAP': soap, 'SophiaG': sophia,
          'Prodigy': prodigy, 'CAME': of_package('came_pytorch', 'CAME')}


LOW_RANK = {'GaLoreAdamW': ('galore_torch.adamw', 'AdamW'), 'GaLoreAdamW8bit': ('galore_torch.adamw8bit', 'AdamW8bit'),
            'GaLoreAdafactor': ('galore_torch.adafactor', 'Adafactor'), 'APOLLOAdamW': ('apollo_torch.apollo', 'AdamW')}


def make(o, params, tracer, net=None):
    name, args = o['name'], o.get('args', {})
    if name in ('Lomo', 'AdaLomo'): return lomo(name, params, tracer, lr=1e-4, **args)
    if name in LOW_RANK: return low_rank(net, tracer, *LOW_RANK[name], params, lr=1e-4, **args)
    if name in MAKERS: return MAKERS[name](params, lr=1e-4, **args)
    if 'bit' in name or name.startswith('Paged') or name in ('Lion', 'AdEMAMix'): return bitsandbytes_class(name, tracer)(params, lr=1e-4, **args)
    return getattr(torch.optim, name)(params, lr=1e-4, **args)


def tensors_in(value):
    """Tensors of a state: itself, in lists, or attributes of an object of the optimizer's own."""
    if isinstance(value, torch.Tensor): yield value
    elif isinstance(value, (list, tuple)):
        for v in value: yield from tensors_in(v)
    elif hasattr(value, '__dict__') and type(value).__module__.startswith(('pytorch_optimizer', 'galore_torch', 'apollo_torch')):
        for v in vars(value).values(): yield from tensors_in(v)


# ---------------------------------------------------------------- the optimizer in backward
def step_in_backward(o, params, tracer, tag):
    """One optimizer a parameter, stepped in a hook after its gradient was accumulated (PyTorch's tutorial; torchtune's optimizer_in_bwd)."""
    each = {p: make(o, [p], tracer) for p in params}

    def hook(p):
        phase, tracer.phase = tracer.phase, 'optim'
        each[p].step()
        tag(each[p])
        each[p].zero_grad()
        tracer.phase = phase
    for p in params: p.register_post_accumulate_grad_hook(hook)
    return Recipe()


# ---------------------------------------------------------------- averages of the weights
class DiffusersEma:
    """diffusers' EMAModel: a copy of each parameter, updated by a difference; the plain loop does so for frozen ones, too."""
    def __init__(self, net, dtype, update):
        self.foreach, self.all = update == 'diffusers-foreach', update == 'loop'
        self.shadow = [p.clone().detach() for p in net.parameters()]
        if dtype: self.shadow = [s.to(dtype=dtype) for s in self.shadow]

    @torch.no_grad()
    def step(self, net):
        params = list(net.parameters())
        if self.foreach:
            train = [p for p in params if p.requires_grad]
            shadow = [s for s, p in zip(self.shadow, params) if p.requires_grad]
            torch._foreach_sub_(shadow, torch._foreach_sub(shadow, train), alpha=0.1)
            return
        for s, p in zip(self.shadow, params):
            if p.requires_grad or self.all: s.sub_(0.1 * (s - p))
            else: s.copy_(p)


class LerpEma:
    """The hand-written one: shadow.lerp_(parameter), in the type of the shadow."""
    def __init__(self, net, dtype):
        self.shadow = [p.detach().to(dtype, copy=True) if dtype else p.detach().clone() for p in net.parameters()]

    @torch.no_grad()
    def step(self, net):
        for s, p in zip(self.shadow, net.parameters()): s.lerp_(p.to(s.dtype), 0.1)


class AiToolkitEma:
    """The AI Toolkit's: of what is trained alone, each difference in fp32; half types are rounded back with random bits."""
    def __init__(self, net):
        self.params = [p for p in net.parameters() if p.requires_grad]
        self.shadow = [p.clone().detach() for p in self.params]

    @torch.no_grad()
    def step(self, net):
        for s, p in zip(self.shadow, self.params):
            average, value = s.float(), p.float()
            difference = average - value
            difference.mul_(0.1)
            average.sub_(difference)
            if s.dtype != torch.float32:
                bits = torch.randint_like(average, dtype=torch.int32, low=0, high=1 << 16)
                bits.add_(average.view(dtype=torch.int32))
                s.copy_(bits.view(dtype=torch.float32))
                del bits
            del average, value, difference


class TorchEma:
    def __init__(self, net):
        import adapters
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
        FakeTensor.__deepcopy__ = adapters.deepcopy_without_data
        self.model = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.model.n_averaged = torch.empty((), dtype=torch.long)  # a constant would really be copied to the device
    def step(self, net): self.model.update_parameters(net)


def make_ema(settings, net, dtypes):
    settings = {} if settings is True else settings
    update, dtype = settings.get('update', 'loop'), dtypes[settings.get('dtype')]
    if update == 'averaged-model': return TorchEma(net)
    if update == 'ai-toolkit': return AiToolkitEma(net)
    return LerpEma(net, dtype) if update == 'lerp' else DiffusersEma(net, dtype, update)
