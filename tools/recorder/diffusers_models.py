"""Models of diffusers and text encoders of transformers, trained as the families of the same class names are: args are the class
and its configuration. seq is the side of the images. packages/diffusers beside this file is the package's source folder.

A denoiser predicts from latents, timesteps and conditions, and is compared with a target in fp32. An autoencoder is trained on
its reconstruction and the divergence of its latents, or, with "encode_only", only gives latents without a gradient. A text encoder is
compared with target states. `enable_xformers_memory_efficient_attention` is the flag of diffusers' scripts: xFormers' kernel is the one
that PyTorch calls memory-efficient attention."""
import os, sys, types

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
sys.path.insert(0, os.path.join(HERE, 'packages'))


def preload():
    from diffusers import AutoencoderKL, UNet2DConditionModel  # noqa: F401
    import diffusers.loaders.single_file_model, diffusers.models.attention_processor  # noqa: F401
    from transformers import CLIPTextModel, LlamaForCausalLM, Qwen2_5_VLForConditionalGeneration, T5EncoderModel  # noqa: F401
    import torch._inductor.kernel  # noqa: F401
    try: import peft  # noqa: F401
    except ImportError: pass  # rows with adapters need it


def attention_kernel(): return sys.modules['__main__'].ATTN


def memory_efficient_attention(query, key, value, attn_bias=None, op=None, scale=None, p=0.0):
    """On (batch * heads, tokens, head_dim), as diffusers' XFormersAttnProcessor calls it."""
    q, k, v = (t.unsqueeze(1) for t in (query, key, value))
    out = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, attn_bias, True, p, False, scale=scale)[0]
    return out.squeeze(1)


def choose_attention(net, xformers):
    from diffusers.models import attention_processor as ap
    if xformers:
        ap.xformers = types.SimpleNamespace(ops=types.SimpleNamespace(memory_efficient_attention=memory_efficient_attention))
        net.set_attn_processor(ap.XFormersAttnProcessor())
    elif attention_kernel() == 'eager':
        net.set_attn_processor(ap.AttnProcessor())


class Training(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def dtype(self): return next(self.net.parameters()).dtype
    def enable_input_require_grads(self): pass
    def gradient_checkpointing_enable(self, **kwargs):
        if hasattr(self.net, 'enable_gradient_checkpointing'): self.net.enable_gradient_checkpointing()
        else: self.net.gradient_checkpointing_enable(**kwargs)


class DenoiserTraining(Training):
    def __init__(self, net, height=None, width=None, text_tokens=None):
        super().__init__(net)
        self.height, self.width, self.text_tokens = height, width, text_tokens or 77

    def example_inputs(self, batch, seq, device):
        c, dtype = self.net.config, self.dtype()
        h, w = (self.height or seq) // 8, (self.width or seq) // 8
        inputs = dict(latents=torch.empty(batch, c.in_channels, h, w, dtype=dtype, device=device),
                      timestep=torch.empty(batch, dtype=torch.int64, device=device),
                      target=torch.empty(batch, c.out_channels, h, w, dtype=dtype, device=device))
        states = c.cross_attention_dim if isinstance(c.cross_attention_dim, int) else c.cross_attention_dim[0]
        inputs['text_states'] = torch.empty(batch, self.text_tokens, states, dtype=dtype, device=device)
        if c.addition_embed_type == 'text_time':
            pooled = c.projection_class_embeddings_input_dim - 6 * c.addition_time_embed_dim
            inputs['text_embeds'] = torch.empty(batch, pooled, dtype=dtype, device=device)
            inputs['time_ids'] = torch.empty(batch, 6, dtype=dtype, device=device)
        return inputs

    def forward(self, latents, timestep, target, text_states, **added):
        prediction = self.net(latents, timestep, text_states, added_cond_kwargs=added or None).sample
        return F.mse_loss(prediction.float(), target.float())


class AutoencoderTraining(Training):
    def __init__(self, net, height=None, width=None):
        super().__init__(net)
        self.height, self.width = height, width

    def example_inputs(self, batch, seq, device):
        return dict(pixels=torch.empty(batch, self.net.config.in_channels, self.height or seq, self.width or seq, dtype=self.dtype(), device=device))

    def forward(self, pixels):
        posterior = self.net.encode(pixels).latent_dist
        z = posterior.sample()
        pred = self.net.decode(z).sample
        kl_loss = posterior.kl().mean()
        mse_loss = F.mse_loss(pred.float(), pixels.float())
        return mse_loss + 1e-6 * kl_loss


class VideoAutoencoderTraining(Training):
    def __init__(self, net, height=None, width=None, frames=1):
        super().__init__(net)
        self.height, self.width, self.frames = height, width, frames

    def example_inputs(self, batch, seq, device):
        return dict(pixels=torch.empty(batch, 3, self.frames, self.height or seq, self.width or seq, dtype=self.dtype(), device=device))

    def forward(self, pixels):
        posterior = self.net.encode(pixels).latent_dist
        z = posterior.sample()
        pred = self.net.decode(z).sample
        return F.mse_loss(pred.float(), pixels.float())


class TextEncoderTraining(Training):
    def example_inputs(self, batch, seq, device):
        c = self.net.config
        sizes = (batch, c.projection_dim) if self.projects() else (batch, seq, getattr(c, 'd_model', c.hidden_size))
        return dict(input_ids=torch.empty(batch, seq, dtype=torch.int64, device=device),
                    target=torch.empty(*sizes, dtype=self.dtype(), device=device))

    def projects(self): return hasattr(self.net, 'text_projection')

    def forward(self, input_ids, target):
        out = self.net(input_ids)
        states = out.text_embeds if self.projects() else out.last_hidden_state
        return F.mse_loss(states.float(), target.float())


def text_encoder(name, config):
    import transformers
    import transformers.masking_utils, transformers.modeling_utils
    transformers.masking_utils.is_tracing = transformers.modeling_utils.is_tracing = lambda *a: False
    cls = getattr(transformers, name)
    lm = not name.startswith(('CLIP', 'T5'))
    if name.startswith('Qwen2_5'):
        own = {k: config.pop(k) for k in ('vision_config', 'tie_word_embeddings') if k in config}
        cfg = cls.config_class(text_config={'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e6, 'mrope_section': config.pop('mrope_section')}, **config}, **own)
        for c in (cfg, cfg.text_config, cfg.vision_config): c._attn_implementation = 'eager' if attention_kernel() == 'eager' else 'sdpa'
        return cls(cfg)
    cfg = (cls.config_class if lm or name.startswith('T5') else transformers.CLIPTextConfig)(**config)
    cfg._attn_implementation = 'eager' if attention_kernel() == 'eager' or not getattr(cls, '_supports_sdpa', False) else 'sdpa'
    if not lm: cfg.use_cache = False
    return cls(cfg)


def diffusers_model(name, config):
    import diffusers
    xformers = config.pop('enable_xformers_memory_efficient_attention', False)
    net = getattr(diffusers, name)(**config)
    choose_attention(net, xformers)
    return net


def build(**args):
    name = args.pop('class')
    own = {k: args.pop(k) for k in ('height', 'width', 'frames', 'text_tokens') if k in args}
    if name.startswith(('CLIP', 'T5')): return TextEncoderTraining(text_encoder(name, args))
    training = {'AutoencoderKL': AutoencoderTraining, 'AutoencoderKLWan': VideoAutoencoderTraining,
                'AutoencoderKLQwenImage': VideoAutoencoderTraining}.get(name, DenoiserTraining)
    return training(diffusers_model(name, args), **own)
