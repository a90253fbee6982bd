// Layers of Transformer Engine and of megatron.core that are one autograd function: what they keep and what they make. Activations are
// (tokens, batch, width), and a rank has a part of the tokens where sequence parallelism is on.
#pragma once

#include <map>
#include <string>

#include "tensor/node.h"

namespace plimsoll {

// What layers share for as long as the process lives.
class SharedBuffers {
 public:
  explicit SharedBuffers(Tape& tape) : tape_(tape) {}
  // Stands for the gradient of a weight whose real one was added to the main gradient; one for every shape.
  Tensor placeholder(const Dims& sizes, DType dtype);
  // megatron.core's GlobalMemoryBuffer: one by name, as large as it ever was.
  Tensor global(const std::string& name, const Dims& sizes, DType dtype);
  // Transformer Engine's own for cuBLAS.
  void use_workspace();

 private:
  Tape& tape_;
  std::map<std::string, Tensor> placeholders_, globals_;
  Ref<Storage> workspace_;
};

// How a matrix product is spread.
struct GemmShare {
  int64_t ranks = 1;             // that share the weight
  bool sequence = false;         // tokens are sharded outside of it
  bool fused_gradients = false;  // weight gradients go straight into the main gradient
  bool torch = false;            // PyTorch's product, not Transformer Engine's
  SharedBuffers* buffers = nullptr;
};

struct NormWeights {
  Tensor weight, bias;  // bias undefined: an RMS norm
};

Tensor te_norm(const Tensor& x, const NormWeights& norm);
// LayerNormLinear, column parallel: tokens are gathered, the output is sharded.
Tensor norm_linear(const Tensor& x, const NormWeights& norm, const Tensor& weight, const Tensor& bias, const GemmShare& share);
// Column parallel: tokens are gathered. With `held`, in megatron.core's buffer, as its output layer does.
Tensor column_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const GemmShare& share, bool held);
// Row parallel: the output is reduced, and scattered over the tokens.
Tensor row_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const GemmShare& share);
// Experts that each have rows of x: (rows, in) by (experts, out, in), one product for each.
Tensor grouped_linear(const Tensor& x, const Tensors& weights, const GemmShare& share);

Tensor fused_rotary(const Tensor& x);
Tensors split_along_last(const Tensor& x, const std::vector<int64_t>& sizes);  // views whose gradients are joined
// cuDNN's attention on (tokens, batch, heads, width); more heads of q than of k and v are allowed.
Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v);
// The same on the projection itself, (tokens, batch, heads, 3 * width).
Tensor fused_attention_packed(const Tensor& qkv, int64_t width);
// Context parallelism: (tokens, batch, heads, width) of this rank's tokens to all tokens of this rank's heads, and back.
Tensor exchange_heads(const Tensor& x, int64_t ranks, bool back);

Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual, double p);  // one kernel
Tensor bias_gelu(const Tensor& x, const Tensor& bias);
Tensor fused_swiglu(const Tensor& x, const Tensor& bias);
Tensor weighted_swiglu(const Tensor& x, const Tensor& weights);  // one weight a row

// One loss a token; logits are sharded over the vocabulary.
Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& target);
Tensor fused_cross_entropy(const Tensor& logits, const Tensor& target);  // Transformer Engine's: the gradient takes the place of the logits

}  // namespace plimsoll
