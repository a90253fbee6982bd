#include "tensor/tape.h"

#include "tensor/checkpoint.h"
#include "tensor/dataflow.h"

namespace plimsoll {

namespace {
Category category_of(Phase p) {
  switch (p) {
    case Phase::setup: return Category::parameter;
    case Phase::forward:
    case Phase::evaluation:
    case Phase::sampling: return Category::activation;
    case Phase::backward: return Category::backward;
    case Phase::optimizer:
    case Phase::ema: return Category::optimizer;
  }
  return Category::activation;
}
}  // namespace

void Storage::destroy(Storage* s) {
  Tape& tape = *s->tape;
  tape.on_free(*s);
  tape.storage_pool.destroy(s);
}

TensorBody::TensorBody(Ref<Storage> s, const Dims& size, const Dims& stride, DType type)
    : dtype(type), storage(std::move(s)), sizes(size), strides(stride) {}

void TensorBody::destroy(TensorBody* b) { b->storage->tape->body_pool.destroy(b); }

Tape::Tape(Dialect d) : dialect(d) {}

Tape::~Tape() = default;

void Tape::begin_phase(Phase p) {
  phase_ = p;
  trace.events.push_back({Event::Kind::phase, static_cast<uint8_t>(p), 0});
}

void Tape::begin_step() { trace.events.push_back({Event::Kind::step, 0, 0}); }

NameId Tape::op_name() {
  if (op == last_op_) return last_op_id_;
  auto [it, added] = op_ids_.try_emplace(op, 0);
  if (added) it->second = trace.intern(op);
  last_op_ = op;
  return last_op_id_ = it->second;
}

Ref<Storage> Tape::allocate(int64_t bytes) {
  Storage* s = storage_pool.make();
  Ref<Storage> ref(s);
  s->tape = this;
  s->bytes = bytes;
  if (bytes == 0) {  // nothing is allocated, so nothing is traced
    s->id = ~StorageId{0};
    return ref;
  }
  s->id = static_cast<StorageId>(trace.storages.size());
  const Category c = category.value_or(category_of(phase_));
  trace.storages.push_back({bytes, op_name(), scope, c, phase_});
  labels_.push_back(c);
  trace.events.push_back({Event::Kind::alloc, 0, s->id});
  return ref;
}

void Tape::on_free(Storage& s) {
  if (s.bytes != 0) trace.events.push_back({Event::Kind::free, 0, s.id});
}

void Tape::describe(const Storage& s, const Dims& sizes, DType dtype) {
  if (s.bytes == 0) return;
  trace.shapes.resize(trace.storages.size());
  NameId& shape = trace.shapes[s.id];
  if (shape) return;
  shape = trace.intern(to_string(sizes) + " " + std::string(dtype_name(dtype)));
}

void Tape::relabel(const Tensor& t, Category c) {
  Storage& s = t.storage();
  if (s.bytes == 0 || labels_[s.id] == c) return;
  labels_[s.id] = c;
  trace.events.push_back({Event::Kind::relabel, static_cast<uint8_t>(c), s.id});
}

ScopeId Tape::scope_of(const Tensor& t) const {
  const Storage& s = t.storage();
  return s.bytes == 0 ? scope : trace.storages[s.id].scope;
}

void Tape::remember_cast(Parameter& p, Tensor cast) {
  p.low_precision = std::move(cast);
  cast_parameters_.push_back(&p);
}

void Tape::clear_casts() {
  for (Parameter* p : cast_parameters_) {
    const Ref<Node> owner = p->name.empty() ? std::exchange(p->accumulate, Ref<Node>()) : Ref<Node>();  // of a leaf that is no parameter
    p->low_precision.reset();
  }
  cast_parameters_.clear();
}

Ref<Storage> Tape::scratch(int64_t bytes) {
  const std::optional<Category> outer = category;
  category = Category::workspace;
  Ref<Storage> s = allocate(bytes);
  category = outer;
  return s;
}

void Tape::use_blas(bool with_bias) {
  const KernelMemory& m = dialect.kernels;
  const size_t thread = phase_ == Phase::backward;
  // Up to PyTorch 2.8 both libraries shared a handle, and taking it made the workspace of cuBLAS.
  if ((!with_bias || !m.keeps_blas_lt) && m.blas > 0 && !blas_[thread]) blas_[thread] = keep_workspace("cublas_workspace", m.blas);
  if (!with_bias || m.blas_lt == 0) return;
  if (!m.keeps_blas_lt) {
    scratch(m.blas_lt);
  } else if (!blas_lt_[thread]) {
    blas_lt_[thread] = keep_workspace("cublaslt_workspace", m.blas_lt);
  }
}

// Belongs to no module.
Ref<Storage> Tape::keep_workspace(const char* name, int64_t bytes) {
  const char* outer = op;
  op = name;
  ScopeGuard root(*this, 0);
  Ref<Storage> s = scratch(bytes);
  op = outer;
  return s;
}

void Tape::destroy_deferred(Node* n) {
  pending_.push_back(n);
  if (destroying_) return;
  destroying_ = true;
  while (!pending_.empty()) {
    Node* next = pending_.back();
    pending_.pop_back();
    const size_t bytes = next->bytes;
    next->~Node();
    node_memory.give(next, bytes);
  }
  destroying_ = false;
}

AutocastGuard::AutocastGuard(Tape& tape, std::optional<DType> dtype) : tape_(tape), old_(tape.autocast) {
  tape.autocast = dtype;
  ++tape.autocast_depth;
}

AutocastGuard::~AutocastGuard() {
  tape_.autocast = old_;
  if (--tape_.autocast_depth == 0) tape_.clear_casts();
}

Tensor make_tensor(Ref<Storage> storage, const Dims& sizes, const Dims& strides, DType dtype) {
  Pool<TensorBody>& pool = storage->tape->body_pool;
  return Tensor(Ref<TensorBody>(pool.make(std::move(storage), sizes, strides, dtype)));
}

Tensor empty_strided(Tape& tape, const Dims& sizes, const Dims& strides, DType dtype) {
  Ref<Storage> storage;
  if (tape.recomputing) storage = tape.recomputing->kept_result(tape.op);
  if (storage && tape.work) tape.work->kept();
  if (!storage) {
    storage = tape.allocate(checked_mul(numel(sizes), size_of(dtype)));
    if (tape.work) tape.work->made(storage->bytes);
  }
  if (tape.packing) tape.packing->keep_result(tape.op, storage);
  if (tape.keep_shapes) tape.describe(*storage, sizes, dtype);
  Tensor t = make_tensor(std::move(storage), sizes, strides, dtype);
  if (tape.dataflow) tape.dataflow->made(t);
  return t;
}

Tensor empty(Tape& tape, const Dims& sizes, DType dtype) { return empty_strided(tape, sizes, contiguous_strides(sizes), dtype); }

Tensor empty_like(const Tensor& t) { return empty_like(t, t.dtype()); }

Tensor empty_like(const Tensor& t, DType dtype) {
  return empty_strided(t.tape(), t.sizes(), dense_strides_like(t.sizes(), t.strides()), dtype);
}

Tensor alias(const Tensor& t, const Dims& sizes, const Dims& strides) {
  Tensor view = make_tensor(t.body().storage, sizes, strides, t.dtype());
  view.body().value = t.body().value;
  return view;
}

Tensor detach(const Tensor& t) { return alias(t, t.sizes(), t.strides()); }

}  // namespace plimsoll
