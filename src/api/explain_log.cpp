#include "api/explain_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "api/pipe_input.h"
#include "formats/command_line.h"
#include "formats/foreign_file.h"
#include "formats/format.h"
#include "hardware/detect.h"
#include "report/diagnosis_report.h"
#include "trace/trace_file.h"
#include "util/outcome.h"
#include "util/output_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

bool has_extension(const fs::path& path, std::initializer_list<const char*> extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](const char* e) { return path.extension() == e; });
}

// The words that describe the run beside a log: --run, or what follows the log.
std::vector<std::string> run_words(const ExplainRequest& request, size_t log) {
  const std::vector<std::string>& words = request.job.run;
  if (words.size() > log && !request.run.empty())
    throw Error("[explain] the run is given twice: --run " + request.run + " and '" +
                    join({words.begin() + static_cast<std::ptrdiff_t>(log), words.end()}, " ") + "'",
                "leave one out", ExitCode::usage);
  if (!request.run.empty()) return {request.run};
  return {words.begin() + static_cast<std::ptrdiff_t>(std::min(log, words.size())), words.end()};
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

namespace {

constexpr const char* kPaste = "give its log, or the error alone in quotes: plimsoll explain 'CUDA out of memory. Tried to allocate ...'";

// Of a text without an out-of-memory: whether that is an answer.
Diagnosis require_log(Diagnosis d, const std::string& name) {
  if (d.symptom || d.is_log) return d;
  if (d.lines == 0) throw Error("[explain] nothing came from " + name, kPaste);
  throw Error(fmt::format("[explain] {} is no log: no out-of-memory, no step, traceback or time in its {} line{}", printable(name, 200),
                          d.lines, d.lines == 1 ? "" : "s"),
              kPaste);
}

// The error pasted as one argument, or as many words.
std::optional<ReadLog> pasted_log(const std::vector<std::string>& words) {
  std::istringstream first(words[0]), all(join(words, " "));
  if (words[0].find(' ') != std::string::npos)
    if (Diagnosis d = diagnose(first); d.is_oom()) return ReadLog{std::move(d), 1};
  if (Diagnosis d = words.size() > 1 ? diagnose(all) : Diagnosis(); d.is_oom()) return ReadLog{std::move(d), words.size()};
  return {};
}

Diagnosis piped_log(const std::string& path, const Show& show) {
  PipeInput pipe(path, show.notes);
  std::istream in(&pipe);
  in.exceptions(std::ios::badbit);  // what the pipe throws
  return require_log(diagnose(in), path == "-" ? "standard input" : path);
}

void refuse_other_than_log(const fs::path& path) {
  if (has_extension(path, {".log", ".out", ".err"})) return;
  constexpr size_t kLook = 1 << 16;
  std::ifstream file(path, std::ios::binary);
  std::string begin(kLook, '\0');
  file.read(begin.data(), kLook);
  begin.resize(static_cast<size_t>(file.gcount()));
  refuse_what_is_no_log(path.string(), begin);
}

}  // namespace

// By its content: a text that says that memory ran out is a log, and so is one that is no configuration, unless its name says that it
// should be one.
std::optional<ReadLog> read_log(const std::vector<std::string>& words, const Show& show) {
  if (words.empty()) return {};
  if (words[0] == "-" || PipeInput::is_pipe(words[0])) return ReadLog{piped_log(words[0], show)};
  constexpr uintmax_t kLargestConfiguration = 8 << 20;
  std::error_code error;
  const fs::path path = words[0];
  if (!fs::exists(path, error)) return pasted_log(words);
  if (!fs::is_regular_file(path, error) || has_extension(path, {".safetensors", ".gguf"}) || is_trace_file(words[0])) return {};
  std::ifstream file(path, std::ios::binary);
  Diagnosis d = diagnose(file);
  if (d.binary) {
    if (has_extension(path, {".log", ".txt", ".out", ".err"}))
      throw Error("[explain] " + path.string() + " holds no text", "give the text of the log; `plimsoll replay` reads memory snapshots");
    return {};
  }
  if (d.symptom || fs::file_size(path, error) > kLargestConfiguration) return ReadLog{std::move(d)};
  if (has_extension(path, {".json", ".yaml", ".yml", ".toml", ".sh", ".slurm", ".sbatch"}) || is_configuration(path)) return {};
  refuse_other_than_log(path);
  return ReadLog{require_log(std::move(d), path.string())};
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

namespace {

// What is on where the question is asked: the run's own machine, mostly.
void read_environment(SetAlready& set) {
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"})
    if (const char* value = std::getenv(name)) set.read(value);
}

// A program of one's own is no run that can be executed; its log says the same without it.
std::optional<Job> job_beside(const JobRequest& run, const Show& show) {
  const Outcome<Job> job = outcome_of([&] { return run.job(); });
  if (job) return *job;
  const bool command = std::string(job.refused->what()).starts_with("[command]");
  if (!command) throw Error(*job.refused);
  show.note(std::string("plimsoll: without the run: ") + job.refused->what() + "\n");
  return std::nullopt;
}

}  // namespace

ExitCode answer_log(const ExplainRequest& request, ReadLog log, const Show& show) {
  Diagnosis& d = log.diagnosis;
  const std::vector<std::string> words = run_words(request, log.words);
  HelpBundle bundle;
  bool unfinished = false;
  read_environment(d.set);
  d.set.read(join(words, " "));
  find_fixes(d);
  if (!words.empty() || !request.job.job_file.empty() || !request.job.settings.empty()) {
    if (words.empty() && request.job.job_file.empty())
      throw Error("[explain] flags of a run, but no run", "name it with --run, e.g. --run gpt2, or after --, e.g. -- python train.py",
                  ExitCode::usage);
    JobRequest run = request.job;
    run.run = words;
    const std::vector<TargetDevice> devices = request.devices.devices();
    if (const std::optional<Job> job = job_beside(run, show)) {
      unfinished = !add_run(d, *job, devices.empty() ? std::nullopt : std::optional(devices[0]), show.progress);
      bundle.estimate = d.run ? d.run->estimate : estimate(*job, 0);
    }
  }
  bundle.diagnosis = d;
  const std::optional<WrittenBundle> written = save_bundle(request, std::move(bundle), words);
  show([&] { return diagnosis_document(d, request.verbose); },
       [&] {
         nlohmann::ordered_json json = diagnosis_json(d);
         add_bundle(json, request, written);
         return json;
       });
  if (written) show.note(bundle_note(request, *written));
  if (unfinished && !show.best_so_far) throw Cancelled{};
  if (unfinished) show.note("plimsoll: ended before all changes were executed; what is shown is what was known by then\n");
  return unfinished ? Cancelled::kCode : ExitCode::ok;
}

}  // namespace plimsoll
