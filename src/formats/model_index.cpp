// model_index.json of a diffusers pipeline: {component: [library, class]}, each with a folder of its own. The denoiser is what is
// trained; the others are named with their sizes.
#include <fmt/format.h>

#include <filesystem>

#include "formats/format.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Component {
  std::string name, type;
};

bool is_component(const std::string& key, const Json& value) {
  return !key.starts_with('_') && key.find('/') == std::string::npos && value.is_array() && value.size() == 2 && value[1].is_string();
}

// Networks alone: tokenizers, schedulers and processors hold no weights.
std::vector<Component> networks(const Json& index) {
  std::vector<Component> found;
  for (const auto& item : index.items()) {
    if (!is_component(item.key(), item.value())) continue;
    const std::string type = item.value()[1].get<std::string>();
    bool network = true;
    for (const char* part : {"Scheduler", "Tokenizer", "Processor", "FeatureExtractor"})
      network = network && type.find(part) == std::string::npos;
    if (network) found.push_back({item.key(), type});
  }
  return found;
}

// By the names that pipelines use, else by what the class is called.
const Component* denoiser_of(const std::vector<Component>& all) {
  for (const char* name : {"transformer", "unet", "prior"})
    for (const Component& c : all)
      if (c.name == name) return &c;
  for (const Component& c : all)
    if (c.type.find("UNet") != std::string::npos || (c.type.find("Transformer") != std::string::npos && c.type.ends_with("Model")))
      return &c;
  return nullptr;
}

void note_other(Reader& r, const Component& c) {
  std::string size = "no weights beside it";
  try {
    size = summary(read_weights((fs::path(r.document.folder()) / c.name).string()));
  } catch (const Error&) {
  }
  r.missing("the " + printable(c.name, 80),
            fmt::format("{}, {}: it takes memory for as long as it is on the device", printable(c.type, 80), size),
            "for the denoiser alone, name its own config.json");
}

Evidence evidence_of_model_index(const Document& d) {
  if (d.kind != Document::Kind::json || !d.value.is_object() || !d.value.contains("_class_name")) return {};
  if (const std::vector<Component> all = networks(d.value); denoiser_of(all)) return {"_class_name", denoiser_of(all)->name};
  for (const auto& item : d.value.items())
    if (is_component(item.key(), item.value())) return {"_class_name", item.key()};
  return {};
}

ModelDescription model_of_model_index(Reader& r) {
  const std::vector<Component> all = networks(r.document.value);
  const Component* denoiser = denoiser_of(all);
  if (!denoiser)
    throw Error(fmt::format("[model_index] {} has no transformer, unet or prior", r.document.path),
                "name the config.json of the network that is trained");
  for (const Component& c : all)
    if (&c != denoiser) note_other(r, c);
  const fs::path folder = fs::path(r.document.folder()) / denoiser->name;
  ModelDescription m;
  m.weights = weights_beside(folder.string());
  std::error_code error;
  if (const fs::path config = folder / "config.json"; fs::is_regular_file(config, error)) {
    m.candidates.push_back({denoiser->type, read_document(config.string()).value, ""});
  } else {
    m.candidates.push_back(
        {denoiser->type, Json::object(), fmt::format("{} is not here: {} has its class's usual sizes", config.string(), denoiser->type)});
  }
  if (!m.candidates[0].config.is_object())
    throw Error("[model_index] " + (folder / "config.json").string() + " holds no settings", "is it diffusers' own?");
  r.note(Effect::note, fmt::format("{} ({}) is the network that is trained", printable(denoiser->name, 80), printable(denoiser->type, 80)));
  return m;
}

}  // namespace

const Format& model_index_format() {
  static const Format kFormat{"model_index",       "model_index.json of diffusers", Rank::model, evidence_of_model_index, name_model,
                              model_of_model_index};
  return kFormat;
}

}  // namespace plimsoll
