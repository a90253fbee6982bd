// transformers.models.qwen2_vl: Qwen2VLForConditionalGeneration. A sample is `seq` tokens, among them those of its `images` (one unless the
// configuration says otherwise) of `image_size` pixels (a side, or [height, width]; 448 unless given). Positions of tokens and patches come
// with the batch, as data collators make them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "job/config_list.h"
#include "model/family.h"
#include "nn/causal_lm.h"
#include "nn/clip_encoder.h"
#include "nn/decoder_stack.h"
#include "nn/qwen_vl.h"
#include "ops/conv.h"
#include "ops/index.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Qwen2VLVisionConfig {
  explicit Qwen2VLVisionConfig(const Config& c)
      : depth(c.size({"depth"}, 32)),
        embed_dim(c.size({"embed_dim"}, 1280)),
        hidden_size(c.size({"hidden_size"}, 3584)),
        mlp_ratio(c.size({"mlp_ratio"}, 4)),
        num_heads(c.size({"num_heads"}, 16)),
        in_channels(c.size({"in_channels", "in_chans"}, 3)),
        patch(c.size({"patch_size", "spatial_patch_size"}, 14)),
        merge(c.size({"spatial_merge_size"}, 2)),
        temporal_patch(c.size({"temporal_patch_size"}, 2)),
        hidden_act(c.text({"hidden_act"}, "quick_gelu")) {
    c.require_divides("num_heads", num_heads, "embed_dim", embed_dim);
  }
  int64_t depth, embed_dim, hidden_size, mlp_ratio, num_heads, in_channels, patch, merge, temporal_patch;
  std::string hidden_act;
};

// An image in patches; one token is merge x merge of them.
struct ImageGrid {
  ImageGrid(const Config& c, const Qwen2VLVisionConfig& v) {
    const std::vector<int64_t> sides = size_per_block(c, "image_size", 448, 2);
    const int64_t unit = v.patch * v.merge;
    for (const int64_t side : sides)
      if (side % unit != 0)
        throw Error(fmt::format("[{}] image_size {} is not a multiple of {}: patch_size times spatial_merge_size", c.source(), side, unit),
                    fmt::format("the processor rounds to {} or {}", std::max(side / unit, int64_t{1}) * unit, (side / unit + 1) * unit));
    patches = checked_mul(sides[0] / v.patch, sides[1] / v.patch);
    tokens = patches / (v.merge * v.merge);
  }
  int64_t patches, tokens;
};

struct Qwen2VLVisionMlp : Module {
  Qwen2VLVisionMlp(Module& parent, std::string_view name, const Qwen2VLVisionConfig& c)
      : Module(parent, name), config(c), act(c.hidden_act) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = fc1(x);  // (N, F)
    hidden = activation(act, hidden);
    return fc2(hidden);
  }
  const Qwen2VLVisionConfig& config;
  std::string act;
  Linear fc1{*this, "fc1", config.embed_dim, checked_mul(config.embed_dim, config.mlp_ratio)};
  Linear fc2{*this, "fc2", checked_mul(config.embed_dim, config.mlp_ratio), config.embed_dim};
};

// In fp32, whatever the type of q and k. (N, H, D)
void rotate_vision(Tensor& q, Tensor& k, const CosSin& tables) {
  const DType q_type = q.dtype(), k_type = k.dtype();
  const Tensor wide_q = to(q, DType::float32), wide_k = to(k, DType::float32);
  const Tensor cos = unsqueeze(tables.cos, -2), sin = unsqueeze(tables.sin, -2);
  Tensor q_embed = rotate(wide_q, cos, sin), k_embed = rotate(wide_k, cos, sin);
  q_embed = to(q_embed, q_type);
  k_embed = to(k_embed, k_type);
  q = q_embed;
  k = k_embed;
}

