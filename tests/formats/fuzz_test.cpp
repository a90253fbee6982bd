// Readers of files from outside: any bytes give a value or an Error, nothing else (fuzzing.h).
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <random>

#include "diagnose/snapshot_story.h"
#include "formats/command_line.h"
#include "formats/format.h"
#include "formats/gguf_reader.h"
#include "formats/input.h"
#include "formats/safetensors_reader.h"
#include "formats/toml_reader.h"
#include "fuzzing.h"
#include "job/job_file.h"
#include "job/settings.h"
#include "job/yaml_reader.h"
#include "model/registry.h"
#include "model/resolve.h"
#include "score/published_row.h"
#include "score/recorded_row.h"
#include "simulate.h"
#include "trace/memory_stats.h"
#include "trace/memory_timeline.h"
#include "trace/profiler_trace.h"
#include "util/gunzip.h"
#include "weights_files.h"

namespace plimsoll::fuzz_test {
namespace {

constexpr int kRounds = PLIMSOLL_FUZZ_ROUNDS;

TEST(Fuzz, JobFiles) {
  fuzz(
      "job",
      {"model: gpt2\nbatch: 4\nseq: 128\nprecision: bf16\noptimizer: {name: AdamW, args: {fused: true}}\ncheckpointing: yes\nclip: 1.0\n",
       R"({"model": "gpt2", "batch": 4, "config": {"n_layer": 2}, "ema": true})"},
      [](const std::string& text) {
        Job job;
        read_job_text(job, text, "fuzz");
      },
      kRounds);
}

TEST(Fuzz, JsonText) {
  fuzz(
      "json", {R"({"model_type": "llama", "hidden_size": 64, "nested": [1, {"a": [true, null, 1.5e3]}]})"},
      [](const std::string& text) { parse_json_text(text, "fuzz"); }, kRounds);
}

TEST(Fuzz, HeadersOfWeights) {
  fuzz(
      "safetensors",
      {safetensors_bytes({{"a.weight", {3, 4}}, {"b.bias", {3}}}),
       safetensors_bytes(R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8)},
      [](const std::string& bytes) {
        Document d;
        parse_safetensors(bytes, d);
      },
      kRounds);
  fuzz(
      "gguf", {small_gguf()},
      [](const std::string& bytes) {
        Document d;
        parse_gguf(bytes, d);
      },
      kRounds);
}

// Files that programs write about their own memory.
TEST(Fuzz, RecordedMemory) {
  fuzz(
      "profile",
      {R"({"traceEvents":[{"ph":"X","cat":"cpu_op","name":"aten::mm","tid":1,"ts":1,"dur":9},{"ph":"i","name":"[memory]","tid":1,"ts":2,"args":{"Bytes":64,"Addr":1,"Total Allocated":64,"Total Reserved":128,"Device Type":1,"Device Id":0}},{"ph":"i","name":"[memory]","tid":1,"ts":3,"args":{"Bytes":-64,"Addr":1,"Total Allocated":0,"Device Type":1}}]})"},
      [](const std::string& text) { read_profiler_trace(text, "fuzz"); }, kRounds);
  fuzz(
      "timeline", {"[[1,2],[[0,1,2,3,4,5,6,7,8],[0,8,7,6,5,4,3,2,1]]]", "[[-1,1,100,0],[5,4,-50,0],[6,2,7,3]]"},
      [](const std::string& text) { read_memory_timeline(text, "fuzz"); }, kRounds);
  fuzz(
      "memory_stats",
      {R"({"allocated_bytes.all.current":1,"allocated_bytes.all.peak":2,"reserved_bytes.all.current":3,"reserved_bytes.all.peak":4})"},
      [](const std::string& text) {
        if (looks_like_memory_stats(text)) read_memory_stats(text, "fuzz");
      },
      kRounds);
  fuzz(
      "gzip", {std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c\x4a\x06\0\xc2\x41\x24\x35\x03\0\0\0", 23)},
      [](const std::string& bytes) { gunzip(bytes, "fuzz", 1 << 20); }, kRounds);
}

// What is told about a snapshot, however it is damaged.
TEST(Fuzz, SnapshotStories) {
  std::vector<std::string> seeds;
  for (const char* name : {"fragmented", "oom", "protocol2", "protocol4", "two_devices", "torch_1_13"}) {
    std::ifstream in(std::string(PLIMSOLL_SOURCE_DIR "/tests/data/") + name + ".pickle", std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  fuzz(
      "story", seeds, [](const std::string& bytes) { snapshot_story(read_snapshot(bytes, "fuzz"), {}, ""); }, kRounds);
}

// Whatever a file of any format holds: a job or an Error, and the same for the model that it names.
TEST(Fuzz, InputFiles) {
  const TemporaryFolder folder("fuzz_input");
  const std::vector<std::string> seeds{
      R"({"architectures":["LlavaX"],"model_type":"llama","torch_dtype":"bfloat16","quantization_config":{"load_in_4bit":true,"bnb_4bit_quant_type":"nf4","llm_int8_skip_modules":["lm_head"]},"text_config":{"model_type":"llama"}})",
      R"({"_class_name":"P","unet":["diffusers","UNet2DConditionModel"],"vae":["diffusers","AutoencoderKL"]})",
      R"({"peft_type":"LORA","r":8,"target_modules":["q_proj"],"base_model_name_or_path":"gpt2","rank_pattern":{"q":4}})",
      R"({"metadata":{"total_size":4},"weight_map":{"a.weight":"model.safetensors"}})",
  };
  fuzz(
      "input", seeds,
      [&](const std::string& text) {
        Job job;
        read_input(job, {folder.write("config.json", text)});
        resolve_model(job);
      },
      1000);
}

// Any shapes give a simulated step or an Error.
TEST(Fuzz, ModelsByTheShapesOfTheirWeights) {
  const TemporaryFolder folder("fuzz_weights");
  static const char* kNames[] = {"embed_tokens.weight",
                                 "layers.0.a.weight",
                                 "layers.0.a.bias",
                                 "layers.1.a.weight",
                                 "layers.0.experts.0.w.weight",
                                 "layers.0.experts.1.w.weight",
                                 "experts.gate",
                                 "conv.weight",
                                 "lm_head.weight",
                                 "scale",
                                 "x.running_mean",
                                 "..",
                                 "a..b"};
  std::mt19937 random(12);
  int simulated = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<NamedShape> tensors;
    for (const char* name : kNames) {
      if (random() % 2) continue;
      NamedShape t{name, {}};
      for (size_t d = random() % 5; d > 0; --d) t.shape.push_back(static_cast<int64_t>(random() % 9));
      tensors.push_back(t);
    }
    Job job;
    job.model = folder.write("w.safetensors", safetensors_bytes(tensors));
    job.batch = 2;
    job.checkpointing.on = i % 2;
    try {
      resolve_model(job);
      job.seq = 8;
      simulate(job);
      ++simulated;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(simulated, 20);
  EXPECT_GT(refused, 20);
}

TEST(Fuzz, TheCorpusIsSmallAndEachFolderHasATarget) {
  uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(corpus_folder())) {
    const std::string target = (entry.is_directory() ? entry.path() : entry.path().parent_path()).filename().string();
    EXPECT_TRUE(std::find(fuzz_targets().begin(), fuzz_targets().end(), target) != fuzz_targets().end()) << entry.path();
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_GT(bytes, 0);
  EXPECT_LT(bytes, 200'000);
}

TEST(Fuzz, DeepNestingIsAnError) {
  EXPECT_THROW(parse_json_text(std::string(1'000'000, '['), "deep"), Error);
  EXPECT_THROW(parse_yaml_text(std::string(200'000, '['), "deep"), Error);
  EXPECT_THROW(parse_yaml_text(std::string(200'000, '{'), "deep"), Error);
}

// 30,000 parts overflowed the stack of toml++.
TEST(Fuzz, ADottedKeyIsNotEndless) {
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i) key += ".a";
  for (const std::string& text : {key + " = 1", "[" + key + "]", "x = {" + key + " = 1}"})
    EXPECT_THROW(parse_toml_text(text, "fuzz"), Error);
  EXPECT_EQ(parse_toml_text("a.b.c = 1.5\nd = \"....\"", "fuzz")["a"]["b"]["c"], 1.5);
}

TEST(Fuzz, AnAliasInsideItselfIsAnError) {
  EXPECT_THROW(parse_yaml_text("a: &a [*a, *a, *a]\n", "cycle"), Error);
  EXPECT_THROW(
      parse_yaml_text("a: &a [1, 2, 3, 4, 5, 6, 7, 8]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\n"
                      "d: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e]\n",
                      "bomb"),
      Error);
}

TEST(Fuzz, YamlMerges) {
  fuzz(
      "yaml", {"a: &a {x: 1, y: [1, 2]}\nb: &b\n  <<: *a\n  z: 3\nc: {<<: [*a, *b], x: 5}\nd: *b\n"},
      [](const std::string& text) { parse_yaml_text(text, "fuzz"); }, kRounds);
}

TEST(Fuzz, Toml) {
  fuzz(
      "toml",
      {"[training]\nlocal_batch_size = 2\nseq_len = 4096\nname = 'x'\n[[datasets]]\nresolution = [1024, 768]\n[datasets.subset]\nd = "
       "2024-01-01\n"},
      [](const std::string& text) { parse_toml_text(text, "fuzz"); }, kRounds);
}

// Documents of every format, each read by whatever recognises what is left of it.
TEST(Fuzz, TrainersConfigurations) {
  const std::vector<std::pair<std::string, std::string>> seeds{
      {"a.json",
       R"({"per_device_train_batch_size": 4, "optim": "sgd", "optim_args": "momentum=0.9", "bf16": true, "deepspeed": {"zero_optimization": {"stage": 2}}})"},
      {"b.json",
       R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8}, "bf16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": 1}}})"},
      {"c.yaml",
       "base_model: gpt2\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_modules: [q_proj]\nsequence_len: 64\nsample_packing: "
       "true\n"
       "flash_attention: true\nmicro_batch_size: 2\nplugins:\n  - liger\nunfrozen_parameters: [^lm_head.weight$]\n"},
      {"d.yaml",
       "model_name_or_path: gpt2\nfinetuning_type: lora\nlora_target: q_proj, v_proj\ncutoff_len: 64\nquantization_bit: 4\nbf16: true\n"},
      {"e.yaml",
       "model: {_component_: torchtune.models.llama2.lora_llama2_7b, lora_rank: 8}\nbatch_size: ${n}\nn: 2\noptimizer: {_component_: "
       "torch.optim.SGD}\n"},
      {"litgpt.yaml",
       "checkpoint_dir: checkpoints/google/gemma-2b\nprecision: bf16-true\nquantize: bnb.nf4\ndevices: 1\nlora_r: 8\nlora_mlp: true\n"
       "train: {global_batch_size: 8, micro_batch_size: 2, max_seq_length: 64}\noptimizer: {class_path: torch.optim.AdamW, init_args: {lr: "
       "1}}\n"},
      {"f.toml",
       "[job]\n[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 2\nglobal_batch_size = "
       "16\n[activation_checkpoint]\nmode = 'full'\n"},
      {"g.toml",
       "[a]\nnetwork_module = 'networks.lora'\nnetwork_dim = 8\nnetwork_args = ['conv_dim=4']\nresolution = '768,512'\noptimizer_type = "
       "'Lion'\n"},
      {"h.toml",
       "[general]\nenable_bucket = true\n[[datasets]]\nresolution = 512\nbatch_size = 2\n[[datasets.subsets]]\nimage_dir = 'x'\n"},
      {"i.yaml", "distributed_type: DEEPSPEED\nnum_processes: 4\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 1}\n"}};
  for (const std::string kind : {"json", "yaml", "toml"}) {
    std::vector<std::string> texts;
    for (const auto& [name, seed] : seeds)
      if (name.ends_with(kind)) texts.push_back(seed);
    fuzz(
        "trainer_" + kind, texts,
        [&](const std::string& text) {
          const Document document = parse_document(text, "a." + kind);
          const Format* format = format_of(document);
          if (!format) throw Error("no format");
          Job job;
          Reader reader(job, document);
          format->read(reader);
        },
        kRounds / 8 * static_cast<int>(texts.size()));
  }
}

TEST(Fuzz, Commands) {
  fuzz(
      "command",
      {"A=1 CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 train.py --per_device_train_batch_size 4 --bf16 --x '{\"a\": 1}' \"b c\"",
       "accelerate launch --multi_gpu --num_processes 4 --use_deepspeed --zero_stage 2 sdxl_train_network.py --network_dim 8 "
       "--network_args a=b c=d",
       "tune run --nproc_per_node 2 x --config none.yaml a.b=3 c=4",
       "FORCE_TORCHRUN=1 llamafactory-cli train a=1 --stage sft --finetuning_type full",
       "srun -N 2 python -m torchtitan.train --training.seq_len 16 --job.config_file x.toml"},
      [](const std::string& text) {
        Job job;
        read_input(job, {text + " --output_dir o"});
      },
      kRounds / 4);
  fuzz(
      "script",
      {"#!/bin/bash\n#SBATCH --nodes=2\nexport A=${B:-3}; C=\"$A x\"\nsrun torchrun --nproc_per_node $A train.py "
       "--per_device_train_batch_size 2 \\\n --bf16 | tee log && "
       "echo '#'\n"},
      [](const std::string& text) {
        Job job;
        read_input_document(job, parse_document("#!/bin/sh\n" + text, "fuzz.sh"));
      },
      kRounds);
}

// Any value of any setting gives a simulated step or an Error.
TEST(Fuzz, ModelConfigurations) {
  const nlohmann::json small{{"hidden_size", 32},
                             {"intermediate_size", 48},
                             {"num_hidden_layers", 1},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"head_dim", 8},
                             {"vocab_size", 50},
                             {"n_embd", 32},
                             {"n_layer", 1},
                             {"n_head", 4},
                             {"ffn_dim", 48},
                             {"word_embed_proj_dim", 32},
                             {"d_model", 32},
                             {"d_kv", 8},
                             {"d_ff", 48},
                             {"num_layers", 1},
                             {"num_heads", 4},
                             {"image_size", 32},
                             {"patch_size", 8},
                             {"sliding_window", 8},
                             {"layer_types", nullptr},
                             {"rotary_pct", 0.5},
                             {"partial_rotary_factor", 1.0},
                             {"hidden_act", "silu"},
                             {"tie_word_embeddings", true},
                             {"attention_dropout", 0.1},
                             {"max_position_embeddings", 64},
                             {"num_labels", 3},
                             {"pad_token_id", 0},
                             {"num_decoder_layers", 1},
                             {"rope_parameters", nullptr}};
  const nlohmann::json odd{0,
                           -1,
                           1,
                           3,
                           7,
                           40,
                           1000,
                           2.5,
                           -0.5,
                           1.0,
                           true,
                           "x",
                           "",
                           nullptr,
                           nlohmann::json::array(),
                           nlohmann::json::object(),
                           nlohmann::json::array({1, 2, 3}),
                           int64_t{1} << 62};
  std::mt19937 random(8);
  std::vector<std::string> keys;
  for (const auto& item : small.items()) keys.push_back(item.key());
  int simulated = 0, refused = 0;
  for (const ModelEntry& entry : model_registry()) {
    if (entry.classes.empty()) continue;
    for (int i = 0; i < 100; ++i) {
      nlohmann::json config = small;
      for (int k = 0; k < 2; ++k) config[keys[random() % keys.size()]] = odd[random() % odd.size()];
      // Hundreds of layers take long and are like a few.
      const auto many = [&](const char* key) { return config[key].is_number() && config[key] > 40; };
      if (many("num_hidden_layers") || many("n_layer") || many("num_layers") || many("num_decoder_layers")) continue;
      Job job;
      job.model = job.family = entry.name;
      job.seq = entry.inputs == InputKind::image ? 32 : 16;
      job.inputs = entry.inputs;
      job.steps = 1;
      job.attention = i % 2 ? AttentionKernel::eager : AttentionKernel::automatic;
      try {
        job.config = Config("fuzz", config);
        simulate(job);
        ++simulated;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(simulated, 100);
  EXPECT_GT(refused, 100);
}

TEST(Fuzz, RecordedRows) {
  const std::string path = (std::filesystem::temp_directory_path() / ("plimsoll_fuzz_" + std::to_string(::getpid()) + ".jsonl")).string();
  fuzz(
      "recorded_row",
      {R"({"id":"a","spec":{"model":{"class":"GPT2LMHeadModel","config":"GPT2Config","args":{"n_layer":2}},"batch":2,"seq":64,"precision":"amp","optimizer":{"name":"SGD","args":{"momentum":0.9}}},"peak":10,"params":5,"secs":1.5,"step_peaks":[1,2],"breakdown":{"param":4},"phase_peak":{"forward":3}})"},
      [&](const std::string& text) {
        std::ofstream(path, std::ios::trunc) << text;
        read_recorded_rows(path);
      },
      kRounds);
  std::filesystem::remove(path);
}

TEST(Fuzz, PublishedRows) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("plimsoll_fuzz_gpu_" + std::to_string(::getpid()) + ".jsonl")).string();
  fuzz(
      "published_row",
      {R"({"id":"a","family":"f","confidence":0.8,"model":{"name":"openai/gpt2","arch":"decoder_transformer","config":{"num_layers":2,"hidden_size":64,"num_heads":4,"vocab_size":500}},"train":{"trainable":"full","batch_per_gpu":2,"seq_len":64,"grad_accum":1,"precision":{"weights":"bf16","compute":"bf16"},"optimizer":{"name":"adamw","foreach":true},"checkpointing":"none","attention":"sdpa","lora":{"rank":8,"targets":["c_attn"]},"extra":{"mean_tokens_per_sample":9}},"parallel":{"world":1},"gpu":{"name":"A100-80GB"},"software":{"framework":"x","torch":"2.4.1"},"measured":{"bytes":50000000,"kind":"allocated_peak"}})"},
      [&](const std::string& text) {
        std::ofstream(path, std::ios::trunc) << text;
        read_published_rows(path);
      },
      kRounds);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace plimsoll::fuzz_test
