#include "step/zero3_parameters.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/reshape.h"
#include "optim/foreach.h"
#include "step/sharded_model.h"

namespace plimsoll {

namespace {

constexpr int64_t kNever = -10'000'000'000;  // int(-1e10) of the coordinator

}  // namespace

// ---- parts ------------------------------------------------------------------------------------------------------------------
PartitionedParameters::PartitionedParameters(const DeepSpeedSettings& settings, Model& model) : settings_(settings), tape_(model.tape()) {
  collect(model, nullptr);
  root_ = &order_of_layers_.front();
  int64_t persistent = 0;
  for (Partitioned& p : parameters_) {  // mark_persistent_parameters
    if (p.elements > settings.model_persistence_threshold - persistent || p.elements > settings.persistence_threshold) continue;
    p.persists = true;
    persistent += p.elements;
    persistent_.push_back(&p);
  }
  make_parts();
}

void PartitionedParameters::collect(const Module& module, Layer* parent) {
  if (!module.own_parameters().empty() && module.has_children()) {  // a layer of PEFT's, around its base and its adapter
    Layer& adapted = functions_[&module];
    adapted.parent = parent;
    parent = &adapted;
  }
  Layer& layer = order_of_layers_.emplace_back();
  layer.module = &module;
  layer.parent = parent;
  layer.is_list = is_list(module);  // a ModuleList, which is not called itself
  layers_[&module] = &layer;
  for (Parameter* p : module.own_parameters()) {
    const auto known = of_.find(p);
    layer.parameters.push_back(known == of_.end() ? &add(*p, module.scope()) : known->second);
  }
  const bool adapted = functions_.contains(&module);
  for (const Module* child : module.children()) collect(*child, adapted ? parent : &layer);
}

PartitionedParameters::Partitioned& PartitionedParameters::add(Parameter& whole, ScopeId scope) {
  if (!is_floating(whole.value.dtype()))
    throw Error(fmt::format("[zero] {}.{} is of integers, which stage 3 is not simulated with", tape_.trace.scope_path(scope), whole.name),
                "leave quantization out, or take stage 2");
  Partitioned& p = parameters_.emplace_back();
  p.whole = &whole;
  p.scope = scope;
  p.id = static_cast<int64_t>(parameters_.size());
  p.elements = whole.value.numel();
  p.partition = ceil_div(p.elements, settings_.world);
  p.dtype = whole.value.dtype();
  of_[&whole] = &p;
  return p;
}

// Parts of trained parameters are moved into one tensor (defragment); those of frozen ones stay alone.
void PartitionedParameters::make_parts() {
  if (on_host()) return;
  int64_t trained = 0;
  DType dtype = DType::float32;
  for (Partitioned& p : parameters_) {
    if (p.whole->value.requires_grad()) {
      trained = checked_add(trained, p.partition);
      dtype = p.dtype;
      continue;
    }
    const Labelled label(tape_, Category::parameter, p.scope);
    p.part = temporary("parameter", {p.partition}, p.dtype, tape_);
  }
  const Labelled label(tape_, Category::parameter, 0);
  flat_ = temporary("parameter", {trained}, dtype, tape_);
  if (settings_.world > 1) return;
  for (Partitioned& p : parameters_) look_at(p.whole->value, (p.part ? p.part : flat_).body().storage, p.whole->value.sizes(), p.dtype);
}

int64_t PartitionedParameters::filled(const Parameter& p) const {
  const Partitioned& s = *of_.at(&p);
  return std::clamp<int64_t>(s.elements - settings_.rank * s.partition, 0, s.partition);
}

Bytes PartitionedParameters::bytes_on_host() const {
  Bytes bytes;
  for (const Partitioned& p : parameters_)
    if (on_host()) bytes += Bytes{checked_mul(p.partition, size_of(p.dtype))};
  return bytes;
}

Tensor PartitionedParameters::from_gather_pool(Tensor t) const {
  return settings_.overlap_comm ? from_pool(Stream::all_gather, std::move(t)) : t;
}

// ---- the trace --------------------------------------------------------------------------------------------------------------
// reset_step: the first micro-step is recorded, the others follow it.
void PartitionedParameters::begin_forward() {
  clean_in_flight();
  if (trace_ == Trace::recording)
    complete_trace();
  else if (trace_ == Trace::invalid)
    trace_ = Trace::recording;
  queue_.assign(use_order_.begin(), use_order_.end());
  for (Partitioned& p : parameters_) p.fetched_for = kNever;
  step_ = available_ = 0;
  entered_ = {root_};
  left_ = {};
  call(*root_, true);
}

void PartitionedParameters::begin_backward() {
  left_ = {root_};
  call(*root_, false);
}

// The modules that `layer` is in: those of them that the last call was not in are called first. A block that is computed again is called
// by itself.
void PartitionedParameters::enter(Layer& layer, bool forward) {
  std::vector<Layer*> around;
  for (Layer* l = layer.parent; l; l = l->parent) around.insert(around.begin(), l);
  std::vector<Layer*>& before = forward ? entered_ : left_;
  const bool again = forward && tape_.phase() == Phase::backward;
  const auto block = std::find_if(around.rbegin(), around.rend(), [](const Layer* l) { return l->parent && l->parent->is_list; }).base();
  bool known = true;
  for (auto l = around.begin(); l != around.end(); ++l) {
    const auto i = static_cast<size_t>(l - around.begin());
    known = known && i < before.size() && before[i] == *l;
    const bool called = !(*l)->is_list && !(again && l + 1 < block);
    if (!known && called) call(**l, forward);
  }
  before = around;
  before.push_back(&layer);
}

void PartitionedParameters::call(Layer& layer, bool forward) {
  record_or_check(layer);
  fetch(layer, forward);
}

void PartitionedParameters::complete_trace() {
  use_order_.clear();
  int64_t step = 0;
  for (const Layer* layer : module_order_) {
    for (Partitioned* p : layer->parameters) use_order_.push_back({p, step});
    ++step;
  }
  trace_ = Trace::complete;
}

void PartitionedParameters::record_or_check(Layer& layer) {
  const bool follows = step_ < static_cast<int64_t>(module_order_.size()) && module_order_[static_cast<size_t>(step_)] == &layer;
  if (trace_ == Trace::complete && !follows) invalidate_trace();
  if (trace_ == Trace::recording) module_order_.push_back(&layer);
}

void PartitionedParameters::invalidate_trace() {
  trace_ = Trace::invalid;
  module_order_.clear();
  use_order_.clear();
  queue_.clear();
  for (Partitioned& p : parameters_) p.fetched_for = kNever;
  clean_in_flight();
}

void PartitionedParameters::clean_in_flight() {
  const std::vector<Partitioned*> all = std::exchange(in_flight_, {});
  for (Partitioned* p : all) {
    materialise(*p->handle);
    release(*p);
  }
  for (Partitioned* p : all) p->handle.reset();
}

// ---- gathering --------------------------------------------------------------------------------------------------------------
void PartitionedParameters::fetch(Layer& layer, bool forward) {
  layer.called = true;
  if (!forward && std::find(active_backward_.begin(), active_backward_.end(), &layer) == active_backward_.end())
    active_backward_.push_back(&layer);
  all_gather(layer.parameters);
  const bool recomputes = forward && tape_.phase() == Phase::backward;
  for (Partitioned* p : layer.parameters) {
    p->active.insert(&layer);
    if (recomputes && !active_backward_.empty() && !p->whole->value.requires_grad()) {  // update_recompute_parameters
      active_backward_.back()->recomputed.insert(p);
      p->active.insert(active_backward_.back());
    }
    wait(*p);
  }
  if (trace_ == Trace::complete) prefetch(layer);
  ++step_;
}

// What this layer needs leaves the queue; what comes next is gathered, up to a bucket.
void PartitionedParameters::prefetch(const Layer& layer) {
  std::set<const Partitioned*> wanted, found;
  for (const Partitioned* p : layer.parameters)
    if (p->fetched_for < step_) wanted.insert(p);
  while (!queue_.empty() && found.size() < wanted.size()) {
    queue_.front().parameter->fetched_for = queue_.front().step;
    found.insert(queue_.front().parameter);
    queue_.pop_front();
  }
  const int64_t most = std::min<int64_t>(settings_.max_live_parameters - available_, settings_.prefetch_bucket);
  std::vector<Partitioned*> next;
  for (int64_t elements = 0; !queue_.empty() && elements < most;) {
    const Use use = queue_.front();
    queue_.pop_front();
    Partitioned& p = *use.parameter;
    p.fetched_for = std::max(p.fetched_for, use.step);
    if (p.status != Status::partitioned || std::find(next.begin(), next.end(), &p) != next.end()) continue;
    next.push_back(&p);
    elements += p.elements;
  }
  all_gather(std::move(next));
}

// __all_gather_params: one parameter into memory of its own, several into one flat tensor for each type.
void PartitionedParameters::all_gather(std::vector<Partitioned*> parameters) {
  std::erase_if(parameters, [](const Partitioned* p) { return p->status != Status::partitioned; });
  if (parameters.empty()) return;
  std::sort(parameters.begin(), parameters.end(), [](const Partitioned* a, const Partitioned* b) { return a->id < b->id; });
  const auto handle = std::make_shared<Handle>();
  handle->parameters = parameters;
  for (Partitioned* p : parameters) {
    available_ += p->elements;
    p->status = Status::in_flight;
    p->handle = handle;
    in_flight_.push_back(p);
  }
  if (settings_.world == 1 || parameters.size() == 1)
    for (Partitioned* p : parameters) gather_in_place(*p, true);
  else
    gather_together(*handle);
}

// param.data = memory of its own
void PartitionedParameters::make_whole(Partitioned& p, int64_t elements, bool own_pool) {
  const Labelled label(tape_, Category::unsharded_parameter, p.scope);
  const Tensor whole = temporary("unshard", {elements}, p.dtype, tape_);
  if (own_pool) from_gather_pool(whole);
  look_at(p.whole->value, whole.body().storage, p.whole->value.sizes(), p.dtype);
}

// _all_gather_sequential: with its padding. One process looks at what it has.
void PartitionedParameters::gather_in_place(Partitioned& p, bool own_pool) {
  if (settings_.world == 1 && !on_host()) return;
  make_whole(p, checked_mul(p.partition, settings_.world), own_pool);
  if (!on_host() || settings_.world == 1) return;
  const Labelled label(tape_, Category::unsharded_parameter, p.scope);
  const Tensor copy = temporary("unshard", {p.partition}, p.dtype, tape_);
  if (own_pool) from_gather_pool(copy);
}

// _all_gather_coalesced
void PartitionedParameters::gather_together(Handle& handle) {
  const Labelled label(tape_, Category::gather_buffer, handle.parameters.front()->scope);
  for (const DType dtype : {DType::bfloat16, DType::float16, DType::float32}) {
    int64_t elements = 0;
    for (const Partitioned* p : handle.parameters)
      if (p->dtype == dtype) elements = checked_add(elements, p->partition);
    if (elements == 0) continue;
    handle.flats.push_back(from_gather_pool(temporary("empty", {checked_mul(elements, settings_.world)}, dtype, tape_)));
    Tensors copies;  // of what is on the host
    for (const Partitioned* p : handle.parameters)
      if (on_host() && p->dtype == dtype) copies.push_back(from_gather_pool(temporary("_to_copy", {p->partition}, dtype, tape_)));
  }
}

void PartitionedParameters::wait(Partitioned& p) {
  if (!p.handle) return;
  const std::shared_ptr<Handle> handle = std::move(p.handle);
  std::erase(in_flight_, &p);
  materialise(*handle);
}

// AllGatherCoalescedHandle.wait: each parameter is copied out of the flat tensor, without padding.
void PartitionedParameters::materialise(Handle& handle) {
  if (std::exchange(handle.complete, true)) return;
  for (Partitioned* p : handle.parameters) {
    p->status = Status::available;
    if (!handle.flats.empty()) make_whole(*p, p->elements, true);
  }
}

// _allgather_params_coalesced, on the stream of the update.
void PartitionedParameters::gather_persistent() {
  std::vector<Partitioned*> parameters;
  for (Partitioned* p : persistent_)
    if (p->status == Status::partitioned) parameters.push_back(p);
  Tensors copies;  // of what is on the host
  if (on_host() && parameters.size() > 1) {
    const Labelled label(tape_, Category::unsharded_parameter, 0);
    for (const Partitioned* p : parameters) copies.push_back(temporary("unshard", {p->partition}, p->dtype, tape_));
  }
  for (Partitioned* p : parameters) {
    if (copies.empty())
      gather_in_place(*p, false);
    else
      make_whole(*p, checked_mul(p->partition, settings_.world), false);
    p->status = Status::available;
  }
}

// ---- letting go -------------------------------------------------------------------------------------------------------------
void PartitionedParameters::release(Partitioned& p) {
  if (p.status != Status::available || !p.active.empty()) return;
  if (settings_.world > 1 || on_host()) look_at(p.whole->value, tape_.allocate(0), p.whole->value.sizes(), p.dtype);
  p.status = Status::partitioned;
  available_ -= p.elements;
}

void PartitionedParameters::release(Layer& layer, bool forward) {
  std::set<const Partitioned*> which;
  if (trace_ == Trace::complete)
    which = releasable(layer);
  else
    which.insert(layer.parameters.begin(), layer.parameters.end());
  std::vector<Partitioned*> parameters = layer.parameters;
  if (!forward) {
    for (Partitioned* p : std::exchange(layer.recomputed, {})) {
      if (!p->persists) which.insert(p);
      parameters.push_back(p);
    }
    std::erase(active_backward_, &layer);
  }
  for (Partitioned* p : parameters) {
    p->active.erase(&layer);
    if (which.contains(p)) release(*p);
  }
}

// __params_to_release: neither those that persist, nor those whose next use was skipped by a prefetch or is near.
std::set<const PartitionedParameters::Partitioned*> PartitionedParameters::releasable(const Layer& layer) const {
  std::set<const Partitioned*> out;
  for (const Partitioned* p : layer.parameters)
    if (!p->persists && p->fetched_for <= step_) out.insert(p);
  int64_t distance = 0;
  for (auto i = static_cast<size_t>(step_); i < module_order_.size() && distance < settings_.max_reuse_distance; ++i)
    for (const Partitioned* p : module_order_[i]->parameters) {
      out.erase(p);
      distance += p->elements;
    }
  return out;
}

void PartitionedParameters::after_backward() {
  while (!active_backward_.empty()) {
    Layer& layer = *active_backward_.back();
    active_backward_.pop_back();
    std::vector<Partitioned*> parameters = layer.parameters;
    for (Partitioned* p : std::exchange(layer.recomputed, {})) parameters.push_back(p);
    for (Partitioned* p : parameters) {
      p->active.erase(&layer);
      if (!p->persists) release(*p);
    }
  }
}

void PartitionedParameters::release_all() {
  for (Partitioned& p : parameters_) {
    wait(p);
    p.active.clear();
    release(p);
  }
}

// ---- hooks ------------------------------------------------------------------------------------------------------------------
Tensors PartitionedParameters::before_forward(const Module& module, Tensors inputs) {
  return begin(*layers_.at(&module), std::move(inputs));
}

Tensors PartitionedParameters::after_forward(const Module& module, Tensors outputs) {
  Layer& layer = *layers_.at(&module);
  outputs = end(layer, std::move(outputs));
  // PEFT's layer looks at the type of lora_A's weight, which so becomes a parameter of its own (register_external_parameter).
  Layer* around = layer.parent;
  if (around && !around->module && around->parameters.empty() && module.path().find(".lora_A.") != std::string::npos)
    around->parameters = layer.parameters;
  return outputs;
}

Tensors PartitionedParameters::begin(Layer& layer, Tensors inputs) {
  enter(layer, true);
  call(layer, true);
  layer.grads_remaining = 0;
  for (Tensor& t : inputs)
    if (tape_.grad_enabled && t && t.requires_grad()) {
      ++layer.grads_remaining;
      t = with_gradient_hook(t, [this, &layer] { post_backward(layer); });
    }
  return inputs;
}

Tensors PartitionedParameters::end(Layer& layer, Tensors outputs) {
  release(layer, true);
  for (Tensor& t : outputs)
    if (tape_.grad_enabled && t && t.requires_grad()) {
      ++layer.pre_backward_calls;
      t = with_gradient_hook(t, [this, &layer] { pre_backward(layer); });
    }
  return outputs;
}

void PartitionedParameters::pre_backward(Layer& layer) {
  if (layer.pre_backward_calls == 0) return;
  --layer.pre_backward_calls;
  enter(layer, false);
  call(layer, false);
}

void PartitionedParameters::post_backward(Layer& layer) {
  if (--layer.grads_remaining == 0) release(layer, false);
}

PartitionedParameters::Layer& PartitionedParameters::function_of(const Module& owner) {
  const auto [found, fresh] = functions_.try_emplace(&owner);
  if (fresh) found->second.parent = layers_.at(&owner);
  return found->second;
}

Tensor PartitionedParameters::before_function(const Module& owner, Tensor x) { return begin(function_of(owner), {std::move(x)})[0]; }

Tensor PartitionedParameters::after_function(const Module& owner, Tensor out) { return end(function_of(owner), {std::move(out)})[0]; }

// A model may use a parameter in ways of its own. In recorded runs a layer may be dropped.
void PartitionedParameters::require_all_called() const {
  if (tape_.dialect.recorder) return;
  for (const Layer& layer : order_of_layers_)
    if (!layer.called && !layer.parameters.empty())
      throw Error(fmt::format("[zero] stage 3: the parameters of {} are not used in a layer of their own", layer.module->path()),
                  "this is not simulated for every model; take stage 2, or fsdp");
}

}  // namespace plimsoll
