"""A recorded row's spec as the training script that a person would write: a model of transformers or torchvision and the usual loop.

Nothing in a script knows of recording. What has no ordinary script is refused with the reason.
"""
from __future__ import annotations

import textwrap
from typing import Any


class Refused(Exception):
    pass


UNKNOWN = ('loss_kernel', 'loss_chunks', 'liger_kernels', 'ai_toolkit_lora', 'toolkit_quantization', 'quantization', 'peft')
PACKAGES = {'SOAP': 'soap', 'SophiaG': 'sophia', 'Prodigy': 'prodigyopt', 'lion_pytorch.Lion': 'lion_pytorch', 'ScalableShampoo': 'pytorch_optimizer',
            'CAME': 'came_pytorch', 'StableAdamW': 'optimi', 'GrokAdamW': 'grokadamw', 'AnyPrecisionAdamW': 'torchdistx', 'Lomo': 'lomo_optim',
            'AdaLomo': 'lomo_optim', 'Lion': 'bitsandbytes', 'AdEMAMix': 'bitsandbytes'}
DTYPES = {'fp32': 'torch.float32', 'bf16': 'torch.bfloat16', 'fp16': 'torch.float16'}


def script(spec: dict[str, Any]) -> str:
    for key in UNKNOWN:
        if spec.get(key):
            raise Refused(f'{key} needs code of another library')
    if spec.get('parallel', {}).get('kind', 'none') != 'none':
        raise Refused('several ranks')
    return '\n'.join([*_imports(spec), *_model(spec), *_weights(spec), *_adapters(spec), 'net.train()', *_checkpoint(spec), *_optimizer(spec), *_ema(spec),
                      *_inputs(spec), *_before(spec), *_loop(spec)]) + '\n'


def _imports(spec: dict[str, Any]) -> list[str]:
    return ['import contextlib', 'import torch', 'import torch.nn.functional as F']


# ---- the model
def _model(spec: dict[str, Any]) -> list[str]:
    m = spec['model']
    if 'py' in m:
        raise Refused(f'a model of {m["py"]}')
    return _torchvision(m) if 'tv' in m else _transformers(spec, m)


def _torchvision(m: dict[str, Any]) -> list[str]:
    segmentation = m['tv'].startswith(('fcn', 'deeplab', 'lraspp'))
    place = 'torchvision.models.segmentation' if segmentation else 'torchvision.models'
    args = {**({'weights': None, 'weights_backbone': None} if segmentation else {}), **m.get('args', {})}
    loss = ['losses = {name: F.cross_entropy(x, labels) for name, x in out.items()}',
            "return losses['out'] if len(losses) == 1 else losses['out'] + 0.5 * losses['aux']"] if segmentation else ['return F.cross_entropy(out, labels)']
    return ['import torchvision', '', 'class Model(torch.nn.Module):', '    def __init__(self, net):', '        super().__init__()', '        self.net = net', '',
            '    def forward(self, pixel_values, labels):', *(['        out = self.net(pixel_values)'] if segmentation else []),
            *('        ' + l.replace('(out, labels)', '(self.net(pixel_values), labels)') for l in loss), '',
            f'net = Model({place}.{m["tv"]}(**{args!r}))']


def _transformers(spec: dict[str, Any], m: dict[str, Any]) -> list[str]:
    cls = m['class']
    lines = ['import transformers', 'transformers.logging.set_verbosity_error()', f'config = transformers.{m["config"]}(**{m.get("args", {})!r})',
             f"config._attn_implementation = {'eager' if spec.get('attn') == 'eager' else 'sdpa'!r} if getattr(transformers.{cls}, '_supports_sdpa', False) else 'eager'",
             "for c in (config, getattr(config, 'text_config', None)):", '    if c is not None:', f'        c.use_cache = {bool(spec.get("use_cache"))}',
             "for name in ('layerdrop', 'encoder_layerdrop', 'decoder_layerdrop'):", '    if hasattr(config, name):', f'        setattr(config, name, {0.0 if spec.get("every_layer") or spec.get("item", 1) == 0 else 1.0})']  # rows without every_layer were recorded with every layer dropped
    if cls.startswith('DeepseekV2'):
        lines += ['import transformers.models.deepseek_v2.modeling_deepseek_v2 as deepseek', 'deepseek.DeepseekV2Moe.num_experts = config.n_routed_experts']
    lines.append(f'net = transformers.{cls}(config)')
    return lines + ["if getattr(config, 'freeze_feature_encoder', False):", '    net.freeze_feature_encoder()']


