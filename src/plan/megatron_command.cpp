// A job as arguments of Megatron-LM's pretrain_gpt.py (megatron/training/arguments.py).
#include <fmt/format.h>

#include <algorithm>

#include "model/decoder/megatron.h"
#include "plan/layout_launch.h"

namespace plimsoll {

namespace {

void add_experts(const MegatronConfig& c, std::vector<std::string>& out) {
  if (c.experts == 0) return;
  out.push_back(fmt::format("--num-experts {} --moe-router-topk {} --moe-ffn-hidden-size {}", c.experts, c.top_k, c.expert_ffn));
  if (c.shared_ffn > 0) out.push_back(fmt::format("--moe-shared-expert-intermediate-size {}", c.shared_ffn));
  if (!std::all_of(c.is_moe.begin(), c.is_moe.end(), [](bool moe) { return moe; })) {
    std::string layers;
    for (const bool moe : c.is_moe) layers += (layers.empty() ? "" : ",") + std::string(moe ? "1" : "0");
    out.push_back(fmt::format("--moe-layer-freq '[{}]'", layers));
  }
  out.push_back(
      fmt::format("{}--moe-token-dispatcher-type {}", c.grouped ? "--moe-grouped-gemm " : "", c.gathers_all ? "allgather" : "alltoall"));
}

void add_attention(const MegatronConfig& c, std::vector<std::string>& out) {
  if (c.latent()) {
    out.push_back(fmt::format("--multi-latent-attention --kv-lora-rank {} --qk-head-dim {} --qk-pos-emb-head-dim {} --v-head-dim {}",
                              c.kv_rank, c.channels - c.rope_width, c.rope_width, c.value_width));
    if (c.q_rank > 0) out.push_back(fmt::format("--q-lora-rank {}", c.q_rank));
    return;
  }
  if (c.groups != c.heads) out.push_back(fmt::format("--group-query-attention --num-query-groups {}", c.groups));
  out.push_back(fmt::format("--kv-channels {}", c.channels));
  if (c.qk_norm) out.emplace_back("--qk-layernorm");
}

}  // namespace

std::vector<std::string> megatron_model_arguments(const Job& job) {
  const MegatronConfig c(job.family, job.config, *job.program.megatron);
  std::vector<std::string> out;
  out.push_back(
      fmt::format("--num-layers {} --hidden-size {} --ffn-hidden-size {} --num-attention-heads {}", c.layers, c.hidden, c.ffn, c.heads));
  add_attention(c, out);
  add_experts(c, out);
  out.push_back(fmt::format("--seq-length {} --max-position-embeddings {} --vocab-size {}", job.seq, std::max(c.positions, job.seq),
                            c.vocab - 1));  // NullTokenizer adds one for the end
  out.push_back(fmt::format("--position-embedding-type {} --normalization {}", c.rope ? "rope" : "learned_absolute",
                            c.rms ? "RMSNorm" : "LayerNorm"));
  std::string switches = c.gated ? "--swiglu " : "";
  if (!c.bias) switches += "--disable-bias-linear ";
  if (c.qkv_bias) switches += "--add-qkv-bias ";
  if (!c.tied) switches += "--untie-embeddings-and-output-weights ";
  out.push_back(switches + fmt::format("--hidden-dropout {:g} --attention-dropout {:g}", c.hidden_dropout, c.attention_dropout));
  return out;
}

}  // namespace plimsoll
