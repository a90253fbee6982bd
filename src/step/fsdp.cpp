#include "step/fsdp.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "nn/adapter.h"
#include "nn/input_embedding.h"
#include "ops/reshape.h"
#include "optim/foreach.h"

namespace plimsoll {

namespace {

bool is_of_adapter(const Module& m) { return dynamic_cast<const AdapterParameter*>(&m) != nullptr; }

}  // namespace

FullyShard::FullyShard(const FsdpSettings& settings, Model& model, const std::vector<const Module*>& wrapped)
    : settings_(settings), tape_(model.tape()), model_(model) {
  const std::optional<DType> param = type_of(settings.param_dtype), reduce = type_of(settings.reduce_dtype);
  compute_dtype_ = param.value_or(model.build().dtype);
  if (reduce != param) reduce_dtype_ = reduce;
  add_group(model);
  for (const Module* m : wrapped) add_group(*m);
  for (auto g = groups_.rbegin(); g != groups_.rend(); ++g) collect(*g->module, *g);  // fully_shard is called bottom-up
  for (const Group& g : groups_) require_one_type(g);
  Group& root = groups_.front();
  if (settings.keep_last && groups_.size() > 1) groups_.back().reshards = false;
  root.reshards = settings.reshard_root.value_or(settings.reshard_to > 0);
  if (settings.reshard_root) root.reshards_to = 0;
  for (const Parameter* p : model.parameters()) parameters_.push_back(&shard_of_.at(p)->shard);
  outer_hook_ = std::move(tape_.gradient_arrived);
  tape_.gradient_arrived = [this](Parameter& p) {
    if (outer_hook_) outer_hook_(p);
    if (shard_of_.contains(&p) && p.grad) tape_.relabel(p.grad, Category::unsharded_gradient);
  };
}

FullyShard::~FullyShard() { tape_.gradient_arrived = nullptr; }

void FullyShard::add_group(const Module& module) {
  Group& g = groups_.emplace_back();
  g.module = &module;
  g.reshards = settings_.reshard;
  g.reshards_to = settings_.reshard_to;
  wrapped_[&module] = &g;
}

// _get_managed_modules: children first, and none that has a group of its own. What a layer with an adapter has itself is in PEFT's
// base_layer, its first child.
void FullyShard::collect(const Module& module, Group& group) {
  const std::vector<const Module*>& children = module.children();
  const bool is_adapted = std::any_of(children.begin(), children.end(), [](const Module* m) { return is_of_adapter(*m); });
  if (is_adapted) collect_own(module, group);
  for (const Module* child : children)
    if (!wrapped_.contains(child)) collect(*child, group);
  if (!is_adapted) collect_own(module, group);
}

// PEFT's trained copies (modules_to_save) come after the module they are of.
void FullyShard::collect_own(const Module& module, Group& group) {
  std::set<std::string> names;
  std::vector<Parameter*> own = module.own_parameters();
  std::stable_partition(own.begin(), own.end(), [&](const Parameter* p) { return names.insert(p->name).second; });
  for (Parameter* p : own) {
    const auto known = shard_of_.find(p);
    if (known == shard_of_.end())
      group.parameters.push_back(&shard(*p, module.scope()));
    else if (std::find(group.parameters.begin(), group.parameters.end(), known->second) == group.parameters.end())
      throw Error(fmt::format("[fsdp] {}.{} is shared with a module of another group, which fully_shard refuses", module.path(), p->name),
                  "leave wrap_embedding out, or untie the weights");
  }
}

// FSDPParamGroup._init_mp_dtypes: gradients are reduced together, frozen parameters may differ.
void FullyShard::require_one_type(const Group& group) const {
  const Sharded* first = nullptr;
  for (const Sharded* p : group.parameters) {
    if (!p->shard.value.requires_grad()) continue;
    if (!first) first = p;
    if (p->shard.value.dtype() == first->shard.value.dtype()) continue;
    throw Error(fmt::format("[fsdp] {}.{} is in {} and {}.{} in {}: fully_shard wants one type for all that a group trains",
                            tape_.trace.scope_path(first->scope), first->whole->name, dtype_name(first->shard.value.dtype()),
                            tape_.trace.scope_path(p->scope), p->whole->name, dtype_name(p->shard.value.dtype())),
                "give adapters the type of the base (dtype: base), or load the base in fp32 and set param_dtype");
  }
}

// _init_sharded_param: equal parts of dimension 0 of which the last are shorter or empty; the memory is that of a full part.
FullyShard::Sharded& FullyShard::shard(Parameter& whole, ScopeId scope) {
  const Dims sizes = whole.value.sizes();
  if (sizes.size() == 0)
    throw Error(fmt::format("[fsdp] {}.{} is a number, and fully_shard takes none", tape_.trace.scope_path(scope), whole.name),
                "leave fsdp out");
  Sharded& p = shards_.emplace_back();
  p.whole = &whole;
  p.scope = scope;
  p.shard.name = whole.name;
  shard_of_[&whole] = &p;
  Dims padded = sizes, own = sizes;
  padded[0] = ceil_div(sizes[0], settings_.shards());
  own[0] = std::clamp<int64_t>(sizes[0] - settings_.rank * padded[0], 0, padded[0]);
  p.padded = numel(padded);
  const DType dtype = whole.value.dtype();
  p.casts = is_floating(dtype) && dtype != compute_dtype_ && settings_.param_dtype != WireType::own;
  const Labelled label(tape_, Category::parameter, scope);
  tape_.op = "parameter";
  const Tensor memory = empty(tape_, padded, dtype);
  p.shard.value = alias(memory, own, contiguous_strides(own));
  p.shard.value.body().parameter = &p.shard;
  p.shard.value.body().requires_grad = whole.value.requires_grad();
  p.shard.is_dtensor = true;
  if (whole.is_dtensor) mesh_.dims = 2;
  if (whole.gradient_placement == GradientPlacement::partial) mesh_.replicas.push_back(&p.shard);
  if (p.casts) whole.value.body().dtype = compute_dtype_;
  return p;
}

bool FullyShard::wraps(const Module& module) const { return wrapped_.contains(&module); }

FullyShard::Group& FullyShard::group_of(const Module& module) { return *wrapped_.at(&module); }

// ---- gathering ------------------------------------------------------------------------------------------------------------
int64_t FullyShard::gather_size(const Group& g) const {
  return g.placement == Placement::sharded_post_forward ? g.reshards_to : settings_.shards();
}

int64_t FullyShard::input_elements(const Group& g, const Sharded& p) const {
  return g.placement == Placement::sharded_post_forward ? p.post_forward.numel() : p.padded;
}

// foreach_all_gather: what is kept in another type is cast into one flat tensor first.
void FullyShard::unshard(Group& g) {
  if (g.pending || g.placement == Placement::unsharded || g.parameters.empty()) return;
  g.pending = true;
  const int64_t world = gather_size(g);
  if (world == 1) return;
  const Labelled label(tape_, Category::gather_buffer, g.module->scope());
  int64_t cast_elements = 0, bytes = 0;
  for (const Sharded* p : g.parameters) {
    const int64_t n = input_elements(g, *p);
    if (p->casts) cast_elements += n;
    bytes = checked_add(bytes, checked_mul(n, size_of(p->whole->value.dtype())));
  }
  Tensor cast;
  if (cast_elements > 0) cast = from_pool(Stream::all_gather, temporary("empty", {cast_elements}, compute_dtype_, tape_));
  const DType dtype = g.parameters.front()->whole->value.dtype();
  const bool uniform =
      std::all_of(g.parameters.begin(), g.parameters.end(), [&](const Sharded* p) { return p->whole->value.dtype() == dtype; });
  const DType wire = uniform ? dtype : DType::uint8;
  g.gathered = from_pool(Stream::all_gather, temporary("empty", {checked_mul(bytes / size_of(wire), world)}, wire, tape_));
}

// What was gathered stays until the next group's has been copied out in forward, and goes at once in backward.
void FullyShard::wait_for_unshard(Group& g) {
  if (!g.pending) return;
  Tensor previous;
  if (g.group_state == State::forward) previous = std::exchange(all_gather_state_, {});
  gather_size(g) == 1 ? copy_from_shards(g) : copy_out(g);
  for (Sharded* p : g.parameters) p->post_forward.reset();
  g.placement = Placement::unsharded;
  g.pending = false;
  if (g.group_state == State::forward) all_gather_state_ = g.gathered;
  g.gathered.reset();
}

void FullyShard::allocate_whole(Sharded& p) const {
  Tensor& value = p.whole->value;
  tape_.op = "unshard";
  Storage& s = value.storage();
  resize_up(tape_, s, checked_mul(checked_mul(p.padded, settings_.shards()), size_of(value.dtype())));
  if (tape_.keep_shapes) tape_.describe(s, value.sizes(), value.dtype());
}

// foreach_all_gather_copy_out
void FullyShard::copy_out(Group& g) {
  for (Sharded* p : g.parameters) {
    const Labelled label(tape_, Category::unsharded_parameter, p->scope);
    allocate_whole(*p);
  }
}

// One process: each shard is cast, if it has to be, and copied. Python's name keeps the cast until the next one is made.
void FullyShard::copy_from_shards(Group& g) {
  Tensor input;
  for (Sharded* p : g.parameters) {
    const ScopeGuard module(tape_, p->scope);
    if (p->casts) input = temporary("_to_copy", {p->padded}, compute_dtype_, tape_);
    allocate_whole(*p);
  }
}

void FullyShard::reshard(Group& g) {
  if (g.group_state != State::forward) return to_sharded(g);
  if (!g.reshards) return;
  if (g.reshards_to == 0) return to_sharded(g);
  for (Sharded* p : g.parameters) {  // to_sharded_post_forward
    const ScopeGuard module(tape_, p->scope);
    p->post_forward = temporary("clone", {p->padded * settings_.shards() / g.reshards_to}, p->whole->value.dtype(), tape_);
    resize_to_nothing(tape_, p->whole->value.storage());
  }
  g.placement = Placement::sharded_post_forward;
}

void FullyShard::to_sharded(Group& g) {
  if (g.placement == Placement::sharded) return;
  for (Sharded* p : g.parameters) resize_to_nothing(tape_, p->whole->value.storage());
  g.placement = Placement::sharded;
}

// ---- forward --------------------------------------------------------------------------------------------------------------
Tensors FullyShard::cast(Tensors inputs) const {
  return settings_.param_dtype == WireType::own ? inputs : cast_inputs(std::move(inputs), compute_dtype_);
}

// Addresses are 0 in recorded runs, so that reset_sharded_param takes a shard that is not of full size for a new one and pads it again.
void FullyShard::pad_again() {
  for (Group& g : groups_)
    for (Sharded* p : g.parameters) {
      Tensor& value = p->shard.value;
      if (value.numel() == p->padded) continue;
      const ScopeGuard module(tape_, p->scope);
      const Tensor copy = temporary("new_zeros", {p->padded}, value.dtype(), tape_);
      value.body().storage = copy.body().storage;
    }
}

Output FullyShard::forward(const Batch& batch, bool sync) {
  if (tape_.dialect.recorder && !padded_again_) pad_again();
  padded_again_ = true;
  sync_ = sync;
  Group& root = groups_.front();
  root.state = State::forward;
  const Batch args = settings_.param_dtype == WireType::own ? batch : cast_inputs(batch, compute_dtype_);
  pre_forward(root);
  root_forward_ = true;
  Output out = model_.forward(args);
  root_forward_ = false;
  require_all_called();
  post_forward(root);
  out.loss = register_pre_backward(root, out.loss);
  for (Tensor& t : out.kept) t = register_pre_backward(root, t);
  all_gather_state_.reset();
  return out;
}

// A model may run its layers in ways of its own. In recorded runs a layer may be dropped.
void FullyShard::require_all_called() const {
  if (tape_.dialect.recorder) return;
  for (const Group& g : groups_)
    if (!g.called && !g.parameters.empty())
      throw Error(fmt::format("[fsdp] {} has a group of its own but was not run as a block", g.module->path()),
                  "this model's blocks cannot be sharded one by one; take ddp");
}

Tensors FullyShard::before_forward(const Module& module, Tensors inputs) {
  Group& g = group_of(module);
  if (g.state == State::pre_backward) {  // recomputation
    unshard(g);
    wait_for_unshard(g);
    return cast(std::move(inputs));
  }
  g.state = State::forward;
  inputs = cast(std::move(inputs));
  pre_forward(g);
  register_post_backward(g, inputs);
  return inputs;
}

void FullyShard::pre_forward(Group& g) {
  g.called = true;
  g.group_state = State::forward;
  unshard(g);
  wait_for_unshard(g);
}

Tensors FullyShard::after_forward(const Module& module, Tensors outputs) {
  Group& g = group_of(module);
  if (g.state == State::pre_backward) return outputs;
  post_forward(g);
  if (!root_forward_) all_gather_state_.reset();  // under a reentrant checkpoint a block that runs again is its own iter_forward_root
  for (Tensor& t : outputs) t = register_pre_backward(g, t);
  return outputs;
}

void FullyShard::post_forward(Group& g) {
  if (!g.parameters.empty() && tape_.phase() != Phase::backward) {  // there a reentrant checkpoint runs it again
    reshard(g);
    g.post_forward_indices.push_back(post_forward_order_.size());
    post_forward_order_.push_back(&g);
  }
  g.group_state = g.state = State::idle;
}

// RegisterPostBackwardFunction: passes its inputs on; its backward runs when all their gradients are there.
void FullyShard::register_post_backward(Group& g, Tensors& inputs) {
  if (!tape_.grad_enabled) return;
  Tensors wanted;
  for (const Tensor& t : inputs)
    if (t && t.requires_grad()) wanted.push_back(t);
  if (wanted.empty()) return;
  Op op(tape_, "RegisterPostBackwardFunction", wanted);
  Tensors out;
  std::vector<TensorMeta> metas;
  for (const Tensor& t : wanted) {
    out.push_back(detach(t));
    metas.push_back({t.sizes(), t.dtype()});
  }
  op.finish(out, [this, &g, metas](Tensors& grads, Needs) {
    for (size_t i = 0; i < grads.size(); ++i)  // Python functions get zeros for what nothing came back to
      if (!grads[i]) grads[i] = temporary("zeros", metas[i].sizes, metas[i].dtype, tape_);
    post_backward(g);
    return std::move(grads);
  });
  auto next = out.begin();
  for (Tensor& t : inputs)
    if (t && t.requires_grad()) t = *next++;
}

Tensor FullyShard::register_pre_backward(Group& g, const Tensor& output) {
  if (!tape_.grad_enabled || !output || !output.requires_grad()) return output;
  return with_gradient_hook(output, [this, &g] { pre_backward(g); });
}

// ---- backward -------------------------------------------------------------------------------------------------------------
void FullyShard::pre_backward(Group& g) {
  g.state = State::pre_backward;
  if (g.group_state == State::pre_backward) return;
  g.group_state = State::pre_backward;
  unshard(g);
  wait_for_unshard(g);
  backward_prefetch(g);
}

// What ran before this group in forward is gathered while this one is differentiated.
void FullyShard::backward_prefetch(Group& g) {
  if (g.post_forward_indices.empty()) return;
  const size_t index = g.post_forward_indices.back();
  g.post_forward_indices.pop_back();
  if (index > 0) unshard(*post_forward_order_[index - 1]);
}

void FullyShard::post_backward(Group& g) {
  g.group_state = State::post_backward;
  Tensor held;  // the recorder's hook looks at every gradient and holds the last
  if (tape_.dialect.recorder && !g.parameters.empty()) held = g.parameters.back()->whole->grad;
  for (Sharded* p : g.parameters)
    if (p->accumulated) p->whole->grad.reset();  // added in place
  if (!sync_) return keep_whole_gradients(g);
  std::vector<Sharded*> with_grad;
  Tensors grads;
  for (Sharded* p : g.parameters) {
    Tensor& grad = p->accumulated ? p->accumulated : p->whole->grad;
    if (!grad) continue;
    with_grad.push_back(p);
    grads.push_back(as_sharded(*p, grad));
    grad.reset();
  }
  if (!keeps_whole_) reshard(g);
  reduce_scatter_state_.reset();
  if (!with_grad.empty()) reduce(g, with_grad, grads);
}

// to_accumulated_grad_if_needed: whole gradients of several micro-steps are summed in the type that they are reduced in.
void FullyShard::keep_whole_gradients(Group& g) {
  if (!keeps_whole_) reshard(g);
  for (Sharded* p : g.parameters) {
    Tensor& grad = p->whole->grad;
    if (!reduce_dtype_ || !grad || grad.dtype() == *reduce_dtype_) continue;
    const ScopeGuard module(tape_, p->scope);
    p->accumulated = temporary("_to_copy", grad.sizes(), *reduce_dtype_, tape_);
    grad.reset();
  }
}

// FSDPParam._get_grad_inner_tensor: a gradient that tensor parallelism left whole or as a summand is made as the parameter is.
Tensor FullyShard::as_sharded(const Sharded& p, Tensor grad) const {
  const ScopeGuard module(tape_, p.scope);
  switch (p.whole->gradient_placement) {
    case GradientPlacement::whole: return temporary("clone", p.whole->value.sizes(), grad.dtype(), tape_);
    case GradientPlacement::partial: return temporary("all_reduce", grad);
    default: return grad;
  }
}

// foreach_reduce. Python's loop variable holds the last gradient until the function returns.
void FullyShard::reduce(Group& g, const std::vector<Sharded*>& with_grad, Tensors& grads) {
  const Labelled label(tape_, Category::reduce_buffer, g.module->scope());
  g.all_reduced.reset();
  const DType dtype = reduce_dtype_.value_or(grads.front().dtype());
  int64_t elements = 0;
  for (const Sharded* p : with_grad) elements = checked_add(elements, p->padded);
  const int64_t shards = settings_.shards();
  const Tensor last = shards > 1 ? grads.back() : Tensor();
  const Tensor input = temporary("empty", {checked_mul(elements, shards)}, dtype, tape_);
  grads.clear();
  Tensor output = from_pool(Stream::reduce_scatter, temporary("empty", {elements}, dtype, tape_));
  if (settings_.replicas > 1) g.all_reduced = output;
  const DType own = with_grad.front()->shard.value.dtype();
  const Stream last_stream = settings_.replicas > 1 ? Stream::all_reduce : Stream::reduce_scatter;
  if (dtype != own) output = from_pool(last_stream, temporary("_to_copy", {elements}, own, tape_));
  for (Sharded* p : with_grad)
    if (!p->shard.grad) p->shard.grad = alias(output, p->shard.value.sizes(), p->shard.value.strides());
  reduce_scatter_state_ = input;
}

void FullyShard::after_backward() {
  for (Group& g : groups_) {
    if (g.group_state != State::post_backward) post_backward(g);  // its inputs wanted no gradient
    g.group_state = g.state = State::idle;
    g.all_reduced.reset();
    if (g.pending) {
      g.pending = false;
      g.gathered.reset();
    }
    g.post_forward_indices.clear();
  }
  post_forward_order_.clear();
  reduce_scatter_state_.reset();
}

void FullyShard::reduce_kept() {
  sync_ = true;
  keeps_whole_ = false;
  for (Group& g : groups_) post_backward(g);
  after_backward();
}

// ---- what is wrapped --------------------------------------------------------------------------------------------------------
namespace {

void visit(const Module& m, const std::function<void(const Module&)>& f) {
  f(m);
  for (const Module* child : m.children()) visit(*child, f);
}

}  // namespace

std::vector<const Module*> modules_to_shard(const FsdpSettings& settings, const Model& model, const std::vector<std::string>& blocks) {
  std::set<const Module*> chosen;
  const Module* longest = nullptr;
  visit(model, [&](const Module& m) {
    if (settings.longest_list && is_list(m) && (!longest || m.children().size() > longest->children().size())) longest = &m;
    if (std::find(blocks.begin(), blocks.end(), m.path()) != blocks.end()) chosen.insert(&m);
    if (settings.wrap_embedding && is_input_embedding(m)) chosen.insert(&m);
  });
  if (longest) chosen.insert(longest->children().begin(), longest->children().end());
  std::vector<const Module*> in_order;
  visit(model, [&](const Module& m) {
    if (chosen.contains(&m)) in_order.push_back(&m);
  });
  return in_order;
}

}  // namespace plimsoll
