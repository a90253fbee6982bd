#include "diagnose/set_already.h"

#include <cctype>
#include <optional>
#include <string>

#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::string_view kExpandable = "expandable_segments:True";

bool is_name_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The word that a line gives for a name: "true" of `name=True`, `"name": true`, `--name true`; "" where the name ends the line or another
// flag follows, as of a flag that is a switch. None: the name is not there.
std::optional<std::string> value_of_name(std::string_view line, std::string_view name) {
  for (size_t at = line.find(name); at != std::string_view::npos; at = line.find(name, at + 1)) {
    std::string_view rest = line.substr(at + name.size());
    const bool whole = (at == 0 || !is_name_letter(line[at - 1])) && (rest.empty() || !is_name_letter(rest[0]));
    if (!whole) continue;
    const bool is_switch = at >= 2 && line.substr(0, at).ends_with("--");
    const size_t value = rest.find_first_not_of(" \"':=");
    if (value == std::string_view::npos || rest.substr(value).starts_with("--")) {
      if (is_switch) return "";
      continue;
    }
    if (value == 0) continue;
    rest.remove_prefix(value);
    size_t length = 0;
    while (length < rest.size() && is_name_letter(rest[length])) ++length;
    return lower(rest.substr(0, length));
  }
  return std::nullopt;
}

bool is_turned_on(std::string_view line, std::string_view name) {
  const auto value = value_of_name(line, name);
  return value && (value->empty() || *value == "true" || *value == "1" || *value == "yes");
}

// PyTorch's own advice at the end of its message is no setting.
bool sets_expandable(std::string_view line) {
  const size_t at = line.find(kExpandable);
  if (at == std::string_view::npos) return false;
  const bool advice = line.substr(at + kExpandable.size()).starts_with(" to") || line.substr(0, at).find("setting ") < at;
  return !advice;
}

}  // namespace

const std::vector<std::string_view>& setting_words() {
  static const std::vector<std::string_view> kWords{
      "expandable_segments", "gradient_checkpointing", "bf16", "fp16", "mixed_precision", "batch_size", "load_in_4bit"};
  return kWords;
}

void SetAlready::read(std::string_view line) {
  line = line.substr(0, 4096);
  expandable_segments |= sets_expandable(line);
  checkpointing |= is_turned_on(line, "gradient_checkpointing");
  four_bit |= is_turned_on(line, "load_in_4bit");
  const auto mixed = value_of_name(line, "mixed_precision");
  autocast |= is_turned_on(line, "bf16") || is_turned_on(line, "fp16") || mixed == "bf16" || mixed == "fp16";
  for (const std::string_view name : {"per_device_train_batch_size", "micro_batch_size", "train_batch_size", "batch_size"})
    batch_of_one |= value_of_name(line, name) == "1";
}

}  // namespace plimsoll
