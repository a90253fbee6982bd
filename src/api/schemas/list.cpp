#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "hardware/catalogue.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

using namespace shape;

Shape listing(const char* kind, Shape rows) { return answer_shape("list", 1, {kind}, {{kind, std::move(rows)}}); }

Shape models() {
  return list(object({{"name", text("the family, or another name of it")},
                      {"reference", text("the library and its classes")},
                      {"inputs", word(names_up_to(InputKind::own), "what a sample is")},
                      {"default_seq", integer("tokens of a sample, or the side of an image, when nothing says it")}}),
              "architectures");
}

Shape preset_rows() {
  return list(object({{"name", text("the preset")},
                      {"family", text("its architecture")},
                      {"config", map(any("a value of the model's configuration"), "what differs from the class's defaults")},
                      {"seq", integer("tokens of a sample, or the side of an image; 0: as the family")}}),
              "models by name");
}

Shape optimizer_bytes() {
  const auto cost = [](const char* meaning) {
    return null_or(part("optimizer_cost",
                        object({{"states", number("optimizer state, in bytes per parameter")},
                                {"peak", number("the peak of the update beyond weights and gradients, in bytes per parameter")},
                                {"after", number("what is left after it, in bytes per parameter")},
                                {"managed", number("state in CUDA managed memory, in bytes per parameter")}},
                               "bytes per parameter"),
                        meaning));
  };
  return list(object({{"name", text("the optimizer")},
                      {"arguments", text("its arguments; empty: the defaults")},
                      {"library", text("who has it")},
                      {"fp32", cost("with fp32 weights; null: refused")},
                      {"bf16", cost("with bf16 weights; null: refused")},
                      {"bf16_master", cost("with bf16 weights and fp32 copies; null: refused")}}),
              "what optimizers cost");
}

Shape settings_rows() {
  return list(object({{"key", text("the key in a job file")},
                      {"flag", text("the flag")},
                      {"value", text("what its value looks like; empty: a switch")},
                      {"default", any("its value when nobody says anything")},
                      {"group", word(names_up_to(SettingGroup::host), "what it is about")},
                      {"programs", word(names_up_to(Programs::both), "whose step has it")},
                      {"help", text("what it means")}}),
              "settings of a run");
}

Shape gpus() {
  const auto figure = [](const char* meaning) { return null_or(number(std::string(meaning) + "; null: not established")); };
  return list(
      object({{"id", text("what --gpu takes")},
              {"name", text("its name")},
              {"driver_name", null_or(text("what the driver calls it; null: not established"))},
              {"vendor", text("who makes it")},
              {"segment", null_or(text("what it is sold for; null: not established"))},
              {"arch", null_or(text("its architecture; null: not established"))},
              {"nominal_bytes", null_or(bytes("memory as it is sold"))},
              {"driver_total_bytes", null_or(bytes("memory as the driver reports it"))},
              {"usable_bytes", null_or(bytes("memory that a process can have"))},
              {"usable_low_bytes", null_or(bytes("the least that this may be"))},
              {"usable_high_bytes", null_or(bytes("the most that this may be"))},
              {"usable_seen", flag("whether it was measured on this device rather than derived")},
              {"usable_basis", null_or(text("how it is known"))},
              {"memory", word(names_up_to(MemoryKind::unified), "whether it has memory of its own")},
              {"memory_type", null_or(text("what it is built of; null: not established"))},
              {"bandwidth_gbs", figure("memory bandwidth in GB/s")},
              {"bf16_tflops", figure("dense bf16 operations in TFLOP/s")},
              {"fp16_tflops", figure("dense fp16 operations in TFLOP/s")},
              {"tf32_tflops", figure("dense TF32 operations in TFLOP/s")},
              {"fp32_tflops", figure("fp32 operations in TFLOP/s")},
              {"interconnect", null_or(text("what connects it to others; null: not established"))},
              {"interconnect_gbs", figure("what that reaches, in GB/s")},
              {"compute_capability", null_or(text("CUDA's compute capability, or AMD's name of the target; null: not established"))},
              {"sources", texts("where the figures come from")},
              {"notes", null_or(text("what else is good to know; null: nothing"))}}),
      "devices of the catalogue");
}

Shape overhead_rows() {
  return list(object({{"name", text("what holds it")},
                      {"vendor", text("on whose devices; empty: any")},
                      {"target", text("on which devices; empty: any")},
                      {"up_to_gb", text("on devices up to this size; empty: any")},
                      {"when", text("in which runs; empty: any")},
                      {"low", text("the lower end, for people")},
                      {"typical", text("the usual size, for people")},
                      {"high", text("the upper end, for people")},
                      {"source", text("where the figure comes from")}}),
              "what lies outside of the allocator");
}

Shape ai_toolkit_tables() {
  return object({{"models", list(object({{"arch", text("the toolkit's name of the model")},
                                         {"batch_gb", number("its weights where the batch is computed, in GB")},
                                         {"estimate_gb", number("its weights in the estimate, in GB")}}),
                                 "its table of models")},
                 {"resolutions", list(object({{"resolution", number("side of the images in pixels")},
                                              {"sample_gb", number("a sample, in GB")},
                                              {"card_batch", integer("the batch on a card")},
                                              {"card_largest", integer("the largest there")},
                                              {"unified_batch", integer("the batch with one pool")},
                                              {"unified_largest", integer("the largest there")}}),
                                      "its rules for samples")},
                 {"workers", list(object({{"workers", integer("workers of the loader")},
                                          {"gb", number("what they take, in GB")},
                                          {"saved_gb", number("less than 8 workers take, in GB")}}),
                                  "its rule for workers")}},
                "the AI Toolkit's own tables");
}

}  // namespace

Shape list_shape() {
  return one_of({listing("models", models()), listing("presets", preset_rows()),
                 listing("optimizers", list(object({{"name", text("the optimizer")},
                                                    {"keeps", text("what it keeps for each parameter")},
                                                    {"library", text("who has it")}}),
                                            "optimizers")),
                 listing("optimizer-bytes", optimizer_bytes()), listing("settings", settings_rows()), listing("gpus", gpus()),
                 listing("overheads", overhead_rows()),
                 listing("schemas", list(object({{"verb", text("the verb")}, {"summary", text("what it answers")}}),
                                         "verbs whose answers have a schema")),
                 listing("ai-toolkit", ai_toolkit_tables())});
}

}  // namespace plimsoll
