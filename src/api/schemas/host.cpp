#include "api/schemas/parts.h"

namespace plimsoll::shape {

namespace {

Shape host_rows(std::string meaning) {
  return list(object(ShapeMembers{{"name", text("what holds it")}} + range_members() + ShapeMembers{{"source", text("how it is known")}}),
              std::move(meaning));
}

Shape unified() {
  return object({{"total_bytes", bytes("the pool")},
                 {"source", text("who says so")},
                 {"margin", number("the part of the pool that stays free")},
                 {"device_limit_bytes", null_or(bytes("what the device may take of it; null: all of it"))},
                 {"steps", list(object({{"name", text("what is subtracted, or left")},
                                        {"bytes", bytes("the size of that step"), kSometimes},
                                        {"samples", integer("the samples of that step"), kSometimes},
                                        {"source", text("how it is known")}}),
                                "from the pool to the largest batch, step by step")},
                 {"simulated", list(object({{"batch", integer("samples")},
                                            {"device_bytes", bytes("device memory with that batch")},
                                            {"host_bytes", bytes("host memory with that batch")}}),
                                    "batches that were executed")},
                 {"max_batch", integer("samples that fit; 0: not even one")},
                 {"more_may_fit", flag("whether the search ended before the pool did")},
                 {"need_bytes", bytes("what the batch that was asked for needs")},
                 {"verdict", verdict("whether that fits")},
                 {"loading", host_rows("the pool while the model is loaded")},
                 {"load", range("the sum of these")},
                 {"load_verdict", verdict("whether that fits")}},
                "one pool for device and host");
}

Shape rule_of_thumb() {
  return object({{"weights_gib", number("the weights, in GiB")},
                 {"optimizer_gib", number("the optimizer state, in GiB")},
                 {"ema_gib", number("the average of the weights, in GiB")},
                 {"workers_gib", number("the loader's workers, in GiB")},
                 {"system_gib", number("the system, in GiB")},
                 {"reserved_gib", number("the sum of these, in GiB")},
                 {"available_gib", number("what is left for samples, in GiB")},
                 {"per_sample_gib", null_or(number("one sample, in GiB; null: there is no rule for tokens"))},
                 {"divided", null_or(integer("what is left divided by a sample"))},
                 {"batch", null_or(integer("the batch that the rule allows"))}},
                "a widespread rule of thumb, for comparison");
}

}  // namespace

Shape host() {
  return object(
      {{"rows", host_rows("RAM of the run while it trains")},
       {"saving", host_rows("what saving a checkpoint adds")},
       {"loading", host_rows("RAM while the model is loaded")},
       {"steady", range("the sum while it trains")},
       {"save", range("the sum while a checkpoint is saved")},
       {"load", range("the sum while the model is loaded")},
       {"shm", range("the part of it in /dev/shm")},
       {"disk_bytes", bytes("what a cache on disk takes there")},
       {"notes", texts("what else is good to know")},
       {"target", object({{"total_bytes", null_or(bytes("RAM of the machine; null: not asked about"))},
                          {"shm_bytes", null_or(bytes("size of /dev/shm; null: not known"))},
                          {"source", text("who says so")}},
                         "the machine it should fit in")},
       {"verdict", verdict("whether the run fits in the machine: the worse of the two below")},
       {"ram_verdict", verdict("whether it fits in RAM")},
       {"shm_verdict", verdict("whether its part fits in /dev/shm")},
       {"most_workers", null_or(integer("workers that still fit; null: not known"))},
       {"cache", null_or(object({{"bytes", bytes("a cache of all items in RAM")}, {"verdict", verdict("whether the run then fits")}},
                                "a cache in RAM; null: no dataset is known"))},
       {"advice", list(object({{"change", text("what to change")},
                               {"of", word({"ram", "shm"}, "what it saves: RAM or /dev/shm")},
                               {"saving_bytes", bytes("what it saves")},
                               {"need_bytes", bytes("what is then needed")},
                               {"verdict", verdict("whether it then fits")}}),
                       "what would help")}},
      "RAM of the machine that trains");
}

ShapeMembers host_sections() {
  return {{"host", host(), kSometimes}, {"unified", unified(), kSometimes}, {"rule_of_thumb", rule_of_thumb(), kSometimes}};
}

}  // namespace plimsoll::shape
