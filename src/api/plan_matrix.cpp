#include "api/plan_matrix.h"

#include <fmt/format.h>

#include <algorithm>

#include "job/settings.h"
#include "plan/candidate.h"
#include "plan/search.h"
#include "report/fit_report.h"
#include "report/plan_report.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRuns = 4096;

struct Axis {
  std::string key;
  std::vector<std::string> values;
};

// "gpu=a,b,batch=1,2": a value with '=' begins the next axis.
std::vector<Axis> axes_of(const std::string& text) {
  std::vector<Axis> out;
  for (const std::string& part : split_at(text, ',')) {
    const size_t equals = part.find('=');
    if (equals != std::string::npos) out.push_back({part.substr(0, equals), {}});
    const std::string value = equals == std::string::npos ? part : part.substr(equals + 1);
    if (out.empty() || out.back().key.empty() || value.empty())
      throw Error("[matrix] '" + printable(text, 80) + "' is not KEY=VALUE,VALUE,KEY=...",
                  "e.g. --matrix gpu=rtx-4090,a100-80gb,batch=1,2,4", ExitCode::usage);
    out.back().values.push_back(value);
  }
  return out;
}

doc::Text cell_text(const Candidate& c, size_t device) {
  if (c.needs.empty()) return "cannot be run";
  const Need& n = c.needs[device];
  return doc::Text(n.device.bytes) + " " + verdict_text(n.verdict);
}

}  // namespace

ExitCode answer_matrix(const SearchRequest& request, const Job& job, const Show& show) {
  std::vector<Axis> axes = axes_of(request.matrix);
  DeviceRequest wanted = request.devices;
  std::erase_if(axes, [&](const Axis& a) {
    if (a.key != "gpu") return false;
    for (const std::string& name : a.values) name == "all" ? void(wanted.group = "all") : wanted.names.push_back(name);
    return true;
  });
  if (wanted.names.empty() && wanted.group.empty())
    throw Error("[matrix] no device is named", "add gpu=rtx-4090,... to the matrix, or --gpu", ExitCode::usage);
  if (wanted.count() > 1) throw Error("[matrix] a row is a run on one device", "leave the count out of the device's name", ExitCode::usage);
  const std::vector<TargetDevice> devices = wanted.devices();

  std::vector<Patch> recipes{Patch()};
  std::vector<std::vector<std::string>> names{{}};
  for (const Axis& a : axes) {
    std::vector<Patch> more;
    std::vector<std::vector<std::string>> longer;
    for (size_t i = 0; i < recipes.size(); ++i)
      for (const std::string& value : a.values) {
        more.push_back(merged(recipes[i], {{a.key, parse_scalar(value)}}));
        patched(job, more.back(), "plan");  // unknown keys and values are reported at once
        longer.push_back(names[i]);
        longer.back().push_back(value);
      }
    recipes = std::move(more), names = std::move(longer);
    if (recipes.size() > kMostRuns)
      throw Error(fmt::format("[matrix] {} runs are more than {}", recipes.size(), kMostRuns), "vary fewer settings at once",
                  ExitCode::usage);
  }
  Evaluator evaluator(job, devices, {}, {}, false, show.progress);
  evaluator.prepare(recipes);

  // Settings along, devices down.
  const auto document = [&] {
    doc::Table table{{{"device"}, {"has", doc::Kind::size}}};
    for (const auto& values : names) {
      std::string title;
      for (size_t i = 0; i < values.size(); ++i) title += (title.empty() ? "" : " ") + axes[i].key + " " + values[i];
      table.columns.push_back({title.empty() ? "as it is" : title, doc::Kind::number});
    }
    for (size_t d = 0; d < devices.size(); ++d) {
      doc::Row row{{devices[d].name, devices[d].capacity ? doc::Text(devices[d].capacity->bytes) : doc::Text("?")}};
      for (const Patch& r : recipes) row.cells.push_back(cell_text(evaluator.evaluate(r), d));
      table.rows.push_back(std::move(row));
    }
    doc::List impossible;
    for (const Patch& r : recipes)
      if (const Candidate& c = evaluator.evaluate(r); !c.impossible.empty())
        impossible.items.emplace_back(fmt::format("{}: {}", r.text(), c.impossible));
    return doc::Document{job.model, "need and verdict", {std::move(table), std::move(impossible)}};
  };
  const auto json = [&] {
    Json rows = Json::array();
    for (size_t i = 0; i < recipes.size(); ++i) {
      const Candidate& c = evaluator.evaluate(recipes[i]);
      for (size_t d = 0; d < devices.size(); ++d) {
        Json row{{"device", devices[d].name}, {"settings", Json(recipes[i].json())}};
        if (c.needs.empty()) {
          row["impossible"] = c.impossible;
        } else {
          row["device_peak"] = range_json(c.needs[d].device);
          row["verdict"] = to_string(c.needs[d].verdict);
          row["step_seconds"] = c.needs[d].time ? Json(c.needs[d].time->seconds) : Json(nullptr);
        }
        rows.push_back(std::move(row));
      }
    }
    return Json{{"schema", kPlanSchema}, {"command", "plan"}, {"kind", "matrix"}, {"matrix", rows}};
  };
  show(document, json);
  return ExitCode::ok;
}

}  // namespace plimsoll
