#include "formats/command_line.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "formats/launchers.h"
#include "formats/wrappers.h"
#include "job/job_file.h"
#include "job/settings.h"
#include "util/error.h"
#include "util/shell.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

bool is_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || std::isdigit(static_cast<unsigned char>(word[0]))) return false;
  return std::all_of(word.begin(), word.begin() + static_cast<long>(equals), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

std::string flag_name(const std::string& word) {
  std::string name = word.substr(word.find_first_not_of('-'));
  name = name.substr(0, name.find('='));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool is_flag(const std::string& word) {
  const size_t name = word.find_first_not_of('-');
  return name != 0 && name != std::string::npos && !std::isdigit(static_cast<unsigned char>(word[name])) && word[name] != '.';
}

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Flags of launchers that take no value, so that the word after them is the program.
bool takes_value(const std::string& name) {
  static const std::vector<std::string> kSwitches{"standalone",
                                                  "multi_gpu",
                                                  "no_python",
                                                  "use_deepspeed",
                                                  "use_fsdp",
                                                  "cpu",
                                                  "tpu",
                                                  "m",
                                                  "module",
                                                  "quiet",
                                                  "exclusive",
                                                  "label",
                                                  "unbuffered",
                                                  "no_local_rank",
                                                  "debug",
                                                  "enable_cpu_affinity",
                                                  "use_megatron_lm",
                                                  "use_parallelism_config",
                                                  "tpu_cluster",
                                                  "tpu_use_sudo",
                                                  "downcast_bf16",
                                                  "dynamo_use_dynamic",
                                                  "dynamo_use_fullgraph",
                                                  "same_network",
                                                  "allow_run_as_root",
                                                  "force_multi",
                                                  "no_ssh"};
  return !holds(kSwitches, name);
}

// What a word stands for: also JSON, as in --gradient_checkpointing_kwargs '{"use_reentrant": false}'.
Json word_value(const std::string& word) {
  if (word.starts_with('{') && word.size() < 100'000 && Json::accept(word)) return parse_json_text(word, "command line");
  return parse_scalar(word);
}

void add_flag(Json& flags, const std::string& name, const Json& value) {
  if (!flags.contains(name)) {
    flags[name] = value;
  } else {
    if (!flags[name].is_array()) flags[name] = Json::array({flags[name]});
    flags[name].push_back(value);
  }
}

bool is_python(const std::string& program) { return program == "python" || program == "python3" || program.starts_with("python3."); }

class Words {
 public:
  explicit Words(const std::vector<std::string>& words) : words_(words) {}
  bool more() const { return at_ < words_.size(); }
  const std::string& peek() const { return words_[at_]; }
  std::string take() { return words_[at_++]; }
  void skip(size_t count) { at_ += count; }

  size_t at() const { return at_; }

  // One flag with its value or values.
  void take_flag(Json& flags, bool (*has_value)(const std::string&), std::map<std::string, FlagWords>& places) {
    const size_t number = at_;
    const std::string word = take(), name = flag_name(word);
    const auto known = places.find(name);
    FlagWords& place = places[name] = {number, {}, known == places.end() ? 1 : known->second.times + 1};
    if (const size_t equals = word.find('='); equals != std::string::npos)
      return add_flag(flags, name, word_value(word.substr(equals + 1)));
    if (!more() || is_flag(peek()) || !has_value(name)) return add_flag(flags, name, true);
    do {
      place.values.push_back(at_);
      add_flag(flags, name, word_value(take()));
    } while (takes_many(name) && more() && !is_flag(peek()));
  }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 0;
};

bool always(const std::string&) { return true; }

void read_launcher(Words& words, Json& value, const std::string& launcher, std::map<std::string, FlagWords>& places) {
  value["launcher"] = launcher;
  Json& flags = value["launcher_flags"];
  if (flags.is_null()) flags = Json::object();
  while (words.more() && (is_flag(words.peek()) || words.peek() == "launch" || words.peek() == "run")) {
    if (is_flag(words.peek()))
      words.take_flag(flags, takes_value, places);
    else
      words.take();
  }
  count_processes(value);
}

// `$NAME`, `${NAME}` and `${NAME:-otherwise}`; a variable without a value stays as it is written.
std::string with_variables(const std::string& word, const Json& variables) {
  std::string out;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '$' || i + 1 == word.size()) {
      out += word[i];
      continue;
    }
    const bool braces = word[i + 1] == '{';
    const size_t begin = i + 1 + (braces ? 1 : 0);
    size_t end = begin;
    while (end < word.size() && (std::isalnum(static_cast<unsigned char>(word[end])) || word[end] == '_')) ++end;
    const std::string name = word.substr(begin, end - begin);
    const size_t close = braces ? word.find('}', end) : end;
    if (name.empty() || close == std::string::npos) {
      out += word[i];
      continue;
    }
    if (variables.contains(name))
      out += variables[name].get<std::string>();
    else if (braces && word.compare(end, 2, ":-") == 0)
      out += word.substr(end + 2, close - end - 2);
    else
      out += word.substr(i, close + (braces ? 1 : 0) - i);
    i = close - (braces ? 0 : 1);
    if (out.size() > (1 << 20))
      throw Error("[script] the variable " + printable(name, 40) + " grows beyond 1 MiB", "this is no training script");
  }
  return out;
}

// Where the commands of a script begin and end: they are separated by line ends, `;`, `&&`, `||` and `|` outside of quotes.
std::vector<std::pair<size_t, size_t>> commands_of(const std::string& script) {
  std::vector<std::pair<size_t, size_t>> commands;
  size_t begin = 0;
  char quote = 0;
  for (size_t i = 0; i < script.size(); ++i) {
    const char c = script[i];
    const bool starts_word = i == begin || std::isspace(static_cast<unsigned char>(script[i - 1]));
    if (c == '\\' && i + 1 < script.size() && quote != '\'') {
      ++i;
    } else if (quote || c == '\'' || c == '"') {
      quote = !quote ? c : c == quote ? 0 : quote;
    } else if (c == '#' && starts_word) {
      while (i + 1 < script.size() && script[i + 1] != '\n') ++i;
    } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
      commands.emplace_back(begin, i);
      begin = i + 1;
    }
  }
  commands.emplace_back(begin, script.size());
  return commands;
}

