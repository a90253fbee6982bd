// Settings of a command that nobody knows: by templates.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "formats/placed.h"
#include "job/config.h"
#include "supervise/launch.h"
#include "supervise/run_settings.h"
#include "supervise/shell_command.h"
#include "util/error.h"
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
      replace_file(out.command, file, copy_in(folder, file, edit_settings(d.text, d.kind, d.name, edits)));
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
    if (!is_variable(p.name) && p.name.find(':') == std::string::npos) refuse_in_shell(text);
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

  // Words behind the text of `sh -c` are the shell's, not the program's.
  void refuse_in_shell(const std::string& text) const {
    const auto shell = shell_command(command_);
    if (shell && !shell->file)
      throw Error("[run] --set '" + printable(text, 80) + "' cannot be written into the text of a shell's -c",
                  "by a variable: --set 'BATCH={batch}' and $BATCH in the text; or give the command itself behind --", ExitCode::usage);
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

}  // namespace

std::unique_ptr<RunSettings> settings_by_templates(const std::vector<std::string>& command, const std::vector<std::string>& templates,
                                                   const RunValues& given) {
  return std::make_unique<ByTemplates>(command, templates, given);
}

}  // namespace plimsoll
