#include "plan/sensitivity.h"

namespace plimsoll {

namespace {

constexpr int64_t kTokens = 32;  // more at a time: kernels round a single one up

// The same with so many ranks more; nothing where each rank has all, or where the layout binds their number.
Patch with_ranks(const ParallelSettings& p, int64_t more) {
  if (p.fsdp && p.fsdp->replicas == 1 && p.fsdp->reshard_to == 0) {
    nlohmann::json fsdp = to_json(*p.fsdp);
    fsdp["world"] = p.fsdp->world + more;
    return {{"fsdp", fsdp}};
  }
  if (!p.ddp || !p.zero1) return Patch();
  nlohmann::json ddp = to_json(*p.ddp), zero1 = to_json(*p.zero1);
  ddp["world"] = zero1["world"] = p.ddp->world + more;
  return {{"ddp", ddp}, {"zero1", zero1}};
}

// The recipe with so many more, or fewer.
using More = std::function<Patch(int64_t)>;

class OneMore {
 public:
  OneMore(Evaluator& evaluator, const Patch& from, size_t device) : evaluator_(evaluator), from_(from), device_(device) {}

  const Candidate* run(const Patch& changes) {
    const Candidate& c = evaluator_.evaluate(merged(from_, changes));
    return c.needs.empty() ? nullptr : &c;
  }

  // With one more, or where the model takes no more, with one less.
  void add(const char* unit, const More& more, int64_t units = 1) {
    const Candidate* now = run(Patch());
    for (const int64_t step : {units, -units}) {
      const Candidate* other = run(more(step));
      if (other == nullptr) continue;
      const Bytes difference = other->comparable()[device_].allocated - now->comparable()[device_].allocated;
      found.push_back({unit, Bytes{difference.count / step}});
      return;
    }
  }

  // A family has one of these keys; the others change nothing.
  void add_layer(int64_t blocks) {
    const Candidate* now = run(Patch());
    for (const char* key : {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"}) {
      const More more = [&](int64_t n) { return Patch{{"config", {{key, blocks + n}}}}; };
      const Candidate* other = run(more(1));
      if (other != nullptr && other->parameters != now->parameters) return add("layer", more);
    }
  }

  std::vector<Sensitivity> found;

 private:
  Evaluator& evaluator_;
  const Patch& from_;
  size_t device_;
};

}  // namespace

std::vector<Sensitivity> sensitivities(Evaluator& evaluator, const Patch& from, size_t blocks, size_t device) {
  OneMore one_more(evaluator, from, device);
  const Candidate* now = one_more.run(Patch());
  if (now == nullptr) return {};
  const Job& job = now->job;
  one_more.add("sample", [&](int64_t n) { return Patch{{"batch", job.batch + n}}; });
  if (job.seq > 2 * kTokens)
    one_more.add(
        job.inputs == InputKind::image ? "pixel of the side" : "token",
        [&](int64_t n) {
          return Patch{{"seq", job.seq + n}};
        },
        kTokens);
  if (blocks > 0) one_more.add_layer(static_cast<int64_t>(blocks));
  if (!with_ranks(job.parallel, 1).empty()) one_more.add("rank", [&](int64_t n) { return with_ranks(job.parallel, n); });
  return std::move(one_more.found);
}

}  // namespace plimsoll
