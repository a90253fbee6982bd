// Real training, by running the program: what it prints, what it refuses, and that a run that was stopped ends where one that was not does.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "json_schema.h"

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
  const Json j = Json::parse(r.out.substr(std::min(r.out.find('{'), r.out.size())), nullptr, false);  // after what stderr said
  EXPECT_TRUE(j.is_object()) << r.out;
  if (!j.is_object()) return Json::object();
  std::ifstream described(PLIMSOLL_SOURCE_DIR "/schemas/measure.json");
  EXPECT_EQ(plimsoll::JsonSchema(nlohmann::ordered_json::parse(described)).problems(nlohmann::ordered_json::parse(j.dump())),
            std::vector<std::string>{});
  return j;
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

const std::string kStdiff =
    "stdiff --config H=8 --config Wd=8 --config To=2 --config Tp=2 --config ch=32+32 --config head=32 --config layers_per_block=1 "
    "--config model_channels=4 --config n_downs=1 --config dt=0.5 --config xformers_on=false --batch 2 --precision fp32 ";

class Measure : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(fs::path(PLIMSOLL_BINARY).parent_path() / "plimsoll-measure")) GTEST_SKIP() << "built without libtorch";
    folder_ = fs::temp_directory_path() / ("plimsoll_measure_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    setenv("XDG_STATE_HOME", folder_.c_str(), 1);  // what is kept of runs
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

// The noise is another one in each step, so that ends are averaged.
TEST_F(Measure, LossFallsOnPictures) {
  const std::string whole_unet = kUnet.substr(0, kUnet.find("--lora"));
  for (const std::string& model : {kFsdm, kStdiff, whole_unet}) {
    const Json j = document(model + "--steps 12 --lr 0.003 --data_dir " + kData + "/images");
    ASSERT_EQ(j["steps"].size(), 12u) << model;
    const auto mean = [&](size_t from) {
      double sum = 0;
      for (size_t i = from; i < from + 3; ++i) sum += j["steps"][i]["loss"].get<double>() / 3;
      return sum;
    };
    EXPECT_LT(mean(9), 0.9 * mean(0)) << model;
  }
}

TEST_F(Measure, EveryAllocationOfMambaIsTheSimulatedOne) {
  for (const char* recipe : {"", "--checkpointing ", "--accumulation 2 --clip 1 "}) {
    const Result r = run(kMamba + recipe + "--walk");
    EXPECT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find("Every allocation is the same"), std::string::npos) << r.out;
  }
}

TEST_F(Measure, EveryAllocationOfTheOthersIsTheSimulatedOne) {
  const std::string kohya = kUnet.substr(0, kUnet.find("--lora")) + "--lora r=4,target_modules=to_q+proj_in+conv1 ";
  const auto autocast = [](const std::string& model) { return model.substr(0, model.find("--precision")) + "--precision amp "; };
  std::string wide_stdiff = kStdiff;  // gradients of 64 x 64, copied in blocks
  wide_stdiff.replace(wide_stdiff.find("32+32"), 5, "32+64");
  const std::string one_set = kFsdm.substr(0, kFsdm.find("--batch")) + "--batch 1 --precision fp32 ";  // a time for all images, expanded
  for (const std::string& model : {kGsa, autocast(kGsa), kFsdm, one_set, wide_stdiff, autocast(kStdiff), kUnet, kUnet + "--checkpointing ",
                                   kUnet + "--ema-update ai-toolkit ", kUnet + "--ema-update diffusers ", kohya}) {
    const Result r = run(model + "--walk");
    EXPECT_EQ(r.code, 0) << model << "\n" << r.out;
    EXPECT_NE(r.out.find("Every allocation is the same"), std::string::npos) << model << "\n" << r.out;
  }
}

// The next run of the same job expects what this one took.
TEST_F(Measure, ARunTellsTheNextOne) {
  EXPECT_EQ(document(kMamba)["expected"].count("measured_before"), 0u);
  const Json next = document(kMamba);
  EXPECT_EQ(next["expected"]["bytes"], next["peak"]);
  EXPECT_EQ(next["expected"]["measured_before"]["runs"], 1);
  EXPECT_GT(next["expected"]["step_seconds"], 0);
  EXPECT_EQ(document(kMamba + "--no-calibration")["expected"].count("measured_before"), 0u);
  EXPECT_NE(bytes_of(folder_ / "plimsoll" / "measured.jsonl").find("\"source\":\"measure\""), std::string::npos);
}

