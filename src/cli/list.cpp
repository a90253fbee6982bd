#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "estimate/overheads.h"
#include "hardware/catalogue.h"
#include "job/settings.h"
#include "model/registry.h"
#include "model/resolve.h"
#include "optim/optimizer.h"
#include "report/hardware_report.h"
#include "report/optimizer_report.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string reference_of(const ModelEntry& e) {
  if (!e.library.empty()) return e.classes.empty() ? e.library : e.library + " " + join(e.classes, ", ");
  return e.classes.empty() ? "torchvision" : "transformers " + join(e.classes, ", ");
}

Json list_models() {
  Json out = Json::array();
  for (const ModelEntry& e : model_registry())
    out.push_back({{"name", e.name}, {"reference", reference_of(e)}, {"inputs", to_string(e.inputs)}, {"default_seq", e.default_seq}});
  return out;
}

Json list_presets() {
  Json out = Json::array();
  for (const Preset& p : presets())
    out.push_back({{"name", p.name}, {"family", p.family}, {"config", nlohmann::json::parse(p.config)}, {"seq", p.seq}});
  return out;
}

Json list_optimizers() {
  Json out = Json::array();
  for (const OptimizerEntry& e : optimizer_registry()) out.push_back({{"name", e.name}, {"keeps", e.keeps}, {"library", e.library}});
  return out;
}

Json list_settings() {
  Json out = Json::array();
  for (const Setting& s : job_settings()) out.push_back({{"key", s.key}, {"flag", flag_of(s)}, {"value", s.value}, {"help", s.help}});
  return out;
}

Json list_overheads() {
  Json out = Json::array();
  for (const OverheadRow& r : overhead_table())
    out.push_back({{"name", r.name},
                   {"vendor", r.vendor},
                   {"target", r.target},
                   {"up_to_gb", r.largest_gb ? fmt::format("{:g}", *r.largest_gb) : ""},
                   {"when", r.condition},
                   {"low", to_string(r.range.low)},
                   {"typical", to_string(r.range.bytes)},
                   {"high", to_string(r.range.high)},
                   {"source", r.source}});
  return out;
}

Json list_optimizer_bytes() { return optimizer_costs_json(optimizer_cost_table()); }
std::string optimizer_bytes_text() { return optimizer_costs_text(optimizer_cost_table()); }

Json list_gpus() { return catalogue_json(catalogue()); }
std::string gpus_text() { return catalogue_text(catalogue()); }

struct Listing {
  const char* name;
  Json (*make)();
  std::string (*text)() = nullptr;  // where the columns of the JSON rows are too many for a screen
};
constexpr Listing kListings[] = {{"models", list_models},         {"presets", list_presets},
                                 {"optimizers", list_optimizers}, {"optimizer-bytes", list_optimizer_bytes, optimizer_bytes_text},
                                 {"settings", list_settings},     {"gpus", list_gpus, gpus_text},
                                 {"overheads", list_overheads}};

// Columns as wide as their widest value.
void print_table(const Json& rows) {
  std::vector<std::vector<std::string>> cells;
  for (const Json& row : rows) {
    std::vector<std::string> line;
    for (const auto& item : row.items()) line.push_back(item.value().is_string() ? item.value().get<std::string>() : dump(item.value()));
    cells.push_back(line);
  }
  std::vector<size_t> width;
  for (const auto& line : cells) {
    width.resize(line.size());
    for (size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  }
  for (const auto& line : cells) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) text += i + 1 < line.size() ? fmt::format("{:<{}}  ", line[i], width[i]) : line[i];
    std::cout << text << "\n";
  }
}

}  // namespace

std::function<ExitCode()> set_up_list(CLI::App& app) {
  auto what = std::make_shared<std::string>();
  auto output = std::make_shared<OutputFlags>();
  app.add_option("what", *what, "models, presets, optimizers, optimizer-bytes, settings, gpus or overheads")->required()->type_name("WHAT");
  output->add_to(app);
  return [what, output] {
    std::vector<std::string> names;
    for (const Listing& l : kListings) {
      names.emplace_back(l.name);
      if (*what != l.name) continue;
      const Json rows = l.make();
      if (output->json) {
        std::cout << dump(Json{{"schema", 1}, {"command", "list"}, {l.name, rows}}, 2) << "\n";
      } else if (l.text) {
        std::cout << l.text();
      } else {
        print_table(rows);
      }
      return ExitCode::ok;
    }
    throw Error("[list] '" + *what + "' is not known", did_you_mean(*what, names), ExitCode::usage);
  };
}

}  // namespace plimsoll
