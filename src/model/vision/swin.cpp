// torchvision.models.swin_transformer: SwinTransformer, swin_t to swin_b and swin_v2_t to swin_v2_b.
#include <nlohmann/json.hpp>
#include "model/family.h"
#include "model/vision/shifted_window_attention.h"
#include "nn/mlp.h"
#include "nn/stochastic_depth.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kPatchSize = 4;

struct SwinVariant {
  const char* name;
  bool v2;
  int64_t embed_dim, depths[4], num_heads[4], window;
  double stochastic_depth_prob;
};

constexpr SwinVariant kSwinVariants[] = {
    {"swin_t", false, 96, {2, 2, 6, 2}, {3, 6, 12, 24}, 7, 0.2},    {"swin_s", false, 96, {2, 2, 18, 2}, {3, 6, 12, 24}, 7, 0.3},
    {"swin_b", false, 128, {2, 2, 18, 2}, {4, 8, 16, 32}, 7, 0.5},  {"swin_v2_t", true, 96, {2, 2, 6, 2}, {3, 6, 12, 24}, 8, 0.2},
    {"swin_v2_s", true, 96, {2, 2, 18, 2}, {3, 6, 12, 24}, 8, 0.3}, {"swin_v2_b", true, 128, {2, 2, 18, 2}, {4, 8, 16, 32}, 8, 0.5},
};

const SwinVariant& swin_variant(const std::string& name) {
  for (const SwinVariant& v : kSwinVariants)
    if (name == v.name) return v;
  throw Error("[swin] variant '" + name + "' is not known", "known: swin_t, swin_s, swin_b, swin_v2_t, swin_v2_s, swin_v2_b");
}

// One number for both sides, or a list of two.
WindowSize window_size(const Config& c, int64_t fallback) {
  const nlohmann::json* value = c.find({"window_size"});
  if (!value || !value->is_array()) {
    const int64_t side = c.size({"window_size"}, fallback);
    return {side, side};
  }
  const nlohmann::json& list = *value;
  if (list.size() != 2 || !list[0].is_number_integer() || !list[1].is_number_integer() || list[0] <= 0 || list[1] <= 0)
    throw Error("[swin] window_size " + list.dump() + " is not a pair of sizes", "write it as [7, 7]");
  return {list[0].get<int64_t>(), list[1].get<int64_t>()};
}

struct SwinConfig {
  SwinConfig(const Config& c, const SwinVariant& v)
      : variant(v),
        window(window_size(c, v.window)),
        mlp_ratio(c.number({"mlp_ratio"}, 4.0)),
        dropout(c.number({"dropout"}, 0.0)),
        attention_dropout(c.number({"attention_dropout"}, 0.0)),
        stochastic_depth_prob(c.number({"stochastic_depth_prob"}, v.stochastic_depth_prob)),
        num_classes(c.size({"num_classes"}, 1000)) {
    require_known_arguments(c, v.name, {"window_size", "mlp_ratio", "dropout", "attention_dropout", "stochastic_depth_prob"});
  }
  const SwinVariant& variant;
  WindowSize window;
  double mlp_ratio, dropout, attention_dropout, stochastic_depth_prob;
  int64_t num_classes;
};

struct PatchEmbedding : Module {
  PatchEmbedding(Module& parent, std::string_view name, int64_t embed_dim)
      : Module(parent, name), conv(*this, "0", 3, embed_dim, {.kernel = kPatchSize, .stride = kPatchSize}), norm(*this, "2", embed_dim) {}
  Tensor operator()(const Tensor& x) const {
    Tensor input = conv(x);                // (B, C, H, W)
    input = permute(input, {0, 2, 3, 1});  // (B, H, W, C)
    return norm(input);
  }
  Conv2d conv;
  LayerNorm norm;
};

// The four pixels of every 2 x 2 patch side by side.
Tensor patch_merging_pad(const Tensor& input) {
  const int64_t h = input.size(1), w = input.size(2);
  const Tensor x = constant_pad_nd(input, {0, 0, 0, w % 2, 0, h % 2});  // (B, H, W, C), H and W even
  auto pixels = [&x](int64_t row, int64_t column) {
    return slice(slice(x, 1, row, x.size(1), 2), 2, column, x.size(2), 2);  // (B, H / 2, W / 2, C)
  };
  const Tensor x0 = pixels(0, 0), x1 = pixels(1, 0), x2 = pixels(0, 1), x3 = pixels(1, 1);
  return cat({x0, x1, x2, x3}, -1);  // (B, H / 2, W / 2, 4C)
}

