#include "scale/run_settings.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "job/command_line.h"
#include "job/formats/format.h"
#include "job/input.h"
#include "job/placed.h"
#include "job/values.h"
#include "job/writer.h"
#include "scale/run_folder.h"
#include "util/text.h"

namespace plimsoll {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

std::optional<int64_t> whole(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

// ---- templates

std::string filled(std::string text, const RunValues& v) {
  for (const auto& [name, value] :
       {std::pair("{batch}", v.batch), std::pair("{accumulation}", v.accumulation), std::pair("{workers}", v.workers)})
    for (size_t at; (at = text.find(name)) != std::string::npos;) text.replace(at, std::string(name).size(), std::to_string(value));
  return text;
}

struct Place {
  enum class Kind : uint8_t { flag, word, variable, key } kind = Kind::flag;
  std::string name;     // "--batch", "batch" of batch=4, "BATCH", "training.batch"
  std::string value;    // the template
  size_t at = 0;        // of the word: the flag, key=value, the file
  bool joined = false;  // --flag=value in one word
  bool absent = false;  // a flag that the command does not have yet
  std::string file;
};

bool is_variable(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; });
}

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

class ByTemplates final : public RunSettings {
 public:
  ByTemplates(std::vector<std::string> command, const std::vector<std::string>& templates, const RunValues& given)
      : command_(std::move(command)), now_(given) {
    for (const std::string& t : templates) add(t);
    for (const Place& p : places_) {
      read(p, "{batch}", now_.batch, 0);
      read(p, "{accumulation}", now_.accumulation, 0);
      read(p, "{workers}", now_.workers, -1);
    }
    if (says("{accumulation}") && now_.accumulation == 0) now_.accumulation = 1;
    if (says("{batch}") && now_.batch == 0)
      throw Error("[run] the micro-batch to begin with is not known", "the command does not say it: --batch N", ExitCode::usage);
    if (says("{workers}") && now_.workers < 0)
      throw Error("[run] the number of workers to begin with is not known", "the command does not say it: --workers N", ExitCode::usage);
  }

  RunValues now() const override { return now_; }
  std::string how() const override {
    std::vector<std::string> names;
    for (const Place& p : places_) names.push_back(p.kind == Place::Kind::key ? p.file + ": " + p.name : p.name);
    return join(names, ", ");
  }

  Launch say(const RunValues& v, const std::string& folder) const override {
    Launch out;
    out.command = command_;
    std::map<std::string, std::vector<KeyEdit>> files;
    for (const Place& p : places_) {
      const std::string value = filled(p.value, v);
      out.written.push_back((p.kind == Place::Kind::key ? p.file + ": " : "") + p.name + (p.kind == Place::Kind::flag ? " " : "=") + value);
      switch (p.kind) {
        case Place::Kind::variable: out.environment[p.name] = value; break;
        case Place::Kind::word: out.command[p.at] = p.name + "=" + value; break;
        case Place::Kind::flag:
          if (p.absent)
            out.command.push_back(p.name), out.command.push_back(value);
          else if (p.joined)
            out.command[p.at] = p.name + "=" + value;
          else
            out.command[p.at + 1] = value;
          break;
        case Place::Kind::key: {
          Json json = Json::parse(value, nullptr, false);
          files[p.file].push_back({split_at(p.name, '.'), json.is_number() || json.is_boolean() ? json : Json(value)});
        }
      }
    }
    for (const auto& [file, edits] : files) {
      const Document d = read_document(file);
      const std::string copy = folder + "/" + fs::path(file).filename().string();
      if (const std::string problem = write_whole(copy, edit_settings(d.text, d.kind, d.name, edits)); !problem.empty())
        throw Error("[run] " + problem, "make room, or choose another folder: --state DIR");
      for (std::string& word : out.command) {
        if (word == file) word = copy;
        if (word.ends_with("=" + file)) word = word.substr(0, word.size() - file.size()) + copy;
      }
    }
    return out;
  }

 private:
  bool says(const char* what) const {
    return std::any_of(places_.begin(), places_.end(), [&](const Place& p) { return p.value.find(what) != std::string::npos; });
  }

