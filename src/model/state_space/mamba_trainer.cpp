// MambaLanguageModel and HybridRecursiveMambaModel of infrabrew/mamba-recursive-model: a selective scan written out in Python, one step
// for each token. Autograd keeps several states of every step; the repository's chunks, gradient checkpointing and offloading free none.
#include <cmath>

#include "model/family.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/multihead_attention.h"
#include "nn/transformer.h"
#include "nn/vision.h"
#include "ops/copy_slices.h"
#include "ops/einsum.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/pool.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/upsample.h"
#include "tensor/checkpoint.h"

namespace plimsoll {

namespace {

struct MambaTrainerConfig {
  explicit MambaTrainerConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 50257)),
        d_model(c.size({"d_model"}, 768)),
        n_layers(c.size({"n_layers"}, 12)),
        d_state(c.size({"d_state"}, 16)),
        d_inner(checked_mul(d_model, c.size({"expand_factor"}, 2))),
        max_seq_len(c.size({"max_seq_len"}, 2048)),
        max_recursion_depth(c.size({"max_recursion_depth"}, 3)),
        hybrid(c.text({"model_type"}, "") == "hybrid_recursive"),
        use_hierarchical_attention(c.flag({"use_hierarchical_attention"}, true)),
        dropout(probability(c, "dropout", 0.1)),
        scan_chunk(c.integer({"scan_chunk"}, 0)) {
    if (scan_chunk < 0)
      throw Error("[" + c.source() + "] scan_chunk " + std::to_string(scan_chunk) + " is below 0", "tokens of a chunk, or 0");
    if (const std::string type = c.text({"model_type"}, ""); !type.empty() && type != "mamba" && !hybrid)
      throw Error("[" + c.source() + "] model_type '" + type + "' is not known", "known: mamba, hybrid_recursive");
    if (hybrid && use_hierarchical_attention && d_model % kScaleHeads != 0)
      throw Error("[" + c.source() + "] d_model " + std::to_string(d_model) + " is not a multiple of 8, the heads of its attention",
                  "change d_model, or set use_hierarchical_attention to false");
  }
  static constexpr int64_t kScaleHeads = 8;
  int64_t vocab_size, d_model, n_layers, d_state, d_inner, max_seq_len, max_recursion_depth;
  bool hybrid, use_hierarchical_attention;
  double dropout;
  int64_t scan_chunk;  // tokens; not of the repository, whose scan keeps every step (0)
};

struct SelectiveSSM : Module {
  SelectiveSSM(Module& parent, std::string_view name, const MambaTrainerConfig& c)
      : Module(parent, name),
        config(c),
        d_state(c.d_state),
        dt_rank((c.d_inner + 15) / 16),
        chunk(c.scan_chunk),
        A_log(parameter("A_log", {c.d_inner, c.d_state})),
        D(parameter("D", {c.d_inner})) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor x_proj_out = x_proj(x);                                 // (B, T, R + 2 S)
    Tensor delta = dt_proj(getitem(x_proj_out, -1, 0, dt_rank));         // (B, T, C)
    const Tensor B = slice(x_proj_out, -1, dt_rank, dt_rank + d_state);  // (B, T, S)
    const Tensor C = slice(x_proj_out, -1, dt_rank + d_state, x_proj_out.size(-1));
    delta = softplus(delta);
    const Tensor A = neg(exp(A_log));  // (C, S)
    Tensor y = chunk > 0 ? chunked_scan(x, delta, A, B, C) : selective_scan(x, delta, A, B, C);
    const Tensor skipped = mul(x, unsqueeze(unsqueeze(D, 0), 0));
    y = add(y, skipped);
    return y;
  }

  Tensor selective_scan(const Tensor& x, const Tensor& delta, const Tensor& A, const Tensor& B, const Tensor& C) const {
    Tensor outputs = filled(tape(), "zeros", x.sizes(), x.dtype());                          // (B, T, C)
    Tensor h = filled(tape(), "zeros", {x.size(0), x.size(2), d_state}, x.dtype()), dA, dB;  // (B, C, S)
    scan(x, delta, A, B, C, outputs, h, dA, dB);
    return outputs;
  }

  void scan(const Tensor& x, const Tensor& delta, const Tensor& A, const Tensor& B, const Tensor& C, Tensor& outputs, Tensor& h, Tensor& dA,
            Tensor& dB) const {
    for (int64_t t = 0; t < x.size(1); ++t) {
      const Tensor dt = unsqueeze(select(delta, 1, t), -1);  // (B, C, 1)
      dA = exp(mul(dt, unsqueeze(A, 0)));                    // (B, C, S)
      dB = mul(dt, unsqueeze(select(B, 1, t), 1));
      {
        const Tensor kept = mul(h, dA), added = mul(unsqueeze(select(x, 1, t), -1), dB);
        h = add(kept, added);
      }
      const Tensor output = einsum("bds,bs->bd", h, select(C, 1, t));
      outputs = copy_into_slice_(outputs, output);
    }
  }

  // Between chunks only the state is kept; backward computes each chunk once more, as a checkpoint with a backward of its own.
  Tensor chunked_scan(const Tensor& x, const Tensor& delta, const Tensor& A, const Tensor& B, const Tensor& C) const {
    static const CheckpointStyle kReentrant{true, {}};
    const auto run = [this](const Tensors& in) -> Tensors {
      Tensor outputs = nondiff("zeros_like", in[0], in[0].dtype()), h = in[5], dA, dB;  // (B, t, C), (B, C, S)
      scan(in[0], in[1], in[2], in[3], in[4], outputs, h, dA, dB);
      return {outputs, h};
    };
    Tensor h = filled(tape(), "zeros", {x.size(0), x.size(2), d_state}, x.dtype());
    Tensors outputs;
    for (int64_t t = 0; t < x.size(1); t += chunk) {
      const auto part = [&](const Tensor& all) { return slice(all, 1, t, std::min(t + chunk, x.size(1))); };
      Tensors results = checkpoint(tape(), kReentrant, run, {part(x), part(delta), A, part(B), part(C), h});
      outputs.push_back(results[0]);
      h = results[1];
    }
    return cat(outputs, 1);  // (B, T, C)
  }

  const MambaTrainerConfig& config;
  int64_t d_state, dt_rank, chunk;
  Tensor A_log, D;
  Linear x_proj{*this, "x_proj", config.d_inner, dt_rank + 2 * config.d_state, false};
  Linear dt_proj{*this, "dt_proj", dt_rank, config.d_inner};
};

