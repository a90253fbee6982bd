// Every fenced block of the memory documents that the project grew from, cut out at run time: read as configuration or command, with these
// values, or refused for this reason.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "formats/command_line.h"
#include "seed_formats.h"
#include "util/text.h"

namespace plimsoll::seed_snippets_test {
namespace {

namespace fs = std::filesystem;

struct Snippet {
  std::string document;  // "002"
  int number = 0;        // from 1
  std::string language;  // json, yaml, bash, python, typescript or empty
  std::string text;
};

std::vector<Snippet> snippets_of(const fs::path& path) {
  std::vector<Snippet> out;
  std::ifstream in(path);
  bool open = false;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("```")) {
      if (open) out.back().text += line + "\n";
      continue;
    }
    open = !open;
    if (open) out.push_back({path.filename().string().substr(0, 3), static_cast<int>(out.size()) + 1, line.substr(3), ""});
  }
  return out;
}

// The words of each line of a shell, after what `export` set before; lines that end in a backslash go on.
std::vector<std::vector<std::string>> commands_of(const std::string& text) {
  std::vector<std::vector<std::string>> commands;
  std::vector<std::string> environment;
  std::string joined;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\\')) {
      joined += line.substr(0, line.size() - 1) + " ";
      continue;
    }
    std::vector<std::string> words = shell_words(joined + line);
    joined.clear();
    if (words.empty()) continue;
    const bool exports = words[0] == "export";
    words.insert(words.begin(), environment.begin(), environment.end());
    if (exports)
      environment = words;
    else
      commands.push_back(words);
  }
  if (commands.empty() && !environment.empty()) commands.push_back(environment);
  return commands;
}

// What was read, in one line; settings that nothing was said about are left out.
std::string summary(const Job& job) {
  std::string out = job.trainer;
  const auto add = [&](const char* key, const std::string& value) {
    if (job.origin.contains(key) && !job.origin.at(key).starts_with("default of")) out += fmt::format(" {}={}", key, value);
  };
  add("model", job.model);
  add("batch", std::to_string(job.batch));
  add("accumulation", std::to_string(job.accumulation));
  add("seq", std::to_string(job.seq));
  add("precision", to_string(job.precision));
  add("checkpointing", job.checkpointing.on ? "on" : "off");
  add("ema_update", to_string(job.averaging.update));
  add("clip", job.clip ? fmt::format("{}", *job.clip) : "none");
  add("workers", std::to_string(job.host.workers));
  add("alloc_conf", job.alloc_conf);
  if (job.parallel.ddp) add("ddp", std::to_string(job.parallel.ddp->world));
  for (const auto& item : job.config.values().items()) out += fmt::format(" {}:{}", item.key(), item.value().dump());
  for (const Finding& f : job.findings)
    if (f.effect == Effect::refused) out += " refused";
  return out;
}

std::string outcome(const std::function<Job()>& read) {
  try {
    return summary(read());
  } catch (const Error& e) {
    return std::string("error ") + e.what();
  }
}

// The outcomes of a block: one, or one for each command.
std::vector<std::string> outcomes_of(const Snippet& s) {
  if (s.language != "bash") return {outcome([&] { return read_text(s.text, s.language.empty() ? "snippet" : "snippet." + s.language); })};
  std::vector<std::string> out;
  for (const std::vector<std::string>& words : commands_of(s.text)) {
    out.push_back(outcome([&] {
      Job job;
      read_input(job, words);
      return job;
    }));
  }
  return out;
}

constexpr const char* kAlloc = " alloc_conf=expandable_segments:True";
constexpr const char* kSmall = " d_model:512 max_seq_len:1024 n_layers:8 vocab_size:50257";
constexpr const char* kMedium = " d_model:768 max_seq_len:2048 n_layers:12 vocab_size:50257";

