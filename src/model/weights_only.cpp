#include "model/weights_only.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "formats/weights.h"
#include "model/family.h"
#include "nn/layers.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "util/text.h"

namespace plimsoll {

namespace {

bool is_number(std::string_view s) { return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos; }

// "layers.10" comes after "layers.9".
struct ByNumber {
  bool operator()(const std::string& a, const std::string& b) const {
    if (is_number(a) && is_number(b) && a.size() != b.size()) return a.size() < b.size();
    return a < b;
  }
};

// Modules by their names, and the tensors that are directly in each.
struct Tree {
  std::map<std::string, Tree, ByNumber> children;
  std::map<std::string, const WeightTensor*> own;
};

Tree tree_of(const std::vector<WeightTensor>& tensors) {
  Tree root;
  for (const WeightTensor& t : tensors) {
    std::vector<std::string> parts = split_at(t.name, '.');
    const std::string leaf = parts.back();
    if (parts.size() > 1) parts.pop_back();  // a tensor of the root has a module of its own
    Tree* at = &root;
    for (const std::string& part : parts) at = &at->children[part];
    at->own[leaf] = &t;
  }
  return root;
}

// What is no integer can be trained, whatever type a file packs it in.
bool is_parameter(const WeightTensor& t) {
  const std::string& d = t.dtype;
  if (d == "BOOL" || d.starts_with("U") || (d.starts_with("I") && !d.starts_with("IQ"))) return false;
  for (const char* buffer : {"running_mean", "running_var", "inv_freq"})
    if (t.name.ends_with(buffer)) return false;
  return true;
}

DType buffer_type(const WeightTensor& t) {
  const int64_t size = t.elements > 0 ? t.bytes / t.elements : 1;
  if (t.dtype.starts_with("F")) return DType::float32;
  return size >= 8 ? DType::int64 : size >= 4 ? DType::int32 : DType::uint8;
}

bool is_embedding(std::string_view module) {
  for (const char* part : {"embed", "wte", "wpe", "token_embd", "tok_"})
    if (module.find(part) != std::string_view::npos) return true;
  return module == "shared";
}

Dims dims_of(const WeightTensor& t) {
  Dims d;
  for (const int64_t n : t.shape) d.push_back(n);
  return d;
}

const WeightTensor* matrix_of(const Tree& tree) {
  const auto weight = tree.own.find("weight");
  if (weight == tree.own.end() || weight->second->shape.size() != 2 || !is_parameter(*weight->second)) return nullptr;
  return weight->second;
}

// A weight of two dimensions, and perhaps a bias.
bool is_linear(std::string_view name, const Tree& tree) {
  const WeightTensor* weight = matrix_of(tree);
  if (!weight || !tree.children.empty() || is_embedding(name)) return false;
  if (tree.own.size() == 1) return true;
  const auto bias = tree.own.find("bias");
  return tree.own.size() == 2 && bias != tree.own.end() && bias->second->shape == std::vector<int64_t>{weight->shape[0]};
}

// Stands for whatever is between two layers: keeps its input and makes (rows, width).
Tensor stand_in(const Tensor& x, const Tensor& parameter, int64_t rows, int64_t width, DType dtype) {
  Tape& tape = x.tape();
  Op op(tape, "stand_in", {&x, &parameter});
  Saved input = op.save(x);
  Tensor out = empty(tape, {rows, width}, dtype);
  return op.finish(std::move(out),
                   [&tape, input = std::move(input), sizes = x.sizes(), type = x.dtype(), parameter](Tensors&, Needs needs) {
                     Op backward(tape, "stand_in_backward", {});
                     Tensors grads(2);
                     if (needs[0]) grads[0] = empty(tape, sizes, type);
                     if (needs[1]) grads[1] = empty(tape, parameter.sizes(), parameter.dtype());
                     return grads;
                   });
}

Tensor stand_in(const Tensor& x, int64_t rows, int64_t width) { return stand_in(x, {}, rows, width, x.dtype()); }

// What the parts of one model share.
struct Wiring {
  const WeightTensor* embedding = nullptr;  // of tokens
  const WeightTensor* head = nullptr;       // to the vocabulary
  int64_t experts_per_token = 0;            // 0: not said
  int64_t tokens = 0;                       // of the forward that runs
  bool in_block = false;                    // while modules are made
  Embedding* embed_module = nullptr;
  Linear* head_module = nullptr;

