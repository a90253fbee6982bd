// The layer of Mamba, which Jamba shares: convolution, selective scan and gate. On CUDA with mamba-ssm and causal-conv1d the library's
// kernels run; without them it is a loop over the tokens in Python.
#pragma once

#include "job/config.h"
#include "nn/layers.h"

namespace plimsoll {

struct MambaMixerSettings {
  int64_t hidden_size = 768, intermediate_size = 1536, state_size = 16, conv_kernel = 4, time_step_rank = 48;
  bool use_bias = false, use_conv_bias = true;
  bool use_mamba_kernels = true;
  bool inner_norms = false;  // of time steps, B and C: no kernel does the whole layer then
  std::string hidden_act = "silu";
};

// Throws for sizes that the kernels do not take; the keys are those they were read by.
void check_mamba_kernels(const Config& config, const MambaMixerSettings& s, const std::string& conv_key, const std::string& state_key);
// A rank, or "auto": a sixteenth of the width.
int64_t time_step_rank(const Config& config, const char* key, int64_t hidden_size);

// nn.Conv1d over each channel by itself; its result is longer than x by kernel - 1.
struct DepthwiseConv1d : Module {
  DepthwiseConv1d(Module& parent, std::string_view name, int64_t channels, int64_t kernel, bool with_bias);
  Tensor operator()(const Tensor& x) const;
  int64_t padding;
  Tensor weight, bias;
};

Tensor state_decay(const Tensor& A_log);  // -exp(A_log) in fp32

struct MambaMixer : Module {
  MambaMixer(Module& parent, std::string_view name, const MambaMixerSettings& s);
  // The mask (B, T) hides padding; it may be undefined.
  Tensor operator()(const Tensor& x, const Tensor& mask) const;

 private:
  struct Selection {
    Tensor time_step, B, C;  // (B, T, R), (B, T, S), (B, T, S)
  };
  Selection select_parameters(const Tensor& ssm_parameters) const;
  Tensor time_steps_without_bias(const Tensor& time_step) const;
  Tensor cuda_kernels_training(const Tensor& x) const;
  Tensor cuda_kernels(const Tensor& x, const Tensor& mask) const;
  Tensor slow_forward(const Tensor& x, const Tensor& mask) const;

  const MambaMixerSettings& config_;
  Tensor A_log_, D_;
  DepthwiseConv1d conv1d_;
  Linear in_proj_, x_proj_, dt_proj_, out_proj_;
  std::unique_ptr<RMSNorm> dt_layernorm_, b_layernorm_, c_layernorm_;
};

}  // namespace plimsoll
