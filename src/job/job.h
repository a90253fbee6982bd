// What is asked: a model, a training recipe, and (as they come) hardware and host. Plain data; each setting remembers where
// its value came from. job_file.h reads it, the command line overrides it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "job/attention_kernel.h"
#include "job/config.h"
#include "job/host_settings.h"

namespace plimsoll {

enum class Precision : uint8_t {
  fp32,
  amp,       // fp32 weights, bf16 autocast
  amp_fp16,  // fp32 weights, fp16 autocast with loss scaling
  bf16,      // weights, gradients and optimizer states in bf16
};

enum class InputKind : uint8_t {
  lm,     // token ids that are their own labels; also encoder-decoder models
  cls,    // token ids and one label a sample
  image,  // pixels and one label a sample
};

struct OptimizerSpec {
  std::string name = "AdamW";  // as in torch.optim
  Config args;                 // keyword arguments of its constructor
};

struct Job {
  std::string model;   // what the user called it, for titles
  std::string family;  // key into the model registry
  Config config;       // the family's own configuration

  int64_t batch = 1;  // per device
  int64_t seq = 0;    // tokens, or the image side
  InputKind inputs = InputKind::lm;
  Precision precision = Precision::amp;
  AttentionKernel attention = AttentionKernel::automatic;
  bool checkpointing = false;
  OptimizerSpec optimizer;
  int64_t accumulation = 1;
  std::optional<double> clip;
  bool ema = false;
  bool loss_scaling = true;  // GradScaler, with amp_fp16
  // The usual loop keeps `out` (with the logits) and `loss` until the next forward has returned.
  bool drop_output = false;     // out = None before backward
  bool drop_after = false;      // out = loss = None after backward
  bool warm_optimizer = false;  // optimizer states exist before the first step
  int64_t steps = 2;

  HostSettings host;

  // Only for rows recorded on tensors without data: what `.item()` gave, and the recorder's dispatch rules.
  std::optional<double> recorded_item;

  std::map<std::string, std::string> origin;  // setting -> "--batch", "job.yaml: batch", "default"
};

// Names as they are written in job files and flags. Parsing throws an Error that lists what is known.
const char* to_string(Precision p);
const char* to_string(AttentionKernel a);
const char* to_string(InputKind k);
Precision parse_precision(const std::string& text);
AttentionKernel parse_attention(const std::string& text);
InputKind parse_inputs(const std::string& text);

}  // namespace plimsoll