struct Qwen2VLVisionAttention : Module {
  Qwen2VLVisionAttention(Module& parent, std::string_view name, const Qwen2VLVisionConfig& c)
      : Module(parent, name), config(c), heads(c.num_heads) {}

  // Each image by itself.
  Tensor operator()(const Tensor& x, const CosSin& tables, int64_t images, Tensor*) const {
    Forward here(*this);
    const int64_t patches = x.size(0);
    Tensors parts = unbind(permute(reshape(qkv(x), {patches, 3, heads, -1}), {1, 0, 2, 3}), 0);  // (N, H, D) each
    rotate_vision(parts[0], parts[1], tables);
    std::vector<Tensors> splits;
    const Tensor lengths = filled(tape(), "sub", {images}, DType::int32);
    for (Tensor& part : parts) {
      part = unsqueeze(transpose(part, 0, 1), 0);  // (1, H, N, D)
      splits.push_back(split(part, std::vector<int64_t>(static_cast<size_t>(images), patches / images), 2));
    }
    AttentionCall call;
    call.causal = false;
    Tensors outputs;
    for (size_t i = 0; i < splits[0].size(); ++i) {
      Tensor weights;
      outputs.push_back(attention(build(), splits[0][i], splits[1][i], splits[2][i], call, &weights));  // (1, n, H, D)
    }
    Tensor out = cat(outputs, 1);
    out = contiguous(reshape(out, {patches, -1}));  // (N, C)
    out = proj(out);
    return out;
  }

  const Qwen2VLVisionConfig& config;
  int64_t heads;
  Linear qkv{*this, "qkv", config.embed_dim, checked_mul(3, config.embed_dim)};
  Linear proj{*this, "proj", config.embed_dim, config.embed_dim};
};

struct Qwen2VLVisionBlock : Module {
  Qwen2VLVisionBlock(Module& parent, std::string_view name, const Qwen2VLVisionConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, int64_t images) const {
    Forward here(*this);
    Tensor hidden, weights;
    {
      const Tensor branch = run_attention(attn, norm1(x), &weights, tables, images);
      hidden = add(x, branch);  // (N, C)
    }
    const Tensor branch = run_part(mlp, norm2(hidden));
    return add(hidden, branch);
  }

  const Qwen2VLVisionConfig& config;
  LayerNorm norm1{*this, "norm1", config.embed_dim};
  LayerNorm norm2{*this, "norm2", config.embed_dim};
  Qwen2VLVisionAttention attn{*this, "attn", config};
  Qwen2VLVisionMlp mlp{*this, "mlp", config};
};

struct Qwen2VLPatchEmbed : Module {
  Qwen2VLPatchEmbed(Module& parent, std::string_view name, const Qwen2VLVisionConfig& c) : Module(parent, name), proj(*this, c) {}
  struct Proj : Module {
    Proj(Module& parent, const Qwen2VLVisionConfig& c)
        : Module(parent, "proj"), weight(parameter("weight", {c.embed_dim, c.in_channels, c.temporal_patch, c.patch, c.patch})) {}
    Tensor weight;
  };
  Tensor operator()(const Tensor& pixels) const {
    Forward here(*this);
    const Tensor& w = proj.weight;
    const Tensor cubes = view(pixels, {-1, w.size(1), w.size(2), w.size(3), w.size(4)});
    Tensor hidden = view(patch_conv3d(to(cubes, w.dtype()), w, {}), {-1, w.size(0)});  // (N, C)
    require_input_grad(build(), hidden);
    return hidden;
  }
  Proj proj;
};

