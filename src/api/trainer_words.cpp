#include "api/trainer_words.h"

#include <nlohmann/json.hpp>

#include "formats/input.h"
#include "job/settings.h"
#include "model/resolve.h"

namespace plimsoll {

namespace {

Job as_in_document(JobRequest request) {
  request.settings = {};
  return request.job();
}

}  // namespace

TrainerWords::TrainerWords(const JobRequest& request, const Job& job) : job_(job) {
  Outcome<std::optional<Document>> document = outcome_of([&] { return input_document(request.run, request.job_file); });
  if (!document) refused_ = document.refused;
  if (!document || !*document) return;
  document_ = std::move(**document);
  const Outcome<Job> before = outcome_of([&] { return as_in_document(request); });  // its model may be said by a flag alone
  before_ = before ? *before : job;
  if (const Outcome<Rewritten> as_it_is = try_rewrite(*document_, *before_, {}); !as_it_is) refused_ = as_it_is.refused;
}

const Document& TrainerWords::document() const {
  if (refused_) throw *refused_;
  if (!document_)
    throw Error("[plan] there is no file or command to write the changes into",
                "point at one (plimsoll plan train.yaml --gpu ...), or make one: --generate deepspeed", ExitCode::usage);
  return *document_;
}

bool TrainerWords::is_command() const {
  return document_ && (document_->kind == Document::Kind::command || document_->kind == Document::Kind::text);
}

bool TrainerWords::is_own_file() const { return any() && job_.trainer.empty() && before_->trainer.empty(); }

std::string TrainerWords::trainer() const {
  if (!job_.trainer.empty()) return job_.trainer;
  return document_ ? document_->name : "plimsoll";
}

Patch TrainerWords::all_of(const Patch& changes) const { return merged(given_by_flags(job_), changes); }

Rewritten TrainerWords::rewritten(const Patch& changes) const { return rewrite(document(), *before_, all_of(changes)); }

Outcome<Rewritten> TrainerWords::try_rewritten(const Patch& changes) const {
  return outcome_of([&] { return rewritten(changes); });
}

Outcome<std::string> TrainerWords::flags(const Patch& changes) const { return trainer_flags(document(), *before_, all_of(changes)); }

Job TrainerWords::as_read(const Rewritten& text) const {
  Job job = text.job;
  const Patch given = given_by_flags(job_);
  for (const NotWritten& n : text.not_written)
    if (given.contains(n.setting)) apply_setting(job, n.setting, value_of(job_, n.setting), "settings");
  resolve_model(job);
  return job;
}

std::vector<std::string> TrainerWords::lost(const Rewritten& text, const Patch& changes) {
  std::vector<std::string> out;
  for (const NotWritten& n : text.not_written)
    if (changes.contains(n.setting)) out.push_back(n.setting);
  return out;
}

bool TrainerWords::says(const Patch& changes) const {
  const Outcome<Rewritten> file = try_rewrite(*document_, *before_, changes);
  return file && file->not_written.empty() && file->environment.empty();
}

std::set<std::string> TrainerWords::unsaid() const {
  std::set<std::string> out;
  for (const Lever& l : levers_for(job_))
    if (l.knob != "batch" && !says(l.settings)) out.insert(l.name);
  const std::pair<const char*, nlohmann::json> probes[]{{"batch", before_->batch == 1 ? 2 : 1},
                                                        {"accumulation", before_->accumulation == 1 ? 2 : 1},
                                                        {"checkpointing", !before_->checkpointing.on}};
  for (const auto& [setting, value] : probes)
    if (!says({{setting, value}})) out.insert(setting);
  return out;
}

std::set<std::string> environment_levers(const Job& job) {
  std::set<std::string> out;
  for (const Lever& l : levers_for(job))
    if (l.settings.contains("alloc_conf")) out.insert(l.name);
  return out;
}

}  // namespace plimsoll
