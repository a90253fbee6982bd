#include <fmt/format.h>

#include "formats/kohya.h"
#include "formats/readers.h"
#include "formats/trainer.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// Which text encoders are trained: of an adapter's all that are CLIP unless told otherwise; with the model itself in train_db.py, and where
// --train_text_encoder says so.
bool trains_texts(Reader& r, bool network, const std::string& program) {
  if (network) return !r.flag("network_train_unet_only", false);
  if (program == "train_db.py") return r.integer("stop_text_encoder_training", 0) >= 0;
  return r.flag("train_text_encoder", false);
}

const char* text_key(Reader& r, bool network) {
  if (!network) return r.has("train_text_encoder") ? "train_text_encoder" : "stop_text_encoder_training";
  return "network_train_unet_only";
}

// The VAE and the text encoders beside a checkpoint that stands for itself: not part of the answer.
void note_missing_parts(Reader& r, bool latents, bool texts, bool trains) {
  if (!texts && trains)
    r.missing("the text encoders", "they are trained as well: their weights and adapters are not part of the answer",
              "a model that is named by its script or its name on the Hub has them");
  else if (!texts)
    r.missing("the text encoders", "they are also on the device: their weights are not part of the answer",
              "--cache_text_encoder_outputs lets them go");
  if (!latents)
    r.missing("the VAE", "it encodes pictures between the steps: its memory is not part of the answer", "--cache_latents lets it go");
}

// Texts are cached, or encoded in every step by encoders that are frozen or trained.
void read_texts(Reader& r, bool network, const std::string& program, bool cached) {
  const char* key = text_key(r, network);
  const std::string& model = r.job.model;
  const bool wanted = trains_texts(r, network, program),
             unet = model == "sd-scripts-sd1" || model == "sd-scripts-sd2" || model == "sd-scripts-sdxl";
  const char* cache = r.has("cache_text_encoder_outputs") ? "cache_text_encoder_outputs" : "cache_text_encoder_outputs_to_disk";
  if (cached) r.config("cache_text_embeddings", true, r.origin(cache));
  if (wanted && cached && unet)
    return r.finding(Effect::refused, cache, "text encoders that are trained cannot be cached: an AssertionError",
                     network ? "give --network_train_unet_only" : "leave --train_text_encoder out");
  if (wanted && cached)
    return r.missing("the CLIP text encoders", "outputs of T5 alone are cached: CLIP is trained and stays on the device", r.origin(cache));
  if (wanted && model == "sd-scripts-lumina2")
    return r.missing("the text encoder's adapter", "the text encoder is simulated frozen", "--network_train_unet_only goes without");
  if (!wanted) return;
  r.config("train_text_encoder", true, r.has(key) ? r.origin(key) : std::string("default of sd-scripts"));
  if (r.flag("gradient_checkpointing", false) && network)
    r.note(Effect::note, "embeddings of the text encoders collect gradients that nothing uses or resets",
           "train_network.py, prepare_text_encoder_grad_ckpt_workaround; --network_train_unet_only goes without");
}

}  // namespace

void read_kohya_parts(Reader& r, bool network, const std::string& program) {
  const bool texts = r.flag("cache_text_encoder_outputs", false) || r.flag("cache_text_encoder_outputs_to_disk", false);
  const bool latents = r.flag("cache_latents", false) || r.flag("cache_latents_to_disk", false);
  if (r.flag("network_train_text_encoder_only", false))
    r.finding(Effect::unknown, "network_train_text_encoder_only", "the adapters of the denoiser are simulated as well");
  if (!r.job.model.starts_with("sd-scripts-")) return note_missing_parts(r, latents, texts, trains_texts(r, network, program));
  r.config("cache_latents", latents, r.origin(r.has("cache_latents_to_disk") ? "cache_latents_to_disk" : "cache_latents"));
  read_texts(r, network, program, texts);
  // --no_half_vae; beside weights in fp32 the parts that are not trained are in the mixed type
  const bool whole_vae = r.flag("no_half_vae", false), mixed = r.job.precision == Precision::amp || r.job.precision == Precision::amp_fp16;
  const char* half = r.job.precision == Precision::amp ? "bf16" : "fp16";
  if (whole_vae || mixed) r.config("vae_dtype", whole_vae ? "fp32" : half, r.origin(whole_vae ? "no_half_vae" : "mixed_precision"));
  if (mixed) r.config("te_dtype", half, r.origin("mixed_precision"));
}

// library/deepspeed_utils.py: accelerate's plugin, without a file of DeepSpeed's. Its engine puts every weight into the mixed type, and
// forward runs under an autocast whose type is not given.
void read_kohya_zero(Reader& r) {
  const int64_t stage = r.integer("zero_stage", 2);
  r.set("workers", 1, "deepspeed");  // prepare_deepspeed_args
  Document inside;
  inside.kind = Document::Kind::json;
  inside.name = r.document.name;
  Json zero{{"stage", stage}};
  for (const char* which : {"optimizer", "param"})
    if (const std::string path = fmt::format("offload_{}_device", which); r.has(path) && lower(r.text(path)) != "none")
      zero[std::string("offload_") + which] = {{"device", lower(r.text(path))}};
  r.ignore({"zero_stage", "offload_optimizer_device", "offload_optimizer_nvme_path", "offload_param_device", "offload_param_nvme_path",
            "zero3_init_flag", "zero3_save_16bit_model", "fp16_master_weights_and_gradients"});
  const std::string mixed = lower(r.text("mixed_precision", "no"));
  const bool casts = mixed == "fp16" || mixed == "bf16";
  if (stage == 3 && casts) return not_simulated(r, "zero_stage", "ZeRO stage 3 under autocast");
  const bool several = world_size(r.job) > 1 && stage > 0;
  if (several && casts) {
    apply_setting(r.job, "precision", mixed, r.origin("mixed_precision"));
    apply_setting(r.job, "autocast", true, r.origin("mixed_precision"));
  }
  if (several && mixed == "bf16")
    r.missing("the fp16 copy of the weights", "DeepSpeed's wrapper casts bf16 weights under autocast",
              "the wrapper's torch.autocast names no type, and that of CUDA is fp16 unless it is told");
  inside.value = {{"zero_optimization", zero}};
  Reader inner(r.job, inside);
  read_deepspeed(inner);
}

}  // namespace plimsoll