struct Qwen2VLMerger : Module {
  Qwen2VLMerger(Module& parent, std::string_view name, const Qwen2VLVisionConfig& c)
      : Module(parent, name), config(c), width(c.embed_dim * c.merge * c.merge) {}
  struct Mlp : Module {
    Mlp(Module& parent, int64_t width, int64_t out)
        : Module(parent, "mlp"), first(*this, "0", width, width), last(*this, "2", width, out) {}
    Linear first, last;
  };
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = view(ln_q(x), {-1, width});
    Forward there(mlp);
    hidden = mlp.first(hidden);
    hidden = gelu(hidden);
    return mlp.last(hidden);  // (tokens, hidden_size)
  }
  const Qwen2VLVisionConfig& config;
  int64_t width;
  LayerNorm ln_q{*this, "ln_q", config.embed_dim};
  Mlp mlp{*this, width, config.hidden_size};
};

struct Qwen2VLVisionModel : Module {
  Qwen2VLVisionModel(Module& parent, std::string_view name, const Config& c) : Module(parent, name), config(c) {
    for (int64_t i = 0; i < config.depth; ++i) blocks.add(config);
    merger = std::make_unique<Qwen2VLMerger>(*this, "merger", config);
  }
  struct Rotary : Module {
    Rotary(Module& parent, const Qwen2VLVisionConfig& c)
        : Module(parent, "rotary_pos_emb"), inv_freq(buffer("inv_freq", {(c.embed_dim / c.num_heads / 2 + 1) / 2})) {}
    Tensor inv_freq;
  };

  // `last_hidden_state` lives as long as the caller holds it.
  Tensor operator()(const Tensor& pixels, const Tensor& position_ids, int64_t images, Tensor* last_hidden_state) {
    Forward here(*this);
    Tensor hidden = patch_embed(pixels);                                                               // (N, C)
    const Tensor frequencies = flatten(mul(unsqueeze(position_ids, -1), rotary_pos_emb.inv_freq), 1);  // (N, D / 2)
    const Tensor emb = cat({frequencies, frequencies}, -1);                                            // (N, D)
    const CosSin tables{cos(emb), sin(emb)};
    for (Qwen2VLVisionBlock& block : blocks) {
      const auto run = [&block, tables, images](const Tensor& x) { return block(x, tables, images); };
      hidden = run_block(block, run, hidden);
    }
    *last_hidden_state = hidden;
    return (*merger)(hidden);
  }

  Qwen2VLVisionConfig config;
  Qwen2VLPatchEmbed patch_embed{*this, "patch_embed", config};
  Rotary rotary_pos_emb{*this, config};
  ModuleList<Qwen2VLVisionBlock> blocks{*this, "blocks"};
  std::unique_ptr<Qwen2VLMerger> merger;
};

struct Qwen2VLModel : Module {
  Qwen2VLModel(Module& parent, std::string_view name, const Config& vision, const DecoderConfig& text)
      : Module(parent, name), visual(*this, "visual", vision), language_model(*this, "language_model", text) {}

  // (B, T, C)
  Tensor operator()(const Tensors& in, int64_t images, int64_t tokens) {
    Forward here(*this);
    const Tensor &input_ids = in[0], &position_ids = in[1];
    Tensor inputs_embeds = language_model.embed_tokens(input_ids), image_embeds, image_mask, video_mask;
    if (images > 0) {
      Tensors features;  // one an image
      {
        Tensor last_hidden_state;
        const Tensor merged = visual(in[2], in[3], images, &last_hidden_state);
        features = split(merged, std::vector<int64_t>(static_cast<size_t>(images), tokens), 0);
      }
      image_embeds = cat(features, 0);
      image_embeds = to(image_embeds, inputs_embeds.dtype());
      features.clear();
      image_mask = unsqueeze(compare_scalar("eq", input_ids), -1);
      video_mask = unsqueeze(compare_scalar("eq", input_ids), -1);
      {
        const Tensor n_image_tokens = sum(image_mask);
        compare_scalar("eq", nondiff("mul", n_image_tokens, DType::int64));
        sum(video_mask);
      }
      inputs_embeds = masked_scatter(inputs_embeds, image_mask, image_embeds);
    }
    return language_model(inputs_embeds, position_ids, {});
  }

