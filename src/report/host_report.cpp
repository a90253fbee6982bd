#include "report/host_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/fit_report.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

doc::Text range_text(const ByteRange& r) { return r.is_exact() ? doc::Text() : doc::interval(r.low, r.high); }

void add_row(doc::Facts& facts, const std::string& name, const ByteRange& size, const doc::Text& source) {
  doc::Text meaning = range_text(size);
  if (!meaning.empty() && !source.empty()) meaning += "; ";
  facts.facts.push_back({name, size.bytes, doc::dim(meaning + source)});
}

void add_rows(doc::Facts& facts, const std::vector<HostRow>& rows) {
  for (const HostRow& r : rows) add_row(facts, r.name, r.size, r.source);
}

std::string loader_text(const HostSettings& s) {
  std::string out = s.workers == 0 ? std::string("no workers")
                                   : fmt::format("{} workers ({}), prefetch_factor {}", s.workers, to_string(s.start_method), s.prefetch());
  if (s.persistent_workers) out += ", persistent";
  if (s.pin_memory) out += ", pin_memory";
  if (s.cache != CacheKind::none) out += fmt::format(", cache {}", to_string(s.cache));
  if (s.ranks_per_host > 1) out += fmt::format(", {} processes", s.ranks_per_host);
  return out;
}

// What a user sees when it goes wrong, word for word.
void add_failures(doc::Facts& facts, const HostFit& f) {
  const auto add = [&](const char* text) { facts.facts.push_back({"it would end with", text}); };
  if (f.ram == Verdict::does_not_fit)
    add("the kernel killing a process: \"DataLoader worker (pid N) is killed by signal: Killed\", exit code 137");
  if (f.shm == Verdict::does_not_fit)
    add("\"unable to allocate shared memory(shm) for file </torch_...>: No space left on device (28)\"; older PyTorch: \"DataLoader worker "
        "(pid N) is killed by signal: Bus error\"");
}

void add_capacity(doc::Facts& facts, const HostFit& f) {
  if (f.target.total) facts.facts.push_back({"machine", *f.target.total, f.target.source + ": " + verdict_text(f.ram)});
  if (f.target.shm && f.need.shm.high.count > 0)
    facts.facts.push_back({"its /dev/shm", *f.target.shm, f.target.shm_source + ": " + verdict_text(f.shm)});
}

void add_room(doc::Facts& facts, const HostRoom& r, const HostSettings& now) {
  if (r.workers)
    facts.facts.push_back(
        {"workers that fit",
         *r.workers == HostRoom::kMostWorkers ? fmt::format("{} and more", *r.workers) : fmt::format("up to {}", *r.workers),
         fmt::format("with the loader's settings; {} now", now.workers)});
  if (r.cache)
    facts.facts.push_back({"a cache in RAM", r.cache_bytes,
                           fmt::format("for {} items with cache: ram: ", with_commas(now.dataset_size)) + verdict_text(*r.cache)});
}

doc::Blocks advice_blocks(const HostFit& f) {
  if (f.advice.empty()) return {};
  doc::List list;
  for (const HostAdvice& a : f.advice) {
    doc::Text item = a.change;
    if (a.saving.count > 0)
      item += doc::Text(": saves ") + a.saving + (a.shm ? " of /dev/shm" : "") + ", then it " +
              (a.after == Verdict::fits    ? "fits"
               : a.after == Verdict::tight ? "is tight"
                                           : "still does not fit");
    list.items.push_back(item);
  }
  return {doc::Heading{"What to change"}, std::move(list)};
}

Json rows_json(const std::vector<HostRow>& rows) {
  Json out = Json::array();
  for (const HostRow& r : rows) {
    Json j{{"name", r.name}};
    j.update(range_json(r.size));
    j["source"] = r.source;
    out.push_back(std::move(j));
  }
  return out;
}

Json value(std::optional<Bytes> b) { return b ? Json(b->count) : Json(nullptr); }

// What only loading has.
doc::Text loads_text(const HostEstimate& e) {
  doc::Text out;
  for (const HostRow& r : e.loading)
    if (std::none_of(e.steady.begin(), e.steady.end(), [&](const HostRow& s) { return s.name == r.name; }))
      out += doc::Text(" + ") + r.size.bytes + " (" + r.name + ": " + r.source + ")";
  return out;
}

}  // namespace

