"""PEFT's own adapters and bitsandbytes' own layers in a recorded run: their Python code runs as it is, from the folder
packages/ beside this file (packages/peft, packages/bitsandbytes: the packages' source folders). Replaced are only the moves
of parameters that fake tensors refuse, and the C calls inside bitsandbytes' CUDA kernels, which allocate nothing."""
import os, sys

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

DTYPE = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16}
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'packages'))


def fresh(t, device, dtype=None):
    """The same parameter on another device or in another type, without data."""
    dtype = dtype if dtype and t.is_floating_point() else t.dtype
    return torch.nn.Parameter(torch.empty(t.shape, dtype=dtype, device=device), t.requires_grad)


def replace_parameters(module, change):
    """change(parameter) for every parameter, once where it is tied."""
    seen = {}
    for sub in module.modules():
        for name, p in list(sub._parameters.items()):
            if p is None: continue
            if id(p) not in seen: seen[id(p)] = (change(p), p)
            sub._parameters[name] = seen[id(p)][0]


def freeze(net, spec):
    """frozen and trainable name modules by the end of their name."""
    def within(name, wanted):
        parts = name.split('.')
        return any('.'.join(parts[:i + 1]) == w or '.'.join(parts[:i + 1]).endswith('.' + w) for i in range(len(parts)) for w in wanted)
    if 'trainable' in spec:
        for p in net.parameters(): p.requires_grad_(False)
    for on, wanted in ((True, spec.get('trainable', [])), (False, spec.get('frozen', []))):
        for name, m in net.named_modules():
            if within(name, wanted):
                for p in m.parameters(): p.requires_grad_(on)


# ---------------------------------------------------------------- peft
def patch_peft():
    import peft.tuners.tuners_utils as tu

    def move(self, adapter_name, device=None):
        base = self.get_base_layer()
        dtype = base.weight.dtype if base.weight.dtype.is_floating_point else None
        for name in self.adapter_layer_names + self.other_param_names:
            layers = getattr(self, name, None)
            if not isinstance(layers, (torch.nn.ModuleDict, torch.nn.ParameterDict)) or adapter_name not in layers: continue
            if isinstance(layers, torch.nn.ParameterDict):
                layers[adapter_name] = fresh(layers[adapter_name], base.weight.device, dtype)
            else:
                replace_parameters(layers[adapter_name], lambda p: fresh(p, base.weight.device, dtype))
    tu.BaseTunerLayer._move_adapter_to_device_of_base_layer = move

    def cast(model, adapter_name, autocast_adapter_dtype=True):
        if not autocast_adapter_dtype: return
        for layer in model.modules():
            if not isinstance(layer, tu.BaseTunerLayer): continue
            for sub in layer.modules():
                if not isinstance(sub, (torch.nn.ModuleDict, torch.nn.ParameterDict)) or adapter_name not in sub: continue
                item, up = sub[adapter_name], lambda p: fresh(p, p.device, torch.float32)
                if isinstance(item, torch.Tensor): sub[adapter_name] = up(item)
                else: replace_parameters(item, up)
    tu.cast_adapter_dtype = cast
    tu.BaseTuner._cast_adapter_dtype = lambda self, adapter_name, autocast_adapter_dtype=True: cast(self, adapter_name, autocast_adapter_dtype)


def deepcopy_without_data(self, memo):
    memo[id(self)] = fresh(self, self.device) if isinstance(self, torch.nn.Parameter) else torch.empty_like(self)
    return memo[id(self)]


def apply_peft(net, settings):
    patch_peft()
    FakeTensor.__deepcopy__ = deepcopy_without_data
    import peft
    kinds = {'LORA': peft.LoraConfig, 'LOKR': peft.LoKrConfig, 'IA3': peft.IA3Config, 'LN_TUNING': peft.LNTuningConfig}
    config = kinds[settings.get('peft_type', 'LORA')](**settings.get('config', {}))
    to, torch.nn.Module.to = torch.nn.Module.to, lambda self, *a, **k: self  # everything is where it belongs
    try: return peft.get_peft_model(net, config, autocast_adapter_dtype=settings.get('autocast_adapter_dtype', True))
    finally: torch.nn.Module.to = to


# ---------------------------------------------------------------- bitsandbytes
KERNELS = {}


