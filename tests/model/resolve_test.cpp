// What a job says beside the name of its model: why there is none, and sizes that the model would not read.
#include <gtest/gtest.h>

#include <filesystem>

#include "estimate/estimate.h"
#include "formats/input.h"
#include "report/estimate_report.h"
#include "shown.h"
#include "support.h"
#include "trace/trace_file.h"
#include "weights_files.h"

namespace plimsoll::resolve_test {
namespace {

std::string error_of_input(const std::vector<std::string>& words) {
  return error_of([&] {
    Job job;
    read_input(job, words);
    resolve_model(job);
  });
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

TEST(NoModel, SaysWhatWasRefused) {
  const std::string size = error_of_input({"python train.py --vram 8gb --model_size gigantic"});
  EXPECT_TRUE(says(size, "--model_size = gigantic")) << size;
  EXPECT_TRUE(says(size, "the choices of --model_size")) << size;
  const std::string file = error_of_input({"python train.py --config nowhere.json"});
  EXPECT_TRUE(says(file, "nowhere.json is not here")) << file;
  const std::string required = error_of_input({"accelerate launch train_stdiff.py --seed 1"});
  EXPECT_TRUE(says(required, "train_stdiff.py asks for --train_config")) << required;
  const std::string trainer = error_of_input({"python train.py --per_device_train_batch_size 2 --config nowhere.yaml"});
  EXPECT_TRUE(says(trainer, "the file nowhere.yaml: it is not here")) << trainer;
}

TEST(NoModel, WithoutAnyInputIsWrongUsage) {
  Job job;
  try {
    resolve_model(job);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    EXPECT_EQ(std::string(e.what()), "[model] no model was named");
  }
}

TEST(NoModel, ListsNotMoreThanAFewCauses) {
  Job job;
  for (int i = 0; i < 9; ++i) job.findings.push_back({Effect::unknown, "", "x.yaml", "cause " + std::to_string(i), ""});
  job.findings.push_back({Effect::note, "", "x.yaml", "good to know", ""});
  const std::string text = error_of([&] { resolve_model(job); });
  EXPECT_TRUE(says(text, "cause 0") && says(text, "cause 4") && says(text, "and 4 more")) << text;
  EXPECT_FALSE(says(text, "cause 5") || says(text, "good to know")) << text;
}

TEST(Seq, IsRefusedWhereNothingWouldReadIt) {
  for (const char* model : {"wan2.1-1.3b", "hunyuan-video", "stdiff", "stdiff-kitti-64x512", "fsdm", "fsdm-lag"}) {
    for (const nlohmann::json& settings :
         {nlohmann::json{{"seq", 256}}, nlohmann::json{{"lengths", {5, 6}}}, nlohmann::json{{"longest", 9}}}) {
      const std::string text = error_of([&] { job_of(model, settings); });
      EXPECT_TRUE(says(text, settings.begin().key())) << model << " " << text;
      EXPECT_TRUE(says(text, "--config")) << model << " " << text;
    }
    EXPECT_NO_THROW(job_of(model, {{"batch", 1}})) << model;
  }
  EXPECT_TRUE(says(error_of([] { job_of("wan2.1-1.3b", {{"seq", 256}}); }), "height=480 --config width=832"));
  EXPECT_THROW(job_of("flux-dev", {{"seq", 256}, {"config", {{"height", 512}, {"width", 512}}}}), Error);
}

TEST(Seq, IsTheSideThatTheConfigurationLeavesOut) {
  EXPECT_EQ(job_of("wan", {{"seq", 256}}).seq, 256);
  EXPECT_EQ(job_of("flux-dev", {{"seq", 256}, {"config", {{"height", 512}}}}).seq, 256);
}

TEST(Seq, OfLatentsIsAMultipleOfTheirPixels) {
  const nlohmann::json small{{"block_out_channels", {32, 64}},
                             {"down_block_types", {"DownBlock2D", "CrossAttnDownBlock2D"}},
                             {"up_block_types", {"CrossAttnUpBlock2D", "UpBlock2D"}},
                             {"cross_attention_dim", 32},
                             {"layers_per_block", 1}};
  const auto run = [&](int64_t side) {
    return error_of([&] { estimate(job_of("unet2d-condition", {{"seq", side}, {"config", small}}), 0); });
  };
  EXPECT_EQ(run(96), "");
  EXPECT_TRUE(says(run(100), "height 100 is not a multiple of 8 pixels")) << run(100);
  EXPECT_TRUE(says(run(100), "take 96 or 104")) << run(100);
  EXPECT_TRUE(says(run(7), "take 8")) << run(7);
}

TEST(HowSure, OfAnUnknownArchitectureIsNotThatOfAnExecutedOne) {
  const TemporaryFolder folder("how_sure");
  const auto text_of = [](const std::string& model) {
    Job job = job_of(model, {{"seq", 16}});
    return shown(estimate_document(estimate(job, 0)));
  };
  const std::string weights = text_of(folder.write("w.safetensors", safetensors_bytes({{"embed.weight", {50, 8}}, {"a.weight", {8, 8}}})));
  EXPECT_TRUE(says(weights, "How sure: the architecture is not known.")) << weights;
  EXPECT_TRUE(says(weights, "those of its weights")) << weights;
  EXPECT_FALSE(says(weights, "executed op by op")) << weights;
  const std::string sizes = text_of(
      folder.write("alone/config.json",
                   R"({"architectures":["NewForCausalLM"],"model_type":"new","hidden_size":16,"num_hidden_layers":1,"vocab_size":50})"));
  EXPECT_TRUE(says(sizes, "A plain decoder of the same sizes was executed instead")) << sizes;
  EXPECT_TRUE(says(text_of("gpt2"), "executed op by op"));
}

TEST(InputDirectory, LinksToNowhereAreNoConfigurations) {
  const TemporaryFolder folder("links");
  folder.write("config.json", R"({"model_type":"gpt2"})");
  std::filesystem::create_symlink("loop.json", folder.path("loop.json"));
  std::filesystem::create_symlink("nowhere.yaml", folder.path("link.yaml"));
  Job job;
  EXPECT_NO_THROW(read_input_directory(job, folder.path()));
  EXPECT_FALSE(job.model.empty());
}

// No file system has it, and asking for it is not even answered with "no".
TEST(InputDirectory, NorIsANameBeyondAllLengths) {
  const std::string name(10'000, 'x');
  EXPECT_FALSE(error_of([&] { read_trace(name); }).empty());
  EXPECT_FALSE(error_of_input({name}).empty());
  EXPECT_FALSE(error_of_input({"python train.py --per_device_train_batch_size 1 --config " + name}).empty());
  EXPECT_FALSE(error_of_input({"python train_stdiff.py --train_config " + name}).empty());
}

TEST(InputDirectory, ThatCannotBeReadIsAnError) {
  Job job;
  const std::string text = error_of([&] { read_input_directory(job, "/nowhere/at/all"); });
  EXPECT_TRUE(says(text, "cannot list /nowhere/at/all")) << text;
}

}  // namespace
}  // namespace plimsoll::resolve_test
