// The table of settings: every setting is printed as it is read, mappings key by key, and a whole job as a file that gives the job again.
#include "job/settings.h"

#include <gtest/gtest.h>

#include <set>

namespace plimsoll::settings_test {
namespace {

using Json = nlohmann::json;

// A value of every setting that is not its default; of a mapping every key. `least`: what a mapping needs at the least.
struct Sample {
  Json value, least = nullptr;
};

const std::map<std::string, Sample>& samples() {
  static const std::map<std::string, Sample> kSamples{
      {"model", {"gpt2"}},
      {"config", {{{"n_layer", 3}, {"activation", "relu"}}}},
      {"batch", {8}},
      {"seq", {512}},
      {"lengths", {{512, 301, 77}}},
      {"collate", {"pack"}},
      {"padding", {"mask"}},
      {"pad_to_multiple_of", {64}},
      {"size", {{{"side", 384}, {"frames", 16}}}},
      {"inputs", {"cls"}},
      {"precision", {"amp-fp16"}},
      {"autocast", {true}},
      {"lora",
       {{{"target_modules", {"q_proj", "v_proj"}},
         {"exclude_modules", {"lm_head"}},
         {"modules_to_save", {"embed_tokens"}},
         {"task_type", "SEQ_CLS"},
         {"dtype", "base"},
         {"r", 16},
         {"rank_pattern", {{"v_proj", 4}}},
         {"layers_to_transform", {0, 1}},
         {"layers_pattern", {"layers"}},
         {"alpha", 32.5},
         {"dropout", 0.05},
         {"use_dora", true},
         {"bias", "lora_only"}},
        Json::object()}},
      {"lokr",
       {{{"target_modules", "all-linear"},
         {"modules_to_save", {"score"}},
         {"dtype", "base"},
         {"r", 4},
         {"alpha", 2.0},
         {"decompose_both", true},
         {"decompose_factor", 4}},
        Json::object()}},
      {"ia3",
       {{{"target_modules", ".*attn.*"}, {"modules_to_save", {"score"}}, {"dtype", "base"}, {"feedforward_modules", {"mlp.down_proj"}}},
        Json::object()}},
      {"ln_tuning", {{{"target_modules", {"ln_f"}}, {"modules_to_save", {"score"}}, {"dtype", "base"}}, Json::object()}},
      {"quantization",
       {{{"type", "nf4-bf16"}, {"double_quant", true}, {"compute_dtype", "fp32"}, {"skip_modules", {"lm_head"}}, {"prepare", true}},
        {{"type", "fp4-bf16"}}}},
      {"frozen", {{"embed_tokens", "layers.0"}}},
      {"trainable", {{"lm_head"}}},
      {"attention", {"flash-attention-2"}},
      {"checkpointing", {{{"modules", {"layers.0-11", "mlp"}}, {"save", {"mm/2", "bmm"}}}}},
      {"offload_activations", {"pageable"}},
      {"loss", {"logits-sum"}},
      {"loss_kernel", {"chunked-output"}},
      {"loss_chunks", {4}},
      {"liger_kernels", {{"rope", "swiglu"}}},
      {"optimizer", {"SGD"}},
      {"optimizer_args", {{{"momentum", 0.9}}}},
      {"accumulation", {4}},
      {"clip", {0.5}},
      {"ema", {true}},
      {"ema_place", {"host"}},
      {"ema_dtype", {"fp32"}},
      {"ema_update", {"averaged-model"}},
      {"offload_optimizer", {{{"gradients", true}}, Json::object()}},
      {"swap_blocks", {3}},
      {"optimizer_in_backward", {true}},
      {"master_weights", {"fp32"}},
      {"gradient_dtype", {"fp32"}},
      {"loss_scaling", {false}},
      {"drop_output", {true}},
      {"drop_after", {true}},
      {"zero_grad", {"before-backward"}},
      {"longest", {4096}},
      {"eval_batch", {16}},
      {"sample_tokens", {20}},
      {"sample_batch", {2}},
      {"sample_prompt", {64}},
      {"steps", {3}},
      {"ddp",
       {{{"world", 8},
         {"bucket_mb", 50.0},
         {"bucket_view", true},
         {"find_unused_parameters", true},
         {"static_graph", true},
         {"broadcast_buffers", false},
         {"no_sync", false}},
        {{"world", 4}}}},
      {"zero1", {{{"world", 8}, {"rank", 3}, {"ddp", false}, {"parameter_view", true}}, {{"world", 4}}}},
      {"fsdp",
       {{{"world", 8},
         {"replicas", 2},
         {"rank", 3},
         {"reshard", 2},
         {"reshard_root", true},
         {"param_dtype", "bf16"},
         {"reduce_dtype", "fp32"},
         {"no_sync", true},
         {"wrap_embedding", true},
         {"checkpoint_inside", true},
         {"keep_last", true}},
        {{"world", 4}}}},
      {"fsdp1",
       {{{"world", 8},
         {"replicas", 2},
         {"strategy", "hybrid_shard_zero2"},
         {"rank", 3},
         {"param_dtype", "bf16"},
         {"reduce_dtype", "fp32"},
         {"prefetch", "post"},
         {"forward_prefetch", true},
         {"original_parameters", true},
         {"offload", true},
         {"no_sync", true},
         {"wrap_trained_layers", false}},
        {{"world", 4}}}},
      {"zero",
       {{{"world", 8},
         {"rank", 3},
         {"stage", 3},
         {"reduce_bucket", 100000},
         {"contiguous_gradients", false},
         {"overlap_comm", false},
         {"reduce_scatter", false},
         {"round_robin_gradients", true},
         {"offload_optimizer", true},
         {"gradient_dtype", "fp32"},
         {"offload_param", true},
         {"sub_group", 1000},
         {"persistence_threshold", 5},
         {"model_persistence_threshold", 6},
         {"prefetch_bucket", 7},
         {"max_live_parameters", 8},
         {"max_reuse_distance", 9}},
        {{"world", 4}, {"stage", 3}}}},
      {"tensor_parallel", {{{"world", 8}, {"rank", 3}, {"sequence", true}, {"loss_parallel", true}}, {{"world", 4}}}},
      {"megatron",
       {{{"world", 128},
         {"tensor", 2},
         {"pipeline", 2},
         {"virtual_stages", 2},
         {"context", 2},
         {"expert", 2},
         {"expert_tensor", 4},
         {"sequence", true},
         {"distributed_optimizer", false},
         {"overlap", true},
         {"fused_gradients", false},
         {"fused_loss", true},
         {"fused_residual", false},
         {"local", true},
         {"all_to_all", true},
         {"attention_mask", true},
         {"layers", {7, 8, 8, 7}},
         {"stage", 1},
         {"attention", "flash"}},
        Json::object()}},
      {"torchtitan",
       {{{"world", 64},
         {"tensor", 2},
         {"pipeline", 2},
         {"virtual_stages", 2},
         {"context", 2},
         {"replicas", 2},
         {"micro_batches", 4},
         {"schedule", "interleaved"},
         {"reshard", "never"},
         {"loss_parallel", false},
         {"rotate", "alltoall"},
         {"float8", true},
         {"async_tensor", true},
         {"loss_chunks", 2},
         {"layers", {7, 8, 8, 7}},
         {"stage", 1},
         {"version", "2024-06"}},
        Json::object()}},
      {"framework", {"jax"}},
      {"donate", {true}},
      {"replicas", {8}},
      {"device_kind", {"tpu"}},
      {"mem_fraction", {0.9}},
      {"preallocate", {false}},
      {"compile", {true}},
      {"alloc_conf", {"expandable_segments:True"}},
      {"torch", {"2.4"}},
      {"transformers", {"4.47"}},
      {"workers", {4}},
      {"prefetch_factor", {3}},
      {"persistent_workers", {true}},
      {"pin_memory", {true}},
      {"start_method", {"spawn"}},
      {"item_bytes", {4096}},
      {"dataset_size", {1000}},
      {"dataset_bytes", {123456}},
      {"cache", {"ram"}},
      {"cache_item_bytes", {2048}},
      {"load", {"mmap"}},
      {"save", {"cpu"}},
      {"ranks_per_host", {8}},
  };
  return kSamples;
}

Job job_with(const std::string& key, const Json& value) {
  Job job;
  apply_setting(job, key, value, "test");
  return job;
}

TEST(Settings, EachIsPrintedAsItIsRead) {
  for (const Setting& s : job_settings()) {
    if (!s.print) continue;  // global_batch: batch by another name
    ASSERT_TRUE(samples().contains(s.key)) << "a value for the new setting " << s.key << " belongs into samples()";
    const Json printed = value_of(job_with(s.key, samples().at(s.key).value), s.key);
    EXPECT_NE(printed, Json(default_of(s))) << s.key;
    EXPECT_EQ(printed, samples().at(s.key).value) << s.key;
    EXPECT_EQ(value_of(job_with(s.key, printed), s.key), printed) << s.key;
  }
}

TEST(Settings, TheDefaultOfEachCanBeReadAndIsTheDefault) {
  for (const Setting& s : job_settings()) {
    if (!s.print) continue;
    Job job = job_with(s.key, default_of(s));
    EXPECT_EQ(values_of(job), values_of(Job())) << s.key;
    apply_setting(job, s.key, samples().at(s.key).value, "test");
    apply_setting(job, s.key, default_of(s), "test");
    const std::string key = s.key;  // keys of a configuration add up, and what is said about an average turns it on
    if (key != "model" && key != "config" && !key.starts_with("ema_")) {
      EXPECT_EQ(value_of(job, key), Json(default_of(s))) << key;
    }
  }
}

TEST(Settings, EveryKeyOfAMappingHasASampleThatIsNotItsDefault) {
  for (const auto& [key, sample] : samples()) {
    if (sample.least.is_null()) continue;
    const Json all = value_of(job_with(key, sample.value), key), least = value_of(job_with(key, sample.least), key);
    for (const auto& [name, value] : all.items())
      if (name != "stage" || key != "zero") {
        EXPECT_NE(value, least.value(name, Json("left out"))) << key << ": " << name;
      }
    for (const auto& item : least.items()) EXPECT_TRUE(all.contains(item.key())) << key << ": a sample for " << item.key();
  }
}

TEST(Settings, OtherFormsOfAMapping) {
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, Json>>{{"zero", {{"world", 4}, {"stage", 2}}},
                                                 {"quantization", "int8"},
                                                 {"quantization", {{"type", "int8"}, {"threshold", 3.0}, {"outliers", 6}}},
                                                 {"quantization", "gptq"},
                                                 {"lora", {{"implementation", "ai-toolkit"}}},
                                                 {"ia3", {{"feedforward_modules", Json::array()}}},
                                                 {"checkpointing", "every=2,reentrant=true"},
                                                 {"checkpointing", {{"save", "torchtitan"}}},
                                                 {"checkpointing", {{"save", "matmuls"}}},
                                                 {"fsdp", "world=8,reshard=false"},
                                                 {"ema_dtype", "weights"},
                                                 {"optimizer", {{"name", "SGD"}, {"args", {{"momentum", 0.9}}}}}}) {
    const Job job = job_with(key, value);
    Job again;
    for (const auto& [k, v] : values_of(job)) apply_setting(again, k, v, "test");
    EXPECT_EQ(values_of(again), values_of(job)) << key;
  }
}

// Of two adapters one is chosen, and the rest of the table is said at once.
TEST(Settings, AWholeJobIsReadBackToTheByte) {
  for (const char* kind : {"lora", "lokr", "ia3", "ln_tuning"}) {
    Job job;
    for (const auto& [key, sample] : samples()) {
      const bool other = key == "lora" || key == "lokr" || key == "ia3" || key == "ln_tuning";
      if (!other || key == kind) apply_setting(job, key, sample.value, "--" + key);
    }
    job.origin["config.n_layer"] = "--config";
    const nlohmann::ordered_json written = job_json(job);
    Job read;
    apply_settings(read, Json::parse(written.dump()), "job.json");
    read.family = job.family;
    EXPECT_EQ(job_json(read).dump(2), written.dump(2));
    EXPECT_TRUE(is_job_json(Json::parse(written.dump())));
  }
}

TEST(Settings, AJobThatSaysNothingIsReadBackAsOneThatSaysNothing) {
  Job read;
  apply_settings(read, Json(job_json(Job())), "job.json");
  EXPECT_TRUE(read.origin.empty());
  apply_settings(read, {{"batch", 4}, {"origin", Json::object()}}, "job.json");
  EXPECT_EQ(read.origin.at("batch"), "job.json") << "an edited value is the file's";
}

TEST(Settings, GroupsFollowEachOther) {
  std::vector<SettingGroup> seen;
  for (const Setting& s : job_settings())
    if (seen.empty() || seen.back() != s.group) seen.push_back(s.group);
  EXPECT_EQ(std::set<SettingGroup>(seen.begin(), seen.end()).size(), seen.size());
}

}  // namespace
}  // namespace plimsoll::settings_test
