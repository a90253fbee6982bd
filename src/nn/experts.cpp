#include "nn/experts.h"

#include <nlohmann/json.hpp>

#include "nn/transformer.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

void read_moe_config(const Config& c, const char* experts_key, MoeConfig& m) {
  m.num_experts = c.size({experts_key, "num_local_experts", "num_experts"}, m.num_experts);
  m.num_experts_per_tok = c.size({"num_experts_per_tok"}, m.num_experts_per_tok);
  if (m.num_experts_per_tok > m.num_experts)
    throw Error("[" + c.source() + "] num_experts_per_tok " + std::to_string(m.num_experts_per_tok) + " is more than the " +
                    std::to_string(m.num_experts) + " experts",
                "choose at most as many as there are");
  const std::string implementation = c.text({"experts_implementation", "_experts_implementation"}, "grouped_mm");
  if (implementation != "grouped_mm")
    throw Error("[" + c.source() + "] experts_implementation '" + implementation + "' is not simulated", "known: grouped_mm, the default");
  if (c.flag({"output_router_logits"}, false)) m.router_logits = std::make_shared<RouterLogits>();
}

void read_sparse_steps(const Config& c, MoeConfig& m) {
  const int64_t step = c.size({"decoder_sparse_step"}, 1);
  m.sparse_layer.resize(static_cast<size_t>(m.num_hidden_layers));
  for (size_t i = 0; i < m.sparse_layer.size(); ++i) m.sparse_layer[i] = (static_cast<int64_t>(i) + 1) % step == 0;
  const nlohmann::json* dense = c.find({"mlp_only_layers"});
  if (!dense) return;
  const auto is_layer = [](const nlohmann::json& i) { return i.is_number_integer(); };
  if (!dense->is_array() || !std::all_of(dense->begin(), dense->end(), is_layer))
    throw Error("[" + c.source() + "] mlp_only_layers " + dump(*dense) + " is not a list of layers' numbers", "for example [0, 3]");
  for (const nlohmann::json& i : *dense)
    if (const int64_t layer = i.get<int64_t>(); layer >= 0 && layer < m.num_hidden_layers)
      m.sparse_layer[static_cast<size_t>(layer)] = false;
}

void reject_sharded_experts(const Module& experts) {
  if (experts.build().tensor_parallel)
    throw Error("[tensor_parallel] " + experts.path() + ": how experts are shared out is not simulated", "take a model without experts");
}

TopKRouter::TopKRouter(Module& parent, std::string_view name, const MoeConfig& m, bool casts)
    : Module(parent, name), config(m), casts_weights(casts), weight(parameter("weight", {m.num_experts, m.hidden_size})) {}

Routing TopKRouter::operator()(const Tensor& x) const {
  Forward here(*this);
  const Tensor hidden = reshape(x, {-1, config.hidden_size});
  const Tensor logits = linear(hidden, weight);  // (N, E)
  const Tensor probs = casts_weights ? softmax(logits, DType::float32) : softmax(to(logits, DType::float32));
  auto [weights, indices] = topk(probs, config.num_experts_per_tok);  // (N, K)
  if (config.norm_topk_prob) weights = div_(weights, sum(weights, {-1}, true));
  if (casts_weights) weights = to(weights, logits.dtype());
  config.take(logits);
  return {logits, weights, indices};
}

Experts::Experts(Module& parent, std::string_view name, const MoeConfig& m, ExpertsLayout l) : Module(parent, name), config(m), layout(l) {
  reject_sharded_experts(*this);
  const int64_t n = m.num_experts, width = m.hidden_size, inner = m.moe_intermediate_size;
  gate_up_proj = parameter("gate_up_proj", l.transposed ? Dims{n, width, 2 * inner} : Dims{n, 2 * inner, width});
  if (l.bias) gate_up_proj_bias = parameter("gate_up_proj_bias", {n, 2 * inner});
  down_proj = parameter("down_proj", l.transposed ? Dims{n, inner, width} : Dims{n, width, inner});
  if (l.bias) down_proj_bias = parameter("down_proj_bias", {n, width});
}

Tensor Experts::apply_gate(const Tensor& gate_up) const {
  const Tensors halves = chunk(gate_up, 2, -1);
  const Tensor gate = activation(config.hidden_act, halves[0]);
  return mul(gate, halves[1]);
}

Tensor Experts::grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& offsets, const Tensor& bias) const {
  Tensor out;
  {
    const Tensor input = to(x, weight.dtype());
    out = grouped_mm(input, layout.transposed ? weight : transpose(weight, -2, -1), offsets);
  }
  return bias ? add_(out, bias) : out;
}