struct SequentialMambaBlock : Module {
  SequentialMambaBlock(Module& parent, std::string_view name, const MambaTrainerConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& residual) const {
    Forward here(*this);
    Tensor x = norm(residual);             // (B, T, C)
    const Tensor x_proj = in_proj(x);      // (B, T, 2 I)
    Tensors parts = chunk(x_proj, 2, -1);  // 2 x (B, T, I)
    parts[0] = silu(parts[0]);
    parts[1] = ssm(parts[1]);
    x = mul(parts[0], parts[1]);
    x = out_proj(x);  // (B, T, C)
    x = dropout(x);
    return add(x, residual);
  }

  // Among the blocks of the language model.
  Tensor operator()(const Tensor& x, Tensors&) const { return (*this)(x); }

  const MambaTrainerConfig& config;
  LayerNorm norm{*this, "norm", config.d_model};
  Linear in_proj{*this, "in_proj", config.d_model, checked_mul(2, config.d_inner), false};
  SelectiveSSM ssm{*this, "ssm", config};
  Linear out_proj{*this, "out_proj", config.d_inner, config.d_model, false};
  Dropout dropout{*this, "dropout", config.dropout};
};

struct GELU : Module {
  using Module::Module;
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return gelu(x);
  }
};

struct MambaSoftmax : Module {
  using Module::Module;
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return softmax(x);
  }
};

struct RecursiveProcessor : Module {
  RecursiveProcessor(Module& parent, std::string_view name, const MambaTrainerConfig& c)
      : Module(parent, name), memory_mixer(add_layers(c), "memory_mixer", 2 * c.d_model, c.d_model) {}

  Module& add_layers(const MambaTrainerConfig& c) {
    depth_gate.add<Linear>(c.d_model, c.d_model / 2);
    depth_gate.add<GELU>();
    depth_gate.add<Linear>(c.d_model / 2, c.max_recursion_depth);
    depth_gate.add<MambaSoftmax>();
    for (int64_t i = 0; i < c.max_recursion_depth; ++i) {
      Sequential& layer = recursive_layers.add();
      layer.add<LayerNorm>(c.d_model);
      layer.add<Linear>(c.d_model, 2 * c.d_model);
      layer.add<GELU>();
      layer.add<Dropout>(c.dropout);
      layer.add<Linear>(2 * c.d_model, c.d_model);
    }
    return *this;
  }

