// Names, files and weights resolved to a model; architectures that are known by the shapes of their weights alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "estimate/estimate.h"
#include "job/settings.h"
#include "model/hub_names.h"
#include "model/registry.h"
#include "model/resolve.h"
#include "model/weights_only.h"
#include "simulate.h"
#include "step/train.h"
#include "weights_files.h"

namespace plimsoll::weights_only_test {
namespace {

using Json = nlohmann::json;

Job resolved(const std::string& model, const Json& settings = Json::object()) {
  Job job;
  apply_setting(job, "model", model, "test");
  for (const auto& item : settings.items()) apply_setting(job, item.key(), item.value(), "test");
  resolve_model(job);
  return job;
}

TEST(HubNames, AreTakenForPresets) {
  const std::vector<std::pair<const char*, const char*>> names{
      {"meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"},
      {"meta-llama/Meta-Llama-3-8B", "llama-3-8b"},
      {"meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"},
      {"Qwen/Qwen2.5-7B", "qwen2.5-7b"},
      {"Qwen/Qwen3-8B-Base", "qwen3-8b"},
      {"google/gemma-2-9b-it", "gemma-2-9b"},
      {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"},
      {"mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"},
      {"microsoft/phi-1_5", "phi-1.5"},
      {"microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"},
      {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"},
      {"google-t5/t5-base", "t5-base"},
      {"openai-community/gpt2", "gpt2"},
      {"HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"},
      {"allenai/OLMo-2-1124-7B-Instruct", "olmo-2-7b"},
      {"google/vit-base-patch16-224-in21k", "vit-b16"},
      {"CohereForAI/c4ai-command-r-v01", "command-r"},
      {"/data/models/Llama-2-13b-hf/", "llama-2-13b"},
      {"black-forest-labs/FLUX.1-dev", "flux-dev"},
      {"black-forest-labs/FLUX.1-schnell", "flux-schnell"},
      {"black-forest-labs/FLUX.1-Kontext-dev", "flux-kontext-dev"},
      {"stabilityai/stable-diffusion-xl-base-1.0", "sdxl-unet"},
      {"stable-diffusion-v1-5/stable-diffusion-v1-5", "sd-1.5-unet"},
      {"stabilityai/stable-diffusion-2-1", "sd-2.1-unet"},
      {"stabilityai/stable-diffusion-2-1-base", "sd-2.1-unet"},
      {"stabilityai/stable-diffusion-3-medium-diffusers", "sd3-medium"},
      {"stabilityai/stable-diffusion-3.5-large", "sd3.5-large"},
      {"Alpha-VLLM/Lumina-Image-2.0", "lumina-2"},
      {"hunyuanvideo-community/HunyuanVideo", "hunyuan-video"},
      {"Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "wan2.1-1.3b"},
      {"Wan-AI/Wan2.1-T2V-14B", "wan2.1-14b"},
      {"Qwen/Qwen-Image", "qwen-image"},
      {"PixArt-alpha/PixArt-XL-2-1024-MS", "pixart-alpha-xl-2-1024"},
  };
  for (const auto& [name, preset] : names) {
    const std::optional<HubName> found = find_hub_name(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->preset, preset) << name;
  }
}

TEST(HubNames, NothingIsGuessed) {
  for (const char* name :
       {"someone/Llama-3.1-9B", "meta-llama/Llama-3.1-8B-pruned", "x/y", "/", "", "instruct", "llama", "org/Qwen2.5-7B-4bit"})
    EXPECT_FALSE(find_hub_name(name)) << name;
  try {
    resolved("meta-llama/Llama-3.1-9B");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.hint().find("llama-3.1-8b"), std::string::npos) << e.hint();
  }
}

TEST(HubNames, SuffixesOfQuantisation) {
  const Job job = resolved("unsloth/Meta-Llama-3.1-8B-Instruct-unsloth-bnb-4bit");
  ASSERT_TRUE(job.tuning.quantization);
  EXPECT_EQ(job.tuning.quantization->type, "nf4");
  EXPECT_TRUE(job.tuning.quantization->double_quant);
  EXPECT_FALSE(resolved("unsloth/llama-3-8b-bnb-4bit", {{"quantization", "none"}}).tuning.quantization);
  EXPECT_THROW(resolved("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"), Error);
  EXPECT_NO_THROW(resolved("Qwen/Qwen2.5-7B-Instruct-AWQ", {{"quantization", "none"}}));
  EXPECT_EQ(resolved("Qwen/Qwen2.5-7B-Instruct-GGUF").family, "qwen2");
}

TEST(Resolve, AConfigurationByItsClassItsTypeOrTheTextModelInside) {
  const TemporaryFolder folder("resolve");
  const auto family = [&](const std::string& config) { return resolved(folder.write("config.json", config)).family; };
  EXPECT_EQ(family(R"({"architectures":["BertForSequenceClassification"],"model_type":"bert"})"), "bert-classifier");
  EXPECT_EQ(family(R"({"architectures":["LlamaModel"],"model_type":"llama"})"), "llama");
  const Job job =
      resolved(folder.write("config.json", R"({"model_type":"llava_next","text_config":{"model_type":"llama","hidden_size":64}})"));
  EXPECT_EQ(job.family, "llama");
  EXPECT_EQ(job.config.size({"hidden_size"}, 0), 64);
  EXPECT_FALSE(job.findings.empty());
  EXPECT_EQ(resolved(folder.write("small.gguf", small_gguf())).family, "llama");
}

TEST(Resolve, ModelsOfTextAndImagesAreReadWithBothConfigurations) {
  const TemporaryFolder folder("multimodal");
  const auto parameters = [&](const std::string& config) {
    Job job = resolved(folder.write("config.json", config));
    job.steps = 1;
    return job.family + " " + std::to_string(simulate(job).parameters);
  };
  const std::string vision =
      R"("vision_config":{"hidden_size":32,"intermediate_size":64,"num_hidden_layers":1,"num_attention_heads":2,"image_size":16,"patch_size":8,"num_channels":3)";
  const int64_t layer = 4 * (32 * 32 + 32) + (32 * 64 + 64) + (64 * 32 + 32) + 4 * 32;
  const int64_t clip_vision = 32 + 32 * 3 * 64 + 5 * 32 + layer + 4 * 32;
  const int64_t llama = 2 * 100 * 32 + 32 + (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32), projector = 2 * (32 * 32 + 32);
  EXPECT_EQ(
      parameters(
          R"({"architectures":["LlavaForConditionalGeneration"],"model_type":"llava","text_config":{"model_type":"llama","vocab_size":100,
      "hidden_size":32,"intermediate_size":64,"num_hidden_layers":1,"num_attention_heads":2},)" +
          vision + R"(,"model_type":"clip_vision_model"}})"),
      "llava " + std::to_string(clip_vision + projector + llama));
  const int64_t clip_text = 100 * 32 + 77 * 32 + layer + 2 * 32;
  EXPECT_EQ(parameters(R"({"model_type":"clip","projection_dim":8,"text_config":{"vocab_size":100,"hidden_size":32,"intermediate_size":64,
      "num_hidden_layers":1,"num_attention_heads":2},)" +
                       vision + "}}"),
            "clip " + std::to_string(clip_vision + clip_text + 2 * 8 * 32 + 1));
  EXPECT_EQ(resolved(folder.write("config.json", R"({"model_type":"siglip"})")).seq, 64);
  EXPECT_EQ(resolved(folder.write("config.json", R"({"model_type":"whisper"})")).seq, 448);
}

