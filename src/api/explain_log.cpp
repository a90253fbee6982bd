#include "api/explain_log.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "formats/command_line.h"
#include "formats/format.h"
#include "hardware/detect.h"
#include "report/diagnosis_report.h"
#include "trace/trace_file.h"
#include "util/output_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

bool has_extension(const fs::path& path, std::initializer_list<const char*> extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](const char* e) { return path.extension() == e; });
}

// The words that describe the run beside a log: --run, or what follows the log.
std::vector<std::string> run_words(const ExplainRequest& request) {
  const std::vector<std::string>& words = request.job.run;
  if (words.size() > 1 && !request.run.empty())
    throw Error("[explain] the run is given twice: --run " + request.run + " and '" + join({words.begin() + 1, words.end()}, " ") + "'",
                "leave one out", ExitCode::usage);
  if (!request.run.empty()) return {request.run};
  return words.empty() ? words : std::vector<std::string>(words.begin() + 1, words.end());
}

// Configurations that the words name, as they are: a file, those of a directory, those among a command's arguments.
std::vector<std::pair<std::string, std::string>> configuration_files(const std::vector<std::string>& words) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const std::string& word : words.size() == 1 && !fs::exists(words[0], error) ? shell_words(words[0]) : words) {
    if (fs::is_regular_file(word, error)) paths.emplace_back(word);
    if (fs::is_directory(word, error))
      for (const auto& entry : fs::directory_iterator(word, error)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::pair<std::string, std::string>> out;
  for (const fs::path& path : paths) {
    constexpr uintmax_t kLargest = 1 << 20;
    if (!has_extension(path, {".json", ".yaml", ".yml", ".toml", ".sh", ".slurm", ".sbatch"}) || fs::file_size(path, error) > kLargest ||
        out.size() >= 20)
      continue;
    std::ifstream in(path, std::ios::binary);
    out.emplace_back(path.filename().string(), std::string(std::istreambuf_iterator<char>(in), {}));
  }
  return out;
}

}  // namespace

// What a file is, by its content: a text that says that memory ran out is a log, and so is one that is no configuration, unless its name
// says that it should be one.
std::optional<Diagnosis> read_log(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  if (words[0] == "-") return diagnose(std::cin);
  constexpr uintmax_t kLargestConfiguration = 8 << 20;
  std::error_code error;
  const fs::path path = words[0];
  if (!fs::is_regular_file(path, error) || has_extension(path, {".safetensors", ".gguf"}) || is_trace_file(words[0])) return {};
  std::ifstream file(path, std::ios::binary);
  Diagnosis d = diagnose(file);
  if (d.binary) {
    if (has_extension(path, {".log", ".txt", ".out", ".err"}))
      throw Error("[explain] " + path.string() + " holds no text", "give the text of the log; `plimsoll replay` reads memory snapshots");
    return {};
  }
  if (d.symptom || fs::file_size(path, error) > kLargestConfiguration) return d;
  if (has_extension(path, {".json", ".yaml", ".yml", ".toml", ".sh", ".slurm", ".sbatch"}) || is_configuration(path)) return {};
  return d;
}

void check_bundle(const ExplainRequest& request) {
  if (request.bundle.empty()) return;
  if (!request.bundle.ends_with(".tar"))
    throw Error("[explain] --bundle " + request.bundle + " is not the name of a tar archive", "e.g. --bundle help.tar", ExitCode::usage);
  check_new_file(request.bundle);
}

std::optional<WrittenBundle> save_bundle(const ExplainRequest& request, HelpBundle bundle, const std::vector<std::string>& words) {
  if (request.bundle.empty()) return std::nullopt;
  std::vector<std::string> named = words;
  if (!request.job.job_file.empty()) named.push_back(request.job.job_file);
  bundle.configuration = configuration_files(named);
  bundle.command = join(words, " ");
  bundle.machine = detect(Surroundings::here());
  WrittenBundle written = write_bundle(bundle, PrivateNames::here());
  write_output_file(request.bundle, written.archive);
  return written;
}

void add_bundle(nlohmann::ordered_json& json, const ExplainRequest& request, const std::optional<WrittenBundle>& written) {
  if (written) json["bundle"] = {{"path", request.bundle}, {"files", written->files}, {"left_out", written->left_out}};
}

std::string bundle_note(const ExplainRequest& request, const WrittenBundle& written) {
  return "plimsoll: wrote " + request.bundle + " (" + join(written.files, ", ") +
         ")\n  left out: " + (written.left_out.empty() ? "nothing had to be" : join(written.left_out, ", ")) +
         "; look through it before you send it\n";
}

ExitCode answer_log(const ExplainRequest& request, Diagnosis d, const Show& show) {
  const std::vector<std::string> words = run_words(request);
  HelpBundle bundle;
  if (!words.empty() || !request.job.job_file.empty() || !request.job.settings.empty()) {
    if (words.empty() && request.job.job_file.empty())
      throw Error("[explain] flags of a run, but no run", "name it with --run, e.g. --run gpt2, or after --, e.g. -- python train.py",
                  ExitCode::usage);
    JobRequest run = request.job;
    run.run = words;
    const std::vector<TargetDevice> devices = request.devices.devices();
    const Job job = run.job();
    add_run(d, job, devices.empty() ? std::nullopt : std::optional(devices[0]));
    bundle.estimate = d.run ? d.run->estimate : estimate(job, 0);
  }
  bundle.diagnosis = d;
  const std::optional<WrittenBundle> written = save_bundle(request, std::move(bundle), words);
  show([&] { return diagnosis_document(d); },
       [&] {
         nlohmann::ordered_json json = diagnosis_json(d);
         add_bundle(json, request, written);
         return json;
       });
  if (written) show.note(bundle_note(request, *written));
  return ExitCode::ok;
}

}  // namespace plimsoll
