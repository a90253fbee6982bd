#include "model/resolve.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "formats/model_description.h"
#include "job/settings.h"
#include "model/captured.h"
#include "model/checkpoint_type.h"
#include "model/hub_cache.h"
#include "model/hub_names.h"
#include "model/registry.h"
#include "model/weights_only.h"
#include "trace/trace_file.h"
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

constexpr const char* kLengths[] = {"seq", "longest", "lengths"};

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const Preset& p : presets()) names.emplace_back(p.name);
  for (const ModelEntry& e : model_registry()) names.push_back(e.name);
  return names;
}

void note(Job& job, Effect effect, const std::string& source, const std::string& what, const std::string& why = "") {
  job.findings.push_back({effect, "", source, what, why});
}

const Preset& preset_named(const std::string& name) {
  return *std::find_if(presets().begin(), presets().end(), [&](const Preset& p) { return name == p.name; });
}

Found from_preset(const Preset& p) { return {find_model(p.family), nlohmann::json::parse(p.config), p.name, p.seq}; }

bool gives_sizes(const nlohmann::json& config) {
  const Config c("config", config);
  return c.find({"hidden_size", "d_model", "n_embd", "hidden_dim", "embed_dim", "dim"}) &&
         c.find({"num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers"});
}

// By the shapes of its weights, else by the sizes in its configuration.
Found unknown_architecture(Job& job, const std::string& path, const ModelDescription& m) {
  const std::string name = m.candidates.empty() ? "" : " '" + printable(m.candidates.front().name, 80) + "'";
  Found found{find_model(kWeightsOnly), nlohmann::json::object(), path, 0};
  for (const ModelCandidate& c : m.candidates)
    if (gives_sizes(c.config) || c.config.contains("num_experts_per_tok")) found.config = c.config;
  if (m.weights.empty() && !gives_sizes(found.config)) {
    std::vector<std::string> names;
    for (const ModelEntry& e : model_registry())
      if (!e.classes.empty()) names.push_back(e.name);
    throw Error(
        fmt::format("[model] {}: architecture{} is not known, and neither weights nor sizes are there", path, name),
        did_you_mean(m.candidates.empty() ? "" : m.candidates.back().name, names) +
            "; or capture a script that trains it: plimsoll capture -- python train.py; or put its safetensors beside it: their headers "
            "are enough for an interval");
  }
  const std::string range =
      fmt::format("activations are a stand-in, taken to be {} to {} times as large: every layer called once on all tokens",
                  kStandInActivations.low, kStandInActivations.high);
  const std::string exactly =
      "exact, without a GPU: capture a script that trains it, plimsoll capture -o train.trace -- python train.py, then plimsoll estimate "
      "train.trace";
  if (!m.weights.empty()) {
    found.config["weights"] = m.weights;
    note(job, Effect::partial, path,
         fmt::format("architecture{} is not known: parameters, gradients and optimizer are exact by the headers of its weights; {}", name,
                     range),
         exactly);
  } else {
    note(job, Effect::partial, path,
         fmt::format(
             "architecture{} is not known: it is taken for a plain decoder of the same sizes, with {} to {} times its parameters; {}", name,
             kStandInParameters.low, kStandInParameters.high, range),
         "with its safetensors beside the configuration, parameters would be exact; " + exactly);
  }
  return found;
}

// By the name that llama.cpp gives an architecture.
const ModelEntry* find_gguf_model(const std::string& architecture) {
  for (const ModelEntry& e : model_registry())
    if (e.family->gguf == architecture) return &e;
  return find_model(architecture);
}

Found from_file(Job& job, const std::string& path) {
  const ModelDescription m = describe_model(job, path);
  for (const ModelCandidate& c : m.candidates) {
    const ModelEntry* entry = m.llama_cpp ? find_gguf_model(c.name) : find_model(c.name);
    if (!entry) continue;
    if (!c.note.empty()) note(job, Effect::partial, path, c.note);
    return {entry, c.config, path, 0};
  }
  return unknown_architecture(job, path, m);
}

