#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "cli/job_flags.h"
#include "util/terminal.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Lines = std::vector<std::string>;

constexpr size_t kLeft = 26;  // columns of the flags; what is longer has its help on the next line

// ---- words into lines

// A word that is longer than a line is broken behind a comma or a bar: "a=1,b=2", "auto|flash".
Lines wrapped(const std::string& text, size_t width) {
  Lines out{""};
  for (std::string word : split_at(text, ' ')) {
    if (word.empty()) continue;
    if (!out.back().empty() && out.back().size() + 1 + word.size() > width) out.emplace_back();
    out.back() += out.back().empty() ? "" : " ";
    while (word.size() > width) {
      const size_t at = word.find_last_of(",|", width - 1);
      if (at == std::string::npos) break;
      out.back() += word.substr(0, at + 1);
      word.erase(0, at + 1);
      out.emplace_back();
    }
    out.back() += word;
  }
  return out;
}

void append_wrapped(Lines& out, const std::string& text, size_t width, size_t indent = 0) {
  for (const std::string& line : wrapped(text, width - indent)) out.push_back(std::string(indent, ' ') + line);
}

// A name and what it is, in two columns.
void append_row(Lines& out, const std::string& name, const std::string& text, size_t left, size_t width) {
  const Lines right = wrapped(text, width - left);
  const bool beside = name.size() + 2 <= left;
  if (!beside) {
    const size_t indent = name.find_first_not_of(' ');
    const Lines parts = wrapped(name, width - indent - 4);
    for (size_t i = 0; i < parts.size(); ++i) out.push_back(std::string(indent + (i > 0 ? 4 : 0), ' ') + parts[i]);
  }
  for (size_t i = 0; i < right.size(); ++i)
    if (!right[i].empty() || i > 0 || beside) out.push_back(fmt::format("{:<{}}{}", beside && i == 0 ? name : "", left, right[i]));
  if (beside && right[0].empty()) out.back() = name;
}

