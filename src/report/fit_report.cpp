#include "report/fit_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string paint(const Style& style, Verdict v, const std::string& text) {
  if (v == Verdict::fits) return style.green(text);
  return v == Verdict::does_not_fit ? style.red(text) : v == Verdict::tight ? style.bold(text) : style.dim(text);
}

std::string signed_size(Bytes b) { return (b.count < 0 ? "-" : "+") + to_string(Bytes{b.count < 0 ? -b.count : b.count}); }

// What fails first, for people.
std::string failure_text(const FirstFailure& f) {
  std::string where = f.module;
  if (!f.op.empty()) where += (where.empty() ? "" : ", ") + f.op;
  return fmt::format("first fails in {}, {}{}: {}", f.step, phase_name(f.phase), where.empty() ? "" : " (" + where + ")",
                     oom_message(f.numbers));
}

}  // namespace

std::string overheads_text(const std::vector<Overhead>& overheads, const Style& style) {
  std::string out;
  for (const Overhead& o : overheads)
    out += fmt::format("    {:<26}{:>11}   {}\n", o.name, to_string(o.range.bytes),
                       style.dim(fmt::format("{} to {}; {}", to_string(o.range.low), to_string(o.range.high), o.source)));
  return out;
}

std::string correction_text(const Correction& c, const Style& style) {
  const std::string spread = c.lowest == c.highest ? "" : fmt::format(" ({} to {})", signed_size(c.lowest), signed_size(c.highest));
  return fmt::format(
      "    {:<26}{:>11}   {}\n", "measured before", signed_size(c.residual),
      style.dim(fmt::format("{} like run{} on this machine{}; without: {}, {} to {} (--no-calibration)", c.runs, c.runs == 1 ? "" : "s",
                            spread, to_string(c.before.bytes), to_string(c.before.low), to_string(c.before.high))));
}

std::string fits_text(const std::vector<Fit>& fits, const Style& style) {
  std::string out = style.bold("Will it fit?") + "\n";
  out += style.dim(fmt::format("  {:<34} {:>11} {:>11} {:>11}   {:<13} {}", "device", "has", "needs", "margin", "verdict", "")) + "\n";
  for (const Fit& f : fits) {
    const std::string has = f.device.capacity ? to_string(f.device.capacity->bytes) : "?";
    out += fmt::format("  {:<34} {:>11} {:>11} {:>11}   {} {}\n", f.device.name.substr(0, 34), has, to_string(f.memory.device.bytes),
                       f.device.capacity ? signed_size(f.margin) : "?",
                       paint(style, f.verdict, fmt::format("{:<13}", to_string(f.verdict))), style.dim(f.reason));
    if (f.device.others.count > 0) out += fmt::format("    other processes use {} of it\n", to_string(f.device.others));
    if (f.failure && fits.size() <= 8) out += "    " + failure_text(*f.failure) + "\n";
    if (f.device.capacity && fits.size() <= 8)
      out += style.dim(fmt::format("    needs {} to {}; has: {}\n", to_string(f.memory.device.low), to_string(f.memory.device.high),
                                   f.device.capacity->basis));
    if (fits.size() > 1 && fits.size() <= 3) out += overheads_text(f.memory.overheads, style);
    if (fits.size() > 1 && f.memory.correction) out += correction_text(*f.memory.correction, style);
  }
  return out;
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
