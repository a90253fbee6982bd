#include "tensor/checkpoint.h"

#include <algorithm>

#include "tensor/dataflow.h"

namespace plimsoll {

namespace {

struct StopRecomputation {};

// What is counted while it lives is a forward once more, gradients recorded or not.
class Again {
 public:
  explicit Again(Tape& tape) : tape_(tape), first_(tape.work ? tape.work->kernels.size() : 0) {}
  ~Again() {
    if (!tape_.work) return;
    for (size_t i = first_; i < tape_.work->kernels.size(); ++i) tape_.work->kernels[i].recomputed = true;
  }

 private:
  Tape& tape_;
  size_t first_;
};

// An input of a block between its two runs, which an outer hook may have sent to the host; it is the same variable when it
// comes back.
class CheckpointInput {
 public:
  explicit CheckpointInput(const Tensor& t)
      : saved_(t.defined() ? Saved::pack(t) : Saved()),
        grad_fn_(t.defined() ? t.body().grad_fn : Ref<Node>()),
        output_nr_(t.defined() ? t.body().output_nr : 0),
        requires_grad_(t.defined() && t.requires_grad()) {}

  Tensor again() const {
    if (!saved_.defined()) return {};
    Tensor t = detach(saved_.unpack());
    t.body().grad_fn = grad_fn_;
    t.body().output_nr = output_nr_;
    t.body().requires_grad = requires_grad_;
    return t;
  }

 private:
  Saved saved_;
  Ref<Node> grad_fn_;
  uint16_t output_nr_;
  bool requires_grad_;
};

using Block = std::function<Tensors(const Tensors&)>;

// torch.utils.checkpoint.CheckpointFunction.
struct Reentrant {
  std::vector<Saved> saved;         // save_for_backward
  std::vector<bool> needed;         // which inputs want a gradient
  std::vector<TensorMeta> outputs;  // of the first run
  std::optional<DType> autocast;
  std::shared_ptr<const Block> block;  // ctx.run_function

  // Python functions get zeros for results that nothing came back to.
  void fill(Tape& tape, Tensors& grads) const {
    Op op(tape, "zeros", {});
    for (size_t i = 0; i < grads.size(); ++i)
      if (!grads[i] && outputs[i].sizes.size() > 0) grads[i] = empty(tape, outputs[i].sizes, outputs[i].dtype);
  }

  // The block once more, on leaves and with a graph, and a backward through that.
  Tensors backward(Tape& tape, Tensors& grads) const {
    fill(tape, grads);
    Tensors inputs;
    for (size_t i = 0; i < saved.size(); ++i) {
      inputs.push_back(saved[i].defined() ? detach(saved[i].unpack()) : Tensor());
      if (needed[i]) make_leaf(inputs.back());
    }
    const Tensors out = run_again(tape, inputs);
    Tensors roots, seeds;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!out[i].defined() || !out[i].requires_grad()) continue;
      roots.push_back(out[i]);
      seeds.push_back(grads[i]);
    }
    run_backward(roots, seeds);
    Tensors results;
    for (size_t i = 0; i < inputs.size(); ++i) results.push_back(needed[i] ? leaf_gradient(inputs[i]) : Tensor());
    return results;
  }

  Tensors run_again(Tape& tape, const Tensors& inputs) const {
    const Again again(tape);
    GradGuard grad(tape, true);
    AutocastGuard mode(tape, autocast);
    return (*block)(inputs);
  }
};

Tensors checkpoint_reentrant(Tape& tape, Block block, const Tensors& inputs) {
  Op op(tape, "CheckpointFunction", inputs);
  Reentrant call{{}, {}, {}, tape.autocast, std::make_shared<const Block>(std::move(block))};
  for (size_t i = 0; i < inputs.size(); ++i) {
    call.saved.push_back(op.save(inputs[i]));
    call.needed.push_back(op.needs(i));
  }
  op.keep(call.block);
  Tensors out;
  {
    GradGuard no_grad(tape, false);
    out = (*call.block)(inputs);
  }
  for (const Tensor& t : out) call.outputs.push_back(t.defined() ? TensorMeta{t.sizes(), t.dtype()} : TensorMeta{});
  op.finish(out, [&tape, call = std::move(call)](Tensors& grads, Needs) { return call.backward(tape, grads); });
  return out;
}

}  // namespace

CheckpointFrame::CheckpointFrame(Tape& tape, const CheckpointStyle& style, std::function<void()> recompute)
    : tape_(tape), style_(style), recompute_(std::move(recompute)), autocast_(tape.autocast), scope_(tape.scope) {}

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

namespace {

// "mm/2" of "mm"
bool is_halved(std::string_view saved, std::string_view op) {
  return saved.size() == op.size() + 2 && saved.ends_with("/2") && saved.starts_with(op);
}

}  // namespace

bool CheckpointFrame::keeps(const char* op) const {
  return std::any_of(style_.saved_ops.begin(), style_.saved_ops.end(),
                     [op](const std::string& saved) { return saved == op || is_halved(saved, op); });
}

// Of an op that is kept every second time, the times between leave an empty place: one follows each result of that op.
void CheckpointFrame::keep_result(const char* op, const Ref<Storage>& result) {
  if (!keeps(op)) return;
  const bool halved =
      std::any_of(style_.saved_ops.begin(), style_.saved_ops.end(), [op](const std::string& saved) { return is_halved(saved, op); });
  const auto before = std::find_if(results_.rbegin(), results_.rend(), [&](const Ref<Storage>& r) {
    return !r || (r->bytes > 0 && tape_.trace.names[tape_.trace.storages[r->id].op] == op);
  });
  const bool skips = halved && before != results_.rend() && *before;
  results_.push_back(skips ? Ref<Storage>() : result);
}

Ref<Storage> CheckpointFrame::kept_result(const char* op) {
  if (!keeps(op)) return {};
  assert(next_result_ < results_.size());
  return std::move(results_[next_result_++]);
}

void CheckpointFrame::recompute() {
  recomputed_ = true;
  const Again again(tape_);
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

Tensors checkpoint(Tape& tape, const CheckpointStyle& style, Block block, const Tensors& inputs) {
  if (tape.dataflow) {
    const DataflowBlock here(*tape.dataflow);
    return block(inputs);
  }
  if (!tape.grad_enabled) return block(inputs);
  const bool wanted = std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.requires_grad(); });
  if (!wanted && !tape.dialect.rules.checkpoints_frozen_inputs) return block(inputs);
  if (style.reentrant) return checkpoint_reentrant(tape, std::move(block), inputs);
  auto kept = std::make_shared<std::vector<CheckpointInput>>();
  for (const Tensor& t : inputs) kept->emplace_back(t);
  const Block& run = block;
  Ref<CheckpointFrame> frame(new CheckpointFrame(tape, style, [block, kept] {
    Tensors again;
    for (const CheckpointInput& i : *kept) again.push_back(i.again());
    block(again);
  }));
  CheckpointFrame* outer = std::exchange(tape.packing, frame.get());
  Tensors out;
  try {
    out = run(inputs);
  } catch (...) {
    tape.packing = outer;
    throw;
  }
  tape.packing = outer;
  return out;
}

Tensor checkpoint(Tape& tape, const CheckpointStyle& style, std::function<Tensor(const Tensor&)> block, const Tensor& input) {
  return checkpoint(
      tape, style, [block = std::move(block)](const Tensors& in) -> Tensors { return {block(in[0])}; }, Tensors{input})[0];
}

}  // namespace plimsoll
