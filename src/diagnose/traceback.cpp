#include "diagnose/traceback.h"

#include <algorithm>

#include "diagnose/log_stream.h"
#include "diagnose/printed_size.h"
#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// Box drawings of rich's tracebacks: "│ /home/x/train.py:12 in main   │".
std::string without_boxes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) == 0xe2 && i + 2 < text.size()) {
      i += 2;
      out += ' ';
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string_view name_at(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && (std::isalnum(static_cast<unsigned char>(text[length])) || text[length] == '_' || text[length] == '<' ||
                                  text[length] == '>' || text[length] == '.'))
    ++length;
  return text.substr(0, length);
}

// `File "train.py", line 12, in main`, IPython's `File ~/train.py:12, in main(args)`, rich's `/home/x/train.py:12 in main`.
std::optional<Frame> frame_of(std::string_view line) {
  line = trimmed(line);
  if (const size_t file = line.find("File \""); file != std::string_view::npos && has(line.substr(file), "\", line "))
    line.remove_prefix(file);  // past what a logger put before it
  Frame f;
  const bool python = line.starts_with("File ");
  if (python) line.remove_prefix(5);
  if (python && line.starts_with('"')) {
    const size_t close = line.find('"', 1);
    const auto number = number_after(line, "\", line ");
    if (close == std::string_view::npos || !number) return {};
    f.file = line.substr(1, close - 1);
    f.line = *number;
  } else {
    const size_t extension = line.find(".py:");
    if (extension == std::string_view::npos || extension > 400 || (!python && has(line.substr(0, extension), " "))) return {};
    f.file = line.substr(0, extension + 3);
    f.line = number_after(line.substr(extension + 3), ":").value_or(0);
  }
  const size_t in = line.find(" in ");
  if (in == std::string_view::npos) return {};
  f.function = name_at(line.substr(in + 4));
  return f;
}

// What stands on the lines between frames and is a statement: no marks, no box, no other text of the log.
bool is_statement(std::string_view line) {
  const std::string_view t = trimmed(line);
  return !t.empty() && line.size() > t.size() && t.find_first_not_of("^~ ") != std::string_view::npos && !t.starts_with("...<");
}

bool installed(const std::string& file) {
  for (const std::string_view part :
       {"site-packages", "dist-packages", "/lib/python", "\\lib\\", "/usr/lib", "<frozen", "<string>", "importlib"})
    if (has(file, part)) return true;
  return file.starts_with("<");
}

}  // namespace

Traceback read_traceback(std::string_view before, std::optional<int> rank) {
  // Backwards by lines, to the traceback's first; an earlier one of an exception "during handling" is not this error's.
  Traceback out;
  std::string statement;
  int others = 0;
  while (!before.empty() && out.frames.size() < 200) {
    if (before.back() == '\n') before.remove_suffix(1);
    const size_t end = before.find_last_of('\n');
    const std::string_view raw = end == std::string_view::npos ? before : before.substr(end + 1);
    before = end == std::string_view::npos ? std::string_view() : before.substr(0, end + 1);
    const CleanLine line = clean_line(raw.substr(0, 2000));
    if (rank && line.rank && line.rank != rank) continue;
    const std::string text = without_boxes(line.text);
    if (auto frame = frame_of(text)) {
      frame->statement = statement;
      statement.clear();
      others = 0;
      out.frames.push_back(std::move(*frame));
    } else if (has(text, "Traceback (most recent call last)")) {
      break;
    } else if (is_statement(text)) {
      statement = std::string(trimmed(text)).substr(0, 200);
      ++others;
    } else {
      ++others;
    }
    if (others > (out.frames.empty() ? 60 : 40)) break;  // no traceback above, or its beginning is not marked
  }
  std::reverse(out.frames.begin(), out.frames.end());
  return out;
}

const Frame* Traceback::users() const {
  for (auto it = frames.rbegin(); it != frames.rend(); ++it)
    if (!installed(it->file)) return &*it;
  return nullptr;
}

const Frame* Traceback::models() const {
  for (auto it = frames.rbegin(); it != frames.rend(); ++it)
    if (has(it->file, "modeling_") || has(it->file, "/models/") || has(it->file, "\\models\\")) return &*it;
  return nullptr;
}

// tensor.pin_memory(), also through DeepSpeed's accelerator and the DataLoader's thread, and torch.empty(..., pin_memory=True).
bool Traceback::pins() const {
  for (auto it = frames.rbegin(); it != frames.rend(); ++it) {
    if (it->function == "__torch_function__" || it->function == "decorate_context") continue;  // PyTorch's own, around a call
    if (has(it->statement, "set_device(")) return false;  // the loader's thread makes a context on the device first
    return it->function.ends_with("pin_memory") || has(it->statement, "pin_memory(") || has(it->statement, "pin_memory=True");
  }
  return false;
}

std::string Traceback::phase() const {
  for (const Frame& f : frames) {
    const std::string function = lower(f.function), statement = lower(f.statement);
    const auto is = [&](std::initializer_list<std::string_view> names) {
      return std::any_of(names.begin(), names.end(), [&](std::string_view n) { return has(function, n); });
    };
    if (is({"evaluate", "evaluation", "validat", "eval_step", "prediction_step", "test_step", "_run_sanity_check"})) return "evaluation";
    if (is({"save_checkpoint", "save_model", "_save_", "save_pretrained"})) return "saving";
    if (function == "backward" || function == "_engine_run_backward" || has(statement, ".backward(")) return "backward";
    if (has(f.file, "/optim/") || has(f.file, "optimizers/") || has(statement, "optimizer.step(") || function == "optimizer_step")
      return "optimizer step";
    if (is({"from_pretrained", "load_state_dict", "load_checkpoint", "_load_", "load_model", "create_and_replace", "from_preset"}) ||
        function == "_apply" || function == "convert" || function == "cuda" || (function == "to" && has(f.file, "module.py")) ||
        has(statement, "model.to(") || has(statement, "model.cuda("))
      return "loading";
    if (is({"generate", "sample"})) return "generation";
  }
  for (const Frame& f : frames)
    if (f.function == "forward" || f.function == "_call_impl" || f.function == "compute_loss") return "forward";
  return "";
}

}  // namespace plimsoll
