#include "xla/op_rules.h"

namespace plimsoll {

namespace {

struct Row {
  std::string_view op;
  DerivativeRule rule;
};

using enum DerivativeRule;

constexpr Row kRows[] = {
    {"add", linear},
    {"sub", linear},
    {"rsub", linear},
    {"neg", linear},
    {"_to_copy", linear},
    {"where", linear},
    {"masked_fill", linear},
    {"roll", linear},
    {"alias", view},
    {"detach", view},
    {"clone", linear},
    {"cumsum", linear},
    {"view", view},
    {"_unsafe_view", view},
    {"transpose", view},
    {"permute", view},
    {"unsqueeze", view},
    {"squeeze", view},
    {"mul", product},
    {"_weight_norm_interface", product},
    {"div", quotient},
    {"pow", of_input},
    {"log", of_input},
    {"silu", of_input},
    {"gelu", of_input},
    {"GeLUFunction", of_input},
    {"clamp", of_input},
    {"clamp_min", of_input},
    {"minimum", of_input},
    {"var", of_input},
    {"softplus", of_input},
    {"hardtanh", of_input},
    {"hardswish", of_input},
    {"hardsigmoid", of_input},
    {"rsqrt", of_output},
    {"reciprocal", of_output},
    {"sqrt", of_output},
    {"exp", of_output},
    {"tanh", of_output},
    {"sigmoid", of_output},
    {"relu", of_output},
    {"native_dropout", dropout},
    {"slice", part},
    {"select", part},
    {"index", part},
    {"gather", part},
    {"topk", part},
    {"max", part},
    {"constant_pad_nd", part},
    {"split", parts},
    {"unbind", parts},
    {"cat", concat},
    {"stack", concat},
    {"copy", concat},
    {"index_put", concat},
    {"scatter", concat},
    {"expand", broadcast},
    {"repeat", broadcast},
    {"sum", sum},
    {"mean", sum},
    {"native_layer_norm", normalise},
    {"native_group_norm", normalise},
    {"_softmax", softmax},
    {"_safe_softmax", softmax},
    {"_log_softmax", softmax},
    {"nll_loss_forward", log_loss},
    {"nll_loss2d_forward", log_loss},
    {"mse_loss", loss},
    {"_ctc_loss", loss},
    {"binary_cross_entropy_with_logits", loss},
    {"mm", dot},
    {"_grouped_mm", dot},
    {"bmm", dot},
    {"addmm", bias_dot},
    {"baddbmm", bias_dot},
    {"convolution", convolution},
    {"embedding", gather},
    {"_scaled_dot_product_flash_attention", attention},
    {"upsample_bicubic2d", resize},
    {"upsample_linear1d", resize},
    {"upsample_bilinear2d", resize},
    {"upsample_nearest2d", resize},
};

}  // namespace

const DerivativeRule* find_rule(std::string_view op) {
  if (op.size() > 1 && op.back() == '_') op.remove_suffix(1);
  for (const Row& row : kRows)
    if (row.op == op) return &row.rule;
  return nullptr;
}

}  // namespace plimsoll