TEST_F(Measure, EveryAllocationOfAChunkedScanIsTheSimulatedOne) {
  for (const char* recipe : {"--chunk 8 ", "--chunk 7 --checkpointing "}) {  // three chunks, and a rest
    const Result r = run(kMamba + "--scan chunked --walk " + recipe);
    EXPECT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find("Every allocation is the same"), std::string::npos) << r.out;
  }
}

TEST_F(Measure, AChunkedScanTakesLess) {
  const int64_t whole = document(kMamba)["peak"], chunked = document(kMamba + "--scan chunked --chunk 4")["peak"];
  EXPECT_LT(chunked, whole);
}

TEST_F(Measure, TheTraceOfARunIsReplayedAndReported) {
  ASSERT_EQ(run(kMamba + "--save-trace " + file("run.trace")).code, 0);
  for (const char* verb : {"replay ", "report "}) {
    const std::string command = "'" PLIMSOLL_BINARY "' " + std::string(verb) + file("run.trace") + " > " + file("out") + " 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << bytes_of(file("out"));
  }
  EXPECT_NE(bytes_of(file("out")).find("optimizer state"), std::string::npos) << bytes_of(file("out"));
}

TEST_F(Measure, AStoppedRunEndsWhereAWholeOneDoes) {
  const std::string whole = file("whole.safetensors"), parts = file("parts.safetensors");
  ASSERT_EQ(run(kMamba + "--steps 4 --checkpoint " + whole).code, 0);
  ASSERT_EQ(run(kMamba + "--steps 2 --checkpoint " + parts).code, 0);
  ASSERT_EQ(run(kMamba + "--steps 4 --resume --checkpoint " + parts).code, 0);
  EXPECT_EQ(bytes_of(whole), bytes_of(parts));
  EXPECT_FALSE(bytes_of(whole).empty());
}

// Steps are saved one by one; the process is killed after a while that grows, until one lives to the end. tests/run/kill_measure does so at
// random points, as often as one likes.
TEST_F(Measure, KilledAtAnyPointItEndsWhereAWholeOneDoes) {
  int killed = 0;
  for (const std::string& model : {kMamba, kGsa, kFsdm, kStdiff, kUnet}) {
    const std::string whole = file("whole"), parts = file("parts"),
                      job = model + "--workers 2 --ema --steps 4 --save-every 1 --checkpoint ";
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(run(job + whole).code, 0);
    const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (int attempt = 0; attempt < 40; ++attempt) {
      const std::string resume = fs::exists(parts) ? " --resume" : "", seconds = std::to_string(all * (0.6 + 0.2 * attempt));
      const Result r = run(job + parts + resume, "timeout -s KILL " + seconds + " ");
      if (r.code == 0) break;
      ASSERT_EQ(r.code, 137) << r.out;
      ++killed;
    }
    EXPECT_EQ(bytes_of(whole), bytes_of(parts)) << model;
    fs::remove(parts);
  }
  EXPECT_GT(killed, 0);
}

TEST_F(Measure, WorkersChangeNothing) {
  for (const std::string& model : {kFsdm, kStdiff, kMamba}) {
    const std::string alone = file("alone"), helped = file("helped");
    ASSERT_EQ(run(model + "--steps 2 --checkpoint " + alone).code, 0);
    ASSERT_EQ(run(model + "--steps 2 --workers 3 --prefetch-factor 1 --checkpoint " + helped).code, 0);
    EXPECT_EQ(bytes_of(alone), bytes_of(helped)) << model;
  }
}