struct PatchMerging : Module {
  PatchMerging(Module& parent, std::string_view name, int64_t dim, bool v2)
      : Module(parent, name), v2(v2), reduction(*this, "reduction", 4 * dim, 2 * dim, false), norm(*this, "norm", v2 ? 2 * dim : 4 * dim) {}
  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor x = patch_merging_pad(input);  // (B, H / 2, W / 2, 4C)
    x = v2 ? reduction(x) : norm(x);
    x = v2 ? norm(x) : reduction(x);  // (B, H / 2, W / 2, 2C)
    return x;
  }
  bool v2;
  Linear reduction;
  LayerNorm norm;
};

struct SwinTransformerBlock : Module {
  SwinTransformerBlock(Module& parent, std::string_view name, const SwinConfig& c, const WindowAttentionConfig& attention, double drop)
      : Module(parent, name),
        v2(c.variant.v2),
        drop(drop),
        norm1(*this, "norm1", attention.dim),
        attn(*this, "attn", attention),
        norm2(*this, "norm2", attention.dim),
        mlp(*this, "mlp", attention.dim, static_cast<int64_t>(static_cast<double>(attention.dim) * c.mlp_ratio), c.dropout) {}

  // The first version normalises what goes into a branch, the second what comes out of it.
  template <class Branch>
  Tensor residual(const Tensor& x, const LayerNorm& norm, const Branch& branch) const {
    Tensor y;  // (B, H, W, C)
    {
      const Tensor inner = v2 ? branch(x) : norm(x);
      y = v2 ? norm(inner) : branch(inner);
    }
    y = stochastic_depth(y, drop);
    return add(x, y);
  }

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor x = residual(input, norm1, attn);  // (B, H, W, C)
    x = residual(x, norm2, mlp);
    return x;
  }

  bool v2;
  double drop;
  LayerNorm norm1;
  ShiftedWindowAttention attn;
  LayerNorm norm2;
  MLP mlp;
};

struct SwinStage : ModuleList<SwinTransformerBlock> {
  using ModuleList<SwinTransformerBlock>::ModuleList;
  Tensor operator()(const Tensor& x) {
    Tensor input = x;
    for (SwinTransformerBlock& block : *this) input = run_part(block, input);
    return input;
  }
};

struct SwinTransformer : ImageClassifier {
  SwinTransformer(Build& build, const SwinConfig& c)
      : ImageClassifier(build), config(c), norm(add_features(c), "norm", 8 * c.variant.embed_dim) {}

  Module& add_features(const SwinConfig& c) {
    const SwinVariant& v = c.variant;
    int64_t total = 0, id = 0;
    for (int64_t n : v.depths) total += n;
    features.add<PatchEmbedding>(v.embed_dim);
    for (int i = 0; i < 4; ++i) {
      SwinStage& stage = features.add<SwinStage>();
      WindowAttentionConfig a{v.embed_dim << i, v.num_heads[i], c.window, {0, 0}, c.attention_dropout, c.dropout, v.v2};
      for (int64_t k = 0; k < v.depths[i]; ++k) {
        a.shift = k % 2 == 0 ? WindowSize{0, 0} : WindowSize{c.window.h / 2, c.window.w / 2};
        stage.add(c, a, c.stochastic_depth_prob * static_cast<double>(id) / static_cast<double>(total - 1));
        ++id;
      }
      if (i < 3) features.add<PatchMerging>(a.dim, v.v2);
    }
    return *this;
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = features(pixels);  // (B, H, W, C)
    x = norm(x);
    x = permute(x, {0, 3, 1, 2});  // (B, C, H, W)
    x = avgpool(x);                // (B, C, 1, 1)
    x = flatten(x, 1);             // (B, C)
    x = head(x);                   // (B, classes)
    return x;
  }

  const SwinConfig& config;
  Sequential features{*this, "features"};
  LayerNorm norm;
  AdaptiveAvgPool2d avgpool{*this, "avgpool", 1};
  Linear head{*this, "head", 8 * config.variant.embed_dim, config.num_classes};
};

std::unique_ptr<Model> make_swin(Build& build, const Config& config, const std::string& name) {
  return std::make_unique<SwinTransformer>(build, SwinConfig(config, swin_variant(name)));
}

}  // namespace

const Family& swin_family() {
  static const Family kFamily{
      .name = "swin",
      .library = "torchvision",
      .models = torchvision_models(make_swin, {{"swin_t"}, {"swin_s"}, {"swin_b"}, {"swin_v2_t"}, {"swin_v2_s"}, {"swin_v2_b"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
