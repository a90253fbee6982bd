"""Other cross-entropies for causal language models, with the allocations of the libraries that people take them from.

A Triton kernel allocates nothing, so it is left out here; what stays is what those libraries ask of torch, in the same
order and under names that live as long. torchtune's losses (torchtune 0.6) are plain torch.

    loss_kernel  chunked         torchtune's LinearCrossEntropyLoss
                 chunked-output  torchtune's CEWithChunkedOutputLoss
                 liger           LigerFusedLinearCrossEntropyLoss, as apply_liger_kernel_to_* puts it into a model
                 cut             Apple's cut-cross-entropy, as cce_patch puts it into a model
    loss_chunks  8: of the two chunked ones
    liger_kernels  []: rope, rms_norm, swiglu of Liger too
"""
import math, types

import torch
import torch.nn.functional as F

IGNORED = -100


def labelled(spec, batch, tokens):
    """How many tokens have a label after the shift: tensors without data cannot be counted."""
    return sum(n - 1 for n in spec['lengths']) if 'lengths' in spec else batch * (tokens - 1)


def nonzero(mask, n):
    return torch.empty((n, mask.dim()), dtype=torch.int64, device=mask.device)


def shift(labels):
    labels = F.pad(labels, (0, 1), value=IGNORED)
    return labels[..., 1:].contiguous()


def logits_of(net, hidden):
    logits = net.lm_head(hidden)
    cap = getattr(net.config, 'final_logit_softcapping', None)
    if cap is not None:
        logits = logits / cap
        logits = torch.tanh(logits)
        logits = logits * cap
    return logits


# ---------------------------------------------------------------- torchtune
def chunked(net, hidden, labels, n, chunks):
    def of_chunk(h, t):
        logits = logits_of(net, h)
        return F.cross_entropy(logits.float(), t, reduction='sum', ignore_index=IGNORED)

    def valid(h, t):
        indices = nonzero(t != IGNORED, n).unbind(1)[0]
        h = h.index_select(0, indices)
        return h, t.index_select(0, indices)

    def loss_of(outputs, targets):
        nonzero(targets != IGNORED, n)
        targets = targets.reshape(-1)
        outputs = outputs.reshape(-1, outputs.shape[-1])
        outputs, targets = valid(outputs, targets)
        hs, ts = outputs.tensor_split(chunks, dim=0), targets.tensor_split(chunks, dim=0)
        total = torch.tensor(0.0, device=targets.device)
        for h, t in zip(hs, ts):
            loss = of_chunk(h, t)
            total += loss
        return total / n
    return loss_of(hidden, shift(labels))


def chunked_output(net, hidden, labels, n, chunks):
    def of_chunk(logits, t): return F.cross_entropy(logits.float(), t, ignore_index=IGNORED, reduction='sum')

    def loss_of(logits, labels):
        total_elements = (labels != IGNORED).sum()
        labels = [t.reshape(-1) for t in labels.tensor_split(chunks, dim=1)]
        logits = [c.reshape(-1, c.size(-1)) for c in logits]
        total = 0.0
        for c, t in zip(logits, labels):
            total += of_chunk(c, t)
        return total / total_elements
    outputs = [logits_of(net, c) for c in hidden.tensor_split(chunks, dim=1)]
    return loss_of(outputs, shift(labels))


# ---------------------------------------------------------------- Liger
def power_of_two(n): return 1 << (n - 1).bit_length()


