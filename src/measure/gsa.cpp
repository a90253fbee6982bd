// GSALlamaForCausalLM of the Gated Sparse Attention repository: every query attends to the keys that an indexer chose for it, and keys and
// values of all queries are gathered. Locals are those of src/model/gsa.cpp, which follows the Python.
#include <nlohmann/json.hpp>

#include "measure/live_model.h"

namespace plimsoll::measure {

namespace {

struct GsaSettings {
  explicit GsaSettings(const Job& job)
      : GsaSettings(job.config, job.config.find({"gsa"}) ? Config("gsa", *job.config.find({"gsa"})) : job.config) {
    if (d_head % 2 != 0 || d_model % n_heads != 0 || n_heads % n_kv_heads != 0)
      throw Error("[measure] gsa: d_model, n_heads and n_kv_heads do not divide each other into even heads",
                  "`plimsoll explain` says which");
  }
  GsaSettings(const Config& c, const Config& gsa)
      : d_model(c.size({"d_model"}, 512)),
        n_layers(c.size({"n_layers"}, 8)),
        n_heads(c.size({"n_heads"}, 8)),
        n_kv_heads(c.size({"n_kv_heads"}, 2)),
        d_head(c.size({"d_head"}, std::max<int64_t>(1, d_model / n_heads))),
        d_ffn(c.size({"d_ffn"}, 1536)),
        vocab_size(c.size({"vocab_size"}, 151936)),
        positions(c.size({"max_position_embeddings"}, 8192)),
        d_indexer(gsa.size({"d_indexer"}, 64)),
        n_indexer_heads(gsa.size({"n_indexer_heads"}, 4)),
        k_base(gsa.size({"k_base"}, 512)),
        k_min(gsa.size({"k_min"}, 64)),
        k_max(gsa.size({"k_max"}, 1024)),
        adaptive(gsa.flag({"use_adaptive_k"}, true)),
        value_gate(gsa.flag({"use_value_gate"}, true)),
        output_gate(gsa.flag({"use_output_gate"}, true)),
        relu_indexer(gsa.text({"indexer_activation"}, "sigmoid") == "relu"),
        tied(c.flag({"tie_word_embeddings"}, false)),
        dropout(gsa.number({"attention_dropout"}, 0.0)) {}
  int64_t d_model, n_layers, n_heads, n_kv_heads, d_head, d_ffn, vocab_size, positions;
  int64_t d_indexer, n_indexer_heads, k_base, k_min, k_max;
  bool adaptive, value_gate, output_gate, relu_indexer, tied;
  double dropout;
};

struct GSARMSNorm : Unit {
  GSARMSNorm(const Unit& parent, std::string_view name, int64_t width)
      : Unit(parent, name), weight(parameter("weight", {width}, Init::ones())) {}

  Tensor operator()(const Tensor& x) const {
    const Within here(place);
    Tensor hidden;
    {
      const Tensor in_fp32 = x.to(torch::kFloat32);
      Tensor scale = in_fp32.pow(2).mean(-1, true);
      scale = scale + 1e-6;
      scale = torch::rsqrt(wide(scale));
      hidden = in_fp32 * scale;
    }
    hidden = hidden.to(x.scalar_type());
    return hidden * weight;
  }

  Tensor weight;
};

// ValueGate and OutputGate.
struct Gate : Unit {
  Gate(const Unit& parent, std::string_view name, int64_t d_model, int64_t width)
      : Unit(parent, name), gate_proj(*this, "gate_proj", d_model, width) {}

  Tensor operator()(const Tensor& x, const Tensor& hidden) const {
    const Within here(place);
    const Tensor logits = gate_proj(hidden).view(x.sizes());
    const Tensor gate = torch::sigmoid(logits);
    return x * gate;
  }

