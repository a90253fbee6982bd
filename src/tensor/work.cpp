#include "tensor/work.h"

#include <cassert>
#include <cstring>

#include "tensor/tape.h"

namespace plimsoll {

// A broadcast tensor is read once. A weight that takes turns on the device has no storage there.
void Work::reads(const Tensor& t) {
  if (!t.defined()) return;
  const int64_t all = t.numel() * size_of(t.dtype()), stored = t.storage().bytes, bytes = stored > 0 ? std::min(all, stored) : all;
  Call& call = calls_.back();
  if (call.read == 0) call.first = bytes;
  call.read += bytes;
}

void Work::made(int64_t bytes) {
  if (!calls_.empty()) calls_.back().written += bytes;
}

void Work::kept() {
  if (!calls_.empty()) calls_.back().skipped = true;
}

void Work::flops(double n, DType dtype, Unit unit) {
  assert(!calls_.empty());
  Call& call = calls_.back();
  call.flops += n;
  call.dtype = dtype;
  call.unit = unit;
}

// What allocates nothing is a view, or writes in place and then has a name that ends in "_". A kernel whose inputs nobody named reads as
// much as it writes.
void Work::end_call(const Tape& tape) {
  const Call call = calls_.back();
  calls_.pop_back();
  if (call.skipped) return;
  int64_t written = call.written;
  if (written == 0) {
    const size_t length = std::strlen(call.op);
    if (call.flops == 0 && (length == 0 || call.op[length - 1] != '_')) return;
    written = call.first;
  }
  Kernel k;
  k.op = call.op;
  k.flops = call.flops;
  k.bytes = call.unit == Unit::transfer ? written : written + (call.read == 0 ? written : call.read);
  k.unit = call.unit;
  k.dtype = call.dtype;
  add(tape, k);
}

// Gradients are recorded inside a backward only where a forward runs once more.
void Work::add(const Tape& tape, Kernel k) {
  k.scope = tape.scope;
  k.phase = tape.phase();
  k.block = k.phase == Phase::forward ? block_ : 0;
  k.micro_step = micro_step_;
  k.recomputed = k.phase == Phase::backward && tape.grad_enabled;
  kernels.push_back(k);
}

void Work::begin_block(const Tape& tape, ScopeId scope) {
  if (depth_++ > 0 || tape.phase() != Phase::forward) return;
  BlockRun run;
  run.scope = scope;
  run.micro_step = micro_step_;
  run.first_storage = static_cast<StorageId>(tape.trace.storages.size());
  run.first_event = tape.trace.events.size();
  blocks.push_back(run);
  block_ = static_cast<uint32_t>(blocks.size());
}

void Work::end_block(const Tape& tape) {
  if (--depth_ > 0 || block_ == 0) return;
  BlockRun& run = blocks[block_ - 1];
  run.last_storage = static_cast<StorageId>(tape.trace.storages.size());
  run.last_event = tape.trace.events.size();
  block_ = 0;
}

void Work::block_returns(const Tensor& result) {
  if (depth_ != 1 || block_ == 0 || !result.defined() || result.storage().bytes == 0) return;
  BlockRun& run = blocks[block_ - 1];
  if (result.storage().id >= run.first_storage) run.result_bytes += result.storage().bytes;
}

WorkBlock::WorkBlock(Tape& tape, ScopeId scope) : tape_(tape) {
  if (tape.work) tape.work->begin_block(tape, scope);
}

WorkBlock::~WorkBlock() {
  if (tape_.work) tape_.work->end_block(tape_);
}

Tensor WorkBlock::returns(Tensor result) const {
  if (tape_.work) tape_.work->block_returns(result);
  return result;
}

Tensors WorkBlock::returns(Tensors results) const {
  if (tape_.work)
    for (const Tensor& t : results) tape_.work->block_returns(t);
  return results;
}

}  // namespace plimsoll
