#include "estimate/loader.h"

#include <algorithm>

#include "allocator/pinned_host.h"
#include "model/registry.h"
#include "nn/model.h"

namespace plimsoll {

namespace {

constexpr int64_t kPage = 4096;

Bytes product(std::initializer_list<int64_t> factors) {
  int64_t n = 1;
  for (int64_t f : factors) n = checked_mul(n, f);
  return {n};
}

Bytes in_pages(Bytes b) { return {checked_mul(checked_add(b.count, kPage - 1) / kPage, kPage)}; }

// What a step of a model that makes its inputs itself begins with: pictures, latents, videos, states of texts.
std::vector<Bytes> own_tensors(const Job& job) {
  const ModelEntry* entry = find_model(job.family);
  if (!entry) return {};
  Tape tape;
  Build build(tape);
  const std::unique_ptr<Model> model = entry->make(build, job.config);
  std::vector<Bytes> tensors;
  const DType dtype = job.precision == Precision::bf16 || job.precision == Precision::fp16 ? DType::bfloat16 : DType::float32;
  for (const Tensor& t : model->make_inputs(job.batch, job.seq, dtype))
    tensors.push_back(product({t.numel(), static_cast<int64_t>(size_of(t.dtype()))}));
  return tensors;
}

// One page a semaphore. Measured: 8 + 3 x workers, with 1 to 4 workers.
Bytes semaphores(int64_t workers) { return product({checked_add(8, checked_mul(3, workers)), kPage}); }

// The last batches of an epoch have nothing after them.
int64_t batches_ahead(const Job& job) {
  const int64_t wanted = checked_mul(job.host.prefetch(), job.host.workers);
  if (job.host.dataset_size == 0) return wanted;
  const int64_t step = checked_mul(job.batch, job.host.ranks_per_host);
  const int64_t epoch = job.host.dataset_size / step + (job.host.dataset_size % step != 0);
  return std::min(wanted, epoch - 1);
}

// Without workers: the loop still holds the last batch while the items of the next one and then that batch are made.
void without_workers(const Job& job, LoaderMemory& m) {
  if (job.host.pin_memory) {
    m.held = ByteRange::exact(times(2, m.batch));
    m.pinned = ByteRange::exact(times(2, m.pinned_batch));
  } else {
    m.held = ByteRange::exact(times(3, m.batch));
  }
}

// A worker puts its batch together directly in /dev/shm. The one in use is there too, unless it was pinned: the pinning thread
// empties /dev/shm as fast as it can copy, so that then all batches ahead are pinned ones.
void with_workers(const Job& job, LoaderMemory& m) {
  const int64_t workers = job.host.workers;
  const int64_t building = std::min(workers, m.ahead + 1);
  // Measured: malloc still holds as much again of the batch before, when items are below 32 MiB.
  m.building = {times(building, m.batch), m.batch, times(2 * building, m.batch)};
  if (job.host.pin_memory) {
    m.shm = {times(building, m.shm_batch), Bytes{0}, times(std::max(m.ahead, building), m.shm_batch)};
    m.pinned = {times(m.ahead + 1, m.pinned_batch), times(std::min<int64_t>(2, m.ahead + 1), m.pinned_batch),
                times(m.ahead + 2, m.pinned_batch)};
  } else {
    // The next batch is asked for before the loop lets go of the last one; a fast worker has begun it by then. Measured to the page.
    m.shm = {times(m.ahead + 1, m.shm_batch), times(building, m.shm_batch), times(m.ahead + 2, m.shm_batch)};
  }
  m.shm += ByteRange::exact(semaphores(workers));
}

}  // namespace

std::vector<Bytes> batch_tensors(const Job& job) {
  if (job.host.item_bytes) return {times(job.batch, *job.host.item_bytes)};
  if (job.inputs == InputKind::own) return own_tensors(job);
  const Bytes label = product({job.batch, 8});
  if (job.inputs == InputKind::image) return {product({job.batch, 3, job.seq, job.seq, 4}), label};
  if (job.inputs == InputKind::vector) return {product({job.batch, job.seq, 4}), label};
  const Bytes ids = product({job.batch, job.seq, 8});
  if (job.inputs == InputKind::pair) return {ids, ids, ids, label};
  if (job.inputs == InputKind::cls) return {ids, ids, label};
  return {ids, ids, ids};
}

LoaderMemory loader_memory(const Job& job) {
  LoaderMemory m;
  m.ahead = batches_ahead(job);
  const PinnedHostAllocator pinned;
  for (const Bytes tensor : batch_tensors(job)) {
    m.batch += tensor;
    m.shm_batch += in_pages(tensor);
    m.pinned_batch += Bytes{pinned.rounded(tensor.count)};
  }
  if (job.host.workers == 0) {
    without_workers(job, m);
  } else {
    with_workers(job, m);
  }
  return m;
}

}  // namespace plimsoll
