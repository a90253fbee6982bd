// The Python traceback above an error: its frames, the user's own last one, and which part of training they belong to.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct Frame {
  std::string file;
  int64_t line = 0;
  std::string function;
  std::string statement;  // the source line, where the traceback shows it
};

struct Traceback {
  std::vector<Frame> frames;  // outermost first

  const Frame* users() const;   // the innermost that is not in an installed package
  const Frame* models() const;  // the innermost that is in a model's definition: modeling_llama.py, transformer_flux.py
  bool pins() const;            // the innermost asks for page-locked memory of the host
  std::string phase() const;    // "forward", "backward", "optimizer step", "loading", "evaluation", "saving"; empty: not known
};

// The frames above an error in `before`, the raw text up to it; only lines of the same rank count.
Traceback read_traceback(std::string_view before, std::optional<int> rank);

}  // namespace plimsoll
