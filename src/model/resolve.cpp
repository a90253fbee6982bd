#include "model/resolve.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "job/job_file.h"
#include "model/registry.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

struct Found {
  const ModelEntry* entry = nullptr;
  nlohmann::json config = nlohmann::json::object();
  std::string source;
  int64_t seq = 0;
};

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const Preset& p : presets()) names.emplace_back(p.name);
  for (const ModelEntry& e : model_registry()) names.push_back(e.name);
  return names;
}

// config.json of transformers: the class in `architectures`, else the family of `model_type`.
Found from_hf_config(const std::string& path) {
  Found found;
  found.source = path;
  found.config = parse_json_text(read_text_file(path), path);
  const Config c(path, found.config);
  std::string asked;
  if (const nlohmann::json* classes = c.find({"architectures"});
      classes && classes->is_array() && !classes->empty() && (*classes)[0].is_string()) {
    asked = (*classes)[0].get<std::string>();
    found.entry = find_model(asked);
  }
  const std::string type = c.text({"model_type"}, "");
  if (!found.entry && !type.empty()) found.entry = find_model(type);
  if (!found.entry) {
    std::vector<std::string> names;
    for (const ModelEntry& e : model_registry())
      if (!e.classes.empty()) names.push_back(e.name);
    if (type.empty() && asked.empty())
      throw Error("[hf_config] " + path + " has neither model_type nor architectures", "is it a transformers config.json?");
    throw Error(fmt::format("[hf_config] {}: model_type '{}'{} is not supported", path, type, asked.empty() ? "" : " (" + asked + ")"),
                did_you_mean(type.empty() ? asked : type, names));
  }
  return found;
}

Found find(const std::string& text) {
  for (const Preset& p : presets())
    if (lower(text) == p.name) return {find_model(p.family), nlohmann::json::parse(p.config), p.name, p.seq};
  if (const ModelEntry* entry = find_model(text)) return {entry, nlohmann::json::object(), text, 0};
  std::error_code error;
  if (fs::is_directory(text, error)) {
    const std::string config = (fs::path(text) / "config.json").string();
    if (!fs::exists(config, error))
      throw Error("[model] " + text + " has no config.json", "name a directory of a saved transformers model");
    return from_hf_config(config);
  }
  if (fs::exists(text, error)) return from_hf_config(text);
  throw Error("[model] '" + text + "' is neither a known model nor a file", did_you_mean(text, known_names()));
}

// Lengths of the samples stand for batch and seq.
void resolve_lengths(Job& job) {
  Collation& c = job.collation;
  check_collation(c, job.origin.contains("batch") ? job.batch : 0);
  const bool used = c.padding_given || !c.lengths.empty() || c.collate == Collate::pack || c.pad_to_multiple_of > 1;
  if (used && job.inputs == InputKind::image)
    throw Error("[job] lengths, padding and collate are about tokens, " + job.family + " takes images", "leave them out");
  if (c.collate == Collate::pack && job.inputs != InputKind::lm)
    throw Error("[job] collate pack: a packed row has no one label for " + job.family, "collate: pad");
  if (c.lengths.empty()) return;
  if (job.longest) throw Error("[job] longest and lengths say two things about the samples", "leave one of them out");
  const int64_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  if (job.origin["seq"].rfind("usual for ", 0) != 0 && longest > job.seq)
    throw Error(fmt::format("[job] lengths: {} tokens are more than seq {}", longest, job.seq), "leave seq out");
  job.seq = longest;
  job.batch = static_cast<int64_t>(c.lengths.size());
}

// jax.pmap: the first axis of the batch are the devices.
void share_batch(Job& job) {
  if (!job.origin.contains("global_batch")) return;
  if (job.origin.contains("batch")) throw Error("[job] batch and global_batch say two things about the samples", "leave one of them out");
  const int64_t devices = job.jax.replicas, below = job.batch / devices * devices;
  if (job.batch != below)
    throw Error(
        fmt::format("[job] global_batch {} cannot be divided among {} replicas", job.batch, devices),
        below > 0 ? fmt::format("the nearest that can: {} and {}", below, below + devices) : fmt::format("the least is {}", devices));
  job.batch /= devices;
}

}  // namespace

void resolve_model(Job& job) {
  if (job.model.empty()) throw Error("[model] no model was named", "e.g. plimsoll estimate gpt2", ExitCode::usage);
  Found found = find(job.model);
  for (const auto& item : job.config.values().items()) found.config[item.key()] = item.value();
  job.family = found.entry->name;
  job.config = Config(found.source, found.config);
  if (!job.origin.contains("inputs")) job.inputs = found.entry->inputs;
  if (!job.origin.contains("seq")) {
    job.seq = found.seq ? found.seq : found.entry->default_seq;
    if (job.inputs == InputKind::image) job.seq = job.config.size({"image_size"}, job.seq);
    if (job.inputs == InputKind::vector) job.seq = job.config.size({"input_size"}, job.seq);
    job.origin["seq"] = "usual for " + job.model;
  }
  resolve_lengths(job);
  share_batch(job);
}

}  // namespace plimsoll
