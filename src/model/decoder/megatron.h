// megatron.core's GPTModel, cut into the chunks of a pipeline and sharded over the ranks of a layer, as one rank has it.
#pragma once

#include <memory>
#include <vector>

#include "job/job.h"
#include "nn/model.h"
#include "ops/transformer_engine.h"

namespace plimsoll {

// What of a model's configuration Megatron needs: its own names of arguments, or those of transformers' families.
// GPTModel, BertModel or T5Model of megatron.core.
enum class MegatronKind : uint8_t { gpt, bert, t5 };

struct MegatronConfig {
  MegatronConfig(const std::string& family, const Config& config, const MegatronSettings& settings);

  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, groups = 0, channels = 0, vocab = 0, positions = 0;
  bool gated = false, rope = false, rms = false, tied = false, bias = false, qkv_bias = false, qk_norm = false;
  double hidden_dropout = 0, attention_dropout = 0;
  MegatronKind kind = MegatronKind::gpt;
  int64_t decoder_layers = 0, decoder_tokens = 0;  // of T5, whose `layers` are the encoder's

  // Mixture of experts; 0 experts: none.
  int64_t experts = 0, top_k = 1, expert_ffn = 0, shared_ffn = 0;
  bool grouped = true;       // one product for all experts of a rank
  bool gathers_all = false;  // the dispatcher gathers every token instead of sending each where it belongs
  double capacity = 0;       // tokens of an expert over its equal share; 0: as many as come, taken to be equal
  double imbalance = 1;      // tokens that reach a rank's experts over an equal share (moe_load_imbalance, a key of ours)
  std::vector<bool> is_moe;  // of each layer

  // Multi-head latent attention; 0: none.
  int64_t q_rank = 0, kv_rank = 0, rope_width = 0, value_width = 0;

  bool latent() const { return kv_rank > 0; }
};

bool knows_megatron(const std::string& family);
std::vector<std::string> megatron_families();

struct MegatronInput {
  Tensor tokens, labels, positions, mask;
  Tensor types, order;                       // BERT: which sentence a token is of, and whether the two are in order
  Tensor decoder_tokens, decoder_positions;  // T5
  Tensors decoder_masks;                     // T5: of the decoder's own attention, and of that to the encoder
  Tensor hidden;                             // from the stage before; undefined: this is the first
};

// Layers that follow each other on one rank, with the embedding before them or the head and the loss after them.
class MegatronChunk : public Module {
 public:
  struct Place {
    int64_t first = 0, count = 0;
    bool embeds = true, has_head = true;
  };
  MegatronChunk(Build& build, const MegatronConfig& config, const MegatronSettings& settings, const Place& place, SharedBuffers& buffers);
  ~MegatronChunk() override;
  // The hidden states, or, of a chunk with the head, the loss of every token.
  Tensor operator()(const MegatronInput& in);
  // Those of its parameters that belong to experts.
  std::vector<Parameter*> expert_parameters() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace plimsoll
