#include "job/command_line.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "job/settings.h"
#include "util/error.h"
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
  return word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])) && word[1] != '.';
}

// Flags of launchers that take no value, so that the word after them is the program.
bool takes_value(const std::string& name) {
  static const std::vector<std::string> kSwitches{"standalone", "multi_gpu", "no_python",  "use_deepspeed", "use_fsdp",
                                                  "cpu",        "tpu",       "m",          "module",        "quiet",
                                                  "exclusive",  "label",     "unbuffered", "no_local_rank"};
  return std::find(kSwitches.begin(), kSwitches.end(), name) == kSwitches.end();
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

// Launchers, and what they call the processes of a node.
const std::map<std::string, std::vector<std::string>> kLaunchers{{"torchrun", {"nproc_per_node"}},
                                                                 {"torch.distributed.run", {"nproc_per_node"}},
                                                                 {"torch.distributed.launch", {"nproc_per_node"}},
                                                                 {"accelerate", {"num_processes"}},
                                                                 {"deepspeed", {"num_gpus"}},
                                                                 {"srun", {"ntasks_per_node"}},
                                                                 {"mpirun", {"np", "n"}},
                                                                 {"mpiexec", {"np", "n"}},
                                                                 {"tune", {"nproc_per_node"}}};

class Words {
 public:
  explicit Words(const std::vector<std::string>& words) : words_(words) {}
  bool more() const { return at_ < words_.size(); }
  const std::string& peek() const { return words_[at_]; }
  std::string take() { return words_[at_++]; }

  // One flag with its value or values; `greedy`: all words up to the next flag are its values, as argparse's nargs allows.
  void take_flag(Json& flags, bool (*has_value)(const std::string&)) {
    const std::string word = take(), name = flag_name(word);
    if (const size_t equals = word.find('='); equals != std::string::npos)
      return add_flag(flags, name, parse_scalar(word.substr(equals + 1)));
    if (!more() || is_flag(peek()) || !has_value(name)) return add_flag(flags, name, true);
    add_flag(flags, name, parse_scalar(take()));
  }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 0;
};

bool always(const std::string&) { return true; }

int64_t whole(const Json& flags, const std::string& name, int64_t fallback) {
  const auto it = flags.find(name);
  return it != flags.end() && it->is_number_integer() && it->get<int64_t>() > 0 ? it->get<int64_t>() : fallback;
}

void read_launcher(Words& words, Json& value, const std::string& launcher) {
  value["launcher"] = launcher;
  Json& flags = value["launcher_flags"];
  if (flags.is_null()) flags = Json::object();
  while (words.more() && (is_flag(words.peek()) || words.peek() == "launch" || words.peek() == "run")) {
    if (is_flag(words.peek()))
      words.take_flag(flags, takes_value);
    else
      words.take();
  }
  for (const std::string& name : kLaunchers.at(launcher)) value["processes"] = whole(flags, name, value.value("processes", int64_t{1}));
  for (const char* name : {"nnodes", "num_nodes", "nodes", "N", "num_machines"})
    value["nodes"] = whole(flags, name, value.value("nodes", int64_t{1}));
}

}  // namespace

std::vector<std::string> shell_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;  // a word has begun
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      if (text[i + 1] == '\n') {
        ++i;
        continue;
      }
      word += text[++i];
      open = true;
    } else if (c == '\'' || c == '"') {
      open = true;
      size_t end = i + 1;
      for (; end < text.size() && text[end] != c; ++end) {
        if (c == '"' && text[end] == '\\' && end + 1 < text.size()) ++end;
        word += text[end];
      }
      if (end >= text.size()) throw Error("[command] a quote is not closed: " + printable(text.substr(i), 60), "close it");
      i = end;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (open) words.push_back(std::exchange(word, ""));
      open = false;
    } else if (c == '#' && !open) {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else {
      word += c;
      open = true;
    }
  }
  if (open) words.push_back(word);
  return words;
}

Document command_document(const std::vector<std::string>& words, const std::string& name) {
  Document d;
  d.kind = Document::Kind::command;
  d.name = name;
  d.text = join(words, " ");
  Json value{{"environment", Json::object()}, {"launcher", ""},         {"processes", 1}, {"nodes", 1}, {"program", ""},
             {"arguments", Json::array()},    {"flags", Json::object()}};
  Words rest(words);
  while (rest.more() && value["program"] == "") {
    const std::string word = rest.take(), program = fs::path(word).filename().string();
    if (is_assignment(word)) {
      value["environment"][word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    } else if (word == "export" || word == "env" || word == "sudo" || word == "nohup" || word == "exec") {
      continue;
    } else if (is_python(program)) {
      while (rest.more() && is_flag(rest.peek()) && rest.peek() != "-m") rest.take();  // -u
      if (rest.more() && rest.peek() == "-m") {
        rest.take();
        if (!rest.more()) break;
        const std::string module = rest.take();
        if (kLaunchers.contains(module))
          read_launcher(rest, value, module);
        else
          value["program"] = module;
      }
    } else if (kLaunchers.contains(program)) {
      read_launcher(rest, value, program);
    } else {
      value["program"] = word;
    }
  }
  while (rest.more()) {
    if (is_flag(rest.peek()))
      rest.take_flag(value["flags"], always);
    else
      value["arguments"].push_back(rest.take());
  }
  d.value = std::move(value);
  return d;
}

bool looks_like_command(const std::vector<std::string>& words) { return words.size() > 1; }

}  // namespace plimsoll
