#include "step/fsdp1.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "ops/reshape.h"
#include "optim/foreach.h"

namespace plimsoll {

namespace {

constexpr int64_t kAlignment = 16;  // bytes; _get_aligned_numel of _flat_param.py

// Since 4.52 transformers' GradientCheckpointingLayer checkpoints within the call of a layer, and so within what wraps it.
constexpr Version kCheckpointingLayer{4, 52};

// _init_streams
Tensor before_gathering(Tensor t) { return from_pool(Stream::pre_unshard, std::move(t)); }
Tensor reduced(Tensor t) { return from_pool(Stream::reduce_scatter, std::move(t)); }

Tensor without_memory(Tape& tape, int64_t elements, DType dtype) { return make_tensor(tape.allocate(0), {elements}, {1}, dtype); }

}  // namespace

// ---- construction -----------------------------------------------------------------------------------------------------------
FullyShardedDataParallel::FullyShardedDataParallel(const Fsdp1Settings& settings, Model& model, const std::vector<const Module*>& wrapped)
    : settings_(settings), tape_(model.tape()), model_(model) {
  checkpoint_outside_ = model.build().transformers < kCheckpointingLayer;
  param_dtype_ = type_of(settings.param_dtype);
  reduce_dtype_ = type_of(settings.reduce_dtype);
  add_handle(model);
  for (const Module* m : wrapped) add_handle(*m);
  for (auto h = handles_.rbegin(); h != handles_.rend(); ++h) flatten(*h);
  collect_parameters(model);
  tape_.gradient_arrived = [this](Parameter& p) {
    if (const auto h = flat_of_.find(&p); h != flat_of_.end()) post_backward(*h->second);
  };
}

FullyShardedDataParallel::~FullyShardedDataParallel() { tape_.gradient_arrived = nullptr; }

void FullyShardedDataParallel::add_handle(const Module& module) {
  Handle& h = handles_.emplace_back();
  h.module = &module;
  handle_of_[&module] = &h;
}

// _init_flat_param_and_metadata. Original parameters are aligned, and the sum is padded so that ranks divide it.
void FullyShardedDataParallel::flatten(Handle& h) {
  collect(*h.module, h);
  if (h.pieces.empty()) return;
  const int64_t shards = settings_.shards();
  if (settings_.original_parameters && h.elements % shards != 0) add_piece(h, nullptr, shards - h.elements % shards);
  h.shard_elements = ceil_div(h.elements, shards);
  make_shard(h);
  if (settings_.original_parameters) make_parts(h);
}

// named_modules: own parameters first, and no module that is wrapped by itself.
void FullyShardedDataParallel::collect(const Module& module, Handle& h) {
  for (Parameter* p : module.own_parameters()) {
    if (piece_of_.contains(p)) {
      const auto mine = [p](const Piece& piece) { return piece.whole == p; };
      if (std::any_of(h.pieces.begin(), h.pieces.end(), mine)) continue;
      throw Error(fmt::format("[fsdp1] {}.{} is shared with a module that is wrapped by itself", module.path(), p->name),
                  "untie the weights, or wrap both in one module");
    }
    const DType dtype = p->value.dtype();
    const bool trained = p->value.requires_grad();
    if (!is_floating(dtype))
      throw Error(fmt::format("[fsdp1] {}.{} is of integers, which FullyShardedDataParallel cannot flatten", module.path(), p->name),
                  "keep quantised weights in a floating-point storage type (quant_storage), or take ddp");
    if (h.pieces.empty())
      h.dtype = dtype;
    else if (h.dtype != dtype)
      throw Error(fmt::format("[fsdp1] {}.{} has another type than the parameters it is flattened with", module.path(), p->name),
                  "give all parameters of a block one type");
    const bool flat_trains = h.flat.value ? h.flat.value.requires_grad() : trained;
    if (!settings_.original_parameters && flat_trains != trained)
      throw Error(fmt::format("[fsdp1] {}.{}: trained and frozen parameters cannot be in one flat parameter", module.path(), p->name),
                  "set original_parameters: true (use_orig_params), or wrap_trained_layers: true");
    if (!h.flat.value) h.flat.value = without_memory(tape_, 0, dtype);
    h.flat.value.body().requires_grad = flat_trains || trained;
    if (settings_.original_parameters) {
      const int64_t aligned = kAlignment / size_of(compute_dtype(h));
      if (h.elements % aligned != 0) add_piece(h, nullptr, aligned - h.elements % aligned);
    }
    add_piece(h, p, p->value.numel());
    piece_of_[p] = &h.pieces.back();
  }
  for (const Module* child : module.children())
    if (!handle_of_.contains(child)) collect(*child, h);
}

void FullyShardedDataParallel::add_piece(Handle& h, Parameter* whole, int64_t elements) const {
  Piece& piece = h.pieces.emplace_back();
  piece.whole = whole;
  piece.elements = elements;
  h.elements = checked_add(h.elements, elements);
}

void FullyShardedDataParallel::make_shard(Handle& h) {
  h.flat.name = "_flat_param";
  h.flat.value.body().parameter = &h.flat;
  flat_of_[&h.flat] = &h;
  const Labelled label(tape_, Category::parameter, h.module->scope());
  tape_.op = "parameter";
  h.local_shard = settings_.offload ? without_memory(tape_, h.shard_elements, h.dtype) : empty(tape_, {h.shard_elements}, h.dtype);
  const bool apart = settings_.sharded() || casts(h) || settings_.offload;
  h.whole = apart ? without_memory(tape_, h.elements, compute_dtype(h)) : h.local_shard;
  look_at(h.flat.value, h.local_shard.body().storage, h.local_shard.sizes(), h.dtype);
  for (Piece& piece : h.pieces)
    if (piece.whole) look_at(piece.whole->value, h.whole.body().storage, piece.whole->value.sizes(), h.dtype);
}

// _get_shard_metadata: what of each parameter is in this rank's shard.
void FullyShardedDataParallel::make_parts(Handle& h) {
  const int64_t begin = settings_.sharded() ? settings_.rank * h.shard_elements : 0, end = begin + h.shard_elements;
  int64_t offset = 0;
  for (Piece& piece : h.pieces) {
    const int64_t from = std::max(offset, begin), to = std::min(offset + piece.elements, end);
    offset += piece.elements;
    if (!piece.whole) continue;
    const Dims sizes = settings_.sharded() ? Dims{std::max<int64_t>(to - from, 0)} : piece.whole->value.sizes();
    piece.part.name = piece.whole->name;
    piece.part.value = alias(h.local_shard, sizes, contiguous_strides(sizes));
    piece.part.value.body().parameter = &piece.part;
    piece.part.value.body().requires_grad = piece.whole->value.requires_grad();
  }
}

// Module.parameters() of the wrapped model.
void FullyShardedDataParallel::collect_parameters(const Module& module) {
  if (settings_.original_parameters) {
    for (const Parameter* p : module.parameters()) parameters_.push_back(&piece_of_.at(p)->part);
    return;
  }
  if (const auto h = handle_of_.find(&module); h != handle_of_.end() && !h->second->pieces.empty()) parameters_.push_back(&h->second->flat);
  for (const Module* child : module.children()) collect_parameters(*child);
}

// init_flat_param_attributes: each is made whole for a moment.
void FullyShardedDataParallel::lazy_init() {
  if (std::exchange(initialised_, true)) return;
  for (Handle& h : handles_) {
    if (h.pieces.empty()) continue;
    const ScopeGuard scope(tape_, h.module->scope());
    if (casts(h)) temporary("empty_like", {h.shard_elements}, compute_dtype(h), tape_);
    if (!settings_.sharded()) continue;
    const int64_t padded = checked_mul(h.shard_elements, settings_.shards());
    temporary("empty", {padded}, compute_dtype(h), tape_);
    if (casts(h)) temporary("empty", {padded}, h.dtype, tape_);
  }
}

// ---- gathering --------------------------------------------------------------------------------------------------------------
void FullyShardedDataParallel::unshard(Handle& h) {
  const DType dtype = compute_dtype(h);
  Tensor shard;  // _mp_shard, or what came from the host
  const bool needs = h.whole.storage().bytes == 0;
  if (settings_.sharded() && (needs || settings_.offload)) {
    const Labelled label(tape_, Category::gather_buffer, h.module->scope());
    if (casts(h)) shard = before_gathering(temporary("resize_", {h.shard_elements}, dtype, tape_));
    if (settings_.offload) {
      const Tensor from_host = before_gathering(temporary("_to_copy", {h.shard_elements}, h.dtype, tape_));
      if (!casts(h)) shard = from_host;
    }
  }
  if (needs) {
    const Labelled label(tape_, Category::unsharded_parameter, h.module->scope());
    tape_.op = "unshard";
    resize_up(tape_, h.whole.storage(), checked_mul(checked_mul(h.shard_elements, settings_.shards()), size_of(dtype)));
    from_pool(settings_.sharded() ? Stream::all_gather : Stream::pre_unshard, h.whole);
    if (tape_.keep_shapes) tape_.describe(h.whole.storage(), {h.shard_elements * settings_.shards()}, dtype);
  }
  look_at(h.flat.value, h.whole.body().storage, {h.elements}, dtype);
  show_type(h, dtype);
  if (h.state == State::forward) use_unsharded_views(h);
}

// torch.split of the flat parameter and a view of each piece. In backward, what nothing came back to is zeros, and all are joined.
void FullyShardedDataParallel::use_unsharded_views(Handle& h) {
  if (!h.flat.value.requires_grad()) return;
  const GradGuard enabled(tape_, true);
  h.flat.accumulate = {};  // set_data with another type or shape makes a new one
  Op op(tape_, "split_with_sizes", {&h.flat.value});
  Tensors splits;
  for (const Piece& piece : h.pieces) splits.push_back(alias(h.flat.value, {piece.elements}, {1}));
  op.finish(splits, [&h, this, dtype = compute_dtype(h)](Tensors& grads, Needs) -> Tensors {
    if (std::none_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); })) return {Tensor()};
    size_t i = 0;
    for (const Piece& piece : h.pieces) {
      if (!grads[i]) grads[i] = temporary("zeros", {piece.elements}, dtype, tape_);
      ++i;
    }
    return {temporary("cat", {h.elements}, dtype, tape_)};
  });
  auto next = splits.begin();
  for (Piece& piece : h.pieces) {
    const Tensor& split = *next++;
    if (!piece.whole) continue;
    const Tensor piece_view = view(split, piece.whole->value.sizes());
    TensorBody& body = piece.whole->value.body();
    body.parameter = nullptr;
    body.requires_grad = true;
    body.grad_fn = piece_view.body().grad_fn;
    body.output_nr = piece_view.body().output_nr;
  }
}

