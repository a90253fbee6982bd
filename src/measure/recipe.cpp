#include "measure/recipe.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/command_line.h"
#include "formats/input.h"
#include "formats/reader.h"

namespace plimsoll::measure {

namespace {

namespace fs = std::filesystem;

// Where a trainer's file has its recipe, and what it is without one.
struct Source {
  const char* family;
  const char* file;  // the flag of its command that names the file; empty: flags are all there is
  const char *rate, *decay, *beta1, *beta2, *betas, *eps;
  Recipe otherwise;
};

constexpr Source kSources[]{
    // configs/model_configs.py, TRAINING_CONFIGS["default"]
    {"mamba-trainer",
     "/flags/config",
     "training.learning_rate",
     "training.weight_decay",
     "training.adam_beta1",
     "training.adam_beta2",
     "",
     "training.adam_epsilon",
     {3e-4, 0.1, 0.9, 0.95, 1e-8}},
    // training/optimizer.py, create_optimizer
    {"gsa",
     "/flags/config",
     "training.learning_rate",
     "training.weight_decay",
     "training.beta1",
     "training.beta2",
     "",
     "training.eps",
     {3e-4, 0.1, 0.9, 0.95, 1e-8}},
    // main_jax.py; optax.adamw
    {"fsdm", "", "/flags/lr", "/flags/weight_decay", "", "", "", "", {1e-4, 0, 0.9, 0.999, 1e-8}},
    // configs/kitti_range_train_config.yaml
    {"stdiff",
     "/flags/train_config",
     "Training.learning_rate",
     "Training.adam_weight_decay",
     "",
     "",
     "Training.adam_betas",
     "Training.adam_epsilon",
     {1e-4, 1e-6, 0.9, 0.999, 1e-8}},
    // diffusers, examples/text_to_image
    {"unet2d-condition",
     "",
     "/flags/learning_rate",
     "/flags/adam_weight_decay",
     "/flags/adam_beta1",
     "/flags/adam_beta2",
     "",
     "/flags/adam_epsilon",
     {1e-4, 0.01, 0.9, 0.999, 1e-8}},
};

std::optional<Document> document_of(const std::vector<std::string>& input) {
  std::error_code error;
  if (input.size() == 1 && fs::is_directory(input[0], error)) return std::nullopt;
  std::optional<Document> document = input_document(input, "");
  if (document && document->kind == Document::Kind::text) {  // a script: what it is for comes last
    const std::vector<Document> commands = script_documents(document->text, document->name);
    document = commands.empty() ? std::nullopt : std::optional(commands.back());
  }
  return document;
}

void read(Reader& r, const Source& source, Recipe& recipe) {
  const auto take = [&](const char* path, double& value) {
    if (*path && r.has(path)) value = r.number(path, value);
  };
  take(source.rate, recipe.learning_rate);
  take(source.decay, recipe.weight_decay);
  take(source.beta1, recipe.beta1);
  take(source.beta2, recipe.beta2);
  take(source.eps, recipe.eps);
  if (const nlohmann::json* betas = *source.betas ? r.find(source.betas) : nullptr;
      betas && betas->is_array() && betas->size() == 2 && (*betas)[0].is_number() && (*betas)[1].is_number()) {
    recipe.beta1 = (*betas)[0];
    recipe.beta2 = (*betas)[1];
  }
}

// --training_preset of the Mamba trainer, for which no file is named.
void read_preset(Reader& r, Recipe& recipe) {
  const std::string preset = r.text("/flags/training_preset", "default");
  if (preset == "fast") recipe.learning_rate = 5e-4;
  if (preset == "careful") recipe.learning_rate = 1e-4;
}

}  // namespace

Recipe recipe_of(const std::string& family, const std::vector<std::string>& input) {
  for (const Source& source : kSources) {
    if (family != source.family) continue;
    Recipe recipe = source.otherwise;
    std::optional<Document> document = document_of(input);
    if (!document) return recipe;
    Job unused;
    if (Reader command(unused, *document); *source.file && document->kind == Document::Kind::command) {
      std::error_code error;
      const std::string file = command.text(source.file);
      if (fs::is_regular_file(file, error))
        document = read_document(file);
      else
        read_preset(command, recipe);
    }
    Reader reader(unused, *document);
    read(reader, source, recipe);
    return recipe;
  }
  return {};
}

std::string data_dir_of(const std::vector<std::string>& input) {
  const std::optional<Document> document = document_of(input);
  if (!document || document->kind != Document::Kind::command) return "";
  Job unused;
  return Reader(unused, *document).text("/flags/data_dir");
}

}  // namespace plimsoll::measure
