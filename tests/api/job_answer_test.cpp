// The `job` of an answer is the whole run: written to a file and read by --job, it is answered as before, to the byte.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "api/schema.h"
#include "api/verbs.h"
#include "captured_program.h"
#include "job/settings.h"
#include "json_schema.h"

namespace plimsoll::job_answer_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Small runs that between them have every setting.
Json gpt2(const Json& settings) {
  Json out{{"model", "gpt2"}, {"batch", 1}, {"seq", 32}, {"config", {{"n_layer", 2}}}};
  out.update(settings);
  return out;
}

Json llama(const Json& settings) {
  Json out{{"model", "llama-3.2-1b"},
           {"batch", 1},
           {"seq", 64},
           {"config",
            {{"num_hidden_layers", 2},
             {"hidden_size", 64},
             {"intermediate_size", 128},
             {"num_attention_heads", 4},
             {"num_key_value_heads", 2},
             {"head_dim", 16},
             {"vocab_size", 500}}}};
  out.update(settings);
  return out;
}

Json jax(const Json& settings) {
  Json out{{"model", "fsdm-lag"}, {"framework", "jax"}, {"batch", 2}};
  out.update(settings);
  return out;
}

// A captured program with a symbol of its own.
std::string captured_file() {
  const std::string path = (fs::temp_directory_path() / ("plimsoll_job_answer_" + std::to_string(getpid()) + ".trace")).string();
  std::ofstream(path) << captured_text("{\"symbol\":\"side\",\"at\":224,\"min\":2,\"max\":4096}\n");
  return path;
}

