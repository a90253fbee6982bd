// Sparse feed-forwards of transformers 5: a router gives each token its experts, whose weights are one tensor a layer. They run as
// integrations/moe.py has it by default (grouped_mm_experts_forward): every pair of token and expert, sorted by expert, in one product
// over all of them, so that memory does not depend on how the router spreads the tokens.
#pragma once

#include "nn/decoder.h"

namespace plimsoll {

// Every layer's logits, for the loss that balances the experts; taken while the body runs, not when backward runs a layer again.
struct RouterLogits {
  bool active = false;
  Tensors taken;
};

// What a configuration says about its experts.
struct MoeConfig : DecoderConfig {
  int64_t num_experts = 8, num_experts_per_tok = 2;
  int64_t moe_intermediate_size = 14336;  // of one expert
  bool norm_topk_prob = true;
  std::vector<bool> sparse_layer;               // by layer; empty: all
  std::shared_ptr<RouterLogits> router_logits;  // null: not asked for
  bool is_sparse(size_t layer) const { return sparse_layer.empty() || sparse_layer[layer]; }
  void take(const Tensor& logits) const {
    if (router_logits && router_logits->active) router_logits->taken.push_back(logits);
  }
};

// num_experts_per_tok of `experts_key` experts, output_router_logits; throws for another implementation than the default.
void read_moe_config(const Config& config, const char* experts_key, MoeConfig& m);
// Layers with experts: each decoder_sparse_step-th, without mlp_only_layers.
void read_sparse_steps(const Config& config, MoeConfig& m);

// Throws under tensor parallelism: how experts are shared out is not simulated.
void reject_sharded_experts(const Module& experts);

struct Routing {
  Tensor logits;   // (N, E)
  Tensor weights;  // (N, K)
  Tensor indices;  // (N, K)
};

// Softmax in fp32, the best few, perhaps scaled to a sum of one.
struct TopKRouter : Module {
  TopKRouter(Module& parent, std::string_view name, const MoeConfig& m, bool casts_weights);
  Routing operator()(const Tensor& x) const;  // (N, C)
  const MoeConfig& config;
  bool casts_weights;  // back to the type of the logits
  Tensor weight;
};

struct ExpertsLayout {
  bool transposed = false;  // weights are stored (E, in, out)
  bool bias = false;
};

struct Experts : Module {
  Experts(Module& parent, std::string_view name, const MoeConfig& m, ExpertsLayout layout = {});
  Tensor operator()(const Tensor& x, const Tensor& top_k_index, const Tensor& top_k_weights) const;  // (N, C)
  virtual Tensor apply_gate(const Tensor& gate_up) const;                                            // (S, 2 F) -> (S, F)

  const MoeConfig& config;
  ExpertsLayout layout;
  Tensor gate_up_proj, gate_up_proj_bias, down_proj, down_proj_bias;

 private:
  Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& offsets, const Tensor& bias) const;
};

// load_balancing_loss_func, over all layers' logits at once; the mask (B, T) may be undefined.
Tensor load_balancing_loss(const Tensors& router_logits, const MoeConfig& m, const Tensor& attention_mask);

}  // namespace plimsoll
