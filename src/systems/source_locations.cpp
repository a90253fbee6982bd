#include "systems/source_locations.h"

#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "util/text.h"

namespace plimsoll {

namespace {

// anirudhp3010/STDiffproject at adbb67d: the training script, the motion model, and the vendored copy of diffusers.
constexpr SourceLocation kStdiff[]{
    {"", "", "stdiff/models/stdiff_diffusers.py:22-49", "one call of the model"},
    {"", "input", "stdiff/train_stdiff.py:265-302", "the batch, its noise, timesteps and noisy images"},
    {"", "cat", "stdiff/models/stdiff_diffusers.py:44-45", "noisy frames joined with the frames before them"},
    {"", "clone", "stdiff/models/stdiff_diffusers.py:47", "motion features in the order of the frames"},
    {"", "_to_copy", "stdiff/train_stdiff.py:304", "accelerate's cast of the prediction to fp32"},
    {"", "sub", "stdiff/train_stdiff.py:307", "the L1 loss of every pixel"},
    {"", "abs", "stdiff/train_stdiff.py:307", "the L1 loss of every pixel"},
    {"", "mean", "stdiff/train_stdiff.py:328", "the loss"},
    {"tde_model", "", "stdiff/models/diff_unet.py:51-106", "motion features of past and future frames"},
    {"tde_model", "sub", "stdiff/models/diff_unet.py:58", "differences of observed frames"},
    {"tde_model", "zeros", "stdiff/models/diff_unet.py:64", "the GRU's first state"},
    {"tde_model", "randn", "stdiff/models/diff_unet.py:89-92", "noise of the equation's path"},
    {"tde_model", "stack", "stdiff/models/diff_unet.py:89-92", "states of the equation at every frame; in backward those of its adjoint"},
    {"tde_model.motion_encoder", "", "stdiff/models/diff_unet.py:222-236", "the encoder of frame differences"},
    {"tde_model.conv_gru_cell", "", "stdiff/models/diff_unet.py:194-206", "one step of the GRU over observed frames"},
    {"conv_gru_cell.GateConv", "", "stdiff/models/diff_unet.py:200", "both gates at once"},
    {"conv_gru_cell.NewStateConv", "", "stdiff/models/diff_unet.py:203", "the proposed new state"},
    {"tde_model.diff_unet.diff_unet_f", "", "stdiff/models/diff_unet.py:140-148", "the drift at one step of the integration"},
    {"tde_model.diff_unet.diff_unet_g", "", "stdiff/models/diff_unet.py:150-159", "the diffusion at one step of the integration"},
    {"diffusion_unet", "", "stdiff/models/stdiff_diffusers.py:47", "the denoiser of all predicted frames"},
    {"diffusion_unet.conv_in", "", "diffusers/models/unet_2d_motion_cond.py:287", "the first convolution; its result is the first skip"},
    {"diffusion_unet.time_embedding", "", "diffusers/models/unet_2d_motion_cond.py:267-273", "the embedding of timesteps"},
    {"diffusion_unet.down_blocks.*", "", "diffusers/models/unet_2d_motion_cond.py:291-298",
     "a level on the way down; its results are skips"},
    {"diffusion_unet.mid_block", "", "diffusers/models/unet_2d_motion_cond.py:301", "the lowest level"},
    {"diffusion_unet.up_blocks.*", "", "diffusers/models/unet_2d_motion_cond.py:305-312", "a level on the way up"},
    {"diffusion_unet.up_blocks.*", "cat", "diffusers/models/unet_2d_blocks.py:1734,1937", "what came from below joined with a skip"},
    {"diffusion_unet.conv_norm_out", "", "diffusers/models/unet_2d_motion_cond.py:315", "the last norm"},
    {"diffusion_unet.conv_out", "", "diffusers/models/unet_2d_motion_cond.py:317", "the predicted noise"},
    {"downsamplers.0.conv", "", "diffusers/models/resnet.py:191", "a convolution that halves the resolution"},
    {"upsamplers.0", "", "diffusers/models/resnet.py:111-146", "doubling of the resolution; bf16 goes through fp32 and back"},
    {"resnets.*", "", "diffusers/models/resnet.py:537-587", "a residual block"},
    {"resnets.*", "silu", "diffusers/models/resnet.py:545,577", "an activation, in fp32 after its norm"},
    {"resnets.*", "add", "diffusers/models/resnet.py:566,585", "the timestep's shift; the residual sum"},
    {"resnets.*", "div", "diffusers/models/resnet.py:585", "a division by one: a copy of the result"},
    {"resnets.*.norm1", "", "diffusers/models/resnet.py:543", "a group norm, which autocast runs in fp32"},
    {"resnets.*.conv1", "", "diffusers/models/resnet.py:558", "the first convolution"},
    {"resnets.*.time_emb_proj", "", "diffusers/models/resnet.py:563", "the timestep's shift"},
    {"resnets.*.norm2", "", "diffusers/models/resnet.py:571", "a group norm, which autocast runs in fp32"},
    {"resnets.*.conv2", "", "diffusers/models/resnet.py:580", "the second convolution"},
    {"resnets.*.conv_shortcut", "", "diffusers/models/resnet.py:583", "the input in the width of the output"},
    {"motion_cond_layer", "", "diffusers/models/resnet.py:617-631", "conditioning on motion"},
    {"motion_cond_layer", "native_batch_norm", "diffusers/models/resnet.py:620", "an instance norm"},
    {"motion_cond_layer", "upsample_nearest2d", "diffusers/models/resnet.py:623",
     "motion features in the size of the image, 256 channels of fp32"},
    {"motion_cond_layer.mlp_shared", "", "diffusers/models/resnet.py:624", "what scale and shift have in common"},
    {"motion_cond_layer.mlp_gamma", "", "diffusers/models/resnet.py:625", "the scale of every pixel"},
    {"motion_cond_layer.mlp_beta", "", "diffusers/models/resnet.py:626", "the shift of every pixel"},
    {"motion_cond_layer", "mul", "diffusers/models/resnet.py:629", "the scaled image"},
    {"motion_cond_layer", "add", "diffusers/models/resnet.py:629", "scale plus one; the shifted image"},
    {"attentions.*", "", "diffusers/models/attention.py:121-174", "self-attention over all pixels of a level"},
    {"attentions.*.group_norm", "", "diffusers/models/attention.py:126", "a group norm, which autocast runs in fp32"},
    {"attentions.*.query", "", "diffusers/models/attention.py:131", "queries; their input is copied into rows"},
    {"attentions.*.key", "", "diffusers/models/attention.py:132", "keys; their input is copied into rows"},
    {"attentions.*.value", "", "diffusers/models/attention.py:133", "values; their input is copied into rows"},
    {"attentions.*", "clone", "diffusers/models/attention.py:137-139,165", "heads moved into the batch and back"},
    {"attentions.*", "_scaled_dot_product_efficient_attention", "diffusers/models/attention.py:143-145", "xformers' attention"},
    {"attentions.*", "empty", "diffusers/models/attention.py:149-155", "an unused start for the scores"},
    {"attentions.*", "baddbmm", "diffusers/models/attention.py:148-160", "all scores, pixels by pixels"},
    {"attentions.*", "_softmax", "diffusers/models/attention.py:161", "all scores again, in fp32"},
    {"attentions.*", "_to_copy", "diffusers/models/attention.py:161", "all scores again, in another type"},
    {"attentions.*", "bmm", "diffusers/models/attention.py:162", "the weighted values"},
    {"attentions.*.proj_attn", "", "diffusers/models/attention.py:168", "the output projection"},
};

// infrabrew/mamba-recursive-model at 04bc129.
constexpr SourceLocation kMambaTrainer[]{
    {"", "", "models/mamba_model.py:197-235", "one call of the model"},
    {"embedding", "", "models/mamba_model.py:211", "the tokens' embeddings"},
    {"", "add", "models/mamba_model.py:214", "embeddings with their positions"},
    {"blocks.*", "", "models/mamba_model.py:123-151", "a block"},
    {"blocks.*.norm", "", "models/mamba_model.py:132", "the block's norm"},
    {"blocks.*.in_proj", "", "models/mamba_model.py:135", "both paths at once"},
    {"blocks.*", "silu", "models/mamba_model.py:139", "the gate"},
    {"blocks.*", "mul", "models/mamba_model.py:145", "the gated path"},
    {"blocks.*.out_proj", "", "models/mamba_model.py:148", "the output projection"},
    {"blocks.*.dropout", "", "models/mamba_model.py:149", "dropout and its mask"},
    {"blocks.*", "add", "models/mamba_model.py:151", "the residual sum"},
    {"ssm", "", "models/mamba_model.py:60-97", "the scan, token by token: states that autograd keeps for each"},
    {"ssm.x_proj", "", "models/mamba_model.py:41", "what selects: step sizes, inputs and outputs of the state"},
    {"ssm.dt_proj", "", "models/mamba_model.py:43", "step sizes"},
    {"ssm", "softplus", "models/mamba_model.py:48", "step sizes, which autocast makes fp32"},
    {"ssm", "zeros", "models/mamba_model.py:69-72", "the results, and the first state"},
    {"norm_f", "", "models/mamba_model.py:221", "the last norm"},
    {"lm_head", "", "models/mamba_model.py:224", "the logits"},
    {"", "_log_softmax", "models/mamba_model.py:229-233", "the loss"},
    {"", "nll_loss_forward", "models/mamba_model.py:229-233", "the loss"},
};

// alfredcs/Gated-Sparse-Attention at 2021660.
constexpr SourceLocation kGsa[]{
    {"", "", "gsa/models/gsa_llama.py:281-342", "one call of the model"},
    {"model.embed_tokens", "", "gsa/models/gsa_llama.py:193", "the tokens' embeddings"},
    {"model.layers.*", "", "gsa/models/gsa_llama.py:93-112", "a layer"},
    {"input_layernorm", "", "gsa/models/gsa_llama.py:30,96", "a norm in fp32"},
    {"post_attention_layernorm", "", "gsa/models/gsa_llama.py:30,109", "a norm in fp32"},
    {"mlp", "", "gsa/models/gsa_llama.py:46", "the feed-forward layer"},
    {"self_attn", "", "gsa/attention/gated_sparse_attention.py:139-232", "gated sparse attention"},
    {"self_attn.q_proj", "", "gsa/attention/gated_sparse_attention.py:175", "queries"},
    {"self_attn.k_proj", "", "gsa/attention/gated_sparse_attention.py:176", "keys"},
    {"self_attn.v_proj", "", "gsa/attention/gated_sparse_attention.py:177", "values"},
    {"self_attn.value_gate", "", "gsa/attention/gated_sparse_attention.py:181", "gated values"},
    {"self_attn.rotary_emb", "", "gsa/attention/gated_sparse_attention.py:184", "rotary tables in fp32"},
    {"self_attn.indexer", "", "gsa/attention/gated_sparse_attention.py:197-201", "the scores that choose keys: tokens by tokens a head"},
    {"self_attn.topk_selector", "", "gsa/attention/gated_sparse_attention.py:215-217", "the chosen keys of every query"},
    {"self_attn", "gather", "gsa/attention/gated_sparse_attention.py:321", "keys or values copied for every query that chose them"},
    {"self_attn", "bmm", "gsa/attention/gated_sparse_attention.py:275,288", "scores, and weighted values"},
    {"self_attn", "masked_fill", "gsa/attention/gated_sparse_attention.py:280,284", "scores, and weights, without what was not chosen"},
    {"self_attn", "_softmax", "gsa/attention/gated_sparse_attention.py:283", "attention weights"},
    {"self_attn.output_gate", "", "gsa/attention/gated_sparse_attention.py:226", "the gated result"},
    {"self_attn.o_proj", "", "gsa/attention/gated_sparse_attention.py:230", "the output projection"},
    {"model.norm", "", "gsa/models/gsa_llama.py:243", "the last norm"},
    {"lm_head", "", "gsa/models/gsa_llama.py:320", "the logits"},
    {"", "clone", "gsa/models/gsa_llama.py:326-327", "logits and labels, shifted: a copy of the logits"},
    {"", "_log_softmax", "gsa/models/gsa_llama.py:330-334", "the loss"},
    {"", "nll_loss_forward", "gsa/models/gsa_llama.py:330-334", "the loss"},
};

std::span<const SourceLocation> table_of(std::string_view family) {
  if (family == "stdiff") return kStdiff;
  if (family == "mamba-trainer") return kMambaTrainer;
  if (family == "gsa") return kGsa;
  return {};
}

// Where the last occurrence of `part` in `path` ends, as a number of names; 0 for an empty part, -1 for none.
int end_of(const std::vector<std::string>& part, const std::vector<std::string>& path) {
  if (part.empty()) return 0;
  for (size_t end = path.size(); end >= part.size(); --end) {
    bool same = true;
    for (size_t i = 0; i < part.size(); ++i) same &= part[i] == "*" || part[i] == path[end - part.size() + i];
    if (same) return static_cast<int>(end);
  }
  return -1;
}

std::vector<std::string> names_within(std::string_view dotted) {
  return dotted.empty() ? std::vector<std::string>{} : split_at(dotted, '.');
}

}  // namespace

const SourceLocation* source_of(std::string_view family, std::string_view scope_path, std::string_view op) {
  const std::vector<std::string> path = names_within(scope_path);
  const SourceLocation* best = nullptr;
  std::tuple<int, bool, size_t> best_fit{-1, false, 0};
  for (const SourceLocation& entry : table_of(family)) {
    const bool names_op = *entry.op != '\0';
    if (names_op && op != entry.op) continue;
    const std::vector<std::string> part = names_within(entry.part);
    // An op of the model itself is no op of its modules.
    if (part.empty() && names_op && !path.empty()) continue;
    const int end = end_of(part, path);
    const std::tuple<int, bool, size_t> fit{end, names_op, part.size()};
    if (end < 0 || fit <= best_fit) continue;
    best = &entry;
    best_fit = fit;
  }
  return best;
}

}  // namespace plimsoll
