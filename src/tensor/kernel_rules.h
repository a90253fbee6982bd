// What kernels, autograd and the language around them do differently where a step runs: on a CUDA device with today's PyTorch, or on the
// CPU with libtorch 1.13 and one thread, as `plimsoll measure` trains. An op asks for a rule by its name, never for the device.
#pragma once

namespace plimsoll {

// The values given here are CUDA's.
struct KernelRules {
  // Operands.
  bool casts_operands = false;            // an operand of another type is cast into a temporary first (element-wise ops, sum)
  bool cat_copies_casts = false;          // cat copies each tensor that it casts
  bool copies_strided_operands = false;   // layer and group norms and max read a strided tensor from a contiguous copy
  bool mm_copies_strided_2d = false;      // addmm_impl_cpu_: a matrix that BLAS cannot read is copied, the right one first
  bool blocks_transposed_copies = false;  // a copy of a transposed matrix goes through a square block
  bool numbers_are_tensors = false;       // a number among the operands is a tensor of 8 bytes, and a cast of that

  // Element-wise ops, losses and reductions.
  bool fused_dropout = true;                  // native_dropout keeps a mask; else noise in x's type, and a product with it
  bool log_sigmoid_saves_buffer = false;      // of exponentials
  bool mean_saves_input = false;              // unless all dimensions go
  bool mse_loss_makes_elements = false;       // the mean lies in memory that was made for all elements
  bool upsample_makes_tables = false;         // an index and a weight for every row and column of the result
  bool foreach_norm_in_chunks = true;         // gradients' norms: chunks are reduced into a scratch tensor first
  bool matmul_folds_trained_operands = true;  // a batch becomes rows when the matrix wants a gradient; else by its strides alone

  // Norms.
  bool layer_norm_sums_by_thread = false;       // the gradients of weight and bias are summed for each thread
  bool group_norm_keeps_channels_last = false;  // with a buffer of two numbers for every channel
  bool group_norm_sums_by_channel = false;      // backward: two sums for every channel of every sample
  bool batch_norm_statistics_first = false;     // made before the result, and in its type
  bool batch_norm_channel_buffers = false;      // two numbers a channel beside the statistics, and after the result
  bool batch_norm_makes_products = false;       // backward: the products before they are summed

  // Convolutions.
  bool conv_makes_columns = false;        // slow_conv2d: every patch of the input is copied before it is multiplied
  bool conv_matches_layouts = false;      // weights and gradients are copied into the layout of the images
  bool conv_bias_gradient_first = false;  // before the weight's

  // Autograd, and the language.
  bool adds_gradients_in_place = true;    // into a gradient that nobody else holds
  bool holds_added_gradients = false;     // what was added to another gradient lives until the node is done
  bool checkpoints_frozen_inputs = true;  // a block none of whose inputs wants a gradient is checkpointed all the same
  bool cycles_await_collection = true;    // what Python's cycles of references hold lives until the collector runs
};

inline constexpr KernelRules kCudaRules{};
inline constexpr KernelRules kCpuRules{
    .casts_operands = true,
    .cat_copies_casts = true,
    .copies_strided_operands = true,
    .mm_copies_strided_2d = true,
    .blocks_transposed_copies = true,
    .numbers_are_tensors = true,
    .fused_dropout = false,
    .log_sigmoid_saves_buffer = true,
    .mean_saves_input = true,
    .mse_loss_makes_elements = true,
    .upsample_makes_tables = true,
    .foreach_norm_in_chunks = false,
    .matmul_folds_trained_operands = false,
    .layer_norm_sums_by_thread = true,
    .group_norm_keeps_channels_last = true,
    .group_norm_sums_by_channel = true,
    .batch_norm_statistics_first = true,
    .batch_norm_channel_buffers = true,
    .batch_norm_makes_products = true,
    .conv_makes_columns = true,
    .conv_matches_layouts = true,
    .conv_bias_gradient_first = true,
    .adds_gradients_in_place = false,
    .holds_added_gradients = true,
    .checkpoints_frozen_inputs = false,
    .cycles_await_collection = false,
};

}  // namespace plimsoll
