// torchvision.models.inception: Inception v3.
#include "nn/inception.h"
#include "model/family.h"
#include "ops/pool.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr Pool2dArgs kSame3{.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1};
constexpr Pool2dArgs kHalf3{.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2};

Conv2dOptions k(Pair kernel, Pair padding = 0, int64_t stride = 1) { return {.kernel = kernel, .stride = stride, .padding = padding}; }
constexpr Pair k1x7{1, 7}, k7x1{7, 1}, k1x3{1, 3}, k3x1{3, 1};
constexpr Pair p0x3{0, 3}, p3x0{3, 0}, p0x1{0, 1}, p1x0{1, 0};

struct InceptionA : Module {
  InceptionA(Module& parent, std::string_view name, int64_t in, int64_t pool_features)
      : Module(parent, name),
        branch1x1(*this, "branch1x1", in, 64, k(1)),
        branch5x5_1(*this, "branch5x5_1", in, 48, k(1)),
        branch3x3dbl_1(*this, "branch3x3dbl_1", in, 64, k(1)),
        branch_pool(*this, "branch_pool", in, pool_features, k(1)) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor one = branch1x1(x);  // (N, 64, H, W)
    Tensor five = branch5x5_1(x);
    five = branch5x5_2(five);  // (N, 64, H, W)
    Tensor three = branch3x3dbl_1(x);
    three = branch3x3dbl_2(three);
    three = branch3x3dbl_3(three);        // (N, 96, H, W)
    Tensor pool = avg_pool2d(x, kSame3);  // (N, in, H, W)
    pool = branch_pool(pool);             // (N, pool_features, H, W)
    return cat({one, five, three, pool}, 1);
  }

  BasicConv2d branch1x1, branch5x5_1;
  BasicConv2d branch5x5_2{*this, "branch5x5_2", 48, 64, k(5, 2)};
  BasicConv2d branch3x3dbl_1;
  BasicConv2d branch3x3dbl_2{*this, "branch3x3dbl_2", 64, 96, k(3, 1)};
  BasicConv2d branch3x3dbl_3{*this, "branch3x3dbl_3", 96, 96, k(3, 1)};
  BasicConv2d branch_pool;
};

struct InceptionB : Module {
  InceptionB(Module& parent, std::string_view name, int64_t in)
      : Module(parent, name), branch3x3(*this, "branch3x3", in, 384, k(3, 0, 2)), branch3x3dbl_1(*this, "branch3x3dbl_1", in, 64, k(1)) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor three = branch3x3(x);  // (N, 384, H / 2, W / 2)
    Tensor twice = branch3x3dbl_1(x);
    twice = branch3x3dbl_2(twice);
    twice = branch3x3dbl_3(twice);              // (N, 96, H / 2, W / 2)
    const Tensor pool = max_pool2d(x, kHalf3);  // (N, in, H / 2, W / 2)
    return cat({three, twice, pool}, 1);
  }

  BasicConv2d branch3x3, branch3x3dbl_1;
  BasicConv2d branch3x3dbl_2{*this, "branch3x3dbl_2", 64, 96, k(3, 1)};
  BasicConv2d branch3x3dbl_3{*this, "branch3x3dbl_3", 96, 96, k(3, 0, 2)};
};

struct InceptionC : Module {
  InceptionC(Module& parent, std::string_view name, int64_t in, int64_t c7)
      : Module(parent, name),
        branch1x1(*this, "branch1x1", in, 192, k(1)),
        branch7x7_1(*this, "branch7x7_1", in, c7, k(1)),
        branch7x7_2(*this, "branch7x7_2", c7, c7, k(k1x7, p0x3)),
        branch7x7_3(*this, "branch7x7_3", c7, 192, k(k7x1, p3x0)),
        branch7x7dbl_1(*this, "branch7x7dbl_1", in, c7, k(1)),
        branch7x7dbl_2(*this, "branch7x7dbl_2", c7, c7, k(k7x1, p3x0)),
        branch7x7dbl_3(*this, "branch7x7dbl_3", c7, c7, k(k1x7, p0x3)),
        branch7x7dbl_4(*this, "branch7x7dbl_4", c7, c7, k(k7x1, p3x0)),
        branch7x7dbl_5(*this, "branch7x7dbl_5", c7, 192, k(k1x7, p0x3)),
        branch_pool(*this, "branch_pool", in, 192, k(1)) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor one = branch1x1(x);  // (N, 192, H, W)
    Tensor seven = branch7x7_1(x);
    seven = branch7x7_2(seven);
    seven = branch7x7_3(seven);  // (N, 192, H, W)
    Tensor twice = branch7x7dbl_1(x);
    twice = branch7x7dbl_2(twice);
    twice = branch7x7dbl_3(twice);
    twice = branch7x7dbl_4(twice);
    twice = branch7x7dbl_5(twice);        // (N, 192, H, W)
    Tensor pool = avg_pool2d(x, kSame3);  // (N, in, H, W)
    pool = branch_pool(pool);             // (N, 192, H, W)
    return cat({one, seven, twice, pool}, 1);
  }

  BasicConv2d branch1x1, branch7x7_1, branch7x7_2, branch7x7_3, branch7x7dbl_1, branch7x7dbl_2, branch7x7dbl_3, branch7x7dbl_4,
      branch7x7dbl_5, branch_pool;
};

