// diffusers' transformers: settings, their errors, and what they change. That the bytes are PyTorch's is in truth_test.cpp
// (tests/truth/diffusion_transformers.jsonl).
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "job/settings.h"
#include "model/registry.h"
#include "simulate.h"

namespace plimsoll::denoiser_transformers_test {
namespace {

using Json = nlohmann::json;

const Json kFlux{{"num_layers", 1},           {"num_single_layers", 1},      {"attention_head_dim", 32},      {"num_attention_heads", 2},
                 {"joint_attention_dim", 16}, {"pooled_projection_dim", 16}, {"axes_dims_rope", {8, 12, 12}}, {"text_tokens", 8}};
const Json kWan{{"num_layers", 1}, {"attention_head_dim", 12}, {"num_attention_heads", 2}, {"text_dim", 16}, {"ffn_dim", 32}};
const Json kPixArt{{"num_layers", 1},   {"attention_head_dim", 12}, {"num_attention_heads", 2}, {"cross_attention_dim", 24},
                   {"sample_size", 16}, {"caption_channels", 16},   {"text_tokens", 8}};

Job job_of(const std::string& family, const Json& config, int64_t side = 64) {
  Job job;
  job.model = job.family = family;
  job.config = Config(family, config);
  job.batch = 1;
  job.seq = side;
  job.inputs = InputKind::own;
  return job;
}

Json with(Json config, const Json& changes) {
  config.update(changes);
  return config;
}

int64_t peak(const Job& job) { return ideal_timeline(simulate(job).trace).peak().bytes; }

std::string error_of(const Job& job) {
  try {
    simulate(job);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

Bytes swapped(int64_t blocks, const Json& config) {
  Job job = job_of("flux", config);
  apply_setting(job, "lora", "r=2,target_modules=all-linear", "test");
  apply_setting(job, "swap_blocks", blocks, "test");
  return simulate(job).host.weights;
}

// sd-scripts: half of N double blocks, and two single blocks for each of the rest; two of each stay.
TEST(DenoiserTransformers, SwappedBlocksOfFluxAreSharedOutOverBothLists) {
  const Json deep = with(kFlux, {{"num_layers", 5}, {"num_single_layers", 10}});
  const int64_t two_single = swapped(1, deep).count, pair = swapped(2, deep).count;
  EXPECT_GT(two_single, 0);
  EXPECT_GT(pair, two_single);  // a double block beside the two
  EXPECT_EQ(swapped(3, deep).count, pair + two_single);
  EXPECT_EQ(swapped(4, deep).count, 2 * pair);
  EXPECT_THROW(swapped(8, deep), Error);
}

// sd-scripts' --fp8_base: one byte for each weight of a linear layer, without scales.
TEST(DenoiserTransformers, ABaseInFp8HasOneByteForEachWeight) {
  const auto frozen = [](const char* type) {
    Job job = job_of("flux", kFlux);
    apply_setting(job, "precision", "bf16", "test");
    apply_setting(job, "lora", "r=2,target_modules=to_q", "test");
    if (*type) apply_setting(job, "quantization", type, "test");
    const Simulation s = simulate(job);
    int64_t all = 0;
    for (const StorageRecord& r : s.trace.storages)
      if (r.born_as == Category::parameter && r.phase == Phase::setup) all += r.bytes;
    return all;
  };
  EXPECT_LT(frozen("fp8"), 0.6 * static_cast<double>(frozen("")));
  EXPECT_LT(frozen("fp8"), frozen("qfloat8")) << "which has a scale for each row";
  EXPECT_EQ(frozen("fp8"), frozen("float8"));
}

TEST(DenoiserTransformers, AreFoundByTheirClass) {
  for (const char* name :
       {"FluxTransformer2DModel", "SD3Transformer2DModel", "QwenImageTransformer2DModel", "ChromaTransformer2DModel",
        "WanTransformer3DModel", "HunyuanVideoTransformer3DModel", "DiTTransformer2DModel", "PixArtTransformer2DModel"}) {
    const ModelEntry* entry = find_model(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->family->library, "diffusers");
    EXPECT_EQ(entry->inputs, InputKind::own);
  }
}

TEST(DenoiserTransformers, HeightAndWidthStandForASquare) {
  EXPECT_EQ(peak(job_of("flux", kFlux, 128)), peak(job_of("flux", with(kFlux, {{"height", 128}, {"width", 128}}), 64)));
  EXPECT_LT(peak(job_of("flux", with(kFlux, {{"height", 512}, {"width", 256}}))), peak(job_of("flux", kFlux, 512)));
}

TEST(DenoiserTransformers, AReferenceImageIsMoreTokens) {
  EXPECT_GT(peak(job_of("flux", with(kFlux, {{"reference_images", 1}}), 512)), peak(job_of("flux", kFlux, 512)));
}

TEST(DenoiserTransformers, FramesAreMoreTokens) {
  EXPECT_GT(peak(job_of("wan", with(kWan, {{"frames", 33}}), 256)), peak(job_of("wan", kWan, 256)));
}

TEST(DenoiserTransformers, UnknownKeysAreIgnoredAsByDiffusers) {
  EXPECT_EQ(peak(job_of("flux", with(kFlux, {{"_class_name", "FluxTransformer2DModel"}, {"no_such_key", 3}}))),
            peak(job_of("flux", kFlux)));
}

TEST(DenoiserTransformers, SizesThatCutATokenAreAnError) {
  EXPECT_TRUE(has(error_of(job_of("flux", kFlux, 72)), "72 is not a multiple of 16"));
  EXPECT_TRUE(has(error_of(job_of("flux", with(kFlux, {{"width", 40}}))), "take 32"));
  EXPECT_TRUE(has(error_of(job_of("wan", with(kWan, {{"frames", 8}}))), "use 5"));
  EXPECT_TRUE(has(error_of(job_of("wan", with(kWan, {{"patch_size", {2, 2, 2}}, {"frames", 9}}))), "3 latent frames"));
  EXPECT_TRUE(has(error_of(job_of("dit", {{"height", 64}, {"width", 128}})), "square"));
  EXPECT_TRUE(has(error_of(job_of("sd3", {{"num_layers", 1}, {"pos_embed_max_size", 2}}, 128)), "pos_embed_max_size is 2"));
}

TEST(DenoiserTransformers, BadSizesAreNamed) {
  EXPECT_TRUE(has(error_of(job_of("flux", with(kFlux, {{"axes_dims_rope", {8, 12}}}))), "list of 3 sizes"));
  EXPECT_TRUE(has(error_of(job_of("flux", with(kFlux, {{"axes_dims_rope", {9, 11, 12}}}))), "9, an odd number"));
  EXPECT_TRUE(has(error_of(job_of("flux", with(kFlux, {{"attention_head_dim", 33}}))), "axes_dims_rope add up to 32"));
  EXPECT_TRUE(has(error_of(job_of("flux", with(kFlux, {{"reference_images", -1}}))), "reference_images -1"));
  EXPECT_TRUE(has(error_of(job_of("wan", with(kWan, {{"attention_head_dim", 13}}))), "13 is odd"));
  EXPECT_TRUE(has(error_of(job_of("wan", with(kWan, {{"rope_max_seq_len", 2}}))), "rope_max_seq_len is 2"));
  EXPECT_TRUE(has(error_of(job_of("sd3", {{"qk_norm", "layer_norm"}})), "qk_norm 'layer_norm'"));
  EXPECT_TRUE(has(error_of(job_of("sd3", {{"caption_projection_dim", 100}})), "caption_projection_dim 100"));
  EXPECT_TRUE(has(error_of(job_of("sd3", {{"dual_attention_layers", "all"}})), "dual_attention_layers"));
  EXPECT_TRUE(has(error_of(job_of("pixart", with(kPixArt, {{"patch_size", 3}}))), "patch_size 3 does not divide sample_size 16"));
  EXPECT_TRUE(has(error_of(job_of("pixart", with(kPixArt, {{"norm_type", "ada_norm"}}))), "ada_norm_single"));
  EXPECT_TRUE(has(error_of(job_of("pixart", with(kPixArt, {{"cross_attention_dim", 32}}))), "cross_attention_dim 32"));
  EXPECT_TRUE(has(error_of(job_of("dit", {{"activation_fn", "tanh"}})), "activation_fn 'tanh'"));
  EXPECT_TRUE(has(error_of(job_of("chroma", {{"approximator_num_channels", 12}})), "approximator_num_channels 12"));
  EXPECT_TRUE(has(error_of(job_of("qwen_image", {{"zero_cond_t", true}})), "zero_cond_t"));
  EXPECT_TRUE(has(error_of(job_of("qwen_image", {{"num_layers", 1}, {"text_tokens", 5000}})), "4096 positions"));
  EXPECT_TRUE(has(error_of(job_of("hunyuan_video", {{"image_condition_type", "latent_concat"}})), "image_condition_type"));
  EXPECT_TRUE(has(error_of(job_of("hunyuan_video", {{"mlp_ratio", 0}})), "mlp_ratio"));
  EXPECT_TRUE(has(error_of(job_of("flux", with(kFlux, {{"num_layers", 0}}))), "num_layers"));
}

TEST(DenoiserTransformers, HiDreamsExpertsAndTextsAreChecked) {
  const Json small = {{"in_channels", 16},        {"num_layers", 1},
                      {"num_single_layers", 1},   {"num_attention_heads", 2},
                      {"attention_head_dim", 16}, {"axes_dims_rope", {8, 4, 4}},
                      {"llama_states", 3},        {"caption_channels", {8, 8}},
                      {"text_emb_dim", 8}};
  EXPECT_EQ(error_of(job_of("hidream", small)), "");
  EXPECT_EQ(error_of(job_of("hidream", with(small, {{"num_routed_experts", 0}}))), "");
  EXPECT_TRUE(
      has(error_of(job_of("hidream", with(small, {{"num_activated_experts", 5}}))), "num_activated_experts 5 of num_routed_experts 4"));
  EXPECT_TRUE(has(error_of(job_of("hidream", with(small, {{"llama_layers", {0}}}))), "llama_layers names 1 layers for 2 blocks"));
  EXPECT_TRUE(has(error_of(job_of("hidream", with(small, {{"llama_layers", {0, 3}}}))), "llama_layers has 3"));
  EXPECT_TRUE(has(error_of(job_of("hidream", with(small, {{"height", 64}, {"width", 128}}))), "only square images"));
}

TEST(DenoiserTransformers, OmniGen2sPlacesAndHeadsAreChecked) {
  const Json small = {{"hidden_size", 48},   {"num_layers", 1},   {"num_refiner_layers", 1},    {"num_attention_heads", 3},
                      {"num_kv_heads", 1},   {"multiple_of", 16}, {"axes_dim_rope", {4, 6, 6}}, {"axes_lens", {64, 32, 32}},
                      {"text_feat_dim", 40}, {"text_tokens", 12}};
  EXPECT_EQ(error_of(job_of("omnigen2", small)), "");
  EXPECT_EQ(error_of(job_of("omnigen2", with(small, {{"triton", false}}))), "");
  EXPECT_TRUE(has(error_of(job_of("omnigen2", with(small, {{"text_tokens", 64}}))), "65 positions along axis 0, but axes_lens has 64"));
  EXPECT_TRUE(has(error_of(job_of("omnigen2", with(small, {{"height", 1024}}))), "64 positions along axis 1"));
  EXPECT_TRUE(has(error_of(job_of("omnigen2", with(small, {{"axes_dim_rope", {4, 4, 4}}}))), "axes_dim_rope"));
  EXPECT_TRUE(has(error_of(job_of("omnigen2", with(small, {{"num_kv_heads", 2}}))), "num_kv_heads 2"));
  EXPECT_TRUE(has(error_of(job_of("omnigen2", with(small, {{"ffn_dim_multiplier", 0}}))), "[omnigen2] ffn_dim_multiplier"));
  EXPECT_TRUE(has(error_of(job_of("omnigen2", with(small, {{"triton", "yes"}}))), "triton"));
}

TEST(DenoiserTransformers, PositionsAreMadeForOtherSizesThanTheStoredOne) {
  EXPECT_EQ(error_of(job_of("pixart", kPixArt, 96)), "");
  EXPECT_EQ(error_of(job_of("pixart", with(kPixArt, {{"height", 64}, {"width", 160}}))), "");
}

}  // namespace
}  // namespace plimsoll::denoiser_transformers_test
