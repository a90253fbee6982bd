#include "formats/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "formats/command_line.h"
#include "formats/format.h"
#include "formats/launchers.h"
#include "job/packed_storage.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

std::string known_formats() {
  std::vector<std::string> names;
  for (const Format& f : formats()) names.emplace_back(f.name);
  return "known: " + join(names, ", ");
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

void read(Job& job, const Document& document, const Format& format) {
  Reader reader(job, document);
  format.read(reader);
  if (std::string_view(format.name) != "job") hold_whole_what_cannot_be_sharded(job);
}

void read_command(Job& job, Document command, const Format& format) {
  settle_counts(command, job.findings);
  read(job, command, format);
}

void read_command(Job& job, const std::vector<std::string>& words) {
  const Document document = command_document(words);
  const Format* format = format_of(document);
  if (!format)
    throw Error(fmt::format("[command] '{}' is not a trainer that can be read", printable(document.value.value("program", ""), 80)),
                "point at its configuration file, or name the model and settings; " + known_formats());
  read_command(job, document, *format);
}

// The last of its commands is what the script is for; those before prepare it.
void read_script(Job& job, const Document& script) {
  const std::vector<Document> commands = script_documents(script.text, script.name);
  for (auto it = commands.rbegin(); it != commands.rend(); ++it)
    if (const Format* format = format_of(*it)) return read_command(job, *it, *format);
  throw Error("[script] " + script.name + " holds no training command that can be read", known_formats());
}

bool is_script(const Document& document) { return document.kind == Document::Kind::text && !document.text.empty(); }

}  // namespace

void read_input_document(Job& job, const Document& document) {
  if (is_script(document)) return read_script(job, document);
  const Format* format = format_of(document);
  if (!format) throw Error("[input] " + document.path + " is none of the configurations that can be read", known_formats());
  read(job, document, *format);
}

void read_input_file(Job& job, const std::string& path) { read_input_document(job, read_document(path)); }

void read_input_directory(Job& job, const std::string& path) {
  struct Found {
    Document document;
    const Format* format;
  };
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const fs::directory_entry& entry = *at;
    std::error_code unreadable;  // e.g. a link to nowhere
    if (!entry.is_regular_file(unreadable)) continue;
    const std::string extension = entry.path().extension().string();
    if (extension != ".json" && extension != ".yaml" && extension != ".yml" && extension != ".toml" && extension != ".sh" &&
        extension != ".safetensors" && extension != ".gguf")
      continue;
    try {
      Document document = read_document(entry.path().string());
      if (const Format* format = format_of(document)) found.push_back({std::move(document), format});
    } catch (const Error& e) {
      job.findings.push_back(
          {Effect::unknown, "", entry.path().filename().string(), std::string("could not be read: ") + e.what(), e.hint()});
    }
  }
  if (error) throw Error("[input] cannot list " + path + ": " + error.message(), "check its permissions");
  if (found.empty()) throw Error("[input] " + path + " holds no configuration that can be read", known_formats());
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.format->rank != b.format->rank ? a.format->rank < b.format->rank : a.document.name < b.document.name;
  });
  for (const Found& f : found) read(job, f.document, *f.format);
}

void read_input(Job& job, const std::vector<std::string>& words) {
  if (words.empty()) return;
  std::error_code error;
  if (words.size() == 1 && fs::is_directory(words[0], error)) return read_input_directory(job, words[0]);
  if (words.size() == 1 && fs::exists(words[0], error)) return read_input_file(job, words[0]);
  const std::vector<std::string> split = words.size() == 1 ? shell_words(words[0]) : words;
  if (split.size() > 1) return read_command(job, split);
  apply_setting(job, "model", words[0], "command line");
}

std::optional<Document> input_document(const std::vector<std::string>& words, const std::string& job_file) {
  if (words.empty()) return job_file.empty() ? std::nullopt : std::optional(read_document(job_file));
  std::error_code error;
  if (words.size() == 1 && fs::is_directory(words[0], error))
    throw Error("[input] " + words[0] + " is a directory: which of its files shall change is not said", "name that file");
  if (words.size() == 1 && fs::exists(words[0], error)) return read_document(words[0]);
  const std::vector<std::string> split = words.size() == 1 ? shell_words(words[0]) : words;
  if (split.size() > 1) return command_document(split);
  return std::nullopt;
}

}  // namespace plimsoll