def _weights(spec: dict[str, Any]) -> list[str]:
    """Weights in the wanted type, buffers as they are."""
    precision = spec.get('precision', 'fp32')
    cast = [] if 'amp' in precision or precision == 'fp32' else ['for p in net.parameters():', f'    p.data = p.data.to({DTYPES[precision]})']
    return [*cast, "net.to('cuda')"]


LORA = '''
class LoraLinear(torch.nn.Module):
    def __init__(self, base, r, alpha, dropout, dtype):
        super().__init__()
        self.base_layer = base
        self.lora_A = torch.nn.Linear(base.in_features, r, bias=False, dtype=dtype)
        self.lora_B = torch.nn.Linear(r, base.out_features, bias=False, dtype=dtype)
        self.lora_dropout = torch.nn.Dropout(dropout) if dropout > 0 else torch.nn.Identity()
        self.scaling = alpha / r

    def forward(self, x):
        result = self.base_layer(x)
        dtype = result.dtype
        x = x.to(self.lora_A.weight.dtype)
        result = result + self.lora_B(self.lora_A(self.lora_dropout(x))) * self.scaling
        return result.to(dtype)

for p in net.parameters():
    p.requires_grad_(False)
for module in list(net.modules()):
    for name, child in list(module.named_children()):
        if name in TARGETS and isinstance(child, torch.nn.Linear):
            setattr(module, name, LoraLinear(child, RANK, ALPHA, DROPOUT, DTYPE))
net.to('cuda')'''


def _adapters(spec: dict[str, Any]) -> list[str]:
    lines = []
    if spec.get('lora'):
        lo = spec['lora']
        if not isinstance(lo, dict) or lo.get('conv') or lo.get('target', 'qv') not in ('qv', 'all'):
            raise Refused('adapters of another kind')
        targets = {'qv': ('q_proj', 'v_proj'), 'all': ('q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj')}[lo.get('target', 'qv')]
        r = lo.get('r', 16)
        base = 'torch.float32' if 'amp' in spec.get('precision', 'fp32') else DTYPES[spec.get('precision', 'fp32')]
        dtype = 'torch.float32' if lo.get('dtype', 'fp32') == 'fp32' else base
        lines = LORA.replace('TARGETS', repr(targets)).replace('RANK', str(r)).replace('ALPHA', str(lo.get('alpha', 2 * r))) \
            .replace('DROPOUT', str(lo.get('dropout', 0.0))).replace('DTYPE', dtype).split('\n')
    if spec.get('frozen') or spec.get('trainable'):
        raise Refused('frozen layers by a pattern')
    return lines


# ---- what backward keeps
def _checkpoint(spec: dict[str, Any]) -> list[str]:
    c = spec.get('checkpoint')
    if not c:
        return []
    c = c if isinstance(c, dict) else {}
    wrapper = 'from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper'
    lines = ['import functools']
    keep = ''
    if c.get('save'):
        lines += ['from torch.utils.checkpoint import create_selective_checkpoint_contexts', f'kept = [getattr(torch.ops.aten, name).default for name in {c["save"]!r}]',
                  'contexts = functools.partial(create_selective_checkpoint_contexts, kept)']
        keep = ', context_fn=contexts'
    if c.get('modules'):
        how = 'checkpoint_impl=CheckpointImpl.REENTRANT' if c.get('reentrant') else keep.removeprefix(', ')
        return [*lines, wrapper, f'names = {c["modules"]!r}',
                "chosen = {m for path, m in net.named_modules() for n in names if path == n or path.endswith('.' + n)}",
                f'apply_activation_checkpointing(net, functools.partial(checkpoint_wrapper{", " + how if how else ""}), check_fn=lambda m: m in chosen)']
    if 'tv' in spec['model']:
        return [*lines, wrapper, 'chosen, inside = set(), ()', 'for path, m in net.named_modules():', "    if any(path.startswith(p + '.') for p in inside):",
                '        continue', "    parent = net.get_submodule(path.rpartition('.')[0]) if path else None",
                '    if isinstance(parent, torch.nn.Sequential) and any(True for _ in m.children()):', '        chosen.add(m)', '        inside += (path,)',
                f'apply_activation_checkpointing(net, functools.partial(checkpoint_wrapper{keep}), check_fn=lambda m: m in chosen)']
    kwargs = f"{{'use_reentrant': {c.get('reentrant', False)}{', ' + repr('context_fn') + ': contexts' if keep else ''}}}"
    lines.append(f'net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={kwargs})')
    if c.get('every'):
        lines += ['for blocks in net.modules():', '    if isinstance(blocks, torch.nn.ModuleList):', '        for i, block in enumerate(blocks):',
                  "            if hasattr(block, 'gradient_checkpointing'):", f'                block.gradient_checkpointing = (i + 1) % {c["every"]} == 0']
    if spec.get('lora'):
        lines.append('net.enable_input_require_grads()')
    return lines


