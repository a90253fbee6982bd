#include "formats/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "formats/command_line.h"
#include "formats/foreign_file.h"
#include "formats/format.h"
#include "formats/launchers.h"
#include "job/packed_storage.h"
#include "job/settings.h"
#include "trace/trace_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

constexpr const char* kStandardInput = "standard input";

// Of those that `as` names, or by the content; null: none.
const Format* reader_of(const Document& document, const std::string& as) {
  if (as.empty()) return format_of(document);
  if (const Format* format = format_named(as)) return format;
  std::vector<std::string> names;
  for (const Format& f : formats()) names.emplace_back(f.name);
  throw Error(fmt::format("[input] --as {}: no reader has that name", printable(as, 60)), "known: " + join(names, ", "));
}

// Trainers shard what is not simulated sharded: then the answer is for a process that holds all of it, and says so. In a job file of our
// own it is an error.
void hold_whole_what_cannot_be_sharded(Job& job) {
  const ParallelSettings& p = job.parallel;
  const char* kind = p.fsdp ? "fsdp" : p.fsdp1 ? "fsdp1" : p.deepspeed && p.deepspeed->stage == 3 ? "zero" : nullptr;
  const bool autocast = p.deepspeed && (job.precision == Precision::amp || job.precision == Precision::amp_fp16 || job.autocast);
  const bool saved =
      p.fsdp1 && job.tuning.adapter && (!job.tuning.adapter->modules_to_save.empty() || job.tuning.adapter->classifier_is_saved);
  const bool packed = job.tuning.quantization && (p.deepspeed || !packed_storage(*job.tuning.quantization));
  if (!kind || (!packed && !autocast && !saved)) return;
  const std::string origin = job.origin[kind];
  const char* what = packed ? "a quantised base" : autocast ? "autocast" : "modules that are trained in full beside an adapter";
  job.findings.push_back({Effect::unknown, kind, origin,
                          fmt::format("sharding with {} is not simulated: the answer is for a process that holds all of it", what), ""});
  apply_setting(job, kind, false, origin);
}

void read(Job& job, const Document& document, const Format& format, const std::string& as) {
  if (!as.empty())
    job.findings.push_back({Effect::note, "", document.name, fmt::format("read as {}, as it was asked for", format.name), "--as"});
  if (document.path == kStandardInput && format.model)
    throw Error(fmt::format("[input] a model's description ({}) cannot come from standard input", format.description),
                "save it to a file and name that");
  read_as(format, document, job);
  if (std::string_view(format.name) != "job") hold_whole_what_cannot_be_sharded(job);
}

void read_command(Job& job, Document command, const Format& format, const std::string& as) {
  settle_counts(command, job.findings);
  read(job, command, format, as);
}

void read_command(Job& job, const std::vector<std::string>& words, const std::string& as) {
  const Document document = command_document(words);
  const Format* format = reader_of(document, as);
  if (!format) refuse_unknown_command(document);
  read_command(job, document, *format, as);
}

bool runs_python(const Document& command) { return command.value.value("program", "").ends_with(".py"); }

// The last of its commands is what the script is for; those before prepare it.
void read_script(Job& job, const Document& script, const std::string& as) {
  const std::vector<Document> commands = script_documents(script.text, script.name);
  for (auto it = commands.rbegin(); it != commands.rend(); ++it)
    if (const Format* format = reader_of(*it, as)) return read_command(job, *it, *format, as);
  for (auto it = commands.rbegin(); it != commands.rend(); ++it)
    if (runs_python(*it)) refuse_unknown_command(*it);
  throw Error("[script] " + script.name + " holds no training command that can be read",
              "name the command itself, after --; or the model and its settings: plimsoll estimate gpt2 --batch 8 --seq 1024");
}

// Files of tokenizers and of generation that lie beside every model.
bool is_beside_a_model(const std::string& name) {
  for (const char* known : {"tokenizer", "special_tokens_map", "generation_config", "vocab", "added_tokens", "preprocessor_config",
                            "processor_config", "chat_template", "trainer_state", "scheduler", "merges", "package", "README"})
    if (name.starts_with(known)) return true;
  return false;
}

Document standard_input() {
  constexpr size_t kLargest = size_t{64} << 20;
  std::string text;
  std::string chunk(1 << 16, '\0');
  while (std::cin.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || std::cin.gcount() > 0) {
    text.append(chunk, 0, static_cast<size_t>(std::cin.gcount()));
    if (text.size() > kLargest) throw Error("[input] standard input is larger than 64 MiB", "this is not a configuration");
  }
  refuse_foreign_file(kStandardInput, text);
  return parse_document(std::move(text), kStandardInput);
}

bool is_script(const Document& document) { return document.kind == Document::Kind::text && !document.text.empty(); }

}  // namespace

bool read_input_document(Job& job, const Document& document, const std::string& as) {
  if (is_script(document)) {
    read_script(job, document, as);
    return false;
  }
  const Format* format = reader_of(document, as);
  if (!format) refuse_unknown_configuration(document);
  read(job, document, *format, as);
  return format->model != nullptr;
}

