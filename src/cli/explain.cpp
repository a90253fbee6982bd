#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "diagnose/diagnosis.h"
#include "hardware/detect.h"
#include "job/command_line.h"
#include "job/formats/format.h"
#include "model/registry.h"
#include "report/diagnosis_report.h"
#include "report/explain_report.h"
#include "report/help_bundle.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

struct Flags {
  JobFlags job;
  DeviceFlags devices;
  OutputFlags output;
  std::string run, bundle;
};

// Whose defaults a missing key has: LlamaConfig for LlamaForCausalLM.
std::string configuration_class(const std::string& family) {
  const ModelEntry* entry = find_model(family);
  if (!entry || entry->classes.empty() || !entry->library.empty()) return family;
  const std::string& name = entry->classes.front();
  const size_t end = std::min(name.find("For"), name.find("LMHead"));
  return (end == std::string::npos ? name : name.substr(0, end)) + "Config";
}

Explanation explanation(const Flags& flags) {
  Job job = flags.job.job();
  const auto lookups = std::make_shared<std::vector<ConfigLookup>>();
  job.config.watch(lookups);
  const std::vector<TargetDevice> devices = flags.devices.devices();
  Explanation x = explain_job(estimate(job, 0, devices.size() == 1 ? std::optional(devices[0].spec) : std::nullopt), *lookups,
                              configuration_class(job.family));
  Fitting fitting(job);
  for (const TargetDevice& d : devices) x.fits.push_back(fitting.on(d));
  return x;
}

bool has_extension(const fs::path& path, std::initializer_list<const char*> extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](const char* e) { return path.extension() == e; });
}

bool is_configuration(const std::string& path) {
  try {
    const Document document = read_document(path);
    if (document.kind != Document::Kind::text) return format_of(document) != nullptr;
    const std::vector<Document> commands = script_documents(document.text, document.name);
    return std::any_of(commands.begin(), commands.end(), [](const Document& d) { return format_of(d) != nullptr; });
  } catch (const Error&) {
    return false;
  }
}

// What a file is, by its content: a text that says that memory ran out is a log, and so is one that is no configuration, unless its name
// says that it should be one.
std::optional<Diagnosis> read_log(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  if (words[0] == "-") return diagnose(std::cin);
  constexpr uintmax_t kLargestConfiguration = 8 << 20;
  std::error_code error;
  const fs::path path = words[0];
  if (!fs::is_regular_file(path, error) || has_extension(path, {".safetensors", ".gguf"})) return {};
  std::ifstream file(path, std::ios::binary);
  Diagnosis d = diagnose(file);
  if (d.binary) return {};
  if (d.symptom || fs::file_size(path, error) > kLargestConfiguration) return d;
  if (has_extension(path, {".json", ".yaml", ".yml", ".toml", ".sh", ".slurm", ".sbatch"}) || is_configuration(path)) return {};
  return d;
}

bool describes_a_run(const JobFlags& job) {
  return !job.job_file.empty() || !job.config.empty() || !job.optimizer_args.empty() ||
         std::any_of(job.values.begin(), job.values.end(), [](const auto& v) { return !v.second.empty(); }) ||
         std::any_of(job.switches.begin(), job.switches.end(), [](const auto& s) { return s.second; });
}

