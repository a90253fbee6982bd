// MambaLanguageModel of infrabrew/mamba-recursive-model: the selective scan as its Python writes it, one step for each token, and the same
// scan in chunks of which only the first state is kept.
#include "measure/live_model.h"

namespace plimsoll::measure {

namespace {

struct Settings {
  Settings(const Job& job, const LiveOptions& options)
      : vocab_size(job.config.size({"vocab_size"}, 50257)),
        d_model(job.config.size({"d_model"}, 768)),
        n_layers(job.config.size({"n_layers"}, 12)),
        d_state(job.config.size({"d_state"}, 16)),
        d_inner(d_model * job.config.size({"expand_factor"}, 2)),
        max_seq_len(job.config.size({"max_seq_len"}, 2048)),
        dropout(job.config.number({"dropout"}, 0.1)),
        chunk(options.chunked_scan ? options.chunk : 0) {
    if (job.config.text({"model_type"}, "") == "hybrid_recursive")
      throw Error("[measure] the hybrid model is simulated, not trained", "choose a --model_size without 'hybrid'");
    if (job.seq > max_seq_len)
      throw Error("[measure] " + std::to_string(job.seq) + " tokens, and max_seq_len is " + std::to_string(max_seq_len),
                  "raise max_seq_len, or lower --seq");
  }
  int64_t vocab_size, d_model, n_layers, d_state, d_inner, max_seq_len;
  double dropout;
  int64_t chunk;  // 0: the whole sequence at once
};

struct SelectiveSSM : Unit {
  SelectiveSSM(const Unit& parent, std::string_view name, const Settings& c)
      : Unit(parent, name),
        d_state(c.d_state),
        dt_rank((c.d_inner + 15) / 16),
        chunk(c.chunk),
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
  MambaBlock(const Unit& parent, std::string_view name, const Settings& c)
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
    x = torch::dropout(x, dropout, true);
    return x + residual;
  }

  LayerNorm norm;
  Linear in_proj;
  SelectiveSSM ssm;
  Linear out_proj;
  double dropout;
};

// The head shares the embedding's weight; labels are not shifted, as in train.py.
class MambaLanguageModel : public LiveLanguageModel, public Unit {
 public:
  MambaLanguageModel(Build& build, const Job& job, const Settings& c)
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
    for (size_t i = 0; i < blocks.size(); ++i) {
      const MambaBlock& block = blocks[i];
      x = run_block(
          block, [&block](const Tensor& h) { return block(h); }, x);
    }
    x = (*norm_f)(x);
    const Tensor logits = torch::linear(x, embedding);  // (B, T, V)
    return cross_entropy(logits.view({-1, logits.size(-1)}), ids.view({-1}));
  }

 private:
  Tensor pos_embedding, embedding;
  UnitList<MambaBlock> blocks;
  std::unique_ptr<LayerNorm> norm_f;
};

}  // namespace

std::unique_ptr<LiveModel> make_live_mamba(Build& build, const Job& job, const LiveOptions& options) {
  return std::make_unique<MambaLanguageModel>(build, job, Settings(job, options));
}

}  // namespace plimsoll::measure
