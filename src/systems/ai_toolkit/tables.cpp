#include "systems/ai_toolkit/tables.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "systems/ai_toolkit/rules.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kResolutions[]{512, 768, 1024, 1536, 2048};  // the ends of its rules, and the document's largest
constexpr int kWorkers[]{8, 4, 2, 0};                         // as the document counts down
constexpr double kWithoutEnd = 1e6;                           // GB: only the caps are left
constexpr auto kVersion = ai_toolkit::Version::v3;

ai_toolkit::BatchConfig batch_of(double resolution, bool unified, double gb) {
  ai_toolkit::SystemProfile profile;
  profile.unified = unified;
  profile.gpu = unified ? ai_toolkit::GpuType::unified_memory : ai_toolkit::GpuType::nvidia;
  profile.vram_gb = profile.total_ram = profile.unified_memory = gb;
  return ai_toolkit::calculate_batch_defaults(kVersion, profile, resolution, {}, "flux", 0);
}

// What its batch function reserves for so many workers and nothing else.
double workers_gb(int workers) {
  ai_toolkit::SystemProfile pool;
  pool.unified = true;
  pool.unified_memory = kWithoutEnd;
  return ai_toolkit::batch_budget(pool, 1024, "flux", workers).workers;
}

double sample_gb(double resolution) {
  ai_toolkit::SystemProfile pool;
  pool.unified = true;
  pool.unified_memory = kWithoutEnd;
  return ai_toolkit::batch_budget(pool, resolution, "flux", 0).per_sample;
}

}  // namespace

Json ai_toolkit_tables_json() {
  Json models = Json::array(), resolutions = Json::array(), workers = Json::array();
  for (const std::string& arch : ai_toolkit::architectures())
    models.push_back(
        {{"arch", arch}, {"batch_gb", ai_toolkit::batch_model_gb(arch)}, {"estimate_gb", ai_toolkit::estimate_model_gb(arch)}});
  for (double side : kResolutions) {
    const ai_toolkit::BatchConfig card = batch_of(side, false, kWithoutEnd), pool = batch_of(side, true, kWithoutEnd);
    resolutions.push_back({{"resolution", side},
                           {"sample_gb", sample_gb(side)},
                           {"card_batch", card.batch_size},
                           {"card_largest", card.max_batch_size},
                           {"unified_batch", pool.batch_size},
                           {"unified_largest", pool.max_batch_size}});
  }
  for (int n : kWorkers) workers.push_back({{"workers", n}, {"gb", workers_gb(n)}, {"saved_gb", workers_gb(8) - workers_gb(n)}});
  return {{"models", models}, {"resolutions", resolutions}, {"workers", workers}};
}

doc::Document ai_toolkit_tables_document() {
  using doc::Kind;
  const Json tables = ai_toolkit_tables_json();
  const auto gb = [](const Json& n) { return fmt::format("{:g} GB", n.get<double>()); };
  const auto then = [](const Json& first, const Json& largest) {
    return fmt::format("{}, then {}", first.get<int64_t>(), largest.get<int64_t>());
  };
  doc::Table models{{{"architecture"}, {"weights for the batch", Kind::number}, {"in the estimate", Kind::number}}};
  for (const Json& row : tables["models"])
    models.rows.push_back({{row["arch"].get<std::string>(), gb(row["batch_gb"]), gb(row["estimate_gb"])}});
  doc::Table resolutions{{{"resolution", Kind::number},
                          {"a sample", Kind::number},
                          {"batch on a card, at most", Kind::number},
                          {"on unified memory, at most", Kind::number}}};
  for (const Json& row : tables["resolutions"])
    resolutions.rows.push_back({{fmt::format("{:g} px", row["resolution"].get<double>()), gb(row["sample_gb"]),
                                 then(row["card_batch"], row["card_largest"]), then(row["unified_batch"], row["unified_largest"])}});
  doc::Table workers{{{"workers", Kind::number}, {"memory", Kind::number}, {"saved against 8", Kind::number}}};
  for (const Json& row : tables["workers"])
    workers.rows.push_back({{std::to_string(row["workers"].get<int>()), gb(row["gb"]), gb(row["saved_gb"])}});
  return {"The AI Toolkit's tables (v3)",
          "its figures, not ours; `plimsoll ai-toolkit` sets them beside an executed step",
          {doc::Heading{"Models"}, std::move(models), doc::Heading{"Resolutions"}, std::move(resolutions), doc::Heading{"Workers"},
           std::move(workers)}};
}

}  // namespace plimsoll
