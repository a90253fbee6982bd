// What the AI Toolkit's docs/memory-estimation.md says, as it says it: its tables, constants and worked examples, which are not those of
// the code beside it. The differences are data, so that they can be shown for any question.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "systems/ai_toolkit/rules.h"

namespace plimsoll::ai_toolkit {

// Everything that one may ask the rules.
struct Question {
  Version version = Version::v3;
  SystemProfile profile;
  UserIntent intent;
  double images = 50;
  double resolution = 1024;
  std::string arch = "flux";
  TargetType target = TargetType::lora;
  Quantization quantization = Quantization::none;
  bool ema = false, diff_output_preservation = false;
  std::optional<bool> gradient_checkpointing;  // none: as the set-up decides
  std::optional<double> num_workers;           // none: as the set-up decides
  std::optional<double> batch_size;            // none: the batch that is proposed
  double save_every = 500;
};

// Throws an Error for what is no size of a machine or of a run.
void check(const Question& q);

// The code's answer, of the version that is asked for.
struct CodeAnswer {
  SmartDefaults defaults;        // generateSmartDefaults
  double num_workers = 0;        // of the question or of the defaults
  BatchConfig batch;             // for those workers
  std::optional<Budget> budget;  // for unified memory from v3 on
  double batch_size = 0;         // what the estimate is for
  bool gradient_checkpointing = false;
  VramQuestion vram;
  double estimate = 0;  // estimateVRAMUsage with all its arguments
  double shown = 0;     // with the five that the UI passes
  RegularizationMemoryCost regularization;
  Prediction prediction;
  std::vector<AdvisorMessage> warnings;
};
CodeAnswer code_answer(const Question& q);

// The document's answer. Its calculation is for unified memory; for a card it has the batch alone.
struct DocumentAnswer {
  std::optional<Budget> budget;  // optimizer: 2 x weights, as in its worked examples
  int64_t batch_size = 1;        // with its caps, which its second example forgets
  int64_t max_batch_size = 1;
  std::optional<double> total;  // "Total Memory" for a batch of total_for
  double total_for = 1;         // as asked, or batch_size
  double checkpointing_saves = 0;
  int64_t num_workers = 0;  // its table, for unified memory; else those of the question
};
DocumentAnswer document_answer(const Question& q);

// Of its tables.
double document_weights_gb(const std::string& arch, Quantization q);  // 8 bit a half, 4 bit a quarter
std::pair<int64_t, int64_t> document_caps(double resolution);         // initial, largest
int64_t document_workers(double pool_gb);
double document_workers_saved_gb(double pool_gb);  // against 8

struct Difference {
  std::string about, code, document, consequence;
};
// Those that bear on the question first, then those that hold always.
std::vector<Difference> differences(const Question& q);

}  // namespace plimsoll::ai_toolkit
