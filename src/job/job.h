// What is asked: a model, a training recipe, and (as they come) hardware and host. Plain data; each setting remembers where
// its value came from. job_file.h reads it, the command line overrides it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "job/attention_kernel.h"
#include "job/checkpointing.h"
#include "job/collation.h"
#include "job/config.h"
#include "job/ema.h"
#include "job/finding.h"
#include "job/host_settings.h"
#include "job/input_kind.h"
#include "job/loss_kernel.h"
#include "job/parallel.h"
#include "job/platform.h"
#include "job/program_settings.h"
#include "job/tuning.h"

namespace plimsoll {

enum class Precision : uint8_t {
  fp32,
  amp,       // fp32 weights, bf16 autocast
  amp_fp16,  // fp32 weights, fp16 autocast with loss scaling
  bf16,      // weights, gradients and optimizer states in bf16
  fp16,      // the same in fp16
};

enum class Loss : uint8_t {
  model,       // what the model computes from its labels
  logits_sum,  // the sum of its logits: benchmarks of forward and backward
};

// When the loop drops the gradients of the last step.
enum class ZeroGrad : uint8_t { after_step, before_forward, before_backward };

// The type that gradients are summed in.
enum class GradientType : uint8_t { weights, fp32, bf16, fp16 };

// Text that is generated between training steps, by a batch of prompts.
struct Sampling {
  int64_t batch = 1;
  int64_t prompt = 32;  // tokens
  int64_t tokens = 0;   // new ones; 0: nothing is generated
};

struct OptimizerSpec {
  std::string name = "AdamW";  // as in torch.optim; "none": forward and backward alone
  Config args;                 // keyword arguments of its constructor
};

class CapturedTrace;

struct Job {
  std::string model;   // what the user called it, for titles
  std::string family;  // key into the model registry
  Config config;       // the family's own configuration
  // A program that was captured (trace/captured_trace.h), whose file is `model`; null: a model is simulated.
  std::shared_ptr<const CapturedTrace> captured;
  std::map<std::string, int64_t> sizes;  // of its symbols that are neither batch nor seq

  int64_t batch = 1;  // per device
  int64_t seq = 0;    // tokens, the image side, or the length of the vector
  Collation collation;
  InputKind inputs = InputKind::lm;
  Precision precision = Precision::amp;
  bool autocast = false;  // bf16 autocast over bf16 weights, too
  TuningSettings tuning;  // adapters, quantised base, frozen modules
  AttentionKernel attention = AttentionKernel::automatic;
  Checkpointing checkpointing;
  Offload offload_activations = Offload::none;  // save_on_cpu: what is kept for backward lies in the host's memory
  bool compile = false;                         // torch.compile: an interval (estimate/compiled.h); nothing is simulated otherwise
  Loss loss = Loss::model;
  LossSettings loss_settings;
  OptimizerSpec optimizer;
  int64_t accumulation = 1;
  std::optional<double> clip;
  std::optional<OptimizerOffload> offload_optimizer;
  int64_t swap_blocks = 0;                              // blocks whose frozen weights are on the host and take turns on the device
  bool optimizer_in_backward = false;                   // each parameter is updated, and its gradient dropped, as soon as that is there
  bool master_weights = false;                          // fp32 copies of half-precision weights, which the optimizer updates (Megatron)
  GradientType gradient_dtype = GradientType::weights;  // with them; fp32: a buffer that takes every gradient in backward
  bool ema = false;
  EmaSettings averaging;     // when ema is true
  bool loss_scaling = true;  // GradScaler, with amp_fp16
  // The usual loop keeps `out` (with the logits) and `loss` until the next forward has returned.
  bool drop_output = false;     // out = None before backward
  bool drop_after = false;      // out = loss = None after backward
  bool warm_optimizer = false;  // optimizer states exist before the first step
  ZeroGrad zero_grad = ZeroGrad::after_step;
  int64_t steps = 2;
  int64_t longest = 0;     // tokens of the longest sample, in a step of its own at the end; 0: all are alike
  int64_t eval_batch = 0;  // an evaluation follows the steps, in this batch; 0: none
  Sampling sampling;       // and then text is generated

  ProgramSettings program;    // who trains it
  ParallelSettings parallel;  // over which processes, where it is PyTorch

  Platform platform;

  std::string alloc_conf;  // PYTORCH_CUDA_ALLOC_CONF

  HostSettings host;

  // Only for rows recorded on tensors without data: what `.item()` gave, and the recorder's dispatch rules.
  std::optional<double> recorded_item;

  std::map<std::string, std::string> origin;  // setting -> "--batch", "job.yaml: batch", "default"; "config.KEY" for the model's keys
  std::string trainer;                        // whose configuration this was: "axolotl"; empty: our own
  std::vector<Finding> findings;              // where what it declares is not what happens
};

// "the VAE and the text encoders": the parts of the run that its findings call missing; empty when the answer is about all of it.
std::string missing_parts(const Job& job);

// Names as they are written in job files and flags. Parsing throws an Error that lists what is known.
const char* to_string(Precision p);
const char* to_string(AttentionKernel a);
const char* to_string(Loss l);
const char* to_string(ZeroGrad z);
const char* to_string(GradientType g);
Precision parse_precision(const std::string& text);
AttentionKernel parse_attention(const std::string& text);
Loss parse_loss(const std::string& text);
ZeroGrad parse_zero_grad(const std::string& text);
GradientType parse_gradient_type(const std::string& text);

}  // namespace plimsoll