void FullyShardedDataParallel::reshard(Handle& h, bool free_whole) {
  use_sharded(h);
  const bool cast_copy = !settings_.sharded() && (casts(h) || settings_.offload);
  if ((free_whole || cast_copy) && h.whole.storage().bytes > 0) resize_to_nothing(tape_, h.whole.storage());
  h.prefetched = false;
}

// _use_sharded_flat_param: original parameters are views of the shard again, but not after a forward that leaves the whole.
void FullyShardedDataParallel::use_sharded(Handle& h) {
  look_at(h.flat.value, h.local_shard.body().storage, {h.shard_elements}, h.dtype);
  const bool skips = h.state == State::forward && tape_.grad_enabled && !settings_.reshards();
  if (settings_.original_parameters && !skips) show_type(h, h.dtype);
}

// What a module's code sees when it asks a parameter for its type.
void FullyShardedDataParallel::show_type(Handle& h, DType dtype) {
  for (Piece& piece : h.pieces)
    if (piece.whole) piece.whole->value.body().dtype = dtype;
}

// What ran before this in forward is gathered; _backward_prefetch_limit is 1.
void FullyShardedDataParallel::prefetch_backward(Handle& h) {
  if (!h.post_forward_index || *h.post_forward_index == 0) return;
  Handle& next = *post_forward_order_[*h.post_forward_index - 1];
  if (!next.needs_pre_backward_unshard || next.prefetched) return;
  unshard(next);
  next.prefetched = true;
}

