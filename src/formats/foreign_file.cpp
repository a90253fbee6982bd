#include "formats/foreign_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "formats/format.h"
#include "formats/program.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kLook = 1 << 16;  // bytes that tell what a file is

constexpr const char* kOwnModel =
    "save its training as a script and capture that: plimsoll capture -o train.trace -- python train.py, then: plimsoll estimate "
    "train.trace; or "
    "name a known model (plimsoll estimate gpt2 --batch 8 --seq 1024) or its config.json";

constexpr const char* kInstead = "name a model, its config.json, a trainer's configuration or a training command";

[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& hint) {
  throw Error(fmt::format("[input] {} is {}", printable(path, 200), what), hint);
}

// Where a capture of that script is written: "train.trace".
std::string trace_name(const std::string& script) {
  const std::string stem = printable(fs::path(script).stem().string(), 80);
  return (stem.empty() ? "train" : stem) + ".trace";
}

// The command from its script on, in one process: a capture has no launcher.
std::string python_command(const Document& d) {
  const std::string program = d.value.value("program", "");
  const size_t at = d.text.find(program);
  const bool module = !program.ends_with(".py");
  return std::string("python ") + (module                    ? fs::path(program).stem().string() + ".py"
                                   : at == std::string::npos ? program
                                                             : d.text.substr(at));
}

struct Magic {
  std::string_view begin;
  const char* what;
};
constexpr Magic kMagics[]{{"%PDF", "a PDF"},
                          {"\x89PNG", "a picture (PNG)"},
                          {"\xff\xd8\xff", "a picture (JPEG)"},
                          {"GIF8", "a picture (GIF)"},
                          {"\x1f\x8b", "a gzip archive"},
                          {"\x7f"
                           "ELF",
                           "a program"},
                          {"\x93NUMPY", "an array of NumPy"},
                          {"\x89HDF", "an HDF5 file"},
                          {"SQLite format 3", "a database of SQLite"},
                          {"BZh", "a bzip2 archive"},
                          {"\xfd"
                           "7zXZ",
                           "an xz archive"}};

bool is_binary(std::string_view bytes) {
  const auto is_control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f' && c != '\x1b';
  };
  return std::count_if(bytes.begin(), bytes.end(), is_control) > static_cast<long>(bytes.size() / 100);
}

void refuse_binary(const std::string& path, std::string_view bytes) {
  const std::string extension = lower(fs::path(path).extension().string());
  if (bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5)
    refuse(
        path, "a Python pickle",
        fmt::format("if it is a memory snapshot of PyTorch: plimsoll explain {}; of weights, name the model's config.json or safetensors",
                    path));
  for (const Magic& m : kMagics)
    if (bytes.starts_with(m.begin)) refuse(path, m.what, kInstead);
  if (!is_binary(bytes)) return;
  const bool weights = extension == ".pt" || extension == ".pth" || extension == ".bin" || extension == ".ckpt";
  refuse(path, "binary, and none of the files that can be read",
         weights ? "weights are read from safetensors and GGUF; or name the model's config.json" : kInstead);
}

std::vector<std::string> lines_of(std::string_view text, size_t most) {
  std::vector<std::string> lines;
  for (std::string& line : split_at(text, '\n')) {
    if (line.ends_with('\r')) line.pop_back();
    if (lines.size() == most) break;
    lines.push_back(std::move(line));
  }
  return lines;
}

bool is_python(const std::string& extension, const std::vector<std::string>& lines) {
  if (extension == ".py" || extension == ".pyw") return true;
  if (!lines.empty() && lines[0].starts_with("#!") && lines[0].find("python") != std::string::npos) return true;
  const auto is_import = [](const std::string& line) {
    return line.starts_with("import ") || (line.starts_with("from ") && line.find(" import ") != std::string::npos);
  };
  return std::count_if(lines.begin(), lines.end(), is_import) >= 2;
}

// "torch==2.9", "numpy>=1.26", "accelerate"
bool is_requirement(const std::string& line) {
  const size_t name =
      std::find_if_not(line.begin(), line.end(),
                       [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '[' || c == ']'; }) -
      line.begin();
  if (name == 0) return line.starts_with("-r ") || line.starts_with("--");
  const std::string_view rest = std::string_view(line).substr(name);
  return rest.empty() || rest.starts_with("==") || rest.starts_with(">=") || rest.starts_with("<=") || rest.starts_with("~=") ||
         rest.starts_with("!=") || rest.starts_with("<") || rest.starts_with(">") || rest.starts_with(" @ ") || rest.starts_with(";");
}

