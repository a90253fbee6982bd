// Denoisers, autoencoders, text encoders and the AI Toolkit's step: what is refused, and what caching, adapters and frozen parts change.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "job/settings.h"
#include "model/registry.h"
#include "model/resolve.h"
#include "simulate.h"
#include "step/train.h"

namespace plimsoll::diffusion_test {
namespace {

using Json = nlohmann::json;

const char* const kSmallUNet =
    R"({"block_out_channels":[32,64],"down_block_types":["CrossAttnDownBlock2D","DownBlock2D"],"up_block_types":["UpBlock2D","CrossAttnUpBlock2D"],
        "layers_per_block":1,"cross_attention_dim":32,"attention_head_dim":4,"norm_num_groups":8})";

Json small_unet() { return Json::parse(kSmallUNet); }

Json small_trainer() {
  Json unet = small_unet();
  unet["model"] = "unet2d-condition";
  const Json blocks = {8, 8, 16, 16};
  return {
      {"denoiser", unet},
      {"vae", {{"model", "autoencoder-kl"}, {"block_out_channels", blocks}, {"norm_num_groups", 8}}},
      {"text_encoders",
       {{{"model", "clip-text"}, {"hidden_size", 32}, {"num_attention_heads", 2}, {"num_hidden_layers", 2}, {"intermediate_size", 64}}}}};
}

Job job_of(const std::string& family, const Json& config) {
  Job job;
  job.model = job.family = find_model(family)->name;
  job.config = Config(family, config);
  job.inputs = InputKind::own;
  job.batch = 2;
  job.seq = 64;
  job.precision = Precision::bf16;
  job.steps = 1;
  return job;
}