doc::Blocks host_blocks(const HostFit& f, const HostSettings& settings) {
  const HostEstimate& e = f.need;
  doc::Facts facts;
  add_rows(facts, e.steady);
  add_row(facts, "steady state", e.steady_peak, "the sum");
  for (const HostRow& r : e.saving) add_row(facts, "saving a checkpoint", e.save_peak, doc::Text("+ ") + r.size.bytes + ": " + r.source);
  add_row(facts, "loading the model", e.load_peak, "before workers and batches:" + loads_text(e));
  if (e.shm.high.count > 0) add_row(facts, "of it in /dev/shm", e.shm, "counts as RAM and against the size of /dev/shm");
  add_capacity(facts, f);
  add_failures(facts, f);
  add_room(facts, f.room, settings);
  doc::List notes;
  for (const std::string& note : e.notes) notes.items.push_back("note: " + doc::Text(note));
  if ((!f.target.shm || *f.target.shm > kDockerShm) && e.shm.high > kDockerShm)
    notes.items.push_back(doc::Text("note: Docker gives a container ") + kDockerShm +
                          " of /dev/shm unless --shm-size or --ipc=host says otherwise");
  doc::Blocks out{doc::Heading{"Host memory", loader_text(settings)}, std::move(facts)};
  if (!notes.items.empty()) out.emplace_back(std::move(notes));
  doc::append(out, advice_blocks(f));
  return out;
}

Json host_json(const HostFit& f) {
  const HostEstimate& e = f.need;
  Json j{{"rows", rows_json(e.steady)}, {"saving", rows_json(e.saving)}, {"loading", rows_json(e.loading)}};
  j["steady"] = range_json(e.steady_peak);
  j["save"] = range_json(e.save_peak);
  j["load"] = range_json(e.load_peak);
  j["shm"] = range_json(e.shm);
  j["disk_bytes"] = e.disk.count;
  j["notes"] = e.notes;
  j["target"] = {{"total_bytes", value(f.target.total)}, {"shm_bytes", value(f.target.shm)}, {"source", f.target.source}};
  j["verdict"] = to_string(f.overall());
  j["ram_verdict"] = to_string(f.ram);
  j["shm_verdict"] = to_string(f.shm);
  j["most_workers"] = f.room.workers ? Json(*f.room.workers) : Json(nullptr);
  j["cache"] = f.room.cache ? Json{{"bytes", f.room.cache_bytes.count}, {"verdict", to_string(*f.room.cache)}} : Json(nullptr);
  j["advice"] = Json::array();
  for (const HostAdvice& a : f.advice)
    j["advice"].push_back({{"change", a.change},
                           {"of", a.shm ? "shm" : "ram"},
                           {"saving_bytes", a.saving.count},
                           {"need_bytes", a.need.count},
                           {"verdict", to_string(a.after)}});
  return j;
}

doc::Blocks unified_blocks(const UnifiedEstimate& e, int64_t batch) {
  doc::Facts steps, loading;
  for (const UnifiedStep& s : e.steps)
    steps.facts.push_back({s.name, s.bytes ? doc::Text(*s.bytes) : doc::Text(doc::Count{*s.samples}), doc::dim(s.source)});
  steps.facts.push_back({fmt::format("batch {} needs", batch), e.need, doc::Text("with the system: ") + verdict_text(e.verdict)});
  add_rows(loading, e.loading);
  add_row(loading, "loading the model", e.load_peak, "that " + verdict_text(e.load_verdict));
  return {doc::Heading{"Unified memory", "one pool for device and host, step by step"}, std::move(steps),
          doc::Heading{"While the model is loaded"}, std::move(loading)};
}

Json unified_json(const UnifiedEstimate& e) {
  Json j{{"total_bytes", e.pool.total.count}, {"source", e.pool.source}, {"margin", e.pool.margin}};
  j["device_limit_bytes"] = value(e.pool.device_limit);
  j["steps"] = Json::array();
  for (const UnifiedStep& s : e.steps) {
    Json step{{"name", s.name}};
    if (s.bytes) step["bytes"] = s.bytes->count;
    if (s.samples) step["samples"] = *s.samples;
    step["source"] = s.source;
    j["steps"].push_back(std::move(step));
  }
  j["simulated"] = Json::array();
  for (const UnifiedPoint& p : e.simulated)
    j["simulated"].push_back({{"batch", p.batch}, {"device_bytes", p.device.count}, {"host_bytes", p.host.count}});
  j["max_batch"] = e.max_batch;
  j["more_may_fit"] = e.at_bound;
  j["need_bytes"] = e.need.count;
  j["verdict"] = to_string(e.verdict);
  j["loading"] = rows_json(e.loading);
  j["load"] = range_json(e.load_peak);
  j["load_verdict"] = to_string(e.load_verdict);
  return j;
}

}  // namespace plimsoll
