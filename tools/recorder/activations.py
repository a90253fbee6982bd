"""Which activations the recorded step keeps: spec["checkpoint"] (true, or a mapping) and spec["offload_activations"] (pinned, pageable).

checkpoint: {"every": k}      every k-th block, as torchtitan counts: the k-th, the 2k-th, ...
            {"modules": [..]} the modules of these names (whole, or what follows a dot), in torch's checkpoint_wrapper
            {"reentrant": true}
            {"save": [..]}    selective: results of these aten ops are kept, the rest is made again
"""
import contextlib, functools
import torch


def settings(spec):
    c = spec.get('checkpoint')
    return c if isinstance(c, dict) else {} if c else None


def context_fn(save):
    from torch.utils.checkpoint import create_selective_checkpoint_contexts
    ops = [getattr(torch.ops.aten, name).default for name in save]
    return functools.partial(create_selective_checkpoint_contexts, ops)


def wrap(net, chosen, **kwargs):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper
    apply_activation_checkpointing(net, functools.partial(checkpoint_wrapper, **kwargs), check_fn=lambda m: m in chosen)


def named(net, names):
    chosen = {m for path, m in net.named_modules() for n in names if path == n or path.endswith('.' + n)}
    assert chosen, f'no module is called {names}'
    return chosen


def vision_blocks(net):
    """The outermost children of nn.Sequential that have children of their own."""
    chosen, inside = set(), ()
    for path, m in net.named_modules():
        if any(path.startswith(p + '.') for p in inside): continue
        parent = net.get_submodule(path.rpartition('.')[0]) if path else None
        if isinstance(parent, torch.nn.Sequential) and any(True for _ in m.children()):
            chosen.add(m); inside += (path,)
    return chosen


def keep_every(net, k):
    for blocks in net.modules():
        if not isinstance(blocks, torch.nn.ModuleList): continue
        for i, block in enumerate(blocks):
            if hasattr(block, 'gradient_checkpointing'): block.gradient_checkpointing = (i + 1) % k == 0


def apply(net, spec):
    c = settings(spec)
    if c is None: return
    kwargs = {'use_reentrant': c.get('reentrant', False)}
    if c.get('save'): kwargs['context_fn'] = context_fn(c['save'])
    if c.get('modules'):
        if c.get('reentrant'):
            from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl
            kwargs = {'checkpoint_impl': CheckpointImpl.REENTRANT}
        else: kwargs.pop('use_reentrant')
        return wrap(net, named(net, c['modules']), **kwargs)
    if not hasattr(net, 'gradient_checkpointing_enable'):
        kwargs.pop('use_reentrant')
        return wrap(net, vision_blocks(net), **kwargs)
    net.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
    if c.get('every'): keep_every(net, c['every'])


def around_forward(spec):
    where = spec.get('offload_activations')  # "pinned" or "pageable"
    return torch.autograd.graph.save_on_cpu(pin_memory=where == 'pinned') if where else contextlib.nullcontext()
