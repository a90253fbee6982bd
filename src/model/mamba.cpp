// transformers.models.mamba: MambaForCausalLM. On CUDA with mamba-ssm and causal-conv1d a layer is one fused function; without them it is
// a loop over the tokens in Python (use_mamba_kernels, as other models of transformers call the choice).
#include <nlohmann/json.hpp>

#include "model/families.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/transformer.h"
#include "ops/conv.h"
#include "ops/mamba_inner.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct MambaConfig {
  MambaConfig(const Config& c, bool has_kernels)
      : vocab_size(c.size({"vocab_size"}, 50280)),
        hidden_size(c.size({"hidden_size", "d_model"}, 768)),
        num_hidden_layers(c.size({"num_hidden_layers", "n_layer"}, 32)),
        state_size(c.size({"state_size"}, 16)),
        intermediate_size(checked_mul(hidden_size, c.size({"expand"}, 2))),
        conv_kernel(c.size({"conv_kernel"}, 4)),
        time_step_rank(c.find({"time_step_rank"}) && *c.find({"time_step_rank"}) != "auto" ? c.size({"time_step_rank"}, 1)
                                                                                           : (hidden_size + 15) / 16),
        use_bias(c.flag({"use_bias"}, false)),
        use_conv_bias(c.flag({"use_conv_bias"}, true)),
        residual_in_fp32(c.flag({"residual_in_fp32"}, true)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)),
        use_mamba_kernels(c.flag({"use_mamba_kernels"}, has_kernels)),
        hidden_act(c.text({"hidden_act"}, "silu")) {
    reject_captured_outputs(c);
    if (!use_mamba_kernels && c.flag({"use_mambapy"}, false))
      throw Error("[" + c.source() + "] use_mambapy true: its scan is not modelled", "remove use_mambapy");
    if (use_mamba_kernels && (conv_kernel < 2 || conv_kernel > 4))
      throw Error("[" + c.source() + "] conv_kernel " + std::to_string(conv_kernel) + ": causal-conv1d has widths of 2 to 4",
                  "change conv_kernel, or set use_mamba_kernels to false");
    if (use_mamba_kernels && state_size > 256)
      throw Error("[" + c.source() + "] state_size " + std::to_string(state_size) + ": mamba-ssm's scan has 256 states at most",
                  "change state_size, or set use_mamba_kernels to false");
  }
  int64_t vocab_size, hidden_size, num_hidden_layers, state_size, intermediate_size, conv_kernel, time_step_rank;
  bool use_bias, use_conv_bias, residual_in_fp32, tie_word_embeddings, use_mamba_kernels;
  std::string hidden_act;
};

// nn.Conv1d over each channel by itself.
struct DepthwiseConv1d : Module {
  DepthwiseConv1d(Module& parent, std::string_view name, const MambaConfig& c)
      : Module(parent, name), padding(c.conv_kernel - 1), weight(parameter("weight", {c.intermediate_size, 1, c.conv_kernel})) {
    if (c.use_conv_bias) bias = parameter("bias", {c.intermediate_size});
  }
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return conv1d(x, weight, bias, {.padding = padding, .groups = x.size(1)});
  }

  int64_t padding;
  Tensor weight, bias;
};