// What `#SBATCH` lines say, under the names that Slurm gives to the job.
Json slurm_variables(const std::string& script) {
  Json variables = Json::object();
  std::istringstream lines(script);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#SBATCH")) continue;
    const std::vector<std::string> list = shell_words(line.substr(7));
    Words words(list);
    Json flags = Json::object();
    std::map<std::string, FlagWords> places;
    while (words.more())
      if (is_flag(words.peek()))
        words.take_flag(flags, always, places);
      else
        words.take();
    const auto text_of = [&](const char* name) {
      const Json& value = flags[name].is_array() ? flags[name].back() : flags[name];
      return value.is_string() ? value.get<std::string>() : dump(value);
    };
    for (const char* name : {"nodes", "N"})
      if (flags.contains(name)) variables["SLURM_NNODES"] = variables["SLURM_JOB_NUM_NODES"] = text_of(name);
    for (const char* name : {"ntasks", "n"})
      if (flags.contains(name)) variables["SLURM_NTASKS"] = text_of(name);
    for (const char* name : {"ntasks_per_node", "gpus_per_node"})
      if (flags.contains(name)) variables[std::string("SLURM_") + (name[0] == 'n' ? "NTASKS" : "GPUS") + "_PER_NODE"] = text_of(name);
  }
  return variables;
}

int64_t count_of(const Json& variables, const char* name) {
  const Json value = variables.contains(name) ? parse_scalar(variables[name].get<std::string>()) : Json();
  return is_count(value) ? value.get<int64_t>() : 1;
}

}  // namespace

bool takes_many(const std::string& name) {
  static const std::vector<std::string> kMany{
      "network_args",           "optimizer_args", "lr_scheduler_args", "lora_target_modules",  "lora_modules_to_save",
      "lora_target_parameters", "base_weights",   "text_encoder_lr",   "optim_target_modules", "report_to"};
  return holds(kMany, name);
}

