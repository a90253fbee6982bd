// How a format says the settings of a job: the reverse of its reader, as one table beside it. formats/writer.h puts it into the text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "formats/command_edit.h"
#include "job/job.h"

namespace plimsoll {

struct SettingsEncoder;

// What a document shall say.
struct EncodeRequest {
  const Job& before;           // as the document has it
  const Job& job;              // as it shall be
  const nlohmann::json& file;  // its settings: a file, or the flags of a command on top of the file that it names
  const SettingsEncoder& writes;

  const nlohmann::json* find(std::string_view key) const;  // null when absent or null
  bool has(std::string_view key) const;                    // and not "auto"
  bool is(std::string_view key) const;                     // true
  int64_t whole(std::string_view key) const;               // 0 when it is no whole number
  std::string text(std::string_view key) const;            // in small letters; empty when absent
};

// A key as the table has it ("training.seq_len", "datasets.0.resolution") and its value.
struct KeyValue {
  std::string key;
  nlohmann::json value;
};

struct Encoded {
  std::vector<KeyValue> keys;
  std::string instead;  // why not, when there are none: what to do in place of it; empty: as formats/manual_steps.h says
};

struct KeyEncoder {
  const char* setting;
  const char* key;                                      // the first of those that it writes
  Encoded (*encode)(const EncodeRequest& w) = nullptr;  // none: the value as it is
};

struct SettingsEncoder {
  std::vector<KeyEncoder> keys;
  FlagStyle flags = FlagStyle::none;
  // Where a key is, or goes, in this file; none: at its name.
  std::string (*place)(const nlohmann::json& file, const std::string& key) = nullptr;
};

// ---- what several formats share

// One of `keys`: the last one that is there, else the first.
std::string present(const EncodeRequest& w, std::initializer_list<const char*> keys);

// `optim` and optim_args of transformers.
Encoded encode_hf_optimizer(const EncodeRequest& w, const char* key);
// gradient_checkpointing and its kwargs; `reentrant`: the trainer's own choice.
Encoded encode_checkpointing(const EncodeRequest& w, bool reentrant);
// Blocks are recomputed, or not: nothing else can be said.
Encoded encode_plain_checkpointing(const EncodeRequest& w, const char* key);
// "bf16", "fp16" and `none` for autocast over fp32 weights.
Encoded encode_mixed_precision(const EncodeRequest& w, const char* key, const char* none);
// dataloader_num_workers and its relatives.
std::vector<KeyEncoder> dataloader_keys();
// The keys of DistributedDataParallel in TrainingArguments.
Encoded encode_hf_ddp(const EncodeRequest& w);
// A number that is right only as a product: batch x accumulation x what the document has had beside them.
std::vector<KeyValue> product_of_batch(const EncodeRequest& w, const char* key);

nlohmann::json targets_of(const AdapterSettings& a);  // "all-linear", a list, or null for PEFT's own choice
nlohmann::json plain_number(double n);                // 16, not 16.0

}  // namespace plimsoll
