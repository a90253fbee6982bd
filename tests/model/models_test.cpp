// What a model cannot do is refused with the setting's name, never simulated as something else.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/registry.h"
#include "simulate.h"
#include "step/train.h"

namespace plimsoll::models_test {
namespace {

struct Refused {
  const char* family;
  const char* config;
  const char* message;  // a part of it
};

Job tiny_job(const std::string& family, const char* config) {
  Job job;
  job.model = job.family = family;
  job.config = Config(family, nlohmann::json::parse(config));
  job.inputs = find_model(family)->inputs;
  job.seq = 16;
  job.steps = 1;
  return job;
}

std::string message_of(const Job& job) {
  try {
    simulate(job);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Models, RefuseConfigurationsThatAreNotSimulated) {
  const Refused cases[] = {
      {"distilbert", R"({"n_heads":5})", "n_heads 5 does not divide dim 768"},
      {"distilbert", R"({"n_layers":1,"max_position_embeddings":15})", "16 positions are more than max_position_embeddings 15"},
      {"distilbert", R"({"n_layers":1,"chunk_size_feed_forward":3})", "chunk_size_feed_forward 3 does not divide the 16 tokens"},
      {"distilbert", R"({"output_attentions":true})", "output_attentions"},
      {"albert", R"({"num_hidden_layers":2,"num_hidden_groups":3})", "num_hidden_groups 3"},
      {"albert", R"({"hidden_size":100,"num_attention_heads":3})", "num_attention_heads 3 does not divide hidden_size 100"},
      {"biogpt", R"({"num_hidden_layers":1,"max_position_embeddings":8})", "16 positions are more than max_position_embeddings 8"},
      {"gpt_neo", R"({"num_layers":2})", "attention_types describes 24 layers, num_layers is 2"},
      {"gpt_neo", R"({"num_layers":1,"attention_types":[[["sparse"],1]]})", "attention_types has \"sparse\""},
      {"gpt_neo", R"({"num_layers":1,"attention_types":[7]})", "attention_types has 7"},
      {"gpt_neo", R"({"num_layers":1,"attention_types":["global"]})", "attention_types has \"global\""},
      {"gpt_neo", R"({"num_layers":1,"attention_types":{"global":1}})", "attention_types has {"},
      {"gpt_bigcode", R"({"n_layer":1,"add_cross_attention":true})", "add_cross_attention true is not supported"},
      {"bloom", R"({"n_head":3})", "n_head 3 does not divide hidden_size 64"},
      {"bloom", R"({"n_layer":1,"slow_but_exact":true,"pretraining_tp":2})", "slow_but_exact"},
      {"cohere", R"({"num_hidden_layers":1,"logit_scale":null})", "logit_scale null"},
      {"cohere2", R"({"num_hidden_layers":1,"sliding_window":null})", "sliding_window null: its mask is always made"},
      {"olmo", R"({"num_hidden_layers":1,"clip_qkv":"8"})", "clip_qkv"},
      {"gptj", R"({"n_embd":64,"n_head":4,"rotary_dim":15})", "rotary_dim must be even and at most the width of a head, 16"},
      {"gptj", R"({"n_embd":64,"n_head":4,"rotary_dim":null})", "rotary_dim"},
      {"gptj", R"({"n_embd":64,"n_head":4,"rotary_dim":8,"n_layer":1,"n_positions":8})", "16 positions are more than n_positions 8"},
      {"mpt", R"({"d_model":64,"n_heads":5})", "n_heads 5 does not divide d_model 64"},
      {"mpt", R"({"d_model":64,"n_heads":4,"n_layers":1,"max_seq_len":8})", "16 positions are more than max_seq_len 8"},
      {"stablelm", R"({"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":4,"head_dim":8})",
       "head_dim 8 is not hidden_size / num_attention_heads"},
      {"electra", R"({"num_hidden_layers":1,"max_position_embeddings":8})", "16 positions are more than max_position_embeddings 8"},
      {"albert-pretraining", R"({"num_labels":3})", "num_labels 3"},
      {"fsdm", R"({"mode_conditioning":"film"})", "mode_conditioning 'film' is not simulated"},
      {"fsdm", R"({"num_heads":5})", "num_heads 5 does not divide hidden_size 468"},
      {"fsdm", R"({"heads":0})", "heads is 0"},
      {"fsdm", R"({"patch_size":3})", "patch_size 3 does not divide image_size 32"},
      {"fsdm", R"({"context_channels":128})", "context_channels 128 is not hdim 256"},
      {"fsdm", R"({"context_pool_size":60})", "context_pool_size 60 does not divide"},
      {"fsdm", R"({"context_pool_size":-1})", "context_pool_size is -1"},
      {"fsdm", R"({"cross_attn_layers":"2,6"})", "cross_attn_layers has '6', expected blocks from 0 to 5"},
      {"fsdm", R"({"cross_attn_layers":""})", "cross_attn_layers has ''"},
      {"fsdm", R"({"cross_attn_layers":[1]})", "cross_attn_layers is [1], expected a text"},
      {"fsdm", R"({"dropout":1.5})", "dropout"},
      {"fsdm", R"({"mlp_ratio":0})", "mlp_ratio 0"},
      {"fsdm", R"({"sample_size":5000})", "sample_size 5000 is more than 1000"},
      {"fsdm", R"({"encoder_deep":2})", "encoder_deep is not known"},
      {"whisper", R"({"max_target_positions":8})", "16 positions are more than max_target_positions 8"},
      {"whisper", R"({"apply_spec_augment":true})", "apply_spec_augment true is not simulated"},
      {"whisper", R"({"encoder_attention_heads":7})", "encoder_attention_heads 7 does not divide d_model 384"},
      {"bart", R"({"decoder_attention_heads":7})", "decoder_attention_heads 7 does not divide d_model 1024"},
      {"bart", R"({"encoder_layers":1,"decoder_layers":1,"max_position_embeddings":8})",
       "16 positions are more than max_position_embeddings 8"},
      {"modernbert", R"({"sparse_prediction":true})", "sparse_prediction true is not simulated"},
      {"modernbert", R"({"rope_parameters":{"full_attention":{"rope_type":"yarn"}}})", "rope_type 'yarn' is not simulated"},
      {"modernbert", R"({"num_hidden_layers":2,"layer_types":["full_attention"]})", "layer_types is not a list of num_hidden_layers 2"},
      {"modernbert-classifier", R"({"classifier_pooling":"max"})", "classifier_pooling 'max' is not known"},
      {"deberta-v2", R"({"pos_att_type":"p2p","relative_attention":true})", "pos_att_type 'p2p' is not known"},
      {"deberta-v2", R"({"pos_att_type":[1]})", "pos_att_type is [1]"},
      {"deberta-v2", R"({"relative_attention":true})", "relative_attention without pos_att_type"},
      {"deberta-v2", R"({"num_hidden_layers":1,"conv_kernel_size":2})", "conv_kernel_size 2 would shorten"},
      {"deberta-v2", R"({"num_hidden_layers":1,"max_position_embeddings":8})", "16 positions are more than max_position_embeddings 8"},
      {"clip", R"({"text_config":{"max_position_embeddings":8}})", "16 positions are more than max_position_embeddings 8"},
      {"clip", R"({"vision_config":7})", "vision_config is 7, expected a mapping"},
      {"clip", R"({"vision_config":{"image_size":16}})", "image_size 16 is smaller than patch_size 32"},
      {"siglip", R"({"text_config":{"projection_size":64}})", "projection_size 64 is not vision_config's hidden_size 768"},
      {"llava", R"({})", "1 images of 576 tokens do not fit into seq 16"},
      {"llava", R"({"images":-1})", "images -1"},
      {"llava", R"({"text_config":{"model_type":"mistral"}})", "model_type mistral is not simulated within llava"},
      {"llava", R"({"vision_feature_layer":99})", "vision_feature_layer 99 is none of the 25 states"},
      {"llava", R"({"vision_feature_select_strategy":"best"})", "vision_feature_select_strategy 'best' is not known"},
      {"wav2vec2", R"({})", "is shorter than the kernel"},
      {"wav2vec2", R"({"num_attention_heads":7})", "num_attention_heads 7 does not divide hidden_size 768"},
      {"wav2vec2", R"({"conv_dim":[512,512]})", "conv_dim, conv_stride and conv_kernel have 2, 7 and 7 numbers"},
      {"wav2vec2", R"({"conv_dim":"wide"})", "conv_dim"},
      {"wav2vec2", R"({"feat_extract_norm":"batch"})", "feat_extract_norm 'batch' is not known"},
      {"wav2vec2", R"({"ctc_loss_reduction":"none"})", "ctc_loss_reduction 'none' is not known"},
      {"wav2vec2", R"({"add_adapter":true})", "add_adapter true is not simulated"},
      {"wav2vec2", R"({"mask_feature_prob":0.1})", "mask_feature_prob 0.1 is not simulated"},
      {"wav2vec2", R"({"target_length":0})", "target_length is 0"},
      {"wav2vec2-classifier", R"({"use_weighted_layer_sum":true})", "use_weighted_layer_sum true is not simulated"},
      {"hubert", R"({"conv_pos_batch_norm":true})", "conv_pos_batch_norm true is not simulated"},
      {"unet-segmentation", R"({"depth":3})", "depth is not known"},
      {"unet-segmentation", R"({"n_classes":0})", "n_classes is 0"},
      {"fcn_resnet50", R"({"aux":true})", "aux is not known"},
      {"deeplabv3_resnet50", R"({"num_classes":-1})", "num_classes is -1"},
      {"deeplabv3_resnet50", R"({})", "one value per channel"},
      {"yolov8", R"({"scale":"xl"})", "scale 'xl' is not known"},
      {"yolov8", R"({"nc":0})", "nc is 0"},
      {"yolov8", R"({})", "images of 16 pixels a side"},
      {"mlp", R"({"input_size":16,"activation":"step"})", "activation 'step' is not known"},
      {"mlp", R"({"input_size":16,"linear_sizes":64})", "linear_sizes is 64"},
      {"mlp", R"({"input_size":16,"linear_sizes":[64,"wide"]})", "size"},
      {"mlp", R"({"input_size":16,"depth":3})", "depth"},
      {"gsa", R"({"n_heads":5})", "n_heads 5 does not divide d_model 512"},
      {"gsa", R"({"n_kv_heads":3})", "n_kv_heads 3 does not divide n_heads 8"},
      {"gsa", R"({"k_base":2048})", "k_min 64, k_base 2048, k_max 1024 are not in order"},
      {"gsa", R"({"gsa":{"k_max":32}})", "k_max 32 are not in order"},
      {"gsa", R"({"gsa":512})", "gsa is 512"},
      {"gsa", R"({"d_head":7})", "heads of 7 cannot be rotated"},
      {"gsa", R"({"indexer_activation":"tanh"})", "indexer_activation 'tanh' is not known"},
      {"gsa", R"({"attention_dropout":1.5})", "attention_dropout"},
      {"mamba-trainer", R"({"model_type":"mamba3"})", "model_type 'mamba3' is not known"},
      {"mamba-trainer", R"({"dropout":-1})", "dropout"},
      {"mamba-trainer", R"({"n_layers":1,"max_seq_len":8})", "16 positions are more than max_seq_len 8"},
      {"mamba-trainer", R"({"model_type":"hybrid_recursive","d_model":100})", "d_model 100 is not a multiple of 8"},
      {"mamba", R"({"conv_kernel":5})", "conv_kernel 5"},
      {"mamba", R"({"state_size":300})", "state_size 300"},
      {"mamba", R"({"use_mamba_kernels":false,"use_mambapy":true})", "use_mambapy"},
      {"mamba", R"({"time_step_rank":"wide"})", "time_step_rank"},
      {"mlp", R"({"input_size":20})", "vectors of 16 numbers do not fit input_size 20"},
  };
  for (const Refused& c : cases)
    EXPECT_NE(message_of(tiny_job(c.family, c.config)).find(c.message), std::string::npos)
        << c.family << " " << c.config << ": " << message_of(tiny_job(c.family, c.config));
}

TEST(Models, APlainNetworkHasTheLayersItsSizesName) {
  Job job = tiny_job("mlp", R"({"input_size":16,"linear_sizes":[8,4],"output_size":3,"batch_norm":true})");
  job.batch = 2;
  const Simulation run = simulate(job);
  EXPECT_EQ(run.parameters, 16 * 8 + 8 + 2 * 8 + 8 * 4 + 4 + 2 * 4 + 4 * 3 + 3);
}

TEST(Models, RefuseCheckpointingWhereTransformersDoes) {
  Job job = tiny_job("albert", R"({"hidden_size":64,"num_attention_heads":4,"intermediate_size":64,"num_hidden_layers":1})");
  EXPECT_EQ(message_of(job), "");
  job.checkpointing.on = true;
  EXPECT_NE(message_of(job).find("checkpointing"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::models_test
