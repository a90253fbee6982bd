#include "nn/mamba_mixer.h"

#include <nlohmann/json.hpp>

#include "nn/transformer.h"
#include "ops/conv.h"
#include "ops/mamba_inner.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

void check_mamba_kernels(const Config& c, const MambaMixerSettings& s, const std::string& conv_key, const std::string& state_key) {
  if (!s.use_mamba_kernels) return;
  if (s.conv_kernel < 2 || s.conv_kernel > 4)
    throw Error("[" + c.source() + "] " + conv_key + " " + std::to_string(s.conv_kernel) + ": causal-conv1d has widths of 2 to 4",
                "change " + conv_key + ", or set use_mamba_kernels to false");
  if (s.state_size > 256)
    throw Error("[" + c.source() + "] " + state_key + " " + std::to_string(s.state_size) + ": mamba-ssm's scan has 256 states at most",
                "change " + state_key + ", or set use_mamba_kernels to false");
}

int64_t time_step_rank(const Config& c, const char* key, int64_t hidden_size) {
  const nlohmann::json* rank = c.find({key});
  return rank && *rank != "auto" ? c.size({key}, 1) : (hidden_size + 15) / 16;
}

DepthwiseConv1d::DepthwiseConv1d(Module& parent, std::string_view name, int64_t channels, int64_t kernel, bool with_bias)
    : Module(parent, name), padding(kernel - 1), weight(parameter("weight", {channels, 1, kernel})) {
  if (with_bias) bias = parameter("bias", {channels});
}

Tensor DepthwiseConv1d::operator()(const Tensor& x) const {
  Forward here(*this);
  return conv1d(x, weight, bias, {.padding = padding, .groups = x.size(1)});
}

Tensor state_decay(const Tensor& A_log) {
  Tensor A = to(A_log, DType::float32);
  A = exp(A);
  A = neg(A);
  return A;
}

MambaMixer::MambaMixer(Module& parent, std::string_view name, const MambaMixerSettings& s)
    : Module(parent, name),
      config_(s),
      A_log_(parameter("A_log", {s.intermediate_size, s.state_size})),
      D_(parameter("D", {s.intermediate_size})),
      conv1d_(*this, "conv1d", s.intermediate_size, s.conv_kernel, s.use_conv_bias),
      in_proj_(*this, "in_proj", s.hidden_size, checked_mul(2, s.intermediate_size), s.use_bias),
      x_proj_(*this, "x_proj", s.intermediate_size, s.time_step_rank + 2 * s.state_size, false),
      dt_proj_(*this, "dt_proj", s.time_step_rank, s.intermediate_size),
      out_proj_(*this, "out_proj", s.intermediate_size, s.hidden_size, s.use_bias) {
  if (!s.inner_norms) return;
  dt_layernorm_ = std::make_unique<RMSNorm>(*this, "dt_layernorm", s.time_step_rank);
  b_layernorm_ = std::make_unique<RMSNorm>(*this, "b_layernorm", s.state_size);
  c_layernorm_ = std::make_unique<RMSNorm>(*this, "c_layernorm", s.state_size);
}

Tensor MambaMixer::operator()(const Tensor& x, const Tensor& mask) const {
  Forward here(*this);
  if (!config_.use_mamba_kernels || tape().dataflow) return slow_forward(x, mask);  // JAX has none of these kernels
  return tape().training && !config_.inner_norms ? cuda_kernels_training(x) : cuda_kernels(x, mask);
}

MambaMixer::Selection MambaMixer::select_parameters(const Tensor& ssm_parameters) const {
  const Tensors parts = split(ssm_parameters, {config_.time_step_rank, config_.state_size, config_.state_size}, -1);
  Selection s{parts[0], parts[1], parts[2]};
  if (!config_.inner_norms) return s;
  s.time_step = (*dt_layernorm_)(s.time_step);
  s.B = (*b_layernorm_)(s.B);
  s.C = (*c_layernorm_)(s.C);
  return s;
}

Tensor MambaMixer::cuda_kernels_training(const Tensor& x) const {
  const Tensor projected_states = transpose(in_proj_(x), 1, 2);  // (B, 2 I, T)
  MambaInnerArgs args;
  args.xz = projected_states;
  args.conv1d_weight = conv1d_.weight;
  args.conv1d_bias = conv1d_.bias;
  args.x_proj_weight = x_proj_.weight;
  args.delta_proj_weight = dt_proj_.weight;
  args.out_proj_weight = out_proj_.weight;
  if (config_.use_bias) args.out_proj_bias = to(out_proj_.bias, DType::float32);
  args.A = state_decay(A_log_);
  args.D = to(D_, DType::float32);
  args.delta_bias = to(dt_proj_.bias, DType::float32);
  return mamba_inner(args);  // (B, T, C)
}