// The part before the name: "Qwen" of "https://huggingface.co/Qwen/Qwen3-8B"; empty: none.
std::string owner_of(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  const size_t end = text.rfind('/');
  if (end == std::string::npos || end == 0) return "";
  const size_t begin = text.rfind('/', end - 1);
  return lower(text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1)));
}

// Those who publish models under the names that are known here, and who pass them on as they are.
bool is_publisher(const std::string& owner) {
  static const std::vector<std::string> kPublishers{"openai-community",
                                                    "openai",
                                                    "meta-llama",
                                                    "qwen",
                                                    "mistralai",
                                                    "google",
                                                    "google-bert",
                                                    "google-t5",
                                                    "microsoft",
                                                    "facebook",
                                                    "facebookai",
                                                    "distilbert",
                                                    "albert",
                                                    "camembert",
                                                    "deepseek-ai",
                                                    "allenai",
                                                    "tiiuae",
                                                    "eleutherai",
                                                    "bigscience",
                                                    "bigcode",
                                                    "huggingfacetb",
                                                    "huggingfacem4",
                                                    "tinyllama",
                                                    "stabilityai",
                                                    "black-forest-labs",
                                                    "runwayml",
                                                    "compvis",
                                                    "stable-diffusion-v1-5",
                                                    "sd2-community",
                                                    "cohereforai",
                                                    "coherelabs",
                                                    "ibm-granite",
                                                    "nvidia",
                                                    "01-ai",
                                                    "thudm",
                                                    "zai-org",
                                                    "baichuan-inc",
                                                    "internlm",
                                                    "state-spaces",
                                                    "unsloth",
                                                    "nousresearch",
                                                    "hf-internal-testing",
                                                    "ostris",
                                                    "alpha-vllm",
                                                    "wan-ai",
                                                    "tencent",
                                                    "hunyuanvideo-community",
                                                    "pixart-alpha",
                                                    "hidream-ai",
                                                    "omnigen2",
                                                    "lodestones",
                                                    "timm",
                                                    "laion",
                                                    "apple",
                                                    "salesforce",
                                                    "llava-hf",
                                                    "mosaicml",
                                                    "databricks",
                                                    "upstage",
                                                    "xai-org",
                                                    "moonshotai",
                                                    "minimaxai",
                                                    "baidu",
                                                    "swiss-ai",
                                                    "arcee-ai",
                                                    "liquidai",
                                                    "answerdotai",
                                                    "jinaai",
                                                    "baai",
                                                    "intfloat",
                                                    "sentence-transformers",
                                                    "kakaobrain",
                                                    "nomic-ai",
                                                    "ai21labs",
                                                    "hustvl",
                                                    "nielsr",
                                                    "lightricks",
                                                    "genmo",
                                                    "rhymes-ai",
                                                    "efficient-large-model"};
  return owner.empty() || std::find(kPublishers.begin(), kPublishers.end(), owner) != kPublishers.end();
}

Found from_hub(Job& job, const std::string& text, const HubName& name) {
  if (is_publisher(owner_of(text)))
    note(job, Effect::note, text, "taken for the preset " + name.preset);
  else
    job.findings.push_back({Effect::assumed, "model", text, fmt::format("{} taken for {}", printable(text, 120), name.preset),
                            "by its name alone: what that owner published was not looked at"});
  if (!job.origin.contains("quantization")) {
    if (!name.method.empty())
      throw Error(
          fmt::format("[model] {}: weights in {} are not simulated", text, name.method),
          fmt::format(
              "--quantization none for {} before it was quantised; --quantization nf4 (with --lora) is near to other kinds of 4 bits",
              name.preset));
    if (!name.quantization.is_null()) apply_setting(job, "quantization", name.quantization, "the name " + text);
  }
  return from_preset(preset_named(name.preset));
}