// A run in which that setting is not its default.
const std::map<std::string, Json>& runs() {
  static const std::map<std::string, Json> kRuns{
      {"model", gpt2({{"model", "gpt2-medium"}})},
      {"config", gpt2({{"config", {{"n_layer", 3}}}})},
      {"batch", gpt2({{"batch", 3}})},
      {"seq", gpt2({{"seq", 48}})},
      {"lengths", gpt2({{"batch", 3}, {"lengths", {32, 20, 7}}})},
      {"collate", gpt2({{"batch", 3}, {"lengths", {32, 20, 7}}, {"collate", "pack"}})},
      {"padding", gpt2({{"padding", "mask"}})},
      {"pad_to_multiple_of", gpt2({{"batch", 2}, {"lengths", {30, 20}}, {"pad_to_multiple_of", 64}})},
      {"size", {{"model", captured_file()}, {"framework", "pytorch"}, {"size", {{"side", 384}}}}},
      {"inputs", {{"model", "resnet18"}}},
      {"precision", gpt2({{"precision", "bf16"}})},
      {"autocast", gpt2({{"precision", "bf16"}, {"autocast", true}})},
      {"lora", gpt2({{"lora", {{"r", 4}, {"target_modules", {"c_attn"}}, {"dropout", 0.1}, {"use_dora", true}}}})},
      {"lokr", llama({{"lokr", {{"r", 4}, {"target_modules", "all-linear"}}}})},
      {"ia3", gpt2({{"ia3", {{"target_modules", {"c_attn"}}, {"feedforward_modules", Json::array()}}}})},
      {"ln_tuning", gpt2({{"ln_tuning", Json::object()}})},
      {"quantization", gpt2({{"quantization", {{"type", "nf4"}, {"double_quant", true}}}, {"lora", {{"r", 4}}}})},
      {"frozen", gpt2({{"frozen", {"wte"}}})},
      {"trainable", gpt2({{"trainable", {"lm_head", "ln_f"}}})},
      {"attention", gpt2({{"attention", "eager"}})},
      {"checkpointing", gpt2({{"checkpointing", {{"modules", {"h.0"}}}}})},
      {"offload_activations", gpt2({{"offload_activations", "pinned"}})},
      {"loss", gpt2({{"loss", "logits-sum"}})},
      {"loss_kernel", llama({{"loss_kernel", "liger"}})},
      {"loss_chunks", llama({{"loss_kernel", "chunked"}, {"loss_chunks", 4}})},
      {"liger_kernels", llama({{"liger_kernels", {"rope", "swiglu"}}})},
      {"optimizer", gpt2({{"optimizer", "SGD"}})},
      {"optimizer_args", gpt2({{"optimizer_args", {{"fused", true}}}})},
      {"accumulation", gpt2({{"accumulation", 3}})},
      {"clip", gpt2({{"clip", 0.5}})},
      {"ema", gpt2({{"ema", true}})},
      {"ema_place", gpt2({{"ema_place", "host"}})},
      {"ema_dtype", gpt2({{"ema_dtype", "bf16"}})},
      {"ema_update", gpt2({{"ema_update", "lerp"}})},
      {"offload_optimizer", gpt2({{"offload_optimizer", {{"gradients", true}}}})},
      {"swap_blocks", gpt2({{"swap_blocks", 1}, {"lora", {{"r", 4}}}})},
      {"optimizer_in_backward", gpt2({{"optimizer_in_backward", true}})},
      {"master_weights", gpt2({{"precision", "bf16"}, {"master_weights", "fp32"}})},
      {"gradient_dtype", gpt2({{"precision", "bf16"}, {"master_weights", "fp32"}, {"gradient_dtype", "fp32"}})},
      {"loss_scaling", gpt2({{"precision", "amp-fp16"}, {"loss_scaling", false}})},
      {"drop_output", gpt2({{"drop_output", true}})},
      {"drop_after", gpt2({{"drop_after", true}})},
      {"zero_grad", gpt2({{"zero_grad", "before-backward"}})},
      {"longest", gpt2({{"longest", 64}})},
      {"eval_batch", gpt2({{"eval_batch", 4}})},
      {"sample_tokens", gpt2({{"sample_tokens", 3}})},
      {"sample_batch", gpt2({{"sample_tokens", 3}, {"sample_batch", 2}})},
      {"sample_prompt", gpt2({{"sample_tokens", 3}, {"sample_prompt", 8}})},
      {"steps", gpt2({{"steps", 3}})},
      {"ddp", gpt2({{"ddp", {{"world", 4}, {"bucket_mb", 1.0}, {"bucket_view", true}}}})},
      {"zero1", gpt2({{"zero1", {{"world", 2}, {"parameter_view", true}}}})},
      {"fsdp", gpt2({{"fsdp", {{"world", 2}, {"param_dtype", "bf16"}, {"reshard", false}}}})},
      {"fsdp1", gpt2({{"fsdp1", {{"world", 2}, {"strategy", "shard_grad_op"}, {"prefetch", "post"}}}})},
      {"zero", gpt2({{"precision", "bf16"}, {"zero", {{"world", 2}, {"stage", 3}, {"reduce_bucket", 100000}}}})},
      {"tensor_parallel", llama({{"tensor_parallel", {{"world", 2}, {"sequence", true}}}})},
      {"megatron", llama({{"precision", "bf16"}, {"megatron", {{"world", 2}, {"tensor", 2}, {"sequence", true}}}})},
      {"torchtitan", llama({{"torchtitan", {{"world", 4}, {"tensor", 2}}}})},
      {"framework", jax(Json::object())},
      {"donate", jax({{"donate", true}})},
      {"replicas", jax({{"replicas", 2}})},
      {"device_kind", jax({{"device_kind", "tpu"}})},
      {"mem_fraction", jax({{"mem_fraction", 0.5}})},
      {"preallocate", jax({{"preallocate", false}})},
      {"compile", gpt2({{"compile", true}})},
      {"alloc_conf", gpt2({{"alloc_conf", "expandable_segments:True"}})},
      {"torch", gpt2({{"torch", "2.4"}})},
      {"transformers", gpt2({{"transformers", "4.47"}})},
      {"workers", gpt2({{"workers", 2}})},
      {"prefetch_factor", gpt2({{"workers", 2}, {"prefetch_factor", 3}})},
      {"persistent_workers", gpt2({{"workers", 2}, {"persistent_workers", true}})},
      {"pin_memory", gpt2({{"pin_memory", true}})},
      {"start_method", gpt2({{"workers", 1}, {"start_method", "spawn"}})},
      {"item_bytes", gpt2({{"item_bytes", 4096}})},
      {"dataset_size", gpt2({{"dataset_size", 1000}})},
      {"dataset_bytes", gpt2({{"dataset_bytes", 123456}})},
      {"cache", gpt2({{"dataset_size", 100}, {"cache", "ram"}})},
      {"cache_item_bytes", gpt2({{"dataset_size", 100}, {"cache", "ram"}, {"cache_item_bytes", 2048}})},
      {"load", gpt2({{"load", "mmap"}})},
      {"save", gpt2({{"save", "cpu"}})},
      {"ranks_per_host", gpt2({{"ranks_per_host", 2}})}};
  return kRuns;
}

