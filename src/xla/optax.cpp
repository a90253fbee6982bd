#include "xla/optax.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "util/text.h"

namespace plimsoll {

namespace {

// Arguments that change no size. PyTorch's implementations (foreach, fused, capturable) are not among them.
constexpr const char* kHarmless[] = {"lr",  "learning_rate", "weight_decay", "betas",          "b1",    "b2",
                                     "eps", "rho",           "alpha",        "momentum_decay", "decay", "nesterov"};

void check_arguments(const OptimizerSpec& spec, std::initializer_list<const char*> known) {
  for (const auto& item : spec.args.values().items()) {
    auto is = [&](const char* name) { return item.key() == name; };
    if (std::any_of(known.begin(), known.end(), is) || std::any_of(std::begin(kHarmless), std::end(kHarmless), is)) continue;
    throw Error("[optimizer] " + item.key() + " is no argument of " + spec.name + " in optax", "leave it out with framework jax");
  }
}

using States = std::vector<OptaxState>;

// optax.adam, adamw, nadam, radam, adamax; mu_dtype is the type of the first moment.
States adam(const OptimizerSpec& spec, const Dims& p, DType dtype) {
  check_arguments(spec, {"amsgrad", "mu_dtype"});
  const std::string mu = spec.args.text({"mu_dtype"}, "");
  if (!mu.empty() && mu != "bfloat16" && mu != "float32")
    throw Error("[optimizer] mu_dtype '" + mu + "' is not known", "bfloat16 or float32");
  const DType mu_type = mu.empty() ? dtype : mu == "bfloat16" ? DType::bfloat16 : DType::float32;
  States out{{"mu", p, mu_type}, {"nu", p, dtype}};
  if (spec.args.flag({"amsgrad"}, false)) out.push_back({"nu_max", p, dtype});
  return out;
}

States sgd(const OptimizerSpec& spec, const Dims& p, DType dtype) {
  check_arguments(spec, {"momentum"});
  return spec.args.number({"momentum"}, 0) != 0 ? States{{"trace", p, dtype}} : States{};
}

// optax.adafactor: the two largest dimensions are factored when the smaller of them has at least 128 rows; what is not used is
// a placeholder of one element.
States adafactor(const OptimizerSpec& spec, const Dims& p, DType dtype) {
  check_arguments(spec, {"min_dim_size_to_factor", "momentum"});
  const int64_t least = spec.args.size({"min_dim_size_to_factor"}, 128);
  int first = -1, second = -1;  // the largest and the next
  for (int i = 0; i < p.size(); ++i) {
    if (first < 0 || p[i] >= p[first]) {
      second = first;
      first = i;
    } else if (second < 0 || p[i] >= p[second]) {
      second = i;
    }
  }
  const Dims one{1};
  States out;
  if (second >= 0 && p[second] >= least) {
    Dims row = p, column = p;
    row.erase(first);
    column.erase(second);
    out = {{"v_row", row, dtype}, {"v_col", column, dtype}, {"v", one, dtype}};
  } else {
    out = {{"v_row", one, dtype}, {"v_col", one, dtype}, {"v", p, dtype}};
  }
  if (spec.args.number({"momentum"}, 0) != 0) out.push_back({"momentum", p, dtype});
  return out;
}

States rmsprop(const OptimizerSpec& spec, const Dims& p, DType dtype) {
  check_arguments(spec, {"momentum", "centered"});
  States out{{"nu", p, dtype}};
  if (spec.args.flag({"centered"}, false)) out.push_back({"mu", p, dtype});
  if (spec.args.number({"momentum"}, 0) != 0) out.push_back({"trace", p, dtype});
  return out;
}

States plain(const OptimizerSpec& spec, States states) {
  check_arguments(spec, {});
  return states;
}

}  // namespace

bool updates_parameters(const OptimizerSpec& spec) { return lower(spec.name) != "none"; }

std::vector<OptaxState> optax_states(const OptimizerSpec& spec, const Dims& p, DType dtype) {
  const std::string name = lower(spec.name);
  if (name == "adam" || name == "adamw" || name == "nadam" || name == "radam" || name == "adamax") return adam(spec, p, dtype);
  if (name == "sgd") return sgd(spec, p, dtype);
  if (name == "adafactor") return adafactor(spec, p, dtype);
  if (name == "rmsprop") return rmsprop(spec, p, dtype);
  if (name == "adagrad") return plain(spec, {{"sum_of_squares", p, dtype}});
  if (name == "adadelta") return plain(spec, {{"e_g", p, dtype}, {"e_x", p, dtype}});
  if (name == "lion") return plain(spec, {{"mu", p, dtype}});
  if (name == "rprop") return plain(spec, {{"step_sizes", p, dtype}, {"prev_updates", p, dtype}});
  if (!updates_parameters(spec)) return {};
  throw Error("[optimizer] framework jax has no " + spec.name,
              "optax has AdamW, Adam, SGD, Adafactor, Lion, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop; or none");
}

}  // namespace plimsoll
