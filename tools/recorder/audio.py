"""Speech models of transformers: raw audio and, for CTC, transcripts in which every label counts. A real run reads the lengths of the
transcripts from the device; here all are `target_length` of the configuration (one label in 1000 samples unless it is given)."""
import torch
import torch.nn.functional as F


class CtcLoss(torch.autograd.Function):
    """PyTorch has no shape rule for these kernels: LossCTC.cu, ctc_loss_gpu_template and ctc_loss_backward_gpu_template."""
    @staticmethod
    def forward(ctx, log_probs, targets):
        frames, samples = log_probs.shape[:2]
        states = 2 * (targets.numel() // samples) + 1
        loss = torch.empty(samples, dtype=log_probs.dtype, device=log_probs.device)
        log_alpha = torch.empty(samples, frames, states, dtype=log_probs.dtype, device=log_probs.device)
        ctx.save_for_backward(log_probs, targets, loss, log_alpha)
        return loss

    @staticmethod
    def backward(ctx, grad):
        log_probs, _, _, log_alpha = ctx.saved_tensors
        log_beta = torch.empty_like(log_alpha)
        return torch.empty(log_probs.shape, dtype=log_probs.dtype, device=log_probs.device), None


def prepare(net):
    torch.Tensor.masked_select = lambda self, mask: self.reshape(-1).clone()
    rand, largest = torch.rand, torch.Tensor.max

    def every_layer(*size, **k):  # layer drop
        return 1.0 if size == ([],) else rand(*size, **k)

    def known_labels(self, *a, **k):  # `labels.max() >= vocab_size` is read back
        found = largest(self, *a, **k)
        return found if a or k else -1

    torch.rand, torch.Tensor.max = every_layer, known_labels

    def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction='mean', zero_infinity=False):
        samples = log_probs.shape[1]
        loss = CtcLoss.apply(log_probs, targets)
        if zero_infinity: loss = torch.where(loss == float('inf'), torch.zeros((), dtype=loss.dtype, device=loss.device), loss)
        if reduction == 'sum': return loss.sum()
        lengths = torch.empty(samples, dtype=loss.dtype, device=loss.device).clamp_min(1)
        return (loss / lengths).mean()

    F.ctc_loss = ctc_loss


def inputs(net, batch, samples, device, dtype):
    prepare(net)
    audio = torch.empty(batch, samples, device=device, dtype=dtype)
    length = getattr(net.config, 'target_length', None) or max(1, samples // 1000)
    labels = (batch, length) if 'CTC' in type(net).__name__ else (batch,)
    return dict(input_values=audio, labels=torch.zeros(labels, device=device, dtype=torch.long))
