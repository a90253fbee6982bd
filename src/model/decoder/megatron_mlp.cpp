#include <cmath>

#include "model/decoder/megatron_parts.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll::megatron {

Mlp::Mlp(Module& parent, std::string_view name, const Shared& shared, int64_t ffn, bool norms)
    : Module(parent, name),
      shared_(shared),
      linear_fc1_(*this, "linear_fc1", shared, norms ? ParallelLinear::Kind::norm_column : ParallelLinear::Kind::column,
                  shared.config.hidden, ffn * (shared.config.gated ? 2 : 1), shared.config.bias, false),
      linear_fc2_(*this, "linear_fc2", shared, ParallelLinear::Kind::row, ffn, shared.config.hidden, shared.config.bias, false) {}

Biased Mlp::operator()(const Tensor& x) const {
  Forward in(*this);
  const Tensor wide = linear_fc1_(x);
  const Tensor active = shared_.config.gated ? fused_swiglu(wide, linear_fc1_.bias)
                        : linear_fc1_.bias   ? bias_gelu(wide, linear_fc1_.bias)
                                             : gelu(wide);
  return {linear_fc2_(active), linear_fc2_.bias};
}

void MoeLayer::Experts::make(int64_t experts, int64_t first, int64_t ffn, int64_t hidden) {
  for (int64_t i = 0; i < experts; ++i) fc1.push_back(parameter("linear_fc1.weight" + std::to_string(i), {first, hidden}));
  for (int64_t i = 0; i < experts; ++i) fc2.push_back(parameter("linear_fc2.weight" + std::to_string(i), {hidden, ffn}));
}

MoeLayer::MoeLayer(Module& parent, std::string_view name, const Shared& shared)
    : Module(parent, name), shared_(shared), router_(*this, "router"), experts_(*this, "experts") {
  const MegatronConfig& c = shared.config;
  router_.make(c.experts, c.hidden);
  const int64_t ffn = c.expert_ffn / shared.settings.expert_tensor_size();
  experts_.make(c.experts / shared.settings.expert, ffn * (c.gated ? 2 : 1), ffn, c.hidden);
  if (c.shared_ffn > 0) shared_experts_ = std::make_unique<Mlp>(*this, "shared_experts", shared, c.shared_ffn, false);
}

namespace {

// Rows in another order, or some of them, with a map of which: (rows, width).
Tensor permuted(const char* name, const Tensor& x, int64_t rows) {
  Op op(x.tape(), name, {&x});
  Saved map = op.save(empty(x.tape(), {std::max(rows, x.size(0))}, DType::int32));
  return op.finish(empty(x.tape(), {rows, x.size(-1)}, x.dtype()), [map = std::move(map), before = x.size(0)](Tensors& g, Needs) {
    const Tensor m = map.unpack();
    Op op(g[0].tape(), "permute_backward", {});
    op.reads(g[0]);
    return Tensors{empty(g[0].tape(), {before, g[0].size(-1)}, g[0].dtype())};
  });
}

// The weight of every row, out of a table of tokens and experts.
Tensor picked(const Tensor& weights, int64_t rows) {
  Op op(weights.tape(), "masked_select", {&weights});
  return op.finish(empty(weights.tape(), {rows}, weights.dtype()),
                   [sizes = weights.sizes()](Tensors& g, Needs) { return Tensors{empty(g[0].tape(), sizes, g[0].dtype())}; });
}

// Sent where it belongs: `rows` come, as many as go when experts are loaded equally.
Tensor sent(const Tensor& x, int64_t rows) {
  Op op(x.tape(), "all_to_all", {&x});
  return op.finish(empty(x.tape(), {rows, x.size(-1)}, x.dtype()), [before = x.size(0)](Tensors& g, Needs) {
    Op op(g[0].tape(), "all_to_all", {});
    op.reads(g[0]);
    return Tensors{empty(g[0].tape(), {before, g[0].size(-1)}, g[0].dtype())};
  });
}

int64_t times(int64_t rows, double factor) { return static_cast<int64_t>(std::ceil(static_cast<double>(rows) * factor)); }

}  // namespace

Tensor MoeLayer::activated(const Tensor& x, const Tensor& weights) const {
  if (shared_.config.gated) return weighted_swiglu(x, weights);
  return mul(gelu(x), to(unsqueeze(weights, -1), x.dtype()));
}

// This rank's experts get `imbalance` times an equal share of the tokens.
Tensor MoeLayer::operator()(const Tensor& x) const {
  Forward in(*this);
  const MegatronConfig& c = shared_.config;
  const MegatronSettings& s = shared_.settings;
  const int64_t tokens = x.size(0) * x.size(1);
  const Tensor flat = view(x, {tokens, c.hidden});
  Tensor weights;
  {
    Forward route(router_);
    const Tensor logits = to(linear(flat, router_.weight), DType::float32);
    const Tensor scores = softmax(logits);  // (tokens, experts)
    const Tensor chosen = nondiff("topk", scores, DType::bool_);
    weights = mul(scores, to(chosen, DType::float32));
  }
  Forward run(experts_);
  GemmShare share = shared_.whole();
  Tensor out;
  if (c.gathers_all) {
    const int64_t group = s.expert * s.expert_tensor_size(), all = tokens * group;
    const int64_t mine = times(all * c.top_k / s.expert, c.imbalance);
    const Tensor gathered = permuted("all_gather", flat, all);
    Tensor local = permuted("permute", gathered, mine);
    const Tensor local_weights = picked(weights, mine);
    local = grouped_linear(activated(grouped_linear(local, experts_.fc1, share), local_weights), experts_.fc2, share);
    out = permuted("reduce_scatter", permuted("unpermute", local, all), tokens);
  } else {
    const double room = c.capacity > 0 ? c.capacity : 1;
    const int64_t rows = times(tokens * c.top_k, room), received = times(rows, c.imbalance);
    Tensor mine = sent(permuted("permute", flat, rows), received);
    if (s.expert_tensor_size() > 1) mine = permuted("all_gather", mine, received * s.expert_tensor_size());
    if (experts_.fc1.size() > 1) mine = permuted("sort_chunks", mine, mine.size(0));
    const Tensor row_weights = picked(weights, mine.size(0));
    mine = grouped_linear(mine, experts_.fc1, share);
    mine = activated(mine, row_weights);
    mine = grouped_linear(mine, experts_.fc2, share);
    if (experts_.fc1.size() > 1) mine = permuted("sort_chunks", mine, mine.size(0));
    if (s.expert_tensor_size() > 1) mine = permuted("reduce_scatter", mine, received);
    out = permuted("unpermute", sent(mine, rows), tokens);
  }
  out = view(out, x.sizes());
  if (shared_experts_) out = add(out, (*shared_experts_)(x).value);
  return out;
}

}  // namespace plimsoll::megatron
