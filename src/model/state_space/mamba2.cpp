// transformers.models.mamba2: Mamba2ForCausalLM, as it runs without the kernels of mamba-ssm: the text is cut into chunks, inside of which
// every token meets every other.
#include "model/family.h"
#include "nn/mamba_mixer.h"
#include "nn/mamba_model.h"
#include "ops/matmul.h"
#include "ops/reduce.h"

namespace plimsoll {

namespace {

struct Mamba2Config : MambaSettings {
  explicit Mamba2Config(const Config& c)
      : MambaSettings(c, 32768, 4096, 64, false),
        num_heads(c.size({"num_heads"}, 128)),
        head_dim(c.size({"head_dim"}, 64)),
        state_size(c.size({"state_size"}, 128)),
        n_groups(c.size({"n_groups"}, 8)),
        conv_kernel(c.size({"conv_kernel"}, 4)),
        chunk_size(c.size({"chunk_size"}, 256)),
        intermediate_size(checked_mul(hidden_size, c.size({"expand"}, 2))),
        use_bias(c.flag({"use_bias"}, false)),
        use_conv_bias(c.flag({"use_conv_bias"}, true)),
        hidden_act(c.text({"hidden_act"}, "silu")) {
    if (checked_mul(num_heads, head_dim) != intermediate_size)
      throw Error("[" + c.source() + "] num_heads " + std::to_string(num_heads) + " * head_dim " + std::to_string(head_dim) +
                      " is not hidden_size * expand " + std::to_string(intermediate_size),
                  "heads make up the whole width");
    c.require_divides("n_groups", n_groups, "num_heads", num_heads);
    if (c.flag({"use_mamba_kernels"}, false))
      throw Error("[" + c.source() + "] use_mamba_kernels true: Mamba 2's kernels are not simulated", "remove use_mamba_kernels");
  }
  int64_t states() const { return checked_mul(n_groups, state_size); }
  int64_t conv_dim() const { return intermediate_size + 2 * states(); }
  int64_t num_heads, head_dim, state_size, n_groups, conv_kernel, chunk_size, intermediate_size;
  bool use_bias, use_conv_bias;
  std::string hidden_act;
};

struct MambaRMSNormGated : Module {
  MambaRMSNormGated(Module& parent, std::string_view name, int64_t width) : Module(parent, name) { weight = parameter("weight", {width}); }

  Tensor operator()(const Tensor& x, const Tensor& gate) const {
    Forward here(*this);
    Tensor hidden = to(x, DType::float32);
    {
      const Tensor open = silu(to(gate, DType::float32));
      hidden = mul(hidden, open);
    }
    const Tensor variance = mean(pow(hidden, 2), {-1}, true);
    {
      const Tensor scale = rsqrt(add_scalar(variance));
      hidden = mul(hidden, scale);
    }
    return mul(weight, to(hidden, x.dtype()));
  }
  Tensor weight;
};

// apply_mask_to_padding_states: one sample alone is not masked.
Tensor masked(const Tensor& x, const Tensor& mask) {
  if (!mask || mask.size(0) == 1 || mask.size(1) == 1) return x;
  return to(mul(x, unsqueeze(mask, -1)), x.dtype());
}

Tensor lower_triangle(Tape& tape, int64_t n) {
  const Tensor ones = filled(tape, "ones", {n, n}, DType::bool_);
  return nondiff("tril", ones, DType::bool_);
}

Tensor fill_outside(const Tensor& x, const Tensor& mask) {
  const Tensor outside = nondiff("bitwise_not", mask, DType::bool_);
  return masked_fill(x, outside);
}

// Sums of every stretch of the last dimension: (..., n) -> (..., n, n)
Tensor segment_sum(Tensor x) {
  Tensor input = std::move(x);
  Tape& tape = input.tape();
  Dims sizes = input.sizes();
  const int64_t n = input.size(-1);
  sizes.push_back(n);
  input = expand(unsqueeze(input, -1), sizes);
  Tensor mask = lower_triangle(tape, n);
  input = fill_outside(input, mask);
  Tensor segments = cumsum(input, -2);
  mask = lower_triangle(tape, n);
  segments = fill_outside(segments, mask);
  return segments;
}

struct Mamba2Mixer : Module {
  Mamba2Mixer(Module& parent, std::string_view name, const Mamba2Config& c)
      : Module(parent, name),
        config(c),
        dt_bias(parameter("dt_bias", {c.num_heads})),
        A_log(parameter("A_log", {c.num_heads})),
        D(parameter("D", {c.num_heads})) {}

