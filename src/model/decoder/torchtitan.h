// torchtitan's own Llama and Qwen3 (torchtitan/models, from 2024-03 on), cut into the parts of a pipeline, as one rank has them. The loss
// is the trainer's: a part gives hidden states or logits.
#pragma once

#include "job/job.h"
#include "job/torchtitan_models.h"
#include "nn/layers.h"
#include "nn/model.h"

namespace plimsoll {

// What of a model's configuration torchtitan needs, read under the names of transformers' families.
struct TorchtitanConfig {
  TorchtitanConfig(const std::string& family, const Config& config);

  int64_t layers = 0, dim = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  bool qwen3 = false;  // norms of queries and keys, and tables of cosines and sines instead of complex numbers

  bool operator==(const TorchtitanConfig&) const = default;
};

std::vector<std::string> torchtitan_families();
// The model of that shape that torchtitan has; null: none.
const TorchtitanModel* torchtitan_model(const Job& job);

// Layers that follow each other on one rank, with the embedding before them or the head after them.
class TorchtitanPart : public Model {
 public:
  struct Place {
    int64_t count = 0;  // layers
    bool embeds = true, has_head = true;
  };
  // `positions`: of the table of rotations, which is a buffer.
  TorchtitanPart(Build& build, const TorchtitanConfig& config, const TorchtitanSettings& settings, const Place& place, int64_t positions);
  ~TorchtitanPart() override;

  // Of `batch.input_ids`, or of the hidden states in `batch.own`. The result is in `kept`; there is no loss.
  Output forward(const Batch& batch) override;
  // What fully_shard is called on, in the order of forward.
  std::vector<const Module*> sharded_modules() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// How many layers each of `parts` has (distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part): embedding and head count as a
// layer each. Before 2025-04 (pull 1103) they did not, and what an equal share leaves went to the middle first (generate_split_points). An
// Error says which numbers of stages are possible.
std::vector<int64_t> torchtitan_split(int64_t layers, int64_t parts, bool ends_count = true);

}  // namespace plimsoll
