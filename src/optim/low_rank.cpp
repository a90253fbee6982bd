#include "optim/low_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "ops/matmul.h"
#include "ops/reshape.h"
#include "optim/foreach.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kLongestPattern = 1000;  // std::regex recurses with the length of what it reads

// Nothing for a text that is no pattern: in a list, Python would complain only if no name held it.
std::optional<std::regex> pattern_of(const std::string& text) {
  try {
    if (text.size() <= kLongestPattern) return std::regex(text);
  } catch (const std::regex_error&) {
  }
  return std::nullopt;
}

}  // namespace

LowRankTargets::LowRankTargets(const Arguments& args) {
  const nlohmann::json* value = args.config().find({"target_modules"});
  if (value && value->is_array()) {
    for (const nlohmann::json& part : *value) {
      if (!part.is_string()) args.refuse("target_modules has " + part.dump().substr(0, 80), "a list of names, e.g. [attn, mlp]");
      parts_.push_back(part.get<std::string>());
    }
    if (parts_.empty()) args.refuse("target_modules is an empty list", "e.g. [attn, mlp], or all-linear");
    return;
  }
  pattern_ = args.text("target_modules");
  if (pattern_ == "all_linear") pattern_ = "all-linear";
  if (pattern_ != "all-linear" && !pattern_of(pattern_))
    args.refuse("target_modules '" + printable(pattern_, 80) + "' is not a regular expression of at most 1000 characters",
                "e.g. .*(attn|mlp).*, a list of names, or all-linear");
}

void LowRankTargets::choose(const std::vector<LinearWeight>& layers) {
  std::vector<std::regex> whole;
  for (const std::string& text : pattern_.empty() ? parts_ : std::vector<std::string>{pattern_})
    if (std::optional<std::regex> pattern = pattern_of(text)) whole.push_back(std::move(*pattern));
  const auto wanted = [&](const std::string& module) {
    return pattern_ == "all-linear" ||
           std::any_of(parts_.begin(), parts_.end(), [&](const std::string& part) { return module.find(part) != std::string::npos; }) ||
           std::any_of(whole.begin(), whole.end(), [&](const std::regex& r) { return std::regex_match(module, r); });
  };
  for (const LinearWeight& layer : layers)
    if (wanted(layer.module)) targets_.insert(layer.weight);
  if (!targets_.empty()) return;
  throw Error(fmt::format("[optimizer] target_modules {}: none of the model's {} linear layers has such a name",
                          pattern_.empty() ? join(parts_, ", ") : pattern_, layers.size()),
              layers.empty() ? "take AdamW: no nn.Linear has a whole weight of its own here" : "e.g. " + layers.front().module);
}

void LowRankTargets::check_chosen() const {
  if (targets_.empty())
    throw Error("[optimizer] linear layers are not known to an optimizer of low rank that is sharded or on the host",
                "take AdamW, or leave zero1 and offload_optimizer out");
}

std::vector<size_t> LowRankTargets::in_order(const std::vector<Parameter*>& all) const {
  std::vector<size_t> order = with_gradients(all);
  std::stable_partition(order.begin(), order.end(), [&](size_t i) { return !holds(all[i]); });
  return order;
}

ProjectionSettings::ProjectionSettings(const Arguments& args) : rank(args.size("rank")) {
  const std::string name = args.text("proj_type");
  if (name == "std")
    kind = ProjectionKind::std;
  else if (name == "reverse_std")
    kind = ProjectionKind::reverse_std;
  else if (name == "right")
    kind = ProjectionKind::right;
  else if (name == "left")
    kind = ProjectionKind::left;
  else
    args.refuse("proj_type '" + printable(name, 40) + "' is not simulated", "one of std, reverse_std, right, left");
}

bool ProjectionSettings::is_right(const Tensor& matrix) const {
  const bool tall = matrix.size(0) >= matrix.size(1);
  switch (kind) {
    case ProjectionKind::std: return tall;
    case ProjectionKind::reverse_std: return !tall;
    case ProjectionKind::right: return true;
    case ProjectionKind::left: break;
  }
  return false;
}

Tensor singular_vectors(const Tensor& matrix, const ProjectionSettings& settings) {
  Tape& tape = matrix.tape();
  const int64_t m = matrix.size(0), n = matrix.size(1), k = std::min(m, n), rank = std::min(settings.rank, k);
  const bool half = is_half(matrix.dtype());
  const Tensor wide = half ? temporary("_to_copy", matrix.sizes(), DType::float32, tape) : matrix;
  const Tensor u = temporary("_linalg_svd", {m, k}, DType::float32, tape);
  const Tensor s = temporary("_linalg_svd", {k}, DType::float32, tape);
  const Tensor vh = temporary("_linalg_svd", {k, n}, DType::float32, tape);
  const Dims sizes = settings.is_right(matrix) ? Dims{rank, n} : Dims{m, rank};
  if (half) return temporary("_to_copy", sizes, matrix.dtype(), tape);
  return settings.is_right(matrix) ? alias(vh, sizes, {n, 1}) : alias(u, sizes, {1, m});
}

Tensor random_projection(const Tensor& matrix, const ProjectionSettings& settings) {
  Tape& tape = matrix.tape();
  const bool half = is_half(matrix.dtype());
  const Tensor wide = half ? temporary("_to_copy", matrix.sizes(), DType::float32, tape) : matrix;
  const Dims sizes = settings.is_right(matrix) ? Dims{settings.rank, matrix.size(1)} : Dims{matrix.size(0), settings.rank};
  const Tensor numbers = chain(temporary("randn", sizes, DType::float32, tape), {"div"});
  return half ? temporary("_to_copy", sizes, matrix.dtype(), tape) : numbers;
}

Tensor projected(const Tensor& matrix, const Tensor& projection, const ProjectionSettings& settings) {
  return settings.is_right(matrix) ? matmul(matrix, t(projection)) : matmul(t(projection), matrix);
}

Tensor projected_back(const Tensor& low, const Tensor& projection, bool right) {
  const Tensor full = right ? matmul(low, projection) : matmul(projection, low);
  return temporary("mul", full);
}

}  // namespace plimsoll