  // Python's names hold each step's result until all is done. L tokens a chunk, N states, D numbers a head.
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const int64_t batch = x.size(0), tokens = x.size(1);
    const Tensor mask = build().batch ? build().batch->attention_mask : Tensor();
    Tensor hidden = masked(x, mask);
    const Tensor projected_states = in_proj(hidden);  // (B, T, I + conv + H)
    const Tensors parts = split(projected_states, {config.intermediate_size, config.conv_dim(), config.num_heads}, -1);
    const Tensor& gate = parts[0];
    Tensor hidden_B_C = transpose(parts[1], 1, 2);  // (B, conv, T)
    hidden_B_C = activation(config.hidden_act, transpose(getitem(conv1d(hidden_B_C), -1, 0, tokens), 1, 2));
    hidden_B_C = masked(hidden_B_C, mask);  // (B, T, conv)
    const Tensors pieces = split(hidden_B_C, {config.intermediate_size, config.states(), config.states()}, -1);
    hidden = pieces[0];
    Tensor B = pieces[1], C = pieces[2];
    Tensor A = state_decay(A_log);                 // (H)
    Tensor dt = softplus(add(parts[2], dt_bias));  // (B, T, H)
    dt = clamp(dt);
    hidden = by_head(hidden, config.head_dim);  // (B, T, H, D)
    B = by_head(B, config.state_size);          // (B, T, groups, N)
    C = by_head(C, config.state_size);
    const int64_t repeats = config.num_heads / config.n_groups;
    B = repeat_interleave(B, repeats, 2);  // (B, T, H, N)
    C = repeat_interleave(C, repeats, 2);
    const int64_t pad = (config.chunk_size - tokens % config.chunk_size) % config.chunk_size;
    const Tensor D_residual = mul(unsqueeze(D, -1), padded(hidden, pad));
    hidden = mul(hidden, unsqueeze(dt, -1));
    A = mul(to(A, hidden.dtype()), dt);  // (B, T, H)
    {
      const Tensors chunks{in_chunks(hidden, pad), in_chunks(A, pad), in_chunks(B, pad), in_chunks(C, pad)};
      hidden = chunks[0];
      A = chunks[1];
      B = chunks[2];
      C = chunks[3];
    }
    A = permute(A, {0, 3, 1, 2});  // (B, H, chunks, L)
    const Tensor A_cumsum = cumsum(A, -1);
    const Tensor L = exp(segment_sum(A));                                 // (B, H, chunks, L, L)
    const Tensor G_intermediate = mul(unsqueeze(C, 3), unsqueeze(B, 2));  // (B, chunks, L, L, H, N)
    const Tensor G = sum(G_intermediate, {-1}, false);                    // (B, chunks, L, L, H)
    const Tensor M_intermediate = mul(unsqueeze(G, -1), unsqueeze(permute(L, {0, 2, 3, 4, 1}), -1));
    const Tensor M = sum(M_intermediate, {-1}, false);
    const Tensor Y_diag = sum(mul(unsqueeze(M, -1), unsqueeze(hidden, 2)), {3}, false);  // (B, chunks, L, H, D)
    const int64_t last = config.chunk_size - 1;
    const Tensor decay_states = exp(sub(slice(A_cumsum, 3, last, last + 1), A_cumsum));
    const Tensor B_decay = mul(B, unsqueeze(permute(decay_states, {0, 2, 3, 1}), -1));
    Tensor states = sum(mul(unsqueeze(B_decay, -2), unsqueeze(hidden, -1)), {2}, false);  // (B, chunks, H, D, N)
    const Tensor previous_states = nondiff("zeros_like", slice(states, 1, 0, 1), states.dtype());
    states = cat({previous_states, states}, 1);
    Tensor decay_chunk = exp(segment_sum(constant_pad_nd(select(A_cumsum, 3, last), {1, 0})));
    decay_chunk = transpose(decay_chunk, 1, 3);  // (B, chunks + 1, chunks + 1, H)
    const Tensor new_states = sum(mul(unsqueeze(unsqueeze(decay_chunk, -1), -1), unsqueeze(states, 2)), {1}, false);
    states = slice(new_states, 1, 0, new_states.size(1) - 1);
    const Tensor state_decay_out = exp(A_cumsum);
    const Tensor C_times_states = mul(unsqueeze(C, -2), unsqueeze(states, 2));  // (B, chunks, L, H, D, N)
    Tensor Y_off;
    {
      const Tensor read = sum(C_times_states, {-1}, false);
      Y_off = mul(read, unsqueeze(permute(state_decay_out, {0, 2, 3, 1}), -1));
    }
    Tensor y = add(Y_diag, Y_off);
    y = reshape(y, {batch, -1, config.num_heads, config.head_dim});
    y = add(y, D_residual);
    if (pad > 0) y = slice(y, 1, 0, tokens);
    y = reshape(y, {batch, tokens, -1});  // (B, T, I)
    const Tensor scan_output = norm(y, gate);
    return out_proj(to(scan_output, x.dtype()));  // (B, T, C)
  }

