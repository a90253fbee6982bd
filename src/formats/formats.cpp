#include <algorithm>
#include "formats/format.h"

#include <fmt/format.h>

#include "formats/command_line.h"
#include "util/outcome.h"
#include "util/text.h"

namespace plimsoll {

// Every format, one line each, the most particular first: the first that matches reads a document. NAME_format() is defined in the file of
// its reader.
// clang-format off
#define PLIMSOLL_FORMATS(FORMAT) \
  FORMAT(peft_weights) \
  FORMAT(safetensors) \
  FORMAT(safetensors_index) \
  FORMAT(gguf) \
  FORMAT(peft_adapter) \
  FORMAT(model_index) \
  FORMAT(diffusers_config) \
  FORMAT(hf_config) \
  FORMAT(ai_toolkit) \
  FORMAT(stdiff) \
  FORMAT(fsdm) \
  FORMAT(gsa) \
  FORMAT(mamba_trainer) \
  FORMAT(accelerate) \
  FORMAT(deepspeed) \
  FORMAT(axolotl) \
  FORMAT(llama_factory) \
  FORMAT(torchtune) \
  FORMAT(litgpt) \
  FORMAT(torchtitan) \
  FORMAT(kohya) \
  FORMAT(hf_training_arguments) \
  FORMAT(job)
// clang-format on

#define PLIMSOLL_DECLARE(NAME) const Format& NAME##_format();
PLIMSOLL_FORMATS(PLIMSOLL_DECLARE)
#undef PLIMSOLL_DECLARE

const std::vector<Format>& formats() {
#define PLIMSOLL_VALUE(NAME) NAME##_format(),
  static const std::vector<Format> kFormats{PLIMSOLL_FORMATS(PLIMSOLL_VALUE)};
#undef PLIMSOLL_VALUE
  return kFormats;
}

const Format* format_of(const Document& document) {
  for (const Format& f : formats())
    if (!f.evidence(document).empty()) return &f;
  return nullptr;
}

bool is_configuration(const std::string& path) {
  const auto has_format = [](const Document& d) { return format_of(d) != nullptr; };
  return outcome_of([&] {
           const Document document = read_document(path);
           if (document.kind != Document::Kind::text) return has_format(document);
           const std::vector<Document> commands = script_documents(document.text, document.name);
           return std::any_of(commands.begin(), commands.end(), has_format);
         })
      .value.value_or(false);
}

const Format* format_named(const std::string& name) {
  for (const Format& f : formats())
    if (name == f.name) return &f;
  return nullptr;
}

void read_as(const Format& format, const Document& document, Job& job) {
  Evidence by = format.evidence(document);
  constexpr size_t kShown = 5;
  const std::string more = by.size() > kShown ? fmt::format(" and {} more", by.size() - kShown) : "";
  if (by.size() > kShown) by.resize(kShown);
  if (!by.empty() && format.rank != Rank::job)
    job.findings.push_back(
        {Effect::note, "", document.name, fmt::format("read as {}: {}{}", format.name, printable(join(by, ", "), 300), more), ""});
  Reader reader(job, document);
  format.read(reader);
}

bool has_keys(const Document& document, std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) {
    const nlohmann::json* at = &document.value;
    for (const std::string& key : split_at(path, '.')) {
      if (!at->is_object() || !at->contains(key)) return false;
      at = &(*at)[key];
    }
  }
  return true;
}

Evidence keys_there(const Document& document, std::initializer_list<std::string_view> paths) {
  const bool command = document.kind == Document::Kind::command;
  Evidence there;
  for (const std::string_view path : paths) {
    if (!command && has_keys(document, {path})) there.emplace_back(path);
    if (command && document.value.contains("flags") && document.value["flags"].contains(std::string(path)))
      there.push_back("--" + std::string(path));
  }
  return there;
}

}  // namespace plimsoll
