"""The step of the family diffusion-trainer in miniature: a denoiser that is trained, a frozen autoencoder and frozen text encoders, as the
AI Toolkit calls them. args are the family's settings, with each part written out: {"model": family or class, ...its configuration}.
"train_text_encoder" trains those that are CLIP, too; "te_frozen" names layers of theirs that stay as they are.
"loop": "sd-scripts" is kohya's: latents collect a gradient, groups of parameters and clipping are its own, the autoencoder runs outside autocast.
spec["ai_toolkit_lora"] puts the toolkit's LoRA on the denoiser's linear layers, spec["toolkit_quantization"] their weights into qfloat8,
computed as optimum-quanto's WeightQBytesLinearFunction does, or into uint2 to uint7 by the toolkit's own code."""
import sys, types

import torch
import torch.nn.functional as F

import diffusers_models as dm
from diffusers_models import preload  # noqa: F401

DTYPE = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16, None: None}
CLASSES = {'unet2d-condition': 'UNet2DConditionModel', 'flux': 'FluxTransformer2DModel', 'sd3': 'SD3Transformer2DModel',
           'lumina2': 'Lumina2Transformer2DModel', 'qwen_image': 'QwenImageTransformer2DModel', 'autoencoder-kl-wan': 'AutoencoderKLQwenImage', 'gemma2': 'Gemma2Model', 'llama': 'LlamaForCausalLM', 'autoencoder-kl': 'AutoencoderKL', 'clip-text': 'CLIPTextModel',
           'clip-text-projection': 'CLIPTextModelWithProjection', 'qwen2.5-vl-text': 'Qwen2_5_VLForConditionalGeneration', 't5-encoder': 'T5EncoderModel'}
main = sys.modules['__main__']