TEST(Resolve, AnUnknownArchitectureNeedsWeightsOrSizes) {
  const TemporaryFolder folder("unknown");
  const std::string config = folder.write("config.json", R"({"model_type":"never_heard_of"})");
  EXPECT_THROW(resolved(config), Error);
  folder.write("config.json", R"({"model_type":"never_heard_of","d_model":64,"n_layer":2,"n_head":4,"vocab_size":100})");
  const Job by_sizes = resolved(config);
  EXPECT_EQ(by_sizes.family, kWeightsOnly);
  EXPECT_NE(by_sizes.findings.at(0).what.find("plain decoder"), std::string::npos);
  EXPECT_EQ(simulate(by_sizes).parameters, 100 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 170 + 2 * 64) + 64);
  folder.write("model.safetensors", safetensors_bytes({{"embed.weight", {10, 8}}, {"h.0.w.weight", {8, 8}}, {"h.0.w.bias", {8}}}));
  const Job by_weights = resolved(config);
  EXPECT_NE(by_weights.findings.at(0).what.find("exact by the headers"), std::string::npos);
  EXPECT_EQ(simulate(by_weights).parameters, 80 + 64 + 8);
}

std::vector<NamedShape> shapes_of(const std::string& family, const Json& config) {
  Tape tape(Dialect{});
  Build build(tape);
  const std::unique_ptr<Model> model = find_model(family)->make(build, Config(family, config));
  std::vector<NamedShape> shapes;
  for (const Parameter& p : build.parameters) {
    const std::string module = tape.trace.scope_path(tape.trace.storages[p.value.storage().id].scope);
    shapes.push_back({module + "." + p.name, {p.value.sizes().begin(), p.value.sizes().end()}});
  }
  return shapes;
}

int64_t category(const Estimate& e, const std::string& name) {
  for (const TreeNode& node : e.by_category.children)
    if (node.name == name) return node.bytes.count;
  return 0;
}

struct Known {
  const char* family;
  Json config;
};

