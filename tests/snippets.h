// Fenced blocks of Markdown documents, cut out at run time: read as configuration or command, with the expected values, or refused for the
// expected reason.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "formats/command_line.h"
#include "seed_formats.h"
#include "util/text.h"

namespace plimsoll {

struct Snippet {
  std::string document;  // "002"
  int number = 0;        // from 1
  std::string language;  // json, yaml, bash, python, typescript or empty
  std::string text;
};

inline std::vector<Snippet> snippets_of(const std::filesystem::path& path) {
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
inline std::vector<std::vector<std::string>> commands_of(const std::string& text) {
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
inline std::string summary(const Job& job) {
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

inline std::string outcome(const std::function<Job()>& read) {
  try {
    return summary(read());
  } catch (const Error& e) {
    return std::string("error ") + e.what();
  }
}

// The outcomes of a block: one, or one for each command.
inline std::vector<std::string> outcomes_of(const Snippet& s) {
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

// By document and block, "002/1"; an outcome that ends in * is a beginning.
using SnippetOutcomes = std::map<std::string, std::vector<std::string>>;

inline bool agrees(const std::string& expected, const std::string& actual) {
  return expected.ends_with('*') ? actual.starts_with(expected.substr(0, expected.size() - 1)) : expected == actual;
}

// Every block of every document has exactly the expected outcomes, and no other is expected.
inline void expect_outcomes(const std::filesystem::path& folder, SnippetOutcomes expected) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
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

}  // namespace plimsoll