struct MambaMixer : Module {
  MambaMixer(Module& parent, std::string_view name, const MambaConfig& c)
      : Module(parent, name),
        config(c),
        A_log(parameter("A_log", {c.intermediate_size, c.state_size})),
        D(parameter("D", {c.intermediate_size})),
        conv1d(*this, "conv1d", c),
        in_proj(*this, "in_proj", c.hidden_size, checked_mul(2, c.intermediate_size), c.use_bias),
        x_proj(*this, "x_proj", c.intermediate_size, c.time_step_rank + 2 * c.state_size, false),
        dt_proj(*this, "dt_proj", c.time_step_rank, c.intermediate_size),
        out_proj(*this, "out_proj", c.intermediate_size, c.hidden_size, c.use_bias) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    if (!config.use_mamba_kernels || tape().dataflow) return slow_forward(x);  // JAX has none of these kernels
    return tape().training ? cuda_kernels_training(x) : cuda_kernels_inference(x);
  }

  Tensor decay() const {
    Tensor A = to(A_log, DType::float32);
    A = exp(A);
    A = neg(A);
    return A;  // (I, S)
  }

  Tensor cuda_kernels_training(const Tensor& x) const {
    const Tensor projected_states = transpose(in_proj(x), 1, 2);  // (B, 2 I, T)
    MambaInnerArgs args;
    args.xz = projected_states;
    args.conv1d_weight = conv1d.weight;
    args.conv1d_bias = conv1d.bias;
    args.x_proj_weight = x_proj.weight;
    args.delta_proj_weight = dt_proj.weight;
    args.out_proj_weight = out_proj.weight;
    if (config.use_bias) args.out_proj_bias = to(out_proj.bias, DType::float32);
    args.A = decay();
    args.D = to(D, DType::float32);
    args.delta_bias = to(dt_proj.bias, DType::float32);
    return mamba_inner(args);  // (B, T, C)
  }

  Tensor cuda_kernels_inference(const Tensor& x) const {
    const Tensor projected_states = transpose(in_proj(x), 1, 2);  // (B, 2 I, T)
    const Tensors halves = chunk(projected_states, 2, 1);
    Tensor hidden = masked(halves[0]);  // (B, I, T)
    hidden = causal_conv1d(hidden);
    hidden = masked(hidden);
    const Tensor ssm_parameters = x_proj(transpose(hidden, 1, 2));  // (B, T, R + 2 S)
    const Tensors parts = split(ssm_parameters, {config.time_step_rank, config.state_size, config.state_size}, -1);
    const Tensor time_step = matmul(dt_proj.weight, transpose(parts[0], 1, 2));  // (B, I, T)
    const Tensor scan_outputs = selective_scan(hidden, time_step, decay(), transpose(parts[1], 1, 2), transpose(parts[2], 1, 2), halves[1]);
    return out_proj(transpose(scan_outputs, 1, 2));  // (B, T, C)
  }

  Tensor masked(const Tensor& hidden) const {
    const Batch* batch = build().batch;
    return batch && batch->attention_mask ? mul(hidden, unsqueeze(batch->attention_mask, 1)) : hidden;
  }

  // `outputs` of the steps live as long as the caller.
  static Tensor sequential_scan(const Tensor& discrete_A, const Tensor& deltaB_u, const Tensor& C, DType dtype, Tensor& ssm_state,
                                Tensors& outputs) {
    Tensor output;
    for (int64_t i = 0; i < C.size(1); ++i) {
      {
        const Tensor kept = mul(select(discrete_A, 2, i), ssm_state);
        ssm_state = add(kept, select(deltaB_u, 2, i));  // (B, I, S)
      }
      const Tensor state = to(ssm_state, dtype), readout = unsqueeze(select(C, 1, i), -1);
      output = matmul(state, readout);  // (B, I, 1)
      outputs.push_back(select(output, 2, 0));
    }
    return stack(outputs, -1);  // (B, I, T)
  }

  // associative_scan of a compiled step: it reads both and makes the states of all tokens, as a product does.
  static Tensor parallel_scan(const Tensor& discrete_A, const Tensor& deltaB_u, const Tensor& C) {
    const Tensor states = permute(mul(discrete_A, deltaB_u), {0, 2, 1, 3});  // (B, T, I, S)
    const Tensor output = squeeze(matmul(states, unsqueeze(C, -1)), -1);     // (B, T, I)
    return permute(output, {0, 2, 1});
  }

  Tensor slow_forward(const Tensor& x) const {
    const int64_t tokens = x.size(1);
    const Tensor projected_states = transpose(in_proj(x), 1, 2);  // (B, 2 I, T)
    const Tensors halves = chunk(projected_states, 2, 1);
    const Tensor& gate = halves[1];
    Tensor hidden = masked(halves[0]);                                                                                // (B, I, T)
    Tensor ssm_state = filled(tape(), "zeros", {x.size(0), config.intermediate_size, config.state_size}, x.dtype());  // (B, I, S)
    hidden = activation(config.hidden_act, getitem(conv1d(hidden), -1, 0, tokens));
    hidden = masked(hidden);
    const Tensor ssm_parameters = x_proj(transpose(hidden, 1, 2));  // (B, T, R + 2 S)
    const Tensors parts = split(ssm_parameters, {config.time_step_rank, config.state_size, config.state_size}, -1);
    Tensor time_step = dt_proj(parts[0]);              // (B, T, I)
    time_step = transpose(softplus(time_step), 1, 2);  // (B, I, T)
    const Tensor &B = parts[1], &C = parts[2], A = decay();
    Tensor discrete_A, discrete_B, deltaB_u;  // (B, I, T, S)
    {
      const Tensor rates = unsqueeze(unsqueeze(A, 0), 2), steps = unsqueeze(time_step, -1);
      discrete_A = exp(mul(rates, steps));
    }
    {
      const Tensor steps = unsqueeze(time_step, -1), inputs = to(unsqueeze(B, 1), DType::float32);
      discrete_B = mul(steps, inputs);
    }
    deltaB_u = mul(discrete_B, to(unsqueeze(hidden, -1), DType::float32));
    Tensors scan_outputs;
    Tensor scan_output = tape().dataflow ? parallel_scan(discrete_A, deltaB_u, C)
                                         : sequential_scan(discrete_A, deltaB_u, C, x.dtype(), ssm_state, scan_outputs);  // (B, I, T)
    scan_output = add(scan_output, mul(hidden, unsqueeze(unsqueeze(D, 0), -1)));
    scan_output = mul(scan_output, activation(config.hidden_act, gate));
    return out_proj(transpose(scan_output, 1, 2));  // (B, T, C)
  }

  const MambaConfig& config;
  Tensor A_log, D;
  DepthwiseConv1d conv1d;
  Linear in_proj, x_proj, dt_proj, out_proj;
};

