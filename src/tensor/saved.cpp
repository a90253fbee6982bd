// What a node keeps for backward: the tensor, a ticket of a checkpoint, or a copy on the host.
#include <bit>

#include "tensor/checkpoint.h"

namespace plimsoll {

// torch.autograd.graph.save_on_cpu: a copy, which comes back as a new tensor. Pinned copies are contiguous, others laid out
// like what they are copies of.
struct Saved::HostCopy {
  HostCopy(Tape& tape, const Tensor& t)
      : tape(tape),
        sizes(t.sizes()),
        strides(tape.saves_on == Offload::pinned ? contiguous_strides(sizes) : dense_strides_like(sizes, t.strides())),
        dtype(t.dtype()) {
    on_host = on_device_bytes();
    if (tape.saves_on == Offload::pinned && on_host > 0) on_host = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(on_host)));
    tape.on_host.add(on_host);
    if (tape.work) tape.work->add(tape, {.op = "save_on_cpu", .bytes = on_device_bytes(), .unit = Unit::transfer});
  }
  ~HostCopy() { tape.on_host.remove(on_host); }

  int64_t on_device_bytes() const { return checked_mul(numel(sizes), size_of(dtype)); }

  Tensor on_device() const {
    Op op(tape, "_to_copy", {});
    if (tape.work) tape.work->unit(Unit::transfer);
    return empty_strided(tape, sizes, strides, dtype);
  }

  Tape& tape;
  Dims sizes, strides;
  DType dtype;
  int64_t on_host;  // bytes there: PyTorch rounds pinned memory up to powers of two
};

Saved::Saved() = default;
Saved::~Saved() { drop(); }
bool Saved::defined() const { return tensor_.defined() || frame_ || host_; }

Saved::Saved(Saved&& o) noexcept
    : tensor_(std::move(o.tensor_)), frame_(std::exchange(o.frame_, {})), ticket_(o.ticket_), host_(std::move(o.host_)) {}

Saved& Saved::operator=(Saved&& o) noexcept {
  drop();
  tensor_ = std::move(o.tensor_);
  frame_ = std::exchange(o.frame_, {});
  ticket_ = o.ticket_;
  host_ = std::move(o.host_);
  return *this;
}

void Saved::drop() {
  if (frame_) frame_->forget(ticket_);
  frame_ = {};
}

Saved Saved::pack(const Tensor& t) {
  Saved s;
  Tape& tape = t.tape();
  if (tape.packing) {
    s.frame_ = Ref<CheckpointFrame>(tape.packing);
    s.ticket_ = tape.packing->pack();
    return s;
  }
  if (tape.saves_on != Offload::none && !tape.recomputing) {
    s.host_ = std::make_unique<HostCopy>(tape, t);
    return s;
  }
  // A leaf is saved as itself: if its memory is exchanged, backward sees the new one. An output of the op being recorded is saved without
  // its graph edge; sharing the storage is what matters here.
  s.tensor_ = t.parameter() && !t.body().grad_fn ? t : detach(t);
  s.tensor_.body().parameter = t.parameter();
  if (tape.recomputing) tape.recomputing->store(t);
  return s;
}

Tensor Saved::unpack() const {
  if (host_) return host_->on_device();
  return frame_ ? frame_->redeem(ticket_) : tensor_;
}

}  // namespace plimsoll