// The order is that of the first iteration.
void FullyShardedDataParallel::prefetch_forward(Handle& h) {
  if (!settings_.forward_prefetch || !h.pre_forward_index || *h.pre_forward_index + 1 >= pre_forward_order_.size()) return;
  Handle& next = *pre_forward_order_[*h.pre_forward_index + 1];
  if (!next.needs_pre_forward_unshard || next.prefetched) return;
  const State before = std::exchange(next.state, State::forward);
  unshard(next);
  next.state = before;
  next.prefetched = true;
}

// ---- forward ----------------------------------------------------------------------------------------------------------------
Output FullyShardedDataParallel::forward(const Batch& batch, bool sync) {
  lazy_init();
  sync_ = sync;
  if (settings_.forward_prefetch)
    for (Handle& h : handles_) {
      h.needs_pre_forward_unshard = true;
      h.prefetched = false;
    }
  reset_flat_grads();
  Handle& root = handles_.front();
  const Batch args = param_dtype_ ? cast_inputs(batch, *param_dtype_) : batch;
  pre_forward(root);
  Output out = model_.forward(args);
  require_all_called();
  post_forward(root);
  out.loss = register_pre_backward(root, out.loss);
  for (Tensor& t : out.kept) t = register_pre_backward(root, t);
  return out;
}

