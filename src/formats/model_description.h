// What a file says about a model, in the words of the model's own library. model/resolve.h looks its names up in the registry.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plimsoll {

// A class or type the model may be taken for, and its configuration then.
struct ModelCandidate {
  std::string name;       // "LlamaForCausalLM", "llama", "UNet2DConditionModel"
  nlohmann::json config;  // an object
  std::string note;       // what is lost by taking it for this one; empty: nothing
};

struct ModelDescription {
  std::vector<ModelCandidate> candidates;  // the most exact first; empty: the file does not say what the model is
  std::string weights;                     // where headers list its tensors (job/weights.h); empty: nowhere
  bool llama_cpp = false;                  // the names are llama.cpp's names of architectures
};

class Reader;

// How the file at reader.document names itself as the job's model. Weights do so only when nothing else has.
void name_model(Reader& reader);

// Of a configuration or weights file, or a directory that holds them; findings go to the reader's job. Throws when it is about no model.
struct Job;
ModelDescription describe_model(Job& job, const std::string& path);

}  // namespace plimsoll