def cdiv(a, b): return -(-a // b)


def fused_forward(_input, weight, target):
    wants = _input.requires_grad
    rows, width = _input.shape
    size = power_of_two(cdiv(rows, cdiv(weight.shape[0], width)))
    grad_input = torch.zeros_like(_input)
    grad_weight = torch.zeros_like(weight) if wants and weight.requires_grad else None
    loss_1d = torch.zeros(rows, dtype=torch.float32, device=_input.device)
    target_mask = target != IGNORED
    target_mask.sum()
    for start in range(0, rows, size):
        end = min(start + size, rows)
        _input_chunk = _input[start:end]
        logits_chunk = _input_chunk @ weight.t()
        logits_chunk = logits_chunk.contiguous()
        grad_logits_chunk = logits_chunk  # the kernel writes the gradient over the logits
        if wants: grad_input[start:end] = grad_logits_chunk @ weight
        if grad_weight is None or not wants: continue
        grad_logits_t = grad_logits_chunk.t()
        if grad_weight.dtype == torch.float32 and grad_logits_t.dtype in (torch.float16, torch.bfloat16):
            input_chunk = _input_chunk
            if input_chunk.dtype != grad_logits_t.dtype: input_chunk = input_chunk.to(grad_logits_t.dtype)
            # addmm with out_dtype and out: nothing is allocated
        else:
            grad_weight += torch.mm(grad_logits_chunk.t(), _input_chunk).float()
    return torch.sum(loss_1d), grad_input, grad_weight


class FusedLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type='cuda')
    def forward(ctx, _input, weight, target):
        loss, grad_input, grad_weight = fused_forward(_input, weight, target)
        ctx.save_for_backward(grad_input.detach(), grad_weight.detach() if grad_weight is not None else None)
        return loss

    @staticmethod
    @torch.amp.custom_bwd(device_type='cuda')
    def backward(ctx, grad_output):
        grad_input, grad_weight = ctx.saved_tensors
        (grad_output == torch.tensor(1.0, device=grad_output.device)).all()  # torch.equal
        return grad_input, grad_weight, None


def liger(net, hidden, labels, n, chunks):
    labels = F.pad(labels, (0, 1), value=IGNORED)
    shifted = labels[..., 1:].contiguous()
    hidden = hidden.view(-1, hidden.shape[-1])
    return FusedLinearCrossEntropy.apply(hidden, net.lm_head.weight, shifted.view(-1))


# ---------------------------------------------------------------- Apple
class CutCrossEntropy(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type='cuda')
    def forward(ctx, e, c, targets, valids, softcap):
        wants = e.requires_grad or c.requires_grad
        ctx.info = (e.dtype, e.requires_grad, c.dtype, c.requires_grad)
        if torch.is_autocast_enabled('cuda'):
            e, c = e.to(torch.get_autocast_dtype('cuda')), c.to(torch.get_autocast_dtype('cuda'))
        lse, logit_avg = CutCrossEntropy.log_sum(e, c, valids.numel(), wants)
        neg_dot = e.new_zeros((valids.numel(),), dtype=torch.float32)
        if softcap: neg_dot = torch.empty_like(neg_dot)  # compiled into one kernel
        nll = neg_dot.add_(lse)
        ctx.save_for_backward(e, c, lse, targets, valids, logit_avg)
        return nll.mean()

    @staticmethod
    def log_sum(e, c, n, wants):
        lse = e.new_full((n,), -math.inf, dtype=torch.float32)
        locks = e.new_full((cdiv(n, 128),), 0, dtype=torch.int32)
        return lse, e.new_full((c.shape[0],), 0.0, dtype=torch.float32) if wants else None

    @staticmethod
    @torch.amp.custom_bwd(device_type='cuda')
    def backward(ctx, grad_out):
        e, c, lse, targets, valids, logit_avg = ctx.saved_tensors
        if logit_avg is not None: vocab_ordering = torch.argsort(logit_avg).to(torch.int32)
        return (*CutCrossEntropy.gradients(ctx, e, c, valids.numel()), None, None, None)

    @staticmethod
    def gradients(ctx, e, c, n):
        e_type, wants_e, c_type, wants_c = ctx.info
        de = torch.zeros_like(e) if wants_e else None
        dc = torch.zeros_like(c) if wants_c else None
        width = cdiv(c.size(1), 64)
        de_locks = e.new_zeros((cdiv(n, 128), width), dtype=torch.int32) if wants_e else None
        dc_locks = c.new_zeros((cdiv(c.size(0), 128), width), dtype=torch.int32) if wants_c else None
        if dc is not None: dc = dc.to(c_type)
        if de is not None: de = de.to(e_type)
        return de, dc


def flat_valids(targets, n):
    targets = targets[..., 1:]
    valids = nonzero(targets != IGNORED, n).to(torch.int32)
    valids[:, 0] *= targets.stride(0)
    return valids.sum(1)


def cut(net, hidden, labels, n, chunks):
    e, targets = hidden.contiguous(), labels.contiguous()
    valids = flat_valids(targets, n)
    return CutCrossEntropy.apply(e.flatten(0, -2), net.lm_head.weight, targets.flatten(), valids, bool(getattr(net.config, 'final_logit_softcapping', None)))