std::vector<Known> known_models() {
  const Json usual{{"hidden_size", 512}, {"intermediate_size", 1408}, {"num_hidden_layers", 4},          {"num_attention_heads", 8},
                   {"vocab_size", 8000}, {"num_key_value_heads", 4},  {"max_position_embeddings", 1024}, {"pad_token_id", 0}};
  const Json gpt{{"hidden_size", 512}, {"n_embd", 512}, {"n_layer", 4}, {"n_head", 8}, {"vocab_size", 8000}};
  std::vector<Known> all;
  for (const char* family : {"llama", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "phi", "olmo2", "cohere", "stablelm", "gpt_neox", "bert",
                             "roberta", "electra"})
    all.push_back({family, usual});
  for (const char* family : {"gpt2", "gptj", "bloom"}) all.push_back({family, gpt});
  all.push_back({"opt",
                 {{"hidden_size", 512},
                  {"num_hidden_layers", 4},
                  {"num_attention_heads", 8},
                  {"ffn_dim", 2048},
                  {"vocab_size", 8000},
                  {"word_embed_proj_dim", 512}}});
  return all;
}

// The range that is stated for activations is what known architectures need of it, with every weight and without, checkpointed or not.
TEST(WeightsOnly, TheIntervalHoldsWhatKnownArchitecturesNeed) {
  const TemporaryFolder folder("known");
  for (const Known& k : known_models()) {
    const std::string path = folder.write(std::string(k.family) + ".safetensors", safetensors_bytes(shapes_of(k.family, k.config)));
    for (const char* precision : {"amp", "bf16"})
      for (const bool checkpointing : {false, true}) {
        const Json settings{{"batch", 4}, {"seq", 512}, {"precision", precision}, {"checkpointing", checkpointing}};
        Json with_config = settings;
        with_config["config"] = k.config;
        const Estimate exact = estimate(resolved(k.family, with_config)), by_shape = estimate(resolved(path, settings));
        ASSERT_TRUE(by_shape.memory);
        const std::string what = fmt::format("{} {} {}", k.family, precision, checkpointing ? "checkpointed" : "");
        EXPECT_EQ(exact.parameters, by_shape.parameters) << what;
        EXPECT_EQ(category(exact, "optimizer_state"), category(by_shape, "optimizer_state")) << what;
        EXPECT_GE(exact.peak, by_shape.memory->allocated.low) << what;
        EXPECT_LE(exact.peak, by_shape.memory->allocated.high) << what;
      }
  }
}

TEST(WeightsOnly, AdaptersAndQuantisedLayersAreThoseOfTheShapes) {
  const TemporaryFolder folder("adapters");
  const Known llama = known_models().front();
  const std::string path = folder.write("llama.safetensors", safetensors_bytes(shapes_of(llama.family, llama.config)));
  Json settings{{"batch", 1}, {"seq", 64}, {"lora", {{"r", 4}, {"target_modules", {"q_proj", "down_proj"}}}}, {"quantization", "nf4"}};
  const Simulation by_shape = simulate(resolved(path, settings));
  settings["config"] = llama.config;
  const Simulation exact = simulate(resolved(llama.family, settings));
  EXPECT_EQ(by_shape.trainable, exact.trainable);
  EXPECT_EQ(by_shape.parameters, exact.parameters);
}

TEST(WeightsOnly, ExpertsShareTheTokens) {
  const TemporaryFolder folder("experts");
  std::vector<NamedShape> tensors{{"embed_tokens.weight", {100, 32}}};
  for (int e = 0; e < 8; ++e) tensors.push_back({"layers.0.experts." + std::to_string(e) + ".up.weight", {256, 32}});
  const std::string path = folder.write("moe.safetensors", safetensors_bytes(tensors));
  const auto peak = [&](int64_t used) {
    return estimate(resolved(path, {{"batch", 4}, {"seq", 512}, {"config", {{"num_experts_per_tok", used}}}})).peak;
  };
  EXPECT_LT(peak(1), peak(4));
  EXPECT_LT(peak(4), peak(8));
  EXPECT_EQ(peak(8), peak(100));
  EXPECT_THROW(peak(-1), Error);
}

TEST(WeightsOnly, WhatIsNoModelIsAnError) {
  const TemporaryFolder folder("no_model");
  const auto run = [&](const std::vector<NamedShape>& tensors) {
    simulate(resolved(folder.write("x.safetensors", safetensors_bytes(tensors))));
  };
  EXPECT_THROW(run({}), Error);
  EXPECT_THROW(run({{"a.weight", {0, 4}}}), Error);
  EXPECT_THROW(run({{"a.running_mean", {4}}}), Error);
  EXPECT_NO_THROW(run({{"a.weight", {4, 4}}}));
  const Job gone = resolved(kWeightsOnly, {{"config", {{"weights", folder.path("gone")}}}});
  EXPECT_THROW(simulate(gone), Error);
}

}  // namespace
}  // namespace plimsoll::weights_only_test
