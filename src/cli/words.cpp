#include "cli/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>

#include "api/list.h"
#include "cli/flag_aliases.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Words = std::vector<std::string>;

constexpr const char* kDefaultCommand = "estimate";

bool contains(const Words& words, const std::string& word) { return std::find(words.begin(), words.end(), word) != words.end(); }

Words command_names(const std::vector<CommandEntry>& tree) {
  Words out;
  for (size_t i = 1; i < tree.size(); ++i) out.push_back(tree[i].name);
  return out;
}

bool is_model(const std::string& word) {
  for (const char* list : {"presets", "models"})
    for (const std::string& name : listed_names(list))
      if (lower(name) == lower(word)) return true;
  return false;
}

bool is_there(const std::string& word) {
  std::error_code error;
  return std::filesystem::exists(word, error);
}

// A path or a name of the Hub: whoever types it means no command.
bool looks_like_an_input(const std::string& word) { return word.find_first_of("/.: ") != std::string::npos; }

// "did you mean 'plan'?" without the question; empty: nothing is near.
std::string nearest(const std::string& word, const Words& names) {
  const std::string text = did_you_mean(word, names);
  const size_t open = text.find('\''), close = text.rfind('\'');
  return text.starts_with("did you mean") && close > open ? text.substr(open + 1, close - open - 1) : "";
}

[[noreturn]] void refuse_command(const std::string& word, const Words& names) {
  const std::string meant = nearest(word, names);
  throw Error(fmt::format("unknown command {}{}", printable(word, 60), meant.empty() ? "" : fmt::format("; did you mean {}?", meant)),
              "plimsoll -h lists the commands", ExitCode::usage);
}

// The first word is no command: a run, whose estimate is wanted, or a command that is misspelt.
void require_a_run(const std::string& word, const std::vector<CommandEntry>& tree) {
  if (is_there(word) || looks_like_an_input(word) || is_model(word)) return;
  const Words names = command_names(tree);
  const std::string command = nearest(word, names);
  Words models = listed_names("presets");
  for (std::string& name : listed_names("models")) models.push_back(std::move(name));
  Words both = names;
  both.insert(both.end(), models.begin(), models.end());
  if (!command.empty() && nearest_first(word, both).front() == command) refuse_command(word, names);
  // A model's name has a digit or a hyphen in it; what has not is neither.
  if (std::any_of(word.begin(), word.end(), [](unsigned char c) { return !std::isalpha(c); })) return;
  const std::string model = nearest(word, models);
  throw Error(fmt::format("{} is no command, no model and no file{}", printable(word, 60),
                          model.empty() ? "" : fmt::format("; did you mean {}?", model)),
              "plimsoll -h lists the commands, plimsoll list presets the models", ExitCode::usage);
}

size_t end_of_own(const Words& words) { return static_cast<size_t>(std::find(words.begin(), words.end(), "--") - words.begin()); }

// With the command in front.
Words with_command(const Words& typed, const std::vector<CommandEntry>& tree) {
  const Words names = command_names(tree);
  const std::string& first = typed[0];
  if (first == "help") {
    if (typed.size() == 1) return {"--help"};
    if (!contains(names, typed[1])) refuse_command(typed[1], names);
    return {typed[1], "--help"};
  }
  if (typed.size() == 1 && first == "-v") return {"--version"};  // of a command it is --verbose
  if (contains(names, first) || contains(tree[0].options.empty() ? Words{} : Words{"-h", "--help", "-V", "--version"}, first)) return typed;
  if (first.starts_with("-") && first != "--") {
    for (size_t i = 1; i < end_of_own(typed); ++i)
      if (contains(names, typed[i]) && !is_there(typed[i]))
        throw Error(fmt::format("{} stands before the command", first), fmt::format("plimsoll {} ... {}", typed[i], first),
                    ExitCode::usage);
  } else if (first != "--") {
    require_a_run(first, tree);
  }
  Words out{kDefaultCommand};
  out.insert(out.end(), typed.begin(), typed.end());
  return out;
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word != "--" && !std::isdigit(static_cast<unsigned char>(word[1])) && word[1] != '.';
}

std::string hyphened(std::string name) {
  std::replace(name.begin() + 1, name.end(), '_', '-');
  return name;
}

