"""Inputs of transformers' models of several kinds of data: sounds and labels (Whisper), images and texts (CLIP, SigLIP, LLaVA, Qwen2-VL). `seq` is the
number of tokens; of LLaVA's and Qwen2-VL's those of its images among them. `images` and `image_size` of the spec's model are settings of the inputs."""
import os

import torch
from torch._subclasses.fake_tensor import FakeTensor


def every_layer():
    """Layer drop compares a random number, which would be read back as a constant."""
    rand = torch.rand
    torch.rand = lambda *size, **k: 1.0 if size == ([],) else rand(*size, **k)


def deberta():
    """It looks for the labels that are there, and reads how many; it also sends numbers to the device, which has no data here."""
    from transformers import PreTrainedModel
    here = dict(dtype=torch.long, device='cuda')
    type_as = torch.Tensor.type_as
    torch.Tensor.type_as = lambda self, other: type_as(self, other) if self.device == other.device else torch.empty(self.shape, **here)
    torch.Tensor.nonzero = lambda self: torch.empty(self.numel(), self.dim(), **here)

    def look_for_padding(self, input_ids, attention_mask):
        if attention_mask is None: (input_ids[:, torch.empty(2, **here)] == self.config.pad_token_id).any()
    PreTrainedModel.warn_if_padding_and_no_attention_mask = look_for_padding


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


def qwen2_vl(net, batch, tokens, device, dtype, settings):
    """Positions come with the batch, as data collators make them; how many patches and tokens an image has is known, not read."""
    as_many_places_as_features()
    os.environ['TRANSFORMERS_DISABLE_TORCH_CHECK'] = '1'
    vision, images, side = net.config.vision_config, batch * settings.get('images', 1), settings.get('image_size', 448)
    height, width = side if isinstance(side, list) else (side, side)
    patches = (height // vision.patch_size) * (width // vision.patch_size)
    FakeTensor.tolist = lambda self: [patches if self.dtype == torch.int32 else patches // vision.spatial_merge_size**2] * images
    ids = torch.zeros(batch, tokens, device=device, dtype=torch.long)
    inputs = dict(input_ids=ids, labels=ids, position_ids=torch.zeros(3, batch, tokens, device=device, dtype=torch.long))
    if not images: return inputs
    pixels = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return dict(inputs, pixel_values=torch.empty(images * patches, pixels, device=device, dtype=dtype),
                image_position_ids=torch.zeros(images * patches, 2, device=device, dtype=torch.long),
                image_cu_seqlens=torch.zeros(images + 1, device=device, dtype=torch.int32),
                image_grid_thw=torch.zeros(images, 3, device=device, dtype=torch.long))


MAKERS = {'Qwen2VL': qwen2_vl, 'Whisper': whisper, 'CLIP': contrastive, 'Siglip': contrastive, 'Llava': llava}


def inputs(net, batch, tokens, device, dtype, settings):
    for name, make in MAKERS.items():
        if type(net).__name__.startswith(name): return make(net, batch, tokens, device, dtype, settings)
    raise ValueError(f'{type(net).__name__} has no inputs here')
