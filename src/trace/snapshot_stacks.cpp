#include "trace/snapshot_stacks.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/text.h"

namespace plimsoll {

namespace {

using Kind = Pickle::Kind;

std::string_view base_name(std::string_view path) {
  const size_t slash = path.find_last_of("/\\");
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The finalizer of SplitMix64: every bit depends on every other.
uint64_t mixed(uint64_t x) {
  x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 30)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A Python frame of the user or of a library above PyTorch, or a module of a simulated run (snapshot_writer.h).
bool outside_of_pytorch(std::string_view file) {
  return file.starts_with(kSimulatedFile) || (file.ends_with(".py") && !has(file, "/torch/") && !has(file, "\\torch\\"));
}

// A module by its path, an op with its module: "transformer.h.0", "addmm (transformer.h.0)".
std::string simulated_place(std::string_view name, std::string_view module) {
  if (module.empty()) return printable(name, 60);
  if (module == name || module.ends_with("." + std::string(name))) return printable(module, 120);
  return fmt::format("{} ({})", printable(name, 60), printable(module, 120));
}

}  // namespace

SnapshotStacks::SnapshotStacks(const Pickle& pickle, Snapshot& out) : pickle_(pickle), out_(out) {}

uint32_t SnapshotStacks::stack(Pickle::Id frames) {
  if (pickle_.kind(frames) != Kind::list || pickle_.size(frames) == 0) return 0;
  uint64_t hash = pickle_.size(frames);
  for (const Pickle::Id id : pickle_.items(frames)) hash = mixed(hash ^ id);
  const auto [it, added] = stacks_.try_emplace(hash, static_cast<uint32_t>(out_.stacks.size()));
  if (!added) return it->second;
  SnapshotStack s;
  for (const Pickle::Id id : pickle_.items(frames)) {
    const Frame f = frame(id);
    s.empties_cache |= f.empties_cache;
    if (s.place == 0) s.place = f.place;
    if (f.place != 0) s.frames.push_back(f.place);
  }
  std::reverse(s.frames.begin(), s.frames.end());
  out_.stacks.push_back(std::move(s));
  return it->second;
}

SnapshotStacks::Frame SnapshotStacks::frame(Pickle::Id id) {
  const auto it = frames_.find(id);
  return it != frames_.end() ? it->second : frames_.emplace(id, look_at(id)).first->second;
}

SnapshotStacks::Frame SnapshotStacks::look_at(Pickle::Id id) {
  if (pickle_.kind(id) != Kind::dict) return {false, 0};
  std::string_view name, file;
  int64_t line = 0;
  const auto find = [&](Pickle::Id& id, std::string_view text) {
    if (id == Pickle::kNothing) id = pickle_.find_text(text);
  };
  find(name_, "name"), find(filename_, "filename"), find(line_, "line");
  for (auto it = pickle_.items(id).begin(); it != std::default_sentinel; ++it) {
    const Pickle::Id key = *it, value = *++it;
    const Kind kind = pickle_.kind(value);
    if (key == name_ && kind == Kind::text) name = pickle_.text(value);
    if (key == filename_ && kind == Kind::text) file = pickle_.text(value);
    if (key == line_ && kind == Kind::integer) line = pickle_.integer(value);
  }
  // Python's function, and the C++ method for files without Python frames.
  const bool empties = name == "empty_cache" || has(name, "::emptyCache(") || has(name, "_emptyCache(");
  if (!outside_of_pytorch(file)) return {empties, 0};
  std::string place = file.starts_with(kSimulatedFile)
                          ? simulated_place(name, file.substr(kSimulatedFile.size()))
                          : fmt::format("{} ({}:{})", printable(name, 60), printable(base_name(file), 60), line);
  const auto [it, added] = places_.try_emplace(std::move(place), static_cast<uint32_t>(out_.places.size()));
  if (added) out_.places.push_back(it->first);
  return {empties, it->second};
}

}  // namespace plimsoll
