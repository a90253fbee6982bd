// MambaLanguageModel and HybridRecursiveMambaModel of infrabrew/mamba-recursive-model: the selective scan as its Python writes it, one step
// for each token, and the same scan in chunks of which only the first state is kept. Locals are those of src/model/mamba_trainer.cpp.
#include "measure/live_model.h"

namespace plimsoll::measure {

namespace {

struct MambaSettings {
  explicit MambaSettings(const Job& job)
      : vocab_size(job.config.size({"vocab_size"}, 50257)),
        d_model(job.config.size({"d_model"}, 768)),
        n_layers(job.config.size({"n_layers"}, 12)),
        d_state(job.config.size({"d_state"}, 16)),
        d_inner(d_model * job.config.size({"expand_factor"}, 2)),
        max_seq_len(job.config.size({"max_seq_len"}, 2048)),
        max_recursion_depth(job.config.size({"max_recursion_depth"}, 3)),
        hybrid(job.config.text({"model_type"}, "") == "hybrid_recursive"),
        use_hierarchical_attention(job.config.flag({"use_hierarchical_attention"}, true)),
        dropout(job.config.number({"dropout"}, 0.1)),
        scan_chunk(job.config.integer({"scan_chunk"}, 0)) {
    if (hybrid && use_hierarchical_attention && (d_model % 8 != 0 || job.seq < 4))
      throw Error("[measure] the hybrid model needs a d_model of whole eights and 4 tokens", "change d_model or --seq");
    if (job.seq > max_seq_len)
      throw Error("[measure] " + std::to_string(job.seq) + " tokens, and max_seq_len is " + std::to_string(max_seq_len),
                  "raise max_seq_len, or lower --seq");
  }
  int64_t vocab_size, d_model, n_layers, d_state, d_inner, max_seq_len, max_recursion_depth;
  bool hybrid, use_hierarchical_attention;
  double dropout;
  int64_t scan_chunk;  // 0: the whole sequence at once
};

struct SelectiveSSM : Unit {
  SelectiveSSM(const Unit& parent, std::string_view name, const MambaSettings& c)
      : Unit(parent, name),
        d_state(c.d_state),
        dt_rank((c.d_inner + 15) / 16),
        chunk(c.scan_chunk),
        A_log(parameter("A_log", {c.d_inner, c.d_state}, Init::normal(1))),
        D(parameter("D", {c.d_inner}, Init::ones())),
        x_proj(*this, "x_proj", c.d_inner, dt_rank + 2 * c.d_state, false),
        dt_proj(*this, "dt_proj", dt_rank, c.d_inner) {}

  Tensor operator()(const Tensor& x) const {
    const Within here(place);
    const Tensor x_proj_out = x_proj(x);                                // (B, T, R + 2 S)
    Tensor delta = dt_proj(getitem(x_proj_out, -1, 0, dt_rank));        // (B, T, C)
    const Tensor B = x_proj_out.slice(-1, dt_rank, dt_rank + d_state);  // (B, T, S)
    const Tensor C = x_proj_out.slice(-1, dt_rank + d_state, x_proj_out.size(-1));
    delta = torch::softplus(wide(delta));
    const Tensor A = A_log.exp().neg();  // (C, S)
    Tensor y = chunk > 0 ? chunked_scan(x, delta, A, B, C) : selective_scan(x, delta, A, B, C);
    const Tensor skipped = x * D.unsqueeze(0).unsqueeze(0);
    y = y + skipped;
    return y;
  }

  Tensor selective_scan(const Tensor& x, const Tensor& delta, const Tensor& A, const Tensor& B, const Tensor& C) const {
    Tensor outputs = torch::zeros(x.sizes(), x.options());                          // (B, T, C)
    Tensor h = torch::zeros({x.size(0), x.size(2), d_state}, x.options()), dA, dB;  // (B, C, S)
    scan(x, delta, A, B, C, outputs, h, dA, dB);
    return outputs;
  }

  void scan(const Tensor& x, const Tensor& delta, const Tensor& A, const Tensor& B, const Tensor& C, Tensor& outputs, Tensor& h, Tensor& dA,
            Tensor& dB) const {
    for (int64_t t = 0; t < x.size(1); ++t) {
      const Tensor dt = delta.select(1, t).unsqueeze(-1);  // (B, C, 1)
      dA = torch::exp(wide(dt * A.unsqueeze(0)));          // (B, C, S)
      dB = dt * B.select(1, t).unsqueeze(1);
      {
        const Tensor kept = h * dA, added = x.select(1, t).unsqueeze(-1) * dB;
        h = kept + added;
      }
      const Tensor c = C.select(1, t);
      const Tensor output = torch::einsum("bds,bs->bd", {low(h), low(c)});
      outputs.select(1, t).copy_(output);
    }
  }

