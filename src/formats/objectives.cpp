#include "formats/objectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "util/text.h"

namespace plimsoll {

namespace {

// What a step has beside the update of the model.
struct Known {
  const char* name;
  bool pairs = false;      // two answers to a question run together, and their log-probabilities
  bool generates = false;  // answers are made by the model that is trained
  bool reference = false;  // a frozen copy of the model
  bool value = false;      // a model that predicts rewards, with an optimizer state of its own
  bool reward = false;     // a model that gives rewards
  bool teacher = false;
};

const std::vector<Known>& known_objectives() {
  static const std::vector<Known> kKnown{{"dpo", true, false, true},
                                         {"ipo", true, false, true},
                                         {"kto", true, false, true},
                                         {"bco", true, false, true},
                                         {"nca", true, false, true},
                                         {"orpo", true},
                                         {"simpo", true},
                                         {"cpo", true},
                                         {"rm", true},
                                         {"reward", true},
                                         {"prm", true},
                                         {"grpo", false, true, true},
                                         {"gdpo", false, true, true},
                                         {"rloo", false, true, true, false, true},
                                         {"ppo", false, true, true, true, true},
                                         {"online_dpo", true, true, true, false, true},
                                         {"nash_md", true, true, true, false, true},
                                         {"xpo", true, true, true, false, true},
                                         {"gkd", false, true, false, false, false, true},
                                         {"kd", false, false, false, false, false, true}};
  return kKnown;
}

const Known* find_objective(const std::string& name) {
  for (const Known& k : known_objectives())
    if (name == k.name) return &k;
  return nullptr;
}

}  // namespace

std::string objective_in(const std::string& name) {
  std::string text = lower(name.substr(name.rfind('/') + 1));
  if (text.ends_with(".py")) text.resize(text.size() - 3);
  std::replace(text.begin(), text.end(), '-', '_');
  for (const char* whole : {"online_dpo", "nash_md"})
    if (text.find(whole) != std::string::npos) return whole;
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = ' ';
  for (const std::string& word : split_at(text, ' '))
    if (find_objective(word)) return word;
  return "";
}

void note_objective(Reader& r, const Objective& o) {
  const Known* k = find_objective(o.name);
  if (!k) return;
  const std::string only = "only the model's own loss on one batch is simulated";
  if (k->pairs) r.missing("the preference loss", fmt::format("{} runs two answers to each question together: {}", o.name, only));
  if (k->reference && o.reference && !o.adapter)
    r.missing("the reference model", "a frozen copy of the model's weights, and its own pass over each batch",
              "with an adapter the base itself is the reference");
  if (k->generates && o.vllm)
    r.missing("the rollout engine", "vLLM keeps weights and a cache of its own on the device while it is awake",
              "gpu_memory_utilization says how much");
  else if (k->generates)
    r.missing("the generation of answers",
              fmt::format("the model makes answers before each update, with a cache of keys and values: {}", only));
  if (k->value) r.missing("the value model", "it is trained beside the model, with an optimizer state of its own");
  if (k->reward || o.reward) r.missing("the reward model", "its weights are on the device while answers are scored");
  if (k->teacher) r.missing("the teacher", "its weights, and its logits beside those of the model");
}

}  // namespace plimsoll