  void add(const std::string& text) {
    const size_t equals = text.find('='), space = text.find(' ');
    const size_t end = std::min(equals, text.starts_with("--") ? space : std::string::npos);
    if (end == std::string::npos || end == 0 || text.find('{', end) == std::string::npos)
      throw Error("[run] --set '" + printable(text, 80) + "' is no NAME={batch}",
                  "e.g. --set micro_batch_size={batch} --set --accum={accumulation}", ExitCode::usage);
    Place p;
    p.name = text.substr(0, end);
    p.value = text.substr(end + 1);
    if (filled(p.value, {}).find('{') != std::string::npos)
      throw Error("[run] --set '" + printable(text, 80) + "' holds a name that is not known", "known: {batch}, {accumulation}, {workers}",
                  ExitCode::usage);
    if (filled(p.value, {}) == p.value)
      throw Error("[run] --set '" + printable(text, 80) + "' is the same for every batch",
                  "it holds one of {batch}, {accumulation}, {workers}", ExitCode::usage);
    if (p.name.starts_with("-")) {
      if (!find_flag(p, p.name)) p.kind = Place::Kind::flag, p.absent = true;
    } else if (const size_t colon = p.name.find(':'); colon != std::string::npos) {
      p.kind = Place::Kind::key;
      p.file = p.name.substr(0, colon);
      p.name = p.name.substr(colon + 1);
      if (!find_key(p, p.file))
        throw Error("[run] " + p.file + " does not say " + p.name, "give the whole path of a key that is there", ExitCode::usage);
    } else if (is_variable(p.name)) {
      p.kind = Place::Kind::variable;
    } else {
      find_anywhere(p);
    }
    places_.push_back(p);
  }

  bool find_flag(Place& p, const std::string& flag) const {
    for (size_t i = 0; i < command_.size(); ++i) {
      const bool alone = command_[i] == flag && i + 1 < command_.size();
      const bool joined = command_[i].starts_with(flag + "=");
      if (!alone && !joined) continue;
      p.kind = Place::Kind::flag;  // the last of several counts
      p.name = flag;
      p.at = i;
      p.joined = joined;
    }
    return p.name == flag && (p.at > 0 || p.joined);
  }

  bool find_key(const Place& p, const std::string& file) const {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) return false;
    try {
      const Document d = read_document(file);
      const Json* at = &d.value;
      for (const std::string& key : split_at(p.name, '.')) {
        if (!at->is_object() || !at->contains(key)) return false;
        at = &(*at)[key];
      }
      return true;
    } catch (const Error&) {  // a script, weights
      return false;
    }
  }

  void find_anywhere(Place& p) const {
    const std::string name = p.name;
    if (find_flag(p, "--" + name) || find_flag(p, "--" + dashed(name))) return;
    p.name = name;
    for (size_t i = 0; i < command_.size(); ++i)
      if (command_[i].starts_with(name + "=")) {
        p.kind = Place::Kind::word;
        p.at = i;
        return;
      }
    for (const std::string& word : command_)
      for (const std::string& file : {word, word.substr(word.find('=') + 1)})
        if (find_key(p, file)) {
          p.kind = Place::Kind::key;
          p.file = file;
          return;
        }
    throw Error(fmt::format("[run] neither the command nor a file that it names says '{}'", printable(name, 80)),
                fmt::format("to add it: --set '--{0}={1}' as a flag, {2}={1} as a variable, FILE:{0}={1} as a key", name, p.value, "NAME"),
                ExitCode::usage);
  }

  // The value that is there, where the template is nothing else.
  void read(const Place& p, const char* what, int64_t& value, int64_t unknown) const {
    if (p.value != what || value != unknown) return;
    std::string text;
    switch (p.kind) {
      case Place::Kind::variable:
        if (const char* set = std::getenv(p.name.c_str())) text = set;
        break;
      case Place::Kind::word: text = command_[p.at].substr(p.name.size() + 1); break;
      case Place::Kind::flag:
        if (!p.absent) text = p.joined ? command_[p.at].substr(p.name.size() + 1) : command_[p.at + 1];
        break;
      case Place::Kind::key: {
        const Document d = read_document(p.file);
        const Json* at = &d.value;
        for (const std::string& key : split_at(p.name, '.')) at = &(*at)[key];
        text = dump(*at);
      }
    }
    if (const auto number = whole(text)) value = *number;
  }

  std::vector<std::string> command_;
  std::vector<Place> places_;
  RunValues now_;
};

