// Settings written back into what they came from: only the lines that change do, and what cannot be written is said.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "formats/command_line.h"
#include "formats/format.h"
#include "formats/input.h"
#include "formats/launch_files.h"
#include "formats/placed.h"
#include "formats/writer.h"
#include "job/job_file.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll::writer_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Document document_of(const std::string& text, const std::string& name) {
  return name.empty() ? command_document(shell_words(text)) : parse_document(text, name);
}

Rewritten written(const std::string& text, const std::string& name, const Patch& changes) {
  const Document document = document_of(text, name);
  Job job;
  read_input_document(job, document);
  return rewrite(document, job, changes);
}

std::string error_of(const std::string& text, const std::string& name, const Patch& changes) {
  try {
    written(text, name, changes);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Lines that went and came, by the longest common subsequence.
std::string difference(const std::string& before, const std::string& after) {
  const std::vector<std::string> a = lines_of(before), b = lines_of(after);
  std::vector<std::vector<size_t>> common(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = a.size(); i-- > 0;)
    for (size_t j = b.size(); j-- > 0;)
      common[i][j] = a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  std::string out;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      ++i, ++j;
    } else if (i < a.size() && (j == b.size() || common[i + 1][j] >= common[i][j + 1])) {
      out += "-" + a[i++] + "\n";
    } else {
      out += "+" + b[j++] + "\n";
    }
  }
  return out;
}

void expect_change(const std::string& text, const std::string& name, const Patch& changes, const std::string& expected) {
  const Rewritten r = written(text, name, changes);
  EXPECT_EQ(difference(text, r.text), expected);
  for (const NotWritten& n : r.not_written) ADD_FAILURE() << n.setting << ": " << n.instead;
}

std::string not_written(const Rewritten& r) {
  std::string out;
  for (const NotWritten& n : r.not_written) out += n.setting + ": " + n.instead + "\n";
  return out;
}

// ---- every format

const char* const kAxolotl = R"(# my run, für später
base_model: meta-llama/Llama-3.1-8B   # from the hub
datasets:
  - path: data.jsonl   # lines
    type: alpaca
sequence_len: 4096
micro_batch_size: 4     # fits?
gradient_accumulation_steps: 4

optimizer: adamw_torch_fused
learning_rate: 2e-5
bf16: true
gradient_checkpointing: false
special_tokens: {pad_token: "<|end|>"}
)";

TEST(Writer, Axolotl) {
  expect_change(kAxolotl, "a.yml", {{"batch", 2}, {"accumulation", 8}, {"optimizer", "AdamW8bit"}, {"optimizer_args", Json::object()}},
                "-micro_batch_size: 4     # fits?\n-gradient_accumulation_steps: 4\n+micro_batch_size: 2     # fits?\n"
                "+gradient_accumulation_steps: 8\n-optimizer: adamw_torch_fused\n+optimizer: adamw_bnb_8bit\n");
  expect_change(kAxolotl, "a.yml", {{"checkpointing", true}},
                "-gradient_checkpointing: false\n+gradient_checkpointing: true\n+gradient_checkpointing_kwargs: {use_reentrant: false}\n");
  expect_change(kAxolotl, "a.yml", {{"checkpointing", {{"reentrant", true}}}},
                "-gradient_checkpointing: false\n+gradient_checkpointing: true\n");
  expect_change(kAxolotl, "a.yml", {{"precision", "bf16"}, {"autocast", false}}, "-bf16: true\n+bf16: full\n");
  const Rewritten q = written(kAxolotl, "a.yml", {{"lora", {{"r", 16}, {"target_modules", "all-linear"}}}, {"quantization", "nf4"}});
  EXPECT_EQ(not_written(q), "");
  EXPECT_NE(q.text.find("\nadapter: qlora\n"), std::string::npos) << q.text;
  EXPECT_NE(q.text.find("\nlora_r: 16\n"), std::string::npos);
  EXPECT_EQ(q.job.tuning.adapter->r, 16);
  EXPECT_TRUE(q.job.tuning.adapter->target_modules.all_linear);
  EXPECT_EQ(q.job.tuning.quantization->type, "nf4");
  EXPECT_FALSE(q.job.tuning.quantization->double_quant);
  EXPECT_EQ(written(kAxolotl, "a.yml", {{"loss_kernel", "liger"}}).job.loss_settings.kernel, LossKernel::liger);
  // fp32 weights under autocast: axolotl loads the weights in bf16
  EXPECT_NE(not_written(written(kAxolotl, "a.yml", {{"precision", "amp"}})).find("fp32 weights"), std::string::npos);
}

const char* const kArguments = R"({
    "output_dir": "out",
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "optim": "adamw_torch",
    "bf16": true,
    "learning_rate": 5e-05
})";

