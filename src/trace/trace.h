// What one process allocated and freed on one device, in program order, and nothing else. A simulated step, a captured
// run and a PyTorch memory snapshot all become this; allocators and reports read only this.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "util/bytes.h"

namespace plimsoll {

// What a storage is for. `activation`, `backward` and `optimizer` are named after the phase that made them and
// are what is left when nothing better is known. `workspace` is what kernels take for themselves. `gradient` starts when a
// gradient is accumulated into its parameter. `ddp_bucket` is the flat memory that gradients are reduced in; the last four are
// what sharding makes on the way: whole weights, their gradients, and what is gathered and reduced.
enum class Category : uint8_t {
  parameter,
  buffer,
  input,
  gradient,
  optimizer_state,
  ema,
  activation,
  backward,
  optimizer,
  workspace,
  ddp_bucket,
  unsharded_parameter,
  unsharded_gradient,
  gather_buffer,
  reduce_buffer,
};
inline constexpr int kCategories = 15;
std::string_view category_name(Category c);

enum class Phase : uint8_t { setup, forward, backward, optimizer, ema, evaluation, sampling };
inline constexpr int kPhases = 7;
std::string_view phase_name(Phase p);

using StorageId = uint32_t;
using ScopeId = uint32_t;  // index into Trace::scopes; 0 is the root
using NameId = uint32_t;   // index into Trace::names; 0 is ""

struct Scope {
  ScopeId parent = 0;
  NameId name = 0;
};

struct StorageRecord {
  int64_t bytes = 0;
  NameId op = 0;
  ScopeId scope = 0;
  Category born_as = Category::activation;
  Phase phase = Phase::setup;
};

struct Event {
  enum class Kind : uint8_t { alloc, free, relabel, phase, step };
  Kind kind = Kind::alloc;
  uint8_t value = 0;      // alloc: the Stream (stream.h); relabel: the new Category; phase: the Phase that begins
  StorageId storage = 0;  // alloc, free, relabel
};

struct Trace {
  std::vector<StorageRecord> storages;
  std::vector<Event> events;
  std::vector<Scope> scopes{Scope{}};
  std::vector<std::string> names{""};
  std::vector<NameId> shapes;  // by storage, "(8, 1024, 768) bf16" of its first tensor; empty: not kept

  NameId intern(std::string_view name);
  ScopeId add_scope(ScopeId parent, std::string_view name);
  std::string scope_path(ScopeId scope) const;  // "transformer.h.0.attn"

 private:
  std::unordered_map<std::string, NameId> name_ids_;
};

}  // namespace plimsoll