// A name with the ending of a file, or a path that starts like one.
bool looks_like_a_path(const std::string& text) {
  static const std::vector<std::string> kEndings{
      ".yaml", ".yml", ".json", ".toml", ".sh",     ".slurm",       ".sbatch", ".log", ".txt", ".out", ".err", ".py", ".ipynb", ".pt",
      ".pth",  ".bin", ".ckpt", ".pkl",  ".pickle", ".safetensors", ".gguf",   ".csv", ".pdf", ".md",  ".tar", ".gz", ".zip",   ".html"};
  const std::string ending = lower(fs::path(text).extension().string());
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end() || text.starts_with("./") || text.starts_with("../") ||
         text.starts_with("~/");
}

// A copy that was downloaded before, by name: its own configuration tells more than its name does.
std::optional<Found> from_hub_cache(Job& job) {
  const std::optional<std::string> folder = in_hub_cache(job.model);
  if (!folder) return std::nullopt;
  note(job, Effect::note, job.model, "read from the Hub cache: " + *folder);
  return from_file(job, *folder);
}

// Not known, but its name says which family and which size.
Found by_name(Job& job, const std::string& preset) {
  job.findings.push_back({Effect::assumed, "model", job.model, fmt::format("taken as {} by its name", preset),
                          "nothing of this model was looked at: its config.json would tell"});
  return from_preset(preset_named(preset));
}

[[noreturn]] void unknown_model(const std::string& text) {
  const std::string message = "[model] '" + text + "' is neither a known model nor a file";
  const std::string near = did_you_mean(text.substr(text.rfind('/') + 1), known_names());
  if (!is_hub_id(text)) throw Error(message, near);
  throw Error(message + ", and is not in the Hub cache",
              fmt::format("download its config.json (https://huggingface.co/{}/resolve/main/config.json) and name that: plimsoll estimate "
                          "path/to/config.json; {}",
                          text, near.starts_with("did you mean") ? near : "`plimsoll list presets` has those that are known"));
}

Found find(Job& job) {
  const std::string& text = job.model;
  for (const Preset& p : presets())
    if (lower(text) == p.name) return from_preset(p);
  if (const ModelEntry* entry = find_model(text)) return {entry, nlohmann::json::object(), text, 0};
  std::error_code error;
  if (fs::exists(text, error)) return from_file(job, text);
  const std::optional<HubName> name = find_hub_name(text);
  if (!name || !is_publisher(owner_of(text)))
    if (std::optional<Found> cached = from_hub_cache(job)) return std::move(*cached);
  if (name) return from_hub(job, text, *name);
  if (const std::optional<std::string> preset = is_hub_id(text) ? preset_in_name(text) : std::nullopt) return by_name(job, *preset);
  if (looks_like_a_path(text))
    throw Error(fmt::format("[input] no such file: {}", printable(text, 200)),
                fmt::format("the working directory is {}", fs::current_path(error).string()));
  unknown_model(text);
}

// Some models make their samples by their own configuration: a seq would be read by nothing.
void check_seq(const Job& job, const ModelEntry& entry) {
  const bool sides = job.config.find({"height"}) && job.config.find({"width"});
  if (entry.default_seq != 0 && (entry.inputs != InputKind::own || !sides)) return;
  const auto is_given = [&](const char* key) { return job.origin.contains(key) && !job.origin.at(key).starts_with("usual for "); };
  const auto said = std::find_if(std::begin(kLengths), std::end(kLengths), is_given);
  if (said == std::end(kLengths)) return;
  throw Error(
      fmt::format("[job] {} ({}): the samples of {} have the size that is in its configuration", *said, job.origin.at(*said), job.model),
      sides ? fmt::format("leave it out, and e.g. --config height={} --config width={}", job.config.size({"height"}, 0),
                          job.config.size({"width"}, 0))
            : "leave it out; --config height=64 --config width=512, or --config image_size=32: `plimsoll explain` lists the keys");
}