bool is_requirements(const std::string& path, const std::vector<std::string>& lines) {
  size_t packages = 0, versions = 0;
  for (const std::string& line : lines) {
    if (line.empty() || line.starts_with('#')) continue;
    if (!is_requirement(line)) return false;
    ++packages;
    versions += line.find("==") != std::string::npos || line.find(">=") != std::string::npos || line.find("~=") != std::string::npos;
  }
  return packages > 0 && (versions > 0 || lower(fs::path(path).filename().string()).starts_with("requirements"));
}

bool is_page(const std::string& extension) {
  return extension == ".md" || extension == ".rst" || extension == ".csv" || extension == ".html";
}

bool is_log(const std::string& extension, std::string_view text) {
  for (const char* words : {"out of memory", "OutOfMemoryError", "RESOURCE_EXHAUSTED", "Traceback (most recent call last)"})
    if (text.find(words) != std::string_view::npos) return true;
  return extension == ".log" || extension == ".out" || extension == ".err";
}

bool is_configuration_name(const std::string& extension) {
  for (const char* known : {".yaml", ".yml", ".json", ".toml", ".sh", ".slurm", ".sbatch"})
    if (extension == known) return true;
  return false;
}

// The first value below one of these keys, anywhere in the document.
const Json* value_below(const Json& value, std::initializer_list<const char*> keys, int depth = 0) {
  if (!value.is_object() || depth > 4) return nullptr;
  for (const char* key : keys)
    if (const auto it = value.find(key); it != value.end() && it->is_number_integer() && *it > 0) return &*it;
  for (const Json& inside : value)
    if (const Json* found = value_below(inside, keys, depth + 1)) return found;
  return nullptr;
}

// `plimsoll estimate gpt2 --config n_layer=12 --batch 8 --seq 1024`, with what the document says.
std::string same_question(const Json& value) {
  std::string command = "plimsoll estimate gpt2";
  const auto add = [&](const char* flag, std::initializer_list<const char*> keys) {
    if (const Json* v = value_below(value, keys)) command += flag + v->dump();
    return value_below(value, keys) != nullptr;
  };
  const size_t bare = command.size();
  add(" --config n_layer=", {"n_layers", "n_layer", "num_layers", "num_hidden_layers", "depth"});
  add(" --config n_embd=", {"d_model", "n_embd", "hidden_size", "hidden_dim", "embed_dim", "dim", "width"});
  add(" --config n_head=", {"n_heads", "n_head", "num_heads", "num_attention_heads"});
  add(" --config vocab_size=", {"vocab_size"});
  const bool sizes = command.size() > bare;
  if (!sizes) command += " --config n_layer=12";
  if (!add(" --batch ", {"micro_batch_size", "per_device_train_batch_size", "train_batch_size", "batch_size", "batch"}))
    command += " --batch 8";
  if (!add(" --seq ",
           {"max_seq_len", "seq_len", "max_seq_length", "sequence_length", "sequence_len", "max_length", "block_size", "context_length"}))
    command += " --seq 1024";
  return command;
}

void leaf_names(const Json& value, const std::string& path, std::vector<std::string>& out) {
  if (!value.is_object()) {
    if (!path.empty()) out.push_back(path);
    return;
  }
  for (const auto& item : value.items()) leaf_names(item.value(), path.empty() ? item.key() : path + "." + item.key(), out);
}

std::string some_of(std::vector<std::string> names, size_t most) {
  const std::string more = names.size() > most ? fmt::format(" and {} more", names.size() - most) : "";
  if (names.size() > most) names.resize(most);
  return printable(join(names, ", "), 300) + more;
}

void refuse_notebook(const std::string& path, std::string_view bytes) {
  const bool cells = bytes.find("\"nbformat\"") != std::string_view::npos && bytes.find("\"cells\"") != std::string_view::npos;
  if (cells || lower(fs::path(path).extension().string()) == ".ipynb")
    refuse(path, "a notebook: what its cells train is known to Python alone", kOwnModel);
}