  // Between chunks only the state is kept; backward computes each chunk once more.
  Tensor chunked_scan(const Tensor& x, const Tensor& delta, const Tensor& A, const Tensor& B, const Tensor& C) const {
    const auto run = [this](const Tensors& in) {
      Tensor outputs = torch::zeros_like(in[0]), h = in[5], dA, dB;
      scan(in[0], in[1], in[2], in[3], in[4], outputs, h, dA, dB);
      return Tensors{outputs, h};
    };
    Tensor h = torch::zeros({x.size(0), x.size(2), d_state}, x.options());
    Tensors outputs;
    for (int64_t t = 0; t < x.size(1); t += chunk) {
      const auto part = [&](const Tensor& all) { return all.slice(1, t, std::min(t + chunk, x.size(1))); };
      Tensors results = checkpoint(run, {part(x), part(delta), A, part(B), part(C), h});
      outputs.push_back(results[0]);
      h = results[1];
    }
    return torch::cat(outputs, 1);
  }

  int64_t d_state, dt_rank, chunk;
  Tensor A_log, D;
  Linear x_proj, dt_proj;
};

struct MambaBlock : Unit {
  MambaBlock(const Unit& parent, std::string_view name, const MambaSettings& c)
      : Unit(parent, name),
        norm(*this, "norm", c.d_model),
        in_proj(*this, "in_proj", c.d_model, 2 * c.d_inner, false),
        ssm(*this, "ssm", c),
        out_proj(*this, "out_proj", c.d_inner, c.d_model, false),
        dropout(c.dropout) {}

  Tensor operator()(const Tensor& residual) const {
    const Within here(place);
    Tensor x = norm(residual);            // (B, T, C)
    const Tensor x_proj = in_proj(x);     // (B, T, 2 I)
    Tensors parts = x_proj.chunk(2, -1);  // 2 x (B, T, I)
    parts[0] = torch::silu(parts[0]);
    parts[1] = ssm(parts[1]);
    x = parts[0] * parts[1];
    x = out_proj(x);  // (B, T, C)
    x = torch::dropout(x, dropout, build.training);
    return x + residual;
  }

  // Among the blocks of the language model.
  Tensor operator()(const Tensor& x, Tensors&) const { return (*this)(x); }

  LayerNorm norm;
  Linear in_proj;
  SelectiveSSM ssm;
  Linear out_proj;
  double dropout;
};

struct DepthGate : Unit {
  DepthGate(const Unit& parent, std::string_view name, const MambaSettings& c)
      : Unit(parent, name), first(*this, "0", c.d_model, c.d_model / 2), second(*this, "2", c.d_model / 2, c.max_recursion_depth) {}
  Tensor operator()(Tensor x) const {
    const Within here(place);
    x = first(x);
    x = torch::gelu(x);
    x = second(x);
    return torch::softmax(wide(x), -1);
  }
  Linear first, second;
};

struct RecursiveLayer : Unit {
  RecursiveLayer(const Unit& parent, std::string_view name, const MambaSettings& c)
      : Unit(parent, name),
        norm(*this, "0", c.d_model),
        up(*this, "1", c.d_model, 2 * c.d_model),
        down(*this, "4", 2 * c.d_model, c.d_model),
        dropout(c.dropout) {}
  Tensor operator()(Tensor x) const {
    const Within here(place);
    x = norm(x);
    x = up(x);  // (B, T, 2C)
    x = torch::gelu(x);
    x = torch::dropout(x, dropout, build.training);
    return down(x);
  }
  LayerNorm norm;
  Linear up, down;
  double dropout;
};

struct RecursiveProcessor : Unit {
  RecursiveProcessor(const Unit& parent, std::string_view name, const MambaSettings& c)
      : Unit(parent, name), depth_gate(*this, "depth_gate", c), recursive_layers(*this, "recursive_layers") {
    for (int64_t i = 0; i < c.max_recursion_depth; ++i) recursive_layers.add(c);
    memory_mixer = std::make_unique<Linear>(*this, "memory_mixer", 2 * c.d_model, c.d_model);
  }

