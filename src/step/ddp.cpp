#include "step/ddp.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>

#include "optim/foreach.h"

namespace plimsoll {

namespace {

constexpr int64_t kMebibyte = 1 << 20;
constexpr int64_t kFirstBucket = kMebibyte;            // kDefaultFirstBucketBytes, reducer.hpp
constexpr double kDefaultBucket = 25;                  // _DEFAULT_BUCKET_CAP_MB, distributed.py
constexpr int64_t kBroadcastBucket = 250 * kMebibyte;  // broadcast_bucket_size, distributed.py
constexpr size_t kInFlight = 2;                        // max_in_flight, comm.cpp

int64_t bytes_of(const Tensor& t) { return checked_mul(t.numel(), size_of(t.dtype())); }

// compute_bucket_assignment_by_size: buckets of one element type, closed when they reach their limit. The first of `limits` is for
// the first bucket of a type, the last for all later ones. What is left comes out of a hash map, in practice the last type first.
std::vector<std::vector<size_t>> assign_buckets(const Tensors& tensors, const std::vector<int64_t>& limits) {
  struct Open {
    DType dtype;
    std::vector<size_t> members;
    int64_t bytes = 0;
    size_t limit = 0;  // index into limits
  };
  std::vector<Open> open;  // one per type
  std::vector<std::vector<size_t>> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto bucket = std::find_if(open.begin(), open.end(), [&](const Open& o) { return o.dtype == tensors[i].dtype(); });
    if (bucket == open.end()) bucket = open.insert(open.begin(), Open{tensors[i].dtype(), {}});
    bucket->members.push_back(i);
    bucket->bytes += bytes_of(tensors[i]);
    if (bucket->bytes < limits[bucket->limit]) continue;
    out.push_back(std::move(bucket->members));
    bucket->members.clear();
    bucket->bytes = 0;
    bucket->limit = std::min(bucket->limit + 1, limits.size() - 1);
  }
  for (Open& o : open)
    if (!o.members.empty()) out.push_back(std::move(o.members));
  return out;
}

void sort_by_first(std::vector<std::vector<size_t>>& buckets) {
  std::sort(buckets.begin(), buckets.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
}

// broadcast_coalesced, comm.cpp: flat copies, at most two at a time; a tensor that is alone in its bucket is sent as it is.
void broadcast_coalesced(Tape& tape, const Tensors& tensors) {
  std::vector<std::vector<size_t>> buckets = assign_buckets(tensors, {kBroadcastBucket});
  sort_by_first(buckets);
  std::deque<Tensor> in_flight;
  for (const std::vector<size_t>& bucket : buckets) {
    if (in_flight.size() == kInFlight) in_flight.pop_front();
    int64_t elements = 0;
    for (size_t i : bucket) elements += tensors[i].numel();
    const Tensor& first = tensors[bucket[0]];
    in_flight.push_back(bucket.size() == 1 ? first : temporary("cat", {elements}, first.dtype(), tape));
  }
  while (!in_flight.empty()) in_flight.pop_front();
}

Tensors values_of(const std::vector<Parameter*>& parameters) {
  Tensors out;
  for (const Parameter* p : parameters) out.push_back(p->value);
  return out;
}

// Category::ddp_bucket while it lives.
class BucketCategory {
 public:
  explicit BucketCategory(Tape& tape) : tape_(tape) { tape.category = Category::ddp_bucket; }
  ~BucketCategory() { tape_.category.reset(); }

 private:
  Tape& tape_;
};

}  // namespace

DataParallel::DataParallel(const DdpSettings& settings, Tape& tape, const std::vector<Parameter*>& parameters, const Tensors& buffers)
    : settings_(settings), tape_(tape), buffers_(buffers) {
  for (Parameter* p : parameters)
    if (p->value.requires_grad()) trained_.push_back(p);
  if (trained_.empty())
    throw Error("[ddp] no parameter requires a gradient, and DistributedDataParallel refuses such a model",
                "unfreeze one, or leave ddp out");
  const BucketCategory category(tape);
  if (!tape.dialect.recorder) {  // _sync_module_states; the recorder leaves it out
    Tensors states = values_of(parameters);
    if (settings.broadcast_buffers) states.insert(states.end(), buffers.begin(), buffers.end());
    broadcast_coalesced(tape, states);
  }
  // Until the order of gradients is known everything is in one bucket, so that the order cannot be wrong.
  const bool rebuilds = settings.static_graph || !settings.find_unused_parameters;
  std::vector<Bucket> buckets =
      assign_buckets(values_of(trained_), rebuilds ? std::vector{std::numeric_limits<int64_t>::max()} : bucket_limits());
  sort_by_first(buckets);
  std::reverse(buckets.begin(), buckets.end());
  make_buckets(buckets);
  rebuilt_ = !rebuilds;
  if (settings.static_graph || settings.find_unused_parameters)
    used_map_ = temporary("empty", {static_cast<int64_t>(trained_.size())}, DType::int32, tape);
  tape.gradient_arrived = [this](Parameter& p) { gradient_arrived(p); };
}

DataParallel::~DataParallel() { tape_.gradient_arrived = nullptr; }

std::vector<int64_t> DataParallel::bucket_limits() const {
  const auto cap = static_cast<int64_t>(settings_.bucket_mb.value_or(kDefaultBucket) * kMebibyte);
  return {settings_.bucket_mb ? cap : kFirstBucket, cap};
}

// Reducer::initialize_buckets. Gradients that are views of the old buckets keep them alive until they have moved.
void DataParallel::make_buckets(const std::vector<Bucket>& buckets) {
  buckets_.clear();
  bucket_of_.assign(trained_.size(), 0);
  for (const Bucket& bucket : buckets) {
    int64_t elements = 0;
    for (size_t i : bucket) {
      elements += trained_[i]->value.numel();
      bucket_of_[i] = buckets_.size();
    }
    buckets_.push_back(temporary("empty", {elements}, trained_[bucket[0]]->value.dtype(), tape_));
    if (!settings_.bucket_view) continue;
    for (size_t i : bucket)
      if (trained_[i]->grad) trained_[i]->grad = bucket_view(i);
  }
}

// Reducer::rebuild_buckets, once. Rank 0 tells the others the assignment first, in two small tensors.
void DataParallel::rebuild_buckets() {
  const BucketCategory category(tape_);
  Tensors values;
  for (size_t i : order_) values.push_back(trained_[i]->value);
  std::vector<Bucket> buckets = assign_buckets(values, bucket_limits());
  for (Bucket& bucket : buckets)
    for (size_t& i : bucket) i = order_[i];
  {
    const Tensor indices = temporary("empty", {static_cast<int64_t>(order_.size()) + 1}, DType::int32, tape_);
    const Tensor sizes = temporary("empty", {static_cast<int64_t>(buckets.size())}, DType::int32, tape_);
  }
  order_.clear();
  rebuilt_ = true;
  make_buckets(buckets);
}

void DataParallel::before_forward(bool sync) {
  require_finished();
  if (!rebuilt_ && !order_.empty()) rebuild_buckets();
  if (settings_.broadcast_buffers && sync_buffers_) broadcast_coalesced(tape_, buffers_);
  sync_ = sync_buffers_ = sync;
  arrived_.assign(sync ? trained_.size() : 0, false);
}

// _DDPSink: the outputs are cloned on their way out, so that the reducer sees the start of backward.
void DataParallel::after_forward(Output& out) {
  const bool sinks = settings_.static_graph ? first_reduction_ : settings_.find_unused_parameters;
  if (!sinks) return;
  Tensors outputs{out.loss};
  outputs.insert(outputs.end(), out.kept.begin(), out.kept.end());
  Op op(tape_, "clone", outputs);
  Tensors clones;
  for (const Tensor& t : outputs) clones.push_back(empty_like(t));
  op.finish(clones, [](Tensors& grads, Needs) { return std::move(grads); });
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].requires_grad()) clones[i] = outputs[i];
  out.loss = clones[0];
  out.kept.assign(clones.begin() + 1, clones.end());
}