# ---- optimizer
def _make(spec: dict[str, Any], params: str) -> str:
    o = spec.get('optimizer') or {'name': 'AdamW'}
    name, args = o['name'], o.get('args', {})
    more = ''.join(f', {k}={v!r}' for k, v in args.items())
    if name in PACKAGES or 'bit' in name or name.startswith(('Paged', 'GaLore', 'APOLLO')) or 'ScheduleFree' in name:
        raise Refused(f'optimizer {name}: its package is not installed')
    if name == 'TransformersAdafactor':
        return f'transformers.optimization.Adafactor({params}, lr=1e-4{more})'
    return f'torch.optim.{name}({params}, lr=1e-4{more})'


def _optimizer(spec: dict[str, Any]) -> list[str]:
    name = (spec.get('optimizer') or {}).get('name', 'AdamW')
    lines = ['params = [p for p in net.parameters() if p.requires_grad]']
    if name == 'TransformersAdafactor':
        lines.append('import transformers.optimization')
    if name == 'Muon+AdamW':
        args = ''.join(f', {k}={v!r}' for k, v in spec['optimizer'].get('args', {}).items())
        return [*lines, f'optimizers = [torch.optim.Muon([p for p in params if p.ndim == 2], lr=1e-4{args}),',
                '              torch.optim.AdamW([p for p in params if p.ndim != 2], lr=1e-4)]']
    if spec.get('optimizer_in_backward'):
        return [*lines, 'optimizers = []', f'each = {{p: {_make(spec, "[p]")} for p in params}}', 'def update(p):', '    each[p].step()', '    each[p].zero_grad()',
                'for p in params:', '    p.register_post_accumulate_grad_hook(update)']
    return [*lines, f'optimizers = [{_make(spec, "params")}]']


EMA = {
    'loop': ('''
class Average:
    def __init__(self, net):
        self.shadow = [p.clone().detach() for p in net.parameters()]CAST

    @torch.no_grad()
    def update(self, net):
        for s, p in zip(self.shadow, net.parameters()):
            s.sub_(0.1 * (s - p))'''),
    'diffusers': ('''
class Average:
    def __init__(self, net):
        self.shadow = [p.clone().detach() for p in net.parameters()]CAST

    @torch.no_grad()
    def update(self, net):
        for s, p in zip(self.shadow, net.parameters()):
            if p.requires_grad:
                s.sub_(0.1 * (s - p))
            else:
                s.copy_(p)'''),
    'diffusers-foreach': ('''
class Average:
    def __init__(self, net):
        self.shadow = [p.clone().detach() for p in net.parameters()]CAST

    @torch.no_grad()
    def update(self, net):
        params = [p for p in net.parameters() if p.requires_grad]
        shadow = [s for s, p in zip(self.shadow, net.parameters()) if p.requires_grad]
        torch._foreach_sub_(shadow, torch._foreach_sub(shadow, params), alpha=0.1)
        return'''),
    'lerp': ('''
class Average:
    def __init__(self, net):
        self.shadow = [COPY for p in net.parameters()]

    @torch.no_grad()
    def update(self, net):
        for s, p in zip(self.shadow, net.parameters()):
            s.lerp_(p.to(s.dtype), 0.1)''')}


def _ema(spec: dict[str, Any]) -> list[str]:
    e = spec.get('ema')
    if not e:
        return []
    e = {} if e is True else e
    update, dtype = e.get('update', 'loop'), DTYPES.get(e.get('dtype') or '')
    if update == 'averaged-model':
        return ['from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn', 'averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))',
                'update_average = averaged.update_parameters']
    if update not in EMA:
        raise Refused(f'ema of the kind {update}')
    text = EMA[update].replace('CAST', f'\n        self.shadow = [s.to(dtype={dtype}) for s in self.shadow]' if dtype else '') \
        .replace('COPY', f'p.detach().to({dtype}, copy=True)' if dtype else 'p.detach().clone()')
    return [*text.split('\n'), 'average = Average(net)', 'update_average = average.update']