// A model may run its layers in ways of its own. In recorded runs a layer may be dropped.
void FullyShardedDataParallel::require_all_called() const {
  if (tape_.dialect.recorder) return;
  for (const Handle& h : handles_)
    if (!h.called && !h.pieces.empty())
      throw Error(fmt::format("[fsdp1] {} has a flat parameter of its own but was not run as a block", h.module->path()),
                  "this model's blocks cannot be wrapped one by one; take ddp");
}

Tensors FullyShardedDataParallel::before_forward(const Module& module, Tensors inputs) {
  Handle& h = *handle_of_.at(&module);
  if (h.state == State::backward_pre) return inputs;  // recomputation
  pre_forward(h);
  register_reshard_only(h, inputs);
  return inputs;
}

void FullyShardedDataParallel::pre_forward(Handle& h) {
  if (h.pieces.empty()) return;
  if (first_iteration_ && tape_.training && !h.pre_forward_index) {
    h.pre_forward_index = pre_forward_order_.size();
    pre_forward_order_.push_back(&h);
  }
  h.called = true;
  h.state = State::forward;
  if (!h.prefetched) unshard(h);
  h.needs_pre_forward_unshard = false;
  prefetch_forward(h);
}

Tensors FullyShardedDataParallel::after_forward(const Module& module, Tensors outputs) {
  Handle& h = *handle_of_.at(&module);
  if (h.state == State::backward_pre) return outputs;
  post_forward(h);
  for (Tensor& t : outputs) t = register_pre_backward(h, t);
  return outputs;
}

// The root stays whole: it is the first that backward needs.
void FullyShardedDataParallel::post_forward(Handle& h) {
  if (h.pieces.empty()) return;
  if (tape_.training && tape_.phase() != Phase::backward) {
    h.post_forward_index = post_forward_order_.size();
    post_forward_order_.push_back(&h);
  }
  reshard(h, settings_.sharded() && settings_.reshards() && &h != &handles_.front());
  h.needs_pre_backward_unshard = false;
  h.ran_pre_backward = false;
  h.state = State::idle;
}

Tensor FullyShardedDataParallel::register_pre_backward(Handle& h, const Tensor& output) {
  if (!tape_.grad_enabled || !output || !output.requires_grad()) return output;
  h.needs_pre_backward_unshard = true;
  const auto hooks = std::make_shared<TensorHooks>();
  hooks->push_back([this, &h] { pre_backward(h); });
  Tensor hooked = with_gradient_hook(output, [hooks] {
    for (const auto& hook : *hooks) hook();
  });
  hooks_of_[hooked.body().grad_fn.get()] = hooks;
  return hooked;
}

// Tensor.register_hook on what may be another unit's output: its hooks run in the order they came in.
Tensor FullyShardedDataParallel::add_hook(const Tensor& input, std::function<void()> hook) {
  const auto known = hooks_of_.find(input.body().grad_fn.get());
  if (known != hooks_of_.end())
    if (const std::shared_ptr<TensorHooks> hooks = known->second.lock()) {
      hooks->push_back(std::move(hook));
      return input;
    }
  return with_gradient_hook(input, hook);
}

// register_multi_grad_hook on the inputs of a module whose parameters are frozen.
void FullyShardedDataParallel::register_reshard_only(Handle& h, Tensors& inputs) {
  if (!tape_.grad_enabled || h.pieces.empty() || h.flat.value.requires_grad() || h.reshard_hook) return;
  const auto wanted = std::count_if(inputs.begin(), inputs.end(), [](const Tensor& t) { return t && t.requires_grad(); });
  h.reshard_hook = true;
  const auto left = std::make_shared<std::ptrdiff_t>(wanted);
  for (Tensor& t : inputs)
    if (t && t.requires_grad()) {
      h.hooked.push_back(t.body().grad_fn);
      t = add_hook(t, [this, &h, left] {
        if (--*left > 0) return;
        h.state = State::backward_post;
        post_backward_reshard(h);
      });
    }
}