  Tensor operator()(const Tensor& x, Tensor* state) {
    Forward here(*this);
    const Tensor depth_weights = depth_gate(mean(x, {1}, false));  // (B, depths)
    *state = nondiff("zeros_like", x, x.dtype());                  // (B, T, C)
    Tensor output = x, transformed, combined, new_state;
    for (size_t depth = 0; depth < recursive_layers.size(); ++depth) {
      const Tensor weight = view(select(depth_weights, 1, static_cast<int64_t>(depth)), {x.size(0), 1, 1});
      transformed = recursive_layers[depth](output);  // (B, T, C)
      combined = cat({transformed, *state}, -1);      // (B, T, 2C)
      new_state = memory_mixer(combined);             // (B, T, C)
      output = add(output, mul(weight, transformed));
      *state = add(*state, mul(weight, new_state));
    }
    return output;
  }

  Sequential depth_gate{*this, "depth_gate"};
  ModuleList<Sequential> recursive_layers{*this, "recursive_layers"};
  Linear memory_mixer;
};

// Attention over all tokens, means of two and means of four.
struct HierarchicalAttention : Module {
  HierarchicalAttention(Module& parent, std::string_view name, int64_t d_model)
      : Module(parent, name), scale_fusion(add_scales(d_model), "scale_fusion", checked_mul(3, d_model), d_model) {}

  Module& add_scales(int64_t d_model) {
    for (int i = 0; i < 3; ++i) scale_projections.add(d_model, d_model);
    for (int i = 0; i < 3; ++i) scale_attentions.add(d_model, MambaTrainerConfig::kScaleHeads, 0.0);
    return *this;
  }

  Tensor operator()(const Tensor& x) {
    Forward here(*this);
    Tensors scale_outputs;
    Tensor pooled, projected, attended, weights;
    for (size_t i = 0; i < scale_projections.size(); ++i) {
      const int64_t scale = int64_t{1} << i;
      pooled = scale == 1 ? x : transpose(avg_pool1d(transpose(x, 1, 2), scale), 1, 2);  // (B, T / scale, C)
      projected = scale_projections[i](pooled);
      attended = scale_attentions[i](projected, &weights);
      if (scale > 1) attended = transpose(upsample_linear1d(transpose(attended, 1, 2), x.size(1)), 1, 2);  // (B, T, C)
      scale_outputs.push_back(attended);
    }
    const Tensor fused = cat(scale_outputs, -1);  // (B, T, 3C)
    return scale_fusion(fused);                   // (B, T, C)
  }

  ModuleList<Linear> scale_projections{*this, "scale_projections"};
  ModuleList<MultiheadAttention> scale_attentions{*this, "scale_attentions"};
  Linear scale_fusion;
};

struct RecursiveMambaBlock : Module {
  RecursiveMambaBlock(Module& parent, std::string_view name, const MambaTrainerConfig& c) : Module(parent, name), config(c) {
    if (c.use_hierarchical_attention) hierarchical_attention.emplace(*this, "hierarchical_attention", c.d_model);
    fusion.emplace(*this, "fusion");
    fusion->add<Linear>(2 * c.d_model, c.d_model);
    fusion->add<LayerNorm>(c.d_model);
    fusion->add<Dropout>(c.dropout);
  }

  // `states` of all blocks live until the model returns.
  Tensor operator()(const Tensor& x, Tensors& states) {
    Forward here(*this);
    const Tensor mamba_out = mamba_block(x);  // (B, T, C)
    Tensor state;
    Tensor recursive_out = recursive_processor(mamba_out, &state);
    if (hierarchical_attention) recursive_out = add(recursive_out, (*hierarchical_attention)(recursive_out));
    const Tensor combined = cat({mamba_out, recursive_out}, -1);  // (B, T, 2C)
    Tensor output = (*fusion)(combined);
    output = add(output, x);
    states.push_back(state);
    return output;
  }

  const MambaTrainerConfig& config;
  SequentialMambaBlock mamba_block{*this, "mamba_block", config};
  RecursiveProcessor recursive_processor{*this, "recursive_processor", config};
  std::optional<HierarchicalAttention> hierarchical_attention;
  std::optional<Sequential> fusion;
};

// The head shares the embedding's weight; labels are not shifted, and the trainer keeps the loss alone.
template <class Block>
struct MambaLanguageModel : Model {
  MambaLanguageModel(Build& build, const MambaTrainerConfig& c)
      : Model(build), config(c), pos_embedding(parameter("pos_embedding", {1, c.max_seq_len, c.d_model})) {}

  Module& add_blocks() {
    for (int64_t i = 0; i < config.n_layers; ++i) blocks.add(config);
    return *this;
  }

