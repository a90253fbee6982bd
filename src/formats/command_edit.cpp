#include "formats/command_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "formats/command_line.h"
#include "job/config.h"
#include "util/error.h"
#include "util/shell.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

std::string word_of(const Json& value) { return value.is_string() ? value.get<std::string>() : dump(value); }

// Values of a flag as words, quoted.
std::string value_words(const Json& value, const std::string& flag) {
  if (!value.is_array() || !takes_many(flag)) return shell_quoted(word_of(value));
  std::string out;
  for (const Json& item : value) out += (out.empty() ? "" : " ") + shell_quoted(word_of(item));
  return out;
}

bool by_presence(FlagStyle style) { return style == FlagStyle::switches || style == FlagStyle::dashes || style == FlagStyle::dotted; }

// Flags with JSON as their value have the keys below their name in it.
bool nests(FlagStyle style) { return style != FlagStyle::dotted && style != FlagStyle::words; }

std::string flag_name(const std::vector<std::string>& path, FlagStyle style) { return nests(style) ? path.front() : join(path, "."); }

Json nested_value(const KeyEdit& edit) {
  Json value = edit.value;
  for (size_t i = edit.path.size() - 1; i > 0; --i) value = Json{{edit.path[i], value}};
  return value;
}

class Script {
 public:
  Script(const std::string& text, const std::string& name, size_t command)
      : text_(text), name_(name), commands_(script_commands(text, name)) {
    if (command >= commands_.size()) throw Error("[script] " + name + " lost its training command", "edit it by hand");
    command_ = &commands_[command];
  }

  std::string with_flag(const KeyEdit& edit, FlagStyle style) {
    const std::string flag = flag_name(edit.path, style);
    for (const size_t number : command_->places.arguments) {
      std::string key = word(number).text.substr(0, word(number).text.find('='));
      key.erase(0, std::min(key.find_first_not_of("+~"), key.size()));
      if (key != join(edit.path, ".") || word(number).text.find('=') == std::string::npos) continue;
      return edit.value.is_discarded() ? without(word(number), word(number)) : with_assigned(number, edit.value, flag);
    }
    const auto it = command_->places.flags.find(flag);
    if (it == command_->places.flags.end()) return with_new_flag(edit, style, flag);
    if (it->second.times > 1) refuse("--" + flag, "the flag is there more than once", "keep one of them");
    if (edit.value.is_discarded() && edit.path.size() == 1) {
      const FlagWords& place = it->second;
      return without(word(place.flag), place.values.empty() ? word(place.flag) : word(place.values.back()));
    }
    Json value = edit.value;
    if (nests(style) && edit.path.size() > 1) {
      const Json old = command_->document.value["flags"][flag];
      value = nested_value(edit);
      if (old.is_object()) {
        Json merged = old;
        merged.merge_patch(value);
        value = std::move(merged);
      }
    }
    return with_value(it->second, value, style, flag);
  }

  std::string with_variable(const std::string& variable, const std::string& value) {
    if (const auto own = command_->places.environment.find(variable); own != command_->places.environment.end())
      return with_assigned(own->second, value, variable);
    if (const std::optional<Place> place = assignment_of(variable, variable)) return spliced(*place, shell_quoted(value));
    const size_t begin = command_->words.front().begin;
    const size_t line = begin == 0 ? 0 : text_.rfind('\n', begin - 1) + 1;  // npos + 1 is 0
    const std::string indent = text_.substr(line, begin - line);
    const bool script = text_.find('\n') != std::string::npos;
    if (!script || indent.find_first_not_of(" \t") != std::string::npos)
      return spliced({begin, begin}, variable + "=" + shell_quoted(value) + " ");
    return spliced({line, line}, indent + "export " + variable + "=" + shell_quoted(value) + line_end());
  }

 private:
  struct Place {
    size_t begin, end;
  };

  [[noreturn]] void refuse(const std::string& what, const std::string& why, const std::string& hint) const {
    throw Error(fmt::format("[{}] {} cannot be written: {}", name_, what, why), hint);
  }

