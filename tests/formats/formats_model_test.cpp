// Models and weights that people have, read into a job: configurations, pipelines, headers, adapters.
#include <gtest/gtest.h>

#include <functional>

#include "formats/format.h"
#include "formats/input.h"
#include "job/settings.h"
#include "weights_files.h"

namespace plimsoll::formats_model_test {
namespace {

using Json = nlohmann::json;

bool has_finding(const Job& job, const std::string& part) {
  for (const Finding& f : job.findings)
    if ((f.setting + " " + f.what).find(part) != std::string::npos) return true;
  return false;
}

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// What is wrong with these bytes as a file of weights.
std::string error_of_file(const std::string& name, const std::string& bytes) {
  const TemporaryFolder folder("bad");
  const std::string path = folder.write(name, bytes);
  return error_of([&] { read_document(path); });
}

std::string names_of(const ModelDescription& m) {
  std::string out;
  for (const ModelCandidate& c : m.candidates) out += (out.empty() ? "" : " ") + c.name;
  return out;
}

ModelDescription describe(Job& job, const std::string& config) {
  const TemporaryFolder folder("describe");
  return describe_model(job, folder.write("config.json", config));
}

TEST(HfConfig, NamesTheClassThenTheType) {
  Job job;
  const ModelDescription m = describe(job, R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64})");
  EXPECT_EQ(names_of(m), "LlamaForCausalLM llama");
  EXPECT_EQ(m.candidates[0].note, "");
  EXPECT_NE(m.candidates[1].note.find("LlamaForCausalLM"), std::string::npos);
  EXPECT_EQ(m.candidates[0].config["hidden_size"], 64);
  EXPECT_EQ(m.weights, "");
}

TEST(HfConfig, ATextModelInsideIsWhatCanBeSimulated) {
  Job job;
  const ModelDescription m =
      describe(job, R"({"architectures":["LlavaForConditionalGeneration"],"model_type":"llava","tie_word_embeddings":false,
      "text_config":{"model_type":"llama","hidden_size":128},"vision_config":{"model_type":"clip_vision_model"}})");
  EXPECT_EQ(names_of(m), "LlavaForConditionalGeneration llava llama");
  const ModelCandidate& text = m.candidates.back();
  EXPECT_EQ(text.config["hidden_size"], 128);
  EXPECT_EQ(text.config["tie_word_embeddings"], false);
  EXPECT_EQ(text.note, "only the language model in text_config is simulated, without vision_config");
  EXPECT_EQ(names_of(describe(job, R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text"}})")), "gemma3 gemma3_text gemma3");
  EXPECT_EQ(names_of(describe(job, R"({"model_type":"omni","thinker_config":{"model_type":"t","text_config":{"model_type":"qwen2"}}})")),
            "omni t qwen2");
}

TEST(HfConfig, StoredTypeAndOwnCodeAreFindings) {
  Job job;
  describe(job, R"({"model_type":"llama","torch_dtype":"bfloat16","auto_map":{"AutoModel":"x.Y"}})");
  EXPECT_TRUE(has_finding(job, "torch_dtype = bfloat16"));
  EXPECT_TRUE(has_finding(job, "code of its own"));
  Job told;
  apply_setting(told, "precision", "bf16", "--precision");
  describe(told, R"({"model_type":"llama","dtype":"bfloat16"})");
  EXPECT_TRUE(told.findings.empty());
}

