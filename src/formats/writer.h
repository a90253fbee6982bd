// Settings that shall change, written back into what they came from: the file of a trainer, its command, a script that runs it. Everything
// else stays byte for byte, and what was written is read again and has to be what was asked for.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/document.h"
#include "job/job.h"
#include "job/patch.h"

namespace plimsoll {

struct WrittenValue {
  std::string key;  // "training.seq_len", "--bf16"
  nlohmann::json before, after;
};

struct NotWritten {
  std::string setting;
  nlohmann::json value;
  std::string instead;  // how to have it all the same: a sentence
};

// A setting that nobody asked for, and that this trainer makes of what was written.
struct Consequence {
  std::string setting;
  nlohmann::json before, after;
};

struct Rewritten {
  std::string text;
  std::vector<WrittenValue> written;
  std::map<std::string, std::string> environment;  // variables to set beside it
  std::vector<NotWritten> not_written;
  std::vector<Consequence> consequences;
  Job job;  // what the new text is read as, with the variables
};

// `before`: the job that `original` was read as. Throws an Error where the text cannot be changed safely (an alias, a variable with several
// values), when the document is none that has settings, and when what was written reads as something else.
Rewritten rewrite(const Document& original, const Job& before, const Patch& changes);
// The same where a refusal is an answer.
Outcome<Rewritten> try_rewrite(const Document& original, const Job& before, const Patch& changes);

// Settings that were given by Plimsoll's own flags, on top of the document: the document does not say them until they are written, too.
Patch given_by_flags(const Job& job);

// Only what changes, on one line, in the trainer's own spelling: "--per_device_train_batch_size 2 --optim adamw_bnb_8bit". Refused when one
// of them cannot be said by a flag.
Outcome<std::string> trainer_flags(const Document& original, const Job& before, const Patch& changes);

// Of the format whose settings it holds: "axolotl". Throws an Error where it holds none.
std::string format_name(const Document& document);

// The key of a setting in a format; empty when it has none.
std::string key_of(const std::string& format, const std::string& setting);

}  // namespace plimsoll
