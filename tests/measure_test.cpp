// Real training, by running the program: what it prints, what it refuses, and that a run that was stopped ends where one that was not does.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Result {
  int code = 0;
  std::string out;
};

Result run(const std::string& arguments, const std::string& before = "") {
  const std::string command = before + "'" PLIMSOLL_BINARY "' measure " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Result r;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) r.out.append(buffer, n);
  r.code = WEXITSTATUS(pclose(pipe));
  return r;
}

Json document(const std::string& arguments) {
  const Result r = run(arguments + " --json");
  const Json j = Json::parse(r.out, nullptr, false);
  EXPECT_TRUE(j.is_object()) << r.out;
  return j.is_object() ? j : Json::object();
}

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const std::string kMamba =
    "mamba-trainer --config d_model=32 --config n_layers=2 --config d_state=4 --config vocab_size=256 --config max_seq_len=24 --seq 24 "
    "--batch 4 --precision fp32 ";
const std::string kGsa =
    "gsa --config d_model=32 --config n_layers=2 --config n_heads=4 --config n_kv_heads=2 --config d_ffn=64 --config vocab_size=256 "
    "--config max_position_embeddings=32 --config d_indexer=8 --config n_indexer_heads=2 --config k_base=8 --config k_min=4 --config "
    "k_max=16 --seq 24 "
    "--batch 4 --precision fp32 ";
const std::string kFsdm =
    "fsdm --config sample_size=2 --config image_size=8 --config hidden_size=32 --config depth=2 --config num_heads=4 --config hdim=32 "
    "--config encoder_depth=1 --config encoder_heads=2 --config encoder_dim_head=8 --batch 4 --precision fp32 ";

const std::string kUnet =
    "unet2d-condition --config block_out_channels=32+64 --config down_block_types=CrossAttnDownBlock2D+DownBlock2D "
    "--config up_block_types=UpBlock2D+CrossAttnUpBlock2D --config attention_head_dim=2 --config cross_attention_dim=64 --seq 64 --batch 1 "
    "--precision fp32 --lora r=4,target_modules=to_q+to_v ";

class Measure : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(fs::path(PLIMSOLL_BINARY).parent_path() / "plimsoll-measure")) GTEST_SKIP() << "built without libtorch";
    folder_ = fs::temp_directory_path() / ("plimsoll_measure_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

const std::string kData = PLIMSOLL_SOURCE_DIR "/tests/data/measure";

TEST_F(Measure, LossFallsOnText) {
  for (const std::string& model : {kMamba, kGsa}) {
    const Json j = document(model + "--steps 12 --lr 0.01 --config dropout=0 --data_dir " + kData + "/text");
    EXPECT_LT(j["steps"].back()["loss"].get<double>(), 0.8 * j["steps"].front()["loss"].get<double>()) << model;
  }
}

TEST_F(Measure, LossFallsOnPictures) {
  const Json j = document(kFsdm + "--steps 12 --lr 0.003 --data_dir " + kData + "/images");
  EXPECT_LT(j["steps"].back()["loss"].get<double>(), 0.9 * j["steps"].front()["loss"].get<double>());
}

TEST_F(Measure, EveryAllocationOfMambaIsTheSimulatedOne) {
  for (const char* recipe : {"", "--checkpointing ", "--accumulation 2 --clip 1 "}) {
    const Result r = run(kMamba + recipe + "--walk");
    EXPECT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find("Every allocation is the same"), std::string::npos) << r.out;
  }
}

TEST_F(Measure, PeaksOfTheOthersAreTheSimulatedOnes) {
  for (const std::string& model : {kGsa, kFsdm, kUnet, kUnet + "--checkpointing "}) {
    const Result r = run(model + "--compare");
    EXPECT_EQ(r.code, 0) << model << "\n" << r.out;
  }
}

TEST_F(Measure, AScanThatIsNotSimulatedIsNotCompared) { EXPECT_EQ(run(kMamba + "--compare --scan chunked").code, 2); }

TEST_F(Measure, AChunkedScanTakesLess) {
  const int64_t whole = document(kMamba)["peak"], chunked = document(kMamba + "--scan chunked --chunk 4")["peak"];
  EXPECT_LT(chunked, whole);
}