  Tensor operator()(const Tensor& x, Tensor* state) const {
    const Within here(place);
    const Tensor depth_weights = depth_gate(x.mean(1));  // (B, depths)
    *state = torch::zeros_like(x);                       // (B, T, C)
    Tensor output = x, transformed, combined, new_state;
    for (size_t depth = 0; depth < recursive_layers.size(); ++depth) {
      const Tensor weight = depth_weights.select(1, static_cast<int64_t>(depth)).view({x.size(0), 1, 1});
      transformed = recursive_layers[depth](output);     // (B, T, C)
      combined = torch::cat({transformed, *state}, -1);  // (B, T, 2C)
      new_state = (*memory_mixer)(combined);             // (B, T, C)
      {
        const Tensor weighted = weight * transformed;
        output = output + weighted;
      }
      const Tensor weighted = weight * new_state;
      *state = *state + weighted;
    }
    return output;
  }

  DepthGate depth_gate;
  UnitList<RecursiveLayer> recursive_layers;
  std::unique_ptr<Linear> memory_mixer;
};

// torch.nn.MultiheadAttention of tokens with themselves; it also returns weights, averaged over heads.
struct MultiheadAttention : Unit {
  MultiheadAttention(const Unit& parent, std::string_view name, int64_t embed_dim)
      : Unit(parent, name),
        in_proj_weight(parameter("in_proj_weight", {3 * embed_dim, embed_dim}, Init::normal(0.02))),
        in_proj_bias(parameter("in_proj_bias", {3 * embed_dim}, Init::zeros())),
        out_proj(*this, "out_proj", embed_dim, embed_dim) {}

  Tensor operator()(const Tensor& x, Tensor* average_weights) const {
    const Within here(place);
    const Tensor query = x.transpose(1, 0);  // (T, B, E)
    const int64_t tokens = query.size(0), batch = query.size(1), width = query.size(2), head = width / kHeads;
    Tensor q, k, v;  // (B * heads, T, D)
    {
      Tensor proj = torch::linear(query, in_proj_weight, in_proj_bias);                                    // (T, B, 3E)
      proj = proj.view({tokens, batch, 3, width}).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous();  // (3, T, B, E)
      const auto part = [&](int64_t i) { return proj.select(0, i).view({tokens, batch * kHeads, head}).transpose(0, 1); };
      q = part(0);
      k = part(1);
      v = part(2);
    }
    const Tensor q_scaled = q * std::sqrt(1 / static_cast<double>(head));
    Tensor weights = torch::bmm(q_scaled, k.transpose(-2, -1));  // (B * heads, T, T)
    weights = torch::softmax(wide(weights), -1);
    Tensor out = torch::bmm(low(weights), v);                              // (B * heads, T, D)
    out = out.transpose(0, 1).contiguous().view({tokens * batch, width});  // (T * B, E)
    out = out_proj(out);
    out = out.view({tokens, batch, width});
    weights = weights.view({batch, kHeads, tokens, tokens});
    *average_weights = weights.mean(1);
    return out.transpose(1, 0);  // (B, T, E)
  }

  static constexpr int64_t kHeads = 8;
  Tensor in_proj_weight, in_proj_bias;
  Linear out_proj;
};

// Attention over all tokens, means of two and means of four.
struct HierarchicalAttention : Unit {
  HierarchicalAttention(const Unit& parent, std::string_view name, int64_t d_model)
      : Unit(parent, name), scale_projections(*this, "scale_projections"), scale_attentions(*this, "scale_attentions") {
    for (int i = 0; i < 3; ++i) scale_projections.add(d_model, d_model);
    for (int i = 0; i < 3; ++i) scale_attentions.add(d_model);
    scale_fusion = std::make_unique<Linear>(*this, "scale_fusion", 3 * d_model, d_model);
  }

  Tensor operator()(const Tensor& x) const {
    const Within here(place);
    Tensors scale_outputs;
    Tensor pooled, projected, attended, weights;
    for (size_t i = 0; i < scale_projections.size(); ++i) {
      const int64_t scale = int64_t{1} << i;
      pooled = scale == 1 ? x : torch::avg_pool1d(x.transpose(1, 2), scale, scale).transpose(1, 2);  // (B, T / scale, C)
      projected = scale_projections[i](pooled);
      attended = scale_attentions[i](projected, &weights);
      if (scale > 1) attended = torch::upsample_linear1d(attended.transpose(1, 2), {x.size(1)}, false).transpose(1, 2);  // (B, T, C)
      scale_outputs.push_back(attended);
    }
    const Tensor fused = torch::cat(scale_outputs, -1);  // (B, T, 3C)
    return (*scale_fusion)(fused);                       // (B, T, C)
  }

