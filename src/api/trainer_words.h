// What the user's own file or command can say of a change: settings in the words of its trainer. Where there is only the name of a model,
// Plimsoll's own flags can say everything.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "api/request.h"
#include "formats/writer.h"
#include "plan/levers.h"

namespace plimsoll {

class TrainerWords {
 public:
  // `job`: what `request` stands for, with the settings on top of its file or command.
  TrainerWords(const JobRequest& request, const Job& job);

  bool any() const { return document_.has_value() && !refused_; }  // a file or command that holds settings
  const Document& document() const;                                // throws an Error where there is none
  const Job& before() const { return *before_; }                   // as the document has it
  std::string trainer() const;                                     // "axolotl"
  std::string format() const { return format_name(document()); }   // "hf_training_arguments"
  bool is_file() const { return any() && !document_->path.empty(); }
  bool is_command() const;   // typed, or in a script; it may hold no settings
  bool is_own_file() const;  // a job file: it can say every setting
  bool is_script() const { return is_file() && document_->kind == Document::Kind::text; }

  // With what was given on top of the document, which it does not say either; `changes` have the last word.
  Patch all_of(const Patch& changes) const;
  Rewritten rewritten(const Patch& changes) const;
  Outcome<Rewritten> try_rewritten(const Patch& changes) const;
  Outcome<std::string> flags(const Patch& changes) const;
  // What the new text stands for, with what was given on top of it and has no word there; its model is resolved.
  Job as_read(const Rewritten& text) const;
  // Of `changes`, the settings that are not in the new text.
  static std::vector<std::string> lost(const Rewritten& text, const Patch& changes);

  // Whether the text itself can say all of it, without a variable beside it.
  bool says(const Patch& changes) const;
  // Names of levers, and of the settings batch, accumulation and checkpointing, that it has no word for.
  std::set<std::string> unsaid() const;

 private:
  Job job_;
  std::optional<Document> document_;
  std::optional<Error> refused_;  // why there is none, or none that holds settings
  std::optional<Job> before_;
};

// Of levers that are a variable in the environment, not a setting of a trainer.
std::set<std::string> environment_levers(const Job& job);

}  // namespace plimsoll
