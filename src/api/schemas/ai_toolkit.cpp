#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "systems/ai_toolkit/rules.h"

namespace plimsoll {

namespace {

using namespace shape;

Shape gb(const char* meaning) { return number(std::string(meaning) + ", in GB"); }

Shape budget() {
  return null_or(part("budget",
                      object({{"total_gb", gb("the pool")},
                              {"weights_gb", gb("the weights")},
                              {"optimizer_gb", gb("the optimizer state")},
                              {"ema_gb", gb("the average of the weights")},
                              {"preservation_gb", gb("differential output preservation")},
                              {"workers_gb", gb("the loader's workers")},
                              {"system_gb", gb("the system")},
                              {"reserved_gb", gb("the sum of these")},
                              {"available_gb", gb("what is left for samples")},
                              {"per_sample_gb", gb("one sample")},
                              {"divided", number("what is left divided by a sample")}},
                             "memory as the toolkit divides it"),
                      "of unified memory; null: the memory is not unified"));
}

ShapeMembers batch_members() {
  return {{"batch_size", number("samples of a step")},
          {"auto_scale_batch_size", flag("whether it tries larger ones")},
          {"min_batch_size", number("the least that it tries")},
          {"max_batch_size", number("the most that it tries")},
          {"batch_size_warmup_steps", number("steps before it tries")}};
}

Shape advanced() {
  return object({{"lr_scheduler", text("the schedule of the learning rate")},
                 {"warmup_steps", number("steps that it warms up for")},
                 {"noise_scheduler", text("the schedule of the noise")},
                 {"loss_target", text("what the loss is about")},
                 {"do_cfg", flag("whether classifier-free guidance is trained")},
                 {"cfg_scale", number("its scale")},
                 {"noise_offset", number("the noise's offset")},
                 {"min_snr_gamma", null_or(number("the gamma of min-SNR weighting; null: none"))},
                 {"min_denoising_steps", number("the first timestep")},
                 {"max_denoising_steps", number("the last timestep")},
                 {"flip_x", flag("whether images are mirrored")},
                 {"flip_y", flag("whether images are turned over")},
                 {"random_crop", flag("whether images are cropped at random")},
                 {"random_scale", flag("whether images are scaled at random")},
                 {"log_every", number("steps between two log lines")},
                 {"verbose", flag("whether it logs more")},
                 {"sampler", text("the sampler of sample images")},
                 {"sample_steps", number("its steps")},
                 {"guidance_scale", number("its guidance")},
                 {"seed", number("its seed")}},
                "settings of experts");
}

Shape defaults() {
  const ShapeMembers train = batch_members() + ShapeMembers{{"lr", number("the learning rate")},
                                                            {"steps", number("steps")},
                                                            {"gradient_accumulation_steps", number("micro-batches of a step")},
                                                            {"optimizer", text("the optimizer")},
                                                            {"dtype", text("the type of the computation")},
                                                            {"gradient_checkpointing", flag("whether activations are checkpointed")}};
  return object({{"train", object(train, "its section train")},
                 {"model", object({{"low_vram", flag("whether the model is loaded piece by piece")}}, "its section model"), kSometimes},
                 {"dataset", object({{"cache_latents", flag("whether latents are kept in RAM")},
                                     {"cache_latents_to_disk", flag("whether latents are kept on disk")},
                                     {"cache_gb", gb("what that takes")},
                                     {"gpu_prefetch_batches", number("batches that wait on the device")},
                                     {"num_workers", number("workers of the loader")},
                                     {"persistent_workers", flag("whether they live on between epochs")},
                                     {"resolution", list(number("pixels"), "sides of the images")}},
                                    "its section datasets")},
                 {"network", object({{"type", word(names_up_to(ai_toolkit::TargetType::full), "what is trained")},
                                     {"linear", number("the rank")},
                                     {"linear_alpha", number("alpha")}},
                                    "its section network")},
                 {"advanced", advanced(), kSometimes}},
                "what the set-up writes");
}

Shape code() {
  return object({{"defaults", defaults()},
                 {"num_workers", number("workers that it then uses")},
                 {"batch", object(batch_members(), "the batch that it then uses")},
                 {"budget", budget()},
                 {"estimate_for_batch", number("the batch that the estimate is for")},
                 {"estimate_gb", gb("its estimate of the card's memory")},
                 {"shown_gb", gb("the estimate as it shows it")},
                 {"regularization_gb", object({{"ema", gb("the average of the weights")},
                                               {"diff_output_preservation", gb("differential output preservation")},
                                               {"gradient_checkpointing_savings", gb("what activation checkpointing saves")}},
                                              "what it shows beside the options")},
                 {"prediction", object({{"estimated_vram", text("memory of the card")},
                                        {"step_time", text("time of a step")},
                                        {"total_time", text("time of the run")},
                                        {"disk_space", text("disk space")},
                                        {"memory_usage", text("memory of the host")}},
                                       "what it shows before the start")},
                 {"messages", list(object({{"type", word({"info", "tip", "warning"}, "how important it is")},
                                           {"about", text("what it is about")},
                                           {"message", text("what it says, in our words")}}),
                                   "its advice")}},
                "what the toolkit's code computes");
}

}  // namespace

Shape ai_toolkit_shape() {
  const Shape document = object({{"budget", budget()},
                                 {"batch_size", number("samples of a step")},
                                 {"max_batch_size", number("the largest")},
                                 {"total_for_batch", number("the batch that the total is for")},
                                 {"total_gb", null_or(gb("its total; null: it has none"))},
                                 {"checkpointing_saves_gb", gb("what activation checkpointing saves")},
                                 {"num_workers", number("workers of the loader")}},
                                "what the toolkit's document says");
  const Shape executed = object({{"model", text("the preset that stands for it")},
                                 {"available", flag("whether it can be executed")},
                                 {"reason", text("why not"), kSometimes},
                                 {"batch", integer("samples of a step"), kSometimes},
                                 {"peak_bytes", bytes("the most that tensors hold at once"), kSometimes},
                                 {"device_bytes", bytes("device memory of the process at the peak"), kSometimes}},
                                "the same run, executed");
  return answer_shape("ai-toolkit", 1,
                      {{"version", word(names_up_to(ai_toolkit::Version::v6), "the version of its rules")},
                       {"commit", text("that version's commit")},
                       {"arch", text("the toolkit's name of the model")},
                       {"resolution", number("side of the images in pixels")},
                       {"code", code()},
                       {"document", document},
                       {"differences", list(object({{"about", text("what it is about")},
                                                    {"code", text("what the code does")},
                                                    {"document", text("what the document says")},
                                                    {"consequence", text("what follows")}}),
                                            "where code and document part")},
                       {"executed", executed}});
}

}  // namespace plimsoll
