"""torchtitan's own Llama (2025-02) and Qwen3 (2025-09) under its plans of parallelism, for rows of {"kind": "torchtitan"}.

The model files are the project's: packages/titan-2025-02/torchtitan/models/{llama/model.py, norms.py} and
packages/titan-2025-09/torchtitan/experiments/qwen3/model/model.py beside this file. What they import besides (job
configuration, experts, flex attention) is replaced: none of it runs for these models. The plans (which module is sharded
how, what a selective checkpoint keeps, which groups fully_shard makes, how a pipeline is split) follow the project's
parallelize and pipeline code of those months: `version` is which; rows of Llama want one before 2025-05, when its norms changed.

    {"model": {"py": "torchtitan_models.py", "args": {"hidden_size", "intermediate_size", "num_hidden_layers", ...}},
     "parallel": {"kind": "torchtitan", "world", "tp", "cp": 1, "pp", "stage", "schedule", "micro_batches", "version",
                  "reshard", "loss_parallel", "loss_chunks"}, "checkpoint": true, or {"save": "torchtitan"}}
"""
import os, sys, types
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(globals().get('__file__', '/t/mesh/x')))


def load(folder, path, stubs):
    for name, values in stubs.items():
        m = types.ModuleType(name)
        m.__dict__.update(values)
        sys.modules[name] = m
    module = types.ModuleType('titan_model')
    module.__package__ = 'titan_model'
    sys.modules['titan_model'] = module
    with open(os.path.join(HERE, 'packages', folder, path)) as f: text = f.read()
    exec(compile(text, path, 'exec'), module.__dict__)
    return module


class Sdpa(nn.Module):
    def forward(self, q, k, v, scale=None): return F.scaled_dot_product_attention(q, k, v, scale=scale, is_causal=True)


def llama(a, seq):
    norms = load('titan-2025-02', 'torchtitan/models/norms.py', {})
    m = load('titan-2025-02', 'torchtitan/models/llama/model.py', {'torchtitan.models.norms': {'build_norm': norms.build_norm}})
    args = m.ModelArgs(dim=a['hidden_size'], n_layers=a['num_hidden_layers'], n_heads=a['num_attention_heads'],
                       n_kv_heads=a.get('num_key_value_heads'), vocab_size=a['vocab_size'], max_seq_len=seq, multiple_of=1)
    net = m.Transformer(args)
    for layer in net.layers.values(): resize(layer.feed_forward, a['hidden_size'], a['intermediate_size'])
    return net


def qwen3(a, seq):
    m = load('titan-2025-09', 'torchtitan/experiments/qwen3/model/model.py', {
        'torchtitan.models.attention': {'build_attention': lambda *x: Sdpa()}, 'torchtitan.models.moe': {'MoE': None},
        'torchtitan.protocols.train_spec': {'ModelProtocol': type('ModelProtocol', (), {})},
        'titan_model.args': {'Qwen3ModelArgs': object}})
    args = types.SimpleNamespace(dim=a['hidden_size'], n_layers=a['num_hidden_layers'], n_heads=a['num_attention_heads'],
                                 n_kv_heads=a['num_key_value_heads'], vocab_size=a['vocab_size'], head_dim=a['head_dim'],
                                 hidden_dim=a['intermediate_size'], norm_eps=1e-6, rope_theta=1e6, qk_norm=True, max_seq_len=seq,
                                 depth_init=True, use_flex_attn=False, attn_mask_type='causal', eos_id=0, moe_enabled=False,
                                 enable_weight_tying=False)
    return m.Qwen3Model(args)


def resize(ffn, dim, inner):  # its own rule of widths has no room for small ones
    ffn.w1, ffn.w2, ffn.w3 = nn.Linear(dim, inner, bias=False), nn.Linear(inner, dim, bias=False), nn.Linear(dim, inner, bias=False)


def build(**a):
    nn.init.trunc_normal_ = lambda t, *x, **k: t  # draws until the numbers fit, and here there are none
    spec = sys.modules['__main__'].spec
    return (qwen3 if 'head_dim' in a else llama)(a, spec.get('seq', 128))


