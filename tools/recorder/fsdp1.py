"""torch.distributed.fsdp.FullyShardedDataParallel (FSDP1) on the recorder's device: PyTorch's own code on fake tensors.

`parallel` of the spec: {"kind": "fsdp1", "world", "rank", "strategy", "mp", "reduce", "buffer", "orig_params", "prefetch",
"forward_prefetch", "offload", "no_sync", "keep_low", "wrap_trained", "ac"}. "ac":
"outside" checkpoints around the wrapped blocks, as transformers before 4.52 did. With PEFT's adapters the layers of these are units of their own
(peft.utils.other.fsdp_auto_wrap_policy) unless wrap_trained is false. Replaced are only addresses (a fake tensor has none), record_stream
and pinned memory.
"""
import functools
import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import _flat_param, _runtime_utils
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

PREFETCH = {'pre': BackwardPrefetch.BACKWARD_PRE, 'post': BackwardPrefetch.BACKWARD_POST, None: None}


def address(t):
    """Different for different storages, and 0 for one without memory: all that FSDP asks of it."""
    s = t.untyped_storage()
    return s._cdata + t.storage_offset() * t.element_size() if s.size() else 0


def set_data(t, other):
    """A fake tensor's device is an attribute that `t.data = other` leaves alone."""
    torch._C.TensorBase.data.__set__(t, other)
    if isinstance(other, FakeTensor): t.fake_device = other.fake_device


def replace_what_needs_a_device():
    FakeTensor.data = property(torch._C.TensorBase.data.__get__, set_data)
    FakeTensor.data_ptr = address
    FakeTensor.pin_memory = lambda t, *a: t
    _flat_param._same_storage = lambda a, b: a.untyped_storage()._cdata == b.untyped_storage()._cdata
    _flat_param._data_ptr_allocated = lambda t: t.untyped_storage().size() > 0
    for module in (_flat_param, _runtime_utils): module._no_dispatch_record_stream = lambda *a: None


def tag(tr):
    """Names for what FSDP allocates; changes nothing it does."""
    def under(owner, name, cat):
        orig = getattr(owner, name)
        @functools.wraps(orig)
        def inner(*a, **k):
            with tr.category(cat): return orig(*a, **k)
        setattr(owner, name, inner)
    streams = _runtime_utils._init_streams
    def init_streams(state):  # by the names that fully_shard's pools have, too
        streams(state)
        for attr, name in (('_unshard_stream', 'ag_copy_in'), ('_post_backward_stream', 'reduce_scatter'), ('_pre_unshard_stream', 'pre_unshard')):
            getattr(state, attr).name = name
        if state._all_reduce_stream is not state._default_stream: state._all_reduce_stream.name = 'all_reduce'
    _runtime_utils._init_streams = init_streams
    H = _flat_param.FlatParamHandle
    low = H._use_low_precision_shard
    def low_precision(handle):
        with tr.category('allgather_buf' if handle.uses_sharded_strategy else 'unsharded_param'): return low(handle)
    H._use_low_precision_shard = low_precision
    under(H, '_alloc_padded_unsharded_flat_param', 'unsharded_param')
    under(_runtime_utils, '_reduce_grad', 'reduce_buf')
    hook = _runtime_utils._post_backward_hook
    @functools.wraps(hook)
    def post_backward(state, handle, flat_param, *unused):
        grad = handle.flat_param.grad
        if grad is not None: tr.retag(grad, 'unsharded_grad')
        del grad
        with tr.category('reduce_buf'): return hook(state, handle, flat_param, *unused)
    _runtime_utils._post_backward_hook = post_backward


def policy_of(par, dtype):
    if not par.get('mp') and not par.get('reduce') and not par.get('buffer'): return None
    return MixedPrecision(param_dtype=dtype[par.get('mp')], reduce_dtype=dtype[par.get('reduce')], buffer_dtype=dtype[par.get('buffer')],
                          keep_low_precision_grads=par.get('keep_low', False))


def checkpoint_outside(net, blocks, settings):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
    impl = CheckpointImpl.REENTRANT if settings.get('reentrant') else CheckpointImpl.NO_REENTRANT
    for i, block in enumerate(blocks): blocks[i] = checkpoint_wrapper(block, checkpoint_impl=impl)
    if hasattr(net, 'peft_config'): net.enable_input_require_grads()


def apply(net, par, tr, blocks, dtype):
    replace_what_needs_a_device()
    tag(tr)
    kw = {}
    strategy = ShardingStrategy[par.get('strategy', 'FULL_SHARD')]
    if 'HYBRID' in strategy.name:
        from torch.distributed.device_mesh import init_device_mesh
        shards = par['world'] // par['replicas']
        with unset_fake_temporarily():
            kw['device_mesh'] = init_device_mesh('cuda', (par['replicas'], shards), mesh_dim_names=('replicate', 'shard'))
    policy = ModuleWrapPolicy({type(b) for b in blocks})
    if hasattr(net, 'peft_config') and par.get('wrap_trained', True):
        from peft.utils.other import fsdp_auto_wrap_policy
        policy = fsdp_auto_wrap_policy(net)
    return FSDP(net, auto_wrap_policy=policy, sharding_strategy=strategy,
                mixed_precision=policy_of(par, dtype), use_orig_params=par.get('orig_params', False),
                backward_prefetch=PREFETCH[par.get('prefetch', 'pre')], forward_prefetch=par.get('forward_prefetch', False),
                cpu_offload=CPUOffload(True) if par.get('offload') else None, **kw)
