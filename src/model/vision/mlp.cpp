// A plain network for vectors (tools/recorder/mlp.py): for each of linear_sizes a linear layer, [batch norm,] activation[,
// dropout]; a last linear layer[, softmax]; cross-entropy.
#include "job/config_list.h"
#include "model/family.h"
#include "nn/vision.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using BatchNorm1d = BatchNorm2d;  // the same op on (N, C)
using Function = Tensor (*)(const Tensor&);

struct NamedFunction {
  const char* name;
  Function run;
};
constexpr NamedFunction kActivations[]{{"relu", relu},
                                       {"leaky_relu", leaky_relu},
                                       {"elu", elu},
                                       {"selu", selu},
                                       {"gelu", gelu},
                                       {"silu", silu},
                                       {"mish", mish},
                                       {"tanh", tanh},
                                       {"sigmoid", sigmoid},
                                       {"softplus", softplus},
                                       {"hardswish", hardswish}};

Function activation_named(const Config& c) {
  const std::string name = c.text({"activation"}, "relu");
  std::vector<std::string> known;
  for (const NamedFunction& f : kActivations) {
    if (name == f.name) return f.run;
    known.emplace_back(f.name);
  }
  throw Error("[" + c.source() + "] activation '" + name + "' is not known", "known: " + join(known, ", "));
}

struct Pointwise : Module {
  Pointwise(Module& parent, std::string_view name, Function f) : Module(parent, name), run(f) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return run(x);
  }
  Function run;
};

struct Softmax : Module {
  using Module::Module;
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return softmax(x);
  }
};

struct PlainNetwork : Model {
  PlainNetwork(Build& build, const Config& c) : Model(build), input_size(c.size({"input_size"}, 784)) {
    require_known_arguments(c, "mlp",
                            {"input_size", "output_size", "linear_sizes", "activation", "batch_norm", "dropout", "final_softmax", "bias"});
    if (build.checkpointing.on()) throw Error("[mlp] has no gradient checkpointing", "switch checkpointing off");
    const Function act = activation_named(c);
    const bool bias = c.flag({"bias"}, true), batch_norm = c.flag({"batch_norm"}, false);
    const double dropout = probability(c, "dropout", 0.0);
    int64_t width = input_size;
    for (const int64_t size : size_list(c, "linear_sizes", {512, 256}, 0)) {
      layers.add<Linear>(width, size, bias);
      if (batch_norm) layers.add<BatchNorm1d>(size);
      layers.add<Pointwise>(act);
      if (dropout > 0) layers.add<Dropout>(dropout);
      width = size;
    }
    layers.add<Linear>(width, c.size({"output_size"}, 10), bias);
    if (c.flag({"final_softmax"}, false)) layers.add<Softmax>();
  }

  Output forward(const Batch& batch) override {
    if (batch.numbers.size(1) != input_size)
      throw Error(
          "[mlp] vectors of " + std::to_string(batch.numbers.size(1)) + " numbers do not fit input_size " + std::to_string(input_size),
          "leave seq out");
    const Tensor out = layers(batch.numbers);  // (B, output_size)
    return {cross_entropy(out, batch.labels), {}};
  }

  int64_t input_size;
  Sequential layers{*this, "layers"};
};

std::unique_ptr<Model> make_mlp(Build& build, const Config& config) { return std::make_unique<PlainNetwork>(build, config); }

}  // namespace

const Family& mlp_family() {
  static const Family kFamily{
      .name = "mlp",
      .library = "torch.nn.Sequential",
      .models = {{"mlp", {}, InputKind::vector, 784, make_mlp}},
  };
  return kFamily;
}

}  // namespace plimsoll
