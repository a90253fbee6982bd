// kohya's sd-scripts: the TOML of --config_file (its sections do not count), that of --dataset_config, and commands like `accelerate launch
// sdxl_train_network.py --network_dim 32`. Rules: sd-scripts' train_network.py and library/train_util.py (February 2026).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "formats/format.h"
#include "formats/kohya.h"
#include "formats/launch.h"
#include "formats/readers.h"
#include "formats/trainer.h"
#include "job/fields.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kTrainer = "sd-scripts";

// The script, as far as it says which model is trained and how.
struct Script {
  std::string model;    // a preset; "" when nothing tells
  bool network = true;  // an adapter, not the model itself
};

bool is_script(const std::string& program) {
  static const std::vector<std::string> kScripts{"train_network.py",
                                                 "sdxl_train_network.py",
                                                 "flux_train_network.py",
                                                 "sd3_train_network.py",
                                                 "lumina_train_network.py",
                                                 "train_db.py",
                                                 "fine_tune.py",
                                                 "sdxl_train.py",
                                                 "flux_train.py",
                                                 "sd3_train.py",
                                                 "hunyuan_image_train_network.py",
                                                 "anima_train_network.py"};
  return std::find(kScripts.begin(), kScripts.end(), program) != kScripts.end();
}

// What a network's module, or the usual name of a checkpoint's file, says of a model that no script names.
struct Sign {
  const char* text;
  const char* preset;
};
constexpr Sign kModules[]{{"lora_flux", "sd-scripts-flux"}, {"lora_sd3", "sd-scripts-sd3"}, {"lora_lumina", "sd-scripts-lumina2"}};
constexpr Sign kFiles[]{{"flux1", "sd-scripts-flux"}, {"flux.1", "sd-scripts-flux"},  {"sd3", "sd-scripts-sd3"},
                        {"sd_xl", "sd-scripts-sdxl"}, {"sdxl", "sd-scripts-sdxl"},    {"xl_base", "sd-scripts-sdxl"},
                        {"v1-5", "sd-scripts-sd1"},   {"v1-4", "sd-scripts-sd1"},     {"sd15", "sd-scripts-sd1"},
                        {"v2-1", "sd-scripts-sd2"},   {"768-v-ema", "sd-scripts-sd2"}};

// Names on the Hub that say which model, with its text encoders and its VAE, is meant.
constexpr Sign kHubNames[]{{"stable-diffusion-xl-base-1.0", "sd-scripts-sdxl"},
                           {"stable-diffusion-xl-base-0.9", "sd-scripts-sdxl"},
                           {"stable-diffusion-v1-4", "sd-scripts-sd1"},
                           {"stable-diffusion-v1-5", "sd-scripts-sd1"},
                           {"stable-diffusion-2", "sd-scripts-sd2"},
                           {"stable-diffusion-2-base", "sd-scripts-sd2"},
                           {"stable-diffusion-2-1", "sd-scripts-sd2"},
                           {"stable-diffusion-2-1-base", "sd-scripts-sd2"},
                           {"flux.1-dev", "sd-scripts-flux"},
                           {"flux.1-schnell", "sd-scripts-flux"},
                           {"lumina-image-2.0", "sd-scripts-lumina2"}};

std::string preset_by_hub_name(const std::string& name) {
  const std::string last = lower(name.substr(name.rfind('/') + 1));
  for (const Sign& s : kHubNames)
    if (last == s.text) return s.preset;
  return "";
}

template <size_t N>
std::string preset_by(const Sign (&signs)[N], const std::string& text) {
  for (const Sign& s : signs)
    if (text.find(s.text) != std::string::npos) return s.preset;
  return "";
}

bool is_checkpoint_file(const std::string& name) { return name.ends_with(".safetensors") || name.ends_with(".ckpt"); }