// ---- backward ---------------------------------------------------------------------------------------------------------------
void FullyShardedDataParallel::pre_backward(Handle& h) {
  if (h.ran_pre_backward) return;
  if (&h == &handles_.front()) reset_flat_grads();
  if (h.pieces.empty()) return;
  h.state = State::backward_pre;
  if (h.needs_pre_backward_unshard && !h.prefetched) unshard(h);
  h.needs_pre_backward_unshard = false;
  if (settings_.prefetch == BackwardPrefetch::pre) prefetch_backward(h);
  // prepare_gradient_for_backward: a shard of an earlier backward makes room for a whole gradient.
  if (h.flat.grad && h.flat.grad.numel() != h.elements) h.saved_grad_shard = std::exchange(h.flat.grad, {});
  h.ran_pre_backward = true;
}

void FullyShardedDataParallel::post_backward(Handle& h) {
  h.post_backward_called = true;
  h.state = State::backward_post;
  if (!h.flat.grad) return;
  tape_.relabel(h.flat.grad, Category::unsharded_gradient);
  const Labelled label(tape_, Category::reduce_buffer, h.module->scope());
  post_backward_reshard(h);
  if (!sync_) {
    if (settings_.original_parameters) use_unsharded_grad_views(h);
    return;
  }
  const Tensor computed = h.flat.grad;  // autograd_computed_grad
  if (computed.dtype() != reduce_dtype(h)) h.flat.grad = reduced(temporary("_to_copy", {h.elements}, reduce_dtype(h), tape_));
  reduce_grad(h);
  if (settings_.original_parameters) use_sharded_grad_views(h);
}

void FullyShardedDataParallel::post_backward_reshard(Handle& h) {
  reshard(h, settings_.sharded() && (sync_ || settings_.reshards()));
  if (settings_.prefetch == BackwardPrefetch::post) prefetch_backward(h);
}

// _reduce_grad, and _reduce_grad_no_shard where every rank keeps the whole: that is reduced in place.
void FullyShardedDataParallel::reduce_grad(Handle& h) {
  const auto to_own_type = [&](Tensor& grad) {
    const Stream stream = settings_.replicas > 1 ? Stream::all_reduce : Stream::reduce_scatter;
    if (grad.dtype() != h.dtype) grad = from_pool(stream, temporary("_to_copy", grad.sizes(), h.dtype, tape_));
  };
  if (!settings_.sharded()) return to_own_type(h.flat.grad);
  const Tensor unsharded = std::exchange(h.flat.grad, {});
  const int64_t padded = h.shard_elements * settings_.shards();
  Tensor input = unsharded;
  if (padded > h.elements) input = reduced(temporary("constant_pad_nd", {padded}, unsharded.dtype(), tape_));
  Tensor shard = reduced(temporary("empty_like", {h.shard_elements}, unsharded.dtype(), tape_));
  to_own_type(shard);
  if (!h.saved_grad_shard) h.saved_grad_shard = shard;  // else added in place
}

// _use_unsharded_grad_views: parts have other shapes than the whole gradient's views, so that each gets a gradient of its own first.
void FullyShardedDataParallel::use_unsharded_grad_views(Handle& h) {
  for (Piece& piece : h.pieces) {
    if (!piece.whole) continue;
    const Dims sizes = piece.whole->value.sizes();
    const bool other = !(sizes == piece.part.value.sizes()) || h.flat.grad.dtype() != h.dtype;
    if (other && !piece.part.grad) temporary("empty_like", piece.part.value.sizes(), h.dtype, tape_);
    piece.part.grad = alias(h.flat.grad, sizes, contiguous_strides(sizes));
  }
}

void FullyShardedDataParallel::use_sharded_grad_views(Handle& h) {
  h.sharded_grad = settings_.sharded() ? h.saved_grad_shard : h.flat.grad;
  for (Piece& piece : h.pieces) {
    if (!piece.whole) continue;
    piece.part.grad.reset();
    const Tensor& value = piece.part.value;
    if (value.numel() > 0 && value.requires_grad()) piece.part.grad = alias(h.sharded_grad, value.sizes(), value.strides());
  }
}

