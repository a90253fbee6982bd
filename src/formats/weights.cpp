#include "formats/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "formats/document.h"
#include "formats/format.h"
#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostTensors = 1'000'000;

bool is_weights(const Document& d) { return d.kind == Document::Kind::safetensors || d.kind == Document::Kind::gguf; }

void append(std::vector<WeightTensor>& all, std::set<std::string>& names, Document&& part) {
  for (WeightTensor& t : part.tensors) {
    if (!names.insert(t.name).second)
      throw Error(fmt::format("[weights] '{}' is in {} and in another file too", t.name, part.name),
                  "name one file, or the index of one model");
    if (all.size() >= kMostTensors) throw Error("[weights] more than a million tensors", "is this one model?");
    all.push_back(std::move(t));
  }
}

// The shards that {"weight_map": {tensor: file}} names, which are beside it.
std::vector<WeightTensor> read_shards(const Document& index) {
  std::set<std::string> files, names;
  for (const auto& item : index.value["weight_map"].items()) {
    const std::string file = item.value().is_string() ? item.value().get<std::string>() : "";
    if (file.empty() || file.find('/') != std::string::npos || file.find('\0') != std::string::npos)
      throw Error(
          fmt::format("[weights] {}: the file of '{}' is {}", index.name, printable(item.key(), 80), dump(item.value()).substr(0, 80)),
          "it must be the name of a file beside the index");
    files.insert(file);
  }
  std::vector<WeightTensor> all;
  for (const std::string& file : files) {
    const fs::path path = fs::path(index.folder()) / file;
    std::error_code error;
    if (!fs::is_regular_file(path, error))
      throw Error(fmt::format("[weights] {} names {}, which is not here", index.name, printable(file, 200)),
                  "its header is enough: the first bytes of every shard");
    Document shard = read_document(path.string());
    if (!is_weights(shard)) throw Error(fmt::format("[weights] {} is no safetensors file", shard.name), "fetch it again");
    append(all, names, std::move(shard));
  }
  return all;
}

std::vector<std::string> files_in(const std::string& folder, const char* ending) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file(error) && name.ends_with(ending) && !name.starts_with("adapter_")) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<WeightTensor> read_weights(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const std::string found = weights_beside(path);
    if (found.empty()) throw Error("[weights] " + path + " holds no safetensors or GGUF file", "name a file of weights");
    return read_weights(found);
  }
  Document d = read_document(path);
  if (has_keys(d, {"weight_map"}) && d.value["weight_map"].is_object()) return read_shards(d);
  if (!is_weights(d))
    throw Error("[weights] " + path + " is neither safetensors nor GGUF nor the index of such files", "name a file of weights");
  return std::move(d.tensors);
}

// As from_pretrained looks for them: one file, else the index of several. Without either, a lone file of any name.
std::string weights_beside(const std::string& folder) {
  for (const char* name : {"model.safetensors", "diffusion_pytorch_model.safetensors"})
    for (const char* more : {"", ".index.json"}) {
      const fs::path path = fs::path(folder) / (std::string(name) + more);
      std::error_code error;
      if (fs::is_regular_file(path, error)) return path.string();
    }
  for (const char* ending : {".safetensors.index.json", ".safetensors", ".gguf"})
    if (const std::vector<std::string> found = files_in(folder, ending); found.size() == 1) return found[0];
  return "";
}

std::string summary(const std::vector<WeightTensor>& tensors) {
  int64_t elements = 0;
  std::map<std::string, int64_t> by_type;
  for (const WeightTensor& t : tensors) {
    elements = checked_add(elements, t.elements);
    by_type[t.dtype] += t.elements;
  }
  std::string usual;
  for (const auto& [type, n] : by_type)
    if (usual.empty() || n > by_type[usual]) usual = type;
  const double n = static_cast<double>(elements);
  const std::string count = n >= 1e9   ? fmt::format("{:.2f} billion", n / 1e9)
                            : n >= 1e6 ? fmt::format("{:.1f} million", n / 1e6)
                                       : fmt::format("{}", elements);
  return usual.empty() ? "no parameters" : fmt::format("{} parameters, {}{}", count, by_type.size() > 1 ? "mostly " : "", usual);
}

void check_tensor_name(const std::string& name, const std::string& file) {
  const bool strange = std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (name.empty() || name.size() > 1000 || strange)
    throw Error(fmt::format("[weights] {}: '{}' is no name of a tensor", file, printable(name, 80)), "is the file damaged?");
}

}  // namespace plimsoll