Script script_of(Reader& r, const std::string& program) {
  Script s;
  s.network = program.empty() ? r.has("network_module") || r.has("network_dim") : program.find("network") != std::string::npos;
  if (program.starts_with("sdxl_"))
    s.model = "sd-scripts-sdxl";
  else if (program.starts_with("sd3_") || r.has("clip_g"))
    s.model = "sd-scripts-sd3";
  else if (program.starts_with("flux_") || r.has("t5xxl"))
    s.model = "sd-scripts-flux";
  else if (program.starts_with("lumina_"))
    s.model = "sd-scripts-lumina2";
  else if (program == "train_network.py" || program == "train_db.py" || program == "fine_tune.py")
    s.model = r.flag("v2", false) ? "sd-scripts-sd2" : "sd-scripts-sd1";
  else if (program.empty())
    s.model = preset_by(kModules, r.text("network_module"));
  return s;
}

void read_model(Reader& r, const Script& s) {
  const char* path = "pretrained_model_name_or_path";
  std::error_code error;
  const std::string name = r.text(path);
  if (!name.empty() && (s.model.empty() || fs::exists(fs::path(r.document.folder()) / name, error))) {
    set_model(r, path);
  } else if (!s.model.empty()) {
    r.set("model", s.model, path);
    r.finding(Effect::note, path, fmt::format("not here: taken for the preset {}", s.model), "the model that this script trains");
  }
  r.ignore({"v2", "v_parameterization", "clip_l", "clip_g", "t5xxl", "ae", "model_type"});
  if (!s.model.empty() || fs::exists(fs::path(r.document.folder()) / name, error)) return;
  const bool file = is_checkpoint_file(name);
  const std::string guess = file ? preset_by(kFiles, lower(fs::path(name).filename().string())) : preset_by_hub_name(name);
  if (guess.empty()) return;
  r.set("model", guess, path);
  r.finding(Effect::note, path, fmt::format("not here: taken for the preset {}", guess),
            file ? "the usual name of its file" : "its name on the Hub");
}

// flux_train_network.py, sd3_train_network.py and lumina_train_network.py, load_target_model: model.to(float8_e4m3fn). A U-Net's
// convolutions go to fp8 as well, and T5 does when it stays on the device: neither is simulated.
void read_fp8(Reader& r, const Script& s) {
  const std::string& model = r.job.model;
  const bool transformer = model == "sd-scripts-flux" || model == "sd-scripts-sd3" || model == "sd-scripts-lumina2";
  for (const char* key : {"fp8_base_unet", "fp8_base"}) {
    if (!r.flag(key, false)) continue;
    if (!s.network)
      r.finding(Effect::none, key, "a model that is trained itself is not cast to fp8");
    else if (!transformer)
      r.finding(Effect::unknown, key, "a U-Net in fp8 is not simulated: it is in the mixed type in the answer");
    else
      r.set("quantization", "fp8", key);
  }
}

// prepare_dtype, and the casts of train_network.py
void read_precision(Reader& r, const Script& s) {
  std::string mixed = lower(r.text("mixed_precision", "no"));
  std::string origin = r.has("mixed_precision") ? r.origin("mixed_precision") : "default of sd-scripts";
  const auto launched = r.job.origin.find("precision");
  if (!r.has("mixed_precision") && launched != r.job.origin.end()) {
    r.note(Effect::none, fmt::format("the launcher's mixed precision ({}) is not used", launched->second),
           "the script gives its own to Accelerator: no");
  }
  if (mixed == "false") mixed = "no";  // YAML's and TOML's bare no
  if (mixed != "no" && mixed != "fp16" && mixed != "bf16")
    throw Error(fmt::format("[{}] '{}' is not known", r.origin("mixed_precision"), printable(mixed, 40)), "known: no, fp16, bf16");
  const bool full16 = r.flag("full_fp16", false), fullbf = r.flag("full_bf16", false);
  for (const auto& [key, on, type] : {std::tuple{"full_fp16", full16, "fp16"}, {"full_bf16", fullbf, "bf16"}})
    if (on && mixed != type)
      r.finding(Effect::refused, key, fmt::format("mixed_precision is {}", mixed), fmt::format("the script asserts that it is {}", type));
  const std::string autocast = mixed == "no" ? "" : mixed;
  // the frozen model of an adapter is in the mixed type; a model that is trained stays in fp32 unless all is in that type
  const std::string weights = autocast.empty() ? "fp32" : s.network || full16 || fullbf ? autocast : "fp32";
  set_types(r, weights, autocast, origin);
  read_fp8(r, s);
  r.ignore({"save_precision", "fp8_scaled"});
}

