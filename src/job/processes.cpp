#include "job/processes.h"

#include <fmt/format.h>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kMostProcesses = 1 << 17;  // more than any training run had

}  // namespace

std::string process_example(const std::string& source) { return fmt::format("e.g. {}: {{world: 8}} or --{} world=8", source, source); }

int64_t world_of(const Config& c) {
  if (!c.find({"world"})) throw Error(fmt::format("[{}] world is not given", c.source()), "set world to the number of processes");
  const int64_t world = c.integer({"world"}, 1);
  if (world < 1 || world > kMostProcesses)
    throw Error(fmt::format("[{}] world {} is not between 1 and {}", c.source(), world, kMostProcesses),
                "world is the number of processes");
  return world;
}

int64_t rank_of(const Config& c, int64_t ranks, const char* hint) {
  const int64_t rank = c.integer({"rank"}, 0);
  if (rank < 0 || rank >= ranks) throw Error(fmt::format("[{}] rank {} is not one of 0 to {}", c.source(), rank, ranks - 1), hint);
  return rank;
}

int64_t replicas_of(const Config& c, int64_t world) {
  const int64_t replicas = c.integer({"replicas"}, 1);
  if (replicas < 1 || world % replicas != 0)
    throw Error(fmt::format("[{}] replicas {} does not divide world {}", c.source(), replicas, world), "take one of " + divisors_of(world));
  return replicas;
}

int64_t degree_of(const Config& c, const char* key) {
  const int64_t n = c.integer({key}, 1);
  if (n < 1 || n > kMostProcesses)
    throw Error(fmt::format("[{}] {} {} is not between 1 and {}", c.source(), key, n, kMostProcesses),
                "leave it out, or give a number of ranks");
  return n;
}

void check_stage(const Config& c, int64_t stage, int64_t stages) {
  if (stage >= 0 && stage < stages) return;
  throw Error(fmt::format("[{}] stage {} is not one of 0 to {}", c.source(), stage, stages - 1), "leave it out for the largest of them");
}

std::string nearest_multiples(int64_t divisor, int64_t n) {
  const int64_t below = n / divisor * divisor;
  return below > 0 ? fmt::format("the nearest: {} and {}", below, below + divisor) : fmt::format("the nearest: {}", divisor);
}

std::string divisors_of(int64_t n) {
  std::vector<std::string> out;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) out.push_back(std::to_string(d));
  return join(out, ", ");
}

}  // namespace plimsoll
