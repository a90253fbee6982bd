#include "optim/arguments.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "util/text.h"

namespace plimsoll {

namespace {

const Argument* find_argument(const OptimizerEntry& optimizer, std::string_view name) {
  const auto it = std::find_if(optimizer.arguments.begin(), optimizer.arguments.end(), [&](const Argument& a) { return a.name == name; });
  return it == optimizer.arguments.end() ? nullptr : &*it;
}

template <class T>
T value_or(const Argument::Value& value, T otherwise) {
  const T* held = std::get_if<T>(&value);
  return held ? *held : otherwise;
}

}  // namespace

bool OptimizerEntry::takes(const char* argument) const { return find_argument(*this, argument) != nullptr; }

Arguments::Arguments(const OptimizerEntry& optimizer, const Config& args) : optimizer_(optimizer), args_(args) {
  for (const auto& item : args.values().items())
    if (item.key() != "lr" && !find_argument(optimizer, item.key())) refuse_key(item.key());
  if (flag("differentiable")) refuse("differentiable true is not simulated", "leave differentiable out");
}

// A form that the optimizer does not have is named with those it has.
void Arguments::refuse_key(const std::string& key) const {
  if (key == "foreach" || key == "fused") {
    if (optimizer_.takes("foreach"))
      refuse("it has no " + key + " form",
             "its forms are foreach and the loop (foreach: false); AdamW, Adam, SGD and Adagrad are fused, too");
    refuse("it has one form, and no " + key + " one", "leave " + key + " out");
  }
  std::vector<std::string> known{"lr"};
  for (const Argument& a : optimizer_.arguments) known.emplace_back(a.name);
  const std::string hint = did_you_mean(key, known);
  throw Error(std::string("[optimizer] ") + optimizer_.name + " has no argument '" + key + "'",
              hint.starts_with("known") ? hint : hint + " It takes " + join(known, ", "));
}

void Arguments::refuse(const std::string& message, const std::string& hint) const {
  throw Error(std::string("[optimizer] ") + optimizer_.name + ": " + message, hint);
}

const Argument::Value& Arguments::fallback(const char* key) const {
  static const Argument::Value kNone;
  const Argument* argument = find_argument(optimizer_, key);
  return argument ? argument->fallback : kNone;
}

bool Arguments::flag(const char* key) const { return args_.flag({key}, value_or(fallback(key), false)); }
double Arguments::number(const char* key) const { return args_.number({key}, value_or(fallback(key), 0.0)); }
int64_t Arguments::integer(const char* key) const { return args_.integer({key}, std::llround(value_or(fallback(key), 0.0))); }
int64_t Arguments::size(const char* key) const { return args_.size({key}, std::llround(value_or(fallback(key), 0.0))); }
std::string Arguments::text(const char* key) const { return args_.text({key}, value_or<const char*>(fallback(key), "")); }

std::pair<double, double> Arguments::pair(const char* key) const {
  const nlohmann::json* v = args_.find({key});
  if (!v) {
    const auto* values = std::get_if<std::vector<double>>(&fallback(key));
    return values && values->size() > 1 ? std::pair{(*values)[0], (*values)[1]} : std::pair{0.0, 0.0};
  }
  if (!v->is_array() || v->size() != 2 || !(*v)[0].is_number() || !(*v)[1].is_number())
    refuse(std::string(key) + " is " + v->dump().substr(0, 80) + ", expected two numbers", std::string("write ") + key + " as [a, b]");
  return {(*v)[0].get<double>(), (*v)[1].get<double>()};
}

// As in PyTorch, a `fused` that is given, even as false, leaves no default for `foreach`: it is then the loop.
Form Arguments::form() const {
  const bool fused = flag("fused"), foreach = flag("foreach");
  if (fused && foreach) refuse("fused and foreach cannot both be true", "leave one of them out");
  if (fused) return Form::fused;
  if (foreach) return Form::foreach;
  return given("foreach") || given("fused") ? Form::loop : optimizer_.forms.front();
}

}  // namespace plimsoll