// An evaluation in batches that do not fit gets smaller ones; training keeps its own.
TEST_F(Measure, AnEvaluationThatRunsOutLeavesTrainingAsItIs) {
  const std::string job = kMamba + "--steps 2 --eval-every 1 --eval-samples 64 --eval-batch ";
  const Json free = document(job + "4");
  const std::string limit = " --limit " + std::to_string(free["peak"].get<int64_t>() + 1000);
  const Result refused = run(job + "64" + limit);
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.out.find("evaluation after step 1"), std::string::npos) << refused.out;
  const Json scaled = document(job + "64 --auto-scale" + limit);
  ASSERT_EQ(scaled["steps"].size(), 2u);
  EXPECT_GT(scaled["steps"][0]["evaluation"]["out_of_memory"], 0);
  EXPECT_LT(scaled["steps"][0]["evaluation"]["batch"], 64);
  EXPECT_EQ(scaled["steps"][1]["evaluation"]["out_of_memory"], 0) << "the size that fits is kept";
  for (const Json& step : scaled["steps"]) {
    EXPECT_EQ(step["micro_batch"], 4);
    EXPECT_EQ(step["out_of_memory"], 0);
  }
  EXPECT_NEAR(scaled["steps"][1]["evaluation"]["loss"].get<double>(), free["steps"][1]["evaluation"]["loss"].get<double>(), 1e-5);
}

TEST_F(Measure, TheSizeAfterAnErrorIsTheSimulatedOne) {
  const std::string job = kMamba.substr(0, kMamba.find("--batch")) + "--precision fp32 --config dropout=0 --steps 2 --batch ";
  const int64_t four = document(job + "4 --accumulation 2")["peak"];
  const Json scaled = document(job + "16 --auto-scale --limit " + std::to_string(four + 1000));
  ASSERT_EQ(scaled["steps"].size(), 2u);
  EXPECT_EQ(scaled["steps"][0]["out_of_memory"], 1) << "no second try";
  EXPECT_NE(scaled["steps"][0]["decision"].get<std::string>().find("by simulation"), std::string::npos) << scaled;
  EXPECT_EQ(scaled["steps"][1]["micro_batch"], 4) << scaled;
}

TEST_F(Measure, ALimitFromAStepOnHoldsForAResumedRun) {
  const std::string path = file("run.safetensors");
  ASSERT_EQ(run(kMamba + "--steps 3 --checkpoint " + path).code, 0);
  const Result r = run(kMamba + "--steps 4 --resume --limit-from 2=1MiB --checkpoint " + path);
  EXPECT_EQ(r.code, 3) << r.out;
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

// Adam's first state after one step is its share of the gradient.
TEST_F(Measure, GradientsAreTheSameInSmallerMicroBatches) {
  const std::string whole = file("whole"), parts = file("parts");
  const std::string model = kStdiff.substr(0, kStdiff.find("--batch")), precision = " --precision fp32 --steps 1 --checkpoint ";
  ASSERT_EQ(run(model + "--batch 3" + precision + whole).code, 0);
  ASSERT_EQ(run(model + "--batch 1 --accumulation 3" + precision + parts).code, 0);
  const std::string a = bytes_of(whole), b = bytes_of(parts);
  const auto header = [](const std::string& file) {
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    return std::pair{Json::parse(file.substr(8, length)), 8 + length};
  };
  const auto [names, begin] = header(a);
  const uint64_t begin_b = header(b).second;
  double off = 0, all = 0;
  for (const auto& [name, entry] : names.items()) {
    if (!name.starts_with("optimizer.exp_avg.")) continue;
    for (uint64_t at = entry["data_offsets"][0]; at < entry["data_offsets"][1].get<uint64_t>(); at += 4) {
      float x = 0, y = 0;
      std::memcpy(&x, &a[begin + at], 4);
      std::memcpy(&y, &b[begin_b + at], 4);
      off += (x - y) * (x - y);
      all += x * x;
    }
  }
  EXPECT_GT(all, 0);
  EXPECT_LT(off, 1e-10 * all);  // 1e-5 of its length
}

// Too small at first; then a neighbour leaves.
TEST_F(Measure, MicroBatchesGrowWhenThereIsRoomAgain) {
  const std::string job = kMamba + "--config dropout=0 --steps 9 ";
  const Json free = document(job);
  const int64_t peak = free["peak"];
  const Json grown = document(job + "--auto-scale --grow --grow-after 2 --limit " + std::to_string(peak * 6 / 10) +
                              " --limit-from 5=" + std::to_string(2 * peak));
  ASSERT_EQ(grown["steps"].size(), 9u);
  EXPECT_LT(grown["steps"][3]["micro_batch"], 4);
  EXPECT_EQ(grown["steps"][8]["micro_batch"], 4);
  EXPECT_EQ(grown["steps"][4]["limit"], 2 * peak);
  bool said = false;
  for (const Json& step : grown["steps"]) said |= step["decision"].get<std::string>().find("are expected with") != std::string::npos;
  EXPECT_TRUE(said) << grown;
  for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(grown["steps"][i]["loss"].get<double>(), free["steps"][i]["loss"].get<double>(), 1e-4) << i;
  EXPECT_EQ(run(kMamba + "--limit-from tomorrow").code, 2);
}

TEST_F(Measure, TheRecipeIsTheTrainersOwn) {
  const std::string small = " --config d_model=16 --config n_layers=1 --config vocab_size=64 --seq 8 --batch 1 --accumulation 1 --steps 1";
  const auto recipe = [&](const std::string& arguments) { return document(arguments + small)["recipe"]; };
  EXPECT_EQ(recipe("mamba-trainer").dump(), R"({"betas":[0.9,0.95],"eps":1e-08,"lr":0.0003,"weight_decay":0.1})");
  EXPECT_EQ(recipe("--model_size small --vram 8gb --training_preset fast")["lr"], 5e-4);
  EXPECT_EQ(recipe("--model_size small --vram 8gb --training_preset careful --lr 0.5")["lr"], 0.5);
  EXPECT_EQ(recipe("mamba-trainer --optimizer-args lr=0.25 --optimizer-args eps=0.5")["eps"], 0.5);
  std::ofstream(file("own.json")) << R"({"model": {"d_model": 16, "n_layers": 1, "max_seq_len": 8}, "vram": {"batch_size": 1,
    "gradient_accumulation_steps": 1}, "training": {"learning_rate": 0.002, "weight_decay": 0.3, "adam_beta2": 0.5}})";
  for (const std::string& way : {file("own.json"), "--config " + file("own.json")})
    EXPECT_EQ(recipe(way).dump(), R"({"betas":[0.9,0.5],"eps":1e-08,"lr":0.002,"weight_decay":0.3})") << way;
}