  const ShellWord& word(size_t number) const { return command_->words[number]; }
  std::string raw(const Place& p) const { return text_.substr(p.begin, p.end - p.begin); }
  std::string spliced(const Place& p, const std::string& put) const { return text_.substr(0, p.begin) + put + text_.substr(p.end); }
  std::string line_end() const {
    const size_t line = text_.find('\n');
    return line != std::string::npos && line > 0 && text_[line - 1] == '\r' ? "\r\n" : "\n";
  }

  // Behind the '=' of a word.
  Place behind_equals(const ShellWord& w, const std::string& what) const {
    const size_t equals = text_.find('=', w.begin);
    if (equals == std::string::npos || equals >= w.end || text_[w.begin] == '"' || text_[w.begin] == '\'')
      refuse(what, "the word is in quotes as a whole", "write it without them");
    return {equals + 1, w.end};
  }

  // The one line `NAME=value` of the script; none when it has no such line.
  std::optional<Place> assignment_of(const std::string& variable, const std::string& what) const {
    std::optional<Place> found;
    for (const ScriptCommand& c : commands_) {
      for (size_t i = 0; i + 1 < c.words.size(); ++i)
        if ((c.words[i].text == "for" || c.words[i].text == "read") && c.words[i + 1].text == variable)
          refuse(what, fmt::format("the script gives several values to {}", variable), "write the value in its place");
      const auto it = c.places.environment.find(variable);
      if (it == c.places.environment.end()) continue;
      if (found) refuse(what, fmt::format("the script sets {} more than once", variable), "write the value in its place");
      found = behind_equals(c.words[it->second], what);
    }
    if (found && raw(*found).find_first_of("$`(") != std::string::npos)
      refuse(what, fmt::format("the script works {} out: {}", variable, printable(raw(*found), 60)), "write the value there");
    return found;
  }