# ---------------------------------------------------------------- plans
def apply_tp(net, mesh, par, is_qwen3):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module)
    lp = par.get('loss_parallel', True)
    ends = {}
    if net.tok_embeddings is not None: ends['tok_embeddings'] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if net.norm is not None: ends['norm'] = SequenceParallel()
    if net.output is not None:
        ends['output'] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1) if lp else Replicate(), use_local_output=not lp)
    parallelize_module(net, mesh, ends)
    for block in net.layers.values():
        plan = {
            'attention_norm': SequenceParallel(),
            'attention': PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
            'attention.wq': ColwiseParallel(), 'attention.wk': ColwiseParallel(), 'attention.wv': ColwiseParallel(),
            'attention.wo': RowwiseParallel(output_layouts=Shard(1)),
            'ffn_norm': SequenceParallel(),
            'feed_forward': PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            'feed_forward.w1': ColwiseParallel(), 'feed_forward.w2': RowwiseParallel(output_layouts=Shard(1)), 'feed_forward.w3': ColwiseParallel()}
        if is_qwen3: plan.update(qwen3_plan())
        parallelize_module(block, mesh, plan)


def qwen3_plan():
    """Queries and keys stay DTensors through their norms, whose weights are replicas: NoParallel."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
    from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, PrepareModuleInput

    class NoParallel(ParallelStyle):
        def _apply(self, module, mesh):
            def inputs(mod, x, mesh):
                if not isinstance(x[0], DTensor): x = (DTensor.from_local(x[0], mesh, (Replicate(),), run_check=False), *x[1:])
                return x
            return distribute_module(module, mesh, None, inputs, None)
    return {'attention': PrepareModuleInput(input_layouts=(Shard(1), Replicate()), desired_input_layouts=(Replicate(), Replicate())),
            'attention.wq': ColwiseParallel(use_local_output=False), 'attention.wk': ColwiseParallel(use_local_output=False),
            'attention.wv': ColwiseParallel(use_local_output=False), 'attention.q_norm': NoParallel(), 'attention.k_norm': NoParallel()}


def apply_ac(net, mode):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    aten = torch.ops.aten
    save = {aten.mm.default, aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_flash_attention.default,
            torch.ops._c10d_functional.reduce_scatter_tensor.default, aten.max.default}

    def contexts():
        count = defaultdict(int)

        def policy(ctx, func, *args, **kwargs):
            if func == aten.mm.default: count[ctx.is_recompute] += 1
            keeps = func in save and not (func == aten.mm.default and count[ctx.is_recompute] % 2 == 0)
            return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE
        return create_selective_checkpoint_contexts(policy)
    for name, block in list(net.layers.named_children()):
        extra = {'context_fn': contexts} if isinstance(mode, dict) else {}
        net.layers.register_module(name, checkpoint_wrapper(block, preserve_rng_state=False, **extra))


def apply_fsdp(net, mesh, par):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    kw = dict(mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    policy, blocks, new = par.get('reshard', 'default'), list(net.layers.values()), par.get('version', '2025-11') >= '2025-08'
    reshards = policy == 'always' or (policy == 'default' and par.get('pp', 1) == 1)
    if new and net.tok_embeddings is not None: fully_shard(net.tok_embeddings, **kw, reshard_after_forward=reshards)
    for i, b in enumerate(blocks):
        last = not new and i == len(blocks) - 1 and policy == 'default'
        fully_shard(b, **kw, reshard_after_forward=reshards and not last)
    if new and net.norm is not None and net.output is not None:
        fully_shard([net.norm, net.output], **kw, reshard_after_forward=policy == 'always')
    fully_shard(net, **kw, reshard_after_forward=False)


# ---------------------------------------------------------------- the trainer
def loss_of(pred, labels): return F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))


def chunked_loss(pred, labels, chunks):
    total = 0.0
    for p, l in zip(pred.chunk(chunks, dim=1), labels.chunk(chunks, dim=1)): total += loss_of(p, l)
    return total / chunks


class Trained(nn.Module):
    """The model, and the loss outside of it: `del pred` comes before backward."""
    def __init__(self, net, par):
        super().__init__()
        self.net, self.chunks = net, par.get('loss_chunks', 1)

    def example_inputs(self, B, S, device):
        return dict(input_ids=torch.zeros((B, S), dtype=torch.long, device=device), labels=torch.zeros((B, S), dtype=torch.long, device=device))

    def forward(self, input_ids, labels):
        pred = self.net(input_ids)
        return loss_of(pred, labels) if self.chunks == 1 else chunked_loss(pred, labels, self.chunks)


def split(layers, parts):
    if parts == 1: return [layers]
    least, more = divmod(layers + 2, parts)
    return [least + (i < more) - (i == 0) - (i == parts - 1) for i in range(parts)]


def take_stage(net, par):
    """Keeps this rank's part of the pipeline: modules that it has not are None."""
    parts, stage = par.get('pp', 1), par.get('stage', 0)
    sizes = par.get('layers') or split(len(net.layers), parts)
    first = sum(sizes[:stage])
    for name in list(net.layers.keys()):
        if not first <= int(name) < first + sizes[stage]: del net.layers[name]
    if stage > 0: net.tok_embeddings = None
    if stage < parts - 1: net.norm = net.output = None