TEST(HfConfig, BitsandbytesHasItsClassDefaults) {
  Job job;
  describe(job, R"({"model_type":"llama","quantization_config":{"load_in_4bit":true}})");
  ASSERT_TRUE(job.tuning.quantization);
  EXPECT_EQ(job.tuning.quantization->type, "fp4");
  EXPECT_EQ(job.tuning.quantization->compute_dtype, "fp32");
  EXPECT_FALSE(job.tuning.quantization->double_quant);
  EXPECT_EQ(job.origin["quantization"], "config.json: quantization_config");

  Job nf4;
  describe(nf4, R"({"model_type":"llama","quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true,"load_in_8bit":false,
      "bnb_4bit_quant_type":"nf4","bnb_4bit_use_double_quant":true,"bnb_4bit_compute_dtype":"bfloat16","llm_int8_skip_modules":["lm_head","q_proj"]}})");
  ASSERT_TRUE(nf4.tuning.quantization);
  EXPECT_EQ(nf4.tuning.quantization->type, "nf4");
  EXPECT_TRUE(nf4.tuning.quantization->double_quant);
  EXPECT_EQ(nf4.tuning.quantization->compute_dtype, "bf16");
  EXPECT_EQ(nf4.tuning.quantization->skip_modules, std::vector<std::string>{"q_proj"});

  Job int8;
  describe(int8, R"({"model_type":"llama","quantization_config":{"load_in_8bit":true,"llm_int8_threshold":0.0}})");
  ASSERT_TRUE(int8.tuning.quantization);
  EXPECT_EQ(int8.tuning.quantization->type, "int8");
  EXPECT_EQ(int8.tuning.quantization->threshold, 0.0);

  Job inside;
  describe(inside, R"({"model_type":"llava","text_config":{"model_type":"llama"},
      "quantization_config":{"load_in_4bit":true,"llm_int8_skip_modules":["vision_tower"]}})");
  EXPECT_TRUE(inside.tuning.quantization->skip_modules.empty());
  EXPECT_TRUE(has_finding(inside, "vision_tower"));

  Job neither;
  describe(neither, R"({"model_type":"llama","quantization_config":{"load_in_8bit":false,"load_in_4bit":false}})");
  EXPECT_FALSE(neither.tuning.quantization);
}

TEST(HfConfig, OtherQuantisationsAreErrorsUntilTheJobDecides) {
  for (const char* method : {"gptq", "awq", "fp8", "compressed-tensors"}) {
    const std::string config = std::string(R"({"model_type":"llama","quantization_config":{"quant_method":")") + method + R"(","bits":4}})";
    Job job;
    EXPECT_NE(error_of([&] { describe(job, config); }).find(method), std::string::npos);
    apply_setting(job, "quantization", "none", "--quantization");
    EXPECT_EQ(error_of([&] { describe(job, config); }), "");
  }
  Job job;
  describe(job, R"({"model_type":"gpt_oss","quantization_config":{"quant_method":"mxfp4"}})");
  EXPECT_TRUE(has_finding(job, "dequantize=True"));
}

TEST(HfConfig, WrongTypesAreErrors) {
  Job job;
  EXPECT_NE(error_of([&] { describe(job, R"({"model_type":5})"); }), "");
  EXPECT_NE(error_of([&] { describe(job, R"({"model_type":null})"); }), "");
  EXPECT_NE(error_of([&] { describe(job, R"({"architectures":[3]})"); }), "");
  EXPECT_NE(error_of([&] { describe(job, R"({"model_type":"llama","quantization_config":4})"); }), "");
  EXPECT_NE(error_of([&] { describe(job, R"({"model_type":"llama","quantization_config":{"load_in_4bit":"maybe"}})"); }), "");
  EXPECT_NE(error_of([&] {
              describe(job, R"({"model_type":"llama","quantization_config":{"load_in_4bit":true,"bnb_4bit_compute_dtype":"int3"}})");
            }),
            "");
  EXPECT_NE(error_of([&] { describe(job, R"({"something":"else"})"); }), "");
  EXPECT_NE(error_of([&] { describe(job, R"({"model_type":"llama",)"); }), "");
  EXPECT_NE(error_of([&] { describe(job, std::string(5000, '[')); }), "");
  EXPECT_EQ(error_of([&] { describe(job, R"({"model_type":"mamba2","time_step_limit":[0.0,Infinity],"x":NaN})"); }), "");
  job.findings.clear();
  describe(job, R"({"model_type":"llama","hidden_size":1,"hidden_size":2})");
  EXPECT_TRUE(has_finding(job, "'hidden_size' is there twice"));
}

TEST(Diffusers, AConfigNamesItsClass) {
  Job job;
  EXPECT_EQ(names_of(describe(job, R"({"_class_name":"FluxTransformer2DModel","num_layers":2})")), "FluxTransformer2DModel");
  EXPECT_NE(error_of([&] { describe(job, R"({"_class_name":"DDPMScheduler"})"); }), "");
}

TEST(Diffusers, AModelIndexFindsTheNetworkThatIsTrained) {
  const TemporaryFolder folder("pipeline");
  folder.write("model_index.json",
               R"({"_class_name":"StableDiffusionPipeline","_diffusers_version":"0.30","unet":["diffusers","UNet2DConditionModel"],
      "text_encoder":["transformers","CLIPTextModel"],"vae":["diffusers","AutoencoderKL"],"tokenizer":["transformers","CLIPTokenizer"],
      "scheduler":["diffusers","DDIMScheduler"],"safety_checker":[null,null]})");
  folder.write("unet/config.json", R"({"_class_name":"UNet2DConditionModel","in_channels":4})");
  folder.write("text_encoder/model.safetensors", safetensors_bytes({{"a.weight", {1000, 2000}}}));
  Job job;
  read_input(job, {folder.path()});
  EXPECT_EQ(job.model, folder.path("model_index.json"));
  const ModelDescription m = describe_model(job, job.model);
  EXPECT_EQ(names_of(m), "UNet2DConditionModel");
  EXPECT_EQ(m.candidates[0].config["in_channels"], 4);
  EXPECT_TRUE(has_finding(job, "the text_encoder CLIPTextModel, 2.0 million parameters, BF16"));
  EXPECT_TRUE(has_finding(job, "the vae AutoencoderKL, no weights beside it"));
  EXPECT_FALSE(has_finding(job, "scheduler"));
  EXPECT_FALSE(has_finding(job, "tokenizer"));
}

