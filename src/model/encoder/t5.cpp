// transformers.models.t5: T5ForConditionalGeneration, and T5EncoderModel as a text encoder. Attention is always eager, with a bias by
// relative position that the first layer of each stack makes and the others share.
#include "model/family.h"
#include "nn/encoder_decoder.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/text_encoder.h"
#include "nn/transformer.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct T5Config {
  explicit T5Config(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 32128)),
        d_model(c.size({"d_model", "hidden_size"}, 512)),
        d_kv(c.size({"d_kv", "head_dim"}, 64)),
        d_ff(c.size({"d_ff"}, 2048)),
        num_layers(c.size({"num_layers", "num_hidden_layers"}, 6)),
        num_decoder_layers(c.size({"num_decoder_layers"}, num_layers)),
        num_heads(c.size({"num_heads", "num_attention_heads"}, 8)),
        num_buckets(c.size({"relative_attention_num_buckets"}, 32)),
        dropout_rate(c.number({"dropout_rate"}, 0.1)),
        // The head is tied in every case; the flag says whether its input is scaled.
        scale_decoder_outputs(c.flag({"tie_word_embeddings"}, true)) {
    reject_captured_outputs(c);
    const std::string proj = c.text({"feed_forward_proj"}, "relu");
    gated = proj.rfind("gated-", 0) == 0;
    act = proj == "gated-gelu" ? "gelu_new" : gated ? proj.substr(6) : proj;
    if (act.find('-') != std::string::npos)
      throw Error("[" + c.source() + "] feed_forward_proj " + proj + " is neither ACT nor gated-ACT", "use relu or gated-gelu");
  }
  int64_t vocab_size, d_model, d_kv, d_ff, num_layers, num_decoder_layers, num_heads, num_buckets;
  double dropout_rate;
  bool scale_decoder_outputs, gated = false;
  std::string act;
};

// An RMS norm that scales its input in the input's own type.
struct T5LayerNorm : Module {
  T5LayerNorm(Module& parent, std::string_view name, int64_t width) : Module(parent, name), weight(parameter("weight", {width})) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor square = pow(to(x, DType::float32), 2);
    const Tensor variance = mean(square, {-1}, true);  // (B, T, 1)
    square.reset();
    Tensor scale = rsqrt(add_scalar(variance));
    Tensor hidden = mul(x, scale);  // (B, T, C)
    scale.reset();
    if (is_half(weight.dtype())) hidden = to(hidden, weight.dtype());
    return mul(weight, hidden);
  }

  Tensor weight;
};

// T5DenseActDense and T5DenseGatedActDense
struct T5Dense : Module {
  T5Dense(Module& parent, std::string_view name, const T5Config& c)
      : Module(parent, name), config(c), wi_1(c.gated ? std::make_unique<Linear>(*this, "wi_1", c.d_model, c.d_ff, false) : nullptr) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return config.gated ? gated(x) : plain(x);
  }

  Tensor plain(const Tensor& x) const {
    Tensor hidden = wi(x);  // (B, T, F)
    hidden = activation(config.act, hidden);
    hidden = dropout(hidden);
    hidden = to(hidden, wo.weight.dtype());
    hidden = wo(hidden);  // (B, T, C)
    return hidden;
  }

  Tensor gated(const Tensor& x) const {
    const Tensor hidden_gelu = activation(config.act, wi(x));  // (B, T, F)
    const Tensor hidden_linear = (*wi_1)(x);                   // (B, T, F)
    Tensor hidden = mul(hidden_gelu, hidden_linear);
    hidden = dropout(hidden);
    hidden = to(hidden, wo.weight.dtype());
    hidden = wo(hidden);  // (B, T, C)
    return hidden;
  }

  const T5Config& config;
  Linear wi{*this, config.gated ? "wi_0" : "wi", config.d_model, config.d_ff, false};
  std::unique_ptr<Linear> wi_1;
  Linear wo{*this, "wo", config.d_ff, config.d_model, false};
  Dropout dropout{*this, "dropout", config.dropout_rate};
};

struct T5LayerFF : Module {
  T5LayerFF(Module& parent, std::string_view name, const T5Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor forwarded = layer_norm(x);  // (B, T, C)
    forwarded = dense(forwarded);
    return add(x, dropout(forwarded));
  }