def import_bitsandbytes():
    """Once, and before PEFT does: its CUDA kernels are kept as the Python functions that they are, around C calls."""
    if KERNELS: return sys.modules['bitsandbytes']
    kernels, register = KERNELS, torch.library.register_kernel

    def keep(name, device, *a, **k):
        def wrap(fn):
            if device == 'cuda' or (device == 'default' and name not in kernels): kernels[name] = fn
            return fn
        return wrap
    torch.library.register_kernel = keep
    if not hasattr(torch._C, '_cuda_getCurrentRawStream'): torch._C._cuda_getCurrentRawStream = lambda device: 0  # named on import
    import bitsandbytes as bnb
    import bitsandbytes.backends.cuda.ops as ops
    torch.library.register_kernel = register

    class Nothing:
        def __getattr__(self, name): return lambda *a, **k: 0
    ops.lib, ops.get_ptr, ops._get_tensor_stream = Nothing(), lambda t: None, lambda t: None
    ops._cuda_device_of = lambda t: __import__('contextlib').nullcontext()

    class Context:
        @classmethod
        def get_instance(cls): return cls()
        def get_context(self, device): return None
    ops.CUBLAS_Context = Context
    if hasattr(ops, '_gemm_4bit_use_custom_cuda'): ops._gemm_4bit_use_custom_cuda = lambda *a: False  # 0.50's kernel for few rows
    # A sharded weight is a view of what was gathered, and gets its state back: as a Params4bit of the same memory.
    bnb.nn.modules.fix_4bit_weight_quant_state_from_module = lambda m: setattr(m.weight, 'quant_state', m.quant_state)
    return bnb


def preload():
    """transformers imports PEFT, and that bitsandbytes, where they are."""
    if os.path.isdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'packages', 'bitsandbytes')): import_bitsandbytes()


def load_bitsandbytes(tracer):
    """The tracer runs its kernels, so that their temporaries are seen."""
    bnb = import_bitsandbytes()
    for name, fn in KERNELS.items():
        op = getattr(torch.ops.bitsandbytes, name.split('::')[1].split('.')[0])
        tracer.python_kernels[op.default if '.' not in name else getattr(op, name.split('.')[1])] = fn
    return bnb


def quantize(net, q, tracer):
    """What from_pretrained(quantization_config=...) makes of a model that is already on the device."""
    bnb = load_bitsandbytes(tracer)
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module
    skip = get_keys_to_not_convert(net) + list(q.get('skip_modules', [])) + list(net._keep_in_fp32_modules or [])
    four = q['type'] != 'int8'
    if four and q.get('double_quant'): bnb.functional.name2qmap['dynamic'] = torch.empty(256, device='cuda')  # create_dynamic_map().to(device)
    storage = DTYPE.get(q.get('storage'), torch.uint8)  # bnb_4bit_quant_storage
    for name, m in list(net.named_modules()):
        if not (type(m) is torch.nn.Linear or isinstance(m, Conv1D)) or not should_convert_module(name, skip): continue
        w = m.weight.t().contiguous() if isinstance(m, Conv1D) else m.weight
        with unset_fake_temporarily(), torch.device('meta'):
            if four: new = bnb.nn.Linear4bit(w.shape[1], w.shape[0], False, DTYPE[q.get('compute_dtype', 'bf16')], q.get('double_quant', False), q['type'], storage)
            else: new = bnb.nn.Linear8bitLt(w.shape[1], w.shape[0], False, has_fp16_weights=False, threshold=q.get('threshold', 6.0))
        del new.weight
        if four:
            packed, state = bnb.functional.quantize_4bit(w.detach(), compress_statistics=q.get('double_quant', False), quant_type=q['type'], quant_storage=storage)
            new.weight = torch.nn.Parameter(packed, False)
            new.weight.quant_state = new.quant_state = state
            new.weight.compress_statistics, new.weight.quant_type = q.get('double_quant', False), q['type']
        else:
            CB, SCB, _ = bnb.functional.int8_vectorwise_quant(w.detach().to(torch.float16))
            new.weight = torch.nn.Parameter(CB, False)
            new.weight.CB, new.weight.SCB = CB, SCB
        new.bias = m.bias
        net.set_submodule(name, new)
        del w, m
    net.is_loaded_in_4bit, net.is_loaded_in_8bit = four, not four
    for p in net.parameters(): p.requires_grad_(False)
    if q.get('prepare', True):  # peft.prepare_model_for_kbit_training
        half = (torch.float16, torch.bfloat16)
        replace_parameters(net, lambda p: fresh(p, p.device, torch.float32) if p.dtype in half else p)
    import peft.tuners.lora.dora as dora
    plain = dora.dequantize_module_weight
    def unpack(m):
        if not isinstance(m, (bnb.nn.Linear4bit, bnb.nn.Linear8bitLt)): return plain(m)
        if four: return bnb.functional.dequantize_4bit(m.weight.data, m.quant_state)
        return bnb.functional.int8_vectorwise_dequant(m.weight.data, m.state.SCB if m.state.SCB is not None else m.weight.SCB)
    dora.dequantize_module_weight = unpack
    return net


def apply(net, spec, tracer):
    if spec.get('quantization'): net = quantize(net, spec['quantization'], tracer)
    if 'frozen' in spec or 'trainable' in spec: freeze(net, spec)
    if spec.get('peft'): net = apply_peft(net, spec['peft'])
    return net
