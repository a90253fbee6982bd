// transformers.models.mamba: MambaForCausalLM. On CUDA with mamba-ssm and causal-conv1d a layer is one fused function; without them it is
// a loop over the tokens in Python (use_mamba_kernels, as other models of transformers call the choice).
#include "model/family.h"
#include "nn/mamba_mixer.h"
#include "nn/mamba_model.h"

namespace plimsoll {

namespace {

struct MambaConfig : MambaSettings {
  MambaConfig(const Config& c, bool has_kernels) : MambaSettings(c, 50280, 768, 32, true) {
    mixer.hidden_size = hidden_size;
    mixer.state_size = c.size({"state_size"}, 16);
    mixer.intermediate_size = checked_mul(hidden_size, c.size({"expand"}, 2));
    mixer.conv_kernel = c.size({"conv_kernel"}, 4);
    mixer.time_step_rank = time_step_rank(c, "time_step_rank", hidden_size);
    mixer.use_bias = c.flag({"use_bias"}, false);
    mixer.use_conv_bias = c.flag({"use_conv_bias"}, true);
    mixer.use_mamba_kernels = c.flag({"use_mamba_kernels"}, has_kernels);
    mixer.hidden_act = c.text({"hidden_act"}, "silu");
    if (!mixer.use_mamba_kernels && c.flag({"use_mambapy"}, false))
      throw Error("[" + c.source() + "] use_mambapy true: its scan is not modelled", "remove use_mambapy");
    check_mamba_kernels(c, mixer, "conv_kernel", "state_size");
  }
  MambaMixerSettings mixer;
};

struct MambaLayerMixer : MambaMixer {
  MambaLayerMixer(Module& parent, std::string_view name, const MambaConfig& c) : MambaMixer(parent, name, c.mixer) {}
  Tensor operator()(const Tensor& x) const {
    const Batch* batch = build().batch;
    return MambaMixer::operator()(x, batch ? batch->attention_mask : Tensor());
  }
};

std::unique_ptr<Model> make_mamba(Build& build, const Config& config) {
  const MambaConfig settings(config, !build.tape.dialect.recorder);  // the recorder has no such kernels
  return std::make_unique<MambaForCausalLM<MambaConfig, MambaLayerMixer>>(build, settings);
}

}  // namespace

const Family& mamba_family() {
  static const Family kFamily{
      .name = "mamba",
      .models = {{"mamba", {"MambaForCausalLM"}, InputKind::lm, 2048, make_mamba}},
      .presets = {{"mamba-130m", R"({"hidden_size":768,"num_hidden_layers":24})", 2048},
                  {"mamba-370m", R"({"hidden_size":1024,"num_hidden_layers":48})", 2048},
                  {"mamba-790m", R"({"hidden_size":1536,"num_hidden_layers":48})", 2048},
                  {"mamba-1.4b", R"({"hidden_size":2048,"num_hidden_layers":48})", 2048},
                  {"mamba-2.8b", R"({"hidden_size":2560,"num_hidden_layers":64})", 2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
