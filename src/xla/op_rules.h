// How the ops of the tape are told apart when they become a program: what kind of code XLA makes of each, and what its
// derivative reads. One line an op.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

enum class DerivativeRule : uint8_t {
  linear,       // the gradient alone
  view,         // the gradient in another shape
  product,      // the other factor
  quotient,     // both
  of_input,     // what went in
  of_output,    // what came out
  dropout,      // the mask
  part,         // slice, select, index: the gradient padded with zeros
  parts,        // split, unbind: the same
  concat,       // parts of the gradient
  broadcast,    // the gradient summed
  sum,          // the gradient broadcast
  normalise,    // the input and its statistics
  softmax,      // the result
  log_loss,     // nothing but labels
  loss,         // the input
  dot,          // both factors
  bias_dot,     // addmm: a bias, then both factors
  convolution,  // input, weight, and a bias
  gather,       // rows of a table
  attention,    // a flash kernel: queries, keys, values, result, row sums
  resize,       // a kernel of its own, both ways
};

// Null when the op is not known. In-place forms are their plain forms.
const DerivativeRule* find_rule(std::string_view op);

}  // namespace plimsoll
