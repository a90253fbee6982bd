// Files of weights without a configuration: the tensors of the model, and nothing about how they are used.
#include <fmt/format.h>

#include <filesystem>
#include <regex>

#include "formats/format.h"
#include "formats/readers.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

// "model-00001-of-00004.safetensors" is one of several that an index lists; empty: the file is alone.
std::string index_of(const Document& d) {
  static const std::regex kShard(R"((.*)-\d{5}-of-\d{5}\.safetensors)");
  std::smatch m;
  if (!std::regex_match(d.name, m, kShard)) return "";
  const fs::path index = fs::path(d.folder()) / (m[1].str() + ".safetensors.index.json");
  std::error_code error;
  return fs::is_regular_file(index, error) ? index.string() : "";
}

Evidence evidence_of_safetensors(const Document& d) {
  return d.kind == Document::Kind::safetensors ? Evidence{"the header of its tensors"} : Evidence{};
}

Evidence evidence_of_safetensors_index(const Document& d) {
  const bool index =
      d.kind == Document::Kind::json && d.value.is_object() && d.value.contains("weight_map") && d.value["weight_map"].is_object();
  return index ? Evidence{"weight_map"} : Evidence{};
}

}  // namespace

void read_safetensors(Reader& r) {
  if (r.job.origin.contains("model")) return;
  const std::string index = index_of(r.document);
  apply_setting(r.job, "model", index.empty() ? r.document.path : index, r.document.name);
}

namespace {

// A config.json beside the weights says what they are.
ModelDescription model_of_safetensors(Reader& r) {
  const fs::path config = fs::path(r.document.folder()) / "config.json";
  std::error_code error;
  if (fs::is_regular_file(config, error)) {
    const Document document = read_document(config.string());
    if (const Format* format = format_of(document); format && format->rank == Rank::model) {
      Reader reader(r.job, document);
      ModelDescription m = format->model(reader);
      m.weights = r.document.path;
      return m;
    }
  }
  if (const auto missing = r.document.value.find("missing_bytes"); missing != r.document.value.end() && missing->get<int64_t>() > 0)
    r.note(Effect::note, fmt::format("{} bytes of data are missing: the header is whole, and enough here", missing->get<int64_t>()));
  return {{}, r.document.path};
}

}  // namespace

const Format& safetensors_format() {
  static const Format kFormat{
      "safetensors", "safetensors, the header alone", Rank::weights, evidence_of_safetensors, read_safetensors, model_of_safetensors};
  return kFormat;
}

const Format& safetensors_index_format() {
  static const Format kFormat{"safetensors_index", "model.safetensors.index.json", Rank::weights, evidence_of_safetensors_index, name_model,
                              model_of_safetensors};
  return kFormat;
}

}  // namespace plimsoll