  const T5Config& config;
  T5Dense dense{*this, "DenseReluDense", config};
  T5LayerNorm layer_norm{*this, "layer_norm", config.d_model};
  Dropout dropout{*this, "dropout", config.dropout_rate};
};

struct Attended {
  Tensor output;         // (B, T, C)
  Tensor position_bias;  // (1 or B, H, T, K)
};

struct T5Attention : Module {
  T5Attention(Module& parent, std::string_view name, const T5Config& c, bool decoder, bool has_bias)
      : Module(parent, name), config(c), is_decoder(decoder) {
    if (has_bias) relative_attention_bias = std::make_unique<Embedding>(*this, "relative_attention_bias", c.num_buckets, c.num_heads);
  }

  // Bucket numbers by distance, (Q, K) int64: exact for near keys, logarithmic for far ones.
  Tensor relative_position_bucket(const Tensor& relative_position) const {
    const DType i64 = DType::int64, f32 = DType::float32;
    Tensor buckets, distance;
    if (!is_decoder) {
      for (const char* name : {"gt", "_to_copy", "mul", "add"})
        buckets = nondiff(name, buckets ? buckets : relative_position, buckets ? i64 : DType::bool_);
      distance = nondiff("abs", relative_position, i64);
    } else {
      Tensor zeros = nondiff("zeros_like", relative_position, i64);
      distance = nondiff("minimum", relative_position, i64);
      zeros.reset();
      distance = nondiff("neg", distance, i64);
    }
    const Tensor is_small = compare_scalar("lt", distance);
    Tensor large = nondiff("_to_copy", distance, f32);
    for (const char* name : {"div", "log", "div", "mul"}) large = nondiff(name, large, f32);
    for (const char* name : {"_to_copy", "add"}) large = nondiff(name, large, i64);
    {
      const Tensor last = nondiff("full_like", large, i64);
      large = nondiff("minimum", large, i64);
    }
    const Tensor chosen = where(is_small, distance, large);
    return buckets ? buckets : nondiff("add", chosen, i64);  // added in place to what is there
  }

  Tensor compute_bias(int64_t queries, int64_t keys) const {
    const Tensor context = nondiff("add", unsqueeze(arange(tape(), queries), 1), DType::int64);  // (Q, 1)
    const Tensor memory = unsqueeze(arange(tape(), keys), 0);                                    // (1, K)
    const Tensor relative = sub(memory, context);                                                // (Q, K)
    const Tensor bucket = relative_position_bucket(relative);
    const Tensor values = (*relative_attention_bias)(bucket);  // (Q, K, H)
    return unsqueeze(permute(values, {2, 0, 1}), 0);           // (1, H, Q, K)
  }

  // The bias by position, or zeros where there is none, plus the mask.
  Tensor first_bias(const Tensor& scores, const Tensor& mask) const {
    Tensor bias;  // (1, H, Q, K)
    if (relative_attention_bias) {
      bias = compute_bias(scores.size(2), scores.size(3));
    } else {
      bias = filled(tape(), "zeros", {1, scores.size(1), scores.size(2), scores.size(3)}, scores.dtype());
      if (build().checkpointing.on()) make_leaf(bias);
    }
    if (mask) bias = add(bias, mask);  // (B, H, Q, K)
    return bias;
  }

  // `states` are what keys and values are made of: x itself, or the encoder's output.
  Attended operator()(const Tensor& x, const Tensor& states, const Tensor& mask, const Tensor& shared_bias) const {
    Forward here(*this);
    const Dims queries{x.size(0), x.size(1), -1, config.d_kv}, keys{states.size(0), states.size(1), -1, config.d_kv};
    const Tensor query_states = transpose(view(q(x), queries), 1, 2);    // (B, H, T, D)
    const Tensor key_states = transpose(view(k(states), keys), 1, 2);    // (B, H, K, D)
    const Tensor value_states = transpose(view(v(states), keys), 1, 2);  // (B, H, K, D)
    Tensor scores = matmul(query_states, transpose(key_states, 3, 2));   // (B, H, T, K)
    const Tensor position_bias = shared_bias ? shared_bias : first_bias(scores, mask);
    scores = add_(scores, position_bias);
    Tensor probs;
    {
      const Tensor wide = to(scores, DType::float32);
      probs = softmax(wide);
    }
    Tensor attn_weights = to(probs, scores.dtype());
    probs.reset();
    attn_weights = dropout(attn_weights, config.dropout_rate);
    Tensor out = matmul(attn_weights, value_states);  // (B, H, T, D)
    out = contiguous(transpose(out, 1, 2));
    out = reshape(out, {x.size(0), x.size(1), -1});  // (B, T, H*D)
    out = o(out);                                    // (B, T, C)
    return {out, position_bias};
  }