TEST_F(Measure, TheTraceOfARunIsReplayed) {
  ASSERT_EQ(run(kMamba + "--save-trace " + file("run.trace")).code, 0);
  const std::string command = "'" PLIMSOLL_BINARY "' replay " + file("run.trace") + " > /dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(Measure, AStoppedRunEndsWhereAWholeOneDoes) {
  const std::string whole = file("whole.safetensors"), parts = file("parts.safetensors");
  ASSERT_EQ(run(kMamba + "--steps 4 --checkpoint " + whole).code, 0);
  ASSERT_EQ(run(kMamba + "--steps 2 --checkpoint " + parts).code, 0);
  ASSERT_EQ(run(kMamba + "--steps 4 --resume --checkpoint " + parts).code, 0);
  EXPECT_EQ(bytes_of(whole), bytes_of(parts));
  EXPECT_FALSE(bytes_of(whole).empty());
}

TEST_F(Measure, UnderATooSmallBudgetItFinishesInSmallerMicroBatches) {
  const Json free = document(kMamba + "--config dropout=0 --steps 2");
  const int64_t limit = free["peak"].get<int64_t>() * 6 / 10;
  const Result refused = run(kMamba + "--config dropout=0 --limit " + std::to_string(limit));
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.out.find("--auto-scale"), std::string::npos) << refused.out;
  const Json scaled = document(kMamba + "--config dropout=0 --steps 2 --auto-scale --limit " + std::to_string(limit));
  ASSERT_EQ(scaled["steps"].size(), 2u);
  EXPECT_LT(scaled["steps"][1]["micro_batch"], 4);
  EXPECT_LE(scaled["peak"].get<int64_t>(), limit);
  EXPECT_NEAR(scaled["steps"][1]["loss"].get<double>(), free["steps"][1]["loss"].get<double>(), 1e-5);
}

TEST_F(Measure, ALimitBelowTheWeightsIsNamed) {
  const Result r = run(kMamba + "--limit 10000");
  EXPECT_EQ(r.code, 3);
  EXPECT_NE(r.out.find("the weights do not fit"), std::string::npos) << r.out;
}

TEST_F(Measure, AFolderThatIsNotThereIsNamed) {
  const Result r = run(kMamba + "--data_dir /nowhere/at/all");
  EXPECT_EQ(r.code, 5);
  EXPECT_NE(r.out.find("/nowhere/at/all"), std::string::npos) << r.out;
}

TEST_F(Measure, PicturesThatAreNoneAreNamed) {
  std::ofstream(file("broken.ppm")) << "P6\n999999 999999\n255\n";
  const Result r = run(kFsdm + "--data_dir " + folder_.string());
  EXPECT_EQ(r.code, 5);
  EXPECT_NE(r.out.find("broken.ppm"), std::string::npos) << r.out;
}

TEST_F(Measure, AFullDiskLeavesTheCheckpointBefore) {
  const std::string path = file("run.safetensors");
  ASSERT_EQ(run(kMamba + "--steps 1 --checkpoint " + path).code, 0);
  const std::string before = bytes_of(path);
  const Result r = run(kMamba + "--steps 2 --resume --checkpoint " + path, "ulimit -f 8; ");
  EXPECT_EQ(r.code, 5) << r.out;
  EXPECT_NE(r.out.find("untouched"), std::string::npos) << r.out;
  EXPECT_EQ(bytes_of(path), before);
  EXPECT_FALSE(fs::exists(path + ".part"));
}

TEST_F(Measure, ACheckpointOfAnotherModelIsRefused) {
  const std::string path = file("other.safetensors");
  ASSERT_EQ(run(kMamba + "--steps 1 --checkpoint " + path).code, 0);
  EXPECT_EQ(run(kGsa + "--steps 2 --resume --checkpoint " + path).code, 5);
  std::ofstream(path, std::ios::binary) << "not one";
  EXPECT_EQ(run(kMamba + "--steps 2 --resume --checkpoint " + path).code, 5);
}

TEST_F(Measure, ModelsThatAreOnlySimulatedSaySo) {
  const Result r = run("gpt2");
  EXPECT_EQ(r.code, 5);
  EXPECT_NE(r.out.find("mamba-trainer"), std::string::npos) << r.out;
}

}  // namespace
