"""transformers' MambaForCausalLM on the fused path: mamba-ssm's own autograd function (its folder mamba_ssm as packages/mamba_ssm, with
einops as packages/einops). Replaced are the compiled functions, by what their C++ and Python wrappers allocate
(csrc/selective_scan/selective_scan.cpp, causal_conv1d/cpp_functions.py). Recorded as {"py": "mamba_kernels.py", "args": {...}}."""
import os, sys, types
import torch

PACKAGES = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), 'packages')


def scan_forward(u, delta, A, B, C, D, z, delta_bias, delta_softplus):
    out_z = torch.empty_like(z)
    out = torch.empty_like(delta)
    states = torch.empty(u.shape[0], u.shape[1], (u.shape[2] + 2047) // 2048, 2 * A.shape[1], dtype=A.dtype, device=u.device)
    return out, states, out_z


def scan_backward(u, delta, A, B, C, D, z, delta_bias, dout, x, out, dz, delta_softplus, recompute_out_z):
    out_z = torch.empty_like(out)
    du, ddelta, dA = torch.empty_like(u), torch.empty_like(delta), torch.zeros_like(A)
    dB, dC = torch.zeros_like(B, dtype=torch.float32), torch.zeros_like(C, dtype=torch.float32)
    dD, ddelta_bias = torch.zeros_like(D), torch.zeros_like(delta_bias)
    return du, ddelta, dA, dB.to(B.dtype), dC.to(C.dtype), dD, ddelta_bias, dz, out_z


def conv_forward(x, weight, bias, seq_idx, initial_states, final_states_out, silu_activation): return torch.empty_like(x)


def conv_backward(x, weight, bias, dout, seq_idx, initial_states, dfinal_states, dx, return_dinitial_states, silu_activation):
    if dout.stride(2) != 1: dout = dout.contiguous()
    dweight = torch.zeros_like(weight, dtype=torch.float32)
    dbias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
    dweight = dweight.type_as(weight)
    if bias is not None: dbias = dbias.type_as(bias)
    return dx, dweight, dbias, None


def stand_in(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)


def package(name, folder):
    """Without what its __init__.py imports."""
    stand_in(name, __path__=[folder])


def build(use_mamba_kernels=True, **args):
    import transformers.models.mamba.modeling_mamba as modeling
    net = modeling.MambaForCausalLM(modeling.MambaConfig(**args))  # before the stand-ins: it looks for the packages
    sys.path.insert(0, PACKAGES)
    for name in ('mamba_ssm', 'mamba_ssm.ops'): package(name, os.path.join(PACKAGES, *name.split('.')))
    stand_in('mamba_ssm.ops.triton')
    stand_in('mamba_ssm.ops.triton.layer_norm', _layer_norm_fwd=None)
    stand_in('causal_conv1d', causal_conv1d_fn=None)
    stand_in('causal_conv1d.cpp_functions', causal_conv1d_fwd_function=conv_forward, causal_conv1d_bwd_function=conv_backward,
             causal_conv1d_update_function=None)
    stand_in('selective_scan_cuda', fwd=scan_forward, bwd=scan_backward)
    from mamba_ssm.ops.selective_scan_interface import mamba_inner_fn
    modeling.is_tracing = lambda *a: False  # a tensor without data is no tracing
    modeling.mamba_inner_fn = mamba_inner_fn
    for unused in ('selective_state_update', 'selective_scan_fn', 'causal_conv1d_fn', 'causal_conv1d_update'):
        setattr(modeling, unused, unused)  # present, and not called in training
    return net