  Qwen2VLVisionModel visual;
  QwenVLTextModel language_model;
};

struct Qwen2VLForConditionalGeneration : Model {
  Qwen2VLForConditionalGeneration(Build& build, const Config& c)
      : Model(build),
        config(qwen_vl_text_config(c.find({"text_config"}) ? inner_config(c, "text_config") : c)),
        images(c.integer({"images"}, 1)),
        model(*this, "model", inner_config(c, "vision_config"), config),
        grid(c, model.visual.config) {
    config.tie_word_embeddings = c.flag({"tie_word_embeddings"}, false);
    lm_head = config.tie_word_embeddings ? std::make_unique<Linear>(*this, "lm_head", model.language_model.embed_tokens.weight, false)
                                         : std::make_unique<Linear>(*this, "lm_head", config.hidden_size, config.vocab_size, false);
    if (images < 0 || images > 1000)
      throw Error(fmt::format("[{}] images {}: a sample has 0 to 1000", c.source(), images), "e.g. --config images=1");
    if (model.visual.config.hidden_size != config.hidden_size)
      throw Error(fmt::format("[{}] vision_config's hidden_size {} is not the text's {}", c.source(), model.visual.config.hidden_size,
                              config.hidden_size),
                  "images become tokens: make them as wide");
  }

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    const Qwen2VLVisionConfig& v = model.visual.config;
    const int64_t needed = checked_mul(images, grid.tokens), all = checked_mul(samples, images);
    if (needed > length)
      throw Error(fmt::format("[qwen2_vl] {} images of {} tokens do not fit into seq {}", images, grid.tokens, length),
                  fmt::format("seq counts the tokens of images, too: {} or more", needed));
    Tensors inputs{empty(tape(), {samples, length}, DType::int64), empty(tape(), {3, samples, length}, DType::int64)};
    if (images == 0) return inputs;
    const int64_t patches = checked_mul(all, grid.patches), pixels = v.in_channels * v.temporal_patch * v.patch * v.patch;
    inputs.push_back(empty(tape(), {patches, pixels}, dtype));
    inputs.push_back(empty(tape(), {patches, 2}, DType::int64));  // positions of patches
    inputs.push_back(empty(tape(), {all + 1}, DType::int32));     // where each image begins
    inputs.push_back(empty(tape(), {all, 3}, DType::int64));      // image_grid_thw
    return inputs;
  }

  std::string sample(int64_t length) const override {
    return fmt::format("{} tokens, {} of {} image{}", length, images * grid.tokens, images, images == 1 ? "" : "s");
  }

  Output forward(const Batch& batch) override {
    const Tensor& input_ids = batch.own[0];
    const Tensor hidden = model(batch.own, checked_mul(images, input_ids.size(0)), grid.tokens);
    const Tensor logits = (*lm_head)(hidden);  // (B, T, V)
    return {causal_lm_loss(build(), logits, input_ids, true), {logits}};
  }

  DecoderConfig config;
  int64_t images;  // of a sample
  Qwen2VLModel model;
  ImageGrid grid;
  std::unique_ptr<Linear> lm_head;
};

std::unique_ptr<Model> make_qwen2_vl(Build& build, const Config& config) {
  return std::make_unique<Qwen2VLForConditionalGeneration>(build, config);
}

}  // namespace

const Family& qwen2_vl_family() {
  static const Family kFamily{
      .name = "qwen2_vl",
      .models = {{"qwen2_vl", {"Qwen2VLForConditionalGeneration"}, InputKind::own, 2048, make_qwen2_vl}},
      .presets =
          {{"qwen2-vl-2b",
            R"({"vocab_size":151936,"hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,"num_attention_heads":12,"num_key_value_heads":2,"tie_word_embeddings":true,"vision_config":{"hidden_size":1536}})",
            2048},
           {"qwen2-vl-7b",
            R"({"hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"vision_config":{"hidden_size":3584}})",
            2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