TEST(Diffusers, WithoutAFolderTheClassHasItsDefaults) {
  const TemporaryFolder folder("index");
  const std::string path =
      folder.write("model_index.json", R"({"_class_name":"FluxPipeline","transformer":["diffusers","FluxTransformer2DModel"]})");
  Job job;
  const ModelDescription m = describe_model(job, path);
  EXPECT_TRUE(m.candidates.at(0).config.empty());
  EXPECT_NE(m.candidates[0].note, "");
  const std::string none = folder.write("none/model_index.json", R"({"_class_name":"P","vae":["diffusers","AutoencoderKL"]})");
  EXPECT_NE(error_of([&] { describe_model(job, none); }).find("no transformer, unet or prior"), std::string::npos);
}

TEST(Safetensors, TheHeaderIsEnough) {
  const TemporaryFolder folder("header");
  const std::string path = folder.write("model.safetensors", safetensors_bytes({{"a.weight", {3, 4}}, {"b", {}}}));
  const Document d = read_document(path);
  EXPECT_EQ(d.kind, Document::Kind::safetensors);
  ASSERT_EQ(d.tensors.size(), 2u);
  EXPECT_EQ(d.tensors[0].name, "a.weight");
  EXPECT_EQ(d.tensors[0].shape, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(d.tensors[0].bytes, 24);
  EXPECT_EQ(d.tensors[1].elements, 1);
  EXPECT_EQ(d.value["missing_bytes"], 26);
  // by its content, whatever it is called
  const std::string header = R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const Document other = read_document(folder.write("weights.dat", safetensors_bytes(header, 8)));
  EXPECT_EQ(other.kind, Document::Kind::safetensors);
  EXPECT_EQ(other.value["metadata"]["format"], "pt");
  EXPECT_EQ(other.value["missing_bytes"], 0);
}

TEST(Safetensors, BrokenHeadersAreErrors) {
  const auto tensor = [](const std::string& fields) { return safetensors_bytes("{\"a\":" + fields + "}", 0); };
  const std::vector<std::pair<std::string, std::string>> bad{
      {"", "too few"},
      {"1234567", "too few"},
      {little_endian(1000, 8) + "{}", "the file 2"},                                      // truncated
      {little_endian(1u << 30, 8) + "{" + std::string(100, ' '), "more than 100000000"},  // 1 GB of header
      {little_endian(UINT64_MAX, 8) + "{}", "more than"},
      {safetensors_bytes("[1]"), "no JSON object"},
      {safetensors_bytes("{\"a\""), "not JSON"},
      {safetensors_bytes(""), "no JSON object"},
      {safetensors_bytes("{\"a\":5}"), "is 5"},
      {safetensors_bytes("{\"a\":\"x\"}"), "is x"},
      {tensor("{}"), "lacks dtype"},
      {tensor(R"({"dtype":"F32","shape":[1]})"), "lacks data_offsets"},
      {tensor(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})"), "F33"},
      {tensor(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})"), "is 7"},
      {tensor(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "-1"},
      {tensor(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})"), "1.5"},
      {tensor(R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})"), "a list"},
      {tensor(R"({"dtype":"F32","shape":{"n":1},"data_offsets":[0,4]})"), "object"},
      {tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), "1 numbers"},
      {tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "4 to 0"},
      {tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), "8 bytes"},
      {tensor(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})"), "make"},
      {tensor(R"({"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,4]})"), "63 bits"},
      {tensor(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})"), "18446744073709551615"},
      {tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), "begins at 4, after"},
      {tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":true})"), "true or false"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
       "before the end"},
      {safetensors_bytes(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
       "twice"},
      {safetensors_bytes(R"({"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"), "no name"},
      {safetensors_bytes("{\"a\\u001b[31m\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"), "no name"},
      {safetensors_bytes("{\"__metadata__\":{\"a\":{}}}"), "object"},
      {safetensors_bytes("{}", 5), "5 bytes follow"},
      {safetensors_bytes("{\"a\":" + std::string(100000, '[')), "list"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"},
  };
  for (const auto& [bytes, part] : bad) {
    const std::string error = error_of_file("model.safetensors", bytes);
    EXPECT_NE(error.find(part), std::string::npos) << part << " is not in: " << error;
  }
  EXPECT_NE(error_of_file("pytorch_model.bin", "PK\3\4rest").find("zip"), std::string::npos);
}

TEST(Safetensors, AnIndexListsItsShards) {
  const TemporaryFolder folder("shards");
  folder.write("model-00001-of-00002.safetensors", safetensors_bytes({{"a.weight", {2, 2}}}));
  folder.write("model-00002-of-00002.safetensors", safetensors_bytes({{"b.weight", {2, 3}}}));
  const std::string index = folder.write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":20},"weight_map":{"a.weight":"model-00001-of-00002.safetensors","b.weight":"model-00002-of-00002.safetensors"}})");
  EXPECT_EQ(read_weights(index).size(), 2u);
  EXPECT_EQ(read_weights(folder.path()).size(), 2u);
  Job job;
  read_input(job, {folder.path("model-00002-of-00002.safetensors")});
  EXPECT_EQ(job.model, index);
  Job whole;
  read_input(whole, {folder.path()});
  EXPECT_EQ(whole.model, index);

  const auto error = [&](const std::string& map) {
    return error_of([&] { read_weights(folder.write("x.safetensors.index.json", R"({"weight_map":)" + map + "}")); });
  };
  EXPECT_NE(error(R"({"a":"gone.safetensors"})").find("not here"), std::string::npos);
  EXPECT_NE(error(R"({"a":"../../etc/passwd"})"), "");
  EXPECT_NE(error(R"({"a":5})"), "");
  EXPECT_NE(error("[]"), "");
  folder.write("twice.safetensors", safetensors_bytes({{"a.weight", {2, 2}}}));
  EXPECT_NE(error(R"({"a.weight":"twice.safetensors","b":"model-00001-of-00002.safetensors"})").find("another file"), std::string::npos);
}

TEST(Gguf, KeysBecomeTheFamilysConfiguration) {
  const TemporaryFolder folder("gguf");
  const std::string path = folder.write("model.bin", small_gguf());
  const Document d = read_document(path);
  EXPECT_EQ(d.kind, Document::Kind::gguf);
  EXPECT_EQ(d.value["tokenizer.ggml.tokens.length"], 3);
  ASSERT_EQ(d.tensors.size(), 2u);
  EXPECT_EQ(d.tensors[0].shape, (std::vector<int64_t>{100, 64}));
  EXPECT_EQ(d.tensors[0].dtype, "Q4_K");
  EXPECT_EQ(d.tensors[1].bytes, 64 * 64 / 32 * 18);
  Job job;
  read_input(job, {path});
  const ModelDescription m = describe_model(job, job.model);
  EXPECT_EQ(names_of(m), "llama");
  const Json expected{{"hidden_size", 64},        {"intermediate_size", 128},    {"num_hidden_layers", 2}, {"num_attention_heads", 4},
                      {"num_key_value_heads", 2}, {"tie_word_embeddings", true}, {"vocab_size", 100}};
  EXPECT_EQ(m.candidates[0].config, expected);
  EXPECT_TRUE(has_finding(job, "for inference"));
}

TEST(Gguf, BrokenFilesAreErrors) {
  const std::string whole = small_gguf();
  for (size_t length = 4; length < whole.size(); length += 7) EXPECT_NE(error_of_file("m.gguf", whole.substr(0, length)), "") << length;
  const std::vector<std::pair<std::string, std::string>> bad{
      {"GGML", "no GGUF"},
      {gguf_bytes({}, {}, 1), "version 1"},
      {gguf_bytes({}, {}, 0x03000000), "version"},
      {"GGUF" + little_endian(3, 4) + little_endian(UINT64_MAX, 8) + little_endian(0, 8), "tensors"},
      {"GGUF" + little_endian(3, 4) + little_endian(0, 8) + little_endian(UINT64_MAX, 8), "keys"},
      {gguf_bytes({little_endian(UINT64_MAX, 8)}, {}), "wanted"},
      {gguf_bytes({gguf_text("k") + little_endian(99, 4)}, {}), "type 99"},
      {gguf_bytes({gguf_text("k") + little_endian(9, 4) + little_endian(4, 4) + little_endian(UINT64_MAX, 8)}, {}), "list"},
      {gguf_bytes({gguf_text("k") + little_endian(9, 4) + little_endian(8, 4) + little_endian(UINT64_MAX / 16, 8)}, {}), "wanted"},
      {gguf_bytes({}, {gguf_tensor("t", {1, 2, 3, 4, 5, 6, 7, 8, 9})}), "dimensions"},
      {gguf_bytes({}, {gguf_tensor("t", {UINT64_MAX})}), "dimension"},
      {gguf_bytes({}, {gguf_tensor("t", {uint64_t{1} << 40, uint64_t{1} << 40})}), "63 bits"},
      {gguf_bytes({}, {gguf_tensor("t", {1}, 1234)}), "1234"},
      {gguf_bytes({}, {gguf_tensor("", {1})}), "no name"},
      {gguf_bytes({}, {gguf_tensor("t", {1}), gguf_tensor("t", {1})}), "twice"},
      {"version https://git-lfs.github.com/spec/v1", "Git LFS"},
  };
  for (const auto& [bytes, part] : bad) {
    const std::string error = error_of_file("m.gguf", bytes);
    EXPECT_NE(error.find(part), std::string::npos) << part << " is not in: " << error;
  }
  std::string nested = gguf_text("k") + little_endian(9, 4);
  for (int i = 0; i < 100; ++i) nested += little_endian(9, 4) + little_endian(1, 8);
  EXPECT_NE(error_of_file("m.gguf", gguf_bytes({nested}, {})).find("nest"), std::string::npos);
}

TEST(Peft, AnAdapterSetsItsKindAndNamesItsBase) {
  const TemporaryFolder folder("adapter");
  folder.write("adapter_config.json",
               R"({"peft_type":"LORA","base_model_name_or_path":"meta-llama/Llama-3.1-8B","r":32,"lora_alpha":64,"lora_dropout":0.05,
      "target_modules":["v_proj","q_proj"],"modules_to_save":["lm_head"],"bias":"none","use_dora":true,"rank_pattern":{"v_proj":4},"task_type":"CAUSAL_LM",
      "inference_mode":true,"layer_replication":null,"lora_bias":false,"target_parameters":null,"megatron_core":"megatron.core","loftq_config":{}})");
  folder.write("adapter_model.safetensors",
               safetensors_bytes({{"base_model.model.x.lora_A.weight", {32, 8}}, {"base_model.model.x.lora_B.weight", {8, 32}}}));
  Job job;
  read_input(job, {folder.path()});
  ASSERT_TRUE(job.tuning.adapter);
  EXPECT_EQ(job.tuning.adapter->kind, AdapterKind::lora);
  EXPECT_EQ(job.tuning.adapter->r, 32);
  EXPECT_TRUE(job.tuning.adapter->use_dora);
  EXPECT_EQ(job.tuning.adapter->modules_to_save, std::vector<std::string>{"lm_head"});
  EXPECT_EQ(job.tuning.adapter->rank_pattern.at("v_proj"), 4);
  EXPECT_EQ(job.model, "meta-llama/Llama-3.1-8B");
  EXPECT_TRUE(has_finding(job, "of rank 32"));
  EXPECT_NE(error_of([&] { describe_model(job, folder.path()); }).find("an adapter, not a model"), std::string::npos);
}