TEST(Writer, TrainingArguments) {
  expect_change(kArguments, "args.json",
                {{"batch", 2}, {"accumulation", 8}, {"checkpointing", true}, {"optimizer", "AdamW8bit"}, {"workers", 4}},
                "-    \"per_device_train_batch_size\": 4,\n-    \"gradient_accumulation_steps\": 4,\n-    \"optim\": \"adamw_torch\",\n"
                "+    \"per_device_train_batch_size\": 2,\n+    \"gradient_accumulation_steps\": 8,\n+    \"optim\": \"adamw_bnb_8bit\",\n"
                "-    \"learning_rate\": 5e-05\n+    \"learning_rate\": 5e-05,\n+    \"gradient_checkpointing\": true,\n"
                "+    \"dataloader_num_workers\": 4\n");
  expect_change(
      kArguments, "args.json", {{"optimizer", "SGD"}, {"optimizer_args", {{"momentum", 0.9}}}},
      "-    \"optim\": \"adamw_torch\",\n+    \"optim\": \"sgd\",\n-    \"learning_rate\": 5e-05\n+    \"learning_rate\": 5e-05,\n"
      "+    \"optim_args\": \"momentum=0.9\"\n");
  const Rewritten r = written(kArguments, "args.json",
                              {{"precision", "bf16"},
                               {"seq", 512},
                               {"alloc_conf", "expandable_segments:True"},
                               {"lora", {{"r", 8}}},
                               {"checkpointing", "every=2"}});
  EXPECT_EQ(r.text, kArguments);
  EXPECT_NE(not_written(r).find("precision: TrainingArguments do not say the type of the weights"), std::string::npos);
  EXPECT_NE(not_written(r).find("max_length=512"), std::string::npos);
  EXPECT_NE(not_written(r).find("peft.LoraConfig(r=8"), std::string::npos);
  EXPECT_NE(not_written(r).find("one block of every 2 as"), std::string::npos);
  EXPECT_EQ(r.environment, (std::map<std::string, std::string>{{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}}));
  EXPECT_EQ(r.job.alloc_conf, "expandable_segments:True");
}

TEST(Writer, Trl) {
  const std::string text =
      "model_name_or_path: Qwen/Qwen2-0.5B\ndataset_name: x/y\nper_device_train_batch_size: 8\n"
      "max_length: 2048 # tokens\nuse_peft: false\n";
  expect_change(
      text, "sft.yaml", {{"batch", 1}, {"seq", 1024}},
      "-per_device_train_batch_size: 8\n-max_length: 2048 # tokens\n+per_device_train_batch_size: 1\n+max_length: 1024 # tokens\n");
  const Rewritten r = written(text, "sft.yaml",
                              {{"lora", {{"r", 32}, {"target_modules", {"q_proj", "v_proj"}}}},
                               {"quantization", "nf4"},
                               {"precision", "bf16"},
                               {"autocast", true},
                               {"attention", "flash-attention-2"}});
  EXPECT_EQ(not_written(r), "");
  EXPECT_EQ(r.job.tuning.adapter->target_modules.names, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(r.job.precision, Precision::bf16);
  EXPECT_TRUE(r.job.autocast);
  EXPECT_EQ(r.job.attention, AttentionKernel::flash_attention_2);
}

const char* const kDeepSpeed = R"({
  "train_batch_size": 128,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 4,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 0}
}
)";

// Eight processes: the three numbers stay true.
TEST(Writer, DeepSpeed) {
  expect_change(
      kDeepSpeed, "ds.json", {{"batch", 2}, {"accumulation", 8}, {"clip", 1.0}},
      "-  \"train_micro_batch_size_per_gpu\": 4,\n-  \"gradient_accumulation_steps\": 4,\n"
      "+  \"train_micro_batch_size_per_gpu\": 2,\n+  \"gradient_accumulation_steps\": 8,\n-  \"zero_optimization\": {\"stage\": 0}\n"
      "+  \"zero_optimization\": {\"stage\": 0},\n+  \"gradient_clipping\": 1.0\n");
  expect_change(kDeepSpeed, "ds.json", {{"batch", 2}},
                "-  \"train_batch_size\": 128,\n-  \"train_micro_batch_size_per_gpu\": 4,\n+  \"train_batch_size\": 64,\n"
                "+  \"train_micro_batch_size_per_gpu\": 2,\n");
  const Document document = parse_document(kDeepSpeed, "ds.json");
  Job job;
  apply_setting(job, "ddp", {{"world", 8}}, "torchrun");
  const Rewritten r = rewrite(document, job, {{"zero", {{"world", 8}, {"stage", 1}}}});
  EXPECT_EQ(difference(kDeepSpeed, r.text), "-  \"zero_optimization\": {\"stage\": 0}\n+  \"zero_optimization\": {\"stage\": 1}\n");
  EXPECT_EQ(r.job.parallel.deepspeed->world, 8);
}

TEST(Writer, Accelerate) {
  const std::string text =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_machines: 1\n"
      "num_processes: 4\nsame_network: true\n";
  expect_change(text, "acc.yaml", {{"precision", "amp"}}, "-mixed_precision: 'no'\n+mixed_precision: 'bf16'\n");
  expect_change(text, "acc.yaml", {{"zero", {{"world", 4}, {"stage", 1}}}},
                "-distributed_type: MULTI_GPU\n+distributed_type: DEEPSPEED\n+deepspeed_config: {zero_stage: 1}\n");
  EXPECT_NE(not_written(written(text, "acc.yaml", {{"accumulation", 4}})).find("Accelerator(gradient_accumulation_steps=4)"),
            std::string::npos);
}

TEST(Writer, LlamaFactory) {
  const std::string text =
      "model_name_or_path: meta-llama/Meta-Llama-3-8B\n### method\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\n"
      "cutoff_len: 2048\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 8\nbf16: true\n";
  expect_change(text, "lf.yaml", {{"batch", 1}, {"accumulation", 32}, {"seq", 1024}, {"checkpointing", false}},
                "-cutoff_len: 2048\n-per_device_train_batch_size: 4\n-gradient_accumulation_steps: 8\n+cutoff_len: 1024\n"
                "+per_device_train_batch_size: 1\n+gradient_accumulation_steps: 32\n+disable_gradient_checkpointing: true\n");
  const Rewritten r =
      written(text, "lf.yaml", {{"quantization", {{"type", "nf4"}, {"double_quant", false}}}, {"optimizer", "PagedAdamW8bit"}});
  EXPECT_EQ(not_written(r), "");
  EXPECT_FALSE(r.job.tuning.quantization->double_quant);
  EXPECT_EQ(r.job.optimizer.name, "PagedAdamW8bit");
}