// The words that describe the run beside a log: --run, or what follows the log.
std::vector<std::string> run_words(const Flags& flags) {
  const std::vector<std::string>& words = flags.job.input;
  if (words.size() > 1 && !flags.run.empty())
    throw Error("[explain] the run is given twice: --run " + flags.run + " and '" + join({words.begin() + 1, words.end()}, " ") + "'",
                "leave one out", ExitCode::usage);
  if (!flags.run.empty()) return {flags.run};
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

void save_bundle(const Flags& flags, HelpBundle bundle, const std::vector<std::string>& words) {
  if (flags.bundle.empty()) return;
  if (!flags.bundle.ends_with(".tar"))
    throw Error("[explain] --bundle " + flags.bundle + " is not the name of a tar archive", "e.g. --bundle help.tar", ExitCode::usage);
  std::vector<std::string> named = words;
  if (!flags.job.job_file.empty()) named.push_back(flags.job.job_file);
  bundle.configuration = configuration_files(named);
  bundle.command = join(words, " ");
  bundle.machine = detect(Surroundings::here());
  const WrittenBundle written = write_bundle(bundle, PrivateNames::here());
  std::ofstream out(flags.bundle, std::ios::binary);
  out << written.archive;
  out.close();
  if (!out) throw Error("[explain] cannot write " + flags.bundle, "is the folder there, and writable?");
  std::cerr << "plimsoll: wrote " << flags.bundle << " (" << join(written.files, ", ") << ")\n"
            << "  left out: " << (written.left_out.empty() ? "nothing had to be" : join(written.left_out, ", "))
            << "; look through it before you send it\n";
}

ExitCode explain_log(const Flags& flags, Diagnosis d) {
  const std::vector<std::string> words = run_words(flags);
  HelpBundle bundle;
  if (!words.empty() || describes_a_run(flags.job)) {
    if (words.empty() && flags.job.job_file.empty())
      throw Error("[explain] flags of a run, but no run", "name it with --run, e.g. --run gpt2, or after --, e.g. -- python train.py",
                  ExitCode::usage);
    JobFlags job = flags.job;
    job.input = words;
    const std::vector<TargetDevice> devices = flags.devices.devices();
    const Job resolved = job.job();
    add_run(d, resolved, devices.empty() ? std::nullopt : std::optional(devices[0]));
    bundle.estimate = d.run ? d.run->estimate : estimate(resolved, 0);
  }
  std::cout << (flags.output.json ? dump(diagnosis_json(d), 2) + "\n"
                                  : diagnosis_text(d, Style::detect(flags.output.colour, flags.output.ascii)));
  bundle.diagnosis = std::move(d);
  save_bundle(flags, std::move(bundle), words);
  return ExitCode::ok;
}

}  // namespace

std::function<ExitCode()> set_up_explain(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.footer(
      "Before a run: what a configuration or command will really do; every value is shown with the place it comes from.\n"
      "  plimsoll explain config.json                                     a trainer's configuration\n"
      "  plimsoll explain -- python train.py --model_size medium --vram 16gb\n"
      "  plimsoll explain 'torchrun --nproc_per_node=4 train.py --config x.yaml' --gpu a100-80gb\n"
      "  plimsoll explain ./my-run                                        a directory with several of them\n"
      "After a failure: what its log or error says, why, and what to change. Logs are recognised by their content.\n"
      "  plimsoll explain train.log                                       the first out-of-memory in it, its causes and fixes\n"
      "  plimsoll explain - < slurm-123.out                               from a pipe\n"
      "  plimsoll explain train.log -- python train.py --batch_size 8     with the run: fixes have computed savings\n"
      "  plimsoll explain train.log --run config.yaml --bundle help.tar   and an archive to ask for help with, without secrets\n"
      "Exit codes: 0 done (with --json, is_oom tells what was found), 2 wrong usage, 5 input not understood, 1 a bug.");
  flags->job.add_input_to(app);
  flags->job.add_to(app);
  flags->devices.add_to(app);
  constexpr const char* kFailure = "After a failure";
  app.add_option("--run", flags->run, "the run whose log it is: a model, a file, a directory or a command in quotes")
      ->type_name("RUN")
      ->group(kFailure);
  app.add_option("--bundle", flags->bundle, "write hardware, configuration, error and estimate to a tar archive, without secrets and names")
      ->type_name("FILE.tar")
      ->group(kFailure);
  flags->output.add_to(app);
  return [flags] {
    if (auto log = read_log(flags->job.input)) return explain_log(*flags, std::move(*log));
    if (!flags->run.empty())
      throw Error("[explain] --run describes the run beside a log, and no log is given", "plimsoll explain LOG --run " + flags->run,
                  ExitCode::usage);
    const Explanation x = explanation(*flags);
    std::cout << (flags->output.json ? dump(explain_json(x), 2) + "\n"
                                     : explain_text(x, Style::detect(flags->output.colour, flags->output.ascii)));
    HelpBundle bundle;
    bundle.estimate = x.estimate;
    save_bundle(*flags, std::move(bundle), flags->job.input);
    return ExitCode::ok;
  };
}

}  // namespace plimsoll
