#include "model/registry.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/autoencoders.h"
#include "model/decoder/megatron.h"
#include "model/denoisers.h"
#include "model/encoders.h"
#include "model/families.h"
#include "model/more_denoisers.h"
#include "model/openmmlab.h"
#include "model/other_decoders.h"
#include "model/text_encoders.h"
#include "model/weights_only.h"

namespace plimsoll {

namespace {

using TorchvisionFamily = std::unique_ptr<Model> (*)(Build&, const Config&, const std::string& name);

// `side`: the image side its published weights were evaluated at.
ModelEntry torchvision(const char* name, TorchvisionFamily make, int64_t side = 224) {
  return {name, {}, InputKind::image, side, [=](Build& build, const Config& config) { return make(build, config, name); }};
}

// Pixels have labels of their own, which the model makes.
ModelEntry segmentation(const char* name) {
  ModelEntry entry = torchvision(name, make_segmentation, 520);
  entry.inputs = InputKind::own;
  return entry;
}

// A class of transformers that is another one by a name of its own, but for its defaults and for what it takes no notice of.
ModelEntry copy_of(ModelEntry entry, const char* defaults, const char* forced = "{}") {
  entry.make = [make = entry.make, defaults, forced](Build& build, const Config& config) {
    nlohmann::json values = nlohmann::json::parse(defaults);
    values.update(config.values());
    values.update(nlohmann::json::parse(forced));
    return make(build, Config(config.source(), values));
  };
  return entry;
}

constexpr const char* kXlmRoberta = R"({"vocab_size":30522})";
constexpr const char* kMT5 =
    R"({"vocab_size":250112,"d_model":512,"d_kv":64,"d_ff":1024,"num_layers":8,"num_heads":6,"feed_forward_proj":"gated-gelu"})";
constexpr const char* kMT5Forced = R"({"tie_word_embeddings":false})";  // T5 reads it as: the head's input is not scaled

}  // namespace

const std::vector<ModelEntry>& model_registry() {
  static const std::vector<ModelEntry> kModels{
      // transformers, by model_type
      {"albert", {"AlbertForMaskedLM"}, InputKind::lm, 512, make_albert},
      {"albert-classifier", {"AlbertForSequenceClassification"}, InputKind::cls, 512, make_albert_classifier},
      {"albert-pretraining", {"AlbertForPreTraining"}, InputKind::pair, 512, make_albert_pretraining},
      {"bart", {"BartForConditionalGeneration"}, InputKind::lm, 1024, make_bart},
      {"bert", {"BertForMaskedLM"}, InputKind::lm, 512, make_bert},
      {"bert-classifier", {"BertForSequenceClassification"}, InputKind::cls, 512, make_bert_classifier},
      {"bert-pretraining", {"BertForPreTraining"}, InputKind::pair, 512, make_bert_pretraining},
      {"biogpt", {"BioGptForCausalLM"}, InputKind::lm, 1024, make_biogpt},
      {"biogpt-classifier", {"BioGptForSequenceClassification"}, InputKind::cls, 1024, make_biogpt_classifier},
      {"bloom", {"BloomForCausalLM"}, InputKind::lm, 2048, make_bloom},
      {"bloom-classifier", {"BloomForSequenceClassification"}, InputKind::cls, 2048, make_bloom_classifier},
      copy_of({"camembert", {"CamembertForMaskedLM"}, InputKind::lm, 512, make_roberta}, kXlmRoberta),
      copy_of({"camembert-classifier", {"CamembertForSequenceClassification"}, InputKind::cls, 512, make_roberta_classifier}, kXlmRoberta),
      {"clip", {"CLIPModel"}, InputKind::own, 77, make_clip},
      {"cohere", {"CohereForCausalLM"}, InputKind::lm, 2048, make_cohere},
      {"deberta-v2", {"DebertaV2ForMaskedLM"}, InputKind::lm, 512, make_deberta_v2},
      {"deberta-v2-classifier", {"DebertaV2ForSequenceClassification"}, InputKind::cls, 512, make_deberta_v2_classifier},
      {"dinov2", {"Dinov2ForImageClassification"}, InputKind::image, 224, make_dinov2},
      {"distilbert", {"DistilBertForMaskedLM"}, InputKind::lm, 512, make_distilbert},
      {"distilbert-classifier", {"DistilBertForSequenceClassification"}, InputKind::cls, 512, make_distilbert_classifier},
      {"electra", {"ElectraForMaskedLM"}, InputKind::lm, 512, make_electra},
      {"electra-classifier", {"ElectraForSequenceClassification"}, InputKind::cls, 512, make_electra_classifier},
      {"electra-pretraining", {"ElectraForPreTraining"}, InputKind::lm, 512, make_electra_pretraining},
      {"gemma", {"GemmaForCausalLM"}, InputKind::lm, 2048, make_gemma},
      {"gemma-classifier", {"GemmaForSequenceClassification"}, InputKind::cls, 2048, make_gemma_classifier},
      {"gemma2", {"Gemma2ForCausalLM"}, InputKind::lm, 2048, make_gemma2},
      {"gemma2-classifier", {"Gemma2ForSequenceClassification"}, InputKind::cls, 2048, make_gemma2_classifier},
      {"gemma3_text", {"Gemma3ForCausalLM"}, InputKind::lm, 2048, make_gemma3},
      {"gpt2", {"GPT2LMHeadModel"}, InputKind::lm, 1024, make_gpt2},
      {"gpt2-classifier", {"GPT2ForSequenceClassification"}, InputKind::cls, 1024, make_gpt2_classifier},
      {"gpt_bigcode", {"GPTBigCodeForCausalLM"}, InputKind::lm, 1024, make_gpt_bigcode},
      {"gpt_bigcode-classifier", {"GPTBigCodeForSequenceClassification"}, InputKind::cls, 1024, make_gpt_bigcode_classifier},
      {"gpt_neo", {"GPTNeoForCausalLM"}, InputKind::lm, 2048, make_gpt_neo},
      {"gpt_neo-classifier", {"GPTNeoForSequenceClassification"}, InputKind::cls, 2048, make_gpt_neo_classifier},
      {"gpt_neox", {"GPTNeoXForCausalLM"}, InputKind::lm, 2048, make_gpt_neox},
      {"gpt_neox-classifier", {"GPTNeoXForSequenceClassification"}, InputKind::cls, 2048, make_gpt_neox_classifier},
      {"gptj", {"GPTJForCausalLM"}, InputKind::lm, 2048, make_gptj},
      {"gptj-classifier", {"GPTJForSequenceClassification"}, InputKind::cls, 2048, make_gptj_classifier},
      {"granite", {"GraniteForCausalLM"}, InputKind::lm, 2048, make_granite},
      {"hubert", {"HubertForCTC"}, InputKind::own, 160000, make_hubert},
      {"hubert-classifier", {"HubertForSequenceClassification"}, InputKind::own, 160000, make_hubert_classifier},
      {"llama", {"LlamaForCausalLM"}, InputKind::lm, 2048, make_llama},
      {"llama-classifier", {"LlamaForSequenceClassification"}, InputKind::cls, 2048, make_llama_classifier},
      {"llava", {"LlavaForConditionalGeneration"}, InputKind::own, 2048, make_llava},
      {"mamba", {"MambaForCausalLM"}, InputKind::lm, 2048, make_mamba},
      {"mistral", {"MistralForCausalLM"}, InputKind::lm, 2048, make_mistral},
      {"mistral-classifier", {"MistralForSequenceClassification"}, InputKind::cls, 2048, make_mistral_classifier},
      {"modernbert", {"ModernBertForMaskedLM"}, InputKind::lm, 1024, make_modernbert},
      {"modernbert-classifier", {"ModernBertForSequenceClassification"}, InputKind::cls, 1024, make_modernbert_classifier},
      {"mpt", {"MptForCausalLM"}, InputKind::lm, 2048, make_mpt},
      {"mpt-classifier", {"MptForSequenceClassification"}, InputKind::cls, 2048, make_mpt_classifier},
      copy_of({"mt5", {"MT5ForConditionalGeneration"}, InputKind::lm, 512, make_t5}, kMT5, kMT5Forced),
      {"olmo2", {"Olmo2ForCausalLM"}, InputKind::lm, 2048, make_olmo2},
      {"olmo2-classifier", {"Olmo2ForSequenceClassification"}, InputKind::cls, 2048, make_olmo2_classifier},
      {"opt", {"OPTForCausalLM"}, InputKind::lm, 2048, make_opt},
      {"opt-classifier", {"OPTForSequenceClassification"}, InputKind::cls, 2048, make_opt_classifier},
      {"phi", {"PhiForCausalLM"}, InputKind::lm, 2048, make_phi},
      {"phi-classifier", {"PhiForSequenceClassification"}, InputKind::cls, 2048, make_phi_classifier},
      {"phi3", {"Phi3ForCausalLM"}, InputKind::lm, 2048, make_phi3},
      {"phi3-classifier", {"Phi3ForSequenceClassification"}, InputKind::cls, 2048, make_phi3_classifier},
      {"qwen", {"QWenLMHeadModel"}, InputKind::lm, 2048, make_qwen, "modeling_qwen.py beside the weights"},
      {"qwen2", {"Qwen2ForCausalLM"}, InputKind::lm, 2048, make_qwen2},
      {"qwen2-classifier", {"Qwen2ForSequenceClassification"}, InputKind::cls, 2048, make_qwen2_classifier},
      {"qwen2_vl", {"Qwen2VLForConditionalGeneration"}, InputKind::own, 2048, make_qwen2_vl},
      {"qwen3", {"Qwen3ForCausalLM"}, InputKind::lm, 2048, make_qwen3},
      {"qwen3-classifier", {"Qwen3ForSequenceClassification"}, InputKind::cls, 2048, make_qwen3_classifier},
      {"roberta", {"RobertaForMaskedLM"}, InputKind::lm, 512, make_roberta},
      {"roberta-classifier", {"RobertaForSequenceClassification"}, InputKind::cls, 512, make_roberta_classifier},
      {"siglip", {"SiglipModel"}, InputKind::own, 64, make_siglip},
      {"smollm3", {"SmolLM3ForCausalLM"}, InputKind::lm, 2048, make_smollm3},
      {"stablelm", {"StableLmForCausalLM"}, InputKind::lm, 2048, make_stablelm},
      {"stablelm-classifier", {"StableLmForSequenceClassification"}, InputKind::cls, 2048, make_stablelm_classifier},
      {"t5", {"T5ForConditionalGeneration"}, InputKind::lm, 512, make_t5},
      {"vit", {"ViTForImageClassification"}, InputKind::image, 224, make_vit},
      {"wav2vec2", {"Wav2Vec2ForCTC"}, InputKind::own, 160000, make_wav2vec2},
      {"wav2vec2-classifier", {"Wav2Vec2ForSequenceClassification"}, InputKind::own, 160000, make_wav2vec2_classifier},
      {"whisper", {"WhisperForConditionalGeneration"}, InputKind::own, 448, make_whisper},
      copy_of({"xlm-roberta", {"XLMRobertaForMaskedLM"}, InputKind::lm, 512, make_roberta}, kXlmRoberta),
      copy_of({"xlm-roberta-classifier", {"XLMRobertaForSequenceClassification"}, InputKind::cls, 512, make_roberta_classifier},
              kXlmRoberta),
      // transformers: experts, and state spaces with them
      {"mixtral", {"MixtralForCausalLM"}, InputKind::lm, 2048, make_mixtral},
      {"mixtral-classifier", {"MixtralForSequenceClassification"}, InputKind::cls, 2048, make_mixtral_classifier},
      {"qwen2_moe", {"Qwen2MoeForCausalLM"}, InputKind::lm, 2048, make_qwen2_moe},
      {"qwen2_moe-classifier", {"Qwen2MoeForSequenceClassification"}, InputKind::cls, 2048, make_qwen2_moe_classifier},
      {"qwen3_moe", {"Qwen3MoeForCausalLM"}, InputKind::lm, 2048, make_qwen3_moe},
      {"qwen3_moe-classifier", {"Qwen3MoeForSequenceClassification"}, InputKind::cls, 2048, make_qwen3_moe_classifier},
      {"deepseek_v2", {"DeepseekV2ForCausalLM"}, InputKind::lm, 2048, make_deepseek_v2},
      {"deepseek_v2-classifier", {"DeepseekV2ForSequenceClassification"}, InputKind::cls, 2048, make_deepseek_v2_classifier},
      {"deepseek_v3", {"DeepseekV3ForCausalLM"}, InputKind::lm, 2048, make_deepseek_v3},
      {"deepseek_v3-classifier", {"DeepseekV3ForSequenceClassification"}, InputKind::cls, 2048, make_deepseek_v3_classifier},
      {"gpt_oss", {"GptOssForCausalLM"}, InputKind::lm, 2048, make_gpt_oss},
      {"gpt_oss-classifier", {"GptOssForSequenceClassification"}, InputKind::cls, 2048, make_gpt_oss_classifier},
      {"llama4_text", {"Llama4ForCausalLM"}, InputKind::lm, 2048, make_llama4},
      {"mamba2", {"Mamba2ForCausalLM"}, InputKind::lm, 2048, make_mamba2},
      {"jamba", {"JambaForCausalLM"}, InputKind::lm, 2048, make_jamba},
      {"jamba-classifier", {"JambaForSequenceClassification"}, InputKind::cls, 2048, make_jamba_classifier},
      // diffusers, and the text encoders its pipelines have
      {"autoencoder-kl", {"AutoencoderKL"}, InputKind::own, 256, make_autoencoder_kl, "diffusers"},
      {"clip-text", {"CLIPTextModel"}, InputKind::own, 77, make_clip_text},
      {"clip-text-projection", {"CLIPTextModelWithProjection"}, InputKind::own, 77, make_clip_text_projection},
      {"diffusion-trainer", {"diffusion_trainer"}, InputKind::own, 1024, make_diffusion_trainer, "the AI Toolkit"},
      {"qwen2.5-vl-text", {}, InputKind::own, 512, make_qwen2_5_vl_text},
      {"t5-encoder", {"T5EncoderModel"}, InputKind::own, 512, make_t5_encoder},
      {"unet2d-condition", {"UNet2DConditionModel"}, InputKind::own, 512, make_unet2d_condition, "diffusers"},
      // diffusers
      {"autoencoder-kl-wan", {"AutoencoderKLWan", "AutoencoderKLQwenImage"}, InputKind::own, 480, make_causal_autoencoder, "diffusers"},
      {"chroma", {"ChromaTransformer2DModel"}, InputKind::own, 1024, make_chroma, "diffusers"},
      {"cogvideox", {"CogVideoXTransformer3DModel"}, InputKind::own, 480, make_cogvideox, "diffusers"},
      {"dit", {"DiTTransformer2DModel"}, InputKind::own, 256, make_dit, "diffusers"},
      {"flux", {"FluxTransformer2DModel"}, InputKind::own, 1024, make_flux, "diffusers"},
      {"flux2", {"Flux2Transformer2DModel"}, InputKind::own, 1024, make_flux2, "diffusers"},
      {"hidream", {"HiDreamImageTransformer2DModel"}, InputKind::own, 1024, make_hidream, "the AI Toolkit"},
      {"hunyuan_video", {"HunyuanVideoTransformer3DModel"}, InputKind::own, 512, make_hunyuan_video, "diffusers"},
      {"ltx_video", {"LTXVideoTransformer3DModel"}, InputKind::own, 512, make_ltx_video, "diffusers"},
      {"lumina2", {"Lumina2Transformer2DModel"}, InputKind::own, 1024, make_lumina2, "diffusers"},
      {"omnigen2", {"OmniGen2Transformer2DModel"}, InputKind::own, 1024, make_omnigen2, "the AI Toolkit"},
      {"pixart", {"PixArtTransformer2DModel"}, InputKind::own, 1024, make_pixart, "diffusers"},
      {"qwen_image", {"QwenImageTransformer2DModel"}, InputKind::own, 1024, make_qwen_image, "diffusers"},
      {"sd3", {"SD3Transformer2DModel"}, InputKind::own, 1024, make_sd3, "diffusers"},
      {"wan", {"WanTransformer3DModel"}, InputKind::own, 480, make_wan, "diffusers"},
      // people's own
      {"gsa", {}, InputKind::lm, 1024, make_gsa, "alfredcs/Gated-Sparse-Attention"},
      {"litgpt", {}, InputKind::lm, 2048, make_litgpt, "Lightning-AI/litgpt"},
      {"mamba-trainer", {}, InputKind::lm, 2048, make_mamba_trainer, "infrabrew/mamba-recursive-model"},
      {"mlp", {}, InputKind::vector, 784, make_mlp, "torch.nn.Sequential"},
      {"mmseg", {}, InputKind::own, 512, make_mmseg, "mmsegmentation"},
      {"tsn", {}, InputKind::own, 224, make_tsn, "mmaction2"},
      {"stdiff", {"STDiffDiffusers"}, InputKind::own, 0, make_stdiff, "STDiff"},
      {"megatron", {}, InputKind::lm, 2048, make_megatron, "NVIDIA/Megatron-LM"},
      {"fsdm", {}, InputKind::own, 0, make_fsdm, "thanhlamauto/few-shot-diffusion-models-jax"},
      {"unet-segmentation", {}, InputKind::own, 512, make_unet_segmentation, "milesial/Pytorch-UNet"},
      {"yolov8", {}, InputKind::own, 640, make_yolov8, "ultralytics"},
      // any architecture, by the shapes of its weights
      {"weights-only", {}, InputKind::lm, 2048, make_weights_only, "the headers of weights"},
      // torchvision
      torchvision("alexnet", make_alexnet),
      torchvision("convnext_tiny", make_convnext),
      torchvision("convnext_small", make_convnext),
      torchvision("convnext_base", make_convnext),
      torchvision("convnext_large", make_convnext),
      torchvision("densenet121", make_densenet),
      torchvision("densenet161", make_densenet),
      torchvision("densenet169", make_densenet),
      torchvision("densenet201", make_densenet),
      segmentation("deeplabv3_resnet50"),
      segmentation("deeplabv3_resnet101"),
      torchvision("efficientnet_b0", make_efficientnet),
      torchvision("efficientnet_b1", make_efficientnet, 240),
      torchvision("efficientnet_b2", make_efficientnet, 288),
      torchvision("efficientnet_b3", make_efficientnet, 300),
      torchvision("efficientnet_b4", make_efficientnet, 380),
      torchvision("efficientnet_b5", make_efficientnet, 456),
      torchvision("efficientnet_b6", make_efficientnet, 528),
      torchvision("efficientnet_b7", make_efficientnet, 600),
      torchvision("efficientnet_v2_s", make_efficientnet, 384),
      torchvision("efficientnet_v2_m", make_efficientnet, 480),
      torchvision("efficientnet_v2_l", make_efficientnet, 480),
      segmentation("fcn_resnet50"),
      segmentation("fcn_resnet101"),
      torchvision("googlenet", make_googlenet),
      torchvision("inception_v3", make_inception, 299),
      torchvision("mnasnet0_5", make_mnasnet),
      torchvision("mnasnet0_75", make_mnasnet),
      torchvision("mnasnet1_0", make_mnasnet),
      torchvision("mnasnet1_3", make_mnasnet),
      torchvision("mobilenet_v2", make_mobilenet_v2),
      torchvision("mobilenet_v3_large", make_mobilenet_v3),
      torchvision("mobilenet_v3_small", make_mobilenet_v3),
      torchvision("regnet_y_400mf", make_regnet),
      torchvision("regnet_y_800mf", make_regnet),
      torchvision("regnet_y_1_6gf", make_regnet),
      torchvision("regnet_y_3_2gf", make_regnet),
      torchvision("regnet_y_8gf", make_regnet),
      torchvision("regnet_y_16gf", make_regnet),
      torchvision("regnet_y_32gf", make_regnet),
      torchvision("regnet_y_128gf", make_regnet),
      torchvision("regnet_x_400mf", make_regnet),
      torchvision("regnet_x_800mf", make_regnet),
      torchvision("regnet_x_1_6gf", make_regnet),
      torchvision("regnet_x_3_2gf", make_regnet),
      torchvision("regnet_x_8gf", make_regnet),
      torchvision("regnet_x_16gf", make_regnet),
      torchvision("regnet_x_32gf", make_regnet),
      torchvision("resnet18", make_resnet),
      torchvision("resnet34", make_resnet),
      torchvision("resnet50", make_resnet),
      torchvision("resnet101", make_resnet),
      torchvision("resnet152", make_resnet),
      torchvision("resnext50_32x4d", make_resnet),
      torchvision("resnext101_32x8d", make_resnet),
      torchvision("resnext101_64x4d", make_resnet),
      torchvision("wide_resnet50_2", make_resnet),
      torchvision("wide_resnet101_2", make_resnet),
      torchvision("shufflenet_v2_x0_5", make_shufflenet),
      torchvision("shufflenet_v2_x1_0", make_shufflenet),
      torchvision("shufflenet_v2_x1_5", make_shufflenet),
      torchvision("shufflenet_v2_x2_0", make_shufflenet),
      torchvision("squeezenet1_0", make_squeezenet),
      torchvision("squeezenet1_1", make_squeezenet),
      torchvision("swin_t", make_swin),
      torchvision("swin_s", make_swin),
      torchvision("swin_b", make_swin),
      torchvision("swin_v2_t", make_swin),
      torchvision("swin_v2_s", make_swin),
      torchvision("swin_v2_b", make_swin),
      torchvision("vgg11", make_vgg),
      torchvision("vgg11_bn", make_vgg),
      torchvision("vgg13", make_vgg),
      torchvision("vgg13_bn", make_vgg),
      torchvision("vgg16", make_vgg),
      torchvision("vgg16_bn", make_vgg),
      torchvision("vgg19", make_vgg),
      torchvision("vgg19_bn", make_vgg),
      torchvision("vit_b_16", make_torchvision_vit),
      torchvision("vit_b_32", make_torchvision_vit),
      torchvision("vit_l_16", make_torchvision_vit),
      torchvision("vit_l_32", make_torchvision_vit),
      torchvision("vit_h_14", make_torchvision_vit),
  };
  return kModels;
}

const ModelEntry* find_model(const std::string& name) {
  for (const ModelEntry& e : model_registry())
    if (e.name == name || std::find(e.classes.begin(), e.classes.end(), name) != e.classes.end()) return &e;
  return nullptr;
}

}  // namespace plimsoll