  // Where the value itself is: the place, or the line that sets the variable which stands there.
  Place origin_of(const Place& place, const std::string& what) const {
    const std::string text = raw(place);
    if (text.find_first_of("$`") == std::string::npos) return place;
    static const std::regex kVariable(R"re("?\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}$]*)?\})"?)re");
    std::smatch m;
    if (!std::regex_match(text, m, kVariable))
      refuse(what, fmt::format("the shell works it out: {}", printable(text, 60)), "write the value in its place");
    const std::string variable = m[1].matched ? m[1].str() : m[2].str();
    if (const std::optional<Place> set = assignment_of(variable, what)) return *set;
    if (!m[3].matched) refuse(what, fmt::format("{} is not set in this script", variable), "write the value in its place");
    const size_t begin = place.begin + static_cast<size_t>(m.position(3)) + 2;
    return {begin, begin + static_cast<size_t>(m.length(3)) - 2};
  }

  std::string with_assigned(size_t number, const Json& value, const std::string& what) const {
    return spliced(origin_of(behind_equals(word(number), what), what), shell_quoted(word_of(value)));
  }

  std::string with_value(const FlagWords& place, const Json& value, FlagStyle style, const std::string& flag) const {
    const ShellWord& w = word(place.flag);
    const bool joined = w.text.find('=') != std::string::npos;
    if (joined) return with_assigned(place.flag, value, "--" + flag);
    if (by_presence(style) && value == false) return without(w, place.values.empty() ? w : word(place.values.back()));
    if (place.values.empty()) return value == true ? text_ : spliced({w.end, w.end}, " " + value_words(value, flag));
    const Place all{word(place.values.front()).begin, word(place.values.back()).end};
    if (place.values.size() > 1) {
      if (raw(all).find_first_of("$`") != std::string::npos)
        refuse("--" + flag, "the shell works it out", "write the values in their place");
      return spliced(all, value_words(value, flag));
    }
    return spliced(origin_of(all, "--" + flag), value_words(value, flag));
  }

  // The words and the blanks before them; a line that held nothing else goes, too.
  std::string without(const ShellWord& first, const ShellWord& last) const {
    const size_t before = first.begin == 0 ? std::string::npos : text_.find_last_not_of(" \t", first.begin - 1);
    const size_t behind = text_.find_first_not_of(" \t", last.end);
    const bool own_line = before != std::string::npos && text_[before] == '\n';
    if (!own_line) return spliced({before == std::string::npos ? 0 : before + 1, last.end}, "");
    if (behind != std::string::npos && text_[behind] == '\\') {  // the command goes on below
      const size_t next = text_.find('\n', behind);
      return spliced({before + 1, next == std::string::npos ? text_.size() : next + 1}, "");
    }
    size_t from = text_.find_last_of('\\', before);  // the continuation that leads here
    from = from == std::string::npos ? before + 1 : text_.find_last_not_of(" \t", from - 1) + 1;
    return spliced({from, last.end}, "");
  }

  // Behind the last word before a redirection; on a line of its own where the command has such lines.
  std::string with_new_flag(const KeyEdit& edit, FlagStyle style, const std::string& flag) const {
    const std::string put = flag_words(edit, style);
    if (put.empty()) return text_;
    static const std::regex kRedirection(R"re([0-9]*[<>].*)re");
    size_t count = command_->words.size();
    for (size_t i = 0; i < command_->words.size(); ++i) {
      const std::string raw_word = raw({word(i).begin, word(i).end});
      if (std::regex_match(raw_word, kRedirection)) count = std::min(count, i);
      const bool value = i > 0 && is_value(i);
      if (raw_word.starts_with('$') && !value && i > 0)
        refuse("--" + flag, fmt::format("{} may hold it already", printable(raw_word, 40)), "write its words in their place");
    }
    if (count == 0) refuse("--" + flag, "the command has no words", "edit it by hand");
    const ShellWord& last = word(count - 1);
    const size_t begin = last_line(count);
    if (begin == std::string::npos) return spliced({last.end, last.end}, " " + put);
    const size_t first = text_.find_first_not_of(" \t", begin);
    return spliced({last.end, last.end}, " \\" + line_end() + text_.substr(begin, first - begin) + put);
  }

  bool is_value(size_t number) const {
    for (const auto* flags : {&command_->places.flags, &command_->places.launcher_flags})
      for (const auto& [name, place] : *flags)
        if (std::find(place.values.begin(), place.values.end(), number) != place.values.end()) return true;
    return false;
  }

  // The beginning of the last line of the command, when that is not its first.
  size_t last_line(size_t count) const {
    const size_t begin = text_.rfind('\n', word(count - 1).begin);
    return begin != std::string::npos && begin > command_->words.front().begin ? begin + 1 : std::string::npos;
  }

  const std::string& text_;
  const std::string& name_;
  std::vector<ScriptCommand> commands_;
  const ScriptCommand* command_ = nullptr;
};

}  // namespace

std::string flag_words(const KeyEdit& edit, FlagStyle style) {
  std::string flag = flag_name(edit.path, style);
  if (style == FlagStyle::words) return edit.value.is_discarded() ? "~" + flag : shell_quoted(flag + "=" + word_of(edit.value));
  if (edit.value.is_discarded()) return "";
  if (style == FlagStyle::dashes && edit.value.is_array()) return "";  // axolotl's command takes one text for each key
  const Json value = nests(style) ? nested_value(edit) : edit.value;
  const std::string words = value_words(value, flag);
  if (style == FlagStyle::dashes) std::replace(flag.begin(), flag.end(), '_', '-');
  if (by_presence(style) && value.is_boolean()) return value == true ? "--" + flag : "";
  return "--" + flag + " " + words;
}

std::string edit_flags(const std::string& script, const std::string& name, size_t command, FlagStyle style,
                       const std::vector<KeyEdit>& edits) {
  std::string out = script;
  for (const KeyEdit& edit : edits) out = Script(out, name, command).with_flag(edit, style);
  return out;
}

std::string edit_environment(const std::string& script, const std::string& name, size_t command, const std::string& variable,
                             const std::string& value) {
  return Script(script, name, command).with_variable(variable, value);
}

}  // namespace plimsoll