// S = N K pairs of a token and an expert.
Tensor Experts::operator()(const Tensor& x, const Tensor& top_k_index, const Tensor& top_k_weights) const {
  Forward here(*this);
  const int64_t top_k = top_k_index.size(-1);
  const Tensor sample_weights = reshape(top_k_weights, {-1}), expert_ids = reshape(top_k_index, {-1});
  const auto [expert_ids_g, perm] = sort(expert_ids);
  Tensor selected;  // (S, C)
  {
    const Tensor tokens = nondiff("floor_divide", perm, DType::int64);
    selected = index(x, tokens);
  }
  const Tensor sample_weights_g = index(sample_weights, perm);
  const Tensor histc_input = nondiff("_to_copy", expert_ids_g, DType::int32);
  const Tensor tokens_per_expert = filled(tape(), "histc", {config.num_experts}, DType::int32);
  const Tensor offsets = cumsum(tokens_per_expert, 0, DType::int32);
  const Tensor sentinel_mask = unsqueeze(compare_scalar("ge", expert_ids_g), -1);
  Tensor biases = layout.bias ? index(gate_up_proj_bias, expert_ids_g) : Tensor();
  selected = masked_fill_(selected, sentinel_mask);
  Tensor proj_out = grouped_linear(selected, gate_up_proj, offsets, biases);  // (S, 2 F)
  proj_out = apply_gate(proj_out);                                            // (S, F)
  if (layout.bias) biases = index(down_proj_bias, expert_ids_g);
  proj_out = grouped_linear(proj_out, down_proj, offsets, biases);  // (S, C)
  Tensor weighted_out = mul(proj_out, unsqueeze(sample_weights_g, -1));
  weighted_out = masked_fill_(weighted_out, sentinel_mask);
  const Tensor inv_perm = nondiff("empty_like", perm, DType::int64);
  arange(tape(), perm.size(0));
  weighted_out = index(weighted_out, inv_perm);
  const Tensor final_hidden_states = sum(view(weighted_out, {x.size(0), top_k, x.size(-1)}), {1}, false);  // (N, C)
  return to(final_hidden_states, x.dtype());
}

namespace {

// F.one_hot: zeros with ones written in; the recorder's tensors are compared with all classes instead.
Tensor one_hot(const Tensor& index, int64_t classes) {
  Tape& tape = index.tape();
  Dims sizes = index.sizes();
  sizes.push_back(classes);
  if (!tape.dialect.recorder) return filled(tape, "zeros", sizes, DType::int64);
  const Tensor numbers = arange(tape, classes);
  const Tensor equal = compare("eq", unsqueeze(index, -1), numbers);
  return nondiff("_to_copy", equal, DType::int64);
}

// A (B, T) mask for each layer's tokens, repeated over `sizes`: one row for each token of each layer.
Tensor repeated_mask(const Tensor& mask, int64_t layers, const Dims& sizes) {
  Tensor wide = unsqueeze(mask, 0);
  Dims all{layers, mask.size(0), mask.size(1)}, rows{-1};
  for (int64_t n : sizes) {
    wide = unsqueeze(wide, -1);
    all.push_back(n);
    rows.push_back(n);
  }
  return reshape(expand(wide, all), rows);
}

}  // namespace

Tensor load_balancing_loss(const Tensors& router_logits, const MoeConfig& m, const Tensor& attention_mask) {
  const Tensor logits = cat(router_logits, 0);                        // (L N, E)
  const Tensor routing_weights = softmax(logits);                     // (L N, E)
  const TopK chosen = topk(routing_weights, m.num_experts_per_tok);   // (L N, K)
  const Tensor expert_mask = one_hot(chosen.indices, m.num_experts);  // (L N, K, E)
  Tensor tokens_per_expert, router_prob_per_expert, masks[2];
  if (attention_mask) {
    const int64_t layers = logits.size(0) / attention_mask.numel();
    masks[0] = repeated_mask(attention_mask, layers, {m.num_experts_per_tok, m.num_experts});
    {
      Tensor hits;
      {
        const Tensor wide = to(expert_mask, DType::float32);
        hits = mul(wide, masks[0]);
      }
      hits = sum(hits, {0}, false);
      const Tensor count = sum(masks[0], {0}, false);
      tokens_per_expert = div(hits, count);
    }
    masks[1] = repeated_mask(attention_mask, layers, {m.num_experts});
    Tensor probs = mul(routing_weights, masks[1]);
    probs = sum(probs, {0}, false);
    const Tensor count = sum(masks[1], {0}, false);
    router_prob_per_expert = div(probs, count);
  } else {
    tokens_per_expert = mean(to(expert_mask, DType::float32), {0}, false);  // (K, E)
    router_prob_per_expert = mean(routing_weights, {0}, false);             // (E)
  }
  Tensor loss = mul(tokens_per_expert, unsqueeze(router_prob_per_expert, 0));
  loss = sum(loss);
  return mul_scalar(loss);
}

}  // namespace plimsoll