  UnitList<Linear> scale_projections;
  UnitList<MultiheadAttention> scale_attentions;
  std::unique_ptr<Linear> scale_fusion;
};

struct RecursiveMambaBlock : Unit {
  RecursiveMambaBlock(const Unit& parent, std::string_view name, const MambaSettings& c)
      : Unit(parent, name), mamba_block(*this, "mamba_block", c), recursive_processor(*this, "recursive_processor", c), dropout(c.dropout) {
    if (c.use_hierarchical_attention)
      hierarchical_attention = std::make_unique<HierarchicalAttention>(*this, "hierarchical_attention", c.d_model);
    fusion = std::make_unique<Linear>(*this, "fusion.0", 2 * c.d_model, c.d_model);
    fusion_norm = std::make_unique<LayerNorm>(*this, "fusion.1", c.d_model);
  }

  // `states` of all blocks live until the model returns.
  Tensor operator()(const Tensor& x, Tensors& states) const {
    const Within here(place);
    const Tensor mamba_out = mamba_block(x);  // (B, T, C)
    Tensor state;
    Tensor recursive_out = recursive_processor(mamba_out, &state);
    if (hierarchical_attention) {
      const Tensor attended = (*hierarchical_attention)(recursive_out);
      recursive_out = recursive_out + attended;
    }
    const Tensor combined = torch::cat({mamba_out, recursive_out}, -1);  // (B, T, 2C)
    Tensor output = (*fusion)(combined);
    output = (*fusion_norm)(output);
    output = torch::dropout(output, dropout, build.training);
    output = output + x;
    states.push_back(state);
    return output;
  }

  MambaBlock mamba_block;
  RecursiveProcessor recursive_processor;
  std::unique_ptr<HierarchicalAttention> hierarchical_attention;
  std::unique_ptr<Linear> fusion;
  std::unique_ptr<LayerNorm> fusion_norm;
  double dropout;
};

// The head shares the embedding's weight; labels are not shifted, as in train.py.
template <class Block>
class MambaLanguageModel : public LiveLanguageModel, public Unit {
 public:
  MambaLanguageModel(Build& build, const Job& job, const MambaSettings& c)
      : LiveLanguageModel(job.seq, c.vocab_size),
        Unit(build),
        pos_embedding(parameter("pos_embedding", {1, c.max_seq_len, c.d_model}, Init::zeros())),
        embedding(parameter("embedding.weight", {c.vocab_size, c.d_model}, Init::normal(0.02))),
        blocks(*this, "blocks") {
    for (int64_t i = 0; i < c.n_layers; ++i) blocks.add(c);
    norm_f = std::make_unique<LayerNorm>(*this, "norm_f", c.d_model);
  }

  Tensor loss(const Tensors& inputs) override {
    const Tensor& ids = inputs[0];
    Tensor x = torch::embedding(embedding, ids);  // (B, T, C)
    x = x + getitem(pos_embedding, 1, 0, ids.size(1));
    Tensors states;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      const auto run = [&block](const Tensors& in) {
        Tensors out(1);
        out[0] = block(in[0], out);
        return out;
      };
      Tensors out = build.checkpointing ? checkpoint(run, {x}) : run({x});
      x = std::move(out[0]);
      states.insert(states.end(), out.begin() + 1, out.end());
    }
    x = (*norm_f)(x);
    const Tensor logits = torch::linear(x, embedding);  // (B, T, V)
    return cross_entropy(logits.view({-1, logits.size(-1)}), ids.view({-1}));
  }

 private:
  Tensor pos_embedding, embedding;
  UnitList<Block> blocks;
  std::unique_ptr<LayerNorm> norm_f;
};

}  // namespace

std::unique_ptr<LiveModel> make_live_mamba(Build& build, const Job& job) {
  const MambaSettings settings(job);
  if (settings.hybrid) return std::make_unique<MambaLanguageModel<RecursiveMambaBlock>>(build, job, settings);
  return std::make_unique<MambaLanguageModel<MambaBlock>>(build, job, settings);
}

}  // namespace plimsoll::measure
