"""DeepSpeed's ZeRO on the recorder's device: its own Python code (packages/deepspeed beside trace.py) on fake tensors.

`parallel` of the spec: {"kind": "zero", "world", "rank", "stage", "zero": {...}, "config": {...}}: `zero` is added to zero_optimization
of DeepSpeed's configuration, `config` to the configuration. Replaced are the accelerator's questions about a device, pinned
memory, addresses and the comparison of ranks; the optimizer is torch.optim's.
"""
import contextlib, os, sys
HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault('DS_ACCELERATOR', 'cuda')
os.environ.setdefault('LOCAL_RANK', '0')
sys.path.append(os.path.join(HERE, 'packages'))
import torch
import fsdp1


def preload():
    import deepspeed, deepspeed.runtime.zero.stage3  # noqa: F401


def replace_what_needs_a_device(tr):
    from deepspeed.accelerator import get_accelerator
    fsdp1.replace_what_needs_a_device()
    a = get_accelerator()
    c = type(a)
    c.is_available = lambda self: True
    c.device_count = lambda self: 1
    c.current_device_name = lambda self: 'cuda:0'
    c.current_device = lambda self: 0
    c.set_device = lambda self, *a: None
    c.available_memory = lambda self, *a: 1 << 60
    c.total_memory = lambda self, *a: 1 << 60
    c.memory_allocated = c.max_memory_allocated = c.memory_reserved = c.max_memory_reserved = c.memory_cached = lambda self, *a: 0
    c.memory_stats = lambda self, *a: {}
    c.reset_peak_memory_stats = c.empty_cache = c.synchronize = c.manual_seed_all = c.manual_seed = lambda self, *a: None
    c.pin_memory = lambda self, t, *a, **k: t
    c.is_pinned = lambda self, t: True
    c.communication_backend_name = lambda self: 'fake'
    c.Stream = lambda self, *a, **k: torch.cuda.Stream()
    c.stream = lambda self, s: torch.cuda.stream(s)
    c.current_stream = c.default_stream = lambda self, *a: torch.cuda.current_stream()
    c.Event = property(lambda self: torch.cuda.Event)
    c.FloatTensor = property(lambda self: lambda x: torch.empty(len(x), dtype=torch.float32, device='cuda'))
    c.ByteTensor = property(lambda self: lambda x: torch.empty(len(x), dtype=torch.uint8, device='cuda'))
    c.range_push = c.range_pop = lambda self, *a, **k: None
    c.is_bf16_supported = c.is_fp16_supported = lambda self: True
    for name in ('to', 'bfloat16', 'half', 'float'): setattr(torch.nn.Module, name, lambda self, *a, **k: self)  # is where and what it should be
    torch.Tensor.record_stream = lambda *a: None
    torch.distributed.barrier = lambda *a, **k: None
    from deepspeed.runtime.zero import partitioned_param_coordinator
    partitioned_param_coordinator.assert_ints_same_as_other_ranks = lambda *a, **k: None  # reads values: there is one rank


def config_of(spec, par):
    prec = spec.get('precision', 'fp32')
    c = {'train_micro_batch_size_per_gpu': spec.get('batch', 1), 'gradient_accumulation_steps': spec.get('accum', 1),
         'zero_allow_untested_optimizer': True, 'zero_force_ds_cpu_optimizer': False, 'steps_per_print': 10**9, 'wall_clock_breakdown': False,
         'zero_optimization': dict(stage=par.get('stage', 2), **par.get('zero', {}))}
    if spec.get('clip'): c['gradient_clipping'] = spec['clip']
    if prec == 'bf16': c['bf16'] = {'enabled': True}
    if prec == 'fp16': c['fp16'] = {'enabled': True, 'loss_scale': 1024}
    c.update(par.get('config', {}))
    return c


def tag(tr):
    """Names for what DeepSpeed allocates; changes nothing it does."""
    import functools
    from deepspeed.runtime.zero import partition_parameters, stage3, stage_1_and_2
    def under(owner, name, cat):
        orig = getattr(owner, name)
        @functools.wraps(orig)
        def inner(*a, **k):
            with tr.category(cat): return orig(*a, **k)
        setattr(owner, name, inner)
    Z = stage_1_and_2.DeepSpeedZeroOptimizer
    for name in ('setup_buckets', 'reduce_ipg_grads', 'independent_gradient_partition_epilogue', 'average_tensor'): under(Z, name, 'reduce_buf')
    under(stage3.DeepSpeedZeroOptimizer_Stage3, '_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads', 'reduce_buf')
    under(partition_parameters.Init, '_all_gather', 'unsharded_param')
    under(partition_parameters.AllGatherCoalescedHandle, 'wait', 'unsharded_param')


def tag_stage3(opt, net, tr):
    """What stage 3 has for the whole run, and what it gathers: several parameters into one flat tensor, one into its own."""
    gathers, reduces = opt.parameter_offload.param_coordinator._PartitionedParameterCoordinator__allgather_stream, opt.reduce_and_partition_stream
    if reduces.name != 'default': gathers.name, reduces.name = 'ag_copy_in', 'reduce_scatter'
    for bucket in opt.ipg_buckets.values():
        if bucket.buffer is not None: tr.retag(bucket.buffer, 'reduce_buf')
    if opt.grad_partitions_flat_buffer.is_cuda: tr.retag(opt.grad_partitions_flat_buffer, 'grad')
    for p in net.parameters():
        def gather(params, *a, orig=p.all_gather_coalesced, **k):
            params = list(params)
            with tr.category('allgather_buf' if len(params) > 1 else 'unsharded_param'): return orig(params, *a, **k)
        p.all_gather_coalesced = gather


def apply(net, spec, par, tr, optimizer):
    import deepspeed
    with contextlib.redirect_stdout(sys.stderr):
        engine, opt, _, _ = deepspeed.initialize(model=net, optimizer=optimizer, config=config_of(spec, par), dist_init_required=False)
    if par.get('stage') == 3: tag_stage3(opt, net, tr)
    elif hasattr(opt, 'temp_grad_buffer_for_gpu_offload'): tr.retag(opt.temp_grad_buffer_for_gpu_offload, 'reduce_buf')
    return engine
