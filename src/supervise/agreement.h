// How the ranks of a run come to one decision: each gives its numbers, all get the same ones back. A rank acts only on what came back, so
// none acts alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace plimsoll {

class Agreement {
 public:
  virtual ~Agreement() = default;
  virtual int ranks() const = 0;
  // The least of every number over all ranks. Blocks until each rank has given its own, as many as this one; the rounds of a rank are
  // those of the others, in order. Throws an Error that names the ranks that did not answer in time.
  virtual std::vector<int64_t> least(const std::vector<int64_t>& mine) = 0;
};

using Patience = std::chrono::milliseconds;
inline constexpr Patience kPatience = std::chrono::minutes(10);  // torch.distributed's own for NCCL

// Threads of one process: one object for each rank, all of one meeting.
std::vector<std::unique_ptr<Agreement>> agreement_of_threads(int ranks, Patience patience = kPatience);

// Processes that see one folder, also over a network file system. The folder belongs to one attempt of one run: a second attempt takes
// another one. What is read there is deleted two rounds later.
std::unique_ptr<Agreement> agreement_by_files(const std::string& folder, int rank, int ranks, Patience patience = kPatience);

// Anything that can take the least: an all-reduce of the run's own. It returns false when that failed.
using LeastOf = std::function<bool(std::vector<int64_t>& values)>;
std::unique_ptr<Agreement> agreement_by_call(int ranks, LeastOf least);

}  // namespace plimsoll