  // Of `experts`, each gets its share of the tokens.
  int64_t used(int64_t experts) const {
    return std::min(experts, experts_per_token ? experts_per_token : experts > 16 ? int64_t{8} : int64_t{2});
  }
  int64_t rows_for_each(int64_t experts) const {
    return experts <= 1 ? tokens : std::max<int64_t>(1, checked_mul(tokens, used(experts)) / experts);
  }
};

using Step = std::function<Tensor(const Tensor&)>;

struct Sequence {
  std::vector<std::unique_ptr<Module>> modules;
  std::vector<Step> steps;
  void add(Module& parent, const Tree& tree, Wiring& wiring, int64_t experts);
};

class WeightsPart : public Module {
 public:
  WeightsPart(Module& parent, const std::string& name, const Tree& tree, Wiring& wiring, int64_t experts)
      : Module(parent, name), wiring_(wiring), is_block_(is_number(name) && !wiring.in_block) {
    if (is_block_) wiring.in_block = true;
    for (const auto& [leaf, t] : tree.own) {
      if (is_parameter(*t))
        parameters_.push_back(parameter(leaf, dims_of(*t)));
      else
        buffer(leaf, dims_of(*t), buffer_type(*t));
    }
    inner_.add(*this, tree, wiring, name == "experts" ? static_cast<int64_t>(tree.children.size()) : experts);
    if (is_block_) wiring.in_block = false;
  }

  bool is_block() const { return is_block_; }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor h = x;
    for (const Tensor& p : parameters_) h = with(h, p);
    for (const Step& step : inner_.steps) h = step(h);
    return is_block_ ? stand_in(h, x.size(0), x.size(1)) : h;
  }

 private:
  // (experts, a, b) are matrices of as many experts, more dimensions a convolution; fewer scale or shift what is there.
  Tensor with(const Tensor& h, const Tensor& p) const {
    if (p.dim() < 3) return stand_in(h, p, h.size(0), h.size(1), h.dtype());
    const bool experts = p.dim() == 3;
    const int64_t rows = experts ? checked_mul(wiring_.tokens, wiring_.used(p.size(0))) : wiring_.tokens;
    const Tensor in = stand_in(h, rows, p.size(1));
    return stand_in(in, p, rows, experts ? p.size(2) : p.size(0), in.dtype());
  }

