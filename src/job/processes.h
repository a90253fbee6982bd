// Numbers of processes that every sharding setting has: how many there are, and which of them is asked about.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/config.h"

namespace plimsoll {

// The mapping of a setting, or text like "world=8"; unknown keys are errors.
Config process_fields(const nlohmann::json& value, const std::string& source, const std::vector<std::string>& known);
int64_t world_of(const Config& c);
int64_t rank_of(const Config& c, int64_t ranks, const char* hint);
// replicas: into how many equal groups `world` is divided.
int64_t replicas_of(const Config& c, int64_t world);
// Over how many ranks something is divided; 1 where it is not given.
int64_t degree_of(const Config& c, const char* key);
std::string divisors_of(int64_t n);                         // "1, 2, 4"
std::string nearest_multiples(int64_t divisor, int64_t n);  // "the nearest: 56 and 64"

}  // namespace plimsoll
