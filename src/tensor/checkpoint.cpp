#include "tensor/checkpoint.h"

#include "tensor/dataflow.h"

namespace plimsoll {

namespace {
struct StopRecomputation {};
}  // namespace

CheckpointFrame::CheckpointFrame(Tape& tape, std::function<void()> recompute)
    : tape_(tape), recompute_(std::move(recompute)), autocast_(tape.autocast), scope_(tape.scope) {}

uint32_t CheckpointFrame::pack() {
  alive_.push_back(true);
  stored_.emplace_back();
  return static_cast<uint32_t>(alive_.size() - 1);
}

void CheckpointFrame::store(const Tensor& t) {
  assert(next_ < alive_.size());
  if (alive_[next_]) stored_[next_] = detach(t);  // without the graph of the recomputation
  if (++next_ == alive_.size()) throw StopRecomputation{};
}

Tensor CheckpointFrame::redeem(uint32_t ticket) {
  if (!recomputed_) recompute();
  return std::move(stored_[ticket]);
}

void CheckpointFrame::forget(uint32_t ticket) {
  alive_[ticket] = false;
  stored_[ticket].reset();
}

void CheckpointFrame::recompute() {
  recomputed_ = true;
  ScopeGuard scope(tape_, scope_);
  GradGuard grad(tape_, true);
  CheckpointFrame* outer_packing = std::exchange(tape_.packing, nullptr);
  CheckpointFrame* outer = std::exchange(tape_.recomputing, this);
  const char* op = tape_.op;
  try {
    AutocastGuard autocast(tape_, autocast_);
    recompute_();
  } catch (const StopRecomputation&) {
  }
  tape_.op = op;
  tape_.recomputing = outer;
  tape_.packing = outer_packing;
}

Saved::Saved() = default;
Saved::~Saved() { drop(); }
bool Saved::defined() const { return tensor_.defined() || frame_; }

Saved::Saved(Saved&& o) noexcept : tensor_(std::move(o.tensor_)), frame_(std::exchange(o.frame_, {})), ticket_(o.ticket_) {}

Saved& Saved::operator=(Saved&& o) noexcept {
  drop();
  tensor_ = std::move(o.tensor_);
  frame_ = std::exchange(o.frame_, {});
  ticket_ = o.ticket_;
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
  // An output of the op being recorded is saved without its graph edge; sharing the storage is what matters here.
  s.tensor_ = detach(t);
  s.tensor_.body().parameter = t.parameter();
  if (tape.recomputing) tape.recomputing->store(t);
  return s;
}

Tensor Saved::unpack() const { return frame_ ? frame_->redeem(ticket_) : tensor_; }

Tensor checkpoint(Tape& tape, std::function<Tensor(const Tensor&)> block, const Tensor& input) {
  return checkpoint(tape, [block = std::move(block), input]() -> Tensors { return {block(input)}; })[0];
}

Tensors checkpoint(Tape& tape, std::function<Tensors()> block) {
  if (tape.dataflow) {
    const DataflowBlock here(*tape.dataflow);
    return block();
  }
  Ref<CheckpointFrame> frame(new CheckpointFrame(tape, [block] { block(); }));
  CheckpointFrame* outer = std::exchange(tape.packing, frame.get());
  Tensors out;
  try {
    out = block();
  } catch (...) {
    tape.packing = outer;
    throw;
  }
  tape.packing = outer;
  return out;
}

}  // namespace plimsoll
