// Where an answer goes: a terminal, a file, the caller of the library; and what is said on the way to it. Nothing below prints.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "report/document.h"
#include "util/error.h"
#include "util/progress.h"

namespace plimsoll {

struct Show {
  using MakeDocument = std::function<doc::Document()>;
  using MakeJson = std::function<nlohmann::ordered_json()>;

  Show() = default;
  template <class Answer>
  requires std::is_invocable_v<Answer, const MakeDocument&, const MakeJson&> Show(Answer answer) : answer(std::move(answer)) {}

  // For people and for programs. Each form is made only when it is asked for, while what it is about is alive.
  void operator()(const MakeDocument& document, const MakeJson& json) const { answer(document, json); }
  // Whole lines that are no part of the answer: which file was written, what it says.
  void note(const std::string& lines) const {
    if (notes) notes(lines);
  }

  std::function<void(const MakeDocument& document, const MakeJson& json)> answer;
  std::function<void(const std::string& lines)> notes;  // may be empty
  OnProgress progress;                                  // may be empty
  bool best_so_far = false;                             // where `progress` ends an answer, what is known by then is shown; else nothing is
};

}  // namespace plimsoll