// Recursion and attention at three scales; the preset's depth with fewer tokens and a narrower model.
TEST_F(Measure, HybridPresetsTrain) {
  for (const char* preset : {"hybrid-small", "hybrid-medium"}) {
    const Json j =
        document(std::string("--model_size ") + preset +
                 " --vram 8gb --config d_model=32 --config n_layers=2 --config vocab_size=256 --config dropout=0 --seq 16 --batch 2 "
                 "--accumulation 1 --steps 8 --lr 0.01 --precision fp32 --data_dir " +
                 kData + "/text");
    ASSERT_EQ(j["steps"].size(), 8u) << preset;
    EXPECT_LT(j["steps"].back()["loss"].get<double>(), 0.9 * j["steps"].front()["loss"].get<double>()) << preset;
  }
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

TEST_F(Measure, PicturesOfAllKindsAreRead) {
  const auto losses = [&](const std::string& folder) { return document(kFsdm + "--steps 2 --data_dir " + folder)["steps"][1]["loss"]; };
  for (const char* folder : {"ppm", "png", "jpeg", "npy"}) fs::create_directory(folder_ / folder);
  fs::copy(kData + "/images/ball_0.ppm", folder_ / "ppm");
  fs::copy(kData + "/photos/ball_0.png", folder_ / "png");
  fs::copy(kData + "/photos/ball_1.jpg", folder_ / "jpeg");
  std::ofstream(folder_ / "png" / "caption.txt") << "a ball";
  EXPECT_EQ(losses(file("ppm")), losses(file("png"))) << "the same pixels";
  EXPECT_NE(losses(file("ppm")), losses(file("jpeg")));
  EXPECT_EQ(run(kFsdm + "--steps 1 --data_dir " + kData + "/photos").code, 0) << "grey and colour, .JPEG and .bmp";
  EXPECT_EQ(run(kMamba + "--steps 1 --data_dir " + file("png")).code, 0) << "text beside a picture";
  EXPECT_EQ(run(kMamba + "--steps 1 --data_dir " + file("jpeg")).code, 5) << "a picture is no text";
  for (const char* bad : {"cut.png", "cut.jpg", "cut.npy"}) {
    fs::remove_all(folder_ / "npy");
    fs::create_directory(folder_ / "npy");
    std::ofstream(folder_ / "npy" / bad) << bytes_of(kData + "/photos/" + (bad[4] == 'j' ? "ball_1.jpg" : "ball_0.png")).substr(0, 60);
    const Result r = run(kFsdm + "--workers 2 --data_dir " + file("npy"));
    EXPECT_EQ(r.code, 5) << r.out;
    EXPECT_NE(r.out.find(bad), std::string::npos) << r.out;
  }
}

TEST_F(Measure, AFlagThatNeedsAnotherSaysSo) {
  for (const char* alone :
       {"--resume", "--save-every 2", "--grow", "--eval-samples 3", "--chunk 4", "--scan backwards", "--limit 0", "--limit -3"})
    EXPECT_EQ(run(kMamba + alone).code, std::string(alone).starts_with("--limit") ? 5 : 2) << alone;
  EXPECT_EQ(run(kMamba + "--checkpoint /nowhere/at/all/run --steps 100000").code, 5) << "before the first step";
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

// A real one: a file system of its own that has room for one checkpoint, not for two.
TEST_F(Measure, AFullFileSystemLeavesTheCheckpointBefore) {
  const std::string disk = file("disk"), job = "'" PLIMSOLL_BINARY "' measure " + kMamba;
  fs::create_directories(disk);
  ASSERT_EQ(run(kMamba + "--steps 1 --checkpoint " + file("probe")).code, 0);
  const std::string size = std::to_string(fs::file_size(file("probe")) * 3 / 2 / 1024);
  const std::string mounted = "unshare -m sh -c \"mount -t tmpfs -o size=" + size + "k tmpfs " + disk + " ";
  if (std::system((mounted + "\" 2>/dev/null").c_str()) != 0) GTEST_SKIP() << "a file system can only be mounted by root";
  const std::string command = mounted + "&& " + job + "--steps 1 --checkpoint " + disk + "/run && cp " + disk + "/run " + file("before") +
                              " && " + job + "--steps 2 --resume --checkpoint " + disk + "/run; code=\\$?; cp " + disk + "/run " +
                              file("after") + "; ls " + disk + " | wc -l > " + file("left") + "; exit \\$code\" > " + file("said") +
                              " 2>&1";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 5) << bytes_of(file("said"));
  EXPECT_NE(bytes_of(file("said")).find("No space left on device"), std::string::npos) << bytes_of(file("said"));
  EXPECT_FALSE(bytes_of(file("before")).empty());
  EXPECT_EQ(bytes_of(file("before")), bytes_of(file("after")));
  EXPECT_EQ(std::stoi(bytes_of(file("left"))), 1) << "no .part";
}

TEST_F(Measure, AFolderThatMayNotBeReadIsNamed) {
  const bool root = geteuid() == 0;
  const std::string as_nobody = root ? "setpriv --reuid=65534 --regid=65534 --clear-groups env XDG_STATE_HOME=/nowhere " : "";
  if (std::system((as_nobody + "'" PLIMSOLL_BINARY "' --version > /dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "another user cannot start the program here";
  const std::string data = file("data"), closed = data + "/closed";
  fs::create_directories(closed);
  std::ofstream(data + "/a.txt") << "text that may not be read";
  std::ofstream(closed + "/b.txt") << "text";
  fs::permissions(folder_, fs::perms::all);
  const auto refused = [&](const std::string& path) {
    fs::permissions(path, fs::perms::none);
    const Result r = run(kMamba + "--data_dir " + data, as_nobody);
    fs::permissions(path, fs::perms::all);
    EXPECT_EQ(r.code, 5) << path << r.out;
    EXPECT_NE(r.out.find("cannot read " + (path == closed ? data : path)), std::string::npos) << r.out;
  };
  refused(data);
  refused(closed);
  refused(data + "/a.txt");
}

TEST_F(Measure, DataThatIsNoneIsNamed) {
  fs::create_directories(file("empty"));
  for (const std::string& model : {kMamba, kFsdm}) {
    const Result r = run(model + "--data_dir " + file("empty"));
    EXPECT_EQ(r.code, 5);
    EXPECT_NE(r.out.find("/empty holds no "), std::string::npos) << r.out;
  }
  const auto array = [&](const std::string& type, const std::string& values) {
    fs::remove_all(file("array"));
    fs::create_directories(file("array"));
    std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (1, 1, 2), }";
    header.resize(117, ' ');
    std::ofstream(file("array") + "/a.npy", std::ios::binary) << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << '\n' << values;
    return run(kFsdm + "--data_dir " + file("array"));
  };
  EXPECT_EQ(array("<f4", std::string(8, '\0')).code, 0);
  const Result doubles = array("<f8", std::string(16, '\0'));
  EXPECT_EQ(doubles.code, 5);
  EXPECT_NE(doubles.out.find("neither float32 nor uint8"), std::string::npos) << doubles.out;
  EXPECT_EQ(array("<f4", "four").code, 5) << "shorter than its shape";
  const Result no_number = array("<f4", std::string("\x00\x00\xc0\x7f\x00\x00\xc0\x7f", 8));
  EXPECT_EQ(no_number.code, 5);
  EXPECT_NE(no_number.out.find("step 1: the loss is nan"), std::string::npos) << no_number.out;
}

TEST_F(Measure, ABrokenCheckpointIsRefused) {
  const std::string path = file("run");
  ASSERT_EQ(run(kMamba + "--steps 1 --checkpoint " + path).code, 0);
  const std::string whole = bytes_of(path);
  for (const size_t length : {size_t{0}, size_t{5}, size_t{200}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, length);
    const Result r = run(kMamba + "--steps 2 --resume --checkpoint " + path);
    EXPECT_EQ(r.code, 5) << length << r.out;
    EXPECT_NE(r.out.find(path), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("hint:"), std::string::npos) << r.out;
    EXPECT_EQ(bytes_of(path).size(), length) << "left as it is";
  }
}

// Files and commands of the published systems, with shapes that a test can pay for.
TEST_F(Measure, TheSystemsOwnFilesAreTrained) {
  const std::string seeds = PLIMSOLL_SOURCE_DIR "/examples/seeds/", once = " --batch 1 --steps 1 --precision fp32 ";
  const std::string tiny_gsa = "--seq 8 --accumulation 1 --config vocab_size=64 --config n_layers=1 --config d_ffn=32" + once;
  const auto trained = [&](const std::string& arguments, const std::string& said) {
    const Result r = run(arguments);
    EXPECT_EQ(r.code, 0) << arguments << "\n" << r.out;
    EXPECT_NE(r.out.find(said), std::string::npos) << r.out;
  };
  trained(seeds +
              "fsdm-lag.sh --config sample_size=2 --config image_size=4 --config depth=1 --config hidden_size=36 --config encoder_depth=1" +
              once,
          "one of 8 devices is trained");
  trained(seeds + "gsa-low-memory.yaml " + tiny_gsa, "gsa  ");
  trained(tiny_gsa + "-- torchrun --nproc_per_node=4 training/train.py --config " + seeds + "gsa-low-memory.yaml", "one of 4 processes");
  trained("--config " + seeds +
              "mamba-balanced-16gb.json --seq 4 --accumulation 1 --config vocab_size=64 --config d_model=16 --config n_layers=1" + once,
          "lr 0.0003");
  trained(seeds +
              "stdiff-kitti-64x2048.yaml --config height=8 --config width=8 --config ch=32+32 --config head=32 --config "
              "down_block_types=DownBlock2D+AttnDownBlock2D "
              "--config up_block_types=AttnUpBlock2D+UpBlock2D --config model_channels=4 --config m_channels=8 --config n_downs=1 --config "
              "dt=0.5 --accumulation 1" +
              once,
          "stdiff  ");
  const Result flux = run(seeds + "ai-toolkit-flux-lora.yaml");
  EXPECT_EQ(flux.code, 5);
  EXPECT_NE(flux.out.find("flux is simulated"), std::string::npos) << flux.out;
}

TEST_F(Measure, WhatIsOnlySimulatedIsRefused) {
  for (const char* setting :
       {"--compile", "--offload-activations=pinned", "--optimizer-in-backward", "--optimizer SGD", "--ema-update lerp", "--ema-place host",
        "--drop-after", "--zero-grad before-backward", "--loss logits-sum"}) {
    const Result r = run(kMamba + setting);
    EXPECT_EQ(r.code, 5) << setting << r.out;
    EXPECT_NE(r.out.find("[measure]"), std::string::npos) << setting << r.out;
  }
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