const char* const kTorchtune = R"(model:
  _component_: torchtune.models.llama3_2.llama3_2_1b
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: null
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  lr: 2e-5
batch_size: 4
gradient_accumulation_steps: 1
enable_activation_checkpointing: False  # True reduces memory
dtype: bf16
)";

TEST(Writer, Torchtune) {
  expect_change(kTorchtune, "r.yaml",
                {{"batch", 1}, {"accumulation", 4}, {"seq", 512}, {"checkpointing", true}, {"optimizer_args", Json::object()}},
                "-  max_seq_len: null\n+  max_seq_len: 512\n-  fused: True\n-batch_size: 4\n-gradient_accumulation_steps: 1\n"
                "-enable_activation_checkpointing: False  # True reduces memory\n+batch_size: 1\n+gradient_accumulation_steps: 4\n"
                "+enable_activation_checkpointing: True  # True reduces memory\n");
  expect_change(kTorchtune, "r.yaml", {{"optimizer", "PagedAdamW8bit"}, {"optimizer_args", Json::object()}, {"clip", 1.0}},
                "-  _component_: torch.optim.AdamW\n-  fused: True\n+  _component_: bitsandbytes.optim.PagedAdamW8bit\n"
                "+clip_grad_norm: 1.0\n");
}

const char* const kTorchtitan = R"([job]
dump_folder = "./outputs"  # here

[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 4
seq_len = 8192
steps = 1000

[activation_checkpoint]
mode = "selective"  # ["none", "selective", "full"]
selective_ac_option = "op"
)";

TEST(Writer, Torchtitan) {
  expect_change(kTorchtitan, "t.toml", {{"batch", 1}, {"accumulation", 4}, {"seq", 4096}, {"checkpointing", true}, {"compile", true}},
                "-local_batch_size = 4\n-seq_len = 8192\n+local_batch_size = 1\n+seq_len = 4096\n+global_batch_size = 4\n"
                "-mode = \"selective\"  # [\"none\", \"selective\", \"full\"]\n+mode = \"full\"  # [\"none\", \"selective\", \"full\"]\n"
                "+\n+[compile]\n+enable = true\n");
  expect_change(kTorchtitan, "t.toml", {{"checkpointing", "every=3"}}, "-selective_ac_option = \"op\"\n+selective_ac_option = \"3\"\n");
}

TEST(Writer, Kohya) {
  const std::string text =
      "[model]\npretrained_model_name_or_path = \"sdxl.safetensors\"\n\n[network]\nnetwork_module = 'networks.lora'\n"
      "network_dim = 32\n\n[train]\ntrain_batch_size = 4 # each\nresolution = \"1024,1024\"\nmixed_precision = \"bf16\"\n"
      "optimizer_type = 'AdamW'\n";
  expect_change(
      text, "k.toml", {{"batch", 1}, {"accumulation", 4}, {"seq", 768}, {"optimizer", "AdamW8bit"}, {"checkpointing", true}},
      "-train_batch_size = 4 # each\n-resolution = \"1024,1024\"\n+train_batch_size = 1 # each\n+resolution = \"768,768\"\n"
      "-optimizer_type = 'AdamW'\n+optimizer_type = 'AdamW8bit'\n+gradient_accumulation_steps = 4\n+gradient_checkpointing = true\n");
  const std::string sets =
      "[general]\nenable_bucket = true\n\n[[datasets]]\nresolution = 1024\nbatch_size = 4\n\n  [[datasets.subsets]]\n"
      "  image_dir = 'x'\n";
  expect_change(sets, "d.toml", {{"batch", 2}}, "-batch_size = 4\n+batch_size = 2\n");
}

TEST(Writer, PeftAdapter) {
  const std::string text = R"({"peft_type": "LORA", "r": 64, "lora_alpha": 8, "target_modules": ["q_proj"]})";
  EXPECT_EQ(written(text, "adapter_config.json", {{"lora", {{"r", 8}, {"target_modules", {"q_proj", "v_proj"}}}}}).text,
            R"({"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]})");
}

TEST(Writer, OwnJobFile) {
  const std::string text = "model: llama-3.1-8b # ours\nbatch: 4\noptimizer: {name: AdamW, args: {fused: true}}\n";
  expect_change(text, "job.yaml", {{"batch", 2}, {"checkpointing", "every=2"}, {"alloc_conf", "expandable_segments:True"}},
                "-batch: 4\n+batch: 2\n+checkpointing: \"every=2\"\n+alloc_conf: \"expandable_segments:True\"\n");
  expect_change(text, "job.yaml", {{"optimizer", "SGD"}, {"optimizer_args", {{"momentum", 0.9}}}},
                "-optimizer: {name: AdamW, args: {fused: true}}\n+optimizer: {name: SGD, args: {momentum: 0.9}}\n");
  expect_change("{\"model\": \"gpt2\", \"batch\": 8}", "job.json", {{"batch", 4}, {"accumulation", 2}},
                "-{\"model\": \"gpt2\", \"batch\": 8}\n+{\"model\": \"gpt2\", \"batch\": 4, \"accumulation\": 2}\n");
}

// ---- the seeds' own files