// A trace is a model as a preset is, with a recipe of its own: resolving it reads the file (model/captured.h).
bool read_input_file(Job& job, const std::string& path, const std::string& as) {
  if (!as.empty() || !is_trace_file(path)) return read_input_document(job, read_document(path), as);
  apply_setting(job, "model", path, "command line");
  return false;
}

bool read_input_directory(Job& job, const std::string& path) {
  struct Found {
    Document document;
    const Format* format;
  };
  std::vector<Found> found;
  std::vector<Finding> left_out;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const fs::directory_entry& entry = *at;
    std::error_code unreadable;  // e.g. a link to nowhere
    if (!entry.is_regular_file(unreadable)) continue;
    const std::string extension = entry.path().extension().string(), name = entry.path().filename().string();
    if (extension != ".json" && extension != ".yaml" && extension != ".yml" && extension != ".toml" && extension != ".sh" &&
        extension != ".safetensors" && extension != ".gguf")
      continue;
    try {
      Document document = read_document(entry.path().string());
      if (const Format* format = format_of(document))
        found.push_back({std::move(document), format});
      else if (!is_beside_a_model(name))
        left_out.push_back({Effect::unknown, printable(name, 80), path, "left out: no trainer that is known writes it", ""});
    } catch (const Error& e) {
      left_out.push_back(
          {Effect::unknown, printable(name, 80), path, std::string("left out, as it cannot be read: ") + e.what(), e.hint()});
    }
  }
  if (error) throw Error("[input] cannot list " + path + ": " + error.message(), "check its permissions");
  if (found.empty())
    throw Error("[input] " + path + " holds no configuration that can be read",
                left_out.empty() ? "name a model, its config.json or a trainer's configuration"
                                 : fmt::format("{}: {}", left_out[0].setting, left_out[0].what));
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.format->rank != b.format->rank ? a.format->rank < b.format->rank : a.document.name < b.document.name;
  });
  std::sort(left_out.begin(), left_out.end(), [](const Finding& a, const Finding& b) { return a.setting < b.setting; });
  std::vector<std::string> taken, trainers;
  for (const Found& f : found) {
    taken.push_back(fmt::format("{} ({})", f.document.name, f.format->name));
    if (f.format->rank == Rank::trainer) trainers.push_back(f.document.name);
  }
  const std::string list = printable(join(taken, ", "), 400);
  if (trainers.size() > 1)
    job.findings.push_back({Effect::conflict, "", path,
                            fmt::format("several configurations: {} are read in turn, the last one counts", list), "name one of them"});
  else if (found.size() > 1 || !left_out.empty())
    job.findings.push_back({Effect::assumed, "files", path, list, "those of the directory that can be read"});
  for (Finding& f : left_out) job.findings.push_back(std::move(f));
  for (const Found& f : found) read(job, f.document, *f.format, "");
  return std::all_of(found.begin(), found.end(), [](const Found& f) { return f.format->model != nullptr; });
}

bool read_input(Job& job, const std::vector<std::string>& words, const std::string& as) {
  if (words.empty()) return false;
  if (words.size() == 1 && words[0] == "-") return read_input_document(job, standard_input(), as);
  std::error_code error;
  if (words.size() == 1 && fs::is_directory(words[0], error)) {
    if (!as.empty()) throw Error("[input] --as is for one file, and " + words[0] + " is a directory", "name the file");
    return read_input_directory(job, words[0]);
  }
  if (words.size() == 1 && fs::exists(words[0], error)) return read_input_file(job, words[0], as);
  const std::vector<std::string> split = words.size() == 1 ? shell_words(words[0]) : words;
  if (split.size() > 1) {
    read_command(job, split, as);
    return false;
  }
  if (!as.empty())
    throw Error(fmt::format("[input] --as {}: {} is neither a file nor a command", printable(as, 60), printable(words[0], 120)),
                "name the file");
  apply_setting(job, "model", words[0], "command line");
  return true;
}

std::optional<Document> input_document(const std::vector<std::string>& words, const std::string& job_file) {
  if (words.empty()) return job_file.empty() ? std::nullopt : std::optional(read_document(job_file));
  if (words.size() == 1 && words[0] == "-") throw Error("[input] standard input cannot be changed", "save it to a file and name that");
  std::error_code error;
  if (words.size() == 1 && fs::is_directory(words[0], error))
    throw Error("[input] " + words[0] + " is a directory: which of its files shall change is not said", "name that file");
  if (words.size() == 1 && is_trace_file(words[0])) return std::nullopt;
  if (words.size() == 1 && fs::exists(words[0], error)) return read_document(words[0]);
  const std::vector<std::string> split = words.size() == 1 ? shell_words(words[0]) : words;
  if (split.size() > 1) return command_document(split);
  return std::nullopt;
}

}  // namespace plimsoll
