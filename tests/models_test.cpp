// What a model cannot do is refused with the setting's name, never simulated as something else.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/registry.h"
#include "step/train.h"

namespace plimsoll {
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
  };
  for (const Refused& c : cases)
    EXPECT_NE(message_of(tiny_job(c.family, c.config)).find(c.message), std::string::npos)
        << c.family << " " << c.config << ": " << message_of(tiny_job(c.family, c.config));
}

TEST(Models, RefuseCheckpointingWhereTransformersDoes) {
  Job job = tiny_job("albert", R"({"hidden_size":64,"num_attention_heads":4,"intermediate_size":64,"num_hidden_layers":1})");
  EXPECT_EQ(message_of(job), "");
  job.checkpointing.on = true;
  EXPECT_NE(message_of(job).find("checkpointing"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