std::string example(const std::string& name) { return read_text_file(std::string(PLIMSOLL_SOURCE_DIR) + "/examples/" + name); }

TEST(Writer, MambaTrainer) {
  const std::string text = example("seeds/mamba-balanced-16gb.json");
  const Rewritten r = written(text, "config.json",
                              {{"batch", 1},
                               {"accumulation", 32},
                               {"seq", 512},
                               {"precision", "fp32"},
                               {"checkpointing", true},
                               {"alloc_conf", "garbage_collection_threshold:0.8"}});
  EXPECT_EQ(r.job.batch, 1);
  EXPECT_EQ(r.job.accumulation, 32);
  EXPECT_EQ(r.job.seq, 512);
  EXPECT_EQ(r.job.precision, Precision::fp32);
  EXPECT_EQ(not_written(r),
            "checkpointing: use_gradient_checkpointing does nothing in train.py: wrap each layer of models/mamba_model.py in "
            "torch.utils.checkpoint.checkpoint\nalloc_conf: train.py sets PYTORCH_ALLOC_CONF itself before it imports torch: write the "
            "value there\n");
  EXPECT_EQ(written(text, "config.json", {{"config", {{"n_layers", 6}}}}).job.config.values()["n_layers"], 6);
}

TEST(Writer, GatedSparseAttention) {
  for (const char* name : {"seeds/gsa-low-memory.yaml", "seeds/gsa-medium-memory.yaml"}) {
    const std::string text = example(name);
    const Rewritten r =
        written(text, "gsa.yaml", {{"batch", 1}, {"accumulation", 8}, {"seq", 1024}, {"checkpointing", true}, {"workers", 1}});
    EXPECT_EQ(r.job.batch, 1);
    EXPECT_EQ(r.job.accumulation, 8);
    EXPECT_EQ(r.job.seq, 1024);
    EXPECT_TRUE(r.job.checkpointing.on);
    EXPECT_EQ(not_written(r), "");
  }
}

TEST(Writer, StDiff) {
  const std::string text = example("seeds/stdiff-kitti-64x2048.yaml");
  const Rewritten r =
      written(text, "stdiff.yaml", {{"batch", 1}, {"accumulation", 4}, {"precision", "amp"}, {"ema", false}, {"optimizer", "AdamW8bit"}});
  EXPECT_EQ(r.job.batch, 1);
  EXPECT_EQ(r.job.accumulation, 4);
  EXPECT_EQ(r.job.precision, Precision::amp);
  EXPECT_FALSE(r.job.ema);
  EXPECT_EQ(not_written(r), "optimizer: train_stdiff.py makes torch.optim.AdamW itself: write AdamW8bit there\n");
}

TEST(Writer, AiToolkit) {
  const std::string text = example("seeds/ai-toolkit-flux-lora.yaml");
  const Rewritten r = written(text, "flux.yaml",
                              {{"batch", 2},
                               {"accumulation", 2},
                               {"seq", 768},
                               {"optimizer", "AdamW8bit"},
                               {"workers", 0},
                               {"lora", {{"r", 8}, {"target_modules", "all-linear"}}},
                               {"ema", false}});
  EXPECT_EQ(not_written(r), "");
  EXPECT_EQ(r.job.batch, 2);
  EXPECT_EQ(r.job.accumulation, 2);
  EXPECT_EQ(r.job.seq, 768);
  EXPECT_EQ(r.job.optimizer.name, "AdamW8bit");
  EXPECT_EQ(r.job.tuning.adapter->r, 8);
  EXPECT_EQ(r.job.host.workers, 0);
}

TEST(Writer, FewShotDiffusion) {
  const std::string text = example("seeds/fsdm-lag.sh");
  const Rewritten r = written(text, "lag.sh", {{"batch", 1}, {"config", {{"sample_size", 4}}}});
  EXPECT_EQ(r.job.batch, 1);
  EXPECT_EQ(r.job.config.values()["sample_size"], 4);
  EXPECT_EQ(not_written(r), "");
}

// ---- text

TEST(Writer, LineEndsAndLastLines) {
  const std::string crlf = "base_model: x\r\ndatasets: []\r\nmicro_batch_size: 4 # c\r\nsequence_len: 128";
  EXPECT_EQ(written(crlf, "a.yml", {{"batch", 2}, {"accumulation", 2}}).text,
            "base_model: x\r\ndatasets: []\r\nmicro_batch_size: 2 # c\r\nsequence_len: 128\r\ngradient_accumulation_steps: 2");
  const std::string toml = "[training]\r\nseq_len = 128\r\n[job]\r\ndump_folder = 'x'\r\n";
  EXPECT_EQ(written(toml, "t.toml", {{"batch", 2}, {"seq", 64}}).text,
            "[training]\r\nseq_len = 64\r\nlocal_batch_size = 2\r\n[job]\r\ndump_folder = 'x'\r\n");
  const std::string json = "{\r\n\t\"num_train_epochs\": 1\r\n}";
  EXPECT_EQ(written(json, "a.json", {{"batch", 2}}).text, "{\r\n\t\"num_train_epochs\": 1,\r\n\t\"per_device_train_batch_size\": 2\r\n}");
}