TEST(Peft, OtherKinds) {
  const TemporaryFolder folder("kinds");
  const auto read = [&](const std::string& config) {
    Job job;
    read_input_file(job, folder.write("adapter_config.json", config));
    return job;
  };
  EXPECT_EQ(read(R"({"peft_type":"LOKR","r":4,"decompose_both":true})").tuning.adapter->kind, AdapterKind::lokr);
  EXPECT_EQ(read(R"({"peft_type":"IA3","target_modules":["k_proj","down_proj"],"feedforward_modules":["down_proj"]})").tuning.adapter->kind,
            AdapterKind::ia3);
  EXPECT_EQ(read(R"({"peft_type":"LN_TUNING"})").tuning.adapter->kind, AdapterKind::ln_tuning);
  for (const char* bad :
       {R"({"peft_type":"PREFIX_TUNING"})", R"({"peft_type":5})", R"({"peft_type":"LORA","r":-1})", R"({"peft_type":"LORA","r":"x"})",
        R"({"peft_type":"LORA","layer_replication":[[0,4],[2,5]]})", R"({"peft_type":"LORA","target_parameters":["experts.gate"]})",
        R"({"peft_type":"LORA","target_modules":7})", R"({"peft_type":"LORA","lora_dropout":3})"})
    EXPECT_NE(error_of([&] { read(bad); }), "") << bad;
}