  const T5Config& config;
  bool is_decoder;
  Linear q{*this, "q", config.d_model, (config.num_heads * config.d_kv), false};
  Linear k{*this, "k", config.d_model, (config.num_heads * config.d_kv), false};
  Linear v{*this, "v", config.d_model, (config.num_heads * config.d_kv), false};
  Linear o{*this, "o", (config.num_heads * config.d_kv), config.d_model, false};
  std::unique_ptr<Embedding> relative_attention_bias;
};

// T5LayerSelfAttention and T5LayerCrossAttention
struct T5LayerAttention : Module {
  T5LayerAttention(Module& parent, std::string_view name, std::string_view inner, const T5Config& c, bool decoder, bool has_bias)
      : Module(parent, name),
        attention(*this, inner, c, decoder, has_bias),
        layer_norm(*this, "layer_norm", c.d_model),
        dropout(*this, "dropout", c.dropout_rate) {}

  Attended operator()(const Tensor& x, const Tensor& encoder_states, const Tensor& mask, const Tensor& position_bias) const {
    Forward here(*this);
    const Tensor normed = layer_norm(x);  // (B, T, C)
    const Attended attended = attention(normed, encoder_states ? encoder_states : normed, mask, position_bias);
    const Tensor hidden = add(x, dropout(attended.output));
    return {hidden, attended.position_bias};
  }

  T5Attention attention;
  T5LayerNorm layer_norm;
  Dropout dropout;
};

struct T5Block : Module {
  T5Block(Module& parent, std::string_view name, const T5Config& c, bool decoder, bool has_bias)
      : Module(parent, name),
        self_attention(layer, "0", "SelfAttention", c, decoder, has_bias),
        cross_attention(decoder ? std::make_unique<T5LayerAttention>(layer, "1", "EncDecAttention", c, true, false) : nullptr),
        feed_forward(layer, decoder ? "2" : "1", c) {}

  // Returns the hidden states, the self-attention's bias and the cross-attention's.
  Tensors operator()(const Tensor& x, const Tensor& mask, const Tensor& bias, const Tensor& encoder_states, const Tensor& cross_mask,
                     const Tensor& cross_bias) const {
    Forward here(*this);
    const Attended self_outputs = self_attention(x, {}, mask, bias);
    Attended cross_outputs;
    Tensor hidden = self_outputs.output;  // (B, T, C)
    if (cross_attention) {
      cross_outputs = (*cross_attention)(hidden, encoder_states, cross_mask, cross_bias);
      hidden = cross_outputs.output;
    }
    hidden = feed_forward(hidden);
    return {hidden, self_outputs.position_bias, cross_outputs.position_bias};
  }

  Module layer{*this, "layer"};
  T5LayerAttention self_attention;
  std::unique_ptr<T5LayerAttention> cross_attention;
  T5LayerFF feed_forward;
};

struct T5Stack : Module {
  T5Stack(Module& parent, std::string_view name, const T5Config& c, const Tensor& shared, bool decoder)
      : Module(parent, name),
        is_decoder(decoder),
        embed_tokens(*this, "embed_tokens", shared),
        final_layer_norm(add_blocks(c), "final_layer_norm", c.d_model),
        dropout(*this, "dropout", c.dropout_rate) {}

