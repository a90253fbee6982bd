// How fast ranks reach each other: the links inside a node, the network between nodes, and the seconds of one collective over a group of
// ranks. Estimates for ranking; the constants name their sources in interconnect.cpp.
#pragma once

#include <cstdint>

namespace plimsoll {

// Where the devices of a run are.
struct Cluster {
  int64_t node = 8;       // devices of one node
  double network = 40e9;  // bytes a second of each device to other nodes: a 400 Gb/s adapter at four fifths, as DGX H100 systems have
};

// Ranks that talk to each other: every `stride`-th of neighbours.
struct RankGroup {
  int64_t ranks = 1;
  int64_t stride = 1;
};

class Interconnect {
 public:
  // `link`: bytes a second through each device of a ring inside a node.
  Interconnect(double link, const Cluster& cluster) : link_(link), cluster_(cluster) {}

  const Cluster& cluster() const { return cluster_; }
  // Seconds until every rank has the `bytes` that all have together; a reduce-scatter is the same backwards.
  double gather(double bytes, const RankGroup& g) const;
  double reduce(double bytes, const RankGroup& g) const;    // `bytes` of every rank summed on every rank
  double exchange(double bytes, const RankGroup& g) const;  // all-to-all: each rank has `bytes`, a part for every other
  double send(double bytes, const RankGroup& g) const;      // to the next rank of the group

 private:
  double rate(const RankGroup& g) const;
  double ring_latency(const RankGroup& g) const;
  double tree_latency(const RankGroup& g) const;
  int64_t nodes(const RankGroup& g) const;

  double link_;
  Cluster cluster_;
};

}  // namespace plimsoll