  Linear gate_proj;
};

struct GSARotaryEmbedding : Unit {
  GSARotaryEmbedding(const Unit& parent, std::string_view name, const GsaSettings& c)
      : Unit(parent, name),
        inv_freq(buffer({c.d_head / 2})),
        cos_cached(buffer({c.positions, c.d_head})),
        sin_cached(buffer({c.positions, c.d_head})) {
    const int64_t half = c.d_head / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
      inv_freq.data_ptr<float>()[i] = static_cast<float>(frequency);
      for (int64_t t = 0; t < c.positions; ++t)
        for (const int64_t at : {t * c.d_head + i, t * c.d_head + half + i}) {
          cos_cached.data_ptr<float>()[at] = static_cast<float>(std::cos(static_cast<double>(t) * frequency));
          sin_cached.data_ptr<float>()[at] = static_cast<float>(std::sin(static_cast<double>(t) * frequency));
        }
    }
  }

  struct Tables {
    Tensor cos, sin;  // (B, T, D)
  };
  Tables operator()(const Tensor& positions) const {
    const Within here(place);
    const int64_t last = positions.max().item<int64_t>();
    if (last >= cos_cached.size(0)) throw Error("[measure] gsa: more tokens than max_position_embeddings", "raise it, or lower --seq");
    return {cos_cached.index({positions}), sin_cached.index({positions})};
  }

  Tensor inv_freq, cos_cached, sin_cached;
};

Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor turned;
  {
    const int64_t half = x.size(-1) / 2;
    const Tensor x1 = x.slice(-1, 0, half), x2 = x.slice(-1, half, x.size(-1));
    const Tensor minus = -x2;
    turned = torch::cat({minus, x1}, -1);
  }
  const Tensor straight = x * cos, across = turned * sin;
  return straight + across;
}

struct GatedLightningIndexer : Unit {
  GatedLightningIndexer(const Unit& parent, std::string_view name, const GsaSettings& c)
      : Unit(parent, name),
        c(c),
        bias(parameter("bias", {c.n_indexer_heads}, Init::zeros())),
        q_proj(*this, "q_proj", c.d_model, c.n_indexer_heads * c.d_indexer, false),
        k_proj(*this, "k_proj", c.d_model, c.d_indexer, false),
        weight_proj(*this, "weight_proj", c.d_model, c.n_indexer_heads) {}

  Tensor operator()(const Tensor& hidden) const {
    const Within here(place);
    const int64_t batch = hidden.size(0), tokens = hidden.size(1);
    Tensor q = q_proj(hidden);
    const Tensor k = k_proj(hidden);                                        // (B, T, D)
    q = q.view({batch, tokens, c.n_indexer_heads, c.d_indexer});            // (B, T, H, D)
    const Tensor weights = torch::sigmoid(weight_proj(hidden));             // (B, T, H)
    Tensor raw_scores = torch::einsum("bqhd,bkd->bhqk", {low(q), low(k)});  // a statement of its own: casts end with it
    raw_scores = raw_scores * (1 / std::sqrt(static_cast<double>(c.d_indexer)));
    Tensor gated_scores;
    {
      const Tensor shifted = raw_scores + bias.view({1, -1, 1, 1});
      gated_scores = c.relu_indexer ? torch::relu(shifted) : torch::sigmoid(shifted);
    }
    const Tensor weighted_scores = gated_scores * weights.permute({0, 2, 1}).unsqueeze(-1);
    Tensor scores = weighted_scores.sum(1, false, torch::kFloat32);  // (B, T, T)
    const Tensor causal_mask = torch::triu(torch::ones({tokens, tokens}, torch::kBool), 1);
    scores = scores.masked_fill(causal_mask.unsqueeze(0), -std::numeric_limits<double>::infinity());
    return scores;
  }

  const GsaSettings& c;
  Tensor bias;
  Linear q_proj, k_proj, weight_proj;
};

struct Selection {
  Tensor indices, mask;  // (B, T, K)
};

struct AdaptiveTopKSelector : Unit {
  AdaptiveTopKSelector(const Unit& parent, std::string_view name, const GsaSettings& c) : Unit(parent, name), c(c) {}

