"""The step of the family diffusion-trainer in miniature: a U-Net that is trained, a frozen autoencoder and frozen text encoders, as the
AI Toolkit calls them. args are the family's settings, with each part written out: {"model": family or class, ...its configuration}.
spec["ai_toolkit_lora"] puts the toolkit's LoRA on the U-Net's linear layers, spec["toolkit_quantization"] their weights into qfloat8,
computed as optimum-quanto's WeightQBytesLinearFunction does."""
import sys, types

import torch
import torch.nn.functional as F

import diffusers_models as dm

DTYPE = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16, None: None}
CLASSES = {'unet2d-condition': 'UNet2DConditionModel', 'autoencoder-kl': 'AutoencoderKL', 'clip-text': 'CLIPTextModel',
           'clip-text-projection': 'CLIPTextModelWithProjection', 't5-encoder': 'T5EncoderModel'}
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


def replace_linears(net, wanted, make):
    for name, m in list(net.named_modules()):
        if isinstance(m, torch.nn.Linear) and wanted(name): net.set_submodule(name, make(m))


# ---------------------------------------------------------------- the step
class Trainer(dm.DenoiserTraining):
    def __init__(self, net, vae, text_encoders, args, dtype):
        super().__init__(net, args.get('height'), args.get('width'))
        self.vae = vae
        self.text_encoders = torch.nn.ModuleList(text_encoders)
        self.dop, self.flow_matching, self.train_dtype = args.get('dop', False), args.get('flow_matching', False), dtype

    def dtype(self): return self.train_dtype

    def conditions(self, batch, device):
        inputs = dm.DenoiserTraining.example_inputs(self, batch, self.side, device)
        return [v for k, v in inputs.items() if k in ('text_states', 'text_embeds', 'time_ids')]

    def example_inputs(self, batch, seq, device):
        self.side = seq
        h, w = self.height or seq, self.width or seq
        if self.vae is not None: first = torch.empty(batch, 3, h, w, dtype=self.dtype(), device=device)
        else: first = torch.empty(batch, self.net.config.in_channels, h // 8, w // 8, dtype=self.dtype(), device=device)
        inputs = dict(first=first, timesteps=torch.empty(batch, dtype=torch.int64, device=device), texts=[])
        for _ in range(2 if self.dop else 1):
            if len(self.text_encoders):
                inputs['texts'].append([torch.empty(batch, self.tokens(te), dtype=torch.int64, device=device) for te in self.text_encoders])
            else: inputs['texts'].append(self.conditions(batch, device))
        ToolkitLora.network.multiplier = torch.empty(batch, dtype=torch.float32, device=device)
        return inputs

    @staticmethod
    def tokens(te): return getattr(te.config, 'max_position_embeddings', 512)

    def encode_images(self, imgs):
        self.vae.eval()
        dtype = next(self.vae.parameters()).dtype
        image_list = [image.to(dtype=dtype) for image in imgs]
        images = torch.stack(image_list)
        latents = self.vae.encode(images).latent_dist.sample()
        latents = 0.13 * (latents - 0)
        return latents.to(dtype=dtype)

    def add_noise(self, latents, noise):
        noisy = []
        for x, n in zip(torch.chunk(latents, latents.shape[0]), torch.chunk(noise, noise.shape[0])): noisy.append(0.9 * x + 0.1 * n)
        return torch.cat(noisy, dim=0)

    def text_encode_xl(self, te, tokens):
        prompt_embeds = te(tokens, output_hidden_states=True)
        pooled = prompt_embeds[0]
        prompt_embeds = prompt_embeds.hidden_states[-2]
        n, t, _ = prompt_embeds.shape
        prompt_embeds = prompt_embeds.repeat(1, 1, 1)
        return prompt_embeds.view(n, t, -1), pooled

    def encode(self, texts):
        if not len(self.text_encoders): return [t.clone().detach() for t in texts]
        for te in self.text_encoders: te.eval()
        dtype, n = self.dtype(), texts[0].shape[0]
        if len(self.text_encoders) == 1: return [self.text_encoders[0](texts[0])[0].to(dtype)]
        states, pooled = [], None
        for te, tokens in zip(self.text_encoders, texts):
            text_embeds, pooled = self.text_encode_xl(te, tokens)
            states.append(text_embeds)
        pooled = pooled.repeat(1, 1).view(n, -1)
        return [torch.concat(states, dim=-1).to(dtype), pooled.to(dtype), torch.empty(n, 6, dtype=dtype, device=pooled.device)]

    def predict(self, noisy_latents, timesteps, conditions):
        added = dict(text_embeds=conditions[1], time_ids=conditions[2]) if len(conditions) > 1 else None
        return self.net(noisy_latents.to(self.dtype()), timesteps, conditions[0], added_cond_kwargs=added).sample

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
            latents = self.encode_images(first) if self.vae is not None else first
            noise = torch.randn(latents.shape, dtype=dtype, device=latents.device)
            noise = noise * 1.0
            latents = latents * 1.0
            noisy_latents = self.add_noise(latents, noise)
            ones = torch.ones((n, 1, 1, 1), device=latents.device, dtype=dtype)
            mask = torch.ones((n, 1, 1, 1), device=latents.device, dtype=dtype)
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


def part(value):
    config = {k: v for k, v in value.items() if k != 'model'}
    name = CLASSES.get(value['model'], value['model'])
    return dm.text_encoder(name, config) if name.startswith(('CLIP', 'T5')) else dm.diffusers_model(name, config)


def frozen(value, dtype):
    module = part(value)
    for p in module.parameters(): p.requires_grad_(False)
    main.to_device(module, dtype)
    return module


def build(**args):
    precision = main.spec.get('precision', 'fp32')
    dtype = torch.float32 if 'amp' in precision else DTYPE[precision]
    lora = main.spec.get('ai_toolkit_lora')
    net = part(args['denoiser'])
    if lora:
        for p in net.parameters(): p.requires_grad_(False)
    main.to_device(net, dtype)
    if main.spec.get('toolkit_quantization'): replace_linears(net, lambda name: True, lambda m: QLinear(m, dtype))
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
    encoders = [frozen(te, DTYPE[args.get('te_dtype')] or dtype) for te in args.get('text_encoders', [])] if encodes else []
    return Trainer(net, vae, encoders, args, dtype)