  Output forward(const Batch& batch) override {
    require_positions("mamba-trainer", batch.input_ids.size(1), "max_seq_len", config.max_seq_len);
    Tensor x = embedding(batch.input_ids);  // (B, T, C)
    x = add(x, getitem(pos_embedding, 1, 0, batch.input_ids.size(1)));
    Tensors states;
    for (Block& block : blocks) {
      const auto run = [&block](const Tensors& in) {
        Tensors out;
        Tensor y = block(in[0], out);
        out.insert(out.begin(), std::move(y));
        return out;
      };
      Tensors out = run_block(block, run, Tensors{x});
      x = std::move(out[0]);
      states.insert(states.end(), out.begin() + 1, out.end());
    }
    x = norm_f(x);
    const Tensor logits = lm_head(x);  // (B, T, V)
    return {flat_cross_entropy(logits, batch.labels, false), batch.labels ? Tensors{} : Tensors{logits}};
  }

  bool uses_cache() const override { return false; }

  MambaTrainerConfig config;
  Tensor pos_embedding;
  Embedding embedding{*this, "embedding", config.vocab_size, config.d_model};
  ModuleList<Block> blocks{*this, "blocks"};
  LayerNorm norm_f{add_blocks(), "norm_f", config.d_model};
  Linear lm_head{*this, "lm_head", embedding.weight, false};
};

std::unique_ptr<Model> make_mamba_trainer(Build& build, const Config& c) {
  const MambaTrainerConfig config(c);
  if (config.hybrid) return std::make_unique<MambaLanguageModel<RecursiveMambaBlock>>(build, config);
  return std::make_unique<MambaLanguageModel<SequentialMambaBlock>>(build, config);
}

}  // namespace

const Family& mamba_trainer_family() {
  static const Family kFamily{
      .name = "mamba-trainer",
      .library = "infrabrew/mamba-recursive-model",
      .models = {{"mamba-trainer", {}, InputKind::lm, 2048, make_mamba_trainer}},
      .presets =
          {{"mamba-trainer-small", R"({"d_model":512,"n_layers":8,"max_seq_len":1024})", 1024},
           {"mamba-trainer-medium-lite", R"({"d_model":640,"n_layers":10,"max_seq_len":1024})", 1024},
           {"mamba-trainer-medium-plus", R"({"d_model":704,"n_layers":11,"max_seq_len":1536})", 1536},
           {"mamba-trainer-medium-x", R"({"d_model":736,"n_layers":12,"max_seq_len":1792})", 1792},
           {"mamba-trainer-medium", R"({"d_model":768,"n_layers":12,"max_seq_len":2048})", 2048},
           {"mamba-trainer-medium-extra", R"({"d_model":832,"n_layers":14,"max_seq_len":2048})", 2048},
           {"mamba-trainer-large-lite", R"({"d_model":896,"n_layers":18,"max_seq_len":2048})", 2048},
           {"mamba-trainer-large-plus", R"({"d_model":960,"n_layers":21,"max_seq_len":2048})", 2048},
           {"mamba-trainer-large", R"({"d_model":1024,"n_layers":24,"max_seq_len":2048})", 2048},
           {"mamba-trainer-xlarge", R"({"d_model":1280,"n_layers":32,"max_seq_len":2048})", 2048},
           {"mamba-trainer-xxlarge", R"({"d_model":1536,"n_layers":40,"max_seq_len":2048})", 2048},
           {"mamba-trainer-hybrid-small", R"({"d_model":512,"n_layers":8,"max_seq_len":1024,"model_type":"hybrid_recursive"})", 1024},
           {"mamba-trainer-hybrid-small-mini", R"({"d_model":576,"n_layers":9,"max_seq_len":1280,"model_type":"hybrid_recursive"})", 1280},
           {"mamba-trainer-hybrid-small-standard", R"({"d_model":608,"n_layers":10,"max_seq_len":1408,"model_type":"hybrid_recursive"})",
            1408},
           {"mamba-trainer-hybrid-small-plus", R"({"d_model":640,"n_layers":10,"max_seq_len":1536,"model_type":"hybrid_recursive"})", 1536},
           {"mamba-trainer-hybrid-small-pro", R"({"d_model":704,"n_layers":11,"max_seq_len":1792,"model_type":"hybrid_recursive"})", 1792},
           {"mamba-trainer-hybrid-medium", R"({"d_model":768,"n_layers":12,"max_seq_len":2048,"model_type":"hybrid_recursive"})", 2048},
           {"mamba-trainer-hybrid-large",
            R"({"d_model":1024,"n_layers":16,"max_seq_len":2048,"model_type":"hybrid_recursive","max_recursion_depth":4})", 2048}},
      .levers = {{"n_layers", 12, Shrink::three_quarters, "{} layers instead of {}", "less time; a smaller model"}},
  };
  return kFamily;
}

}  // namespace plimsoll
