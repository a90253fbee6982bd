// transformers.models.llama4: Llama4ForCausalLM, the text model. Most layers see a chunk of the text and turn their queries and keys as
// complex numbers; the others see all of it. Every token passes through every expert, with its score as a factor.
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/gemma.h"
#include "nn/moe_decoder.h"
#include "ops/complex.h"
#include "ops/index.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Llama4TextRMSNorm : UnaryModule {
  Llama4TextRMSNorm(Module& parent, std::string_view name, int64_t width) : UnaryModule(parent, name) {
    weight = parameter("weight", {width});
  }

  Tensor operator()(const Tensor& x) const override {
    Forward here(*this);
    Tensor output = rms_normalised(to(x, DType::float32));
    output = to(output, x.dtype());
    return mul(output, weight);
  }
  Tensor weight;
};

struct Llama4Config : MoeConfig {
  explicit Llama4Config(const Config& c) {
    vocab_size = 202048;
    hidden_size = 5120;
    intermediate_size = 8192;
    num_hidden_layers = 48;
    num_attention_heads = 40;
    num_key_value_heads = 8;
    head_dim = 128;
    num_experts = 16;
    num_experts_per_tok = 1;
    read_decoder_config(c, *this);
    read_moe_config(c, "num_local_experts", *this);
    if (router_logits) throw Error("[" + c.source() + "] output_router_logits true is not supported", "leave output_router_logits false");
    moe_intermediate_size = intermediate_size;
    intermediate_size = c.size({"intermediate_size_mlp"}, 16384);  // of layers without experts
    rope = rope_settings(c, {head_dim, 131072});
    rope.complex = true;
    norm = norm_of<Llama4TextRMSNorm>;
    qkv_bias = o_bias = c.flag({"attention_bias"}, false);
    use_qk_norm = c.flag({"use_qk_norm"}, true);
    attn_temperature_tuning = c.flag({"attn_temperature_tuning"}, true);
    if (c.is_null("attention_chunk_size"))
      throw Error("[" + c.source() + "] attention_chunk_size null: its mask is always made", "give it a number of tokens");
    attention_chunk_size = c.size({"attention_chunk_size"}, 8192);
    read_layers(c);
  }

  void read_layers(const Config& c) {
    const size_t n = static_cast<size_t>(num_hidden_layers);
    const int64_t interval = c.size({"no_rope_layer_interval"}, 4), step = c.size({"interleave_moe_layer_step"}, 1);
    use_rope.resize(n);
    sparse_layer.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const int64_t number = static_cast<int64_t>(i) + 1;
      use_rope[i] = number % interval != 0;
      sparse_layer[i] = number % step == 0;
    }
    if (const std::vector<int64_t> given = numbers(c, "no_rope_layers"); !given.empty()) {
      if (given.size() < n)
        throw Error(
            "[" + c.source() + "] no_rope_layers has " + std::to_string(given.size()) + " numbers for " + std::to_string(n) + " layers",
            "give one for each layer");
      for (size_t i = 0; i < n; ++i) use_rope[i] = given[i] != 0;
    }
    if (c.find({"moe_layers"})) {
      sparse_layer.assign(n, false);
      for (int64_t i : numbers(c, "moe_layers"))
        if (i >= 0 && i < num_hidden_layers) sparse_layer[static_cast<size_t>(i)] = true;
    }
    sliding_layer = use_rope;
    const nlohmann::json* types = c.find({"layer_types"});
    if (!types) return;
    if (!types->is_array() || types->size() != n)
      throw Error("[" + c.source() + "] layer_types is not a list of num_hidden_layers " + std::to_string(n) + " names",
                  "give one name for each layer");
    for (size_t i = 0; i < n; ++i) {
      const nlohmann::json& type = (*types)[i];
      if (type != "full_attention" && type != "chunked_attention")
        throw Error("[" + c.source() + "] layer_types " + dump(type) + " is not known", "known: full_attention, chunked_attention");
      sliding_layer[i] = type == "chunked_attention";
    }
  }

  static std::vector<int64_t> numbers(const Config& c, const char* key) {
    std::vector<int64_t> values;
    const nlohmann::json* list = c.find({key});
    if (!list) return values;
    const auto is_number = [](const nlohmann::json& i) { return i.is_number_integer(); };
    if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_number))
      throw Error("[" + c.source() + "] " + key + " " + dump(*list) + " is not a list of whole numbers", "for example [1, 1, 1, 0]");
    for (const nlohmann::json& i : *list) values.push_back(i.get<int64_t>());
    return values;
  }

  std::vector<bool> use_rope;  // by layer
  bool use_qk_norm = true, attn_temperature_tuning = true;
  int64_t attention_chunk_size = 8192;
};

