#include "report/captured_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "program/captured.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string script_of(const CapturedTrace& t) { return printable(t.script.empty() ? std::string("a trace") : t.script, 120); }

Json sizes_json(const SymbolSizes& sizes) {
  Json out = Json::object();
  for (const auto& [name, value] : sizes) out[name] = value;
  return out;
}

doc::Table symbols_table(const CapturedTrace& t, const SymbolSizes& now) {
  using doc::Kind;
  doc::Table out{{{"symbol"}, {"here", Kind::number}, {"captured at", Kind::number}, {"from", Kind::number}, {"to", Kind::number}}};
  for (const CapturedSymbol& s : t.symbols)
    out.rows.push_back({{s.name, doc::Count{now.at(s.name)}, doc::Count{s.at}, doc::Count{s.least}, doc::Count{s.most}}});
  return out;
}

doc::Table conditions_table(const CapturedTrace& t) {
  doc::Table out{{{"holds while"}, {"needed by"}}};
  for (const CapturedCondition& c : t.conditions)
    out.rows.push_back({{printable(c.condition.text(), 120), printable(c.where, 120) + (c.pin ? ", which read a size as a number" : "")}});
  return out;
}

}  // namespace

std::string captured_text(const Job& job) {
  const std::string sizes = sizes_text(sizes_of(job));
  return fmt::format("captured from {}{}{}", script_of(*job.captured), sizes.empty() ? "" : ", " + sizes,
                     job.alloc_conf.empty() ? "" : ", " + job.alloc_conf);
}

std::string grade_text(const Job& job) {
  const CaptureGrade grade = grade_of(job);
  if (grade != CaptureGrade::assumes) return to_string(grade);
  const size_t n = assumptions_of(job).size();
  return fmt::format("assumes {} thing{}", n, n == 1 ? "" : "s");
}

std::string captured_certainty(const Job& job) {
  const CapturedTrace& t = *job.captured;
  const std::string sizes = sizes_text(t.base());
  std::string out = "How sure: ";
  switch (grade_of(job)) {
    case CaptureGrade::exact_here: out += "these are the sizes of the capture, and every allocation is the one that was captured."; break;
    case CaptureGrade::by_formula:
      out += fmt::format(
          "sizes are formulas of the capture at {}, and all {} guards and pins of the program hold here; no fresh capture was compared.",
          sizes, t.conditions.size());
      break;
    case CaptureGrade::checked:
      out += fmt::format("formulas of the capture at {} were equal to a fresh capture at these sizes.", sizes);
      break;
    case CaptureGrade::assumes: out += "not everything the program read was known when it was captured; the lines above name it."; break;
  }
  if (t.depends_on_counts()) out += " Sizes that follow from the data are intervals: with none, and with all of what could be counted.";
  return out + " Kernels' own scratch is not in a capture, but for the workspaces of cuBLAS.";
}

doc::Blocks assumption_blocks(const Job& job) {
  doc::List list;
  for (std::string& line : assumptions_of(job)) list.items.emplace_back(std::move(line));
  if (list.items.empty()) return {};
  return {doc::Heading{"Assumed"}, std::move(list)};
}

doc::Blocks captured_blocks(const Job& job) {
  const CapturedTrace& t = *job.captured;
  doc::Facts facts;
  facts.facts.push_back({"script", script_of(t)});
  if (!t.torch.empty()) facts.facts.push_back({"torch", printable(t.torch, 40)});
  if (!t.device.empty()) facts.facts.push_back({"captured as", printable(t.device, 60)});
  facts.facts.push_back({"answer", grade_text(job)});
  facts.facts.push_back({"events", with_commas(static_cast<int64_t>(t.program.events.size()))});
  facts.facts.push_back({"formulas", with_commas(static_cast<int64_t>(t.formulas.size()))});
  doc::Blocks out{doc::Heading{"The captured program"}, std::move(facts)};
  if (!t.symbols.empty()) out.emplace_back(symbols_table(t, sizes_of(job)));
  if (!t.conditions.empty()) doc::append(out, {doc::Heading{"Where it holds"}, conditions_table(t)});
  doc::append(out, assumption_blocks(job));
  return out;
}

std::vector<std::string> capture_grades() {
  std::vector<std::string> out;
  for (int g = 0; g <= static_cast<int>(CaptureGrade::assumes); ++g) out.emplace_back(to_string(static_cast<CaptureGrade>(g)));
  return out;
}

Json captured_json(const Job& job) {
  const CapturedTrace& t = *job.captured;
  Json out{{"script", t.script},
           {"torch", t.torch},
           {"grade", to_string(grade_of(job))},
           {"sizes", sizes_json(sizes_of(job))},
           {"captured_sizes", sizes_json(t.base())}};
  out["assumptions"] = assumptions_of(job);
  out["conditions"] = Json::array();
  for (const CapturedCondition& c : t.conditions)
    out["conditions"].push_back({{"condition", c.condition.text()}, {"kind", c.pin ? "pin" : "guard"}, {"where", c.where}});
  out["interval_from_counts"] = t.depends_on_counts();
  out["capture_command"] = capture_command(job);
  return out;
}

}  // namespace plimsoll
