#include "report/fit_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

// What PyTorch says there. Of frameworks whose words are not known, what it tried alone.
std::string message_on(const std::string& vendor, const OomNumbers& numbers) {
  std::string out = oom_message(numbers);
  if (vendor.empty() || vendor == "NVIDIA") return out;
  if (vendor != "AMD") return fmt::format("{} could not be allocated", to_string(Bytes{numbers.tried}));
  for (size_t at = out.find("CUDA"); at != std::string::npos; at = out.find("CUDA", at)) out.replace(at, 4, "HIP");
  return out;
}

// What fails first, for people.
std::string failure_text(const FirstFailure& f, const std::string& vendor) {
  std::string where = f.module;
  if (!f.op.empty()) where += (where.empty() ? "" : ", ") + f.op;
  return fmt::format("first fails in {}, {}{}: {}", f.step, phase_name(f.phase), where.empty() ? "" : " (" + where + ")",
                     message_on(vendor, f.numbers));
}

}  // namespace

doc::Text verdict_text(Verdict v) {
  const doc::Text word = to_string(v);
  switch (v) {
    case Verdict::fits: return doc::good(word);
    case Verdict::tight: return doc::bold(word);
    case Verdict::does_not_fit: return doc::bad(word);
    case Verdict::unknown: break;
  }
  return doc::dim(word);
}

void add_overheads(doc::Facts& facts, const std::vector<Overhead>& overheads) {
  for (const Overhead& o : overheads)
    facts.facts.push_back({o.name, o.range.bytes, doc::dim(doc::interval(o.range.low, o.range.high) + "; " + o.source), 1});
}

void add_correction(doc::Facts& facts, const Correction& c) {
  doc::Text meaning = fmt::format("{} similar run{} on this machine", c.runs, c.runs == 1 ? "" : "s");
  if (c.lowest != c.highest) meaning += doc::Text(" (") + doc::Change{c.lowest} + " to " + doc::Change{c.highest} + ")";
  meaning += doc::Text("; without: ") + c.before.bytes + ", " + doc::interval(c.before.low, c.before.high) + " (--no-calibration)";
  facts.facts.push_back({"measured before", doc::Change{c.residual}, doc::dim(meaning), 1});
}

namespace {

// Lines under a device's row; with many devices the row has to do.
std::vector<doc::Text> details_of(const Fit& f, size_t devices) {
  std::vector<doc::Text> out;
  if (f.device.others.count > 0) out.push_back(doc::Text("other processes use ") + f.device.others + " of it");
  if (f.failure && devices <= 8) out.emplace_back(failure_text(*f.failure, f.device.spec.vendor));
  if (f.device.capacity && devices <= 8)
    out.push_back(
        doc::dim(doc::Text("needs ") + doc::interval(f.memory.device.low, f.memory.device.high) + "; has: " + f.device.capacity->basis));
  doc::Facts more;
  if (devices > 1 && devices <= 3) add_overheads(more, f.memory.overheads);
  if (devices > 1 && f.memory.correction) add_correction(more, *f.memory.correction);
  for (const doc::Fact& fact : more.facts) out.push_back(fact.name + ": " + fact.value + "; " + fact.meaning);
  return out;
}

}  // namespace

doc::Blocks fits_blocks(const std::vector<Fit>& fits) {
  using doc::Kind;
  if (fits.empty()) return {};
  doc::Table table{{{"device"}, {"has", Kind::size}, {"needs", Kind::size}, {"margin", Kind::size}, {"verdict"}, {""}}};
  for (const Fit& f : fits)
    table.rows.push_back({{f.device.name, f.device.capacity ? doc::Text(f.device.capacity->bytes) : "?", f.memory.device.bytes,
                           f.device.capacity ? doc::Text(doc::Change{f.margin}) : "?", verdict_text(f.verdict), doc::dim(f.reason)},
                          details_of(f, fits.size())});
  return {doc::Heading{"Will it fit?"}, std::move(table)};
}

Json range_json(const ByteRange& r) { return {{"bytes", r.bytes.count}, {"low_bytes", r.low.count}, {"high_bytes", r.high.count}}; }

Json overheads_json(const std::vector<Overhead>& overheads) {
  Json rows = Json::array();
  for (const Overhead& o : overheads) {
    Json row{{"name", o.name}};
    row.update(range_json(o.range));
    row["source"] = o.source;
    rows.push_back(row);
  }
  return rows;
}

Json correction_json(const Correction& c) {
  return {{"residual_bytes", c.residual.count},
          {"runs", c.runs},
          {"lowest_bytes", c.lowest.count},
          {"highest_bytes", c.highest.count},
          {"before", range_json(c.before)}};
}

Json fits_json(const std::vector<Fit>& fits) {
  Json rows = Json::array();
  for (const Fit& f : fits) {
    Json row{{"device", f.device.name}, {"device_id", f.device.spec.id}, {"verdict", to_string(f.verdict)}, {"reason", f.reason}};
    if (const std::optional<Capacity>& c = f.device.capacity) {
      row["capacity"] = {{"bytes", c->bytes.count}, {"low_bytes", c->low.count}, {"high_bytes", c->high.count}, {"basis", c->basis}};
    } else {
      row["capacity"] = nullptr;
    }
    row["margin_bytes"] = f.device.capacity ? Json(f.margin.count) : Json(nullptr);
    row["others_bytes"] = f.device.others.count;
    row["allocated"] = range_json(f.memory.allocated);
    row["reserved"] = range_json(f.memory.reserved);
    row["device_peak"] = range_json(f.memory.device);
    row["overheads"] = overheads_json(f.memory.overheads);
    if (f.memory.correction) row["correction"] = correction_json(*f.memory.correction);
    row["retries"] = f.retries;
    row["first_failure"] = nullptr;
    if (f.failure)
      row["first_failure"] = {
          {"step", f.failure->step}, {"phase", phase_name(f.failure->phase)},   {"module", f.failure->module},
          {"op", f.failure->op},     {"tried_bytes", f.failure->numbers.tried}, {"message", oom_message(f.failure->numbers)}};
    rows.push_back(row);
  }
  return rows;
}

}  // namespace plimsoll