// By document and block; an outcome that ends in * is a beginning.
std::map<std::string, std::vector<std::string>> expectations() {
  const std::string mamba = "mamba_trainer model=mamba-trainer", safe = " d_model:512 d_state:16 dropout:0.1 expand_factor:2";
  const std::string small_8gb = mamba + " batch=1 accumulation=16 seq=1024 precision=amp-fp16" + kAlloc + kSmall;
  const std::string gsa = "gsa", no_trainer = "error [command] ", unread = "error *";
  std::map<std::string, std::vector<std::string>> e{
      // commands, and the file of the first remedy
      {"002/1", {small_8gb}},
      {"002/2", {mamba + " batch=2 accumulation=8 seq=2048 precision=amp-fp16" + kAlloc + kMedium}},
      {"002/3",
       {mamba + " batch=1 accumulation=16 seq=256 precision=amp-fp16 clip=1" + kAlloc + safe +
        " max_seq_len:256 n_layers:8 vocab_size:50257"}},
      {"002/4", {std::string("mamba_trainer") + kAlloc}},
      {"002/5", {unread}},               // an OOM message
      {"002/6", {" model=nvidia-smi"}},  // one word: the name of a model, which does not exist
      {"002/7", {small_8gb}},
      {"002/8", {no_trainer + "'watch' is not a trainer*"}},
      // parts of a file: each is a KeyError, and comments are refused besides
      {"002/9", {mamba + " batch=1 seq=128" + kAlloc + " max_seq_len:128 vocab_size:50257 refused refused"}},
      {"002/10", {std::string("mamba_trainer") + kAlloc + " refused"}},
      {"002/11", {std::string("mamba_trainer precision=amp-fp16") + kAlloc + " refused"}},
      {"002/12", {unread}},  // a comment in what is then YAML
      {"002/13", {std::string("mamba_trainer") + kAlloc + " refused"}},
      {"002/14", {small_8gb}},
      // the balanced file: adam_* and max_grad_norm are not there
      {"002/15",
       {mamba + " batch=2 accumulation=8 seq=512 precision=amp-fp16" + kAlloc + safe +
        " max_seq_len:512 n_layers:8 vocab_size:50257 refused"}},
      {"002/16", {mamba + " seq=256" + kAlloc + " max_seq_len:256 vocab_size:50257 refused"}},
      {"002/17", {std::string("mamba_trainer batch=1 accumulation=16") + kAlloc + " refused"}},
      {"002/18", {no_trainer + "'--model_size' is not a trainer*"}},
      {"002/19", {no_trainer + "'' is not a trainer*"}},
      {"002/20", {" model=nvidia-smi", no_trainer + "'kill' is not a trainer*"}},
      {"002/21", {std::string("mamba_trainer") + kAlloc}},
      {"002/22", {no_trainer + "'train.py' is not a trainer*"}},
      {"002/23", {small_8gb}},
      // the AI Toolkit's
      {"003/3", {"ai_toolkit ema_update=ai-toolkit"}},
      {"003/4", {"ai_toolkit dop:true"}},
      {"003/5", {"ai_toolkit checkpointing=on"}},
      {"003/9", {"ai_toolkit workers=0 cache_latents:false"}},
      {"003/10", {"ai_toolkit checkpointing=on"}},
      {"003/11", {"ai_toolkit cache_latents:true"}},
      {"003/12", {" model=htop", no_trainer + "'ps' is not a trainer*"}},
      {"003/13", {no_trainer + "'watch' is not a trainer*", " model=btop"}},
      {"003/14", {"ai_toolkit"}},
      // Gated-Sparse-Attention's
      {"004/1", {gsa + " batch=2 accumulation=32 seq=1024"}},
      {"004/2", {gsa + kAlloc + " ddp=4", gsa + kAlloc + " ddp=4"}},
      {"004/3", {gsa + " batch=2 accumulation=32 seq=1024"}},
      {"004/4", {gsa + " batch=3 accumulation=21 seq=1024"}},
      {"004/5", {gsa + " batch=4 accumulation=16 seq=1024"}},
      {"004/6", {gsa + " batch=2 accumulation=32 seq=1536"}},
      {"004/7", {"transformers checkpointing=on"}},  // a key that transformers has too
      {"004/8", {gsa + " model=gsa d_ffn:1024 n_layers:6 refused"}},
      {"004/9", {"error [test] snippet.yaml is none*"}},  // precision: fp16, which means another thing elsewhere
      {"004/10", {gsa + " model=gsa k_base:256 k_max:512 refused"}},
      {"004/11", {no_trainer + "'watch' is not a trainer*", no_trainer + "'nvidia-smi' is not a trainer*"}},
  };
  // source code, sums and messages are no configurations
  for (int i = 1; i <= 12; ++i) e[fmt::format("001/{}", i)] = {unread};
  for (const int i : {1, 2, 6, 7, 8, 15, 16, 17}) e[fmt::format("003/{}", i)] = {unread};
  return e;
}

bool agrees(const std::string& expected, const std::string& actual) {
  return expected.ends_with('*') ? actual.starts_with(expected.substr(0, expected.size() - 1)) : expected == actual;
}

TEST(SeedSnippets, AreReadOrRefusedForTheRightReason) {
  const fs::path folder = fs::path(PLIMSOLL_SOURCE_DIR) / ".." / "shared" / "seeds";
  const fs::path above = fs::path(PLIMSOLL_SOURCE_DIR) / ".." / ".." / "shared" / "seeds";
  const fs::path at = fs::is_directory(folder) ? folder : above;
  if (!fs::is_directory(at)) GTEST_SKIP() << "the documents are not here: " << folder;
  std::map<std::string, std::vector<std::string>> expected = expectations();
  for (const auto& entry : fs::directory_iterator(at)) {
    for (const Snippet& s : snippets_of(entry.path())) {
      const std::string name = fmt::format("{}/{}", s.document, s.number);
      ASSERT_TRUE(expected.contains(name)) << name << "\n" << s.text;
      const std::vector<std::string> actual = outcomes_of(s), wanted = expected[name];
      expected.erase(name);
      ASSERT_EQ(actual.size(), wanted.size()) << name << ": " << join(actual, "\n");
      for (size_t i = 0; i < actual.size(); ++i)
        EXPECT_TRUE(agrees(wanted[i], actual[i])) << name << "\n  wanted " << wanted[i] << "\n  actual " << actual[i];
    }
  }
  for (const auto& [name, unused] : expected) ADD_FAILURE() << name << " is not in the documents";
}

}  // namespace
}  // namespace plimsoll::seed_snippets_test