  Tensor adaptive_k(const Tensor& scores) const {
    const Tensor valid_mask = scores != -std::numeric_limits<double>::infinity();
    const Tensor masked_scores = scores.masked_fill(valid_mask.bitwise_not(), 0.0);
    const Tensor valid_counts = valid_mask.sum(-1).to(torch::kFloat32);
    const Tensor score_var = masked_scores.var(-1);
    Tensor var_normalized;
    {
      Tensor average = score_var.mean();
      average = average + 1e-8;
      var_normalized = score_var / average;
    }
    Tensor k_scale;
    {
      Tensor spread = var_normalized * 1.0;
      spread = spread + 1.0;
      k_scale = wide(spread).reciprocal();
      k_scale = k_scale * 1.0;
    }
    Tensor k_adaptive = k_scale + 0.5;
    k_adaptive = k_adaptive * static_cast<double>(c.k_base);
    Tensor k_values = k_adaptive.clamp(static_cast<double>(c.k_min), static_cast<double>(c.k_max));
    k_values = torch::minimum(k_values, valid_counts);
    return k_values.to(torch::kInt64);
  }

  Selection operator()(const Tensor& scores) const {
    const Within here(place);
    const double infinity = std::numeric_limits<double>::infinity();
    const int64_t batch = scores.size(0), tokens = scores.size(1), k = std::min(c.adaptive ? c.k_max : c.k_base, scores.size(2));
    const Tensor k_values = c.adaptive ? adaptive_k(scores) : torch::full({batch, tokens}, k, torch::kInt64);
    const Tensor scores_for_topk = scores.masked_fill(scores == -infinity, -1e9);
    const auto [values, indices] = torch::topk(scores_for_topk, k, -1);
    const Tensor position_indices = torch::arange(k).view({1, 1, -1}).expand({batch, tokens, -1});
    Tensor mask = position_indices < k_values.unsqueeze(-1);
    const Tensor gathered_scores = scores.gather(-1, indices);
    mask = mask.bitwise_and(gathered_scores != -infinity);
    return {indices, mask};
  }

  const GsaSettings& c;
};

struct GatedSparseAttention : Unit {
  GatedSparseAttention(const Unit& parent, std::string_view name, const GsaSettings& c)
      : Unit(parent, name),
        c(c),
        q_proj(*this, "q_proj", c.d_model, c.n_heads * c.d_head, false),
        k_proj(*this, "k_proj", c.d_model, c.n_kv_heads * c.d_head, false),
        v_proj(*this, "v_proj", c.d_model, c.n_kv_heads * c.d_head, false),
        o_proj(*this, "o_proj", c.n_heads * c.d_head, c.d_model, false),
        indexer(*this, "indexer", c),
        topk_selector(*this, "topk_selector", c),
        value_gate(c.value_gate ? std::make_unique<Gate>(*this, "value_gate", c.d_model, c.n_kv_heads * c.d_head) : nullptr),
        output_gate(c.output_gate ? std::make_unique<Gate>(*this, "output_gate", c.d_model, c.n_heads * c.d_head) : nullptr),
        rotary_emb(*this, "rotary_emb", c) {}

  Tensor operator()(const Tensor& hidden, const Tensor& positions) const {
    const Within here(place);
    const int64_t batch = hidden.size(0), tokens = hidden.size(1);
    Tensor q = q_proj(hidden).view({batch, tokens, c.n_heads, c.d_head});     // (B, T, H, D)
    Tensor k = k_proj(hidden).view({batch, tokens, c.n_kv_heads, c.d_head});  // (B, T, KV, D)
    Tensor v = v_proj(hidden).view({batch, tokens, c.n_kv_heads, c.d_head});
    if (value_gate) v = (*value_gate)(v, hidden);
    const GSARotaryEmbedding::Tables tables = rotary_emb(positions);
    {
      const Tensor cos = tables.cos.unsqueeze(2), sin = tables.sin.unsqueeze(2);
      Tensor q_rotated = rotated(q, cos, sin), k_rotated = rotated(k, cos, sin);
      q = std::move(q_rotated);
      k = std::move(k_rotated);
    }
    const Tensor indexer_scores = indexer(hidden);             // (B, T, T)
    const Selection selected = topk_selector(indexer_scores);  // (B, T, K)
    Tensor attn_weights;
    Tensor attn_output = sparse_attention(q, k, v, selected, attn_weights);  // (B, T, H, D)
    if (output_gate) attn_output = (*output_gate)(attn_output, hidden);
    attn_output = attn_output.reshape({batch, tokens, -1});
    return o_proj(attn_output);  // (B, T, C)
  }