  const Wiring& wiring_;
  bool is_block_;
  std::vector<Tensor> parameters_;
  Sequence inner_;
};

void Sequence::add(Module& parent, const Tree& tree, Wiring& wiring, int64_t experts) {
  for (const auto& [name, child] : tree.children) {
    const WeightTensor* matrix = matrix_of(child);
    if (matrix && matrix == wiring.embedding) {
      auto module = std::make_unique<Embedding>(parent, name, matrix->shape[0], matrix->shape[1]);
      wiring.embed_module = module.get();
      modules.push_back(std::move(module));
    } else if (is_linear(name, child)) {
      auto module = std::make_unique<Linear>(parent, name, matrix->shape[1], matrix->shape[0], child.own.contains("bias"));
      if (matrix == wiring.head)
        wiring.head_module = module.get();
      else
        steps.push_back([&layer = *module, &wiring, experts](const Tensor& x) {
          const Tensor in = stand_in(x, wiring.rows_for_each(experts), layer.in);
          return layer(in);
        });
      modules.push_back(std::move(module));
    } else {
      auto module = std::make_unique<WeightsPart>(parent, name, child, wiring, experts);
      steps.push_back([&part = *module](const Tensor& x) {
        if (!part.is_block()) return part(x);
        return run_block(
            part, [&part](const Tensor& h) { return part(h); }, x);
      });
      modules.push_back(std::move(module));
    }
  }
}

constexpr int64_t kMostTensors = 1'000'000;

// A plain decoder with gated layers, when nothing but sizes is known. Classes that do not say how wide the inner layer is have two matrices
// of four times the width there: three of 8/3 are as large.
std::vector<WeightTensor> tensors_of_sizes(const Config& c) {
  const int64_t width = c.size({"hidden_size", "d_model", "n_embd", "hidden_dim", "embed_dim", "dim"}, 768);
  const int64_t layers = c.size({"num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers"}, 12);
  const int64_t heads = c.size({"num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads"}, 12);
  const int64_t head_dim = c.size({"head_dim"}, std::max<int64_t>(1, width / heads));
  const int64_t kv_heads = c.size({"num_key_value_heads"}, heads);
  const int64_t inner =
      c.size({"intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "encoder_ffn_dim"}, checked_mul(8, width) / 3);
  const int64_t vocabulary = c.size({"vocab_size"}, 32000);
  const int64_t experts = c.optional_integer({"num_experts", "num_local_experts", "n_routed_experts"}).value_or(0);
  const int64_t expert_inner = c.size({"moe_intermediate_size"}, inner);
  if (experts < 0 || checked_mul(layers, checked_add(10, checked_mul(3, experts))) > kMostTensors)
    throw Error(fmt::format("[{}] {} layers of {} experts are more than a million tensors", c.source(), layers, experts),
                "check both numbers");
  std::vector<WeightTensor> out;
  auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t elements = 1;
    for (const int64_t n : shape) elements = checked_mul(elements, n);
    out.push_back({name, "BF16", std::move(shape), elements, checked_mul(2, elements)});
  };
  auto add_gated = [&](const std::string& at, int64_t size) {
    add(at + ".gate_proj.weight", {size, width});
    add(at + ".up_proj.weight", {size, width});
    add(at + ".down_proj.weight", {width, size});
  };
  add("model.embed_tokens.weight", {vocabulary, width});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string at = fmt::format("model.layers.{}", i);
    add(at + ".self_attn.q_proj.weight", {checked_mul(heads, head_dim), width});
    add(at + ".self_attn.k_proj.weight", {checked_mul(kv_heads, head_dim), width});
    add(at + ".self_attn.v_proj.weight", {checked_mul(kv_heads, head_dim), width});
    add(at + ".self_attn.o_proj.weight", {width, checked_mul(heads, head_dim)});
    for (int64_t e = 0; e < experts; ++e) add_gated(fmt::format("{}.mlp.experts.{}", at, e), expert_inner);
    if (experts == 0) add_gated(at + ".mlp", inner);
    add(at + ".input_layernorm.weight", {width});
    add(at + ".post_attention_layernorm.weight", {width});
  }
  add("model.norm.weight", {width});
  if (!c.flag({"tie_word_embeddings"}, true)) add("lm_head.weight", {vocabulary, width});
  return out;
}

std::string module_name(const WeightTensor& t) {
  const std::vector<std::string> parts = split_at(t.name, '.');
  return parts.size() > 1 && parts.back() == "weight" ? parts[parts.size() - 2] : "";
}

struct WeightsOnly : Model {
  WeightsOnly(Build& build, const Config& c)
      : Model(build), tensors(c.find({"weights"}) ? read_weights(c.text({"weights"}, "")) : tensors_of_sizes(c)) {
    wiring.experts_per_token = c.optional_integer({"num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k"}).value_or(0);
    if (wiring.experts_per_token < 0)
      throw Error(fmt::format("[{}] num_experts_per_tok {} is below 0", c.source(), wiring.experts_per_token), "e.g. 2");
    for (const WeightTensor& t : tensors) {
      if (std::any_of(t.shape.begin(), t.shape.end(), [](int64_t n) { return n <= 0; }))
        throw Error(fmt::format("[weights] '{}' has no elements", t.name), "is it a whole model?");
      if (t.shape.size() == 2 && is_parameter(t) && is_embedding(module_name(t)) &&
          (!wiring.embedding || t.shape[0] > wiring.embedding->shape[0]))
        wiring.embedding = &t;
    }
    for (const WeightTensor& t : tensors)
      if (wiring.embedding && &t != wiring.embedding && t.shape.size() == 2 && t.shape[0] == wiring.embedding->shape[0] &&
          is_parameter(t) && !module_name(t).empty() && !is_embedding(module_name(t)))
        wiring.head = &t;
    layers.add(*this, tree_of(tensors), wiring, 1);
    if (!wiring.head_module && wiring.embed_module && c.flag({"tie_word_embeddings"}, true)) {
      auto head = std::make_unique<Linear>(*this, "lm_head", wiring.embed_module->weight, false);
      wiring.head_module = head.get();
      layers.modules.push_back(std::move(head));
    }
    if (parameters().empty()) throw Error("[weights] there is nothing to train among them", "name the weights of a model");
  }

  Output forward(const Batch& batch) override {
    wiring.tokens = batch.input_ids.numel();
    Tensor h = wiring.embed_module ? flatten((*wiring.embed_module)(batch.input_ids), 0, 1)
                                   : stand_in(batch.input_ids, {}, wiring.tokens, 1, build().dtype);  // (tokens, C)
    for (const Step& step : layers.steps) h = step(h);
    if (!wiring.head_module) return {mean(h, {0, 1}, false), {h}};
    h = stand_in(h, wiring.tokens, wiring.head_module->in);
    const Tensor logits = (*wiring.head_module)(h);  // (tokens, vocabulary)
    if (!batch.labels) return {{}, {logits}};
    return {cross_entropy(to(logits, DType::float32), flatten(batch.labels, 0, 1)), {logits}};
  }

  const std::vector<WeightTensor> tensors;
  Wiring wiring;
  Sequence layers;
};

std::unique_ptr<Model> make_weights_only(Build& build, const Config& config) { return std::make_unique<WeightsOnly>(build, config); }

}  // namespace

const Family& weights_only_family() {
  static const Family kFamily{
      .name = "weights-only",
      .library = "the headers of weights",
      .models = {{"weights-only", {}, InputKind::lm, 2048, make_weights_only}},
  };
  return kFamily;
}

}  // namespace plimsoll