struct Llama4TextExperts : Module {
  Llama4TextExperts(Module& parent, std::string_view name, const Llama4Config& c) : Module(parent, name), config(c) {
    reject_sharded_experts(*this);
    gate_up_proj = parameter("gate_up_proj", {c.num_experts, c.hidden_size, 2 * c.moe_intermediate_size});
    down_proj = parameter("down_proj", {c.num_experts, c.moe_intermediate_size, c.hidden_size});
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor hidden = view(x, {config.num_experts, -1, config.hidden_size});  // (E, N, C)
    const Tensor gate_up = bmm(hidden, gate_up_proj);                             // (E, N, 2 F)
    const Tensors halves = chunk(gate_up, 2, -1);
    Tensor next;
    {
      const Tensor gate = activation(config.hidden_act, halves[0]);
      next = mul(halves[1], gate);
    }
    next = bmm(next, down_proj);  // (E, N, C)
    return view(next, {-1, config.hidden_size});
  }

  const Llama4Config& config;
  Tensor gate_up_proj, down_proj;
};

struct Llama4Router : Linear {
  Llama4Router(Module& parent, std::string_view name, const Llama4Config& c)
      : Linear(parent, name, c.hidden_size, c.num_experts, false), top_k(c.num_experts_per_tok) {}

  struct Scores {
    Tensor scores, logits;  // (N, E)
  };
  Scores route(const Tensor& x) const {
    const Tensor logits = (*this)(x);
    Forward here(*this);
    const TopK top = topk(logits, top_k);
    Tensor scores = nondiff("full_like", logits, logits.dtype());
    scores = scatter_(scores, top.indices, top.values);
    const DType dtype = scores.dtype();
    Tensor open;
    {
      const Tensor wide = to(scores, DType::float32);
      open = sigmoid(wide);
    }
    scores = to(open, dtype);
    return {scores, logits};
  }
  int64_t top_k;
};

struct Llama4TextMoe : Module {
  Llama4TextMoe(Module& parent, std::string_view name, const Llama4Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, Tensor* router_logits) const {
    Forward here(*this);
    const Tensor hidden = reshape(x, {-1, x.size(-1)});  // (N, C)
    const auto [scores, logits] = router.route(hidden);
    const int64_t n = scores.size(1);
    Tensor routed_in = repeat_rows(hidden, n), weighted;  // (E N, C)
    {
      const Tensor weights = reshape(transpose(scores, 0, 1), {-1, 1});
      weighted = mul(routed_in, weights);
    }
    routed_in = std::move(weighted);
    const Tensor routed_out = experts(routed_in);
    Tensor out = shared_expert(hidden);
    out = add_(out, sum(reshape(routed_out, {n, -1, routed_out.size(-1)}), {0}, false));
    *router_logits = logits;
    return out;
  }

  const Llama4Config& config;
  Llama4TextExperts experts{*this, "experts", config};
  Llama4Router router{*this, "router", config};
  GatedMLP shared_expert{*this, "shared_expert", config.hidden_size, config.moe_intermediate_size, false, config.hidden_act};
};

struct Llama4TextAttention : Module {
  Llama4TextAttention(Module& parent, std::string_view name, const Llama4Config& c, size_t index)
      : Module(parent, name), config(c), use_rope(c.use_rope[index]) {}

  // Both are turned in fp32 before either is cast.
  static std::pair<Tensor, Tensor> apply_rotary_emb(const Tensor& q, const Tensor& k, const Tensor& freqs_cis) {
    const Tensor q_pairs = in_complex_pairs(q), k_pairs = in_complex_pairs(k), table = unsqueeze(freqs_cis, 2);
    const Tensor q_out = flatten(view_as_real(complex_mul(q_pairs, table)), 3);
    const Tensor k_out = flatten(view_as_real(complex_mul(k_pairs, table)), 3);
    Tensor q_cast = to(q_out, q.dtype());
    return {q_cast, to(k_out, k.dtype())};
  }

  static Tensor qk_norm(const Tensor& x) {
    const Tensor output = rms_normalised(to(x, DType::float32));
    return to(output, x.dtype());
  }