TEST(Writer, UnicodeAndComments) {
  EXPECT_EQ(written("# größe ✓\nbase_model: \"模型\" # ü\ndatasets: [] \nmicro_batch_size: 4 # ✓\n", "a.yml", {{"batch", 2}}).text,
            "# größe ✓\nbase_model: \"模型\" # ü\ndatasets: [] \nmicro_batch_size: 2 # ✓\n");
  EXPECT_EQ(written("[job]\n\"größe\" = 'ü✓' # ü\n[training]\nx = 'ü'\nlocal_batch_size = 4 # ü\n", "t.toml", {{"batch", 2}}).text,
            "[job]\n\"größe\" = 'ü✓' # ü\n[training]\nx = 'ü'\nlocal_batch_size = 2 # ü\n");
  EXPECT_EQ(written("{ // ü \" {\n  \"num_train_epochs\": 1, /* , */\n  \"per_device_train_batch_size\": 4 // ✓ }\n}", "a.json",
                    {{"batch", 2}, {"accumulation", 2}})
                .text,
            "{ // ü \" {\n  \"num_train_epochs\": 1, /* , */\n  \"per_device_train_batch_size\": 2, // ✓ }\n  "
            "\"gradient_accumulation_steps\": 2\n}");
}

TEST(Writer, YamlThatIsNotPlainLines) {
  const std::string flow = "training: {micro_batch_size: 4, max_seq_len: 128, indexer_warmup_steps: 9} # here\n";
  EXPECT_EQ(written(flow, "gsa.yaml", {{"batch", 2}, {"accumulation", 2}}).text,
            "training: {gradient_accumulation_steps: 2, micro_batch_size: 2, max_seq_len: 128, indexer_warmup_steps: 9} # here\n");
  const std::string quoted = "'base_model': 'x'\ndatasets: []\n\"micro_batch_size\" : '4'\nbf16: \n";
  EXPECT_EQ(written(quoted, "a.yml", {{"batch", 2}, {"precision", "bf16"}, {"autocast", false}}).text,
            "'base_model': 'x'\ndatasets: []\n\"micro_batch_size\" : 2\nbf16: full \n");
}

TEST(Writer, RefusesWhatIsNotSafe) {
  EXPECT_NE(
      error_of("base_model: x\ndatasets: []\nmicro_batch_size: &bs 4\neval_batch_size: *bs\n", "a.yml", {{"batch", 2}}).find("anchor (&)"),
      std::string::npos);
  EXPECT_NE(
      error_of("base_model: x\ndatasets: []\neval_batch_size: &bs 4\nmicro_batch_size: *bs\n", "a.yml", {{"batch", 2}}).find("alias (*)"),
      std::string::npos);
  const std::string merged = "base: &base {micro_batch_size: 4}\ntraining:\n  <<: *base\n  indexer_warmup_steps: 9\n";
  EXPECT_NE(error_of(merged, "gsa.yaml", {{"batch", 2}}).find("merge"), std::string::npos);
  EXPECT_NE(error_of("{\"num_train_epochs\": 1, \"per_device_train_batch_size\": 2, \"per_device_train_batch_size\": 4}", "a.json",
                     {{"batch", 1}})
                .find("twice"),
            std::string::npos);
  const std::string named = std::string(kTorchtune) + "bs: 4\n";
  std::string interpolated = named;
  interpolated.replace(interpolated.find("batch_size: 4"), 13, "batch_size: ${bs}");
  EXPECT_NE(error_of(interpolated, "r.yaml", {{"batch", 2}}).find("${bs}"), std::string::npos);
  EXPECT_NE(error_of("{\"model_type\": \"llama\", \"hidden_size\": 64}", "config.json", {{"batch", 1}}).find("no settings"),
            std::string::npos);
  EXPECT_NE(error_of("gradient_checkpointing: &a\n  x: 1\nother: *a\nbase_model: x\ndatasets: []\n", "a.yml", {{"checkpointing", true}}),
            "");
}

// ---- commands and scripts

TEST(Writer, Commands) {
  const std::string command =
      "torchrun --nproc_per_node=2 train.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --bf16 --optim=adamw_torch";
  EXPECT_EQ(written(command, "", {{"batch", 2}, {"accumulation", 2}, {"optimizer", "AdamW8bit"}, {"checkpointing", true}}).text,
            "torchrun --nproc_per_node=2 train.py --model_name_or_path gpt2 --per_device_train_batch_size 2 --bf16 --optim=adamw_bnb_8bit "
            "--gradient_accumulation_steps 2 --gradient_checkpointing true");
  EXPECT_EQ(
      written(command, "", {{"precision", "fp32"}}).text,
      "torchrun --nproc_per_node=2 train.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --bf16 false --optim=adamw_torch");
  EXPECT_EQ(written("python train.py --per_device_train_batch_size 4", "", {{"alloc_conf", "expandable_segments:True"}}).text,
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py --per_device_train_batch_size 4");
  EXPECT_EQ(written("accelerate launch sdxl_train_network.py --pretrained_model_name_or_path x --network_dim 8 --mixed_precision bf16 "
                    "--gradient_checkpointing --use_8bit_adam",
                    "", {{"checkpointing", false}, {"optimizer", "Lion8bit"}, {"batch", 2}})
                .text,
            "accelerate launch sdxl_train_network.py --pretrained_model_name_or_path x --network_dim 8 --mixed_precision bf16 "
            "--train_batch_size 2 --optimizer_type Lion8bit");
  EXPECT_EQ(written("llamafactory-cli train --stage sft --finetuning_type lora --per_device_train_batch_size 4", "", {{"seq", 512}}).text,
            "llamafactory-cli train --stage sft --finetuning_type lora --per_device_train_batch_size 4 --cutoff_len 512");
}

class WriterFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("plimsoll_writer_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  // What `python` is given, one word a line, when a shell runs the script.
  std::string ran(const std::string& script) {
    const std::string python =
        write("python", "#!/bin/sh\nfor word in \"$@\"; do printf '%s\\n' \"$word\"; done\nenv | grep ALLOC_CONF || true\n");
    fs::permissions(python, fs::perms::owner_all);
    const std::string path = write("run.sh", script), out = (folder_ / "out").string();
    EXPECT_EQ(std::system(("bash -n '" + path + "'").c_str()), 0) << script;
    EXPECT_EQ(std::system(("PATH='" + folder_.string() + "':$PATH bash '" + path + "' > '" + out + "'").c_str()), 0) << script;
    return read_text_file(out);
  }

  fs::path folder_;
};

const char* const kScript = R"(#!/bin/bash
# a run; it's mine
set -e
BS=4       # per device
LR="2e-5"
echo "batch $BS" > /dev/null

python train.py \
    --model_name_or_path 'my model' \
    --per_device_train_batch_size $BS \
    --learning_rate ${LR} --bf16 \
    --fp16 false \
    --gradient_accumulation_steps=${GA:-4} > /dev/stdout   # the end
exit 0
)";

