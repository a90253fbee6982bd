#include "formats/wrappers.h"

#include <algorithm>
#include <filesystem>

namespace plimsoll {

namespace {

struct Wrapper {
  std::string name;
  std::vector<std::string> verbs;   // one of these has to follow: `conda run`
  std::vector<std::string> values;  // flags that take the next word
  size_t words = 0;                 // words of its own behind the flags: the time of `timeout`, an image
};

const std::vector<Wrapper>& wrappers() {
  static const std::vector<std::string> kContainer{"-B",     "--bind", "--env",     "--env-file", "--pwd",     "-H",
                                                   "--home", "-W",     "--workdir", "-S",         "--scratch", "--overlay"};
  static const std::vector<Wrapper> kWrappers{
      {"env", {}, {"-u", "--unset", "-C", "--chdir"}},
      {"export", {}, {}},
      {"exec", {}, {"-a"}},
      {"command", {}, {}},
      {"time", {}, {"-f", "--format", "-o", "--output"}},
      {"sudo", {}, {"-u", "--user", "-g", "--group", "-D", "--chdir"}},
      {"nohup", {}, {}},
      {"setsid", {}, {}},
      {"nice", {}, {"-n", "--adjustment"}},
      {"ionice", {}, {"-c", "--class", "-n", "--classdata"}},
      {"stdbuf", {}, {"-i", "-o", "-e"}},
      {"unbuffer", {}, {}},
      {"timeout", {}, {"-s", "--signal", "-k", "--kill-after"}, 1},
      {"taskset", {}, {}, 1},  // a mask, or -c and a list
      {"numactl", {}, {"-N", "-m", "-C", "-i", "-p"}},
      {"conda", {"run"}, {"-n", "--name", "-p", "--prefix", "--cwd"}},
      {"mamba", {"run"}, {"-n", "--name", "-p", "--prefix", "--cwd"}},
      {"micromamba", {"run"}, {"-n", "--name", "-p", "--prefix", "--cwd", "-r", "--root-prefix"}},
      {"uv", {"run"}, {"--with", "--python", "-p", "--project", "--directory", "--extra", "--group", "--env-file", "--with-requirements"}},
      {"poetry", {"run"}, {"-C", "--directory", "-P", "--project"}},
      {"pipenv", {"run"}, {}},
      {"pdm", {"run"}, {"-p", "--project"}},
      {"pixi", {"run"}, {"-e", "--environment", "--manifest-path"}},
      {"hatch", {"run"}, {}},
      {"plimsoll",
       {"run"},
       {"--set", "--batch", "--accumulation", "--workers", "--minimum", "--maximum", "--retries", "--backoff", "--grow-after", "--grace",
        "--hang", "--resume-flag", "--checkpoints", "--requeue-exit", "--state", "--events", "--gpu", "--gpus", "--in-use"}},
      {"apptainer", {"exec", "run"}, kContainer, 1},
      {"singularity", {"exec", "run"}, kContainer, 1},
  };
  return kWrappers;
}

bool among(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

size_t wrapper_words(const std::vector<std::string>& words, size_t at) {
  const std::string program = std::filesystem::path(words[at]).filename().string();
  const auto found = std::find_if(wrappers().begin(), wrappers().end(), [&](const Wrapper& w) { return w.name == program; });
  if (found == wrappers().end()) return 0;
  size_t next = at + 1;
  const auto skip_flags = [&] {
    while (next < words.size() && words[next].size() > 1 && words[next][0] == '-') {
      const bool last = words[next] == "--";
      next += among(found->values, words[next]) ? 2 : 1;
      if (last) break;
    }
  };
  skip_flags();
  if (!found->verbs.empty()) {
    if (next >= words.size() || !among(found->verbs, words[next])) return 0;
    ++next;
    skip_flags();
  }
  return std::min(next + found->words, words.size()) - at;
}

}  // namespace plimsoll