class JobOfAnAnswer : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const char* name, const Json& job) const {
    std::ofstream(folder_ / name) << job.dump(1);
    return (folder_ / name).string();
  }
  static Json answer_to(const char* verb, const Json& request) {
    Json out;
    ask(verb, request.dump(), out);
    return out;
  }
  // Bytes on the device and of tensors.
  Json bytes_of(const Json& job) const {
    const Json answer = answer_to("estimate", {{"job", file("again.json", job)}});
    return {answer["peak_bytes"], answer["memory"]["device"]};
  }

  const fs::path folder_ = fs::temp_directory_path() / ("plimsoll_job_answer_" + std::to_string(getpid()) + "_" +
                                                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(JobOfAnAnswer, IsAnsweredAsBeforeWhateverIsSet) {
  JsonSchema schema(Json::parse(answer_schema("estimate")));
  for (const Setting& s : job_settings()) {
    if (!s.print) continue;  // global_batch: batch by another name
    SCOPED_TRACE(s.key);
    ASSERT_TRUE(runs().contains(s.key)) << "a run with the new setting belongs into runs()";
    const Json& run = runs().at(s.key);
    Json request{{"job", file("run.json", run)}};
    if (!run.contains("framework")) request["host"] = true;
    const Json before = answer_to("estimate", request);
    EXPECT_NE(before["job"][s.key], default_of(s));
    EXPECT_EQ(schema.problems(before), std::vector<std::string>{});
    request["job"] = file("again.json", before["job"]);
    const Json again = answer_to("estimate", request);
    EXPECT_EQ(again.dump(1), before.dump(1));
  }
}

TEST_F(JobOfAnAnswer, OfComparedAndExplainedRunsIsTheirs) {
  const std::string a = file("a.json", gpt2({{"lora", {{"r", 4}}}})), b = file("b.json", gpt2({{"fsdp", {{"world", 2}}}, {"ema", true}}));
  for (const Json& job : answer_to("compare", {{"jobs", {a, b}}})["jobs"])
    EXPECT_EQ(bytes_of(job["job"]), Json({job["peak_bytes"], job["memory"]["device"]})) << job["name"];
  for (const std::string& path : {a, b}) {
    const Json explained = answer_to("explain", {{"run", path}});
    EXPECT_EQ(bytes_of(explained["job"]), Json({explained["peak_bytes"], explained["memory"]["device"]}));
  }
}

TEST_F(JobOfAnAnswer, OfAPlanIsTheRunAsItIsAndThePlanItself) {
  const std::string gpu = "1GiB";
  const Json plan = answer_to("plan", {{"run", file("run.json", gpt2({{"batch", 16}, {"seq", 128}}))}, {"gpu", gpu}});
  const auto device_peak = [&](const Json& job) {
    return answer_to("estimate", {{"job", file("again.json", job)}, {"gpu", gpu}})["fits"][0]["device_peak"];
  };
  EXPECT_EQ(device_peak(plan["job"]), plan["as_is"]["device_peak"]);
  ASSERT_FALSE(plan["plan"].is_null());
  EXPECT_EQ(device_peak(plan["plan"]["job"]), plan["plan"]["device_peak"]) << plan["plan"]["flags"];
  EXPECT_NE(plan["plan"]["device_peak"], plan["as_is"]["device_peak"]);
}

}  // namespace
}  // namespace plimsoll::job_answer_test
