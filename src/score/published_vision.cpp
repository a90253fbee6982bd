#include "score/published_vision.h"

#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// PEFT's method_comparison/image-gen keeps DINOv2-base in fp32 (86.6 M parameters) and the text states of its 14 training prompts on the
// device (run.py, get_dino_encoder and precompute_prompt_caches).
constexpr int64_t kImageGenResident = 86580480 * 4 + 14 * 512 * 7680 * 2;

// Height, width, frames and words of what is generated.
void canvas(const Json& row, Json& config) {
  const Json& train = row.at("train");
  if (train.at("image_size").is_array()) {
    config["height"] = train["image_size"].at(0);
    config["width"] = train["image_size"].at(1);
  }
  if (train.contains("frames") && train["frames"].is_number_integer()) config["frames"] = train["frames"];
  if (train.contains("extra") && train["extra"].is_object() && train["extra"].contains("text_tokens"))
    config["text_tokens"] = train["extra"]["text_tokens"];
}

// Keys of the rows -> keys of diffusers; absent and null ones are left to the class.
void denoiser_keys(const Json& sizes, Json& config, std::initializer_list<std::pair<const char*, const char*>> more) {
  for (const auto& [from, to] : {std::pair("num_layers", "num_layers"),
                                 {"num_heads", "num_attention_heads"},
                                 {"head_dim", "attention_head_dim"},
                                 {"in_channels", "in_channels"},
                                 {"out_channels", "out_channels"}})
    if (sizes.contains(from) && !sizes[from].is_null()) config[to] = sizes[from];
  for (const auto& [from, to] : more)
    if (sizes.contains(from) && !sizes[from].is_null()) config[to] = sizes[from];
}

void flux2(const Json& sizes, Json& config) {
  denoiser_keys(sizes, config,
                {{"num_double_layers", "num_layers"},
                 {"num_single_layers", "num_single_layers"},
                 {"joint_attention_dim", "joint_attention_dim"},
                 {"timestep_guidance_channels", "timestep_guidance_channels"},
                 {"guidance_embeds", "guidance_embeds"},
                 {"mlp_ratio", "mlp_ratio"},
                 {"axes_dims_rope", "axes_dims_rope"}});
}

void ltx(const Json& sizes, Json& config) {
  denoiser_keys(sizes, config, {{"caption_channels", "caption_channels"}, {"cross_attention_dim", "cross_attention_dim"}});
}

void cogvideox(const Json& sizes, Json& config) {
  denoiser_keys(sizes, config,
                {{"text_embed_dim", "text_embed_dim"},
                 {"time_embed_dim", "time_embed_dim"},
                 {"max_text_seq_length", "max_text_seq_length"},
                 {"sample_frames", "sample_frames"},
                 {"sample_height", "sample_height"},
                 {"sample_width", "sample_width"},
                 {"rotary", "use_rotary_positional_embeddings"}});
}

void hunyuan_video(const Json& sizes, Json& config) {
  denoiser_keys(sizes, config,
                {{"num_double_layers", "num_layers"},
                 {"num_single_layers", "num_single_layers"},
                 {"num_refiner_layers", "num_refiner_layers"},
                 {"patch_size", "patch_size"},
                 {"patch_size_t", "patch_size_t"},
                 {"text_embed_dim", "text_embed_dim"},
                 {"guidance_embeds", "guidance_embeds"}});
}

int64_t depth_of(const Json& sizes) {
  return sizes.at("blocks_per_stage").at(2) == 6 ? 50 : sizes["blocks_per_stage"][2] == 23 ? 101 : 152;
}

PublishedModel segmentation(const Json& row, Json& config) {
  const Json& sizes = row.at("model").at("config");
  config = {{"depth", depth_of(sizes)}, {"num_classes", sizes.at("num_classes")}, {"decode_head", sizes.at("decode_head").at("type")}};
  canvas(row, config);
  return {"mmseg", ""};
}

PublishedModel recognizer(const Json& sizes, Json& config) {
  config = {{"depth", depth_of(sizes)},
            {"num_classes", sizes.at("num_classes")},
            {"num_segments", sizes.at("segments")},
            {"temporal_shift", sizes.contains("temporal_shift")}};
  return {"tsn", ""};
}

struct Denoising {
  const char *arch, *family;
  void (*fill)(const Json& sizes, Json& config);
};
constexpr Denoising kDenoisers[]{{"dit_flux2", "flux2", flux2},
                                 {"dit_ltx", "ltx_video", ltx},
                                 {"dit_cogvideox", "cogvideox", cogvideox},
                                 {"dit_hunyuan", "hunyuan_video", hunyuan_video},
                                 {"dit_hunyuanvideo", "hunyuan_video", hunyuan_video}};

}  // namespace

PublishedModel published_vision_model(const Json& row, Json& config) {
  const Json& sizes = row.at("model").at("config");
  const std::string arch = row.at("model").at("arch").get<std::string>(), name = row.at("model").at("name").get<std::string>();
  for (const Denoising& d : kDenoisers) {
    if (arch != d.arch) continue;
    d.fill(sizes, config);
    canvas(row, config);
    if (row.at("software").at("framework").get<std::string>().find("image-gen") != std::string::npos)
      config["resident"] = kImageGenResident;
    return {d.family, ""};
  }
  if (arch == "cnn_segmentation") return segmentation(row, config);
  if (arch == "cnn_resnet" && (name.rfind("TSN", 0) == 0 || name.rfind("TSM", 0) == 0)) return recognizer(sizes, config);
  if (arch.rfind("cnn_mobilenet", 0) == 0 && sizes.contains("segments")) {  // frames are images of the batch; what TSM shifts is not copied
    config["num_classes"] = sizes.at("num_classes");
    return {"mobilenet_v2", ""};
  }
  if (arch == "vit" && name.rfind("timm vit_huge_patch14", 0) == 0) {  // the layers of torchvision's, names aside
    config["num_classes"] = sizes.at("num_classes");
    return {"vit_h_14", ""};
  }
  return {"", ""};
}

}  // namespace plimsoll
