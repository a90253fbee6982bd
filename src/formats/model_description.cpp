#include "formats/model_description.h"

#include <filesystem>

#include "formats/format.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

// What a directory's model is read from, as the libraries look for it.
std::string model_file_in(const std::string& folder) {
  std::error_code error;
  for (const char* name : {"model_index.json", "config.json", "adapter_config.json"})
    if (const fs::path path = fs::path(folder) / name; fs::is_regular_file(path, error)) return path.string();
  const std::string weights = weights_beside(folder);
  if (weights.empty())
    throw Error("[model] " + folder + " has no config.json, model_index.json or weights", "name the directory of a saved model");
  return weights;
}

}  // namespace

void name_model(Reader& r) { apply_setting(r.job, "model", r.document.path, r.document.name); }

ModelDescription describe_model(Job& job, const std::string& path) {
  std::error_code error;
  const Document document = read_document(fs::is_directory(path, error) ? model_file_in(path) : path);
  const Format* format = format_of(document);
  if (!format || !format->model) {
    if (format && format->rank == Rank::adapter)
      throw Error("[model] " + path + " holds an adapter, not a model",
                  "give it as the input: plimsoll estimate DIR, or name its base model");
    throw Error("[model] " + path + " is no configuration or weights of a model",
                "a config.json, model_index.json, safetensors or GGUF file is one");
  }
  Reader reader(job, document);
  return format->model(reader);
}

}  // namespace plimsoll