// networks/lora.py: the linear layers of the U-Net's transformers
void read_network(Reader& r, const Script& s) {
  if (!s.network) {
    for (const char* key : {"network_dim", "network_module"})
      r.finding(Effect::none, key, "no adapter is made", "this script trains the model itself");
    return;
  }
  const std::string module = r.text("network_module", "networks.lora");
  r.ignore({"network_weights", "dim_from_weights", "scale_weight_norms", "base_weights", "base_weights_multiplier", "training_comment"});
  Json args = Json::object();
  if (const Json* list = r.find("network_args")) {
    std::vector<std::string> pairs;
    for (const Json& pair : list->is_array() ? *list : Json::array({*list}))
      pairs.push_back(pair.is_string() ? pair.get<std::string>() : dump(pair));
    args = read_pairs(pairs, r.origin("network_args"), "write \"conv_dim=8\"");
  }
  Json lora{
      {"r", r.integer("network_dim", 4)}, {"lora_alpha", r.number("network_alpha", 1)}, {"lora_dropout", r.number("network_dropout", 0.0)}};
  const bool flux = module.find("flux") != std::string::npos;
  if (flux) {
    lora["target_modules"] = "all-linear";
    r.finding(Effect::partial, "network_module",
              "adapters on all linear layers; sd-scripts has one for q, k and v together, the answer three");
  } else {
    Json targets{"to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2", "proj_in", "proj_out"};
    if (args.contains("conv_dim")) {  // LoRANetwork.UNET_TARGET_REPLACE_MODULE_CONV2D_3X3: residual blocks, down- and upsamplers
      for (const char* name : {"time_emb_proj", "conv_shortcut", "conv1", "conv2", "downsamplers.0.conv", "upsamplers.0.conv"})
        targets.push_back(name);
      const Json dim = args["conv_dim"].is_string() ? parse_scalar(args["conv_dim"].get<std::string>()) : args["conv_dim"];
      if (!dim.is_number_integer() || dim <= 0)
        throw Error(fmt::format("[{}] conv_dim is {}, expected a whole number above 0", r.origin("network_args"), dump(dim).substr(0, 60)),
                    "e.g. conv_dim=8");
      lora["rank_pattern"] = Json{{"conv1|conv2|conv", dim}};
    }
    lora["target_modules"] = targets;
  }
  if (r.flag("full_bf16", false) || r.flag("full_fp16", false)) lora["autocast_adapter_dtype"] = false;
  if (module != "networks.lora" && module != "networks.lora_flux" && module != "networks.lora_sd3")
    r.finding(Effect::unknown, "network_module", "this kind of adapter is not modelled: plain LoRA of the same rank is simulated");
  r.set("lora", lora, r.has("network_dim") ? "network_dim" : "network_module");
}

void read_optimizer(Reader& r) {
  static const std::map<std::string, std::string> kOptimizers{{"adamw", "AdamW"},
                                                              {"adamw8bit", "AdamW8bit"},
                                                              {"lion", "lion_pytorch.Lion"},
                                                              {"lion8bit", "Lion8bit"},
                                                              {"pagedadamw", "PagedAdamW"},
                                                              {"pagedadamw8bit", "PagedAdamW8bit"},
                                                              {"pagedadamw32bit", "PagedAdamW32bit"},
                                                              {"pagedlion8bit", "PagedLion8bit"},
                                                              {"adafactor", "TransformersAdafactor"},
                                                              {"prodigy", "Prodigy"},
                                                              {"sgdnesterov", "SGD"}};
  const bool eight = r.flag("use_8bit_adam", false), lion = r.flag("use_lion_optimizer", false);
  const char* path = eight ? "use_8bit_adam" : lion ? "use_lion_optimizer" : "optimizer_type";
  const std::string type = eight ? "AdamW8bit" : lion ? "Lion" : r.text("optimizer_type", "AdamW");
  if (r.has("optimizer_type") && (eight || lion))
    r.finding(Effect::refused, path, "optimizer_type is given, too", "the script asserts that it is not");
  Json args = Json::object();
  if (const Json* list = r.find("optimizer_args"))
    for (const Json& pair : list->is_array() ? *list : Json::array({*list})) {
      const std::string text = pair.is_string() ? pair.get<std::string>() : dump(pair);
      if (const size_t equals = text.find('='); equals != std::string::npos)
        args[text.substr(0, equals)] = parse_scalar(text.substr(equals + 1));
    }
  const std::string name = lower(type);
  if (name == "sgdnesterov") args["momentum"] = args.value("momentum", 0.9), args["nesterov"] = true;
  const auto it = kOptimizers.find(name);
  if (!eight && !lion && !r.has("optimizer_type")) {
    r.set_default("optimizer", "AdamW", kTrainer);
  } else if (it != kOptimizers.end()) {
    set_optimizer(r, it->second, args, path);
  } else {
    const bool torch = type.find('.') == std::string::npos || type.starts_with("torch.optim.");
    set_optimizer(r, torch ? type.substr(type.rfind('.') + 1) : type, args, path);
    r.finding(Effect::note, path, "an optimizer by its class; where it is not modelled, choose a near one with --optimizer");
  }
  if (r.flag("fused_backward_pass", false)) {
    if (name == "adafactor")
      r.set("optimizer_in_backward", true, "fused_backward_pass");
    else
      r.finding(Effect::refused, "fused_backward_pass", "only Adafactor has it", "the script asserts that optimizer_type is Adafactor");
  }
  r.ignore({"optimizer_schedulefree_wrapper", "schedulefree_wrapper_args", "fused_optimizer_groups"});
}

