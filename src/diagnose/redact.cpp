#include "diagnose/redact.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "diagnose/secret_words.h"
#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

bool is_word_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

size_t run_of(std::string_view text, size_t at, bool (*is)(char)) {
  size_t end = at;
  while (end < text.size() && is(text[end])) ++end;
  return end - at;
}

// Variables of an environment that say how a run was set up and nothing about who runs it.
bool is_harmless_variable(std::string_view name) {
  for (const std::string_view start :
       {"PYTORCH_",    "CUDA",          "NCCL_", "XLA_",    "TF_",   "JAX_",    "OMP_",        "MKL_",       "TORCH_", "HSA_",
        "ROCM_",       "HIP_",          "GPU_",  "TRITON_", "VLLM_", "FLASH_",  "ACCELERATE_", "DEEPSPEED_", "PET_",   "FSDP_",
        "TOKENIZERS_", "TRANSFORMERS_", "NVTE_", "UCX_",    "GLOO_", "MALLOC_", "PYTHON",      "BNB_"})
    if (name.starts_with(start)) return true;
  for (const std::string_view whole :
       {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "NODE_RANK", "GROUP_RANK", "SLURM_NNODES", "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE", "SLURM_MEM_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_PROCID", "BLOCK_SIZE"})
    if (name == whole) return true;
  return false;
}

bool is_variable_name(std::string_view name) {
  return name.size() >= 3 &&
         std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }) &&
         std::isalpha(static_cast<unsigned char>(name[0]));
}

bool is_common(std::string_view name) {
  for (const std::string_view common :
       {"root",     "user",   "users", "ubuntu", "admin", "home", "data",  "local", "test",      "python", "jovyan", "runner",
        "ec2-user", "shared", "work",  "opt",    "usr",   "lib",  "train", "model", "localhost", "kernel", "error"})
    if (name == common) return true;
  return name.size() < 3;
}

// The character ends "\\n" or "%3D" written as text, so that a word begins after it.
bool is_escape(std::string_view text, size_t at) {
  if (at > 0 && text[at - 1] == '\\') return text[at] == 'n' || text[at] == 't' || text[at] == 'r';
  return at > 1 && text[at - 2] == '%' && std::isxdigit(static_cast<unsigned char>(text[at - 1])) &&
         std::isxdigit(static_cast<unsigned char>(text[at]));
}

// Where the text in quotes that `text` begins with ends: at the same quote, if no backslash stands before it.
size_t end_of_quote(std::string_view text, std::string_view quote) {
  for (size_t at = text.find(quote, quote.size()); at != std::string_view::npos; at = text.find(quote, at + 1))
    if (text[at - 1] != '\\' || quote.starts_with('\\')) return at;
  return std::string_view::npos;
}

std::string replaced(std::string_view text, std::string_view what, std::string_view by, bool whole_words, int64_t& n) {
  std::string out;
  for (;;) {
    const size_t at = text.find(what);
    if (what.empty() || at == std::string_view::npos) return out += text;
    const char before = at > 0        ? text[at - 1]
                        : out.empty() ? ' '
                                      : out.back(),
               after = at + what.size() < text.size() ? text[at + what.size()] : ' ';
    const bool whole = !whole_words || (!is_word_letter(before) && !is_word_letter(after));
    out += text.substr(0, at);
    out += whole ? by : what;
    n += whole;
    text.remove_prefix(at + what.size());
  }
}

}  // namespace

PrivateNames PrivateNames::here() {
  PrivateNames names;
  if (const char* home = std::getenv("HOME")) names.home = home;
  if (const char* user = std::getenv("USER")) names.user = user;
  if (names.user.empty())
    if (const passwd* entry = getpwuid(getuid())) names.user = entry->pw_name;
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) names.host = host;
  return names;
}

