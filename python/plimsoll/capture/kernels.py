"""What a CUDA build decides below Python and a build without CUDA kernels decides otherwise: the kernel of attention, fused
kernels, sums made in place; and rules that read sizes as numbers, written so that symbols pass."""
from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor

from .device import DEVICE
from .patches import Patches

aten = torch.ops.aten

# A CPU-only build has no CUDA kernel for these, and would unfold them into full-size temporaries.
_FUSED = ('silu_backward', 'mish_backward', 'native_channel_shuffle', '_fused_rms_norm')

# The engine sums gradients in place when it holds the only reference (InputBuffer::accumulate), and some formulas scatter in
# place, except under a dispatch mode, that is: here. Such a result takes over its source's memory if the source dies first.
IN_PLACE_ON_CUDA = {aten.add.Tensor, aten.scatter_add.default, aten.index_put.default, aten.scatter.src, aten.index_add.default}

# Results whose size the data decide.
COUNTED = {aten.nonzero.default, aten.masked_select.default, aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default}

# They select by masks: a mask becomes indices first.
MASKED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default, aten._unsafe_index.Tensor}

# The most common ways in which memory begins without values of others.
FACTORIES = {'empty', 'zeros', 'ones', 'full', 'rand', 'randn', 'randint', 'randperm', 'arange', 'linspace', 'eye', 'empty_strided', 'scalar_tensor',
             'tril_indices', 'triu_indices', 'logspace', 'normal'}


def called_by_engine() -> bool:
    """Whether the dispatch in progress comes from the engine itself, not from Python code that it runs."""
    frame = sys._getframe(2).f_back
    while frame is not None and frame.f_code.co_filename.endswith(('_compile.py', 'eval_frame.py')):
        frame = frame.f_back
    return frame is None or frame.f_code.co_name == '_engine_run_backward'


def _flags() -> tuple[bool, bool, bool]:
    b: Any = torch.backends.cuda
    return b.flash_sdp_enabled(), b.mem_efficient_sdp_enabled(), b.math_sdp_enabled()


def attention_kernel(q: Any, k: Any, v: Any, mask: Any, gqa: bool) -> str:
    """What sdp_utils.cpp chooses on CUDA: flash for half types without a mask; else the memory-efficient kernel, which has no grouped
    queries; else math, which holds the whole matrix of scores."""
    flash, efficient, math = _flags()
    if q.shape[2] == 0 or k.shape[2] == 0 or not (flash or efficient):
        return 'math'
    half = q.dtype in (torch.float16, torch.bfloat16)
    if flash and half and mask is None and q.shape[3] == v.shape[3]:
        return 'flash'
    if efficient and (not gqa or not math):
        return 'efficient'
    if math:
        return 'math'
    raise RuntimeError('No available kernel. Aborting execution.')  # PyTorch's own words


def _attention(plain: Any) -> Any:
    def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
                                     scale: Any = None, enable_gqa: bool = False) -> Any:
        if query.device.type != DEVICE or query.dim() != 4:
            more = {'enable_gqa': True} if enable_gqa else {}
            return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **more)
        q, k, v = query, key, value
        del query, key, value
        if torch.is_autocast_enabled(DEVICE):  # on autocast's list; the kernels called below are not
            dtype = torch.get_autocast_dtype(DEVICE)
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        gqa = enable_gqa and k.shape[1] != q.shape[1]
        kind = attention_kernel(q, k, v, attn_mask, gqa)
        if kind == 'flash':
            return aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
        if kind == 'efficient':
            if gqa:
                times = q.shape[1] // k.shape[1]
                k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
            return aten._scaled_dot_product_efficient_attention(q, k, v, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
        more = {'enable_gqa': gqa} if gqa else {}
        return aten._scaled_dot_product_attention_math(q, k, v, attn_mask, dropout_p, is_causal, None, scale=scale, **more)[0]
    return scaled_dot_product_attention


def _interpolate(plain: Any) -> Any:
    def interpolate(input: Any, size: Any = None, scale_factor: Any = None, mode: str = 'nearest', *args: Any, **kwargs: Any) -> Any:
        """Nearest upsampling by a whole number: its C++ rule reads the sizes as numbers."""
        whole = isinstance(scale_factor, (int, float)) and scale_factor == int(scale_factor)
        if (mode == 'nearest' and size is None and whole and isinstance(input, FakeTensor) and input.dim() == 4
                and any(isinstance(s, torch.SymInt) for s in input.shape)):
            f = int(scale_factor)
            return aten.upsample_nearest2d.default(input, [input.shape[2] * f, input.shape[3] * f], float(f), float(f))
        return plain(input, size, scale_factor, mode, *args, **kwargs)
    return interpolate


def _grouped_mm(plain: Any) -> Any:
    import torch._meta_registrations as meta

    def common(mat_a: Any, mat_b: Any, *args: Any, offs: Any = None, out_dtype: Any = None, **kwargs: Any) -> Any:
        """The meta kernel refuses what CUDA's takes (GroupedMMUtils.h): float32, and float16."""
        for m in (mat_a, mat_b):
            if not any(s % (16 // m.element_size()) == 0 for s in m.stride()[-2:]):
                raise RuntimeError('strides should be multiple of 16 bytes')
        if args or mat_a.dtype is torch.float8_e4m3fn:
            return plain(mat_a, mat_b, *args, offs=offs, out_dtype=out_dtype, **kwargs)
        return meta._create_grouped_mm_output_tensor(mat_a, mat_b, offs, out_dtype)  # type: ignore[no-untyped-call]
    return common


def padded(x: Any, pad: Any, mode: Any) -> Any:
    """constant_pad_nd: its C++ rule reads the sizes as numbers."""
    shape = list(x.shape)
    for i in range(len(pad) // 2):
        shape[-1 - i] = shape[-1 - i] + pad[2 * i] + pad[2 * i + 1]
    with mode:
        return torch.empty(shape, dtype=x.dtype, device=x.device)


def install(patches: Patches) -> None:
    patches.set(F, 'scaled_dot_product_attention', _attention(F.scaled_dot_product_attention))
    patches.set(F, 'interpolate', _interpolate(F.interpolate))
    import torch._meta_registrations as meta
    if hasattr(meta, '_meta_grouped_mm_common') and hasattr(meta, '_create_grouped_mm_output_tensor'):
        patches.set(meta, '_meta_grouped_mm_common', _grouped_mm(meta._meta_grouped_mm_common))
    library: Any = torch.library.Library('aten', 'IMPL')  # type: ignore[no-untyped-call]
    for name in _FUSED:
        if hasattr(aten, name) and not torch._C._dispatch_has_kernel_for_dispatch_key(f'aten::{name}', 'CUDA'):
            library.impl(name, _never, 'CUDA')
    patches.call_on_restore(library._destroy)
    from torch.optim import optimizer
    supported = getattr(optimizer, '_foreach_supported_types', None)
    if isinstance(supported, list):
        supported.append(FakeTensor)
        patches.call_on_restore(lambda: supported.remove(FakeTensor))


def _never(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError('a kernel of a device without values was called')