const OptionEntry* option_named(const CommandEntry& command, const std::string& name) {
  for (const OptionEntry& o : command.options)
    if (!o.positional && std::find(o.names.begin(), o.names.end(), name) != o.names.end()) return &o;
  return nullptr;
}

bool is_switch(const OptionEntry& o) { return !o.takes_value; }

std::optional<bool> truth(const std::string& word) {
  const std::string text = lower(word);
  if (text == "true" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "no" || text == "off") return false;
  return std::nullopt;
}

// Reads the words behind the command one by one; `out` is what the parser is given.
class Reading {
 public:
  Reading(const CommandEntry& command, const std::vector<CommandEntry>& tree, const Words& words)
      : command_(command), tree_(tree), words_(words) {}

  void read() {
    for (at_ = 1; at_ < words_.size(); ++at_) {
      const std::string& word = words_[at_];
      if (word == "--") {
        put_words_behind_the_mark();
        out_.insert(out_.end(), words_.begin() + static_cast<long>(at_) + 1, words_.end());
        break;
      }
      if (!is_flag(word)) {
        positionals_.push_back(word);
        positional_at_.push_back(out_.size());
        out_.push_back(word);
      } else {
        read_flag(word);
      }
    }
    refuse_extra_words();
  }

  // "explain train.log -- python train.py": the parser takes words behind the mark only where none stood before it.
  void put_words_behind_the_mark() {
    for (auto at = positional_at_.rbegin(); at != positional_at_.rend(); ++at) out_.erase(out_.begin() + static_cast<long>(*at));
    out_.push_back("--");
    out_.insert(out_.end(), positionals_.begin(), positionals_.end());
  }

  const Words& words() const { return out_; }
  const Words& notes() const { return notes_; }

 private:
  void read_flag(const std::string& word) {
    const bool is_long = word.starts_with("--");
    // "-b4" has its value in it; "-batch" is a long flag with a hyphen too few.
    if (!is_long && word.size() > 2 && std::isalpha(static_cast<unsigned char>(word[2]))) refuse(word, false);
    const size_t end = is_long ? word.find('=') : 2;
    const std::string name = word.substr(0, end);
    const std::optional<std::string> value =
        end < word.size() ? std::optional(word.substr(end + (is_long || word[end] == '=' ? 1 : 0))) : std::nullopt;
    if (const OptionEntry* o = option_named(command_, name)) return take(*o, name, value);
    if (const OptionEntry* o = option_named(command_, hyphened(name))) return take(*o, hyphened(name), value);
    const std::string alias = hyphened(lower(name));
    bool known = false;
    for (const FlagAlias& a : flag_aliases()) {
      if (alias != a.typed) continue;
      const OptionEntry* o = *a.flag == '\0' ? nullptr : option_named(command_, a.flag);
      if (o) return take_alias(a, *o, word, value);
      if (*a.flag == '\0' && has_a_run()) throw Error(fmt::format("{} is no flag of {}", name, command_.name), a.note, ExitCode::usage);
      known = true;
    }
    refuse(name, known);
  }

  bool has_a_run() const { return option_named(command_, "--batch") && option_named(command_, "--seq"); }

  bool next_is_value() const { return at_ + 1 < words_.size() && words_[at_ + 1] != "--" && !option_named(command_, words_[at_ + 1]); }

  // The value that follows a flag that needs one.
  std::string value_behind(const OptionEntry& o, const std::string& typed) {
    if (!next_is_value()) throw Error(fmt::format("{} needs a value: {} {}", typed, typed, o.value), o.help, ExitCode::usage);
    return words_[++at_];
  }

  void take(const OptionEntry& o, const std::string& name, const std::optional<std::string>& value) {
    if (value) return emit(name, takes_pairs(o) ? pairs_of(*value) : *value, true);
    if (o.needs_value) return emit(name, value_behind(o, name));
    if (o.takes_value && next_is_value() && !is_flag(words_[at_ + 1])) return emit(name, words_[++at_]);
    if (takes_pairs(o) && next_is_value() && are_pairs(words_[at_ + 1])) return emit(name, pairs_of(words_[++at_]), true);
    refuse_separate_value(o, name);
    out_.push_back(name);
  }