  Tensor sparse_attention(const Tensor& q, const Tensor& k_heads, const Tensor& v_heads, const Selection& selected,
                          Tensor& attn_weights) const {
    const Tensor k = repeat_kv(k_heads), v = repeat_kv(v_heads);  // (B, T, H, D)
    Tensor k_gathered = gather_along_seq(k, selected.indices);    // (B, T, K, H, D)
    Tensor v_gathered = gather_along_seq(v, selected.indices);
    k_gathered = k_gathered.permute({0, 1, 3, 2, 4});  // (B, T, H, K, D)
    v_gathered = v_gathered.permute({0, 1, 3, 2, 4});
    Tensor scores = torch::einsum("bqhd,bqhkd->bqhk", {low(q), low(k_gathered)});
    scores = scores * (1 / std::sqrt(static_cast<double>(c.d_head)));
    const Tensor mask = selected.mask.unsqueeze(2);
    scores = scores.masked_fill(mask.bitwise_not(), -std::numeric_limits<double>::infinity());
    attn_weights = torch::softmax(wide(scores), -1);
    attn_weights = attn_weights.masked_fill(mask.bitwise_not(), 0.0);
    attn_weights = torch::dropout(attn_weights, c.dropout, build.training);
    return torch::einsum("bqhk,bqhkd->bqhd", {low(attn_weights), low(v_gathered)});  // (B, T, H, D)
  }

  Tensor repeat_kv(const Tensor& x) const {
    const int64_t repeats = c.n_heads / c.n_kv_heads;
    if (repeats == 1) return x;
    return x.unsqueeze(3)
        .expand({x.size(0), x.size(1), c.n_kv_heads, repeats, c.d_head})
        .reshape({x.size(0), x.size(1), c.n_heads, c.d_head});
  }

  Tensor gather_along_seq(const Tensor& x, const Tensor& indices) const {
    const int64_t batch = x.size(0), tokens = indices.size(1);
    const Tensor indices_expanded = indices.unsqueeze(-1).unsqueeze(-1).expand({batch, tokens, indices.size(2), c.n_heads, c.d_head});
    const Tensor x_expanded = x.unsqueeze(1).expand({batch, tokens, x.size(1), c.n_heads, c.d_head});
    return x_expanded.gather(2, indices_expanded);
  }

  const GsaSettings& c;
  Linear q_proj, k_proj, v_proj, o_proj;
  GatedLightningIndexer indexer;
  AdaptiveTopKSelector topk_selector;
  std::unique_ptr<Gate> value_gate, output_gate;
  GSARotaryEmbedding rotary_emb;
};

struct GatedMLP : Unit {
  GatedMLP(const Unit& parent, std::string_view name, int64_t width, int64_t inner)
      : Unit(parent, name),
        gate_proj(*this, "gate_proj", width, inner, false),
        up_proj(*this, "up_proj", width, inner, false),
        down_proj(*this, "down_proj", inner, width, false) {}

  Tensor operator()(const Tensor& x) const {
    const Within here(place);
    Tensor inner;  // (B, T, F)
    {
      const Tensor gate = torch::silu(gate_proj(x));
      const Tensor up = up_proj(x);
      inner = gate * up;
    }
    return down_proj(inner);  // (B, T, C)
  }

  Linear gate_proj, up_proj, down_proj;
};

