// A tensor without data: a small handle on a shared body (storage, sizes, strides, dtype, autograd edge). Copies share the
// body as Python names share an object; a storage is freed when its last body dies, exactly as in PyTorch. Bodies, storages
// and graph nodes belong to one tape and one thread, so counting is not atomic.
#pragma once

#include <utility>
#include <vector>

#include "tensor/dims.h"
#include "tensor/dtype.h"
#include "trace/trace.h"

namespace plimsoll {

class Tape;
struct Node;
struct Parameter;

// Intrusive counted pointer: T has `refs` and a static destroy(T*).
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* p) : p_(p) { retain(); }
  Ref(const Ref& o) : p_(o.p_) { retain(); }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_ && --p_->refs == 0) T::destroy(p_);
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  void retain() {
    if (p_) ++p_->refs;
  }
  T* p_ = nullptr;
};

struct Storage {
  uint32_t refs = 0;
  StorageId id = 0;
  int64_t bytes = 0;
  Tape* tape = nullptr;
  static void destroy(Storage* s);
};

struct TensorBody {
  TensorBody(Ref<Storage> s, const Dims& size, const Dims& stride, DType type);
  uint32_t refs = 0;
  DType dtype = DType::float32;
  bool requires_grad = false;
  uint16_t output_nr = 0;          // which output of grad_fn this is
  uint32_t value = 0;              // its number in the tape's Dataflow; 0: not recorded
  Parameter* parameter = nullptr;  // set on leaves that collect a gradient
  Ref<Storage> storage;
  Ref<Node> grad_fn;
  Dims sizes, strides;
  static void destroy(TensorBody* b);
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorBody> body) : body_(std::move(body)) {}

  bool defined() const { return static_cast<bool>(body_); }
  explicit operator bool() const { return defined(); }
  void reset() { body_ = {}; }

  const Dims& sizes() const { return body_->sizes; }
  const Dims& strides() const { return body_->strides; }
  int64_t size(int d) const { return body_->sizes[d]; }
  int dim() const { return body_->sizes.size(); }
  int64_t numel() const { return plimsoll::numel(body_->sizes); }
  DType dtype() const { return body_->dtype; }
  bool requires_grad() const { return body_ && body_->requires_grad; }
  bool is_contiguous() const { return plimsoll::is_contiguous(sizes(), strides()); }
  bool is_leaf() const { return !body_->grad_fn; }
  Parameter* parameter() const { return body_->parameter; }
  Storage& storage() const { return *body_->storage; }
  Tape& tape() const { return *body_->storage->tape; }
  TensorBody& body() const { return *body_; }
  // The only name of the only tensor on its storage: PyTorch may then write into it instead of into new memory.
  bool is_sole_owner() const { return body_->refs == 1 && body_->storage->refs == 1; }
  bool is_only_handle() const { return body_->refs == 1; }

 private:
  Ref<TensorBody> body_;
};

using Tensors = std::vector<Tensor>;

}  // namespace plimsoll