struct InceptionD : Module {
  InceptionD(Module& parent, std::string_view name, int64_t in)
      : Module(parent, name), branch3x3_1(*this, "branch3x3_1", in, 192, k(1)), branch7x7x3_1(*this, "branch7x7x3_1", in, 192, k(1)) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor three = branch3x3_1(x);
    three = branch3x3_2(three);  // (N, 320, H / 2, W / 2)
    Tensor seven = branch7x7x3_1(x);
    seven = branch7x7x3_2(seven);
    seven = branch7x7x3_3(seven);
    seven = branch7x7x3_4(seven);               // (N, 192, H / 2, W / 2)
    const Tensor pool = max_pool2d(x, kHalf3);  // (N, in, H / 2, W / 2)
    return cat({three, seven, pool}, 1);
  }

  BasicConv2d branch3x3_1;
  BasicConv2d branch3x3_2{*this, "branch3x3_2", 192, 320, k(3, 0, 2)};
  BasicConv2d branch7x7x3_1;
  BasicConv2d branch7x7x3_2{*this, "branch7x7x3_2", 192, 192, k(k1x7, p0x3)};
  BasicConv2d branch7x7x3_3{*this, "branch7x7x3_3", 192, 192, k(k7x1, p3x0)};
  BasicConv2d branch7x7x3_4{*this, "branch7x7x3_4", 192, 192, k(3, 0, 2)};
};

struct InceptionE : Module {
  InceptionE(Module& parent, std::string_view name, int64_t in)
      : Module(parent, name),
        branch1x1(*this, "branch1x1", in, 320, k(1)),
        branch3x3_1(*this, "branch3x3_1", in, 384, k(1)),
        branch3x3_2a(*this, "branch3x3_2a", 384, 384, k(k1x3, p0x1)),
        branch3x3_2b(*this, "branch3x3_2b", 384, 384, k(k3x1, p1x0)),
        branch3x3dbl_1(*this, "branch3x3dbl_1", in, 448, k(1)),
        branch3x3dbl_2(*this, "branch3x3dbl_2", 448, 384, k(3, 1)),
        branch3x3dbl_3a(*this, "branch3x3dbl_3a", 384, 384, k(k1x3, p0x1)),
        branch3x3dbl_3b(*this, "branch3x3dbl_3b", 384, 384, k(k3x1, p1x0)),
        branch_pool(*this, "branch_pool", in, 192, k(1)) {}

  // Both halves of a 3x3, side by side.
  static Tensor fork(const Tensor& x, const BasicConv2d& a, const BasicConv2d& b) {
    const Tensor left = a(x), right = b(x);  // (N, 384, H, W)
    return cat({left, right}, 1);            // (N, 768, H, W)
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor one = branch1x1(x);  // (N, 320, H, W)
    Tensor three = branch3x3_1(x);
    three = fork(three, branch3x3_2a, branch3x3_2b);  // (N, 768, H, W)
    Tensor twice = branch3x3dbl_1(x);
    twice = branch3x3dbl_2(twice);
    twice = fork(twice, branch3x3dbl_3a, branch3x3dbl_3b);  // (N, 768, H, W)
    Tensor pool = avg_pool2d(x, kSame3);                    // (N, in, H, W)
    pool = branch_pool(pool);                               // (N, 192, H, W)
    return cat({one, three, twice, pool}, 1);
  }

  BasicConv2d branch1x1, branch3x3_1, branch3x3_2a, branch3x3_2b, branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3a, branch3x3dbl_3b,
      branch_pool;
};

struct InceptionV3Aux : Module {
  InceptionV3Aux(Module& parent, std::string_view name, int64_t in, int64_t num_classes)
      : Module(parent, name), conv0(*this, "conv0", in, 128, k(1)), fc(*this, "fc", 768, num_classes) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor x = avg_pool2d(input, {.kernel_h = 5, .kernel_w = 5, .stride_h = 3, .stride_w = 3});  // (N, in, H / 3, W / 3)
    x = conv0(x);                                                                                // (N, 128, H / 3, W / 3)
    x = conv1(x);                                                                                // (N, 768, H / 3 - 4, W / 3 - 4)
    x = adaptive_avg_pool2d(x, 1, 1);                                                            // (N, 768, 1, 1)
    x = flatten(x, 1);                                                                           // (N, 768)
    x = fc(x);                                                                                   // (N, classes)
    return x;
  }

  BasicConv2d conv0;
  BasicConv2d conv1{*this, "conv1", 128, 768, k(5)};
  Linear fc;
};