// "1024", "1024,768", [1024, 768] or 1024: the longer side.
int64_t side_of(const Json& value, const std::string& origin) {
  const Json list = value.is_array() ? value : Json::array({value});
  int64_t side = 0;
  for (const Json& part : list) {
    const std::vector<std::string> numbers =
        part.is_string() ? split_at(part.get<std::string>(), ',') : std::vector<std::string>{dump(part)};
    for (const std::string& number : numbers) {
      const Json n = parse_scalar(number);
      if (!n.is_number_integer() || n.get<int64_t>() < 1 || n.get<int64_t>() > 65536)
        throw Error(fmt::format("[{}] '{}' is no size of an image", origin, printable(dump(value), 60)), "e.g. 1024 or 1024,768");
      side = std::max(side, n.get<int64_t>());
    }
  }
  return side;
}

void read_dataset(Reader& r) {
  const Json* general = r.find("general");
  const Json* sets = r.find("datasets");
  const Json own = general && general->is_object() ? *general : Json::object();
  Json largest;  // by its samples' pixels
  for (const Json& one : sets && sets->is_array() ? *sets : Json::array({Json::object()})) {
    if (!one.is_object()) continue;
    Json set = own;
    set.update(one);
    const int64_t side = set.contains("resolution") ? side_of(set["resolution"], r.origin("datasets")) : 512;
    const Json batch = set.value("batch_size", Json(1));
    if (!batch.is_number_integer() || batch.get<int64_t>() < 1)
      throw Error(fmt::format("[{}] batch_size is {}, expected a whole number above 0", r.origin("datasets"), dump(batch).substr(0, 40)),
                  "e.g. 2");
    const double pixels = static_cast<double>(side) * static_cast<double>(side) * batch.get<double>();
    if (largest.is_null() || pixels > largest["pixels"].get<double>())
      largest = {{"pixels", pixels}, {"side", side}, {"batch", batch}, {"bucket", set.value("enable_bucket", false)}};
  }
  if (largest.is_null()) return;
  r.set("seq", largest["side"], "datasets");
  r.set("batch", largest["batch"], "datasets");
  if (sets && sets->is_array() && sets->size() > 1)
    r.note(Effect::note, "of several datasets the one with the largest batch of pixels is simulated");
}

void read_attention(Reader& r, const Script& s) {
  if (r.flag("sdpa", false)) return r.set("attention", "auto", "sdpa");
  if (r.flag("xformers", false)) return r.set("attention", "efficient", "xformers");
  if (r.flag("mem_eff_attn", false)) {
    r.finding(Effect::unknown, "mem_eff_attn", "not modelled: PyTorch's memory-efficient attention is simulated");
    return r.set("attention", "efficient", "mem_eff_attn");
  }
  if (s.model.starts_with("sd-scripts-sd")) {
    r.set_default("attention", "eager", kTrainer);
    r.note(Effect::note, "neither --sdpa nor --xformers: attention keeps its whole matrix, which is the most memory-hungry choice");
  }
}

