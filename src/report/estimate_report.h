// An Estimate as a document for people and as JSON for programs.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimate/estimate.h"
#include "report/document.h"

namespace plimsoll {

struct TextOptions {
  int depth = 3;            // levels of the module tree
  double smallest = 0.005;  // rows below this share are summed into one
};

// Parameters of each part of the model, the first `depth` names of its path. Only of an estimate with tensors.
std::map<std::string, int64_t> parameters_by_part(const Estimate& e, size_t depth);

// "8.03 B parameters, batch 1 x 4096 tokens, bf16, AdamW": beside the model's name.
std::string recipe_headline(const Estimate& e);
// What to know of the figures where they are not those of a step that PyTorch would run op by op: of an unknown architecture, of a
// compiled run. Empty: they are.
std::string caution_text(const Estimate& e);
doc::Document estimate_document(const Estimate& e, const TextOptions& options = {});
// Where the figures are not those of what was asked; empty when they are.
doc::Blocks warning_blocks(const Job& job);
// What runs of `measure` on this machine say about the tensors of this one.
doc::Facts tensors_facts(const Correction& c);
nlohmann::ordered_json estimate_json(const Estimate& e);
nlohmann::ordered_json findings_json(const Job& job);

}  // namespace plimsoll