std::string refusal(const std::string& family, const Json& config) {
  try {
    simulate(job_of(family, config));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

Simulation run(const Json& trainer, bool lora = true) {
  Job job = job_of("diffusion-trainer", trainer);
  if (lora) apply_setting(job, "lora", "r=4,target_modules=to_q+to_v,implementation=ai-toolkit", "test");
  return simulate(job);
}

int64_t peak(const Simulation& s) { return ideal_timeline(s.trace).peak().bytes; }

Json with(Json config, const char* key, const Json& value) {
  config[key] = value;
  return config;
}

struct Refused {
  const char* key;
  const char* value;
  const char* message;
};

TEST(Diffusion, UNetsThatAreNotModelledAreRefused) {
  const Refused cases[] = {
      {"block_out_channels", "320", "block_out_channels is 320, expected a list"},
      {"block_out_channels", "[]", "block_out_channels is [], expected a list"},
      {"block_out_channels", R"(["a", 64])", "each"},
      {"block_out_channels", "[32]", "2 down_block_types for 1 block_out_channels"},
      {"block_out_channels", "[36, 64]", "8 groups do not divide 36 channels"},
      {"attention_head_dim", "5", "attention_head_dim 5 does not divide block_out_channels 32"},
      {"attention_head_dim", "[4]", "attention_head_dim has 1 values for 2 blocks"},
      {"layers_per_block", "-1", "layers_per_block"},
      {"only_cross_attention", "[1, 2]", "each"},
      {"down_block_types", R"(["CrossAttnDownBlock2D", "KDownBlock2D"])", "down_block_types 'KDownBlock2D' is not modelled"},
      {"mid_block_type", R"("UNetMidBlock2DSimpleCrossAttn")", "mid_block_type"},
      {"addition_embed_type", R"("image")", "addition_embed_type 'image' is not modelled"},
      {"class_embed_type", R"("timestep")", "class_embed_type is not modelled"},
      {"dropout", "2", "dropout is 2"},
      {"act_fn", R"("swishy")", "'swishy' is not known"},
      {"height", "4", "height 4 is not a multiple of 8 pixels"},
  };
  for (const Refused& c : cases)
    EXPECT_NE(refusal("unet2d-condition", with(small_unet(), c.key, Json::parse(c.value))).find(c.message), std::string::npos)
        << c.key << " " << c.value << ": " << refusal("unet2d-condition", with(small_unet(), c.key, Json::parse(c.value)));
  Json xl = with(small_unet(), "addition_embed_type", "text_time");
  xl["addition_time_embed_dim"] = 500;
  EXPECT_NE(refusal("unet2d-condition", xl).find("leaves nothing for the text"), std::string::npos);
}

TEST(Diffusion, AutoencodersThatAreNotModelledAreRefused) {
  EXPECT_NE(refusal("autoencoder-kl", {{"down_block_types", {"AttnDownEncoderBlock2D"}}}).find("is not modelled"), std::string::npos);
  EXPECT_NE(refusal("autoencoder-kl", {{"block_out_channels", {64, 64}}, {"up_block_types", {"UpDecoderBlock2D"}}})
                .find("1 up_block_types for 2"),
            std::string::npos);
  EXPECT_NE(refusal("autoencoder-kl", {{"block_out_channels", {32, 32, 32}}, {"height", 30}}).find("halved 2 times"), std::string::npos);
  Job job = job_of("autoencoder-kl", Json::object());
  job.checkpointing.on = true;
  EXPECT_THROW(simulate(job), Error);
}

TEST(Diffusion, TheTrainerNamesWhatIsWrong) {
  const Refused cases[] = {
      {"denoiser", "null", "no denoiser was named"},
      {"denoiser", "7", "denoiser is 7"},
      {"denoiser", R"("sdxl-unett")", "'sdxl-unett' is not known"},
      {"denoiser", R"("gpt2")", "gpt2 is not a denoiser"},
      {"vae", R"("sdxl-unet")", "is not an autoencoder"},
      {"vae", "null", "cache_latents: false needs a vae"},
      {"text_encoders", R"("clip-text")", "expected a list"},
      {"text_encoders", R"(["gpt2"])", "gpt2 is not a text encoder"},
      {"text_encoders", "[]", "no text_encoders are named"},
      {"text_encoders", R"(["clip-text", "clip-text"])", "no pipeline has the text_encoders clip-text + clip-text"},
      {"vae_dtype", R"("fp8")", "vae_dtype 'fp8' is not known"},
      {"cache_latent", "true", "cache_latent is not known"},
      {"dop", "3", "dop"},
  };
  for (const Refused& c : cases)
    EXPECT_NE(refusal("diffusion-trainer", with(small_trainer(), c.key, Json::parse(c.value))).find(c.message), std::string::npos)
        << c.key << " " << c.value << ": " << refusal("diffusion-trainer", with(small_trainer(), c.key, Json::parse(c.value)));
  Json other = small_trainer();
  other["vae"]["latent_channels"] = 16;
  EXPECT_NE(refusal("diffusion-trainer", other).find("are not the denoiser's"), std::string::npos);
  Json wider = small_trainer();
  wider["text_encoders"][0]["hidden_size"] = 64;
  EXPECT_NE(refusal("diffusion-trainer", wider).find("the text encoders give (2, 77, 64), the denoiser takes (2, 77, 32)"),
            std::string::npos);
}

TEST(Diffusion, AutoencodersOfVideosAreChecked) {
  const Json small = {
      {"base_dim", 8}, {"z_dim", 4}, {"dim_mult", {1, 2, 2}}, {"num_res_blocks", 1}, {"temperal_downsample", {false, true}}};
  EXPECT_EQ(refusal("autoencoder-kl-wan", small), "");
  EXPECT_EQ(refusal("autoencoder-kl-wan", with(small, "frames", 5)), "");
  const Refused cases[] = {
      {"frames", "4", "4 frames: one, and four for each latent more"},
      {"height", "30", "30 x 64: the sides are halved 2 times"},
      {"temperal_downsample", "[true]", "temperal_downsample has 1 values for 3 of dim_mult"},
      {"temperal_downsample", R"(["yes", "no"])", "expected a list of true and false"},
      {"dim_mult", "[1, 0, 2]", "dim_mult"},
      {"attn_scales", "[0.5]", "attn_scales"},
      {"is_residual", "true", "Wan 2.2"},
  };
  for (const Refused& c : cases)
    EXPECT_NE(refusal("autoencoder-kl-wan", with(small, c.key, Json::parse(c.value))).find(c.message), std::string::npos)
        << c.key << " " << c.value << ": " << refusal("autoencoder-kl-wan", with(small, c.key, Json::parse(c.value)));
}

TEST(Diffusion, EyesOfATextEncoderAreWeightsAlone) {
  const Json small = {{"vocab_size", 200},           {"hidden_size", 32},
                      {"intermediate_size", 48},     {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},    {"num_key_value_heads", 2},
                      {"tie_word_embeddings", true}, {"vision_config", {{"depth", 1}, {"hidden_size", 24}, {"num_heads", 2}}}};
  EXPECT_EQ(refusal("qwen2.5-vl-text", small), "");
  const Simulation seeing = simulate(job_of("qwen2.5-vl-text", small));
  const Simulation blind = simulate(job_of("qwen2.5-vl-text", with(small, "vision_config", nullptr)));
  EXPECT_GT(seeing.parameters, blind.parameters);
  const Refused cases[] = {{"vision_config", "3", "vision_config is 3"},
                           {"vision_config", R"({"num_heads": 5, "hidden_size": 24})", "num_heads 5"},
                           {"use_sliding_window", "true", "use_sliding_window"},
                           {"rope_scaling", R"({"type": "yarn"})", "rope_type 'yarn'"}};
  for (const Refused& c : cases)
    EXPECT_NE(refusal("qwen2.5-vl-text", with(small, c.key, Json::parse(c.value))).find(c.message), std::string::npos)
        << c.key << " " << c.value << ": " << refusal("qwen2.5-vl-text", with(small, c.key, Json::parse(c.value)));
}

// The body without its head; nothing of it is trained.
TEST(Diffusion, ALanguageModelIsATextEncoder) {
  Json trainer = with(small_trainer(), "cache_latents", true);
  trainer["text_encoders"] = {{{"model", "gemma2"},
                               {"vocab_size", 100},
                               {"hidden_size", 32},
                               {"intermediate_size", 64},
                               {"num_hidden_layers", 2},
                               {"num_attention_heads", 4},
                               {"num_key_value_heads", 2},
                               {"head_dim", 8}}};
  const Simulation encoded = run(trainer), cached = run(with(trainer, "cache_text_embeddings", true));
  // embedding, and in each layer q, k, v, o, the feed-forward and four norms; one more at the end
  EXPECT_EQ(encoded.parameters - cached.parameters, 100 * 32 + 2 * (32 * (32 + 16 + 16 + 32) + 3 * 32 * 64 + 4 * 32) + 32);
  EXPECT_EQ(encoded.trainable, cached.trainable);
}

TEST(Diffusion, ConvolutionsTakePlainLora) {
  Job job = job_of("unet2d-condition", small_unet());
  for (const char* implementation : {"peft", "ai-toolkit"}) {
    apply_setting(job, "lora", std::string("r=4,target_modules=conv_in,implementation=") + implementation, "test");
    EXPECT_EQ(simulate(job).trainable, 4 * 4 * 3 * 3 + 32 * 4) << implementation;  // 4 channels to r, r to 32
  }
  apply_setting(job, "lora", "r=4,target_modules=conv_in,use_dora=true", "test");
  EXPECT_THROW(simulate(job), Error);
}

TEST(Diffusion, CachedPartsAreNotOnTheDevice) {
  const Simulation all = run(small_trainer());
  const Simulation latents = run(with(small_trainer(), "cache_latents", true));
  const Simulation both = run(with(with(small_trainer(), "cache_latents", true), "cache_text_embeddings", true));
  const Simulation unloaded = run(with(with(small_trainer(), "cache_latents", true), "unload_text_encoder", true));
  EXPECT_GT(all.parameters, latents.parameters);
  EXPECT_GT(latents.parameters, both.parameters);
  EXPECT_GT(peak(latents), peak(both));
  EXPECT_EQ(both.parameters, unloaded.parameters);
  for (const Simulation* s : {&latents, &both}) EXPECT_EQ(s->trainable, all.trainable);
}

// Two graphs are alive at once: that of the prediction and that of the preservation.
TEST(Diffusion, OutputPreservationNeedsMore) {
  Json cached = with(with(small_trainer(), "cache_latents", true), "cache_text_embeddings", true);
  EXPECT_GT(peak(run(with(cached, "dop", true))), peak(run(cached)));
}

TEST(Diffusion, FrozenPartsGetNoAdapterAndNoGradient) {
  const Simulation adapted = run(small_trainer()), full = run(small_trainer(), false);
  // to_q and to_v of four attentions (two of 32 and two of 64 wide, one of each over the text) of rank 4; the autoencoder's have none.
  EXPECT_GT(adapted.trainable, 0);
  EXPECT_LT(adapted.trainable, 10'000);
  Job alone = job_of("unet2d-condition", small_unet());
  EXPECT_EQ(full.trainable, simulate(alone).parameters);
}

TEST(Diffusion, TheAiToolkitsLoraIsInFp32AndHasNoDora) {
  Job job = job_of("unet2d-condition", small_unet());
  EXPECT_THROW(apply_setting(job, "lora", "use_dora=true,implementation=ai-toolkit", "test"), Error);
  EXPECT_THROW(apply_setting(job, "lora", "implementation=kohya", "test"), Error);
  EXPECT_THROW(apply_setting(job, "quantization", "type=qfloat8,prepare=true", "test"), Error);
  apply_setting(job, "lora", "r=4,target_modules=to_q,implementation=ai-toolkit", "test");
  apply_setting(job, "quantization", "qfloat8", "test");
  EXPECT_GT(simulate(job).trainable, 0);
}

TEST(Diffusion, TheToolkitsAverageIsOfWhatIsTrained) {
  Job job = job_of("diffusion-trainer", small_trainer());
  apply_setting(job, "lora", "r=4,target_modules=to_q,implementation=ai-toolkit", "test");
  apply_setting(job, "ema_update", "ai-toolkit", "test");
  const Simulation s = simulate(job);
  int64_t average = 0;
  for (const StorageRecord& r : s.trace.storages)
    if (r.born_as == Category::ema && r.phase == Phase::setup) average += r.bytes;
  EXPECT_EQ(average, 4 * s.trainable);
  apply_setting(job, "ema_dtype", "bf16", "test");
  EXPECT_THROW(simulate(job), Error);
}

}  // namespace
}  // namespace plimsoll::diffusion_test