[[noreturn]] void refuse_python(const std::string& path) {
  refuse(path, "a Python script: what it trains is known to Python alone",
         fmt::format("capture what it does, without a GPU: plimsoll capture -o {0} -- python {1} ..., then: plimsoll estimate {0}; a known "
                     "trainer's command is read with its flags: plimsoll explain -- python {1} ...",
                     trace_name(path), printable(path, 200)));
}

}  // namespace

void refuse_foreign_file(const std::string& path, std::string_view bytes) {
  if (bytes.empty()) refuse(path, "empty", kInstead);
  bytes = bytes.substr(0, kLook);
  refuse_binary(path, bytes);
  refuse_notebook(path, bytes);
  const std::string extension = lower(fs::path(path).extension().string());
  if (is_configuration_name(extension)) return;
  const std::vector<std::string> lines = lines_of(bytes, 400);
  if (is_python(extension, lines)) refuse_python(path);
  if (is_page(extension)) refuse(path, "a text, not a configuration", kInstead);  // which may quote an error
  if (is_log(extension, bytes)) refuse(path, "a log", fmt::format("plimsoll explain {}", path));
  if (is_requirements(path, lines)) refuse(path, "a list of Python packages", kInstead);
}

void refuse_what_is_no_log(const std::string& path, std::string_view bytes) {
  if (bytes.empty()) refuse(path, "empty", "give the log that the run wrote, or its error in quotes");
  bytes = bytes.substr(0, kLook);
  refuse_binary(path, bytes);
  refuse_notebook(path, bytes);
  const std::vector<std::string> lines = lines_of(bytes, 400);
  if (is_python(lower(fs::path(path).extension().string()), lines)) refuse_python(path);
  if (is_requirements(path, lines))
    refuse(path, "a list of Python packages",
           "give the log that the run wrote, its configuration, or its command: plimsoll explain -- python ...");
}

void refuse_unknown_configuration(const Document& d) {
  std::vector<std::string> names;
  leaf_names(d.value, "", names);
  if (names.empty())
    throw Error(fmt::format("[input] {} is no configuration: it holds no keys", printable(d.path.empty() ? d.name : d.path, 200)),
                kInstead);
  throw Error(fmt::format("[input] {}: {} {} there, but no trainer that is known writes these keys",
                          printable(d.path.empty() ? d.name : d.path, 200), some_of(names, 4), names.size() == 1 ? "is" : "are"),
              fmt::format("name the model: {}; or give its config.json; --as NAME insists on a reader", same_question(d.value)));
}

void refuse_unknown_command(const Document& d) {
  const std::string program = d.value.value("program", ""), shown = printable(program, 80);
  const bool python = program.ends_with(".py") || (!program.empty() && program.find('.') != std::string::npos &&
                                                   program.find('/') == std::string::npos && !program.ends_with(".sh"));
  if (!python)
    throw Error(fmt::format("[command] '{}' is not a trainer that can be read", shown),
                "point at its configuration file, or name the model and its settings: plimsoll estimate gpt2 --batch 8 --seq 1024");
  std::vector<std::string> flags;
  std::string absent;
  std::error_code error;
  for (const auto& item : d.value["flags"].items()) {
    const std::string value =
        item.value() == true ? "" : " " + printable(item.value().is_string() ? item.value().get<std::string>() : item.value().dump(), 40);
    flags.push_back("--" + printable(item.key(), 40) + value);
    if (item.key().starts_with("config") && item.value().is_string() && !fs::exists(item.value().get<std::string>(), error))
      absent = fmt::format("; {} is not here", printable(item.value().get<std::string>(), 120));
  }
  throw Error(
      fmt::format("[command] {} is a Python script{}, and no trainer that is known has these{}: what module it trains, only Python knows",
                  shown, flags.empty() ? "" : " with the flags " + some_of(flags, 6), absent),
      fmt::format(
          "capture what it does, without a GPU: plimsoll capture -o {0} -- {1}, then: plimsoll estimate {0}; or, if it trains a model like "
          "a known one: {2}",
          trace_name(program), printable(python_command(d), 300), same_question(d.value["flags"])));
}

}  // namespace plimsoll