TEST_F(WriterFolder, Scripts) {
  expect_change(
      kScript, "run.sh", {{"batch", 2}, {"accumulation", 8}},
      "-BS=4       # per device\n+BS=2       # per device\n-    --gradient_accumulation_steps=${GA:-4} > /dev/stdout   # the end\n"
      "+    --gradient_accumulation_steps=${GA:-8} > /dev/stdout   # the end\n");
  const Rewritten r = written(kScript, "run.sh",
                              {{"batch", 2},
                               {"checkpointing", true},
                               {"precision", "fp32"},
                               {"alloc_conf", "expandable_segments:True"},
                               {"optimizer", "AdamW8bit"}});
  EXPECT_EQ(not_written(r), "");
  EXPECT_EQ(
      ran(r.text),
      "train.py\n--model_name_or_path\nmy model\n--per_device_train_batch_size\n2\n--learning_rate\n2e-5\n--bf16\nfalse\n--fp16\nfalse\n"
      "--gradient_accumulation_steps=4\n--gradient_checkpointing\ntrue\n--optim\nadamw_bnb_8bit\n"
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n");
}

TEST_F(WriterFolder, SwitchesGoWithTheirLines) {
  const std::string script =
      "accelerate_launch=1\npython sdxl_train_network.py \\\n  --network_dim 8 \\\n  --gradient_checkpointing \\\n"
      "  --train_batch_size 2 \\\n  --xformers\necho done\n";
  expect_change(script, "k.sh", {{"checkpointing", false}}, "-  --gradient_checkpointing \\\n");
  expect_change(script, "k.sh", {{"attention", "auto"}}, "-  --xformers\n+  --sdpa\n");
  const Rewritten r = written(script, "k.sh", {{"attention", "auto"}, {"checkpointing", false}, {"accumulation", 4}});
  EXPECT_EQ(ran(r.text),
            "sdxl_train_network.py\n--network_dim\n8\n--train_batch_size\n2\n--gradient_accumulation_steps\n4\n--sdpa\ndone\n");
}

TEST_F(WriterFolder, FilesThatACommandNames) {
  const std::string file = write("a.yml", kAxolotl);
  EXPECT_EQ(written("axolotl train " + file, "", {{"batch", 2}, {"optimizer", "AdamW8bit"}}).text,
            "axolotl train " + file + " --micro-batch-size 2 --optimizer adamw_bnb_8bit");
  const std::string recipe = write("r.yaml", kTorchtune);
  EXPECT_EQ(
      written("tune run full_finetune_single_device --config " + recipe + " batch_size=2", "", {{"batch", 1}, {"checkpointing", true}})
          .text,
      "tune run full_finetune_single_device --config " + recipe + " batch_size=1 enable_activation_checkpointing=true");
  const std::string titan = write("t.toml", kTorchtitan);
  EXPECT_EQ(written("torchrun --nproc_per_node=1 -m torchtitan.train --job.config_file " + titan, "", {{"seq", 1024}}).text,
            "torchrun --nproc_per_node=1 -m torchtitan.train --job.config_file " + titan + " --training.seq_len 1024");
  const std::string mamba = write("config.json", example("seeds/mamba-balanced-16gb.json"));
  EXPECT_NE(error_of("python train.py --config " + mamba, "", {{"batch", 1}}).find("from a file"), std::string::npos);
  // DeepSpeed's file says it, too
  write("ds.json", kDeepSpeed);
  const std::string args =
      write("args.json", "{\"per_device_train_batch_size\": 4, \"gradient_accumulation_steps\": 4, \"deepspeed\": \"ds.json\"}");
  EXPECT_NE(not_written(written(read_text_file(args), args, {{"batch", 2}})).find("ds.json: train_micro_batch_size_per_gpu"),
            std::string::npos);
}

TEST(Writer, ScriptsThatCannotBeChanged) {
  EXPECT_NE(error_of("for BS in 1 2; do\npython t.py --per_device_train_batch_size $BS\ndone\n", "a.sh", {{"batch", 4}}), "");
  EXPECT_NE(error_of("BS=1\nBS=2\npython t.py --per_device_train_batch_size $BS\n", "a.sh", {{"batch", 4}}).find("more than once"),
            std::string::npos);
  EXPECT_NE(error_of("BS=$(nproc)\npython t.py --per_device_train_batch_size 4 --gradient_accumulation_steps $BS\n", "a.sh",
                     {{"accumulation", 4}}),
            "");
  EXPECT_NE(error_of("python t.py --per_device_train_batch_size 4 $MORE\n", "a.sh", {{"accumulation", 4}}).find("may hold it"),
            std::string::npos);
  EXPECT_NE(error_of("python t.py --per_device_train_batch_size 4 --per_device_train_batch_size 5\n", "a.sh", {{"batch", 1}}), "");
  // one variable for two flags: both would change
  EXPECT_NE(error_of("BS=4\npython t.py --eval_strategy steps --per_device_train_batch_size $BS --dataloader_num_workers $BS\n", "a.sh",
                     {{"batch", 1}})
                .find("workers"),
            std::string::npos);
}

// ---- flags

std::string flags(const std::string& text, const std::string& name, const Patch& changes) {
  const Document document = document_of(text, name);
  Job job;
  read_input_document(job, document);
  const Outcome<std::string> flags = trainer_flags(document, job, changes);
  if (!flags) throw *flags.refused;
  return *flags;
}

TEST(Flags, InTheTrainersSpelling) {
  const Patch changes{
      {"batch", 2}, {"accumulation", 8}, {"checkpointing", true}, {"optimizer", "AdamW8bit"}, {"optimizer_args", Json::object()}};
  EXPECT_EQ(flags(kArguments, "a.json", changes),
            "--per_device_train_batch_size 2 --gradient_accumulation_steps 8 --gradient_checkpointing true --optim adamw_bnb_8bit");
  EXPECT_EQ(flags("python train.py --per_device_train_batch_size 8", "", {{"batch", 2}}), "--per_device_train_batch_size 2");
  EXPECT_EQ(flags(kTorchtitan, "t.toml", {{"seq", 512}, {"compile", true}}), "--training.seq_len 512 --compile.enable");
  EXPECT_EQ(flags(kTorchtune, "r.yaml", {{"batch", 2}, {"clip", 0.5}}), "batch_size=2 clip_grad_norm=0.5");
  EXPECT_EQ(flags("model: gpt2\n", "job.yaml", {{"batch", 2}}), "--batch 2");
  EXPECT_THROW(flags(kArguments, "a.json", {{"swap_blocks", 4}}), Error);
  EXPECT_THROW(flags(example("seeds/gsa-low-memory.yaml"), "g.yaml", {{"batch", 1}}), Error);
  EXPECT_THROW(flags(kArguments, "a.json", {{"alloc_conf", "expandable_segments:True"}}), Error);
}

// ---- fresh files

TEST_F(WriterFolder, FreshFiles) {
  Job job;
  const Patch settings{{"model", "llama-3.1-8b"},
                       {"batch", 2},
                       {"accumulation", 8},
                       {"precision", "amp"},
                       {"checkpointing", true},
                       {"optimizer", "AdamW8bit"},
                       {"clip", 1.0},
                       {"workers", 4},
                       {"alloc_conf", "expandable_segments:True"}};
  for (const auto& [key, value] : settings) apply_setting(job, key, value, "test");
  for (const LaunchFileKind& file : launch_files()) {
    if (file.kind == LaunchFile::ai_toolkit) continue;
    Job wanted = job;
    if (file.kind == LaunchFile::deepspeed)
      apply_setting(wanted, "precision", "bf16", "test"), apply_setting(wanted, "optimizer", "AdamW", "test");
    const Rewritten r = generate(wanted, file.kind);
    const Document document = parse_document(r.text, file.file_name);
    Job read;
    read_input_document(read, document);
    for (const auto& [key, value] : settings) {
      const bool said =
          std::none_of(r.not_written.begin(), r.not_written.end(), [&, k = key](const NotWritten& n) { return n.setting == k; });
      if (key == "model" || key == "alloc_conf" || !said) continue;
      const Format* format = format_of(document);
      if (key_of(format ? format->name : "hf_training_arguments", key).empty()) continue;
      EXPECT_EQ(value_of(read, key), value_of(wanted, key)) << file.name << " " << key << "\n" << r.text;
    }
  }
  EXPECT_EQ(ran(generate(job, LaunchFile::torchrun).text),
            "train.py\n--output_dir\nout\n--per_device_train_batch_size\n2\n--gradient_accumulation_steps\n8\n--bf16\ntrue\n"
            "--gradient_checkpointing\ntrue\n--optim\nadamw_bnb_8bit\n--dataloader_num_workers\n4\n"
            "--dataloader_pin_memory\nfalse\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n");
  EXPECT_THROW(generate(job, LaunchFile::ai_toolkit), Error);
  EXPECT_THROW(parse_launch_file("slurm"), Error);
  EXPECT_EQ(parse_launch_file("accelerate"), LaunchFile::accelerate);
}

TEST(LaunchFiles, AiToolkit) {
  Job job;
  const Document document = parse_document(example("seeds/ai-toolkit-flux-lora.yaml"), "flux.yaml");
  read_input_document(job, document);
  const Rewritten r = generate(job, LaunchFile::ai_toolkit);
  for (const char* key :
       {"model", "batch", "seq", "precision", "optimizer", "lora", "quantization", "checkpointing", "accumulation", "workers"})
    EXPECT_EQ(value_of(r.job, key), value_of(job, key)) << key << "\n" << r.text;
}

// ---- every setting of every format

TEST(Values, OfEverySetting) {
  const Job job;
  const auto values = values_of(job);
  for (const Setting& s : job_settings()) EXPECT_TRUE(!s.print || values.contains(s.key)) << s.key;
  EXPECT_THROW(value_of(job, "nothing"), Error);
}

std::vector<std::pair<std::string, std::string>> all_texts() {
  std::vector<std::pair<std::string, std::string>> texts{{"a.yml", kAxolotl},
                                                         {"args.json", kArguments},
                                                         {"ds.json", kDeepSpeed},
                                                         {"r.yaml", kTorchtune},
                                                         {"t.toml", kTorchtitan},
                                                         {"run.sh", kScript},
                                                         {"job.yaml", "model: gpt2\nbatch: 4\nseq: 512\n"}};
  for (const char* name :
       {"seeds/mamba-balanced-16gb.json", "seeds/gsa-low-memory.yaml", "seeds/gsa-medium-memory.yaml", "seeds/stdiff-kitti-64x2048.yaml",
        "seeds/ai-toolkit-flux-lora.yaml", "llama-finetune.yaml", "seeds/fsdm-lag.sh"})
    texts.emplace_back(fs::path(name).filename().string(), example(name));
  return texts;
}

// Values that a planner may choose.
Patch random_changes(std::mt19937& random) {
  static const std::vector<std::pair<std::string, std::vector<Json>>> kChoices{
      {"batch", {1, 2, 3, 16}},
      {"accumulation", {1, 2, 7, 64}},
      {"seq", {64, 128, 1024}},
      {"precision", {"fp32", "amp", "amp-fp16", "bf16"}},
      {"checkpointing", {true, false, "every=2", "save=matmuls", Json{{"reentrant", true}}}},
      {"optimizer", {"AdamW", "AdamW8bit", "SGD", "TransformersAdafactor", "Lion", "PagedAdamW8bit"}},
      {"clip", {0.5, 1.0}},
      {"workers", {1, 4}},
      {"compile", {true}},
      {"offload_activations", {true, "pageable", false}},
      {"lora", {Json{{"r", 16}, {"target_modules", "all-linear"}}, "r=4,target_modules=q_proj+v_proj"}},
      {"loss_kernel", {"liger", "chunked", "cut"}},
      {"attention", {"auto", "eager", "flash-attention-2"}},
      {"ema", {false}},
      {"swap_blocks", {4}},
      {"drop_output", {true}},
      {"alloc_conf", {"expandable_segments:True", "max_split_size_mb:64"}}};
  Patch changes;
  for (const auto& [setting, values] : kChoices)
    if (random() % 3 == 0) changes.set(setting, values[random() % values.size()]);
  return changes;
}

// Whatever is asked for: it is written and read as asked, or said not to be, or refused as a whole with nothing written.
TEST(Writer, AnyChanges) {
  std::mt19937 random(7);
  int done = 0, refused = 0;
  for (const auto& [name, text] : all_texts())
    for (int round = 0; round < 12; ++round) {
      const Patch changes = random_changes(random);
      const Document document = parse_document(text, name);
      Job before;
      read_input_document(before, document);
      try {
        const Rewritten r = rewrite(document, before, changes);
        Job wanted = before;
        for (const auto& [setting, value] : changes) {
          const bool left =
              std::any_of(r.not_written.begin(), r.not_written.end(), [&, s = setting](const NotWritten& n) { return n.setting == s; });
          if (left) continue;
          apply_setting(wanted, setting, value, "test");
          if (setting == "lora") continue;
          EXPECT_EQ(value_of(r.job, setting), value_of(wanted, setting)) << name << " " << setting << "\n" << r.text;
        }
        // asked once more, nothing is left to write
        Job after;
        const Document again = parse_document(r.text, name);
        read_input_document(after, again);
        EXPECT_EQ(rewrite(again, after, changes).text, r.text) << name;
        ++done;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()), "") << name;
        ++refused;
      }
    }
  EXPECT_GT(done, refused * 4) << done << " and " << refused;
}