namespace {

Tensor masked(const Tensor& hidden, const Tensor& mask) { return mask ? mul(hidden, unsqueeze(mask, 1)) : hidden; }

// `outputs` of the steps live as long as the caller.
Tensor sequential_scan(const Tensor& discrete_A, const Tensor& deltaB_u, const Tensor& C, DType dtype, Tensor& ssm_state,
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
Tensor parallel_scan(const Tensor& discrete_A, const Tensor& deltaB_u, const Tensor& C) {
  const Tensor states = permute(mul(discrete_A, deltaB_u), {0, 2, 1, 3});  // (B, T, I, S)
  const Tensor output = squeeze(matmul(states, unsqueeze(C, -1)), -1);     // (B, T, I)
  return permute(output, {0, 2, 1});
}

}  // namespace

// The kernel adds the bias. Jamba calls the layer itself, with zeros for a bias.
Tensor MambaMixer::time_steps_without_bias(const Tensor& time_step) const {
  if (!config_.inner_norms) return matmul(dt_proj_.weight, transpose(time_step, 1, 2));  // (B, I, T)
  const Tensor zeros = nondiff("zeros_like", dt_proj_.bias, dt_proj_.bias.dtype());
  return transpose(dt_proj_(time_step), 1, 2);
}

Tensor MambaMixer::cuda_kernels(const Tensor& x, const Tensor& mask) const {
  const Tensor projected_states = transpose(in_proj_(x), 1, 2);  // (B, 2 I, T)
  const Tensors halves = chunk(projected_states, 2, 1);
  Tensor hidden = masked(halves[0], mask);  // (B, I, T)
  hidden = causal_conv1d(hidden, conv1d_.weight, conv1d_.bias);
  hidden = masked(hidden, mask);
  const Tensor ssm_parameters = x_proj_(transpose(hidden, 1, 2));  // (B, T, R + 2 S)
  const Selection s = select_parameters(ssm_parameters);
  SelectiveScanArgs args;
  args.u = hidden;
  args.delta = time_steps_without_bias(s.time_step);
  args.z = halves[1];
  args.A = state_decay(A_log_);
  args.B = transpose(s.B, 1, 2);
  args.C = transpose(s.C, 1, 2);
  {
    GradGuard no_grad(tape(), false);
    args.delta_bias = to(dt_proj_.bias, DType::float32);
  }
  args.D = to(D_, DType::float32);
  const Tensor scan_outputs = selective_scan(args);
  return out_proj_(transpose(scan_outputs, 1, 2));  // (B, T, C)
}

Tensor MambaMixer::slow_forward(const Tensor& x, const Tensor& mask) const {
  const int64_t tokens = x.size(1);
  const Tensor projected_states = transpose(in_proj_(x), 1, 2);  // (B, 2 I, T)
  const Tensors halves = chunk(projected_states, 2, 1);
  const Tensor& gate = halves[1];
  Tensor hidden = masked(halves[0], mask);                                                                            // (B, I, T)
  Tensor ssm_state = filled(tape(), "zeros", {x.size(0), config_.intermediate_size, config_.state_size}, x.dtype());  // (B, I, S)
  hidden = activation(config_.hidden_act, getitem(conv1d_(hidden), -1, 0, tokens));
  hidden = masked(hidden, mask);
  const Tensor ssm_parameters = x_proj_(transpose(hidden, 1, 2));  // (B, T, R + 2 S)
  const Selection s = select_parameters(ssm_parameters);
  Tensor time_step = dt_proj_(s.time_step);          // (B, T, I)
  time_step = transpose(softplus(time_step), 1, 2);  // (B, I, T)
  const Tensor A = state_decay(A_log_);
  Tensor discrete_A, discrete_B, deltaB_u;  // (B, I, T, S)
  {
    const Tensor rates = unsqueeze(unsqueeze(A, 0), 2), steps = unsqueeze(time_step, -1);
    discrete_A = exp(mul(rates, steps));
  }
  {
    const Tensor steps = unsqueeze(time_step, -1), inputs = to(unsqueeze(s.B, 1), DType::float32);
    discrete_B = mul(steps, inputs);
  }
  deltaB_u = mul(discrete_B, to(unsqueeze(hidden, -1), DType::float32));
  Tensors scan_outputs;
  Tensor scan_output = tape().dataflow ? parallel_scan(discrete_A, deltaB_u, s.C)
                                       : sequential_scan(discrete_A, deltaB_u, s.C, x.dtype(), ssm_state, scan_outputs);  // (B, I, T)
  scan_output = add(scan_output, mul(hidden, unsqueeze(unsqueeze(D_, 0), -1)));
  scan_output = mul(scan_output, activation(config_.hidden_act, gate));
  return out_proj_(transpose(scan_output, 1, 2));  // (B, T, C)
}

}  // namespace plimsoll