struct Inception3 : AuxiliaryClassifier {
  Inception3(Build& build, const Config& c)
      : AuxiliaryClassifier(build),
        args(c, true),
        AuxLogits(args.aux_logits ? std::make_unique<InceptionV3Aux>(*this, "AuxLogits", 768, args.num_classes) : nullptr),
        dropout(*this, "dropout", probability(c, "dropout", 0.5)) {
    require_known_arguments(c, "inception_v3", {"aux_logits", "transform_input", "dropout"});
  }

  Tensors operator()(const Tensor& pixels) override {
    const Tensor input = args.transform_input ? transform_input(pixels) : pixels;
    Tensor x = Conv2d_1a_3x3(input);  // (N, 32, 149, 149) of 299
    x = Conv2d_2a_3x3(x);             // (N, 32, 147, 147)
    x = Conv2d_2b_3x3(x);             // (N, 64, 147, 147)
    x = maxpool1(x);                  // (N, 64, 73, 73)
    x = Conv2d_3b_1x1(x);             // (N, 80, 73, 73)
    x = Conv2d_4a_3x3(x);             // (N, 192, 71, 71)
    x = maxpool2(x);                  // (N, 192, 35, 35)
    x = Mixed_5b(x);                  // (N, 256, 35, 35)
    x = Mixed_5c(x);                  // (N, 288, 35, 35)
    x = Mixed_5d(x);                  // (N, 288, 35, 35)
    x = Mixed_6a(x);                  // (N, 768, 17, 17)
    x = Mixed_6b(x);
    x = Mixed_6c(x);
    x = Mixed_6d(x);
    x = Mixed_6e(x);  // (N, 768, 17, 17)
    Tensor aux;
    if (AuxLogits) aux = (*AuxLogits)(x);  // (N, classes)
    x = Mixed_7a(x);                       // (N, 1280, 8, 8)
    x = Mixed_7b(x);                       // (N, 2048, 8, 8)
    x = Mixed_7c(x);                       // (N, 2048, 8, 8)
    x = avgpool(x);                        // (N, 2048, 1, 1)
    x = dropout(x);
    x = flatten(x, 1);  // (N, 2048)
    x = fc(x);          // (N, classes)
    return args.aux_logits ? Tensors{x, aux} : Tensors{x};
  }

  InceptionArguments args;
  BasicConv2d Conv2d_1a_3x3{*this, "Conv2d_1a_3x3", 3, 32, k(3, 0, 2)};
  BasicConv2d Conv2d_2a_3x3{*this, "Conv2d_2a_3x3", 32, 32, k(3)};
  BasicConv2d Conv2d_2b_3x3{*this, "Conv2d_2b_3x3", 32, 64, k(3, 1)};
  MaxPool2d maxpool1{*this, "maxpool1", {.kernel = 3, .stride = 2}};
  BasicConv2d Conv2d_3b_1x1{*this, "Conv2d_3b_1x1", 64, 80, k(1)};
  BasicConv2d Conv2d_4a_3x3{*this, "Conv2d_4a_3x3", 80, 192, k(3)};
  MaxPool2d maxpool2{*this, "maxpool2", {.kernel = 3, .stride = 2}};
  InceptionA Mixed_5b{*this, "Mixed_5b", 192, 32};
  InceptionA Mixed_5c{*this, "Mixed_5c", 256, 64};
  InceptionA Mixed_5d{*this, "Mixed_5d", 288, 64};
  InceptionB Mixed_6a{*this, "Mixed_6a", 288};
  InceptionC Mixed_6b{*this, "Mixed_6b", 768, 128};
  InceptionC Mixed_6c{*this, "Mixed_6c", 768, 160};
  InceptionC Mixed_6d{*this, "Mixed_6d", 768, 160};
  InceptionC Mixed_6e{*this, "Mixed_6e", 768, 192};
  std::unique_ptr<InceptionV3Aux> AuxLogits;
  InceptionD Mixed_7a{*this, "Mixed_7a", 768};
  InceptionE Mixed_7b{*this, "Mixed_7b", 1280};
  InceptionE Mixed_7c{*this, "Mixed_7c", 2048};
  AdaptiveAvgPool2d avgpool{*this, "avgpool", 1};
  Dropout dropout;
  Linear fc{*this, "fc", 2048, args.num_classes};
};

std::unique_ptr<Model> make_inception(Build& build, const Config& config, const std::string&) {
  return std::make_unique<Inception3>(build, config);
}

}  // namespace

const Family& inception_family() {
  static const Family kFamily{
      .name = "inception",
      .library = "torchvision",
      .models = torchvision_models(make_inception, {{"inception_v3", 299}}),
  };
  return kFamily;
}

}  // namespace plimsoll