// ---- hostile text

TEST(Writer, AnyBytes) {
  std::mt19937 random(20240607);
  static const std::string kTokens[] = {"{",  "}", "[", "]",    ":",     ",", "\"", "\n", " ",  "-", "&a",  "*a",
                                        "<<", "!", "%", "null", "1e999", "#", "'",  "\\", "$X", "`", "\xff"};
  int accepted = 0, thrown = 0;
  for (const auto& [name, seed] : all_texts())
    for (int round = 0; round < PLIMSOLL_FUZZ_ROUNDS / 100; ++round) {
      std::string text = seed;
      for (size_t i = 0, n = 1 + random() % 4; i < n; ++i) {
        const size_t at = random() % (text.size() + 1);
        if (random() % 2)
          text.insert(at, kTokens[random() % std::size(kTokens)]);
        else
          text.erase(at, random() % 8);
      }
      try {
        const Document document = parse_document(text, name);
        Job job;
        read_input_document(job, document);
        rewrite(document, job, {{"batch", 2}, {"accumulation", 3}, {"checkpointing", true}});
        ++accepted;
      } catch (const Error&) {
        ++thrown;
      }
    }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(thrown, 0);
}

// ---- the page about it

TEST(WritingPage, NamesEveryKey) {
  const std::string page = read_text_file(std::string(PLIMSOLL_SOURCE_DIR) + "/docs/writing.md");
  for (const Format& f : formats()) {
    if (!f.writes || std::string(f.name) == "job") continue;
    std::vector<std::string> keys;
    for (const KeyEncoder& k : f.writes().keys)
      if (*k.key) keys.push_back(fmt::format("{}: `{}`", k.setting, k.key));
    const std::string row = fmt::format("| `{}` | {} |", f.name, join(keys, ", "));
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace plimsoll::writer_test
