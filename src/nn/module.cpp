#include "nn/module.h"

#include <unordered_set>

namespace plimsoll {

namespace {
constexpr size_t kMostModules = 1'000'000;  // the largest published models have a few thousand
}  // namespace

Module::Module(Module& parent, std::string_view name)
    : build_(parent.build_), scope_(parent.tape().trace.add_scope(parent.scope_, name)), parameter_scope_(scope_) {
  if (tape().trace.scopes.size() > kMostModules)
    throw Error("[model] more than a million modules", "the number of layers in the configuration is far too large");
  parent.children_.push_back(this);
}

Tensor Module::parameter(std::string_view name, const Dims& sizes, DType dtype, bool trained) {
  ScopeGuard scope(tape(), parameter_scope_);
  Parameter& p = build_.parameters.emplace_back();
  p.name = name;
  own_.push_back(&p);
  tape().op = "parameter";
  if (!build_.on_meta) return make_parameter(tape(), p, sizes, dtype, trained);
  p.value = make_tensor(tape().allocate(0), sizes, contiguous_strides(sizes), dtype);
  p.value.body().parameter = &p;
  p.value.body().requires_grad = trained;
  return p.value;
}

Tensor Module::parameter(std::string_view name, const Dims& sizes) {
  if (!build_.tuning.changes_anything()) return parameter(name, sizes, build_.dtype, true);
  const std::string module = path();
  const bool trained = build_.tuning.trains(module, name);
  const std::string root = build_.tuning.copied_root(module);
  if (root.empty()) return parameter(name, sizes, build_.dtype, trained);
  if (parameter_scope_ == scope_) keep_parameters_in("original_module");
  return trained_copy(name, *parameter(name, sizes, build_.dtype, false).parameter(), root);
}

// ModulesToSaveWrapper and LNTuningLayer of PEFT 0.20 (utils/other.py, tuners/ln_tuning/layer.py): a deep copy is trained.
Tensor Module::trained_copy(std::string_view name, Parameter& original, const std::string& root) {
  const ScopeId before = parameter_scope_;
  keep_parameters_in(build_.tuning.copy_name());
  Tensor copy = parameter(name, original.value.sizes(), original.value.dtype(), true);
  copy.parameter()->copied_from = &original;
  copy.parameter()->copied_under = root;
  parameter_scope_ = before;
  return copy;
}

// What was copied to be trained stays tied to the original, and a copy to the copy when both were made at once.
Tensor Module::tied(std::string_view name, const Tensor& value) {
  Parameter* p = value.parameter();
  if (!build_.tuning.changes_anything()) {
    own_.push_back(p);
    return value;
  }
  const std::string module = path(), root = build_.tuning.copied_root(module);
  const bool copied_together = p->copied_from && p->copied_under == root;
  if (p->copied_from && !copied_together) p = p->copied_from;
  own_.push_back(p);
  if (copied_together) return p->value;
  TensorBody& body = p->value.body();
  body.requires_grad = build_.tuning.trains_tied(module, name, body.requires_grad);
  return root.empty() ? p->value : trained_copy(name, *p, root);
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

void require_input_grad(Build& build, Tensor& embeddings) {
  if (build.input_require_grads && !embeddings.requires_grad()) make_leaf(embeddings);
}

}  // namespace plimsoll
