// What several readers of trainers share: how their words become settings of a job.
#pragma once

#include <optional>
#include <string>

#include "formats/reader.h"

namespace plimsoll {

// `optim` of transformers' TrainingArguments: one of its 41 names, and optim_args as text ("momentum=0.9") or mapping. One that is not
// modelled stays by its name, for a finding and an error when nothing else is chosen; a name that transformers does not have throws.
void set_hf_optimizer(Reader& r, const std::string& name, const nlohmann::json& args, std::string_view path);
// And back: its name there, and what optim_args has to say beside it. None: transformers has no name for it.
struct HfOptimizerName {
  std::string name, args;
};
std::optional<HfOptimizerName> hf_optimizer_of(const OptimizerSpec& optimizer);
// The same for a name with arguments of ours; arguments that cost no memory are left out.
void set_optimizer(Reader& r, const std::string& name, const nlohmann::json& args, std::string_view path);

// The types of the weights and of autocast ("fp32", "bf16", "fp16"; autocast "" is none), as precision and autocast.
void set_types(Reader& r, const std::string& weights, const std::string& autocast, const std::string& origin);
// The same where the weights have the type of the checkpoint, which is not known before the model is: fp32 until then. The origin ends with
// kCheckpointsType.
inline constexpr const char* kCheckpointsType = ": the checkpoint's type";
void set_types_of_checkpoint(Reader& r, const std::string& autocast, const std::string& origin);
// "bfloat16", "torch.bfloat16", "bf16" -> "bf16"; "auto" and what is not known: "".
std::string short_type(const std::string& name);

// A model as trainers name it: a directory or file beside the document, else the name as it is.
void set_model(Reader& r, std::string_view path);
// attn_implementation of transformers.
void set_attention(Reader& r, const std::string& implementation, std::string_view path);
// dataloader_num_workers and its three relatives, as DataLoader takes them.
void read_dataloader(Reader& r, const std::string& trainer);
// ddp_find_unused_parameters and its relatives, when there are several processes. `find_unused`: the trainer's own choice.
void read_ddp(Reader& r, bool find_unused);
// Rows that are filled with `rows` samples of `tokens`, flattened into one.
void set_packed(Reader& r, int64_t rows, int64_t tokens, std::string_view path);
// `deepspeed: ds.json`, or its content in place.
void read_deepspeed_setting(Reader& r, std::string_view path);
// Weights, gradients or states are spread over processes in a way that is not simulated: the job is that of one process that holds all.
void not_simulated(Reader& r, std::string_view path, const std::string& what);

// Keys of TrainingArguments that say nothing about memory.
void ignore_training_arguments(Reader& r);
// The part of TrainingArguments that transformers, TRL, axolotl and LLaMA-Factory share: accumulation, clipping, compilation, FSDP, keys
// that are deprecated or have no effect.
void read_shared_arguments(Reader& r, const std::string& trainer);

// A JSON list of names from a list, or from text with commas.
nlohmann::json names_of(const nlohmann::json& value);

}  // namespace plimsoll