void read_settings(Reader& r, const std::string& program) {
  r.job.trainer = kTrainer;
  const Script s = script_of(r, program);
  read_model(r, s);
  read_precision(r, s);
  read_network(r, s);
  read_optimizer(r);
  read_attention(r, s);
  if (!r.set("batch", "train_batch_size")) r.set_default("batch", 1, kTrainer);
  if (r.has("resolution")) r.set("seq", side_of(*r.find("resolution"), r.origin("resolution")), "resolution");
  if (r.has("dataset_config")) {
    for (const char* key : {"train_batch_size", "resolution"})
      r.finding(Effect::none, key, "the dataset's own file says it", "values of dataset_config win");
    r.include("dataset_config");
  }
  if (r.flag("enable_bucket", false))
    r.finding(Effect::note, "enable_bucket", "pictures of other shapes have about as many pixels: the answer is for a square one");
  r.set("accumulation", "gradient_accumulation_steps");
  if (r.flag("gradient_checkpointing", false)) r.set("checkpointing", true, "gradient_checkpointing");
  if (r.flag("cpu_offload_checkpointing", false)) r.set("offload_activations", "pageable", "cpu_offload_checkpointing");
  if (r.integer("blocks_to_swap", 0) > 0) r.set("swap_blocks", "blocks_to_swap");
  if (r.job.optimizer_in_backward)
    r.finding(Effect::other, "max_grad_norm", "each gradient is clipped by its own norm, just before its update",
              "the hook of --fused_backward_pass");
  else if (r.number("max_grad_norm", 1.0) > 0 && !r.set("clip", "max_grad_norm"))
    r.set_default("clip", 1.0, kTrainer);
  if (r.flag("torch_compile", false)) r.set("compile", true, "torch_compile");
  if (!r.set("workers", "max_data_loader_n_workers")) r.set_default("workers", 8, kTrainer);
  if (r.flag("persistent_data_loader_workers", false)) {
    if (r.job.host.workers > 0)
      r.set("persistent_workers", true, "persistent_data_loader_workers");
    else
      r.finding(Effect::refused, "persistent_data_loader_workers", "there are no workers to keep", "DataLoader raises a ValueError");
  }
  if (r.job.parallel.ddp) {
    const Json ddp{{"world", r.job.parallel.ddp->world},
                   {"bucket_view", r.flag("ddp_gradient_as_bucket_view", false)},
                   {"static_graph", r.flag("ddp_static_graph", false)}};
    apply_setting(r.job, "ddp", ddp, r.job.origin["ddp"]);
  }
  if (r.flag("deepspeed", false)) read_kohya_zero(r);
  read_kohya_parts(r, s.network, program);
  for (const char* key : {"sample_every_n_steps", "sample_every_n_epochs"})
    if (r.has(key)) r.finding(Effect::partial, key, "the memory of sampled pictures is not part of the answer");
  r.ignore({"ddp_timeout",
            "ddp_gradient_as_bucket_view",
            "ddp_static_graph",
            "output_dir",
            "output_name",
            "logging_dir",
            "log_with",
            "log_prefix",
            "log_tracker_name",
            "wandb_run_name",
            "wandb_api_key",
            "log_config",
            "huggingface_repo_id",
            "async_upload",
            "save_every_n_epochs",
            "save_every_n_steps",
            "save_last_n_epochs",
            "save_last_n_steps",
            "save_state",
            "save_state_on_train_end",
            "resume",
            "save_model_as",
            "no_metadata",
            "metadata_title",
            "metadata_author",
            "learning_rate",
            "unet_lr",
            "text_encoder_lr",
            "lr_scheduler",
            "lr_warmup_steps",
            "lr_scheduler_num_cycles",
            "lr_scheduler_power",
            "lr_scheduler_type",
            "lr_scheduler_args",
            "lr_decay_steps",
            "max_train_steps",
            "max_train_epochs",
            "seed",
            "clip_skip",
            "max_token_length",
            "noise_offset",
            "multires_noise_iterations",
            "multires_noise_discount"});
  r.ignore({"ip_noise_gamma",
            "adaptive_noise_scale",
            "zero_terminal_snr",
            "min_snr_gamma",
            "min_timestep",
            "max_timestep",
            "loss_type",
            "huber_schedule",
            "huber_c",
            "huber_scale",
            "prior_loss_weight",
            "masked_loss",
            "weighting_scheme",
            "logit_mean",
            "logit_std",
            "mode_scale",
            "guidance_scale",
            "timestep_sampling",
            "sigmoid_scale",
            "model_prediction_type",
            "discrete_flow_shift",
            "lowram",
            "highvram",
            "sample_prompts",
            "sample_sampler",
            "sample_at_first",
            "config_file",
            "output_config",
            "vae",
            "vae_batch_size",
            "train_data_dir",
            "reg_data_dir",
            "in_json",
            "caption_extension",
            "shuffle_caption",
            "keep_tokens",
            "color_aug",
            "flip_aug",
            "random_crop",
            "min_bucket_reso",
            "max_bucket_reso",
            "bucket_reso_steps",
            "bucket_no_upscale",
            "caption_dropout_rate",
            "caption_tag_dropout_rate",
            "dataset_repeats",
            "dynamo_backend",
            "text_encoder_batch_size",
            "skip_cache_check",
            "apply_t5_attn_mask",
            "t5xxl_max_token_length",
            "tokenizer_cache_dir",
            "alpha_mask",
            "cache_info",
            "debug_dataset",
            "disable_mmap_load_safetensors",
            "split_mode",
            "learning_rate_te",
            "learning_rate_te1",
            "learning_rate_te2",
            "scale_v_pred_loss_like_noise_pred"});
  r.finish();
}