// The words of a shell's line; what is quoted is one word.
Lines shell_parts(const std::string& line) {
  Lines out{""};
  bool quoted = false;
  for (char c : line) {
    if (c == '\'') quoted = !quoted;
    if (c == ' ' && !quoted) {
      if (!out.back().empty()) out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

// A command that is longer than the line goes on behind a backslash.
void append_command(Lines& out, const std::string& command, size_t width) {
  std::string line = " ";
  for (const std::string& word : shell_parts(command)) {
    if (line.size() + 1 + word.size() + 2 > width && line.find_first_not_of(' ') != std::string::npos) {
      out.push_back(line + " \\");
      line = "     ";
    }
    line += " " + word;
  }
  out.push_back(line);
}

// ---- the footer of a command: examples, and what there is to say beside them

struct Example {
  std::string command, comment;
};

// "  plimsoll plan x.yaml      what it does" in two parts.
Example example_of(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  const size_t gap = line.find("  ", begin);
  if (gap == std::string::npos) return {line.substr(begin), ""};
  return {line.substr(begin, gap - begin), line.substr(line.find_first_not_of(' ', gap))};
}

bool is_example(const std::string& line) {
  return line.starts_with("  plimsoll ") || line.starts_with("  python ") || line.starts_with("  source ");
}
bool is_indented(const std::string& line) { return line.starts_with("  "); }

// A run of examples: comments in one column where all of them have room, else above their command; on one screen behind it, or nowhere.
void append_examples(Lines& out, const std::vector<Example>& examples, HelpLength length, size_t width) {
  size_t left = 0;
  bool room = true;
  for (const Example& e : examples)
    if (!e.comment.empty()) left = std::max(left, e.command.size());
  for (const Example& e : examples) room = room && (e.comment.empty() || 2 + left + 4 + e.comment.size() <= width);
  for (const Example& e : examples) {
    if (room && !e.comment.empty()) {
      out.push_back(fmt::format("  {:<{}}  # {}", e.command, left, e.comment));
      continue;
    }
    if (!e.comment.empty() && length == HelpLength::all)
      for (const std::string& line : wrapped(e.comment, width - 4)) out.push_back("  # " + line);
    append_command(out, e.command, width);
    if (length == HelpLength::one_screen && !e.comment.empty() && out.back().size() + 4 + e.comment.size() <= width)
      out.back() += "  # " + e.comment;
  }
}

// Prose is reflowed: a line goes on in the next unless it ends a sentence.
void append_footer(Lines& out, const Lines& lines, HelpLength length, size_t width) {
  std::string paragraph;
  std::vector<Example> examples;
  const auto flush = [&] {
    if (!paragraph.empty()) append_wrapped(out, paragraph, width);
    append_examples(out, examples, length, width);
    paragraph.clear();
    examples.clear();
  };
  for (const std::string& line : lines) {
    if (is_example(line)) {
      if (!paragraph.empty()) flush();
      examples.push_back(example_of(line));
    } else if (is_indented(line)) {
      flush();
      const Example row = example_of(line);
      append_row(out, "  " + row.command, row.comment, 17, width);
    } else {
      if (!examples.empty() || paragraph.ends_with('.') || paragraph.ends_with(':')) flush();
      paragraph += (paragraph.empty() ? "" : " ") + line;
    }
  }
  flush();
}

// All up to the last example, and the rest.
std::pair<Lines, Lines> parts_of_footer(const CommandEntry& command) {
  const Lines lines = command.footer.empty() ? Lines{} : split_at(command.footer, '\n');
  const auto last = std::find_if(lines.rbegin(), lines.rend(), is_example).base();
  return {Lines(lines.begin(), last), Lines(last, lines.end())};
}

// ---- flags

// Flags that the short help shows, of every command that has them, and their help where the first clause of the long one does not do.
struct UsualFlag {
  const char* name;
  const char* help = "";
};
constexpr UsualFlag kUsual[] = {
    // a run
    {"--batch"},
    {"--seq"},
    {"--precision", "fp32, amp (autocast over fp32 weights), bf16, ..."},
    {"--qlora"},
    {"--lora", "LoRA, e.g. r=16"},
    {"--like"},
    {"--checkpointing", "recompute activations in backward"},
    {"--optimizer", "AdamW, SGD, Adafactor, ..."},
    {"--gpu", "4090, 8xh100-sxm, m3-max-64gb, 24GB, or `this`"},
    {"--gpus", "`all`: a table of every device"},
    // what is asked of it
    {"--what-if", "what each change of the recipe would save"},
    {"--keep"},
    {"--total-batch"},
    {"--num-gpus", "how many devices there are"},
    {"--world", "layouts over N devices of a cluster"},
    {"--diff"},
    {"--write"},
    {"--generate"},
    {"--vary"},
    {"--against"},
    {"--measured"},
    {"--run"},
    {"--bundle"},
    {"--marks"},
    // watch and run
    {"--device"},
    {"--log"},
    {"--once"},
    {"--for"},
    {"--listen"},
    {"--history"},
    {"--set"},
    {"--retries"},
    {"--requeue"},
    {"--dry-run"},
    {"--resume-flag"},
    {"--checkpoints"},
    // how it is said
    {"--html"},
    {"--output"},
    {"--verbose"},
    {"--json", "one JSON document on stdout, sizes in bytes"},
};
constexpr size_t kFewFlags = 18;  // so many fit on one screen beside the rest

const UsualFlag* usual(const OptionEntry& o) {
  const auto it = std::find_if(std::begin(kUsual), std::end(kUsual),
                               [&](const UsualFlag& f) { return std::find(o.names.begin(), o.names.end(), f.name) != o.names.end(); });
  return it == std::end(kUsual) ? nullptr : &*it;
}

// "Common" and the devices first, then what the command is about, then the details of a run, how it is printed, and help.
int rank_of_group(const std::string& group) {
  if (group == kCommonGroup) return 0;
  if (group == "Devices") return 1;
  if (group == "Output") return 100;
  if (group == "Help") return 101;
  const std::vector<std::string>& details = job_flag_groups();
  const auto it = std::find(details.begin(), details.end(), group);
  return it == details.end() ? 2 : 3 + static_cast<int>(it - details.begin());
}

std::string left_of(const OptionEntry& o) {
  const std::string gap = o.value.empty() || o.value.starts_with("[=") ? "" : " ";
  const bool only_long = o.names[0].starts_with("--");
  return fmt::format("  {}{}{}{}", only_long ? "    " : "", join(o.names, ", "), gap, o.value);
}

// The first clause: a screen has no room for the rest.
std::string brief(const std::string& help, size_t most) {
  std::string out = help.substr(0, std::min({help.find("; "), help.find(", e.g."), help.find(" (", 1)}));
  if (out.size() <= most) return out;
  for (const char* end : {": ", ", "})
    if (const size_t at = out.rfind(end, most); at != std::string::npos && at > 12) return out.substr(0, at);
  return out;
}

// What has no room beside its flag is left to the long help.
std::string brief_value(const OptionEntry& o) {
  if (left_of(o).size() + 2 <= kLeft + 4) return o.value;
  return o.value.starts_with("[=") ? "[=...]" : "...";
}

void append_groups(Lines& out, const CommandEntry& command, HelpLength length, size_t width) {
  std::vector<OptionEntry> options;
  for (OptionEntry o : command.options)
    if (!o.positional) options.push_back(std::move(o));
  const bool is_short = length == HelpLength::one_screen;
  const auto of_a_run = [](const OptionEntry& o) {
    const int rank = rank_of_group(o.group);
    return rank == 0 || (rank > 2 && rank < 100);
  };
  // Where the run is named by --run its settings are seldom given beside it.
  const bool by_name = std::any_of(options.begin(), options.end(), [](const OptionEntry& o) { return o.names[0] == "--run"; });
  if (is_short && options.size() > kFewFlags)
    std::erase_if(options, [&](const OptionEntry& o) { return !usual(o) || (by_name && of_a_run(o) && o.names[0] != "--run"); });
  for (OptionEntry& o : options)
    if (is_short && of_a_run(o)) o.group = kCommonGroup;
  std::stable_sort(options.begin(), options.end(),
                   [](const OptionEntry& a, const OptionEntry& b) { return rank_of_group(a.group) < rank_of_group(b.group); });
  std::vector<std::string> groups;
  for (const OptionEntry& o : options)
    if (std::find(groups.begin(), groups.end(), o.group) == groups.end()) groups.push_back(o.group);
  for (const std::string& group : groups) {
    out.emplace_back();
    out.push_back((group == "Options" ? "Flags" : group) + ":");
    for (OptionEntry o : options) {
      if (o.group != group) continue;
      if (is_short) o.value = brief_value(o);
      const UsualFlag* flag = is_short ? usual(o) : nullptr;
      const std::string short_help = flag && *flag->help != '\0' ? flag->help : brief(o.help, width - kLeft - 4);
      append_row(out, left_of(o), is_short ? short_help : o.help, kLeft + 4, width);
    }
  }
}

std::string usage_of(const CommandEntry& command, const CommandEntry& root) {
  std::string out = fmt::format("Usage: {} {} [flags]", root.name, command.name);
  for (const OptionEntry& o : command.options)
    if (o.positional) out += " " + (o.value.empty() ? o.names[0] : o.value);
  return out;
}

std::string command_help(const CommandEntry& command, const CommandEntry& root, HelpLength length, size_t width) {
  const bool is_short = length == HelpLength::one_screen;
  Lines out;
  const std::string title = fmt::format("{} {}: ", root.name, command.name);
  append_wrapped(out, title + (is_short ? brief(command.summary, width - title.size()) : command.summary), width);
  auto [examples, notes] = parts_of_footer(command);
  if (is_short) {
    std::erase_if(examples, [](const std::string& line) { return !is_example(line); });
    constexpr size_t kMost = 5;
    examples.resize(std::min(examples.size(), kMost));
  }
  if (!examples.empty()) {
    out.emplace_back();
    append_footer(out, examples, length, width);
  }
  out.emplace_back();
  append_wrapped(out, usage_of(command, root), width);
  for (const OptionEntry& o : command.options)
    if (o.positional && !is_short) append_row(out, "  " + (o.value.empty() ? o.names[0] : o.value), o.help, kLeft + 4, width);
  append_groups(out, command, length, width);
  out.emplace_back();
  if (is_short)
    append_wrapped(out, fmt::format("Everything else: {} {} --help", root.name, command.name), width);
  else
    append_footer(out, notes, length, width);
  while (!out.empty() && out.back().empty()) out.pop_back();
  return join(out, "\n") + "\n";
}

// ---- the program itself

struct Question {
  const char* text;
  std::vector<const char*> commands;
};

const std::vector<Question>& questions() {
  static const std::vector<Question> kQuestions{
      {"Will it fit?", {"estimate", "compare", "report", "capture"}},
      {"What to change?", {"plan", "fix", "ai-toolkit"}},
      {"What happened?", {"explain", "replay"}},
      {"Keep it alive", {"watch", "run"}},
      {"Reference", {"list", "doctor", "schema", "measure", "score", "version", "man", "completion"}},
  };
  return kQuestions;
}

std::string program_help(const std::vector<CommandEntry>& tree, HelpLength length, size_t width) {
  constexpr size_t kNames = 14;
  const CommandEntry& root = tree[0];
  Lines out;
  append_wrapped(out, root.summary, width);
  const auto [examples, notes] = parts_of_footer(root);
  out.emplace_back();
  append_footer(out, examples, length, width);
  out.emplace_back();
  append_wrapped(out, fmt::format("Usage: {} [COMMAND] [flags] MODEL|FILE|DIR|-- COMMAND (default: estimate)", root.name), width);
  std::map<std::string, const CommandEntry*> left;
  for (size_t i = 1; i < tree.size(); ++i) left[tree[i].name] = &tree[i];
  const auto append_commands = [&](const char* title, const std::vector<std::string>& names) {
    std::vector<const CommandEntry*> there;
    for (const std::string& name : names)
      if (const auto it = left.find(name); it != left.end()) there.push_back(it->second);
    if (there.empty()) return;
    out.emplace_back();
    out.emplace_back(title);
    for (const CommandEntry* c : there) {
      append_row(out, "  " + c->name, length == HelpLength::one_screen ? brief(c->summary, width - kNames) : c->summary, kNames, width);
      left.erase(c->name);
    }
  };
  for (const Question& q : questions()) append_commands(q.text, {q.commands.begin(), q.commands.end()});
  std::vector<std::string> others;
  for (size_t i = 1; i < tree.size(); ++i) others.push_back(tree[i].name);
  append_commands("More", others);
  if (length == HelpLength::all) append_groups(out, root, length, width);
  out.emplace_back();
  append_footer(out, notes, length, width);
  return join(out, "\n") + "\n";
}

}  // namespace

std::string help_text(const CommandEntry& command, const std::vector<CommandEntry>& tree, HelpLength length, size_t width) {
  return command.name == tree[0].name ? program_help(tree, length, width) : command_help(command, tree[0], length, width);
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode mode) const {
  return help_text(entry_of(*app), app_tree(root_of(*app)), mode == CLI::AppFormatMode::All ? HelpLength::all : HelpLength::one_screen,
                   std::clamp<size_t>(terminal_columns(80), 60, 100));
}

}  // namespace plimsoll
