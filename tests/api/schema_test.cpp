// The JSON Schemas of the verbs hold for real requests and answers.
#include "api/schema.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/verbs.h"

namespace plimsoll::schema_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool is_of_type(const Json& value, const std::string& type) {
  return type == "object"    ? value.is_object()
         : type == "array"   ? value.is_array()
         : type == "string"  ? value.is_string()
         : type == "boolean" ? value.is_boolean()
         : type == "null"    ? value.is_null()
         : type == "integer" ? value.is_number_integer()
                             : type == "number" && value.is_number();
}

// The words of JSON Schema that ours use; another one is a mistake in the schema.
void find_problems(const Json& schema, const Json& value, const std::string& at, std::vector<std::string>& out) {
  const auto wrong = [&](const std::string& what) { out.push_back(at + ": " + what); };
  for (const auto& [word, rule] : schema.items()) {
    if (word == "type") {
      const Json types = rule.is_array() ? rule : Json::array({rule});
      bool any = false;
      for (const Json& type : types) any |= is_of_type(value, type.get<std::string>());
      if (!any) wrong(value.dump().substr(0, 60) + " is not of type " + rule.dump());
    } else if (word == "const") {
      if (value != rule) wrong(value.dump() + " is not " + rule.dump());
    } else if (word == "enum") {
      if (std::find(rule.begin(), rule.end(), value) == rule.end()) wrong(value.dump() + " is not one of " + rule.dump());
    } else if (word == "properties") {
      if (!value.is_object()) continue;
      for (const auto& [key, inner] : rule.items())
        if (value.contains(key)) find_problems(inner, value[key], at + "/" + key, out);
    } else if (word == "required") {
      if (!value.is_object()) continue;
      for (const Json& key : rule)
        if (!value.contains(key.get<std::string>())) wrong("no " + key.dump());
    } else if (word == "additionalProperties") {
      if (!value.is_object()) continue;
      for (const auto& [key, inner] : value.items())
        if (schema.contains("properties") && schema["properties"].contains(key)) {
          continue;
        } else if (rule == false) {
          wrong("'" + key + "' is not in the schema");
        } else {
          find_problems(rule, inner, at + "/" + key, out);
        }
    } else if (word == "items") {
      if (!value.is_array()) continue;
      for (size_t i = 0; i < value.size(); ++i) find_problems(rule, value[i], at + "/" + std::to_string(i), out);
    } else if (word == "minimum" || word == "exclusiveMinimum" || word == "maximum") {
      if (!value.is_number()) continue;
      const double number = value.get<double>(), bound = rule.get<double>();
      if (word == "minimum" ? number < bound : word == "maximum" ? number > bound : number <= bound)
        wrong(value.dump() + " is beyond " + rule.dump());
    } else if (word != "$schema" && word != "title" && word != "description") {
      wrong("the schema has the word '" + word + "', which this test does not know");
    }
  }
}

std::vector<std::string> problems(const Json& schema, const Json& value) {
  std::vector<std::string> out;
  find_problems(schema, value, "", out);
  return out;
}

