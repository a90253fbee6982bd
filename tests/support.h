// What many tests need: a job from its settings, the words of an Error, and a look into a trace.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/settings.h"
#include "model/resolve.h"
#include "trace/trace.h"

namespace plimsoll {

inline Job job_of(const std::string& model, const nlohmann::json& settings) {
  Job job;
  apply_setting(job, "model", model, "test");
  for (const auto& [key, value] : settings.items()) apply_setting(job, key, value, "test");
  resolve_model(job);
  return job;
}

// Message and hint; empty when nothing is thrown.
inline std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

// Storages of so many bytes that the op allocated in a phase.
inline int count(const Trace& trace, Phase phase, const char* op, int64_t bytes) {
  int n = 0;
  for (const StorageRecord& s : trace.storages) n += s.phase == phase && trace.names[s.op] == op && s.bytes == bytes;
  return n;
}

// Bytes of a category that are alive when the run has ended.
inline int64_t alive_at_end(const Trace& trace, Category c) {
  std::vector<Category> label(trace.storages.size());
  std::vector<bool> alive(trace.storages.size());
  for (const Event& e : trace.events) {
    if (e.kind == Event::Kind::alloc) {
      alive[e.storage] = true;
      label[e.storage] = trace.storages[e.storage].born_as;
    }
    if (e.kind == Event::Kind::free) alive[e.storage] = false;
    if (e.kind == Event::Kind::relabel) label[e.storage] = static_cast<Category>(e.value);
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < alive.size(); ++i)
    if (alive[i] && label[i] == c) bytes += trace.storages[i].bytes;
  return bytes;
}

}  // namespace plimsoll
