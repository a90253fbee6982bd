// The work of a step against the formulas of textbooks, and its time against published runs (docs/time.md).
#include "plan/step_time.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hardware/lookup.h"
#include "simulate.h"
#include "support.h"

namespace plimsoll::step_time_test {
namespace {

using Json = nlohmann::json;

struct Flops {
  double forward = 0, recompute = 0, backward = 0, optimizer = 0;
};

Flops flops_of(const Job& job) {
  Flops f;
  for (const Kernel& k : simulate(job, false, true).work.kernels) {
    double& part = k.phase == Phase::forward    ? f.forward
                   : k.phase != Phase::backward ? f.optimizer
                   : k.recomputed               ? f.recompute
                                                : f.backward;
    part += k.flops;
  }
  return f;
}

StepTime time_of(const Job& job, const std::string& device, const Calibration& calibration = {}) {
  const StepTimeAnswer answer = step_time(job, find_device(device), calibration);
  if (!answer.time) throw Error(answer.unknown);
  return *answer.time;
}

// Llama 3.2 1B: 16 layers of 2048 wide, 32 heads of 64 and 8 of keys and values, 8192 in the middle, a tied head of 128256.
constexpr double kLayers = 16, kWidth = 2048, kKeys = 512, kMiddle = 8192, kVocabulary = 128256;
constexpr double kDown = kWidth * kMiddle, kLayer = 2 * kWidth * kWidth + 2 * kWidth * kKeys + 3 * kDown;
constexpr double kTokens = 2 * 256;
constexpr double kAttention = kLayers * 2 * 4 * 256 * 256 * kWidth / 2;  // causal
constexpr double kAngles = 2 * 32 * 256;                                 // of the rotary embedding
constexpr double kForward = 2 * kTokens * (kLayers * kLayer + kWidth * kVocabulary) + kAttention;

const Json kPacked{{"type", "nf4"}, {"prepare", false}};

Job llama(const Json& more = {}) {
  Json settings{{"batch", 2}, {"seq", 256}, {"precision", "bf16"}};
  if (more.is_object()) settings.update(more);
  return job_of("llama-3.2-1b", settings);
}

// ---- work -------------------------------------------------------------------------------------------------------------

TEST(Work, ForwardOfALanguageModelIsTwoOperationsAWeightAndTokenAndItsAttention) {
  EXPECT_DOUBLE_EQ(flops_of(llama()).forward, kForward + kAngles);
  EXPECT_DOUBLE_EQ(flops_of(llama({{"precision", "amp"}})).forward, kForward + kAngles);
  // Eager attention multiplies what is masked, too.
  EXPECT_DOUBLE_EQ(flops_of(llama({{"attention", "eager"}})).forward, kForward + kAttention + kAngles);
}

TEST(Work, BackwardIsTwiceForwardAndFiveProductsOfAttentionForTwo) {
  const Flops f = flops_of(llama());
  EXPECT_DOUBLE_EQ(f.backward, 2 * (kForward - kAttention) + 2.5 * kAttention);
  EXPECT_EQ(f.recompute, 0);
  EXPECT_DOUBLE_EQ(flops_of(llama({{"attention", "eager"}})).backward, 2 * (kForward + kAttention));
}

// Recomputation stops when the last saved tensor is back: the input of the block's last product.
TEST(Work, CheckpointingRunsBlocksOnceMoreButForTheirLastProduct) {
  const Flops f = flops_of(llama({{"checkpointing", true}}));
  EXPECT_DOUBLE_EQ(f.forward, kForward + kAngles);
  EXPECT_DOUBLE_EQ(f.recompute, 2 * kTokens * kLayers * (kLayer - kDown) + kAttention);
  EXPECT_DOUBLE_EQ(f.backward, flops_of(llama()).backward);
  EXPECT_DOUBLE_EQ(flops_of(llama({{"checkpointing", "every=2"}})).recompute, f.recompute / 2);
  EXPECT_DOUBLE_EQ(flops_of(llama({{"checkpointing", {{"reentrant", true}}}})).recompute, 2 * kTokens * kLayers * kLayer + kAttention);
}

TEST(Work, WhatASelectiveCheckpointKeepsIsNotComputedAgain) {
  EXPECT_EQ(flops_of(llama({{"checkpointing", {{"save", "matmuls"}}}})).recompute, 0);
}

TEST(Work, FrozenWeightsWantNoGradient) {
  const Flops lora = flops_of(llama({{"lora", "r=8"}})), full = flops_of(llama());
  EXPECT_GT(lora.forward, full.forward);
  EXPECT_LT(lora.forward, 1.02 * full.forward);
  EXPECT_NEAR(lora.backward / lora.forward, 1.0, 0.05);
  // A quantised base multiplies the same, and moves more.
  const Flops qlora = flops_of(llama({{"lora", "r=8"}, {"quantization", kPacked}}));
  EXPECT_NEAR(qlora.forward, lora.forward, 1e-3 * lora.forward);
  const StepTime plain = time_of(llama({{"lora", "r=8"}}), "rtx-4090"),
                 packed = time_of(llama({{"lora", "r=8"}, {"quantization", kPacked}}), "rtx-4090");
  EXPECT_GT(packed.bytes, plain.bytes);
  EXPECT_GT(packed.seconds, plain.seconds);
}

// The packed product is a Python function, which records no gradients inside.
TEST(Work, RecomputationIsToldFromBackwardInsideFunctionsToo) {
  for (const bool reentrant : {false, true}) {
    const Json checkpointing{{"reentrant", reentrant}};
    const Flops lora = flops_of(llama({{"lora", "r=8"}, {"checkpointing", checkpointing}}));
    const Flops qlora = flops_of(llama({{"lora", "r=8"}, {"quantization", kPacked}, {"checkpointing", checkpointing}}));
    EXPECT_NEAR(qlora.recompute, lora.recompute, 0.25 * lora.recompute);  // it ends at another op
    EXPECT_NEAR(qlora.backward, lora.backward, 1e-3 * lora.backward);
  }
}

TEST(Work, FusedLossesMultiplyInForwardWhatOthersDoInBackward) {
  const double head = 2 * kTokens * kWidth * kVocabulary;
  const Flops plain = flops_of(llama()), liger = flops_of(llama({{"loss_kernel", "liger"}}));
  EXPECT_DOUBLE_EQ(liger.forward, plain.forward + 2 * head);
  EXPECT_DOUBLE_EQ(liger.backward, plain.backward - 2 * head);
  const Flops chunked = flops_of(llama({{"loss_kernel", "chunked-output"}}));
  EXPECT_DOUBLE_EQ(chunked.forward + chunked.backward, plain.forward + plain.backward);
}

// torchvision publishes 4.09 billion multiplications an image.
TEST(Work, ConvolutionsOfAResNet50) {
  const Flops f = flops_of(job_of("resnet50", {{"batch", 4}, {"seq", 224}, {"precision", "fp32"}}));
  EXPECT_NEAR(f.forward / 4, 2 * 4.09e9, 0.01 * 2 * 4.09e9);
  const double first = 2.0 * 64 * 112 * 112 * 3 * 7 * 7;  // the images want no gradient
  EXPECT_DOUBLE_EQ(f.backward, 2 * f.forward - 4 * first);
}

TEST(Work, ChangesNothingInTheTrace) {
  for (const Json& more : {Json{{"accumulation", 3}, {"clip", 1.0}}, Json{{"checkpointing", true}, {"offload_activations", true}}}) {
    const Job job = llama(more);
    const Simulation plain = simulate(job), counted = simulate(job, false, true);
    EXPECT_TRUE(plain.work.kernels.empty());
    ASSERT_EQ(plain.trace.events.size(), counted.trace.events.size());
    for (size_t i = 0; i < plain.trace.events.size(); ++i) {
      ASSERT_EQ(plain.trace.events[i].kind, counted.trace.events[i].kind);
      ASSERT_EQ(plain.trace.events[i].storage, counted.trace.events[i].storage);
    }
  }
}

// ---- time -------------------------------------------------------------------------------------------------------------

TEST(StepTime, PartsAddUp) {
  const StepTime t = time_of(llama({{"checkpointing", true}, {"clip", 1.0}, {"ddp", "world=8"}}), "rtx-4090");
  EXPECT_DOUBLE_EQ(t.seconds, t.forward + t.recompute + t.backward + t.optimizer + t.transfers + t.communication + t.launch);
  for (const double part : {t.forward, t.recompute, t.backward, t.optimizer, t.communication}) EXPECT_GT(part, 0);
  EXPECT_GT(t.utilisation, 0);
  EXPECT_LT(t.utilisation, 1);
  EXPECT_NEAR(t.tokens_per_second, 8 * kTokens / t.seconds, 1e-6 * t.tokens_per_second);
}

TEST(StepTime, GrowsWithTheBatchAndLessThanItAtFirst) {
  double last = 0;
  for (const int batch : {1, 2, 4, 8, 16, 32}) {
    const double now = time_of(llama({{"batch", batch}}), "a100-sxm4-80gb").seconds;
    EXPECT_GE(now, last);
    EXPECT_LE(now, 2 * last + (last == 0 ? 1e9 : 0));
    last = now;
  }
}

TEST(StepTime, AccumulationCountsEveryMicroStep) {
  const StepTime four = time_of(llama({{"accumulation", 4}}), "a100-sxm4-80gb"),
                 forty = time_of(llama({{"accumulation", 40}}), "a100-sxm4-80gb");
  EXPECT_NEAR(forty.forward, 10 * four.forward, 1e-6 * forty.forward);
  EXPECT_NEAR(forty.backward, 10 * four.backward, 0.05 * forty.backward);  // the first micro-step adds to no gradient
  EXPECT_NEAR(forty.optimizer, four.optimizer, 1e-6 * four.optimizer);
  EXPECT_DOUBLE_EQ(forty.model_flops, 10 * four.model_flops);
}

TEST(StepTime, ASmallModelWaitsForItsHost) {
  const Json tiny{{"batch", 1}, {"seq", 64}, {"precision", "bf16"}};
  const StepTime one = time_of(job_of("gpt2", tiny), "h100-sxm");
  EXPECT_GT(one.launch, 0.5 * one.seconds);
  const StepTime slower = time_of(job_of("gpt2", tiny), "gtx-1080-ti");
  EXPECT_LT(slower.launch, one.launch);
  Json compiled = tiny;
  compiled["compile"] = true;
  EXPECT_LT(time_of(job_of("gpt2", compiled), "h100-sxm").seconds, one.seconds);
}

TEST(StepTime, FormsOfTheOptimizerDiffer) {
  const auto optimizer = [](const Json& args) { return time_of(llama({{"optimizer_args", args}}), "a100-sxm4-80gb").optimizer; };
  const double fused = optimizer({{"fused", true}}), foreach = optimizer(Json::object()), loop = optimizer({{"foreach", false}});
  EXPECT_LT(fused, foreach);
  EXPECT_LT(foreach, loop);
  // 1.24 billion weights, gradients and two states in bf16, seven times read or written, at 1.63 of 2.04 TB/s.
  EXPECT_NEAR(fused, 7 * 2 * 1.2358e9 / (0.8 * 2039e9), 0.02 * fused);
}

TEST(StepTime, WhatLiesOnTheHostMustTravel) {
  const StepTime plain = time_of(llama(), "rtx-4090"), pinned = time_of(llama({{"offload_activations", "pinned"}}), "rtx-4090"),
                 pageable = time_of(llama({{"offload_activations", "pageable"}}), "rtx-4090"),
                 optimizer = time_of(llama({{"offload_optimizer", true}}), "rtx-4090");
  EXPECT_EQ(plain.transfers, 0);
  EXPECT_GT(pinned.transfers, 0);
  EXPECT_DOUBLE_EQ(pageable.transfers, 2 * pinned.transfers);
  EXPECT_GT(optimizer.transfers, 2 * 1.2358e9 / 31.5e9);  // the weights come back over PCIe 4.0 x16 at the least
  EXPECT_GT(optimizer.seconds, plain.seconds);
}

TEST(StepTime, DevicesThatShareTheWorkTalk) {
  const auto alone = [](const char* ddp) { return ddp ? Json{{"batch", 16}, {"ddp", ddp}} : Json{{"batch", 16}}; };
  const StepTime one = time_of(llama(alone(nullptr)), "rtx-4090"), pcie = time_of(llama(alone("world=2")), "rtx-4090"),
                 more = time_of(llama(alone("world=8")), "rtx-4090");
  EXPECT_EQ(one.communication, 0);
  EXPECT_GT(pcie.communication, 0);
  EXPECT_GT(more.communication, pcie.communication);
  EXPECT_GT(pcie.samples_per_second, one.samples_per_second);
  EXPECT_LT(pcie.samples_per_second, 2 * one.samples_per_second);
  // NVLink hides it behind backward but for the last bucket.
  const Json long_steps{{"ddp", "world=8"}, {"batch", 16}};
  const StepTime nvlink = time_of(llama(long_steps), "h100-sxm");
  EXPECT_LT(nvlink.communication, 0.01 * nvlink.seconds);
  EXPECT_GT(time_of(llama({{"zero1", "world=8"}}), "h100-sxm").communication,
            time_of(llama({{"ddp", "world=8"}}), "h100-sxm").communication);
}

TEST(StepTime, ArithmeticRunsAtTheRateOfItsType) {
  const Json large{{"batch", 16}, {"precision", "fp32"}};
  const double fp32 = time_of(llama(large), "a100-sxm4-80gb").forward;
  const double bf16 = time_of(llama({{"batch", 16}}), "a100-sxm4-80gb").forward;
  EXPECT_GT(fp32, 6 * bf16);  // 19.5 against 312 TFLOPS: PyTorch does not multiply in TF32 unless told
  // bf16 before Ampere is no faster than fp32.
  const StepTime volta = time_of(llama({{"batch", 16}}), "v100-sxm2-32gb");
  ASSERT_EQ(volta.assumptions.size(), 1u);
  EXPECT_EQ(volta.assumptions[0], "bf16 is emulated: the fp32 rate");
  EXPECT_GT(volta.seconds, 3 * time_of(llama({{"batch", 16}, {"precision", "fp16"}}), "v100-sxm2-32gb").seconds);
}

TEST(StepTime, IsUnknownWithoutFigures) {
  DeviceSpec device = find_device("a100-sxm4-80gb");
  const Job job = llama();
  device.fp32_tflops.reset();
  EXPECT_TRUE(step_time(job, device).time);  // nothing is multiplied in fp32
  device.bf16_tflops.reset();
  StepTimeAnswer answer = step_time(job, device);
  EXPECT_FALSE(answer.time);
  EXPECT_EQ(answer.unknown, "no rate of bfloat16 arithmetic is established for the A100 SXM4 80GB");
  device = find_device("a100-sxm4-80gb");
  device.bandwidth_gbs.reset();
  answer = step_time(job, device);
  EXPECT_FALSE(answer.time);
  EXPECT_EQ(answer.unknown, "the memory bandwidth of the A100 SXM4 80GB is not established");
  EXPECT_FALSE(step_time(job, simulate(job), find_device("a100-sxm4-80gb")).time);  // nothing was counted
}

// XLA compiles the whole step: never slower than the same model launched kernel by kernel, and its products are the same.
TEST(StepTime, OfJaxIsThatOfACompiledProgram) {
  Job jax = llama();
  const StepTime eager = *step_time(jax, find_device("a100-sxm4-80gb")).time;
  jax.program.framework = Framework::jax;
  const StepTimeAnswer compiled = step_time(jax, find_device("a100-sxm4-80gb"));
  ASSERT_TRUE(compiled.time) << compiled.unknown;
  EXPECT_LT(compiled.time->seconds, eager.seconds);
  EXPECT_GT(compiled.time->seconds, 0.3 * eager.seconds);
  jax.precision = Precision::fp32;  // a TPU multiplies fp32 in bf16 unless it is told otherwise
  EXPECT_TRUE(step_time(jax, find_device("tpu-v5e")).time) << step_time(jax, find_device("tpu-v5e")).unknown;
}

TEST(StepTime, EveryDeviceOfTheCatalogueHasATimeOrAReason) {
  const Job job = job_of("gpt2", {{"batch", 2}, {"seq", 64}});
  const Simulation s = simulate(job, false, true);
  int known = 0;
  for (const DeviceSpec& d : catalogue()) {
    const StepTimeAnswer answer = step_time(job, s, d);
    EXPECT_NE(answer.time.has_value(), !answer.unknown.empty()) << d.id;
    if (!answer.time) continue;
    ++known;
    EXPECT_GT(answer.time->seconds, 0) << d.id;
    EXPECT_LT(answer.time->seconds, 10) << d.id;
  }
  EXPECT_GT(known, 100);
}

TEST(StepTime, AMeasuredStepScalesEveryOther) {
  const DeviceSpec device = find_device("rtx-4090");
  const Job job = llama();
  const double predicted = time_of(job, "rtx-4090").seconds;
  const Calibration c = calibrate(job, device, 1.25 * predicted);
  EXPECT_NEAR(c.factor, 1.25, 1e-9);
  EXPECT_NE(c.source.find("measured"), std::string::npos);
  const Job other = llama({{"checkpointing", true}});
  EXPECT_NEAR(time_of(other, "rtx-4090", c).seconds, 1.25 * time_of(other, "rtx-4090").seconds, 1e-9);
  EXPECT_NE(error_of([&] { calibrate(job, device, 0); }), "");
  EXPECT_NE(error_of([&] { calibrate(job, device, std::nan("")); }), "");
}

// ---- blocks -----------------------------------------------------------------------------------------------------------

int64_t alive_after_forward(const Job& job) {
  const Simulation s = simulate(job);
  int64_t alive = 0, at_end = 0;
  for (const Event& e : s.trace.events) {
    if (e.kind == Event::Kind::phase && static_cast<Phase>(e.value) == Phase::backward) at_end = alive;
    if (e.kind == Event::Kind::alloc) alive += s.trace.storages[e.storage].bytes;
    if (e.kind == Event::Kind::free) alive -= s.trace.storages[e.storage].bytes;
  }
  return at_end;
}

TEST(BlockCosts, AreWhatACheckpointSavesAndTakes) {
  const std::vector<BlockCost> blocks = block_costs(llama(), find_device("a100-sxm4-80gb"));
  ASSERT_EQ(blocks.size(), 16u);
  EXPECT_EQ(blocks[3].module, "model.layers.3");
  EXPECT_DOUBLE_EQ(blocks[3].flops, 2 * kTokens * kLayer + kAttention / kLayers);
  EXPECT_GT(blocks[3].seconds, blocks[3].flops / 312e12);
  EXPECT_EQ(blocks[3].result.count, 2 * kTokens * kWidth);
  const int64_t saved = alive_after_forward(llama()) - alive_after_forward(llama({{"checkpointing", {{"modules", {"model.layers.3"}}}}}));
  EXPECT_NEAR(static_cast<double>(blocks[3].kept.count), static_cast<double>(saved), 0.01 * static_cast<double>(saved));
  // Asked of a job that checkpoints, it is the same question.
  EXPECT_EQ(block_costs(llama({{"checkpointing", true}}), find_device("a100-sxm4-80gb"))[3].kept.count, blocks[3].kept.count);
}

TEST(BlockCosts, OfOneMicroStepAndOfConvolutionalNetworks) {
  EXPECT_EQ(block_costs(llama({{"accumulation", 8}}), find_device("a100-sxm4-80gb")).size(), 16u);
  const std::vector<BlockCost> blocks = block_costs(job_of("resnet50", {{"batch", 2}}), find_device("a100-sxm4-80gb"));
  ASSERT_EQ(blocks.size(), 16u);
  EXPECT_EQ(blocks[0].module, "layer1.0");
  EXPECT_GT(blocks[0].kept.count, blocks[15].kept.count);
  DeviceSpec unknown = find_device("a100-sxm4-80gb");
  unknown.bandwidth_gbs.reset();
  EXPECT_EQ(block_costs(job_of("resnet50", {{"batch", 2}}), unknown)[0].seconds, 0);
}

// ---- published runs ---------------------------------------------------------------------------------------------------

struct Anchor {
  const char* what;
  Job job;
  std::string device;
  double published;  // seconds of a step
};

Json joined(Json a, const Json& b) {
  a.update(b);
  return a;
}

std::vector<Anchor> anchors() {
  std::vector<Anchor> all;
  const char* a100 = "a100-sxm4-80gb";
  // transformers, model_doc/bert: A100 80 GB, PyTorch 2.2, fp16, forward and backward of the sum of the logits.
  const auto bert = [&](const char* what, int batch, int seq, const char* attention, double seconds) {
    const Json settings{{"batch", batch},       {"seq", seq},          {"precision", "fp16"},
                        {"loss", "logits-sum"}, {"optimizer", "none"}, {"attention", attention}};
    all.push_back({what, job_of("bert-base", settings), a100, seconds});
  };
  bert("BERT-base eager 4 x 256", 4, 256, "eager", 0.023);
  bert("BERT-base eager 8 x 512", 8, 512, "eager", 0.035);
  bert("BERT-base eager 16 x 256", 16, 256, "eager", 0.030);
  bert("BERT-base eager 16 x 512", 16, 512, "eager", 0.064);
  bert("BERT-base sdpa 4 x 256", 4, 256, "auto", 0.017);
  bert("BERT-base sdpa 8 x 512", 8, 512, "auto", 0.025);
  bert("BERT-base sdpa 16 x 256", 16, 256, "auto", 0.024);
  bert("BERT-base sdpa 16 x 512", 16, 512, "auto", 0.044);
  // karpathy/nanoGPT, README, efficiency notes (December 2022, attention written out), at the batch of bench.py.
  const Json nano{
      {"batch", 12}, {"seq", 1024}, {"attention", "eager"}, {"config", {{"resid_pdrop", 0}, {"embd_pdrop", 0}, {"attn_pdrop", 0}}}};
  all.push_back({"nanoGPT 124M", job_of("gpt2", nano), "a100-sxm4-40gb", 0.250});
  all.push_back({"nanoGPT 124M compiled", job_of("gpt2", joined(nano, {{"compile", true}})), "a100-sxm4-40gb", 0.135});
  // NVIDIA/DeepLearningExamples, resnet50v1.5: one GPU of a DGX A100 80 GB and of a DGX-1 32 GB.
  const auto resnet = [&](const char* what, const char* precision, int batch, const char* device, double images) {
    const Json settings{
        {"batch", batch}, {"seq", 224}, {"precision", precision}, {"optimizer", "SGD"}, {"optimizer_args", {{"momentum", 0.875}}}};
    all.push_back({what, job_of("resnet50", settings), device, batch / images});
  };
  resnet("ResNet-50 amp", "amp-fp16", 256, a100, 2470);
  resnet("ResNet-50 TF32 convolutions", "fp32", 256, a100, 938);
  resnet("ResNet-50 amp", "amp-fp16", 256, "v100-sxm2-32gb", 1156);
  resnet("ResNet-50 fp32", "fp32", 128, "v100-sxm2-32gb", 356);
  // pytorch/torchtune, README, optimization flags: Llama 3.2 3B, packed 2 x 4096, bf16, each row on top of the one before.
  Json tune{{"batch", 2}, {"seq", 4096}, {"precision", "bf16"}, {"optimizer_args", {{"fused", true}}}};
  const auto torchtune = [&](const char* what, double tokens) { all.push_back({what, job_of("llama-3.2-3b", tune), a100, 8192 / tokens}); };
  torchtune("Llama 3.2 3B full", 7075);
  tune["compile"] = true;
  torchtune("  compiled", 8998);
  tune["loss_kernel"] = "chunked-output";
  torchtune("  and chunked cross-entropy", 9174);
  tune["checkpointing"] = true;
  torchtune("  and checkpointing", 7210);
  Json lora = tune;
  tune["optimizer_in_backward"] = true;
  torchtune("  and the optimizer in backward", 7309);
  tune = lora;
  const Json targets = Json::array({"q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  tune["lora"] = {{"r", 64}, {"target_modules", targets}, {"autocast_adapter_dtype", false}};
  torchtune("Llama 3.2 3B LoRA", 8210);
  tune["quantization"] = kPacked;
  tune["autocast"] = true;  // torchtune's adapters are bf16
  torchtune("Llama 3.2 3B QLoRA", 8035);
  // The same README: Llama 3.1 8B LoRA, packed 2 x 2048, compiled.
  const Json eight{{"batch", 2},          {"seq", 2048},
                   {"precision", "bf16"}, {"checkpointing", true},
                   {"compile", true},     {"lora", {{"r", 8}, {"target_modules", targets}, {"autocast_adapter_dtype", false}}}};
  all.push_back({"Llama 3.1 8B LoRA", job_of("llama-3.1-8b", eight), "rtx-4090", 4096 / 3083.0});
  // pytorch/torchtitan, benchmarks/llama3_h100_202412: FSDP of 8 at 500 W, 2 x 8192, selective checkpointing. One device here.
  const Json titan{
      {"batch", 2}, {"seq", 8192}, {"precision", "bf16"}, {"checkpointing", {{"save", "matmuls"}}}, {"optimizer_args", {{"fused", true}}}};
  all.push_back({"Llama 3.1 8B", job_of("llama-3.1-8b", titan), "h100-sxm", 16384 / 5762.0});
  all.push_back({"Llama 3.1 8B compiled", job_of("llama-3.1-8b", joined(titan, {{"compile", true}})), "h100-sxm", 16384 / 6667.0});
  // pytorch/ao, torchao/optim: ViT-H/14, bf16 autocast, compiled, fused AdamW.
  const Json vit{
      {"batch", 8},
      {"compile", true},
      {"optimizer_args", {{"fused", true}}},
      {"config",
       {{"hidden_size", 1280}, {"num_hidden_layers", 32}, {"num_attention_heads", 16}, {"intermediate_size", 5120}, {"patch_size", 14}}}};
  all.push_back({"ViT-H/14", job_of("vit", vit), "rtx-4070-ti-super", 8 / 41.9});
  return all;
}

// Prints the table of docs/time.md.
TEST(StepTime, IsWithinAStatedFactorOfPublishedRuns) {
  constexpr double kEach = 1.6, kMean = 1.25;
  double logs = 0;
  int n = 0;
  for (const Anchor& a : anchors()) {
    const StepTime t = time_of(a.job, a.device);
    const double ratio = t.seconds / a.published;
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.2f} |\n", a.what, find_device(a.device).name, 1e3 * a.published, 1e3 * t.seconds, ratio);
    EXPECT_GT(ratio, 1 / kEach) << a.what;
    EXPECT_LT(ratio, kEach) << a.what;
    logs += std::abs(std::log(ratio));
    ++n;
  }
  fmt::print("mean factor {:.2f} over {} runs\n", std::exp(logs / n), n);
  EXPECT_LT(std::exp(logs / n), kMean);
}

}  // namespace
}  // namespace plimsoll::step_time_test
