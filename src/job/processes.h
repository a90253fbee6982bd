// Numbers of processes that every sharding setting has: how many there are, and which of them is asked about.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/config.h"
#include "job/field.h"

namespace plimsoll {

int64_t world_of(const Config& c);
int64_t rank_of(const Config& c, int64_t ranks, const char* hint);
// replicas: into how many equal groups `world` is divided.
int64_t replicas_of(const Config& c, int64_t world);
// Over how many ranks something is divided; 1 where it is not given.
int64_t degree_of(const Config& c, const char* key);
std::string divisors_of(int64_t n);                         // "1, 2, 4"
std::string nearest_multiples(int64_t divisor, int64_t n);  // "the nearest: 56 and 64"
void check_stage(const Config& c, int64_t stage, int64_t stages);
std::string process_example(const std::string& source);  // "e.g. ddp: {world: 8} or --ddp world=8"

namespace field {

template <class T>
Field<T> world() {
  return {"world", [](T& t, const Config& c) { t.world = world_of(c); }, [](const T& t) { return t.world; }};
}

// After the fields that say how many ranks there are: `ranks(t)`.
template <class T, class Ranks>
Field<T> rank(Ranks ranks, const char* hint) {
  return {"rank", [=](T& t, const Config& c) { t.rank = rank_of(c, ranks(t), hint); }, [](const T& t) { return t.rank; }};
}

template <class T>
Field<T> replicas() {
  return {"replicas", [](T& t, const Config& c) { t.replicas = replicas_of(c, t.world); }, [](const T& t) { return t.replicas; }};
}

template <class T>
Field<T> degree(const char* key, int64_t T::*m) {
  return {key, [=](T& t, const Config& c) { t.*m = degree_of(c, key); }, [=](const T& t) { return t.*m; }};
}

// The stage that is asked about; left out: the largest of them. After pipeline.
template <class T>
Field<T> stage() {
  return {"stage",
          [](T& t, const Config& c) {
            if (!c.find({"stage"})) return;
            t.stage = c.integer({"stage"}, 0);
            check_stage(c, *t.stage, t.pipeline);
          },
          [](const T& t) { return t.stage ? nlohmann::ordered_json(*t.stage) : left_out(); }};
}

}  // namespace field

}  // namespace plimsoll
