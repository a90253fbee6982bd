#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "estimate/insights.h"
#include "job/jax_settings.h"
#include "plan/levers.h"
#include "report/schema_versions.h"
#include "trace/stream.h"
#include "trace/trace.h"

namespace plimsoll {

namespace shape {

namespace {

Shape memory() {
  return null_or(
      object({{"allocated", range("torch.cuda.max_memory_allocated()")},
              {"reserved", range("torch.cuda.max_memory_reserved()")},
              {"device", range("of the process on the device, as nvidia-smi or rocm-smi shows it: reserved memory and the overheads")},
              {"resting", range("allocated memory between two steps, as when a checkpoint is saved")},
              {"overheads", overheads("what lies outside of the allocator")},
              {"correction", correction("what measured runs on this machine changed"), kSometimes}},
             "the three counters with their intervals; null: there is no such device"));
}

Shape xla() {
  return object({{"device_kind", word(names_up_to(DeviceKind::tpu), "whose layouts and allocator")},
                 {"exact", object({{"argument_bytes", bytes("arguments of the compiled step")},
                                   {"output_bytes", bytes("its results")},
                                   {"alias_bytes", bytes("results that reuse the memory of donated arguments")},
                                   {"parameter_bytes", bytes("parameters among the arguments")},
                                   {"state_bytes", bytes("optimizer state among the arguments")},
                                   {"batch_bytes", bytes("the batch among the arguments")},
                                   {"argument_padding_bytes", bytes("padding of the arguments to the TPU's tiles")}},
                                  "sizes that follow from shapes")},
                 {"modelled", object({{"temp", range("temporaries in the one allocation that XLA makes for them")},
                                      {"residual_bytes", bytes("what forward keeps for the derivative")},
                                      {"packing_bytes", bytes("the allocation beyond what is alive at its peak")},
                                      {"ops", integer("ops of the program")},
                                      {"stored_values", integer("results that are stored and not fused away")}},
                                     "what fusion, order and packing decide")},
                 {"program", range("arguments + outputs - aliased + temporaries: memory_analysis()")},
                 {"needs", range("what a device must have for it")},
                 {"pool_without_preallocation", range("the allocator's pool when it grows as needed")},
                 {"limit_bytes", null_or(bytes("what the allocator may take of the device; null: no device was named"))},
                 {"shown", null_or(range("what nvidia-smi shows; null: no device was named"))},
                 {"overheads", overheads("what lies outside of the allocator")}},
                "a JAX job: the compiled step");
}

Shape insights() {
  return list(object({{"name", word(insight_names(), "what was found")},
                      {"text", text("a sentence about it, with its size")},
                      {"bytes", bytes("memory that it is about, at the peak")},
                      {"flags", text("flags that change it; empty: none does")}}),
              "what stands out, the largest first; the text shows three of them");
}

Shape cheapest_change() {
  return null_or(
      object({{"name", text("the change")},
              {"settings", settings("what it sets")},
              {"flags", text("the same as flags")},
              {"kind", word(names_up_to(LeverKind::different_training), "whether the result stays the same")},
              {"cost", text("what it costs in time, and what else")},
              {"device_bytes", bytes("device memory at the peak, with the change")},
              {"saving_bytes", bytes("device memory that it saves")}},
             "the change that makes the run fit the first device and disturbs it least; null: it fits already, no device was named, "
             "or no change alone is enough"));
}

}  // namespace

ShapeMembers estimate_members() {
  return {{"job", job("the run that was executed")},
          {"parameters", integer("parameters of the model, on this rank")},
          {"trainable_parameters", integer("parameters that are trained")},
          {"peak_bytes", bytes("the most that tensors hold at once, without an allocator")},
          {"allocated_peak_bytes", null_or(bytes("torch.cuda.max_memory_allocated()"))},
          {"reserved_peak_bytes", null_or(bytes("torch.cuda.max_memory_reserved()"))},
          {"device_peak_bytes", null_or(bytes("device memory of the process at the peak"))},
          {"memory", memory()},
          {"captured", captured(), kSometimes},
          {"xla", xla(), kSometimes},
          {"paged_state_bytes", bytes("optimizer state in CUDA managed memory, which no counter shows")},
          {"host_ema_bytes", bytes("the average of the weights in the host's memory")},
          {"peak", object({{"step", integer("the step that has the peak, from 1")},
                           {"phase", phase("the phase of that step")},
                           {"module", text("the module that ran; empty: none")},
                           {"op", text("the op that ran; empty: none")}},
                          "where the peak is")},
          {"steps", list(object({{"name", text("step 1, evaluation, sampling, longest sample")},
                                 {"peak_bytes", bytes("the most that tensors hold in it")},
                                 {"phase", phase("where that is")},
                                 {"phase_peak_bytes",
                                  bytes_by(names_up_to(static_cast<Phase>(kPhases - 1), phase_name), "the peak of each of its phases")}}),
                         "each executed step")},
          {"pool_peak_bytes", bytes_by(names_up_to(static_cast<Stream>(kStreams - 1)), "the most that each stream's pool has in use")},
          {"pool_sum_bytes", bytes("the sum of these: reserved memory is at least that")},
          {"ranks", list(object({{"name", text("the rank, or the ranks that are alike")},
                                 {"parameters", integer("parameters that it keeps")},
                                 {"allocated_bytes", bytes("its peak of allocated memory")}}),
                         "ranks that differ, where several were executed")},
          {"ranks_not_executed", integer("ranks that keep parts of the same size, cut elsewhere")},
          {"parameters_by_part", map(integer("parameters"), "parameters of each top-level module")},
          {"by_category", tree("what is alive at the peak, by category")},
          {"category_peak_bytes",
           bytes_by(names_up_to(static_cast<Category>(kCategories - 1), category_name), "the most that each category holds at any time")},
          {"by_module", tree("what is alive at the peak, by module")},
          {"largest", list(object({{"bytes", bytes("one of them")},
                                   {"count", integer("how many alike there are")},
                                   {"category", category("what it is")},
                                   {"module", text("the module that made it")},
                                   {"op", text("the op that made it")},
                                   {"shape", text("its shape and type; empty: not known")}}),
                           "the largest tensors at the peak")}};
}

}  // namespace shape

Shape estimate_shape() {
  using namespace shape;
  return answer_shape("estimate", kEstimateSchema,
                      estimate_members() +
                          ShapeMembers{{"headline", text("the verdict in one line, for the first device; without one, what the run needs")},
                                       {"insights", insights()},
                                       {"cheapest_change", cheapest_change()},
                                       {"tensors_correction", correction("what runs of `measure` on this machine changed"), kSometimes},
                                       {"executions", integer("how many jobs were executed for this answer")},
                                       {"fits", fits("a verdict for each device that was asked about")},
                                       {"findings", findings()},
                                       {"what_if", what_if(), kSometimes}} +
                          host_sections());
}

Shape compare_shape() {
  using namespace shape;
  const Shape memory = null_or(object({{"allocated", range("torch.cuda.max_memory_allocated()")},
                                       {"reserved", range("torch.cuda.max_memory_reserved()")},
                                       {"device", range("device memory of the process")}},
                                      "the three counters; null: there is no such device"));
  return answer_shape("compare", kCompareSchema,
                      {{"jobs", list(object({{"name", text("as it was asked for")},
                                             {"job", job("the run that was executed")},
                                             {"peak_bytes", bytes("the most that tensors hold at once")},
                                             {"memory", memory},
                                             {"difference_bytes", bytes("device memory minus that of the first job")},
                                             {"by_category", bytes_by(names_up_to(static_cast<Category>(kCategories - 1), category_name),
                                                                      "what is alive at the peak; every job has the categories of all")},
                                             {"fits", fits("a verdict for each device that was asked about")},
                                             {"headline", text("the verdict in one line, for the first device")},
                                             {"insights", insights()}}),
                                     "the jobs in the order they were asked for")}});
}

}  // namespace plimsoll