# ---------------------------------------------------------------- Liger's layers
SM_COUNT = 132  # of an H100


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, W, in_place):
        X = X.contiguous()
        shape = X.shape
        X = X.view(-1, shape[-1])
        Y = torch.empty(X.shape, dtype=X.dtype, device=X.device)
        RSTD = torch.empty(X.shape[0], dtype=torch.float32, device=X.device)
        ctx.in_place = in_place
        ctx.save_for_backward(X, W, RSTD)
        return Y.view(*shape)

    @staticmethod
    def backward(ctx, dY):
        dY = dY.contiguous()
        X, W, RSTD = ctx.saved_tensors
        return (*RMSNorm.gradients(dY, W, ctx.in_place), None)

    @staticmethod
    def gradients(dY, W, in_place):
        shape = dY.shape
        dY = dY.view(-1, shape[-1])
        _dW = torch.empty((SM_COUNT, dY.shape[1]), dtype=torch.float32, device=W.device)
        dX = dY if in_place else torch.zeros_like(dY)
        dX = dX.view(*shape)
        return dX, _dW.sum(dim=0).to(W.dtype)


class GatedMul(torch.autograd.Function):
    """silu(a) * b or gelu(a) * b; gradients are written over what was saved."""
    @staticmethod
    def forward(ctx, a, b):
        a, b = a.contiguous(), b.contiguous()
        shape = a.shape
        a, b = a.view(-1, shape[-1]), b.view(-1, shape[-1])
        c = torch.empty_like(a)
        ctx.save_for_backward(a, b)
        return c.view(*shape)

    @staticmethod
    def backward(ctx, dc):
        dc = dc.contiguous()
        a, b = ctx.saved_tensors
        return a.view(*dc.shape), b.view(*dc.shape)


class Rope(torch.autograd.Function):
    """Rotates in place where q and k are dense tokens-first, else in a copy."""
    @staticmethod
    def forward(ctx, q, k, cos, sin):
        q, k = q.transpose(1, 2).contiguous(), k.transpose(1, 2).contiguous()
        ctx.save_for_backward(cos.contiguous(), sin.contiguous())
        return q.transpose(1, 2), k.transpose(1, 2)

    @staticmethod
    def backward(ctx, dq, dk):
        cos, sin = ctx.saved_tensors
        dq, dk = dq.transpose(1, 2).contiguous(), dk.transpose(1, 2).contiguous()
        return dq.transpose(1, 2), dk.transpose(1, 2), None, None


def patch_layers(net, kernels):
    import sys
    code = sys.modules[type(net).__module__]
    if 'rope' in kernels: code.apply_rotary_pos_emb = lambda q, k, cos, sin, *a, **kw: Rope.apply(q, k, cos, sin)
    for path, m in net.named_modules():  # a model that exists already: norms of queries and keys stay
        name = type(m).__name__
        if 'rms_norm' in kernels and name.endswith('RMSNorm') and not path.endswith(('q_norm', 'k_norm')):
            m.forward = types.MethodType(lambda self, x, i='Gemma' not in name: RMSNorm.apply(x, self.weight, i), m)
        if 'swiglu' in kernels and name.endswith('MLP'):
            if hasattr(m, 'gate_up_proj'):
                def forward(self, x):
                    gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
                    return self.down_proj(GatedMul.apply(gate, up))
            else:
                def forward(self, x): return self.down_proj(GatedMul.apply(self.gate_proj(x), self.up_proj(x)))
            m.forward = types.MethodType(forward, m)


def apply(net, spec):
    patch_layers(net, spec.get('liger_kernels', []))
    if 'loss_kernel' not in spec: return
    loss_of = {'chunked': chunked, 'chunked-output': chunked_output, 'liger': liger, 'cut': cut}[spec['loss_kernel']]
    if not hasattr(net, 'lm_head'): net.lm_head = net.get_output_embeddings()

    def forward(self, input_ids, labels, **kwargs):
        outputs = self.base_model(input_ids, **kwargs)
        hidden = outputs[0]
        from transformers.modeling_outputs import CausalLMOutputWithPast
        loss = loss_of(self, hidden, labels, labelled(spec, *input_ids.shape), spec.get('loss_chunks', 8))
        return CausalLMOutputWithPast(loss=loss, logits=None)
    net.forward = types.MethodType(forward, net)