class Pipelined(nn.Module):
    """One stage under a schedule of torch.distributed.pipelining. Its forward is a whole step(): the trace's phases follow the schedule."""
    def __init__(self, net, par, dim, tr, group):
        super().__init__()
        self.net, self.par, self.dim, self.tr, self.group, self.schedule = net, par, dim, tr, group, None

    example_inputs = Trained.example_inputs

    def prepare(self, B, S):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
        par, n = self.par, self.par.get('micro_batches', B)
        stage_index, parts = par.get('stage', 0), par['pp']
        hidden = lambda: torch.empty(B // n, S // par.get('tp', 1), self.dim, device='meta', dtype=torch.bfloat16)
        first = stage_index == 0
        ids = torch.empty(B // n, S, device='meta', dtype=torch.long)
        stage = PipelineStage(self.net, stage_index, parts, torch.device('cuda'), input_args=(ids if first else hidden().requires_grad_(),),
                              output_args=(hidden().requires_grad_(),), group=self.group)
        kind = {'gpipe': ScheduleGPipe}.get(par.get('schedule', '1f1b'), Schedule1F1B)
        self.schedule = kind(stage, n_microbatches=n, loss_fn=loss_of)
        one, back = stage.forward_one_chunk, stage.backward_one_chunk

        def forward_one_chunk(*a, **k):
            self.tr.phase = 'forward'
            return one(*a, **k)

        def backward_one_chunk(*a, **k):
            self.tr.phase = 'backward'
            return back(*a, **k)
        stage.forward_one_chunk, stage.backward_one_chunk = forward_one_chunk, backward_one_chunk

    def forward(self, input_ids, labels):
        if self.schedule is None: self.prepare(*input_ids.shape)
        par, losses = self.par, []
        kw = {'return_outputs': par.get('version', '2025-11') < '2025-11'}
        first, last = par.get('stage', 0) == 0, par.get('stage', 0) == par['pp'] - 1
        self.schedule.step(*((input_ids,) if first else ()), target=labels if last else None, losses=losses if last else None, **kw)
        return None


def apply(net, spec, par, t):
    """`t` is the recorder: its meshes and its way to the device."""
    tp, pp = par.get('tp', 1), par.get('pp', 1)
    dp = par['world'] // (tp * pp)
    is_qwen3 = 'head_dim' in spec['model']['args']
    if pp > 1: take_stage(net, par)
    t['to_device'](net)
    if pp > 1:
        mesh = t['mesh']((pp, dp, tp), ('pp', 'dp', 'tp'))
    else:
        mesh = t['mesh']((dp, tp), ('dp', 'tp')) if tp > 1 else t['mesh']((dp,), ('dp',))
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    with unset_fake_temporarily():
        dp_mesh = mesh['dp'] if mesh.ndim > 1 else mesh
        tp_mesh = mesh['tp'] if tp > 1 else None
        group = mesh['pp'].get_group() if pp > 1 else None
    if tp > 1: apply_tp(net, tp_mesh, par, is_qwen3)
    if spec.get('checkpoint'): apply_ac(net, spec['checkpoint'])
    apply_fsdp(net, dp_mesh, par)
    return Pipelined(net, par, spec['model']['args']['hidden_size'], t['tracer'], group) if pp > 1 else Trained(net, par)
