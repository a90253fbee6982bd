"""Inputs of transformers' models of several kinds of data: sounds and labels (Whisper), images and texts (CLIP, SigLIP, LLaVA, Qwen2-VL). `seq` is the
number of tokens; of LLaVA's and Qwen2-VL's those of its images among them. `images` and `image_size` of the spec's model are settings of the inputs."""
import os

import torch


def every_layer():
    """Layer drop compares a random number, which would be read back as a constant."""
    rand = torch.rand
    torch.rand = lambda *size, **k: 1.0 if size == ([],) else rand(*size, **k)


def deberta():
    """It looks for the labels that are there, and reads how many; and sends a number to the device, which has no data here."""
    type_as = torch.Tensor.type_as
    torch.Tensor.type_as = lambda self, other: type_as(self, other) if self.device == other.device else torch.empty(self.shape, dtype=other.dtype, device=other.device)
    torch.Tensor.nonzero = lambda self: torch.empty(self.numel(), self.dim(), device=self.device, dtype=torch.long)


_kernels = torch.library.Library('aten', 'IMPL')


def as_many_places_as_features():
    """masked_scatter's backward reads how many places there are; here as many as there are values, so that it is what masked_select gives."""
    _kernels.impl('masked_scatter_backward', lambda grad, mask, sizes: torch.empty(sizes, dtype=grad.dtype, device=grad.device), 'Meta')


def whisper(net, batch, tokens, device, dtype, settings):
    every_layer()
    frames = 2 * net.config.max_source_positions
    return dict(input_features=torch.empty(batch, net.config.num_mel_bins, frames, device=device, dtype=dtype),
                labels=torch.zeros(batch, tokens, device=device, dtype=torch.long))


def contrastive(net, batch, tokens, device, dtype, settings):
    vision = net.config.vision_config
    return dict(input_ids=torch.zeros(batch, tokens, device=device, dtype=torch.long),
                pixel_values=torch.empty(batch, vision.num_channels, vision.image_size, vision.image_size, device=device, dtype=dtype),
                return_loss=True)


def llava(net, batch, tokens, device, dtype, settings):
    as_many_places_as_features()
    os.environ['TRANSFORMERS_DISABLE_TORCH_CHECK'] = '1'  # which reads whether they are as many
    vision, images = net.config.vision_config, batch * settings.get('images', 1)
    ids = torch.zeros(batch, tokens, device=device, dtype=torch.long)
    inputs = dict(input_ids=ids, labels=ids)
    if images:
        inputs['pixel_values'] = torch.empty(images, vision.num_channels, vision.image_size, vision.image_size, device=device, dtype=dtype)
    return inputs


MAKERS = {'Whisper': whisper, 'CLIP': contrastive, 'Siglip': contrastive, 'Llava': llava}


def inputs(net, batch, tokens, device, dtype, settings):
    for name, make in MAKERS.items():
        if type(net).__name__.startswith(name): return make(net, batch, tokens, device, dtype, settings)
    raise ValueError(f'{type(net).__name__} has no inputs here')