  // (B, T, heads or groups, width) in fp32
  static Tensor by_head(const Tensor& x, int64_t width) { return to(reshape(x, {x.size(0), x.size(1), -1, width}), DType::float32); }

  static Tensor padded(const Tensor& x, int64_t pad) {
    return constant_pad_nd(x, x.dim() == 4 ? Dims{0, 0, 0, 0, 0, pad} : Dims{0, 0, 0, pad});
  }

  // (B, T, ...) -> (B, chunks, L, ...)
  Tensor in_chunks(const Tensor& x, int64_t pad) const {
    Dims sizes{x.size(0), -1, config.chunk_size};
    for (int i = 2; i < x.dim(); ++i) sizes.push_back(x.size(i));
    return reshape(padded(x, pad), sizes);
  }

  const Mamba2Config& config;
  Tensor dt_bias, A_log, D;
  DepthwiseConv1d conv1d{*this, "conv1d", config.conv_dim(), config.conv_kernel, config.use_conv_bias};
  Linear in_proj{*this, "in_proj", config.hidden_size, config.intermediate_size + config.conv_dim() + config.num_heads, config.use_bias};
  MambaRMSNormGated norm{*this, "norm", config.intermediate_size};
  Linear out_proj{*this, "out_proj", config.intermediate_size, config.hidden_size, config.use_bias};
};

struct Mamba2ForCausalLM : MambaForCausalLM<Mamba2Config, Mamba2Mixer> {
  using MambaForCausalLM::MambaForCausalLM;
  Tensor loss(const Tensor& logits, const Tensor& labels) const override { return causal_lm_loss(build(), logits, labels, true); }
};

std::unique_ptr<Model> make_mamba2(Build& build, const Config& config) {
  return std::make_unique<Mamba2ForCausalLM>(build, Mamba2Config(config));
}

}  // namespace

const Family& mamba2_family() {
  static const Family kFamily{
      .name = "mamba2",
      .models = {{"mamba2", {"Mamba2ForCausalLM"}, InputKind::lm, 2048, make_mamba2}},
      .presets = {{"mamba2-2.7b", R"({"vocab_size":50288,"hidden_size":2560,"num_heads":80,"n_groups":1,"tie_word_embeddings":true})",
                   2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
