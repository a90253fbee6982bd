#include "api/list.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "api/verbs.h"
#include "estimate/overheads.h"
#include "hardware/catalogue.h"
#include "job/settings.h"
#include "model/registry.h"
#include "model/resolve.h"
#include "optim/optimizer.h"
#include "report/hardware_report.h"
#include "report/optimizer_report.h"
#include "report/settings_report.h"
#include "systems/ai_toolkit/tables.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string cell_of(const Json& value) { return value.is_string() ? value.get<std::string>() : dump(value); }

// A column for each key of the rows.
doc::Document table_of(const Json& rows) {
  doc::Table table;
  if (!rows.empty())
    for (const auto& item : rows.front().items()) table.columns.push_back({item.key()});
  for (const Json& row : rows) {
    table.rows.emplace_back();
    for (const auto& item : row.items()) table.rows.back().cells.emplace_back(cell_of(item.value()));
  }
  return {"", {}, {std::move(table)}};
}

std::string reference_of(const ModelEntry& e) {
  const std::string& library = e.family->library;
  return e.classes.empty() ? library : library + " " + join(e.classes, ", ");
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
    out.push_back({{"name", p.name}, {"family", p.family}, {"seq", p.seq}, {"config", nlohmann::json::parse(p.config)}});
  return out;
}

// Of which model a preset is, and under it what its configuration says, in words that a line can end between.
doc::Document presets_document() {
  doc::Table table{{{"name"}, {"family"}, {"seq", doc::Kind::number}}};
  for (const Json& row : list_presets()) {
    std::vector<std::string> pairs;
    for (const auto& item : row["config"].items()) pairs.push_back(item.key() + "=" + join(split_at(cell_of(item.value()), ','), ", "));
    table.rows.push_back({{row["name"].get<std::string>(), row["family"].get<std::string>(), dump(row["seq"])}, {}});
    if (!pairs.empty()) table.rows.back().details = {doc::dim(join(pairs, ", "))};
  }
  return {"", {}, {std::move(table)}};
}

Json list_optimizers() {
  Json out = Json::array();
  for (const OptimizerEntry& e : optimizer_registry()) out.push_back({{"name", e.name}, {"keeps", e.keeps}, {"library", e.library}});
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

Json list_schemas() {
  Json out = Json::array();
  for (const Verb& v : verbs())
    if (v.shape) out.push_back({{"verb", v.name}, {"summary", v.summary}});
  return out;
}

Json list_optimizer_bytes() { return optimizer_costs_json(optimizer_cost_table()); }
doc::Document optimizer_bytes_document() { return optimizer_costs_document(optimizer_cost_table()); }

Json list_gpus() { return catalogue_json(catalogue()); }
doc::Document gpus_document() { return catalogue_document(catalogue()); }

struct Listing {
  const char* name;
  Json (*make)();
  doc::Document (*document)() = nullptr;  // where the columns of the JSON rows are too many for a screen
};
constexpr Listing kListings[] = {{"models", list_models},
                                 {"presets", list_presets, presets_document},
                                 {"optimizers", list_optimizers},
                                 {"optimizer-bytes", list_optimizer_bytes, optimizer_bytes_document},
                                 {"settings", settings_json, settings_document},
                                 {"gpus", list_gpus, gpus_document},
                                 {"overheads", list_overheads},
                                 {"schemas", list_schemas},
                                 {"ai-toolkit", ai_toolkit_tables_json, ai_toolkit_tables_document}};

}  // namespace

std::vector<std::string> listed_names(const std::string& what) {
  std::vector<std::string> out;
  for (const Listing& l : kListings)
    if (what == l.name)
      for (const Json& row : l.make()) out.push_back(row.begin().value().get<std::string>());
  return out;
}

std::vector<RequestKey> list_request_keys() {
  RequestKey what{"what", KeyType::text, "what is listed"};
  for (const Listing& l : kListings) what.choices.emplace_back(l.name);
  what.required = true;
  return {what};
}

ListRequest list_request(const nlohmann::json& request) {
  const std::vector<RequestKey> keys = list_request_keys();
  ListRequest out;
  read_value(request_of(request, keys), keys.front(), out.what);
  return out;
}

ExitCode answer(const ListRequest& request, const Show& show) {
  std::vector<std::string> names;
  for (const Listing& l : kListings) {
    names.emplace_back(l.name);
    if (request.what != l.name) continue;
    show([&] { return l.document ? l.document() : table_of(l.make()); },
         [&] {
           return Json{{"schema", 1}, {"command", "list"}, {"kind", l.name}, {l.name, l.make()}};
         });
    return ExitCode::ok;
  }
  throw Error("[list] '" + request.what + "' is not known", did_you_mean(request.what, names), ExitCode::usage);
}

}  // namespace plimsoll
