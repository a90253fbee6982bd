// torchvision.models.googlenet: GoogLeNet.
#include "model/family.h"
#include "nn/inception.h"
#include "ops/pointwise.h"
#include "ops/pool.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Inception : Module {
  Inception(Module& parent, std::string_view name, int64_t in, int64_t ch1x1, int64_t ch3x3red, int64_t ch3x3, int64_t ch5x5red,
            int64_t ch5x5, int64_t pool_proj)
      : Module(parent, name), branch1(*this, "branch1", in, ch1x1, {.kernel = 1}) {
    branch2.add<BasicConv2d>(in, ch3x3red, Conv2dOptions{.kernel = 1});
    branch2.add<BasicConv2d>(ch3x3red, ch3x3, Conv2dOptions{.kernel = 3, .padding = 1});
    branch3.add<BasicConv2d>(in, ch5x5red, Conv2dOptions{.kernel = 1});
    branch3.add<BasicConv2d>(ch5x5red, ch5x5, Conv2dOptions{.kernel = 3, .padding = 1});
    branch4.add<MaxPool2d>(PoolOptions{.kernel = 3, .stride = 1, .padding = 1, .ceil_mode = true});
    branch4.add<BasicConv2d>(in, pool_proj, Conv2dOptions{.kernel = 1});
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor b1 = branch1(x);  // (N, ch1x1, H, W)
    const Tensor b2 = branch2(x);  // (N, ch3x3, H, W)
    const Tensor b3 = branch3(x);  // (N, ch5x5, H, W)
    const Tensor b4 = branch4(x);  // (N, pool_proj, H, W)
    return cat({b1, b2, b3, b4}, 1);
  }

  BasicConv2d branch1;
  Sequential branch2{*this, "branch2"};
  Sequential branch3{*this, "branch3"};
  Sequential branch4{*this, "branch4"};
};

struct InceptionAux : Module {
  InceptionAux(Module& parent, std::string_view name, int64_t in, int64_t num_classes, double p)
      : Module(parent, name),
        conv(*this, "conv", in, 128, {.kernel = 1}),
        fc2(*this, "fc2", 1024, num_classes),
        dropout(*this, "dropout", p) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor x = adaptive_avg_pool2d(input, 4, 4);  // (N, C, 4, 4)
    x = conv(x);                                  // (N, 128, 4, 4)
    x = flatten(x, 1);                            // (N, 2048)
    x = relu_(fc1(x));                            // (N, 1024)
    x = dropout(x);
    x = fc2(x);  // (N, classes)
    return x;
  }

  BasicConv2d conv;
  Linear fc1{*this, "fc1", 2048, 1024};
  Linear fc2;
  Dropout dropout;
};

struct GoogLeNet : AuxiliaryClassifier {
  GoogLeNet(Build& build, const Config& c)
      : AuxiliaryClassifier(build),
        args(c, false),
        aux1(head(c, "aux1", 512)),
        aux2(head(c, "aux2", 528)),
        dropout(*this, "dropout", probability(c, "dropout", 0.2)) {
    require_known_arguments(c, "googlenet", {"aux_logits", "transform_input", "dropout", "dropout_aux"});
  }

  std::unique_ptr<InceptionAux> head(const Config& c, const char* name, int64_t in) {
    if (!args.aux_logits) return nullptr;
    return std::make_unique<InceptionAux>(*this, name, in, args.num_classes, probability(c, "dropout_aux", 0.7));
  }

  Tensors operator()(const Tensor& pixels) override {
    const Tensor input = args.transform_input ? transform_input(pixels) : pixels;
    Tensor x = conv1(input);  // (N, 64, H / 2, W / 2)
    x = maxpool1(x);          // (N, 64, H / 4, W / 4)
    x = conv2(x);
    x = conv3(x);        // (N, 192, H / 4, W / 4)
    x = maxpool2(x);     // (N, 192, H / 8, W / 8)
    x = inception3a(x);  // (N, 256, H / 8, W / 8)
    x = inception3b(x);  // (N, 480, H / 8, W / 8)
    x = maxpool3(x);     // (N, 480, H / 16, W / 16)
    x = inception4a(x);  // (N, 512, H / 16, W / 16)
    Tensor first, second;
    if (aux1) first = (*aux1)(x);  // (N, classes)
    x = inception4b(x);
    x = inception4c(x);
    x = inception4d(x);             // (N, 528, H / 16, W / 16)
    if (aux2) second = (*aux2)(x);  // (N, classes)
    x = inception4e(x);             // (N, 832, H / 16, W / 16)
    x = maxpool4(x);                // (N, 832, H / 32, W / 32)
    x = inception5a(x);
    x = inception5b(x);  // (N, 1024, H / 32, W / 32)
    x = avgpool(x);      // (N, 1024, 1, 1)
    x = flatten(x, 1);   // (N, 1024)
    x = dropout(x);
    x = fc(x);  // (N, classes)
    return args.aux_logits ? Tensors{x, second, first} : Tensors{x};
  }

  static constexpr PoolOptions kPool3{.kernel = 3, .stride = 2, .ceil_mode = true};
  InceptionArguments args;
  BasicConv2d conv1{*this, "conv1", 3, 64, {.kernel = 7, .stride = 2, .padding = 3}};
  MaxPool2d maxpool1{*this, "maxpool1", kPool3};
  BasicConv2d conv2{*this, "conv2", 64, 64, {.kernel = 1}};
  BasicConv2d conv3{*this, "conv3", 64, 192, {.kernel = 3, .padding = 1}};
  MaxPool2d maxpool2{*this, "maxpool2", kPool3};
  Inception inception3a{*this, "inception3a", 192, 64, 96, 128, 16, 32, 32};
  Inception inception3b{*this, "inception3b", 256, 128, 128, 192, 32, 96, 64};
  MaxPool2d maxpool3{*this, "maxpool3", kPool3};
  Inception inception4a{*this, "inception4a", 480, 192, 96, 208, 16, 48, 64};
  Inception inception4b{*this, "inception4b", 512, 160, 112, 224, 24, 64, 64};
  Inception inception4c{*this, "inception4c", 512, 128, 128, 256, 24, 64, 64};
  Inception inception4d{*this, "inception4d", 512, 112, 144, 288, 32, 64, 64};
  Inception inception4e{*this, "inception4e", 528, 256, 160, 320, 32, 128, 128};
  MaxPool2d maxpool4{*this, "maxpool4", {.kernel = 2, .stride = 2, .ceil_mode = true}};
  Inception inception5a{*this, "inception5a", 832, 256, 160, 320, 32, 128, 128};
  Inception inception5b{*this, "inception5b", 832, 384, 192, 384, 48, 128, 128};
  std::unique_ptr<InceptionAux> aux1, aux2;
  AdaptiveAvgPool2d avgpool{*this, "avgpool", 1};
  Dropout dropout;
  Linear fc{*this, "fc", 1024, args.num_classes};
};

std::unique_ptr<Model> make_googlenet(Build& build, const Config& config, const std::string&) {
  return std::make_unique<GoogLeNet>(build, config);
}

}  // namespace

const Family& googlenet_family() {
  static const Family kFamily{
      .name = "googlenet",
      .library = "torchvision",
      .models = torchvision_models(make_googlenet, {{"googlenet"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