  // A switch like --lora, whose value is KEY=VALUE and may stand behind it as a word of its own.
  static bool takes_pairs(const OptionEntry& o) { return o.value.starts_with("[=KEY=VALUE"); }
  // PEFT's defaults, which the parser would take for no value: said by one of them.
  static std::string pairs_of(const std::string& word) { return word == "{}" ? "r=8" : word; }
  static bool are_pairs(const std::string& word) { return word == "{}" || (word.find('=') != std::string::npos && !is_flag(word)); }

  // "--checkpointing false": the word behind it would be taken for the run.
  void refuse_separate_value(const OptionEntry& o, const std::string& name) {
    if (!next_is_value() || is_there(words_[at_ + 1])) return;
    const std::string& next = words_[at_ + 1];
    const std::string shown = o.value.substr(0, o.value.find_last_not_of(']') + 1);
    bool meant = truth(next).has_value();
    const size_t equals = shown.find('=');
    if (equals != std::string::npos)
      for (const std::string& choice : split_at(shown.substr(equals + 1), '|')) {
        const size_t key = choice.find('=');
        meant = meant || next == choice || (key != std::string::npos && next.starts_with(choice.substr(0, key + 1)));
      }
    if (meant)
      throw Error(fmt::format("{} is a switch, and '{}' behind it would be a run", name, next), fmt::format("write {}={}", name, next),
                  ExitCode::usage);
  }

  void take_alias(const FlagAlias& a, const OptionEntry& o, const std::string& typed, std::optional<std::string> value) {
    const std::string template_text = a.value;
    const size_t hole = template_text.find("{}");
    const bool stands_alone = hole == std::string::npos && (!template_text.empty() || is_switch(o));
    if (stands_alone && !value && at_ + 1 < words_.size() && truth(words_[at_ + 1]) && !is_there(words_[at_ + 1])) value = words_[++at_];
    if (stands_alone && value && !truth(*value) && !template_text.empty())
      throw Error(fmt::format("{} takes no value", typed.substr(0, typed.find('='))), fmt::format("it is {} {}", a.flag, a.value),
                  ExitCode::usage);
    if (*a.note != '\0') notes_.emplace_back(a.note);
    if (stands_alone && template_text.empty()) {
      value ? emit(a.flag, lower(*value) == "no" || lower(*value) == "off" ? "false" : *value, true) : out_.push_back(a.flag);
      return;
    }
    if (stands_alone) {
      if (!value || *truth(*value)) emit(a.flag, template_text);
      return;
    }
    std::string text = value ? *value : value_behind(o, typed);
    for (const std::string& pair : split_at(a.values, ','))
      if (const size_t equals = pair.find('='); equals != std::string::npos && lower(text) == pair.substr(0, equals)) {
        text = pair.substr(equals + 1);
        break;
      }
    if (hole == std::string::npos) return emit(a.flag, text);
    std::replace(text.begin(), text.end(), ',', '+');  // a list within a pair
    emit_part(o, a.flag, std::string(template_text).replace(hole, 2, text));
  }

  void emit(const std::string& name, const std::string& value, bool joined = false) {
    if (const auto part = parts_.find(name); part != parts_.end()) {
      out_[part->second] += "," + value;
      return;
    }
    if (joined && name.starts_with("--")) {
      out_.push_back(name + "=" + value);
    } else {
      out_.push_back(name);
      out_.push_back(value);
    }
    valued_[name] = out_.size() - 1;
  }

  // --lora-r 16 --lora-alpha 32 are one --lora.
  void emit_part(const OptionEntry& o, const std::string& name, const std::string& value) {
    if (const auto before = valued_.find(name); before != valued_.end()) {
      out_[before->second] += "," + value;
    } else {
      emit(name, value, takes_pairs(o));
    }
    parts_[name] = valued_[name];
  }