struct GSADecoderLayer : Unit {
  GSADecoderLayer(const Unit& parent, std::string_view name, const GsaSettings& c)
      : Unit(parent, name),
        input_layernorm(*this, "input_layernorm", c.d_model),
        self_attn(*this, "self_attn", c),
        post_attention_layernorm(*this, "post_attention_layernorm", c.d_model),
        mlp(*this, "mlp", c.d_model, c.d_ffn) {}

  Tensor operator()(const Tensor& x, const Tensor& positions) const {
    const Within here(place);
    Tensor residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    const Tensor attn_output = self_attn(hidden, positions);
    hidden = residual + attn_output;
    residual = hidden;
    hidden = post_attention_layernorm(hidden);
    hidden = residual + mlp(hidden);
    return hidden;
  }

  GSARMSNorm input_layernorm;
  GatedSparseAttention self_attn;
  GSARMSNorm post_attention_layernorm;
  GatedMLP mlp;
};

struct GSALlamaModel : Unit {
  GSALlamaModel(const Unit& parent, std::string_view name, const GsaSettings& c)
      : Unit(parent, name),
        embed_tokens(parameter("embed_tokens.weight", {c.vocab_size, c.d_model}, Init::normal(0.02))),
        layers(*this, "layers") {
    for (int64_t i = 0; i < c.n_layers; ++i) layers.add(c);
    norm = std::make_unique<GSARMSNorm>(*this, "norm", c.d_model);
  }

  Tensor operator()(const Tensor& ids) const {
    const Within here(place);
    Tensor hidden = torch::embedding(embed_tokens, ids);  // (B, T, C)
    const Tensor positions = torch::arange(ids.size(1)).unsqueeze(0).expand({ids.size(0), -1});
    for (size_t i = 0; i < layers.size(); ++i) {
      const GSADecoderLayer& layer = layers[i];
      hidden = run_block(
          layer, [&layer, positions](const Tensor& x) { return layer(x, positions); }, hidden);
    }
    hidden = (*norm)(hidden);
    return hidden;
  }

  Tensor embed_tokens;
  UnitList<GSADecoderLayer> layers;
  std::unique_ptr<GSARMSNorm> norm;
};

class GSALlamaForCausalLM : public LiveLanguageModel, public Unit {
 public:
  GSALlamaForCausalLM(Build& build, const Job& job, const GsaSettings& settings)
      : LiveLanguageModel(job.seq, settings.vocab_size),
        Unit(build),
        keeps_logits_(!job.drop_output),
        c_(settings),
        model_(*this, "model", c_),
        lm_head_(c_.tied ? model_.embed_tokens : parameter("lm_head.weight", {c_.vocab_size, c_.d_model}, Init::normal(0.02))) {}

  Tensor loss(const Tensors& inputs) override {
    const Tensor& ids = inputs[0];
    const Tensor hidden = model_(ids);
    const Tensor logits = torch::linear(hidden, lm_head_);  // (B, T, V)
    Tensor shift_logits = logits.slice(1, 0, logits.size(1) - 1).contiguous(), shift_labels = ids.slice(1, 1, ids.size(1)).contiguous();
    shift_logits = shift_logits.view({-1, logits.size(-1)});
    shift_labels = shift_labels.view({-1});
    Tensor loss = cross_entropy(shift_logits, shift_labels);
    logits_ = keeps_logits_ ? logits : Tensor();  // the old ones were alive until here
    return loss;
  }

  void forget() override { logits_.reset(); }

 private:
  bool keeps_logits_;
  const GsaSettings c_;
  GSALlamaModel model_;
  Tensor lm_head_;
  Tensor logits_;  // the caller's `outputs` keep them until the next forward has returned
};

}  // namespace

std::unique_ptr<LiveModel> make_live_gsa(Build& build, const Job& job) {
  return std::make_unique<GSALlamaForCausalLM>(build, job, GsaSettings(job));
}

}  // namespace plimsoll::measure
