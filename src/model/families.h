// Every architecture's builder; registry.cpp lists them by name.
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

std::unique_ptr<Model> make_albert(Build& build, const Config& config);
std::unique_ptr<Model> make_albert_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_albert_pretraining(Build& build, const Config& config);
std::unique_ptr<Model> make_bert(Build& build, const Config& config);
std::unique_ptr<Model> make_bert_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_bert_pretraining(Build& build, const Config& config);
std::unique_ptr<Model> make_biogpt(Build& build, const Config& config);
std::unique_ptr<Model> make_biogpt_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_bloom(Build& build, const Config& config);
std::unique_ptr<Model> make_bloom_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_cohere(Build& build, const Config& config);
std::unique_ptr<Model> make_dinov2(Build& build, const Config& config);
std::unique_ptr<Model> make_distilbert(Build& build, const Config& config);
std::unique_ptr<Model> make_distilbert_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_electra(Build& build, const Config& config);
std::unique_ptr<Model> make_electra_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_electra_pretraining(Build& build, const Config& config);
std::unique_ptr<Model> make_gemma(Build& build, const Config& config);
std::unique_ptr<Model> make_gemma2(Build& build, const Config& config);
std::unique_ptr<Model> make_gemma2_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_gemma_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt2(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt2_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_bigcode(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_bigcode_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_neo(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_neo_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_neox(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_neox_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_gptj(Build& build, const Config& config);
std::unique_ptr<Model> make_gptj_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_granite(Build& build, const Config& config);
std::unique_ptr<Model> make_gsa(Build& build, const Config& config);
std::unique_ptr<Model> make_llama(Build& build, const Config& config);
std::unique_ptr<Model> make_llama_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_mamba(Build& build, const Config& config);
std::unique_ptr<Model> make_mamba_trainer(Build& build, const Config& config);
std::unique_ptr<Model> make_mistral(Build& build, const Config& config);
std::unique_ptr<Model> make_mistral_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_mlp(Build& build, const Config& config);
std::unique_ptr<Model> make_mpt(Build& build, const Config& config);
std::unique_ptr<Model> make_mpt_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_olmo2(Build& build, const Config& config);
std::unique_ptr<Model> make_olmo2_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_opt(Build& build, const Config& config);
std::unique_ptr<Model> make_opt_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_phi(Build& build, const Config& config);
std::unique_ptr<Model> make_phi3(Build& build, const Config& config);
std::unique_ptr<Model> make_phi3_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_phi_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen2(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen2_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen3(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen3_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_roberta(Build& build, const Config& config);
std::unique_ptr<Model> make_roberta_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_stablelm(Build& build, const Config& config);
std::unique_ptr<Model> make_stablelm_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_stdiff(Build& build, const Config& config);
std::unique_ptr<Model> make_t5(Build& build, const Config& config);
std::unique_ptr<Model> make_vit(Build& build, const Config& config);

// transformers: experts, and state spaces with them
std::unique_ptr<Model> make_mixtral(Build& build, const Config& config);
std::unique_ptr<Model> make_mixtral_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen2_moe(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen2_moe_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen3_moe(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen3_moe_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_deepseek_v2(Build& build, const Config& config);
std::unique_ptr<Model> make_deepseek_v2_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_deepseek_v3(Build& build, const Config& config);
std::unique_ptr<Model> make_deepseek_v3_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_oss(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_oss_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_llama4(Build& build, const Config& config);
std::unique_ptr<Model> make_mamba2(Build& build, const Config& config);
std::unique_ptr<Model> make_jamba(Build& build, const Config& config);
std::unique_ptr<Model> make_jamba_classifier(Build& build, const Config& config);

std::unique_ptr<Model> make_hubert(Build& build, const Config& config);
std::unique_ptr<Model> make_hubert_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_wav2vec2(Build& build, const Config& config);
std::unique_ptr<Model> make_wav2vec2_classifier(Build& build, const Config& config);

// Networks of other projects.
std::unique_ptr<Model> make_fsdm(Build& build, const Config& config);
std::unique_ptr<Model> make_unet_segmentation(Build& build, const Config& config);
std::unique_ptr<Model> make_yolov8(Build& build, const Config& config);
// diffusers, and the text encoders its pipelines have
std::unique_ptr<Model> make_autoencoder_kl(Build& build, const Config& config);
std::unique_ptr<Model> make_clip_text(Build& build, const Config& config);
std::unique_ptr<Model> make_clip_text_projection(Build& build, const Config& config);
std::unique_ptr<Model> make_diffusion_trainer(Build& build, const Config& config);
std::unique_ptr<Model> make_t5_encoder(Build& build, const Config& config);
std::unique_ptr<Model> make_unet2d_condition(Build& build, const Config& config);

// torchvision: one builder per family, which holds a table of its variants by name.
std::unique_ptr<Model> make_alexnet(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_convnext(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_densenet(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_efficientnet(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_googlenet(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_inception(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_mnasnet(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_mobilenet_v2(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_mobilenet_v3(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_segmentation(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_regnet(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_resnet(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_shufflenet(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_squeezenet(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_swin(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_torchvision_vit(Build& build, const Config& config, const std::string& name);
std::unique_ptr<Model> make_vgg(Build& build, const Config& config, const std::string& name);

}  // namespace plimsoll