  Module& add_blocks(const T5Config& c) {
    const int64_t layers = is_decoder ? c.num_decoder_layers : c.num_layers;
    for (int64_t i = 0; i < layers; ++i) block.add(c, is_decoder, i == 0);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& encoder_states) {
    Forward here(*this);
    const Tensor inputs_embeds = embed_tokens(input_ids);  // (B, T, C)
    MaskArgs args{inputs_embeds.size(0), inputs_embeds.size(1), inputs_embeds.size(1), inputs_embeds.dtype(), {}, {}};
    args.only_eager = true;
    args.ignores_batch = is_decoder;
    const Tensor mask = is_decoder ? create_causal_mask(build(), args) : create_bidirectional_mask(build(), args);  // (B, 1, T, T)
    Tensor cross_mask;                                                                                              // (B, 1, T, S)
    if (is_decoder) {
      args.ignores_batch = false;
      args.keys = encoder_states.size(1);
      args.dtype = encoder_states.dtype();
      cross_mask = create_bidirectional_mask(build(), args);
    }
    Tensor hidden = dropout(inputs_embeds);
    Tensor position_bias, cross_bias;
    Tensors outputs;  // of the last block, alive until the stack returns
    for (T5Block& layer : block) {
      auto run = [&layer](const Tensors& in) { return layer(in[0], in[1], in[2], in[3], in[4], in[5]); };
      outputs = run_block(layer, run, Tensors{hidden, mask, position_bias, encoder_states, cross_mask, cross_bias});
      hidden = outputs[0];
      position_bias = outputs[1];
      cross_bias = outputs[2];
    }
    hidden = final_layer_norm(hidden);
    hidden = dropout(hidden);
    return hidden;
  }

  bool is_decoder;
  Embedding embed_tokens;
  ModuleList<T5Block> block{*this, "block"};
  T5LayerNorm final_layer_norm;
  Dropout dropout;
};

struct T5ForConditionalGeneration : Model {
  T5ForConditionalGeneration(Build& build, const Config& c) : Model(build), config(c) {}

  Output forward(const Batch& batch) override {
    const Tensor encoder_hidden = encoder(batch.input_ids, {});                                          // (B, T, C)
    const Tensor decoder_input_ids = shift_tokens_right(batch.labels ? batch.labels : batch.input_ids);  // (B, T)
    const Tensor decoder_hidden = decoder(decoder_input_ids, encoder_hidden);
    const Tensor sequence_output = config.scale_decoder_outputs ? mul_scalar(decoder_hidden) : decoder_hidden;
    const Tensor lm_logits = lm_head(sequence_output);  // (B, T, V)
    return {flat_cross_entropy(lm_logits, batch.labels, false), {lm_logits, encoder_hidden}};
  }

  T5Config config;
  Embedding shared{*this, "shared", config.vocab_size, config.d_model};
  T5Stack encoder{*this, "encoder", config, shared.weight, false};
  T5Stack decoder{*this, "decoder", config, shared.weight, true};
  Linear lm_head{*this, "lm_head", shared.weight, false};
};

struct T5EncoderModel : TextEncoder {
  T5EncoderModel(Module& parent, std::string_view name, const Config& c) : TextEncoder(parent, name), config(c) {}

  TextStates encode(const Tensor& input_ids, bool) override {
    Forward here(*this);
    TextStates out;
    out.last_hidden_state = encoder(input_ids, {});  // (B, T, C)
    return out;
  }

  Dims result_sizes(int64_t samples, int64_t tokens) const override { return {samples, tokens, config.d_model}; }
  int64_t usual_tokens() const override { return 512; }

  T5Config config;
  Embedding shared{*this, "shared", config.vocab_size, config.d_model};
  T5Stack encoder{*this, "encoder", config, shared.weight, false};
};

std::unique_ptr<TextEncoder> make_t5_encoder_model(Module& parent, std::string_view name, const Config& config) {
  return std::make_unique<T5EncoderModel>(parent, name, config);
}

std::unique_ptr<Model> make_t5_encoder(Build& build, const Config& config) {
  return make_text_encoder_training(build, config, make_t5_encoder_model);
}

std::unique_ptr<Model> make_t5(Build& build, const Config& config) { return std::make_unique<T5ForConditionalGeneration>(build, config); }

constexpr const char* kMT5 =
    R"({"vocab_size":250112,"d_model":512,"d_kv":64,"d_ff":1024,"num_layers":8,"num_heads":6,"feed_forward_proj":"gated-gelu"})";