TEST(Directory, TheConfigurationNamesTheModelAndTheAdapterItself) {
  const TemporaryFolder folder("several");
  folder.write("config.json", R"({"model_type":"llama"})");
  folder.write("model.safetensors", safetensors_bytes({{"a.weight", {2, 2}}}));
  folder.write("adapter_config.json", R"({"peft_type":"LORA","base_model_name_or_path":"gpt2"})");
  folder.write("tokenizer_config.json", R"({"model_max_length":1000000000000000019884624838656})");
  folder.write("broken.safetensors", "x");
  Job job;
  read_input(job, {folder.path()});
  EXPECT_EQ(job.model, folder.path("config.json"));
  EXPECT_TRUE(job.tuning.adapter);
  EXPECT_TRUE(has_finding(job, "cannot be read"));
  EXPECT_EQ(describe_model(job, folder.path("model.safetensors")).candidates.at(0).name, "llama");
  folder.write("model_index.json", R"({"_class_name":"P","unet":["diffusers","UNet2DConditionModel"]})");
  Job pipeline;
  read_input(pipeline, {folder.path()});
  EXPECT_EQ(pipeline.model, folder.path("model_index.json"));
}

TEST(Directory, AModelThatTheJobNamesStaysWhenOnlyWeightsAreThere) {
  const TemporaryFolder folder("weights");
  folder.write("any.safetensors", safetensors_bytes({{"a.weight", {2, 2}}}));
  Job job;
  apply_setting(job, "model", "gpt2", "job.yaml");
  read_input(job, {folder.path()});
  EXPECT_EQ(job.model, "gpt2");
  Job none;
  read_input(none, {folder.path()});
  EXPECT_EQ(none.model, folder.path("any.safetensors"));
  EXPECT_TRUE(describe_model(none, none.model).candidates.empty());
}

}  // namespace
}  // namespace plimsoll::formats_model_test