// The sections of the file are for the reader's eye alone; what stands outside of them, as flags do, wins.
Document flattened(const Document& d) {
  Document flat = d;
  flat.value = Json::object();
  for (const auto& section : d.value.items()) {
    if (!section.value().is_object()) continue;
    for (const auto& item : section.value().items()) {
      flat.value[item.key()] = item.value();
      flat.places["/" + item.key()] = d.name + ": " + section.key() + "." + item.key();
    }
  }
  for (const auto& item : d.value.items()) {
    if (item.value().is_object()) continue;
    flat.value[item.key()] = item.value();
    const auto given = d.places.find("/" + item.key());
    flat.places["/" + item.key()] = given != d.places.end() ? given->second : d.name + ": " + item.key();
  }
  return flat;
}

Evidence evidence_of_kohya(const Document& d) {
  if (d.kind == Document::Kind::command) {
    const bool other = program_of(d) == "train_network.py" && d.value["flags"].contains("per_device_train_batch_size");
    return is_script(program_of(d)) && !other ? Evidence{program_of(d)} : Evidence{};
  }
  if (d.kind != Document::Kind::toml || !d.value.is_object()) return {};
  if (is_kohya_dataset(d.value)) return {"datasets.subsets"};
  Evidence keys =
      keys_there(flattened(d), {"network_module", "pretrained_model_name_or_path", "train_batch_size", "optimizer_type", "dataset_config"});
  const bool named = std::find(keys.begin(), keys.end(), "pretrained_model_name_or_path") != keys.end();
  return !keys.empty() && (keys[0] == "network_module" || (named && keys.size() > 1)) ? keys : Evidence{};
}

void read_kohya(Reader& r) {
  if (r.document.kind != Document::Kind::command && is_kohya_dataset(r.document.value)) {
    read_dataset(r);
    return r.finish();
  }
  const bool command = r.document.kind == Document::Kind::command;
  if (command) read_launch(r);
  const Document settings = flattened(command ? settings_of(r, {"config_file"}) : r.document);
  Reader inner(r.job, settings);
  read_settings(inner, program_of(r.document));
}

}  // namespace

bool is_kohya_dataset(const Json& value) {
  const auto it = value.find("datasets");
  if (it == value.end() || !it->is_array() || it->empty()) return false;
  return (*it)[0].is_object() && (*it)[0].contains("subsets");
}

const Format& kohya_format() {
  static const Format kFormat{"kohya",     "TOML or command of kohya's sd-scripts", Rank::trainer, evidence_of_kohya, read_kohya, nullptr,
                              writes_kohya};
  return kFormat;
}

}  // namespace plimsoll
