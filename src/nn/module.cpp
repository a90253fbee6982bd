#include "nn/module.h"

#include <unordered_set>

namespace plimsoll {

namespace {
constexpr size_t kMostModules = 1'000'000;  // the largest published models have a few thousand
}  // namespace

Module::Module(Module& parent, std::string_view name) : build_(parent.build_), scope_(parent.tape().trace.add_scope(parent.scope_, name)) {
  if (tape().trace.scopes.size() > kMostModules)
    throw Error("[model] more than a million modules", "the number of layers in the configuration is far too large");
  parent.children_.push_back(this);
}

Tensor Module::parameter(std::string_view name, const Dims& sizes) {
  ScopeGuard scope(tape(), scope_);
  Parameter& p = build_.parameters.emplace_back();
  p.name = name;
  own_.push_back(&p);
  tape().op = "parameter";
  return make_parameter(tape(), p, sizes, build_.dtype);
}

Tensor Module::buffer(std::string_view, const Dims& sizes, DType dtype) {
  ScopeGuard scope(tape(), scope_);
  tape().op = "buffer";
  tape().category = Category::buffer;
  Tensor b = empty(tape(), sizes, dtype);
  tape().category.reset();
  build_.buffers.push_back(b);
  return b;
}

void Module::rebind_buffer(Tensor& slot, const Tensor& value) {
  for (Tensor& b : build_.buffers)
    if (&b.body() == &slot.body()) b = value;
  slot = value;
}

void Module::collect(std::vector<Parameter*>& out) const {
  out.insert(out.end(), own_.begin(), own_.end());
  for (const Module* child : children_) child->collect(out);
}

std::vector<Parameter*> Module::parameters() const {
  std::vector<Parameter*> all, unique;
  collect(all);
  std::unordered_set<Parameter*> seen;
  for (Parameter* p : all)
    if (seen.insert(p).second) unique.push_back(p);
  return unique;
}

}  // namespace plimsoll
