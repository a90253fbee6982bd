#include "optim/arguments.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "util/text.h"

namespace plimsoll {

namespace {
bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
}  // namespace

Arguments::Arguments(const char* optimizer, const Config& args, std::initializer_list<const char*> known, bool maximizes)
    : optimizer_(optimizer), args_(args) {
  std::vector<std::string> names{"lr"};
  if (maximizes) names.emplace_back("maximize");
  names.insert(names.end(), known.begin(), known.end());
  for (const auto& item : args.values().items())
    if (!holds(names, item.key())) refuse_key(item.key(), names);
  if (flag("differentiable")) refuse("differentiable true is not simulated", "leave differentiable out");
}

// A form that the optimizer does not have is named with those it has.
void Arguments::refuse_key(const std::string& key, const std::vector<std::string>& known) const {
  if (key == "foreach" || key == "fused") {
    if (holds(known, "foreach"))
      refuse("it has no " + key + " form",
             "its forms are foreach and the loop (foreach: false); AdamW, Adam, SGD and Adagrad are fused, too");
    refuse("it has one form, and no " + key + " one", "leave " + key + " out");
  }
  const std::string hint = did_you_mean(key, known);
  throw Error(std::string("[optimizer] ") + optimizer_ + " has no argument '" + key + "'",
              hint.starts_with("known") ? hint : hint + " It takes " + join(known, ", "));
}

void Arguments::refuse(const std::string& message, const std::string& hint) const {
  throw Error(std::string("[optimizer] ") + optimizer_ + ": " + message, hint);
}

std::pair<double, double> Arguments::pair(const char* key, std::pair<double, double> fallback) const {
  const nlohmann::json* v = args_.find({key});
  if (!v) return fallback;
  if (!v->is_array() || v->size() != 2 || !(*v)[0].is_number() || !(*v)[1].is_number())
    refuse(std::string(key) + " is " + v->dump().substr(0, 80) + ", expected two numbers", std::string("write ") + key + " as [a, b]");
  return {(*v)[0].get<double>(), (*v)[1].get<double>()};
}

// As in PyTorch, a `fused` that is given, even as false, leaves no default for `foreach`: it is then the loop.
Form Arguments::form(Form fallback) const {
  const bool fused = flag("fused"), foreach = flag("foreach");
  if (fused && foreach) refuse("fused and foreach cannot both be true", "leave one of them out");
  if (fused) return Form::fused;
  if (foreach) return Form::foreach;
  return args_.find({"foreach"}) || args_.find({"fused"}) ? Form::loop : fallback;
}

}  // namespace plimsoll