  // log1p(floor((positions + 1) / floor_scale)) * attn_scale + 1, which with the positions lives as long as the caller.
  static Tensor scaled_by_position(const Tensor& q, Tensor& positions, Tensor& scales) {
    positions = nondiff("add", arange(q.tape(), q.size(1)), DType::int64);
    scales = nondiff("_to_copy", positions, DType::float32);
    for (const char* op : {"add", "div", "floor", "log1p", "mul", "add"}) scales = nondiff(op, scales, DType::float32);
    scales = expand(view(scales, {1, q.size(1), 1, 1}), {q.size(0), q.size(1), 1, 1});
    return to(mul(q, scales), q.dtype());
  }

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = view(q_proj(x), heads);                         // (B, T, H, D)
    Tensor k = view(k_proj(x), heads);                         // (B, T, KV, D)
    const Tensor v = transpose(view(v_proj(x), heads), 1, 2);  // (B, KV, T, D)
    if (use_rope) std::tie(q, k) = apply_rotary_emb(q, k, tables.cos);
    if (use_rope && config.use_qk_norm) {
      q = qk_norm(q);
      k = qk_norm(k);
    }
    Tensor positions, attn_scales;
    if (!use_rope && config.attn_temperature_tuning) q = scaled_by_position(q, positions, attn_scales);
    q = transpose(q, 1, 2);
    k = transpose(k, 1, 2);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
    call.softmax_fp32 = call.cast_weights = false;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
    out = o_proj(out);                                           // (B, T, C)
    return out;
  }

  const Llama4Config& config;
  bool use_rope;
  Linear q_proj{*this, "q_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), config.qkv_bias};
  Linear k_proj{*this, "k_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear v_proj{*this, "v_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear o_proj{*this, "o_proj", (config.num_attention_heads * config.head_dim), config.hidden_size, config.o_bias};
};

struct Llama4TextDecoderLayer : Module {
  Llama4TextDecoderLayer(Module& parent, std::string_view name, const Llama4Config& c, size_t index)
      : Module(parent, name),
        self_attn(*this, "self_attn", c, index),
        sparse(c.is_sparse(index) ? std::make_unique<Llama4TextMoe>(*this, "feed_forward", c) : nullptr),
        dense(sparse ? nullptr
                     : std::make_unique<GatedMLP>(*this, "feed_forward", c.hidden_size, c.intermediate_size, false, c.hidden_act)),
        input_layernorm(*this, "input_layernorm", c.hidden_size),
        post_attention_layernorm(*this, "post_attention_layernorm", c.hidden_size) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor beside, residual = x;         // the attention's weights, then the router's logits
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    const Tensor attention_states = run_attention(self_attn, hidden, &beside, tables, mask);
    hidden = add(residual, attention_states);
    residual = hidden;
    hidden = post_attention_layernorm(hidden);
    hidden = sparse ? run_attention(*sparse, hidden, &beside) : run_part(*dense, hidden);
    hidden = add(residual, view(hidden, residual.sizes()));
    return hidden;
  }

  Llama4TextAttention self_attn;
  std::unique_ptr<Llama4TextMoe> sparse;
  std::unique_ptr<GatedMLP> dense;
  Llama4TextRMSNorm input_layernorm, post_attention_layernorm;
};

struct Llama4TextModel : DecoderStack<Llama4Config, Llama4TextDecoderLayer> {
  using DecoderStack::DecoderStack;
  Masks make_masks(MaskArgs args) const override {
    Masks masks;
    masks.full = create_causal_mask(build(), args);
    args.chunk = config.attention_chunk_size;
    masks.local = create_causal_mask(build(), args);
    return masks;
  }
};

std::unique_ptr<Model> make_llama4(Build& build, const Config& c) {
  const Llama4Config settings(c);
  return std::make_unique<CausalLM<Llama4Config, Llama4TextModel>>(build, settings, lm_head(settings));
}

}  // namespace

const Family& llama4_family() {
  static const Family kFamily{
      .name = "llama4_text",
      .models = {{"llama4_text", {"Llama4ForCausalLM"}, InputKind::lm, 2048, make_llama4}},
      .presets = {{"llama-4-scout", R"({"rope_parameters":{"rope_type":"llama3"}})", 4096},
                  {"llama-4-maverick", R"({"num_local_experts":128,"interleave_moe_layer_step":2,"use_qk_norm":false})", 4096}},
  };
  return kFamily;
}

}  // namespace plimsoll