// ---- trainers that are known

class OfTrainer final : public RunSettings {
 public:
  OfTrainer(std::vector<std::string> command, Job job) : command_(std::move(command)), job_(std::move(job)) {}

  RunValues now() const override {
    const Json workers = value_of(job_, "workers");
    return {job_.batch, job_.accumulation, workers.is_number_integer() && job_.origin.contains("workers") ? workers.get<int64_t>() : -1};
  }
  std::string how() const override { return "the settings of " + job_.trainer; }

  Launch say(const RunValues& v, const std::string& folder) const override {
    Changes changes = {{"batch", v.batch}, {"accumulation", v.accumulation}};
    if (v.workers >= 0 && v.workers != now().workers) changes.emplace_back("workers", v.workers);
    try {
      return by_flags(changes);
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

  Launch by_flags(const Changes& changes) const {
    const Rewritten r = rewrite(command_document(command_), job_, changes);
    require_all(r);
    return {shell_words(r.text), r.environment, written(r, "")};
  }

  Launch by_file(const std::string& file, const Changes& changes, const std::string& folder) const {
    Job job;
    const Document document = read_document(file);
    read_input_document(job, document);
    const Rewritten r = rewrite(document, job, changes);
    require_all(r);
    const std::string copy = folder + "/" + fs::path(file).filename().string();
    if (const std::string problem = write_whole(copy, r.text); !problem.empty())
      throw Error("[run] " + problem, "make room, or choose another folder: --state DIR");
    Launch out{command_, r.environment, written(r, document.name + ": ")};
    for (std::string& word : out.command) {
      if (word == file) word = copy;
      if (word.ends_with("=" + file)) word = word.substr(0, word.size() - file.size()) + copy;
    }
    return out;
  }

  // The one file of the command that holds settings.
  std::string settings_file() const {
    for (const std::string& word : command_)
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
  Job job_;
};

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

std::string to_string(const RunValues& v) {
  std::string out = v.batch > 0 ? fmt::format("batch {}", v.batch) : "";
  if (v.accumulation > 0) out += fmt::format(" x {}", v.accumulation);
  if (v.workers >= 0) out += fmt::format("{}{} workers", out.empty() ? "" : ", ", v.workers);
  return out;
}

std::unique_ptr<RunSettings> settings_by_templates(const std::vector<std::string>& command, const std::vector<std::string>& templates,
                                                   const RunValues& given) {
  return std::make_unique<ByTemplates>(command, templates, given);
}

std::unique_ptr<RunSettings> settings_of_trainer(const std::vector<std::string>& command, std::string* why) {
  if (command.size() < 2) {
    *why = "one word is no training command";
    return nullptr;
  }
  try {
    Job job;
    read_input(job, command);
    auto out = std::make_unique<OfTrainer>(command, std::move(job));
    return out;
  } catch (const Error& e) {
    *why = e.what();
    return nullptr;
  }
}

Resume resume_of_trainer(const std::vector<std::string>& command) {
  Job job;
  try {
    read_input(job, command);
  } catch (const Error&) {
    return {};
  }
  const std::string& t = job.trainer;
  const Document words = command_document(command);
  const std::string by_words = output_by_words(words), output = by_words.empty() ? output_by_files(command) : by_words;
  if (t == "axolotl") return {"--auto-resume-from-checkpoints", "", "auto_resume_from_checkpoints of axolotl"};  // finds it itself
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

std::vector<std::string> resume_words(const Resume& resume) {
  if (resume.flag.empty()) return {};
  std::string newest;
  fs::file_time_type when{};
  if (!resume.checkpoints.empty()) {
    glob_t found{};
    if (glob(resume.checkpoints.c_str(), 0, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; ++i) {
        std::error_code error;
        const auto time = fs::last_write_time(found.gl_pathv[i], error);
        if (!error && (newest.empty() || time >= when)) newest = found.gl_pathv[i], when = time;
      }
    globfree(&found);
    if (newest.empty()) return {};
  }
  std::vector<std::string> words = shell_words(resume.flag);
  for (std::string& word : words)
    if (const size_t at = word.find("{checkpoint}"); at != std::string::npos) word.replace(at, 12, newest);
  return words;
}

}  // namespace plimsoll
