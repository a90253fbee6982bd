#include "supervise/resume.h"

#include <filesystem>
#include <optional>

#include "formats/command_line.h"
#include "formats/format.h"
#include "formats/input.h"
#include "supervise/shell_command.h"
#include "util/error.h"

namespace plimsoll {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

// The command that trains, in the words of the supervised one or of the script that it runs.
struct Training {
  std::string trainer;
  Document words;
  std::vector<std::string> all;  // also those around it
};

std::optional<Training> training_of(const std::vector<std::string>& command) {
  try {
    Job job;
    Training out{"", command_document(command), command};
    if (const auto shell = shell_command(command)) {
      read_input_document(job, shell->script);
      for (const Document& d : script_documents(shell->script.text, shell->script.name))
        if (format_of(d)) out.words = d;
      out.all = words_of(shell->script);
    } else {
      read_input(job, command);
    }
    out.trainer = job.trainer;
    return out;
  } catch (const Error&) {
    return {};
  }
}

// --output_dir DIR, or output_dir=DIR; empty: the words do not say it.
std::string output_by_words(const Document& command) {
  const Json flags = command.value.value("flags", Json::object());
  if (flags.contains("output_dir") && flags["output_dir"].is_string()) return flags["output_dir"].get<std::string>();
  for (const Json& word : command.value.value("arguments", Json::array()))
    if (const std::string text = word.is_string() ? word.get<std::string>() : ""; text.starts_with("output_dir=")) return text.substr(11);
  return "";
}

// Of a file that the command names: a key of its own, or of a section.
std::string output_by_files(const std::vector<std::string>& command) {
  const auto said = [](const Json& object) {
    return object.is_object() && object.contains("output_dir") && object["output_dir"].is_string() ? object["output_dir"].get<std::string>()
                                                                                                   : "";
  };
  for (const std::string& word : command) {
    std::error_code error;
    if (!fs::is_regular_file(word, error)) continue;
    try {
      const Document d = read_document(word);
      if (const std::string found = said(d.value); !found.empty()) return found;
      if (d.value.is_object())
        for (const auto& section : d.value.items())
          if (const std::string found = said(section.value()); !found.empty()) return found;
    } catch (const Error&) {  // not one of settings
    }
  }
  return "";
}

}  // namespace

Resume resume_of_trainer(const std::vector<std::string>& command) {
  const std::optional<Training> training = training_of(command);
  if (!training) return {};
  const std::string& t = training->trainer;
  const Document& words = training->words;
  const std::string by_words = output_by_words(words), output = by_words.empty() ? output_by_files(training->all) : by_words;
  if (t == "axolotl")  // finds it itself
    return {"--auto-resume-from-checkpoints", output.empty() ? "" : output + "/checkpoint-*", "auto_resume_from_checkpoints of axolotl"};
  if (output.empty()) return {};
  const std::string how = "resume_from_checkpoint of " + t, checkpoints = output + "/checkpoint-*";
  // A script of transformers that is given a file takes nothing beside it.
  if (t == "TRL" || (t == "transformers" && !by_words.empty())) return {"--resume_from_checkpoint {checkpoint}", checkpoints, how};
  // Beside a file it reads name=value, else flags.
  if (t == "LLaMA-Factory")
    return {words.value["flags"].contains("output_dir") ? "--resume_from_checkpoint {checkpoint}" : "resume_from_checkpoint={checkpoint}",
            checkpoints, how};
  // It finds the newest epoch_N or step_N itself, and stops where there is none.
  if (t == "torchtune") return {"resume_from_checkpoint=True", output + "/*_*/recipe_state.pt", how};
  if (t == "sd-scripts") {
    const bool network = words.value.value("program", "").ends_with("train_network.py");  // the others begin to count anew
    return {network ? "--resume {checkpoint} --skip_until_initial_step" : "--resume {checkpoint}", output + "/*-state",
            "--resume of kohya's scripts (with --save_state)"};
  }
  return {};
}

std::vector<std::string> resume_words(const Resume& resume, const std::string& checkpoint) {
  if (resume.flag.empty() || (checkpoint.empty() && !resume.checkpoints.empty())) return {};
  std::vector<std::string> words = shell_words(resume.flag);
  for (std::string& word : words)
    if (const size_t at = word.find("{checkpoint}"); at != std::string::npos) word.replace(at, 12, checkpoint);
  return words;
}

}  // namespace plimsoll
