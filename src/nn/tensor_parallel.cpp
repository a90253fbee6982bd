#include "nn/tensor_parallel.h"

#include <fmt/format.h>

#include "ops/dtensor.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int kTokens = 1;  // dimension of (B, T, C)

struct Planned {
  const char* name;
  ParallelStyle style;
};

constexpr Planned kPlan[] = {
    {"q_proj", ParallelStyle::colwise},
    {"k_proj", ParallelStyle::colwise},
    {"v_proj", ParallelStyle::colwise},
    {"gate_proj", ParallelStyle::colwise},
    {"up_proj", ParallelStyle::colwise},
    {"o_proj", ParallelStyle::rowwise},
    {"down_proj", ParallelStyle::rowwise},
    {"lm_head", ParallelStyle::head},
    {"embed_tokens", ParallelStyle::rowwise},
    {"input_layernorm", ParallelStyle::sequence},
    {"post_attention_layernorm", ParallelStyle::sequence},
    {"norm", ParallelStyle::sequence},
    // torchtitan's names
    {"wq", ParallelStyle::colwise},
    {"wk", ParallelStyle::colwise},
    {"wv", ParallelStyle::colwise},
    {"w1", ParallelStyle::colwise},
    {"w3", ParallelStyle::colwise},
    {"wo", ParallelStyle::rowwise},
    {"w2", ParallelStyle::rowwise},
    {"output", ParallelStyle::head},
    {"tok_embeddings", ParallelStyle::rowwise},
    {"attention_norm", ParallelStyle::sequence},
    {"ffn_norm", ParallelStyle::sequence},
};

}  // namespace

ParallelStyle TensorParallel::style_of(const Module& module) const {
  const std::string path = module.path();
  const std::string name = path.substr(path.rfind('.') + 1);
  for (const Planned& p : kPlan)
    if (name == p.name) return p.style == ParallelStyle::sequence && !settings.sequence ? ParallelStyle::none : p.style;
  return ParallelStyle::none;
}

int64_t TensorParallel::share(const std::string& what, int64_t n) const {
  const int64_t world = settings.world;
  if (n % world == 0) return n / world;
  std::vector<std::string> near;
  for (int64_t w = std::min(world, n); w >= 1 && near.size() < 1; --w)
    if (n % w == 0) near.push_back(std::to_string(w));
  for (int64_t w = world + 1; w <= n && near.size() < 2; ++w)
    if (n % w == 0) near.push_back(std::to_string(w));
  throw Error(fmt::format("[tensor_parallel] world {} does not divide {} {}", world, what, n),
              "the nearest that do: " + join(near, " and "));
}

Tensor enter_parallel(const Build& build, const Tensor& x) {
  const TensorParallel* p = build.tensor_parallel;
  return p && p->settings.sequence ? all_gather(x, kTokens, p->settings.world) : x;
}

// With sequence parallelism attention and feed-forward have gathered already, as a DTensor, for all their layers.
Tensor enter_layer(const TensorParallel& p, ParallelStyle style, const Tensor& x) {
  if (style == ParallelStyle::head && p.settings.sequence) return all_gather(x, kTokens, p.settings.world);
  const bool replica = style == ParallelStyle::head || style == ParallelStyle::colwise;
  return replica && !p.settings.sequence ? all_reduce_gradient(x) : x;
}

Tensor leave_layer(const TensorParallel& p, ParallelStyle style, const Tensor& y) {
  if (style == ParallelStyle::rowwise) return p.settings.sequence ? reduce_scatter(y, kTokens, p.settings.world) : all_reduce(y);
  if (style == ParallelStyle::head && !p.settings.loss_parallel) return all_gather_output(y, -1, p.settings.world);
  return y;
}

}  // namespace plimsoll
