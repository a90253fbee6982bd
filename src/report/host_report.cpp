#include "report/host_report.h"
#include "report/fit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string range_text(const ByteRange& r) { return r.is_exact() ? "" : fmt::format("{} to {}", to_string(r.low), to_string(r.high)); }

std::string row_text(const std::string& name, const ByteRange& size, const std::string& source, const Style& style) {
  return fmt::format("  {:<22} {:>11}  {:<24}  {}\n", name, to_string(size.bytes), range_text(size), style.dim(source));
}

std::string rows_text(const std::vector<HostRow>& rows, const Style& style) {
  std::string out;
  for (const HostRow& r : rows) out += row_text(r.name, r.size, r.source, style);
  return out;
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

std::string verdict_word(Verdict v, const Style& style) {
  const std::string word = to_string(v);
  if (v == Verdict::fits) return style.green(word);
  return v == Verdict::does_not_fit ? style.red(word) : style.bold(word);
}

// What a user sees when it goes wrong, word for word.
std::string failures(const HostFit& f) {
  std::string out;
  if (f.ram == Verdict::does_not_fit)
    out +=
        "  it would end with       the kernel killing a process: \"DataLoader worker (pid N) is killed by signal: Killed\", exit code "
        "137\n";
  if (f.shm == Verdict::does_not_fit)
    out +=
        "  it would end with       \"unable to allocate shared memory(shm) for file </torch_...>: No space left on device (28)\"; older\n"
        "                          PyTorch: \"DataLoader worker (pid N) is killed by signal: Bus error\"\n";
  return out;
}

std::string capacity_text(const HostFit& f, const Style& style) {
  std::string out;
  if (f.target.total)
    out += fmt::format("  {:<22} {:>11}  {}: {}\n", "machine", to_string(*f.target.total), f.target.source, verdict_word(f.ram, style));
  if (f.target.shm && f.need.shm.high.count > 0)
    out +=
        fmt::format("  {:<22} {:>11}  {}: {}\n", "its /dev/shm", to_string(*f.target.shm), f.target.shm_source, verdict_word(f.shm, style));
  return out;
}

std::string room_text(const HostRoom& r, const HostSettings& now) {
  std::string out;
  if (r.workers)
    out += fmt::format("  {:<22} {:>11}  as the loader's settings have them; {} now\n", "workers that fit",
                       *r.workers == HostRoom::kMostWorkers ? fmt::format("{} and more", *r.workers) : fmt::format("up to {}", *r.workers),
                       now.workers);
  if (r.cache)
    out += fmt::format("  {:<22} {:>11}  for {} items with cache: ram: {}\n", "a cache in RAM", to_string(r.cache_bytes),
                       with_commas(now.dataset_size), to_string(*r.cache));
  return out;
}

std::string advice_text(const HostFit& f) {
  if (f.advice.empty()) return "";
  std::string out = "\nWhat to change\n";
  for (const HostAdvice& a : f.advice) {
    out += "  " + a.change;
    if (a.saving.count > 0)
      out += fmt::format(": saves {}{}, then it {}", to_string(a.saving), a.shm ? " of /dev/shm" : "",
                         a.after == Verdict::fits    ? "fits"
                         : a.after == Verdict::tight ? "is tight"
                                                     : "still does not fit");
    out += "\n";
  }
  return out;
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
std::string loads_text(const HostEstimate& e) {
  std::string out;
  for (const HostRow& r : e.loading)
    if (std::none_of(e.steady.begin(), e.steady.end(), [&](const HostRow& s) { return s.name == r.name; }))
      out += fmt::format(" + {} ({}: {})", to_string(r.size.bytes), r.name, r.source);
  return out;
}

}  // namespace

std::string host_text(const HostFit& f, const HostSettings& settings, const Style& style) {
  const HostEstimate& e = f.need;
  std::string out = style.bold("Host memory") + "  " + loader_text(settings) + "\n" + rows_text(e.steady, style);
  out += row_text("steady state", e.steady_peak, "the sum", style);
  for (const HostRow& r : e.saving)
    out += row_text("saving a checkpoint", e.save_peak, fmt::format("+ {}: {}", to_string(r.size.bytes), r.source), style);
  out += row_text("loading the model", e.load_peak, "before workers and batches:" + loads_text(e), style);
  if (e.shm.high.count > 0) out += row_text("of it in /dev/shm", e.shm, "counts as RAM and against the size of /dev/shm", style);
  out += capacity_text(f, style) + failures(f) + room_text(f.room, settings);
  for (const std::string& note : e.notes) out += "  note: " + note + "\n";
  if (!f.target.shm || *f.target.shm > kDockerShm)
    if (e.shm.high > kDockerShm)
      out += fmt::format("  note: Docker gives a container {} of /dev/shm unless --shm-size or --ipc=host says otherwise\n",
                         to_string(kDockerShm));
  return out + advice_text(f);
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

std::string unified_text(const UnifiedEstimate& e, int64_t batch, const Style& style) {
  std::string out = style.bold("Unified memory") + "  one pool for device and host, step by step\n";
  for (const UnifiedStep& s : e.steps)
    out += fmt::format("  {:<26} {:>11}  {}\n", s.name, s.bytes ? to_string(*s.bytes) : with_commas(*s.samples), style.dim(s.source));
  out += fmt::format("  {:<26} {:>11}  with the system: {}\n", fmt::format("batch {} needs", batch), to_string(e.need),
                     verdict_word(e.verdict, style));
  out += fmt::format("\n{}\n", style.bold("While the model comes in")) + rows_text(e.loading, style);
  return out + row_text("loading the model", e.load_peak, "", style) + "  that " + verdict_word(e.load_verdict, style) + "\n";
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