# ---------------------------------------------------------------- LoRA beside a layer
class ToolkitLora(torch.nn.Module):
    network = types.SimpleNamespace(is_active=True, multiplier=None)

    def __init__(self, layer, r):
        super().__init__()
        self.base_layer = layer
        self.lora_down = torch.nn.Linear(layer.in_features, r, bias=False)
        self.lora_up = torch.nn.Linear(r, layer.out_features, bias=False)
        self.register_buffer('_runtime_scale', torch.empty((), dtype=torch.float32))
        self.register_buffer('alpha', torch.empty((), dtype=torch.int64))

    def call_forward(self, x):
        lx = self.lora_down(x)
        lx = self.lora_up(lx)
        return lx * self._runtime_scale

    def forward(self, x):
        if not self.network.is_active: return self.base_layer(x)
        org_forwarded = self.base_layer(x)
        lora_input = x.to(self.lora_down.weight.dtype)
        lora_output = self.call_forward(lora_input)
        multiplier = self.network.multiplier
        if lora_output.size(0) != multiplier.size(0): multiplier = multiplier.repeat_interleave(lora_output.size(0) // multiplier.size(0))
        for _ in range(lora_output.dim() - multiplier.dim()): multiplier = multiplier.unsqueeze(-1)
        scaled = lora_output * multiplier
        scaled = scaled.to(org_forwarded.dtype)
        x = org_forwarded + scaled
        return x


class QuantoLinear(torch.autograd.Function):
    @staticmethod
    def widened(data, scale):
        weights = data.to(scale.dtype)
        weights = scale * weights
        return weights

    @staticmethod
    def forward(ctx, input, data, scale, bias):
        ctx.save_for_backward(input, data, scale)
        rows = input.reshape(-1, input.shape[-1])
        output = torch.matmul(rows, QuantoLinear.widened(data, scale).t())
        output = output.reshape(input.shape[:-1] + (data.shape[0],))
        if bias is not None: output = output + bias
        return output

    @staticmethod
    def backward(ctx, grad):
        input, data, scale = ctx.saved_tensors
        return (torch.matmul(grad, QuantoLinear.widened(data, scale)) if ctx.needs_input_grad[0] else None), None, None, None


class QLinear(torch.nn.Module):
    def __init__(self, layer, dtype):
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight = torch.nn.Parameter(torch.empty(layer.weight.shape, dtype=torch.int8, device=main.DEV), False)
        self.bias = layer.bias
        self.scale = torch.empty(self.out_features, 1, dtype=dtype, device=main.DEV)  # neither a parameter nor a buffer

    def forward(self, x): return QuantoLinear.apply(x, self.weight, self.scale, self.bias)


def quantize_uintx(net, bits):
    """The toolkit's own classes (packages/toolkit/util/ostris_quant.py and uintx_quant.py), with codes of no value."""
    from toolkit.util.ostris_quant import OstrisLinear
    from toolkit.util.uintx_quant import UIntXQuantizer
    quantizer = UIntXQuantizer(bits)
    for m in list(net.modules()):
        if type(m) is not torch.nn.Linear or not quantizer.can_quantize(m): continue
        groups, codes = (m.out_features, m.in_features // quantizer.group_size), m.in_features * m.out_features
        packed = sum(-(-codes // (8 // k)) for k in (4, 2, 1) if bits & k)
        empty = lambda *sizes: torch.empty(sizes, dtype=torch.uint8, device=main.DEV)
        m.ostris_orig_dtype, m.ostris_quantizer = m.weight.dtype, quantizer
        del m._parameters['weight']
        m.register_buffer('uintx_packed', empty(packed))
        m.register_buffer('uintx_scale', empty(groups[0], groups[1] * m.ostris_orig_dtype.itemsize))
        m.register_buffer('uintx_zero_point', empty(*groups))
        m.__class__ = OstrisLinear


def replace_linears(net, wanted, make):
    for name, m in list(net.named_modules()):
        if isinstance(m, torch.nn.Linear) and wanted(name): net.set_submodule(name, make(m))


# ---------------------------------------------------------------- text encoders (toolkit/train_tools.py)
def encode_prompts(te, texts): return [te[0](texts[0])[0]]


def encode_prompts_xl(te, texts):
    def text_encode_xl(te, tokens):
        prompt_embeds = te(tokens, output_hidden_states=True)
        pooled = prompt_embeds[0]
        prompt_embeds = prompt_embeds.hidden_states[-2]
        prompt_embeds = prompt_embeds.repeat(1, 1, 1)
        return prompt_embeds, pooled

    states, pooled = [], None
    for one, tokens in zip(te, texts):
        text_embeds, pooled = text_encode_xl(one, tokens)
        states.append(text_embeds)
    pooled = pooled.repeat(1, 1)
    return [torch.concat(states, dim=-1), pooled]


def encode_prompts_flux(te, texts):
    prompt_embeds = te[0](texts[0], output_hidden_states=False)
    pooled = prompt_embeds.pooler_output
    prompt_embeds = te[1](texts[1], output_hidden_states=False)[0]
    return [prompt_embeds, pooled]


def encode_prompts_sd3(te, texts):
    def clip_prompt_embeds(te, tokens):
        prompt_embeds = te(tokens, output_hidden_states=True)
        pooled = prompt_embeds[0]
        prompt_embeds = prompt_embeds.hidden_states[-2]
        prompt_embeds = prompt_embeds.repeat(1, 1, 1)
        pooled = pooled.repeat(1, 1)
        return prompt_embeds, pooled

    def t5_prompt_embeds(te, tokens):
        prompt_embeds = te(tokens)[0]
        return prompt_embeds.repeat(1, 1, 1)

    embeds, pooled = clip_prompt_embeds(te[0], texts[0])
    embeds_2, pooled_2 = clip_prompt_embeds(te[1], texts[1])
    clip_embeds = torch.cat([embeds, embeds_2], dim=-1)
    t5_embeds = t5_prompt_embeds(te[2], texts[2])
    clip_embeds = F.pad(clip_embeds, (0, t5_embeds.shape[-1] - clip_embeds.shape[-1]))
    return [torch.cat([clip_embeds, t5_embeds], dim=-2), torch.cat([pooled, pooled_2], dim=-1)]


def attention_mask(tokens): return torch.empty(tokens.shape, dtype=torch.int64, device=tokens.device)


def encode_prompts_lumina2(te, texts):
    mask = attention_mask(texts[0])
    prompt_embeds = te[0](texts[0], attention_mask=mask, output_hidden_states=True)
    prompt_embeds = prompt_embeds.hidden_states[-2]
    return [prompt_embeds, mask]


def encode_prompts_hidream(te, texts):
    def clip_prompt_embeds(te, tokens):
        prompt_embeds = te(tokens, output_hidden_states=True)
        prompt_embeds = prompt_embeds[0]
        prompt_embeds = prompt_embeds.repeat(1, 1)
        return prompt_embeds

    def t5_prompt_embeds(te, tokens):
        prompt_embeds = te(tokens)[0]
        prompt_embeds = prompt_embeds.repeat(1, 1, 1)
        return prompt_embeds

    def llama3_prompt_embeds(te, tokens):
        outputs = te(tokens, attention_mask=attention_mask(tokens), output_hidden_states=True)
        prompt_embeds = outputs.hidden_states[1:]
        prompt_embeds = torch.stack(prompt_embeds, dim=0)
        prompt_embeds = prompt_embeds.repeat(1, 1, 1, 1)
        return prompt_embeds

    pooled_1, pooled_2 = clip_prompt_embeds(te[0], texts[0]), clip_prompt_embeds(te[1], texts[1])
    pooled = torch.cat([pooled_1, pooled_2], dim=-1)
    t5 = t5_prompt_embeds(te[2], texts[2])
    return [t5, llama3_prompt_embeds(te[3], texts[3]), pooled]


def encode_prompts_omnigen2(te, texts):
    mask = attention_mask(texts[0])
    prompt_embeds = te[0](texts[0], attention_mask=mask, output_hidden_states=True).hidden_states[-1]
    prompt_embeds = prompt_embeds.repeat(1, 1, 1)
    mask = mask.repeat(1, 1)
    return [prompt_embeds, mask]


# ---------------------------------------------------------------- denoisers (toolkit/stable_diffusion_model.py, predict_noise)
class UNet:
    """Latents (N, C, h, w); text states, for SDXL also a pooled text, and six numbers of sizes and crops that every step makes."""
    usual_tokens = 77

    def __init__(self, net): self.net, self.c, self.xl = net, net.config, net.config.addition_embed_type == 'text_time'
    def channels(self): return self.c.in_channels

    def texts(self, tokens):
        states = self.c.cross_attention_dim if isinstance(self.c.cross_attention_dim, int) else self.c.cross_attention_dim[0]
        return [(tokens, states)] + ([(self.c.projection_class_embeddings_input_dim - 6 * self.c.addition_time_embed_dim,)] if self.xl else [])

    @staticmethod
    def time_ids(latents):
        add_time_ids = torch.empty(1, 6, dtype=latents.dtype, device=latents.device)
        return torch.cat([add_time_ids for _ in range(latents.shape[0])])

    def predict(self, latents, timestep, conditions):
        added = None
        with torch.no_grad():
            if self.xl: added = dict(text_embeds=conditions[1], time_ids=self.time_ids(latents))
            latent_model_input = latents if latents.requires_grad else scale_model_input(latents)
        return self.net(latent_model_input, timestep, conditions[0], added_cond_kwargs=added).sample


class SD3:
    usual_tokens = 333

    def __init__(self, net): self.net, self.c = net, net.config
    def channels(self): return self.c.in_channels
    def texts(self, tokens): return [(tokens, self.c.joint_attention_dim), (self.c.pooled_projection_dim,)]

    def predict(self, latents, timestep, conditions):
        with torch.no_grad(): latent_model_input = scale_model_input(latents)
        return self.net(hidden_states=latent_model_input, timestep=timestep, encoder_hidden_states=conditions[0],
                        pooled_projections=conditions[1]).sample


class Flux:
    """Packed for the network: 2 x 2 latents a token, with positions that every step makes."""
    usual_tokens = 512

    def __init__(self, net): self.net, self.c = net, net.config
    def channels(self): return self.c.in_channels // 4
    def texts(self, tokens): return [(tokens, self.c.joint_attention_dim), (self.c.pooled_projection_dim,)]

    def predict(self, latents, timestep, conditions):
        with torch.no_grad():
            latent_model_input = scale_model_input(latents)
            n, c, h, w = latent_model_input.shape
            packed = latent_model_input.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(n, h * w // 4, 4 * c)
            img_ids = torch.empty(n, h * w // 4, 3, device=latents.device)
            txt_ids = torch.empty(n, conditions[0].shape[1], 3, device=latents.device)
            guidance = None
            if self.c.guidance_embeds:
                guidance = torch.empty(1, device=latents.device)
                guidance = guidance.expand(n)
        txt_ids, img_ids = txt_ids[0], img_ids[0]
        noise_pred = self.net(hidden_states=packed, timestep=timestep / 1000, encoder_hidden_states=conditions[0],
                              pooled_projections=conditions[1], txt_ids=txt_ids, img_ids=img_ids, guidance=guidance, return_dict=False)[0]
        noise_pred = noise_pred.reshape(n, h // 2, w // 2, c, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(n, c, h, w)
        return noise_pred


class Lumina2:
    usual_tokens = 256

    def __init__(self, net): self.net, self.c = net, net.config
    def channels(self): return self.c.in_channels

    def predict(self, latents, timestep, conditions):
        with torch.no_grad(): latent_model_input = scale_model_input(latents)
        t = 1 - timestep / 1000
        noise_pred = self.net(hidden_states=latent_model_input, timestep=t, encoder_attention_mask=conditions[1],
                              encoder_hidden_states=conditions[0]).sample
        noise_pred = -noise_pred
        return noise_pred


class HiDream:
    usual_tokens = 128

    def __init__(self, net): self.net, self.c = net, net.config
    def channels(self): return self.c.in_channels

    def predict(self, latents, timestep, conditions):
        with torch.no_grad(): latent_model_input = scale_model_input(latents)
        noise_pred = self.net(hidden_states=latent_model_input, timesteps=timestep, encoder_hidden_states=conditions[:2],
                              pooled_embeds=conditions[2], return_dict=False)[0]
        noise_pred = -noise_pred
        return noise_pred


class OmniGen2:
    usual_tokens = 256

    def __init__(self, net):
        from omnigen2.models.transformers.repo import OmniGen2RotaryPosEmbed
        self.net, self.c = net, net.config
        self.freqs_cis = OmniGen2RotaryPosEmbed.get_freqs_cis(self.c.axes_dim_rope, self.c.axes_lens, theta=10000)  # on the host

    def channels(self): return self.c.in_channels
    def texts(self, tokens): return [(tokens, self.c.text_feat_dim), ((tokens,), torch.int64)]

    def predict(self, latents, timestep, conditions):
        with torch.no_grad(): latent_model_input = scale_model_input(latents)
        timestep = timestep.expand(latent_model_input.shape[0]).to(latent_model_input.dtype)
        timesteps = timestep / 1000
        timestep = 1 - timesteps
        model_pred = self.net(latent_model_input, timestep, conditions[0], self.freqs_cis, conditions[1])
        return model_pred


class QwenImage:
    """Packed for the network as Flux's; positions are made of the images' shapes."""
    usual_tokens = 512

    def __init__(self, net): self.net, self.c = net, net.config
    def channels(self): return self.c.in_channels // 4
    def texts(self, tokens): return [(tokens, self.c.joint_attention_dim), ((tokens,), torch.int64)]

    def predict(self, latents, timestep, conditions):
        with torch.no_grad(): latent_model_input = scale_model_input(latents)
        n, c, h, w = latent_model_input.shape
        packed = latent_model_input.view(n, c, h // 2, 2, w // 2, 2)
        packed = packed.permute(0, 2, 4, 1, 3, 5)
        packed = packed.reshape(n, h * w // 4, 4 * c)
        noise_pred = self.net(hidden_states=packed, timestep=timestep / 1000, guidance=None, encoder_hidden_states=conditions[0],
                              encoder_hidden_states_mask=conditions[1], img_shapes=[[(1, h // 2, w // 2)]] * n, return_dict=False)[0]
        noise_pred = noise_pred.view(n, h // 2, w // 2, c, 2, 2)
        noise_pred = noise_pred.permute(0, 3, 1, 4, 2, 5)
        noise_pred = noise_pred.reshape(n, c, h, w)
        return noise_pred


def scale_model_input(latents): return torch.cat(list(torch.chunk(latents, latents.shape[0])), dim=0)


KINDS = {'UNet2DConditionModel': UNet, 'SD3Transformer2DModel': SD3, 'FluxTransformer2DModel': Flux, 'Lumina2Transformer2DModel': Lumina2,
         'HiDreamImageTransformer2DModel': HiDream, 'OmniGen2Transformer2DModel': OmniGen2,
         'QwenImageTransformer2DModel': QwenImage}


# ---------------------------------------------------------------- the step
class Trainer(dm.Training):
    def __init__(self, net, vae, text_encoders, args, dtype):
        super().__init__(net)
        self.kind = KINDS[type(net).__name__](net)
        self.height, self.width, self.text_tokens = args.get('height'), args.get('width'), args.get('text_tokens')
        self.vae = vae
        self.text_encoders = torch.nn.ModuleList(text_encoders)
        names = tuple(te['model'] for te in args.get('text_encoders', []))
        clips = ('clip-text-projection', 'clip-text-projection')
        self.encode_texts = {('clip-text', 'clip-text-projection'): encode_prompts_xl, ('clip-text', 't5-encoder'): encode_prompts_flux,
                             (*clips, 't5-encoder'): encode_prompts_sd3, (*clips, 't5-encoder', 'llama'): encode_prompts_hidream,
                             ('gemma2',): encode_prompts_lumina2, ('qwen2.5-vl-text',): encode_prompts_omnigen2}.get(names, encode_prompts)
        self.trains_texts, self.sd_scripts = args.get('train_text_encoder', False), args.get('loop') == 'sd-scripts'
        self.dop, self.flow_matching, self.train_dtype = args.get('dop', False), args.get('flow_matching', False), dtype

    def dtype(self): return self.train_dtype

    def parameter_groups(self):
        """Of the optimizer, each clipped apart in the toolkit: LoRA's of the text encoders first, in full those of the denoiser."""
        if not self.trains_texts: return None
        lora = main.spec.get('ai_toolkit_lora')
        trained = lambda part: [p for name, p in part.named_parameters() if p.requires_grad and not (lora and '_embedding.' in name)]
        if self.sd_scripts and not lora:
            groups = [trained(self.net), *(trained(te) for te in self.text_encoders)]
            return groups if len(self.text_encoders) > 1 else [sum(groups, [])]
        groups = [trained(self.text_encoders), trained(self.net)]
        return groups if lora else groups[::-1]

    def clips_together(self): return self.sd_scripts

    def gradient_checkpointing_enable(self, **kwargs):
        super().gradient_checkpointing_enable(**kwargs)
        for te in self.text_encoders if self.trains_texts else []:
            te.gradient_checkpointing_enable()
            if self.sd_scripts:
                te.disable_input_require_grads()
                if main.spec.get('ai_toolkit_lora'):  # prepare_text_encoder_grad_ckpt_workaround
                    for name, m in te.named_modules():
                        if name.endswith('_embedding'): m.weight.requires_grad_(True)

    def example_inputs(self, batch, seq, device):
        h, w = self.height or seq, self.width or seq
        tokens = self.text_tokens or self.kind.usual_tokens
        if self.vae is not None: first = torch.empty(batch, 3, h, w, dtype=self.dtype(), device=device)
        else: first = torch.empty(batch, self.kind.channels(), h // 8, w // 8, dtype=self.dtype(), device=device)
        time = torch.float32 if self.flow_matching else torch.int64
        inputs = dict(first=first, timesteps=torch.empty(batch, dtype=time, device=device), texts=[])
        for _ in range(2 if self.dop else 1):
            if len(self.text_encoders):
                inputs['texts'].append([torch.empty(batch, self.tokens(te, tokens), dtype=torch.int64, device=device) for te in self.text_encoders])
            else:
                inputs['texts'].append([torch.empty(batch, *(sizes[0] if typed(sizes) else sizes), dtype=sizes[1] if typed(sizes) else self.dtype(), device=device)
                                        for sizes in self.kind.texts(tokens)])
        ToolkitLora.network.multiplier = torch.empty(batch, dtype=torch.float32, device=device)
        return inputs

    def tokens(self, te, tokens):
        """CLIP reads as many as it can, unless for HiDream; the others the rest of the text."""
        if type(te).__name__.startswith('CLIP'):
            most = te.config.max_position_embeddings
            return min(most, tokens) if self.encode_texts is encode_prompts_hidream else most
        return tokens - (77 if self.encode_texts is encode_prompts_sd3 else 0)

    def encode_images(self, imgs):
        self.vae.eval()
        dtype = next(self.vae.parameters()).dtype
        image_list = [image.to(dtype=dtype) for image in imgs]
        images = torch.stack(image_list)
        if hasattr(self.vae.config, 'z_dim'): return self.encode_frames(images, dtype)
        latents = self.vae.encode(images).latent_dist.sample()
        latents = 0.13 * (latents - 0)
        return latents.to(dtype=dtype)

    def encode_frames(self, images, dtype):
        """Of an autoencoder of videos: one frame, scaled channel by channel."""
        images = images.unsqueeze(2)
        latents = self.vae.encode(images).latent_dist.sample()
        by_channel = (1, self.vae.config.z_dim, 1, 1, 1)
        with torch.device('cpu'): mean, std = torch.zeros(by_channel), torch.ones(by_channel)
        latents_mean = mean.to(latents.device, latents.dtype)
        latents_std = 1.0 / std.to(latents.device, latents.dtype)
        latents = (latents - latents_mean) * latents_std
        return latents.to(dtype=dtype).squeeze(2)

    def add_noise(self, latents, noise, timesteps):
        noisy = []
        for x, n, t in zip(*(torch.chunk(v, v.shape[0]) for v in (latents, noise, timesteps))):
            if self.flow_matching:
                t_01 = t / 1000
                noisy.append((1.0 - t_01) * x + t_01 * n)
            else: noisy.append(0.9 * x + 0.1 * n)
        return torch.cat(noisy, dim=0)

    def encode(self, texts):
        dtype = self.dtype()
        if not len(self.text_encoders): return [t.clone().detach() for t in texts]
        for te in self.text_encoders: te.train(self.trains_texts)
        return [t.to(dtype) if t.is_floating_point() else t for t in self.encode_texts(self.text_encoders, texts)]

    def predict(self, noisy_latents, timesteps, conditions):
        return self.kind.predict(noisy_latents.to(self.dtype()), timesteps, conditions)

    def prior(self, noisy_latents, timesteps, conditions):
        ToolkitLora.network.is_active = False
        self.net.eval()
        with torch.no_grad():
            embeds = [t.clone().detach() for t in conditions]
            out = self.predict(noisy_latents, timesteps, embeds)
        self.net.train()
        ToolkitLora.network.is_active = True
        return out

    def calculate_loss(self, noise_pred, noise, latents, mask):
        loss_multiplier = torch.empty(noise.shape[0], dtype=torch.float32, device=noise.device)
        target = (noise - latents).detach() if self.flow_matching else noise
        loss = F.mse_loss(noise_pred.float(), target.float(), reduction='none')
        loss = loss * 1.0
        loss = loss * mask
        loss = loss.mean([1, 2, 3])
        loss = loss * loss_multiplier
        loss = loss.mean()
        return loss + 0.0

    def forward(self, first, timesteps, texts):
        dtype, n = self.dtype(), first.shape[0]
        with torch.no_grad():
            with torch.autocast(main.DEV, enabled=False): latents = self.encode_images(first) if self.vae is not None else first
            noise = torch.randn(latents.shape, dtype=dtype, device=latents.device)
            noise = noise * 1.0
            latents = latents * 1.0
            noisy_latents = self.add_noise(latents, noise, timesteps)
            ones = torch.ones((n, 1, 1, 1), device=latents.device, dtype=dtype)
            mask = torch.ones((n, 1, 1, 1), device=latents.device, dtype=dtype)
        if self.sd_scripts: noisy_latents.requires_grad_(True)
        with torch.set_grad_enabled(self.trains_texts):
            conditions = self.encode(texts[0])
            class_conditions = self.encode(texts[1]) if self.dop else []
        prior = self.prior(noisy_latents, timesteps, class_conditions) if self.dop else None
        noise_pred = self.predict(noisy_latents, timesteps, conditions)
        loss = self.calculate_loss(noise_pred, noise, latents, mask)
        preservation_pred = None
        if self.dop:
            preservation_pred = self.predict(noisy_latents, timesteps, class_conditions)
            preservation_loss = F.mse_loss(preservation_pred, prior) * 1.0
            loss = loss + preservation_loss
        loss = loss * ones.mean()
        return types.SimpleNamespace(loss=loss, kept=(latents, noise, noisy_latents, conditions, class_conditions, prior, noise_pred,
                                                      preservation_pred, ones, mask))


def typed(sizes): return isinstance(sizes[0], tuple)


def part(value):
    config = {k: v for k, v in value.items() if k not in ('model', 'text_mask')}
    name = CLASSES.get(value['model'], value['model'])
    if name.startswith(('CLIP', 'T5', 'Gemma', 'Llama', 'Qwen2_5')): return dm.text_encoder(name, config)
    if name in ('hidream', 'omnigen2'):
        import toolkit_transformers as own
        return (own.HiDream if name == 'hidream' else own.OmniGen2)(config).net
    import diffusers
    return dm.diffusers_model(name, config) if name in ('UNet2DConditionModel', 'AutoencoderKL') else getattr(diffusers, name)(**config)


def frozen(value, dtype):
    module = part(value)
    for p in module.parameters(): p.requires_grad_(False)
    main.to_device(module, dtype)
    return module


def trained(value, dtype, lora, kept):
    """A text encoder in full, but for the layers that are kept, or with the toolkit's LoRA in CLIPAttention and CLIPMLP."""
    if not value['model'].startswith('clip'): return frozen(value, dtype)
    module = frozen(value, dtype) if lora else part(value)
    if not lora:
        for name, p in module.named_parameters():
            if name.split('.')[-2] in kept: p.requires_grad_(False)
        main.to_device(module, dtype)
    for name, m in list(module.named_modules()) if lora else []:
        if isinstance(m, torch.nn.Linear) and 'layers.' in name:
            adapter = ToolkitLora(m, lora['r'])
            main.to_device(adapter)
            module.set_submodule(name, adapter)
    return module


def build(**args):
    precision = main.spec.get('precision', 'fp32')
    dtype = torch.float32 if 'amp' in precision else DTYPE[precision]
    lora = main.spec.get('ai_toolkit_lora')
    net = part(args['denoiser'])
    if lora:
        for p in net.parameters(): p.requires_grad_(False)
    main.to_device(net, dtype)
    kind = main.spec.get('toolkit_quantization', '')
    if kind.startswith('uint'): quantize_uintx(net, int(kind[4:]))
    elif kind: replace_linears(net, lambda name: True, lambda m: QLinear(m, dtype))
    if lora:
        targets = lora['target_modules']
        wanted = lambda name: any(name == t or name.endswith('.' + t) for t in targets)
        for name, m in list(net.named_modules()):
            if isinstance(m, (torch.nn.Linear, QLinear)) and wanted(name):
                adapter = ToolkitLora(m, lora['r'])
                main.to_device(adapter)
                net.set_submodule(name, adapter)
    vae = frozen(args['vae'], DTYPE[args.get('vae_dtype')] or dtype) if args.get('vae') and not args.get('cache_latents', False) else None
    encodes = not (args.get('cache_text_embeddings') or args.get('unload_text_encoder'))
    te_dtype = DTYPE[args.get('te_dtype')] or dtype
    kept = lambda i: args.get('te_frozen', {}).get(f'text_encoder_{i + 1}' if i else 'text_encoder', [])
    encoders = [trained(te, te_dtype, lora, kept(i)) if args.get('train_text_encoder') else frozen(te, te_dtype)
                for i, te in enumerate(args.get('text_encoders', []))] if encodes else []
    return Trainer(net, vae, encoders, args, dtype)