// _post_backward_final_callback
void FullyShardedDataParallel::after_backward() {
  first_iteration_ = false;
  for (Handle& h : handles_) {
    if (h.pieces.empty()) continue;
    const bool whole = &h.flat.value.storage() != &h.local_shard.storage() || (settings_.sharded() && h.whole.storage().bytes > 0);
    if (whole) reshard(h, settings_.sharded() && (sync_ || settings_.reshards()));
    finalize(h);
    h.ran_pre_backward = h.needs_pre_backward_unshard = h.prefetched = h.reshard_hook = false;
    h.post_forward_index.reset();
    h.hooked.clear();
    h.state = State::idle;
  }
  post_forward_order_.clear();
  hooks_of_.clear();
}

void FullyShardedDataParallel::finalize(Handle& h) {
  if (!h.flat.value.requires_grad()) return;
  if (!sync_) {
    if (h.flat.grad) tape_.relabel(h.flat.grad, Category::gradient);
    return;
  }
  if (settings_.offload) {
    h.saved_grad_shard.reset();
    h.sharded_grad.reset();
    h.flat.grad.reset();
    for (Piece& piece : h.pieces) piece.part.grad.reset();
  } else if (h.post_backward_called && settings_.sharded()) {
    h.flat.grad = std::move(h.saved_grad_shard);
  }
  h.saved_grad_shard.reset();
  h.post_backward_called = false;
}

// _reset_flat_param_grad_info_if_needed: the optimizer has let go of the parts' gradients; the flat one is let go of now.
void FullyShardedDataParallel::reset_flat_grads() {
  if (!settings_.original_parameters) return;
  for (Handle& h : handles_) {
    const auto has_grad = [](const Piece& piece) { return piece.part.grad.defined(); };
    if (std::any_of(h.pieces.begin(), h.pieces.end(), has_grad)) continue;
    h.flat.grad.reset();
    h.sharded_grad.reset();
  }
}

// FullyShardedDataParallel.clip_grad_norm_: norms in fp32, squares summed over the ranks.
bool FullyShardedDataParallel::clip() {
  if (!zero_scalar_) zero_scalar_ = temporary("empty", Dims{}, DType::float32, tape_);
  if (!settings_.sharded()) return settings_.offload;  // there all is on the host
  const auto scalar = [&](const char* op) { return temporary(op, Dims{}, DType::float32, tape_); };
  if (settings_.offload) {  // the norm of the host's gradients is summed over the ranks here
    const Tensor local = scalar("_to_copy");
    Tensor total = scalar("pow");
    total = scalar("pow");
    return true;
  }
  Tensors norms;
  std::vector<DType> types;
  for (const Parameter* p : parameters_)
    if (p->grad) {
      norms.push_back(scalar("linalg_vector_norm"));
      types.push_back(p->grad.dtype());
    }
  Tensor local = zero_scalar_;
  if (!norms.empty()) {
    const Tensor stacked = temporary("stack", {static_cast<int64_t>(norms.size())}, DType::float32, tape_);
    norms.clear();
    local = scalar("linalg_vector_norm");
  }
  Tensor total = scalar("pow");
  total = scalar("pow");
  Tensor coefficient;
  {
    const Tensor shifted = scalar("add");
    const Tensor inverse = scalar("reciprocal");
    coefficient = scalar("mul");
  }
  const Tensor clamped = scalar("clamp");
  for (const DType dtype : types)
    if (dtype != DType::float32) temporary("_to_copy", Dims{}, dtype, tape_);
  return true;
}

// ---- what is wrapped --------------------------------------------------------------------------------------------------------
std::vector<const Module*> modules_to_flatten(const Fsdp1Settings& settings, const Model& model, const std::vector<std::string>& blocks) {
  const std::set<std::string> chosen(blocks.begin(), blocks.end());
  // peft.utils.other.fsdp_auto_wrap_policy: a layer without children whose weight is trained.
  const auto is_trained_layer = [&](const Module& m) {
    const std::vector<Parameter*>& own = m.own_parameters();
    return settings.wrap_trained_layers && model.build().tuning.has_adapter() && !m.has_children() &&
           std::any_of(own.begin(), own.end(), [](const Parameter* p) { return p->name == "weight" && p->value.requires_grad(); });
  };
  std::vector<const Module*> out;
  const std::function<void(const Module&)> visit = [&](const Module& m) {
    if (&m != &model && (chosen.contains(m.path()) || is_trained_layer(m))) out.push_back(&m);
    for (const Module* child : m.children()) visit(*child);
  };
  visit(model);
  return out;
}

}  // namespace plimsoll