  [[noreturn]] void refuse(const std::string& typed, bool known_elsewhere) const {
    const std::string flag = hyphened(typed);
    std::map<std::string, std::string> meant;  // a spelling without its hyphens, and the flag
    Words spellings;
    const auto add = [&](const std::string& spelling, const std::string& name) {
      if (meant.emplace(spelling.substr(2), name).second) spellings.push_back(spelling.substr(2));
    };
    for (const OptionEntry& o : command_.options)
      for (const std::string& n : o.names)
        if (!o.positional && n.starts_with("--")) add(n, n);
    for (const FlagAlias& a : flag_aliases())
      if (*a.flag != '\0' && std::string(a.typed).starts_with("--") && option_named(command_, a.flag)) add(a.typed, a.flag);
    std::string hint = fmt::format("plimsoll {} -h shows the usual flags, --help all of them", command_.name);
    if (behind_a_command())
      hint = fmt::format("a training command goes behind --: plimsoll {} -- {} ...", command_.name, join(positionals_, " "));
    const std::string message = fmt::format("unknown flag {}", printable(typed, 60));
    for (const CommandEntry& other : tree_)
      if (!known_elsewhere && flag.starts_with("--") && option_named(other, flag))
        throw Error(fmt::format("{}; plimsoll {} has one", message, other.name), hint, ExitCode::usage);
    const std::string bare = flag.substr(flag.starts_with("--") ? 2 : 1);
    const std::string near = bare.size() < 2 ? "" : nearest(bare, spellings);
    throw Error(message + (near.empty() ? "" : fmt::format("; did you mean {}?", meant.at(near))), hint, ExitCode::usage);
  }

  const OptionEntry* positional() const {
    const auto it = std::find_if(command_.options.begin(), command_.options.end(), [](const OptionEntry& o) { return o.positional; });
    return it == command_.options.end() ? nullptr : &*it;
  }

  bool takes_a_command() const { return positional() && positional()->value.find("-- COMMAND") != std::string::npos; }

  static bool is_script(const std::string& word) { return word.ends_with(".py") || word.ends_with(".sh"); }
  static bool is_a_run(const std::string& word) {
    for (const char* starter : {"python", "python3", "torchrun", "accelerate", "deepspeed"})
      if (word == starter) return false;  // even where a folder is called so
    return !is_script(word) && (is_there(word) || is_model(word) || word.find('/') != std::string::npos);
  }

  // "run python train.py --lr 1": the flag is the trainer's.
  bool behind_a_command() const {
    return takes_a_command() && !positionals_.empty() && (positionals_.size() > 1 || is_script(positionals_[0])) &&
           !is_a_run(positionals_[0]);
  }

  // "estimate gpt2 will it fit?": a run is one word, or a command behind --.
  void refuse_extra_words() const {
    if (!takes_a_command() || !positional()->value.starts_with("MODEL") || positionals_.size() < 2 || !is_a_run(positionals_[0])) return;
    const Words extra(positionals_.begin() + 1, positionals_.end());
    throw Error(fmt::format("'{}' after {}: {} takes one run", printable(join(extra, " "), 80), positionals_[0], command_.name),
                extra.size() == 1 && (is_model(extra[0]) || is_there(extra[0]))
                    ? fmt::format("several: plimsoll compare {} {}", positionals_[0], extra[0])
                    : "leave the extra words out; a training command goes behind --",
                ExitCode::usage);
  }

  const CommandEntry& command_;
  const std::vector<CommandEntry>& tree_;
  const Words& words_;
  size_t at_ = 0;
  Words out_, notes_, positionals_;
  std::vector<size_t> positional_at_;             // of them in out_
  std::map<std::string, size_t> valued_, parts_;  // a flag, and where its value is in out_
};

}  // namespace

bool asks_for_help(const Words& words) {
  const auto own = words.begin() + static_cast<long>(end_of_own(words));
  return std::any_of(words.begin(), own, [](const std::string& w) { return w == "-h" || w == "--help"; });
}

CommandLine understood(const Words& typed, const std::vector<CommandEntry>& tree) {
  if (typed.empty()) return {};
  const Words words = with_command(typed, tree);
  const auto command = std::find_if(tree.begin() + 1, tree.end(), [&](const CommandEntry& c) { return c.name == words[0]; });
  if (command == tree.end()) return {words, {}};
  if (asks_for_help(words)) return {{words[0], contains(words, "--help") ? "--help" : "-h"}, {}};
  Reading reading(*command, tree, words);
  reading.read();
  CommandLine out{{words[0]}, reading.notes()};
  const Words& rest = reading.words();
  out.words.insert(out.words.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace plimsoll