// Lengths of the samples stand for batch and seq.
void resolve_lengths(Job& job) {
  Collation& c = job.collation;
  Problems problems;
  check_collation(c, job.origin.contains("batch") ? job.batch : 0, problems);
  require_none(problems);
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
  if (!job.origin.contains("global_batch") || job.program.framework != Framework::jax) return;
  if (job.origin.contains("batch")) throw Error("[job] batch and global_batch say two things about the samples", "leave one of them out");
  const int64_t devices = job.program.jax.replicas, below = job.batch / devices * devices;
  if (job.batch != below)
    throw Error(
        fmt::format("[job] global_batch {} cannot be divided among {} replicas", job.batch, devices),
        below > 0 ? fmt::format("the nearest that can: {} and {}", below, below + devices) : fmt::format("the least is {}", devices));
  job.batch /= devices;
  job.origin["batch"] = job.origin["global_batch"];
  job.origin.erase("global_batch");
}

// With what was refused or not understood of the input, which is mostly why.
[[noreturn]] void no_model(const Job& job) {
  std::vector<std::string> causes;
  for (const Finding& f : job.findings) {
    if (f.effect != Effect::refused && f.effect != Effect::unknown && f.effect != Effect::conflict && f.effect != Effect::missing) continue;
    const std::string setting = f.setting.empty() ? "" : f.setting + ": ";
    causes.push_back(fmt::format("{}, {}{} ({})", f.source, setting, f.what, f.why.empty() ? to_string(f.effect) : f.why));
  }
  if (causes.empty()) throw Error("[model] no model was named", "e.g. plimsoll estimate gpt2", ExitCode::usage);
  const size_t shown = std::min<size_t>(causes.size(), 5);
  const std::string more = shown < causes.size() ? fmt::format("; and {} more", causes.size() - shown) : "";
  throw Error("[model] what was read names no model: " + join({causes.begin(), causes.begin() + static_cast<long>(shown)}, "; ") + more,
              "mend that, or name the model and its settings: plimsoll estimate gpt2 --batch 8");
}

// Tokens of a usual sample: not more than the model has positions for.
int64_t usual_tokens(const Found& found, const Config& config) {
  const int64_t usual = found.seq ? found.seq : found.entry->default_seq;
  const nlohmann::json& values = config.values();
  int64_t positions = usual;
  for (const char* key : {"max_position_embeddings", "n_positions"})
    if (values.contains(key) && values[key].is_number_integer() && values[key].get<int64_t>() > 0) positions = values[key].get<int64_t>();
  return std::min(usual, std::max<int64_t>(1, positions - found.entry->family->first_position));
}

}  // namespace

bool is_model_name(const std::string& text) {
  const bool preset = std::any_of(presets().begin(), presets().end(), [&](const Preset& p) { return lower(text) == p.name; });
  return preset || find_model(text) || find_hub_name(text);
}

void resolve_model(Job& job) {
  if (job.model.empty()) no_model(job);
  if (is_trace_file(job.model)) return resolve_captured(job);
  Found found = find(job);
  for (const auto& item : job.config.values().items()) found.config[item.key()] = item.value();
  job.family = found.entry->name;
  job.config = Config(found.source, found.config);
  if (!job.origin.contains("inputs")) job.inputs = found.entry->inputs;
  check_seq(job, *found.entry);
  if (!job.origin.contains("seq")) {
    const bool tokens = job.inputs == InputKind::lm || job.inputs == InputKind::cls || job.inputs == InputKind::pair;
    job.seq = tokens ? usual_tokens(found, job.config) : found.seq ? found.seq : found.entry->default_seq;
    if (job.inputs == InputKind::image) job.seq = job.config.size({"image_size"}, job.seq);
    if (job.inputs == InputKind::vector) job.seq = job.config.size({"input_size"}, job.seq);
    job.origin["seq"] = "usual for " + job.model;
    if (tokens && !job.trainer.empty() && job.collation.lengths.empty())
      job.findings.push_back({Effect::assumed, "seq", job.trainer, fmt::format("{} tokens", job.seq),
                              "nothing says how long the samples are: usual for the model; --seq says otherwise"});
  }
  settle_weights(job);
  resolve_lengths(job);
  share_batch(job);
  job.origin.erase("qlora");  // it stands for two others, which are there
}

}  // namespace plimsoll