# ---- data
def _inputs(spec: dict[str, Any]) -> list[str]:
    kind, b, s = spec.get('inputs', 'lm'), spec.get('batch', 1), spec.get('seq', 128)
    if kind in ('audio', 'multimodal', 'custom'):
        raise Refused(f'inputs of the kind {kind}')
    half = ', dtype=torch.bfloat16' if spec.get('precision') == 'bf16' else ''
    if kind in ('image', 'segmentation'):
        shape = (b,) if kind == 'image' else (b, s, s)
        return [f"inputs = dict(pixel_values=torch.randn({b}, 3, {s}, {s}, device='cuda'{half}), labels=torch.zeros({shape}, dtype=torch.long, device='cuda'))"]
    return _tokens(spec, kind, b, s)


def _tokens(spec: dict[str, Any], kind: str, b: int, s: int) -> list[str]:
    lengths, packed = spec.get('lengths'), spec.get('collate') == 'pack'
    if lengths:
        b, s = (1, sum(lengths)) if packed else (len(lengths), max(lengths))
    lines = [f"x = torch.randint(0, {spec.get('vocab', 1000)}, ({b}, {s})).to('cuda')"]
    if kind == 'pair':
        name = 'sentence_order_label' if 'Albert' in spec['model']['class'] else 'next_sentence_label'
        return [*lines, f"inputs = {{'input_ids': x, 'labels': x, {name!r}: torch.zeros({b}, dtype=torch.long, device='cuda')}}"]
    lines.append('inputs = dict(input_ids=x)')
    if spec.get('padding'):
        lines += [f'mask = torch.ones({b}, {s}, dtype=torch.long)', *(['mask[0, -1] = 0'] if spec.get('item', 1) == 0 else []), "inputs['attention_mask'] = mask.to('cuda')"]
    if packed:
        lines.append(f"inputs['position_ids'] = torch.cat([torch.arange(n) for n in {lengths!r}])[None].to('cuda')")
    labels = f"torch.zeros({b}, dtype=torch.long, device='cuda')" if kind == 'cls' else 'x.clone()' if lengths else 'x'
    return [*lines, f"inputs['labels'] = {labels}"]


# ---- the loop
def _before(spec: dict[str, Any]) -> list[str]:
    lines = []
    if spec.get('preopt'):
        lines += ['for p in params:', '    p.grad = torch.zeros_like(p)', 'for optimizer in optimizers:', '    optimizer.step()', '    optimizer.zero_grad(set_to_none=True)']
    if spec.get('scaler'):
        lines.append("scaler = torch.amp.GradScaler('cuda')")
    kinds = {'math': '[SDPBackend.MATH]', 'efficient': '[SDPBackend.EFFICIENT_ATTENTION]', 'flash': '[SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]'}
    if spec.get('attn') in kinds:
        lines += ['from torch.nn.attention import SDPBackend, sdpa_kernel', f'attention = lambda: sdpa_kernel({kinds[spec["attn"]]})']
    return lines


def _loop(spec: dict[str, Any]) -> list[str]:
    precision = spec.get('precision', 'fp32')
    half = 'torch.float16' if precision in ('amp-fp16', 'fp16amp') else 'torch.bfloat16'
    contexts = [f"torch.autocast('cuda', dtype={half})"] if 'amp' in precision or spec.get('autocast') else []
    if spec.get('offload_activations'):
        contexts.append(f'torch.autograd.graph.save_on_cpu(pin_memory={spec["offload_activations"] == "pinned"})')
    body = [f'for _ in range({spec.get("accum", 1)}):', f'    with {", ".join(contexts) or "contextlib.nullcontext()"}:', '        out = net(**inputs)',
            "        loss = out.loss if hasattr(out, 'loss') else out"]
    body += ['    out = None'] if spec.get('drop_output') else []
    body += ['    scaler.scale(loss).backward()'] if spec.get('scaler') else ['    loss.backward()']
    body += ['    out = loss = None'] if spec.get('drop_after') else []
    body += ['for optimizer in optimizers:', '    scaler.unscale_(optimizer)'] if spec.get('scaler') and spec.get('clip') else []
    body += [f'torch.nn.utils.clip_grad_norm_(params, {spec["clip"]})'] if spec.get('clip') else []
    body += ['for optimizer in optimizers:', '    scaler.step(optimizer)' if spec.get('scaler') else '    optimizer.step()']
    body += ['scaler.update()'] if spec.get('scaler') else []
    body += ['for optimizer in optimizers:', '    optimizer.zero_grad(set_to_none=True)']
    body += ['update_average(net)'] if spec.get('ema') else []
    loop = ['for step in range(100):', *('    ' + l for l in body)]
    if spec.get('attn') not in ('math', 'efficient', 'flash'):
        return loop
    return ['with attention():', *textwrap.indent('\n'.join(loop), '    ').split('\n')]  # around backward, too: it computes attention again
