#include "plan/interconnect.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {

namespace {

// Seconds of a collective's start, of one hop over NVLink and of one over the network, and of a tree's levels: NCCL's own model of its
// rings (baseLat and hwLat of src/graph/tuning.cc, protocol Simple).
constexpr double kStart = 8.4e-6, kHop = 3.4e-6, kNetworkHop = 14e-6, kTreeHop = 4e-6;

double others(int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); }

}  // namespace

int64_t Interconnect::nodes(const RankGroup& g) const {
  return std::max<int64_t>(1, (g.ranks * g.stride + cluster_.node - 1) / cluster_.node);
}

// Between nodes a ring enters and leaves each node once: all adapters that its devices there have carry it together.
double Interconnect::rate(const RankGroup& g) const {
  if (nodes(g) == 1) return link_;
  const int64_t adapters = std::max<int64_t>(1, cluster_.node / g.stride);
  return std::min(link_, cluster_.network * static_cast<double>(adapters));
}

double Interconnect::ring_latency(const RankGroup& g) const {
  const auto hops = static_cast<double>(g.ranks - 1), between = static_cast<double>(std::min(g.ranks, nodes(g)) - 1);
  return kStart + (hops - between) * kHop + between * kNetworkHop;
}

double Interconnect::tree_latency(const RankGroup& g) const {
  const int64_t across = std::min(g.ranks, nodes(g));
  const auto inside = static_cast<double>((g.ranks + across - 1) / across - 1);
  return kStart + 2 * (inside * kTreeHop + std::ceil(std::log2(static_cast<double>(across))) * kNetworkHop);
}

double Interconnect::gather(double bytes, const RankGroup& g) const {
  return g.ranks < 2 ? 0 : bytes * others(g.ranks) / rate(g) + ring_latency(g);
}

double Interconnect::reduce(double bytes, const RankGroup& g) const {
  return g.ranks < 2 ? 0 : 2 * bytes * others(g.ranks) / rate(g) + std::min(2 * ring_latency(g), tree_latency(g));
}

double Interconnect::exchange(double bytes, const RankGroup& g) const {
  if (g.ranks < 2) return 0;
  // Each device sends on its own adapter.
  const double pace = nodes(g) == 1 ? link_ : std::min(link_, cluster_.network);
  return bytes * others(g.ranks) / pace + ring_latency(g);
}

double Interconnect::send(double bytes, const RankGroup& g) const {
  if (g.ranks < 2) return 0;
  const bool leaves = nodes(g) > 1;
  return bytes / (leaves ? std::min(link_, cluster_.network) : link_) + (leaves ? kNetworkHop : kHop);
}

}  // namespace plimsoll