// Reducer::autograd_hook, after each gradient has been accumulated.
void DataParallel::gradient_arrived(Parameter& p) {
  if (!sync_) return;
  const size_t position = static_cast<size_t>(std::find(trained_.begin(), trained_.end(), &p) - trained_.begin());
  if (position == trained_.size()) return;
  arrived_[position] = true;
  if (settings_.static_graph && first_reduction_) return;
  if (!rebuilt_) order_.push_back(position);
  copy_to_bucket(position);
}

// Reducer::mark_variable_ready_dense
void DataParallel::copy_to_bucket(size_t position) {
  Tensor& grad = trained_[position]->grad;
  if (grad && settings_.bucket_view) grad = bucket_view(position);
}

Tensor DataParallel::bucket_view(size_t position) const {
  const Tensor& value = trained_[position]->value;
  return alias(buckets_[bucket_of_[position]], value.sizes(), value.strides());
}

void DataParallel::after_backward() {
  if (!sync_) return;
  if (settings_.static_graph && first_reduction_)
    for (size_t i = 0; i < trained_.size(); ++i) copy_to_bucket(i);
  first_reduction_ = false;
  finish_reduction();
}

// Reducer::finalize_backward: the reduced values go back; a parameter whose gradient was undefined gets one.
void DataParallel::finish_reduction() {
  if (std::find(arrived_.begin(), arrived_.end(), false) != arrived_.end()) return;
  for (size_t i = 0; i < trained_.size(); ++i)
    if (Tensor& grad = trained_[i]->grad; !grad) grad = settings_.bucket_view ? bucket_view(i) : temporary("clone", trained_[i]->value);
}

void DataParallel::require_finished() const {
  if (settings_.find_unused_parameters || settings_.static_graph) return;
  const auto missing = std::find(arrived_.begin(), arrived_.end(), false);
  if (missing == arrived_.end()) return;
  const Parameter& p = *trained_[static_cast<size_t>(missing - arrived_.begin())];
  throw Error(fmt::format("[ddp] {} of {} trained parameters got no gradient, the first is {}.{}: PyTorch stops here",
                          std::count(arrived_.begin(), arrived_.end(), false), trained_.size(),
                          tape_.trace.scope_path(tape_.scope_of(p.value)), p.name),
              "set find_unused_parameters: true in ddp, or freeze them");
}

}  // namespace plimsoll