class Schemas : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    std::ofstream(path("run.yaml")) << "model: resnet18\nbatch: 64\n";
    std::ofstream(path("train.log"))
        << "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.00 "
           "GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n";
    Json trace;
    ask("estimate", Json{{"run", "gpt2"}, {"settings", {{"seq", 64}}}, {"save_trace", path("run.trace")}}.dump(), trace);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  // At least one of each kind of answer.
  std::vector<std::pair<std::string, Json>> questions() const {
    const Json small{{"batch", 2}, {"seq", 64}};
    const std::string rows = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/truth/ema.jsonl";
    return {
        {"estimate", {{"run", "gpt2"}, {"settings", small}}},
        {"estimate",
         {{"run", "gpt2"}, {"settings", small}, {"gpu", {"rtx-4090", "1GiB"}}, {"what_if", true}, {"host_memory", "16GiB"}, {"top", 3}}},
        {"estimate", {{"run", "gpt2"}, {"settings", small}, {"unified", "gb10"}, {"rule_of_thumb", true}}},
        {"estimate", {{"run", "fsdm-lag"}, {"settings", {{"framework", "jax"}, {"batch", 4}}}, {"gpu", "a100-80gb"}}},
        {"compare", {{"jobs", {"gpt2", "gpt2-medium"}}, {"settings", small}, {"gpu", "8GiB"}}},
        {"explain", {{"run", path("run.yaml")}, {"gpu", "24GiB"}, {"bundle", path("help.tar")}}},
        {"explain", {{"run", path("train.log")}, {"log_of", path("run.yaml")}}},
        {"explain", {{"run", path("run.trace")}}},
        {"report", {{"run", "gpt2"}, {"settings", small}, {"gpu", "2GiB"}}},
        {"report", {{"run", path("run.trace")}}},
        {"report", {{"run", "gpt2"}, {"settings", small}, {"format", "csv"}}},
        {"plan", {{"run", path("run.yaml")}, {"gpu", "2GiB"}, {"host_memory", "16GiB"}}},
        {"plan", {{"run", path("run.yaml")}, {"gpu", "300MiB"}}},
        {"plan", {{"run", path("run.yaml")}, {"gpu", {"2GiB", "8GiB"}}}},
        {"plan", {{"run", path("run.yaml")}, {"gpu", "2GiB"}, {"flags", true}}},
        {"plan", {{"run", path("run.yaml")}, {"gpu", "2GiB"}, {"diff", true}}},
        {"plan", {{"run", path("run.yaml")}, {"gpu", "2GiB"}, {"generate", "accelerate"}}},
        {"plan", {{"run", path("run.yaml")}, {"matrix", "gpu=2GiB,8GiB,batch=1,2"}}},
        {"plan", {{"run", "gpt2"}, {"settings", small}, {"gpu", "a100-80gb"}, {"world", 2}}},
        {"plan", {{"run", "gpt2"}, {"settings", small}, {"gpu", "a100-80gb"}, {"world", 2}, {"generate", "torchrun"}}},
        {"ai-toolkit", {{"arch", "flux"}, {"vram", 24}}},
        {"ai-toolkit", {{"arch", "qwen_image"}, {"resolution", 2048}, {"unified", 120}, {"workers", 2}, {"ema", true}}},
        {"score", {{"files", rows}}},
        {"replay", {{"file", path("run.trace")}}},
        {"replay", {{"file", path("run.trace")}, {"device_memory", "100MiB"}}},
        {"replay", {{"file", path("run.trace")}, {"allocator", "bfc"}}},
        {"list", {{"what", "models"}}},
        {"list", {{"what", "presets"}}},
        {"list", {{"what", "optimizers"}}},
        {"list", {{"what", "optimizer-bytes"}}},
        {"list", {{"what", "settings"}}},
        {"list", {{"what", "gpus"}}},
        {"list", {{"what", "overheads"}}},
        {"list", {{"what", "schemas"}}},
        {"list", {{"what", "ai-toolkit"}}},
        {"doctor", Json::object()},
        {"schema", {{"verb", "plan"}}},
        {"version", Json::object()}};
  }

  fs::path folder_ = fs::temp_directory_path() / ("plimsoll_schemas_" + std::to_string(getpid()));
};

TEST_F(Schemas, HoldForRequestsAndAnswers) {
  const char* kept = getenv("PLIMSOLL_KEEP_ANSWERS");  // a folder for them, to write a schema from
  size_t number = 0;
  for (const auto& [verb, request] : questions()) {
    SCOPED_TRACE(verb + " " + request.dump());
    Json answer;
    ASSERT_NO_THROW(ask(verb, request.dump(), answer));
    if (kept) std::ofstream(fs::path(kept) / (verb + "." + std::to_string(number++) + ".json")) << answer.dump(1);
    ASSERT_GE(answer.size(), 2u);
    EXPECT_EQ(answer.begin().key(), "schema");
    EXPECT_EQ((++answer.begin()).key(), "command");
    EXPECT_EQ(answer["command"], verb);
    EXPECT_EQ(problems(request_schema(verb, find_verb(verb).keys()), request), std::vector<std::string>{});
    const std::string text(answer_schema(verb));
    ASSERT_NE(text, "") << "schemas/" << verb << ".json is missing";
    const Json schema = Json::parse(text);
    EXPECT_EQ(problems(schema, answer), std::vector<std::string>{});
    for (const auto& [key, value] : answer.items())
      EXPECT_TRUE(schema["properties"].contains(key)) << "schemas/" << verb << ".json does not know '" << key << "'";
  }
}

TEST_F(Schemas, EveryVerbThatAnswersHasOneAndAQuestionHere) {
  for (const Verb& v : verbs()) {
    if (!v.answer) continue;
    EXPECT_NE(answer_schema(v.name), "") << v.name;
    bool asked = false;
    for (const auto& [verb, request] : questions()) asked |= verb == v.name;
    EXPECT_TRUE(asked) << v.name;
  }
}

TEST_F(Schemas, RefuseWhatTheVerbRefuses) {
  const Json schema = request_schema("plan", find_verb("plan").keys());
  for (const char* request :
       {R"({"gaol": "memory"})", R"({"num_gpus": 0})", R"({"keep": 3})", R"({"flags": "yes"})", R"({"gpus": "some"})"}) {
    EXPECT_FALSE(problems(schema, Json::parse(request)).empty()) << request;
    Json answer;
    EXPECT_THROW(ask("plan", request, answer), Error) << request;
  }
}

}  // namespace
}  // namespace plimsoll::schema_test