std::vector<ShellWord> placed_words(const std::string& text) {
  std::vector<ShellWord> words;
  ShellWord word;
  bool open = false;  // a word has begun
  const auto begin_at = [&](size_t i) {
    if (!open) word = {"", i, i};
    open = true;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      if (text[i + 1] == '\n' || text.compare(i + 1, 2, "\r\n") == 0) {
        i += text[i + 1] == '\n' ? 1 : 2;
        continue;
      }
      begin_at(i);
      word.text += text[++i];
    } else if (c == '\'' || c == '"') {
      begin_at(i);
      size_t end = i + 1;
      for (; end < text.size() && text[end] != c; ++end) {
        if (c == '"' && text[end] == '\\' && end + 1 < text.size()) ++end;
        word.text += text[end];
      }
      if (end >= text.size()) throw Error("[command] a quote is not closed: " + printable(text.substr(i), 60), "close it");
      i = end;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (open) words.push_back(word);
      open = false;
    } else if (c == '#' && !open) {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else {
      begin_at(i);
      word.text += c;
    }
    if (open) word.end = i + 1;
  }
  if (open) words.push_back(word);
  return words;
}

std::vector<std::string> shell_words(const std::string& text) {
  std::vector<std::string> words;
  for (ShellWord& word : placed_words(text)) words.push_back(std::move(word.text));
  return words;
}

Document command_document(const std::vector<std::string>& words, const std::string& name, CommandWords* places) {
  Document d;
  d.kind = Document::Kind::command;
  d.name = name;
  for (const std::string& word : words) d.text += (d.text.empty() ? "" : " ") + shell_quoted(word);
  CommandWords unused, &place = places ? *places : unused;
  Json value{{"environment", Json::object()}, {"launcher", ""},         {"processes", 1}, {"nodes", 1}, {"program", ""},
             {"arguments", Json::array()},    {"flags", Json::object()}};
  Words rest(words);
  while (rest.more() && value["program"] == "") {
    const size_t number = rest.at();
    const std::string word = rest.take(), program = fs::path(word).filename().string();
    if (is_assignment(word)) {
      place.environment[word.substr(0, word.find('='))] = number;
      value["environment"][word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    } else if (const size_t wrapped = wrapper_words(words, number); wrapped > 0) {
      rest.skip(wrapped - 1);
    } else if (is_python(program)) {
      while (rest.more() && is_flag(rest.peek()) && rest.peek() != "-m") rest.take();  // -u
      if (rest.more() && rest.peek() == "-m") {
        rest.take();
        if (!rest.more()) break;
        const std::string module = rest.take();
        if (is_launcher(module))
          read_launcher(rest, value, module, place.launcher_flags);
        else
          value["program"] = module;
      }
    } else if (is_launcher(program)) {
      read_launcher(rest, value, program, place.launcher_flags);
    } else {
      value["program"] = word;
    }
  }
  while (rest.more()) {
    if (is_flag(rest.peek())) {
      rest.take_flag(value["flags"], always, place.flags);
    } else {
      place.arguments.push_back(rest.at());
      value["arguments"].push_back(rest.take());
    }
  }
  d.value = std::move(value);
  return d;
}

std::vector<ScriptCommand> script_commands(const std::string& script, const std::string& name) {
  std::vector<ScriptCommand> commands;
  Json variables = slurm_variables(script);
  for (const auto& [begin, end] : commands_of(script)) {
    ScriptCommand command;
    command.words = placed_words(script.substr(begin, end - begin));
    if (command.words.size() > 100'000)
      throw Error("[script] " + name + " holds a command of more than 100000 words", "this is no training script");
    std::vector<std::string> words;
    for (ShellWord& word : command.words) {
      word.begin += begin;
      word.end += begin;
      words.push_back(with_variables(word.text, variables));
    }
    Document& d = command.document;
    d = command_document(words, name, &command.places);
    if (d.value["program"] == "") {
      variables.update(d.value["environment"]);
    } else {
      if (d.value["launcher"] != "" && d.value["nodes"] == 1) d.value["nodes"] = count_of(variables, "SLURM_NNODES");
      if (d.value["launcher"] == "srun" && d.value["processes"] == 1)
        d.value["processes"] = variables.contains("SLURM_NTASKS_PER_NODE")
                                   ? count_of(variables, "SLURM_NTASKS_PER_NODE")
                                   : (count_of(variables, "SLURM_NTASKS") - 1) / d.value["nodes"].get<int64_t>() + 1;
      Json environment = variables;
      environment.update(d.value["environment"]);
      d.value["environment"] = std::move(environment);
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

std::vector<Document> script_documents(const std::string& script, const std::string& name) {
  std::vector<Document> documents;
  for (ScriptCommand& command : script_commands(script, name))
    if (command.document.value["program"] != "") documents.push_back(std::move(command.document));
  return documents;
}

}  // namespace plimsoll