// Names in the text's own paths and prefixes: /home/NAME, C:\Users\NAME, "host      : NAME", "NAME kernel:", "NAME:pid:tid [0] NCCL".
void Redaction::learn(std::string_view text) {
  const auto keep = [&](std::string_view name, const char* kind) {
    if (is_common(name) || name.size() > 100) return;
    const std::pair<std::string, std::string> entry{std::string(name), kind};
    if (learned_.size() < 100 && std::find(learned_.begin(), learned_.end(), entry) == learned_.end()) learned_.push_back(entry);
  };
  const auto is_name = [](char c) { return is_word_letter(c) || c == '-' || c == '.'; };
  for (const std::string_view start : {"/home/", "/Users/", "/users/", "/homes/", "/scratch/", "\\Users\\", "\\\\Users\\\\", "user="})
    for (size_t at = text.find(start); at != std::string_view::npos; at = text.find(start, at + 1)) {
      const size_t begin = at + start.size();
      keep(text.substr(begin, run_of(text, begin, is_name)), "user");
    }
  // "alice@gpu-node-17:~/run$", a shell's prompt.
  for (size_t at = text.find('@'); at != std::string_view::npos; at = text.find('@', at + 1)) {
    size_t begin = at;
    while (begin > 0 && is_name(text[begin - 1])) --begin;
    const size_t length = run_of(text, at + 1, is_name);
    const std::string_view rest = text.substr(std::min(text.size(), at + 1 + length));
    if (begin == at || !(rest.starts_with(":~") || rest.starts_with(":/"))) continue;
    keep(text.substr(begin, at - begin), "user");
    keep(text.substr(at + 1, length), "host");
  }
  for (const std::string_view start : {"host      : ", "hostname: ", "hostname=", "srun: error: ", " ON "})
    for (size_t at = text.find(start); at != std::string_view::npos; at = text.find(start, at + 1)) {
      const size_t begin = at + start.size(), length = run_of(text, begin, is_name);
      const std::string_view name = text.substr(begin, length);
      if (start == " ON " && !has(text.substr(begin + length, 12), "CANCELLED")) continue;
      keep(name, "host");
    }
  for (const std::string_view mark : {" kernel: ", " NCCL INFO", " NCCL WARN"})
    for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1)) {
      const size_t line = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
      const std::string_view prefix = text.substr(line, at - line);
      const size_t space = mark == " kernel: " ? prefix.rfind(' ') + 1 : 0;
      const std::string_view name = prefix.substr(space, run_of(prefix, space, is_name));
      if (mark == " kernel: " || prefix.substr(std::min(prefix.size(), space + name.size())).starts_with(':')) keep(name, "host");
    }
}

// "KEY=value", "key: value", "\"key\": \"value\"", "--key value" on one line.
std::string Redaction::settings(std::string_view line) {
  std::string out;
  size_t at = 0;
  while (at < line.size()) {
    if (!is_word_letter(line[at])) {
      out += line[at++];
      continue;
    }
    size_t length = 0;
    while (at + length < line.size() && (is_word_letter(line[at + length]) || line[at + length] == '-')) ++length;
    const std::string_view name = line.substr(at, length);
    out += name;
    at += length;
    const bool flag = out.size() >= length + 2 && std::string_view(out).substr(out.size() - length - 2, 2) == "--";
    size_t value = at;
    if (value < line.size() && (line[value] == '"' || line[value] == '\'')) ++value;
    const size_t spaces = run_of(line, value, [](char c) { return c == ' '; });
    const bool assigned = value + spaces < line.size() && (line[value + spaces] == '=' || line[value + spaces] == ':') &&
                          (spaces == 0 || line[value + spaces] == '=' || line[value + spaces] == ':');
    const bool variable = is_variable_name(name) && value < line.size() && line[value] == '=' && !is_harmless_variable(name);
    const bool secret = is_secret_name(name);
    if (!(secret && (assigned || (flag && spaces > 0))) && !variable) continue;
    value += assigned ? spaces + 1 : spaces;
    value += run_of(line, value, [](char c) { return c == ' ' || c == ':'; });
    if (value < line.size() && (line[value] == '/' || line[value] == '\\') && !secret) continue;  // a path: places() sees to it
    std::string_view rest = line.substr(value);
    if (const size_t scheme = rest.find("Bearer "); scheme == 0) rest = rest.substr(7), value += 7;
    if (const size_t scheme = rest.find("Basic "); scheme == 0) rest = rest.substr(6), value += 6;
    // Quotes, also those inside another string: \"value\".
    const std::string_view quote = rest.starts_with("\\\"") ? "\\\"" : rest.starts_with('"') ? "\"" : rest.starts_with('\'') ? "'" : "";
    const size_t end = std::min(rest.size(), quote.empty() ? rest.find_first_of(" \t,;&)]}'\"") : end_of_quote(rest, quote));
    const std::string_view content = rest.substr(quote.size(), end - std::min(end, quote.size()));
    const bool trivial = content.empty() || content == "None" || content == "null" || content == "True" || content == "False" ||
                         content == "true" || content == "false" || rest.starts_with("[left out]");
    out += line.substr(at, value - at);
    at = value;
    if (trivial) continue;
    out += quote;
    out += "[left out]";
    at += end;
    count(secret ? "values of secret settings" : "values of environment variables");
  }
  return out;
}

