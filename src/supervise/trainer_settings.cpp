// Settings of a trainer that is known: by its own flags, in its own file, or in the script that runs it.
#include <fmt/format.h>

#include <filesystem>

#include "formats/command_line.h"
#include "formats/format.h"
#include "formats/input.h"
#include "formats/writer.h"
#include "job/config.h"
#include "job/settings.h"
#include "supervise/launch.h"
#include "supervise/run_settings.h"
#include "supervise/shell_command.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

class OfTrainer final : public RunSettings {
 public:
  explicit OfTrainer(std::vector<std::string> command) : command_(std::move(command)), shell_(shell_command(command_)) {
    if (shell_)
      read_input_document(job_, shell_->script);
    else
      read_input(job_, command_);
  }

  RunValues now() const override {
    const Json workers = value_of(job_, "workers");
    return {job_.batch, job_.accumulation, workers.is_number_integer() && job_.origin.contains("workers") ? workers.get<int64_t>() : -1};
  }
  std::string how() const override { return "the settings of " + job_.trainer + (shell_ ? " in " + shell_->script.name : ""); }

  Launch say(const RunValues& v, const std::string& folder) const override {
    Patch changes = {{"batch", v.batch}, {"accumulation", v.accumulation}};
    if (v.workers >= 0 && v.workers != now().workers) changes.set("workers", v.workers);
    try {
      return by_flags(changes, folder);
    } catch (const Error& by_flags) {
      const std::string file = settings_file();
      if (file.empty()) throw;
      return by_file(file, changes, folder);
    }
  }

 private:
  static void require_all(const Rewritten& r) {
    for (const NotWritten& n : r.not_written)
      if (n.setting == "batch" || n.setting == "accumulation")
        throw Error(fmt::format("[run] {} {} cannot be said to this trainer: {}", n.setting, dump(n.value), n.instead),
                    "tell it where: --set");
  }
  static std::vector<std::string> written(const Rewritten& r, const std::string& where) {
    std::vector<std::string> out;
    for (const WrittenValue& w : r.written) out.push_back(where + w.key + " " + dump(w.after));
    return out;
  }

  Launch by_flags(const Patch& changes, const std::string& folder) const {
    const Rewritten r = rewrite(shell_ ? shell_->script : command_document(command_), job_, changes);
    require_all(r);
    Launch out{command_, r.environment, written(r, shell_ ? shell_->script.name + ": " : "")};
    if (shell_)
      replace_script(out.command, *shell_, r.text, folder);
    else
      out.command = shell_words(r.text);
    return out;
  }

  Launch by_file(const std::string& file, const Patch& changes, const std::string& folder) const {
    Job job;
    const Document document = read_document(file);
    read_input_document(job, document);
    const Rewritten r = rewrite(document, job, changes);
    require_all(r);
    const std::string copy = copy_in(folder, file, r.text);
    Launch out{command_, r.environment, written(r, document.name + ": ")};
    if (shell_)
      replace_script(out.command, *shell_, with_file(shell_->script, file, copy), folder);
    else
      replace_file(out.command, file, copy);
    return out;
  }

  // The one file of the command that holds settings.
  std::string settings_file() const {
    for (const std::string& word : shell_ ? words_of(shell_->script) : command_)
      for (const std::string& file : {word, word.substr(word.find('=') + 1)}) {
        std::error_code error;
        if (!fs::is_regular_file(file, error)) continue;
        try {
          const Document d = read_document(file);
          const Format* format = d.kind == Document::Kind::text ? nullptr : format_of(d);
          if (format && format->writes && format->rank == Rank::trainer) return file;
        } catch (const Error&) {  // not one of settings
        }
      }
    return "";
  }

  std::vector<std::string> command_;
  std::optional<ShellCommand> shell_;
  Job job_;
};

}  // namespace

std::unique_ptr<RunSettings> settings_of_trainer(const std::vector<std::string>& command, std::string* why) {
  if (command.size() < 2 && !shell_command(command)) {
    *why = "one word is no training command";
    return nullptr;
  }
  try {
    return std::make_unique<OfTrainer>(command);
  } catch (const Error& e) {
    *why = e.what();
    return nullptr;
  }
}

}  // namespace plimsoll