struct MambaBlock : Module {
  MambaBlock(Module& parent, std::string_view name, const MambaConfig& c)
      : Module(parent, name), config(c), norm(*this, "norm", c.hidden_size), mixer(*this, "mixer", c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor residual = x;
    Tensor hidden = norm(to(x, norm.weight.dtype()));  // (B, T, C)
    if (config.residual_in_fp32) residual = to(residual, DType::float32);
    hidden = run_part(mixer, hidden);
    hidden = add(residual, hidden);
    return hidden;
  }

  const MambaConfig& config;
  RMSNorm norm;
  MambaMixer mixer;
};

struct MambaModel : Module {
  MambaModel(Module& parent, std::string_view name, const MambaConfig& c)
      : Module(parent, name),
        config(c),
        embeddings(*this, "embeddings", c.vocab_size, c.hidden_size),
        layers(*this, "layers"),
        norm_f(add_layers(), "norm_f", c.hidden_size) {}

  Module& add_layers() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    const Tensor inputs_embeds = embeddings(input_ids);
    Tensor hidden = inputs_embeds;  // (B, T, C)
    for (MambaBlock& block : layers)
      hidden = run_block(
          block, [&block](const Tensor& x) { return block(x); }, hidden);
    hidden = norm_f(hidden);
    return hidden;
  }

  const MambaConfig& config;
  Embedding embeddings;
  ModuleList<MambaBlock> layers;
  RMSNorm norm_f;
};

struct MambaForCausalLM : Model {
  MambaForCausalLM(Build& build, const Config& c)
      : Model(build),
        config(c, !build.tape.dialect.recorder),  // the recorder has no such kernels
        backbone(*this, "backbone", config),
        lm_head(config.tie_word_embeddings ? std::make_unique<Linear>(*this, "lm_head", backbone.embeddings.weight, false)
                                           : std::make_unique<Linear>(*this, "lm_head", config.hidden_size, config.vocab_size, false)) {}

  Output forward(const Batch& batch) override {
    const Tensor hidden = backbone(batch.input_ids);                                                                           // (B, T, C)
    const Tensor logits = to((*lm_head)(to(getitem(hidden, 1, 0, hidden.size(1)), lm_head->weight.dtype())), DType::float32);  // (B, T, V)
    return {shifted_cross_entropy(logits, batch.labels), {logits}};
  }

  bool uses_cache() const override { return false; }  // not in training

  MambaConfig config;
  MambaModel backbone;
  std::unique_ptr<Linear> lm_head;
};

}  // namespace

std::unique_ptr<Model> make_mamba(Build& build, const Config& config) { return std::make_unique<MambaForCausalLM>(build, config); }

}  // namespace plimsoll