std::string Redaction::secrets(std::string_view text) {
  std::string out;
  size_t at = 0;
  bool fresh = true;  // at the beginning of a word
  while (at < text.size()) {
    if (text.compare(at, 11, "-----BEGIN ") == 0 && has(text.substr(at, 60), "PRIVATE KEY")) {
      const size_t end = text.find("-----END ", at);
      const size_t close = end == std::string_view::npos ? text.size() : std::min(text.size(), text.find('\n', end));
      out += "[left out]";
      count("private keys");
      at = close;
      continue;
    }
    if (const auto secret = fresh ? secret_word_at(text, at) : std::nullopt) {
      out += "[left out]";
      count(secret->kind);
      at += secret->length;
      continue;
    }
    // scheme://user:password@host
    if (text.compare(at, 3, "://") == 0) {
      const size_t end = std::min(text.size(), text.find_first_of(" \t\n\"'<>", at + 3));
      const size_t host = std::min(end, text.find('/', at + 3)), colon = text.substr(0, host).find(':', at + 3);
      // A password may have a slash in it; a port is a number.
      const bool password = colon != std::string_view::npos && colon + 1 < end && !is_digit(text[colon + 1]);
      const size_t sign = text.substr(0, password ? end : host).rfind('@');
      if (sign != std::string_view::npos && sign > at + 3) {
        out += "://[left out]@";
        count("names and passwords in addresses");
        at = sign + 1;
        fresh = true;
        continue;
      }
    }
    fresh = !is_word_letter(text[at]) || is_escape(text, at);
    out += text[at++];
  }
  return out;
}

std::string Redaction::places(std::string_view text) {
  std::string out(text);
  const auto replace = [&](std::string_view what, std::string_view by, bool whole, const char* kind) {
    int64_t n = 0;
    out = replaced(out, what, by, whole, n);
    if (n > 0) counts_[kind] += n;
  };
  if (names_.home.size() > 1) replace(names_.home, "~", false, "home folders");
  for (const auto& [name, kind] : learned_) {
    if (kind != "user") continue;
    for (const std::string_view start : {"/export/home/", "/home/", "/Users/", "/users/", "/homes/", "\\Users\\", "\\\\Users\\\\"})
      replace(std::string(start) + name, "~", false, "home folders");
  }
  if (!is_common(names_.host)) replace(names_.host, "HOST", true, "names of machines");
  if (!is_common(names_.user)) replace(names_.user, "USER", true, "names of users");
  for (const auto& [name, kind] : learned_)
    replace(name, kind == "user" ? "USER" : "HOST", true, kind == "user" ? "names of users" : "names of machines");
  std::string shorter;
  for (size_t i = 0; i < out.size();) {
    const bool start = i == 0 || !is_word_letter(out[i - 1]);
    if (start && is_word_letter(out[i])) {
      if (const size_t address = address_at(out, i)) {
        shorter += "[left out]";
        count("addresses of people and machines");
        i += address;
        continue;
      }
      const size_t word = std::max<size_t>(1, run_of(out, i, is_word_letter));
      shorter += std::string_view(out).substr(i, word);
      i += word;
      continue;
    }
    shorter += out[i++];
  }
  return shorter;
}

std::string Redaction::value(std::string_view name, std::string_view text) {
  if (!is_secret_name(name) || text.empty()) return (*this)(text);
  count("values of secret settings");
  return "[left out]";
}

std::string Redaction::operator()(std::string_view text) {
  learn(text);
  const std::string first = secrets(text);
  std::string second;
  for (size_t at = 0; at < first.size();) {
    const size_t end = std::min(first.size(), first.find('\n', at));
    second += settings(std::string_view(first).substr(at, end - at));
    if (end < first.size()) second += '\n';
    at = end + 1;
  }
  return places(second);
}

}  // namespace plimsoll