constexpr const char* kMT5Forced = R"({"tie_word_embeddings":false})";  // T5 reads it as: the head's input is not scaled

}  // namespace

const Family& mt5_family() {
  static const Family kFamily{
      .name = "mt5",
      .models = {copy_of({"mt5", {"MT5ForConditionalGeneration"}, InputKind::lm, 512, make_t5}, kMT5, kMT5Forced)},
      .presets = {{"mt5-small", R"({})", 512},
                  {"mt5-base", R"({"d_model":768,"d_ff":2048,"num_layers":12,"num_heads":12})", 512},
                  {"mt5-large", R"({"d_model":1024,"d_ff":2816,"num_layers":24,"num_heads":16})", 512}},
      .adapters = {.lora = {"q", "v"}, .ia3 = {"k", "v", "wi_1"}, .ln_tuning = {"layer_norm", "final_layer_norm"}},
  };
  return kFamily;
}

const Family& t5_family() {
  static const Family kFamily{
      .name = "t5",
      .models = {{"t5", {"T5ForConditionalGeneration"}, InputKind::lm, 512, make_t5}},
      .presets =
          {{"t5-small", R"({"d_model":512,"d_kv":64,"d_ff":2048,"num_layers":6,"num_heads":8,"decoder_start_token_id":0})", 512},
           {"t5-base", R"({"d_model":768,"d_kv":64,"d_ff":3072,"num_layers":12,"num_heads":12,"decoder_start_token_id":0})", 512},
           {"t5-large", R"({"d_model":1024,"d_kv":64,"d_ff":4096,"num_layers":24,"num_heads":16,"decoder_start_token_id":0})", 512},
           {"t5-3b", R"({"d_model":1024,"d_kv":128,"d_ff":16384,"num_layers":24,"num_heads":32,"decoder_start_token_id":0})", 512},
           {"t5-11b", R"({"d_model":1024,"d_kv":128,"d_ff":65536,"num_layers":24,"num_heads":128,"decoder_start_token_id":0})", 512},
           {"flan-t5-small",
            R"({"d_model":512,"d_kv":64,"d_ff":1024,"num_layers":8,"num_heads":6,"decoder_start_token_id":0,"feed_forward_proj":"gated-gelu","tie_word_embeddings":false})",
            512},
           {"flan-t5-base",
            R"({"d_model":768,"d_kv":64,"d_ff":2048,"num_layers":12,"num_heads":12,"decoder_start_token_id":0,"feed_forward_proj":"gated-gelu","tie_word_embeddings":false})",
            512},
           {"flan-t5-large",
            R"({"d_model":1024,"d_kv":64,"d_ff":2816,"num_layers":24,"num_heads":16,"decoder_start_token_id":0,"feed_forward_proj":"gated-gelu","tie_word_embeddings":false})",
            512},
           {"flan-t5-xl",
            R"({"d_model":2048,"d_kv":64,"d_ff":5120,"num_layers":24,"num_heads":32,"decoder_start_token_id":0,"feed_forward_proj":"gated-gelu","tie_word_embeddings":false})",
            512},
           {"flan-t5-xxl",
            R"({"d_model":4096,"d_kv":64,"d_ff":10240,"num_layers":24,"num_heads":64,"decoder_start_token_id":0,"feed_forward_proj":"gated-gelu","tie_word_embeddings":false})",
            512}},
      .adapters = {.lora = {"q", "v"}, .ia3 = {"k", "v", "wo"}, .feedforward = {"wo"}, .ln_tuning = {"layer_norm", "final_layer_norm"}},
  };
  return kFamily;
}

const Family& t5_encoder_family() {
  static const Family kFamily{
      .name = "t5-encoder",
      .models = {{"t5-encoder", {"T5EncoderModel"}, InputKind::own, 512, make_t5_encoder, make_t5_encoder_model}},
      .presets = {{"t5-v1.1-xxl-encoder",
                   R"({"d_model":4096,"d_ff":10240,"num_layers":24,"num_heads":64,"feed_forward_proj":"gated-gelu"})", 512}},
  };
  return kFamily;
}

}  // namespace plimsoll
