"""A transformer denoiser of diffusers and the step its training scripts take: the prediction for latents of cached images and texts
against its target, in fp32. diffusers' own Python code runs as it is, from packages/diffusers beside this file (the package's source
folder). Recorded as {"py": "diffusers_transformers.py", "args": {"class": "FluxTransformer2DModel", ...}} with inputs "custom": seq is
the side of the image in pixels; height, width, frames, text_tokens, reference_images and text_mask say what else a sample is; other args
are the class's configuration."""
import os, sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), 'packages'))


class Canvas:
    def __init__(self, batch, seq, args):
        self.batch, self.height, self.width = batch, args.get('height', seq), args.get('width', seq)
        self.frames, self.text_tokens = args.get('frames', 1), args.get('text_tokens')
        self.references, self.text_mask = args.get('reference_images', 0), args.get('text_mask', False)


# Each gives the sizes of latents and target and the conditions: sizes (of the weights' type) or (sizes, type), or a value as it is.
def flux(c, config):
    """Packed latents: 2 x 2 of them a token. Reference images are more tokens."""
    tokens, text = (c.height // 16) * (c.width // 16), c.text_tokens or 512
    out = config.out_channels or config.in_channels
    conditions = dict(encoder_hidden_states=(c.batch, text, config.joint_attention_dim))
    if 'pooled_projection_dim' in config: conditions['pooled_projections'] = (c.batch, config.pooled_projection_dim)
    conditions.update(txt_ids=(text, 3), img_ids=(tokens * (1 + c.references), 3))
    if c.text_mask: conditions['attention_mask'] = (c.batch, text + tokens)
    if config.get('guidance_embeds'): conditions['guidance'] = ((c.batch,), torch.float32)
    return (c.batch, tokens * (1 + c.references), config.in_channels), (c.batch, tokens, out), conditions


def flux2(c, config):
    tokens, text, axes = (c.height // 16) * (c.width // 16), c.text_tokens or 512, len(config.axes_dims_rope)
    conditions = dict(encoder_hidden_states=(c.batch, text, config.joint_attention_dim), txt_ids=(text, axes), img_ids=(tokens, axes))
    if config.guidance_embeds: conditions['guidance'] = ((c.batch,), torch.float32)
    return (c.batch, tokens, config.in_channels), (c.batch, tokens, config.out_channels or config.in_channels), conditions


def ltx(c, config):
    """Latents of every first frame and of eight that follow, 32 x 32 pixels each, one a token."""
    frames, height, width, text = (c.frames - 1) // 8 + 1, c.height // 32, c.width // 32, c.text_tokens or 128
    conditions = dict(encoder_hidden_states=(c.batch, text, config.caption_channels), encoder_attention_mask=((c.batch, text), torch.long),
                      num_frames=frames, height=height, width=width, rope_interpolation_scale=[8 / 25, 32, 32])
    return (c.batch, frames * height * width, config.in_channels), (c.batch, frames * height * width, config.out_channels), conditions


def cogvideox(c, config):
    latents = (c.batch, (c.frames - 1) // 4 + 1, config.in_channels, c.height // 8, c.width // 8)
    conditions = dict(encoder_hidden_states=(c.batch, c.text_tokens or 226, config.text_embed_dim))
    if config.use_rotary_positional_embeddings:
        tokens = latents[1] * (latents[3] // config.patch_size) * (latents[4] // config.patch_size)
        table = ((tokens, config.attention_head_dim), torch.float32)
        conditions['rotary'] = dict(cos=table, sin=table)
    return latents, (*latents[:2], config.out_channels, *latents[3:]), conditions


def sd3(c, config):
    latents = (c.batch, config.in_channels, c.height // 8, c.width // 8)
    return latents, latents, dict(encoder_hidden_states=(c.batch, c.text_tokens or 333, config.joint_attention_dim),
                                  pooled_projections=(c.batch, config.pooled_projection_dim))


def qwen_image(c, config):
    h, w = c.height // 16, c.width // 16
    latents, text = (c.batch, h * w, config.in_channels), c.text_tokens or 512
    conditions = dict(encoder_hidden_states=(c.batch, text, config.joint_attention_dim), img_shapes=[[(1, h, w)]] * c.batch)
    if c.text_mask: conditions['encoder_hidden_states_mask'] = ((c.batch, text), torch.long)
    return latents, latents, conditions


def video(c, config, **conditions):
    """Latents of every first frame and of four that follow."""
    latents = (c.batch, config.in_channels, (c.frames - 1) // 4 + 1, c.height // 8, c.width // 8)
    return latents, (c.batch, config.out_channels, *latents[2:]), conditions


def wan(c, config):
    return video(c, config, encoder_hidden_states=(c.batch, c.text_tokens or 512, config.text_dim))


def hunyuan_video(c, config):
    text = c.text_tokens or 256
    conditions = dict(encoder_hidden_states=(c.batch, text, config.text_embed_dim), encoder_attention_mask=((c.batch, text), torch.long),
                      pooled_projections=(c.batch, config.pooled_projection_dim))
    if config.guidance_embeds: conditions['guidance'] = ((c.batch,), torch.float32)
    return video(c, config, **conditions)


def dit(c, config):
    latents = (c.batch, config.in_channels, c.height // 8, c.width // 8)
    return latents, latents, dict(class_labels=((c.batch,), torch.long))


def pixart(c, config):
    latents, text = (c.batch, config.in_channels, c.height // 8, c.width // 8), c.text_tokens or 120
    conditions = dict(encoder_hidden_states=(c.batch, text, config.caption_channels or config.cross_attention_dim),
                      encoder_attention_mask=((c.batch, text), torch.long))
    extra = config.use_additional_conditions
    if extra or (extra is None and config.sample_size == 128):
        conditions['added_cond_kwargs'] = dict(resolution=(c.batch, 2), aspect_ratio=(c.batch, 1))
    else: conditions['added_cond_kwargs'] = dict(resolution=None, aspect_ratio=None)
    return latents, latents, conditions


def lumina2(c, config):
    latents, text = (c.batch, config.in_channels, c.height // 8, c.width // 8), c.text_tokens or 256
    return latents, latents, dict(encoder_hidden_states=(c.batch, text, config.cap_feat_dim),
                                  encoder_attention_mask=((c.batch, text), torch.bool))


INPUTS = {'Flux2Transformer2DModel': flux2, 'LTXVideoTransformer3DModel': ltx, 'CogVideoXTransformer3DModel': cogvideox,
          'FluxTransformer2DModel': flux, 'ChromaTransformer2DModel': flux, 'SD3Transformer2DModel': sd3,
          'QwenImageTransformer2DModel': qwen_image, 'WanTransformer3DModel': wan, 'HunyuanVideoTransformer3DModel': hunyuan_video,
          'DiTTransformer2DModel': dit, 'PixArtTransformer2DModel': pixart, 'Lumina2Transformer2DModel': lumina2}
OWN = ('class', 'height', 'width', 'frames', 'text_tokens', 'reference_images', 'text_mask')


class DenoiserTraining(torch.nn.Module):
    def __init__(self, args):
        super().__init__()
        import diffusers
        self.args = args
        self.net = getattr(diffusers, args['class']).from_config({k: v for k, v in args.items() if k not in OWN})

    def gradient_checkpointing_enable(self, **kwargs): self.net.enable_gradient_checkpointing()
    def enable_input_require_grads(self): pass

    def example_inputs(self, batch, seq, device):
        weights = next(self.net.parameters()).dtype

        def new(sizes, dtype=weights): return torch.empty(sizes, dtype=dtype, device=device)

        def made(value):
            if isinstance(value, dict): return {k: made(v) for k, v in value.items()}
            if not isinstance(value, tuple): return value
            return new(*value) if isinstance(value[0], tuple) else new(value)
        latents, target, conditions = INPUTS[self.args['class']](Canvas(batch, seq, self.args), self.net.config)
        return dict(latents=new(latents), timestep=new((batch,), torch.long), target=new(target), **made(conditions))

    def forward(self, latents, timestep, target, **conditions):
        if 'rotary' in conditions: conditions['image_rotary_emb'] = tuple(conditions.pop('rotary').values())
        prediction = self.net(latents, timestep=timestep, **conditions).sample
        if prediction.dim() == 3 and prediction.shape[1] != target.shape[1]: prediction = prediction[:, :target.shape[1]]
        elif prediction.shape[1] != target.shape[1]: prediction = prediction.chunk(2, dim=1)[0]  # the rest is a learned variance
        return F.mse_loss(prediction.float(), target.float())


def build(**args):
    return DenoiserTraining(args)
