// What `estimate` shows first: the verdict, the bar, the change, what stands out; and that it has room on a narrow terminal.
#include <gtest/gtest.h>

#include "api/estimate.h"
#include "hardware/lookup.h"
#include "report/category_look.h"
#include "report/counters.h"
#include "report/display_width.h"
#include "report/estimate_screen.h"
#include "report/headline.h"
#include "report/renderers.h"
#include "support.h"

namespace plimsoll::screen_test {
namespace {

using Json = nlohmann::json;

constexpr int64_t kGiB = int64_t{1} << 30;
Bytes gib(double n) { return {static_cast<int64_t>(n * static_cast<double>(kGiB))}; }

Fit fit_of(Verdict verdict, double needs, double low, double high, double has, const char* name = "GeForce RTX 4090") {
  Fit f;
  f.device.name = name;
  f.device.capacity = Capacity{gib(has), gib(has), gib(has), "as given"};
  f.memory.device = {gib(needs), gib(low), gib(high)};
  f.margin = gib(has) - gib(needs);
  f.verdict = verdict;
  return f;
}

bool holds(const std::string& whole, const std::string& part) { return whole.find(part) != std::string::npos; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == '\n') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  out.pop_back();
  return out;
}

std::string answer_text(const Json& request, size_t width = 120, bool unicode = true, bool colour = false) {
  std::string out;
  Style style;
  style.width = width;
  style.unicode = unicode;
  style.colour = colour;
  answer(estimate_request(request),
         Show([&](const Show::MakeDocument& document, const Show::MakeJson&) { out = doc::to_text(document(), style); }));
  return out;
}

nlohmann::ordered_json answer_json(const Json& request) {
  nlohmann::ordered_json out;
  answer(estimate_request(request), Show([&](const Show::MakeDocument&, const Show::MakeJson& json) { out = json(); }));
  return out;
}

TEST(Headline, SaysTheVerdictTheDeviceAndBothSizes) {
  EXPECT_EQ(headline_text(fit_of(Verdict::does_not_fit, 51.4, 48.8, 56.1, 23.6)),
            "does not fit RTX 4090: needs 51.4 GiB of 23.6 (48.8 to 56.1)");
  EXPECT_EQ(headline_text(fit_of(Verdict::fits, 34.1, 32.9, 36, 79.2, "a100-80gb")),
            "fits A100 80 GB: needs 34.1 of 79.2 GiB (32.9 to 36.0)");
  EXPECT_EQ(headline_text(fit_of(Verdict::tight, 78.7, 74.8, 86, 79.2, "a100-80gb")),
            "tight on A100 80 GB: needs 78.7 of 79.2 GiB (74.8 to 86.0)");
}

TEST(Headline, DoesNotPrintTwoSizesThatDifferAlike) {
  EXPECT_EQ(headline_text(fit_of(Verdict::tight, 23.61, 23, 25, 23.64)), "tight on RTX 4090: needs 23.61 of 23.64 GiB (23.00 to 25.00)");
}

TEST(Headline, SaysWhatIsMissingAndWhatOthersUse) {
  Fit f = fit_of(Verdict::unknown, 8, 7.5, 9, 23.6);
  f.reason = "the VAE is not in it";
  EXPECT_EQ(headline_text(f), "unknown whether it fits RTX 4090: the VAE is not in it; the rest needs 8.00 of 23.60 GiB (7.50 to 9.00)");
  Fit shared = fit_of(Verdict::fits, 12, 11, 13, 23.6);
  shared.device.others = gib(2);
  EXPECT_TRUE(headline_text(shared).ends_with(", other processes use 2.00 GiB"));
}

TEST(Headline, GivesTheReasonWhereTheNumbersSayTheOpposite) {
  Fit f = fit_of(Verdict::does_not_fit, 20, 19, 21, 23.6);
  f.reason = "20.00 GiB are more than the 17.73 GiB that mem_fraction 0.75 gives";
  EXPECT_TRUE(holds(headline_text(f), "mem_fraction 0.75"));
}

TEST(Headline, HasAMarkInTheColourOfTheVerdict) {
  Style style;
  style.colour = true;
  const auto shown = [&](Verdict v) { return doc::to_text({"", {}, {doc::Paragraph{headline(fit_of(v, 8, 7, 9, 23.6))}}}, style); };
  EXPECT_TRUE(holds(shown(Verdict::fits), "\033[32m✓ fits RTX 4090\033[0m"));
  EXPECT_TRUE(holds(shown(Verdict::does_not_fit), "\033[31m✗"));
  EXPECT_TRUE(holds(shown(Verdict::tight), "\033[33m!"));
  const Style ascii{false, false};
  EXPECT_TRUE(doc::to_text({"", {}, {doc::Paragraph{headline(fit_of(Verdict::fits, 8, 7, 9, 23.6))}}}, ascii).starts_with("+ fits"));
}

TEST(DeviceName, IsAsPeopleSayIt) {
  EXPECT_EQ(device_name("GeForce RTX 4090"), "RTX 4090");
  EXPECT_EQ(device_name("a100-80gb"), "A100 80 GB");
  EXPECT_EQ(device_name("Apple M3 Max"), "Apple M3 Max");
  EXPECT_EQ(device_name("24GiB"), "24GiB");
  EXPECT_EQ(device_name("h200"), "h200");
}

TEST(MemoryBar, AddsUpToTheDeviceAndFoldsWhatIsTiny) {
  const Estimate e = estimate(job_of("gpt2", {{"seq", 64}}), 0);
  const doc::Bar bar = memory_bar(e, e.memory->device.bytes, gib(24));
  Bytes sum;
  for (const doc::Bar::Part& p : bar.parts) {
    sum += p.bytes;
    EXPECT_GT(p.bytes.count, 0) << p.name;
  }
  EXPECT_EQ(sum, e.memory->device.bytes);
  EXPECT_EQ(bar.parts.back().name, "other");
}

TEST(MemoryBar, TakesWhatACompiledRunDoesNotKeepFromActivations) {
  const Estimate e = estimate(job_of("gpt2", {{"seq", 512}, {"batch", 4}}), 0);
  const Bytes less{e.peak.count - gib(0.5).count};
  Bytes sum;
  for (const doc::Bar::Part& p : memory_bar(e, less, {}).parts) sum += p.bytes;
  EXPECT_EQ(sum, less);
}

TEST(CategoryLook, GivesEveryCategoryAGroupAndNoTwoGroupsOneLook) {
  for (size_t a = 0; a < kCategoryGroups; ++a)
    for (size_t b = 0; b < a; ++b) {
      const CategoryLook &one = look_of(static_cast<CategoryGroup>(a)), &other = look_of(static_cast<CategoryGroup>(b));
      EXPECT_NE(one.colour.ansi, other.colour.ansi);
      EXPECT_NE(one.colour.letter, other.colour.letter);
      EXPECT_STRNE(one.colour.hex, other.colour.hex);
    }
  const Estimate e = estimate(job_of("llama-3.2-1b", {{"seq", 64}, {"fsdp", {{"world", 2}}}}), 0);
  Bytes sum;
  for (const GroupedBytes& g : grouped(e)) sum += g.bytes;
  EXPECT_EQ(sum, e.peak);
}

TEST(PeakPhrase, NamesTheMomentAsPeopleSayIt) {
  EXPECT_EQ(peak_phrase(estimate(job_of("gpt2", {{"seq", 64}}), 0)), "in the optimizer step (AdamW's foreach temporaries)");
  const std::string backward = peak_phrase(estimate(job_of("gpt2", {{"seq", 512}, {"batch", 8}}), 0));
  EXPECT_TRUE(backward.starts_with("in the backward pass")) << backward;
}

TEST(Screen, BeginsWithTheVerdictAndEndsWithinTwentyFiveLines) {
  const std::vector<std::string> lines =
      lines_of(answer_text({{"run", "gpt2"}, {"settings", {{"batch", 8}, {"seq", 512}}}, {"gpu", "6GiB"}}));
  ASSERT_GT(lines.size(), 6u);
  EXPECT_TRUE(lines[0].starts_with("gpt2  124.4 M parameters, batch 8 x 512 tokens")) << lines[0];
  EXPECT_EQ(lines[1], "");
  EXPECT_TRUE(lines[2].starts_with("✗ does not fit 6GiB: needs ")) << lines[2];
  EXPECT_TRUE(holds(lines[3], "AAAA")) << lines[3];
  EXPECT_TRUE(holds(lines[3], "┃")) << lines[3];
  EXPECT_TRUE(holds(lines[4], "A activations")) << lines[4];
  EXPECT_TRUE(lines[5].starts_with("cheapest change that fits: --")) << lines[5];
  EXPECT_LE(lines.size(), 32u);
}

TEST(Screen, SaysNothingOfAChangeWhereItFits) {
  const std::string fits = answer_text({{"run", "gpt2"}, {"settings", {{"seq", 64}}}, {"gpu", "24GiB"}});
  EXPECT_TRUE(holds(fits, "✓ fits 24GiB: needs "));
  EXPECT_FALSE(holds(fits, "cheapest change"));
  const std::string none = answer_text({{"run", "gpt2"}, {"settings", {{"seq", 64}}}});
  EXPECT_TRUE(holds(none, " GiB on an NVIDIA card ("));
}

TEST(Screen, GivesTheCommandOfAPlanWhereNoChangeAloneIsEnough) {
  const std::string text =
      answer_text({{"run", "gpt2"}, {"settings", {{"seq", 64}, {"config", {{"n_layer", 10}, {"n_head", 4}}}}}, {"gpu", "400MiB"}});
  EXPECT_TRUE(holds(text, "no single change makes it fit"));
  EXPECT_TRUE(holds(text, "  plimsoll fix gpt2 --seq 64 --config n_head=4 --config n_layer=10 --gpu 400MiB\n")) << text;
}

TEST(Screen, HasOneLineForEachOfAFewDevicesAndATableForMany) {
  const std::string few = answer_text({{"run", "gpt2"}, {"settings", {{"seq", 64}}}, {"gpu", {"rtx-4090", "a100-80gb", "1GiB"}}});
  EXPECT_TRUE(holds(few, "✓ fits RTX 4090: "));
  EXPECT_TRUE(holds(few, "✓ fits A100 80 GB: "));
  EXPECT_TRUE(holds(few, "✗ does not fit 1GiB: "));
  const std::string many = answer_text({{"run", "gpt2"}, {"settings", {{"seq", 64}}}, {"gpu", {"1GiB", "2GiB", "3GiB", "4GiB", "24GiB"}}});
  EXPECT_TRUE(holds(many, " of 5 devices"));
  EXPECT_TRUE(holds(many, "verdict"));
}

TEST(Screen, SaysWhatWasAssumed) {
  Job job = job_of("gpt2", {{"seq", 64}});
  EXPECT_EQ(assumed_text(job), "");
  job.findings.push_back({Effect::assumed, "seq", "", "2048 tokens", ""});
  job.findings.push_back({Effect::note, "x", "", "nothing", ""});
  job.findings.push_back({Effect::assumed, "precision", "", "bf16", ""});
  EXPECT_EQ(assumed_text(job), "assumed: 2048 tokens, bf16");
  EstimateScreen s{estimate(job, 0), {}, {}, {}, ""};
  EXPECT_TRUE(holds(doc::to_text(screen_head(s), {}), "\nassumed: 2048 tokens, bf16\n\n"));
}

TEST(Screen, ShowsAtMostThreeInsightsAndLeavesDetailsToVerbose) {
  const Json request{{"run", "gpt2"},
                     {"settings", {{"batch", 8}, {"seq", 512}, {"attention", "eager"}, {"ema", true}, {"accumulation", 2}}}};
  const nlohmann::ordered_json json = answer_json(request);
  ASSERT_GT(json["insights"].size(), 3u);
  const std::string text = answer_text(request);
  size_t marks = 0;
  for (const std::string& line : lines_of(text)) marks += line.starts_with("  - ");
  EXPECT_EQ(marks, 3u);
  const char* kDetails[] = {"OOM messages", "Largest tensors", "Where it is", "How sure", "steady state"};
  Json verbose = request;
  verbose["verbose"] = true;
  const std::string all = answer_text(verbose);
  for (const char* part : kDetails) {
    EXPECT_FALSE(holds(text, part)) << part;
    EXPECT_TRUE(holds(all, part)) << part;
  }
}

TEST(Screen, KeepsTheWordsOfTheSimulatedOutOfMemoryForVerbose) {
  Json request{{"run", "gpt2"}, {"settings", {{"batch", 8}, {"seq", 512}}}, {"gpu", "6GiB"}};
  EXPECT_FALSE(holds(answer_text(request), "CUDA out of memory"));
  request["verbose"] = true;
  EXPECT_TRUE(holds(answer_text(request), "CUDA out of memory"));
  request["settings"] = {{"batch", 64}, {"seq", 1024}};
  request["gpu"] = "rx-7900-xtx";
  EXPECT_TRUE(holds(answer_text(request), "HIP out of memory"));
  EXPECT_FALSE(holds(answer_text(request), "CUDA"));
  request["gpu"] = "m1-8gb";
  EXPECT_FALSE(holds(answer_text(request), "out of memory"));
  EXPECT_TRUE(holds(answer_text(request), "could not be allocated"));
}

TEST(Screen, MultipliesWhatThereIsSeveralTimes) {
  const std::string all = answer_text({{"run", "gpt2"}, {"settings", {{"seq", 64}}}, {"verbose", true}});
  EXPECT_TRUE(holds(all, "24 x 9.00 MiB")) << all;
  EXPECT_TRUE(holds(all, "0.21 GiB")) << all;
  EXPECT_FALSE(holds(all, "torch.save"));
}

TEST(Screen, BeginsWithKeysThatItDoesNotUnderstand) {
  Job job;
  job.findings = {{Effect::unknown, "micro_batchsize = 4", "a.yml", "not known: did you mean micro_batch_size?", ""},
                  {Effect::unknown, "lora_magic = 3", "a.yml", "not known here, and it may matter for memory", ""},
                  {Effect::unknown, "", "a.yml", "taken to say nothing about memory: my_note", ""}};
  EXPECT_EQ(unknown_keys_text(job),
            "not understood, so not in the answer: micro_batchsize = 4 (did you mean micro_batch_size?), lora_magic = 3");
  EXPECT_EQ(unknown_keys_text(Job()), "");
}

TEST(Screen, HasRoomOnNarrowTerminals) {
  const std::string long_name = "a-model-with-a-very-long-name-that-somebody-gave-to-a-directory-of-checkpoints-in-a-hurry";
  const Json jobs[] = {{{"run", "gpt2"}, {"settings", {{"batch", 8}, {"seq", 512}}}, {"gpu", "6GiB"}},
                       {{"run", "llama-3.2-1b"}, {"settings", {{"seq", 256}, {"fsdp", {{"world", 8}}}}}, {"gpu", "a100-80gb"}},
                       {{"run", "llama-3.2-1b"},
                        {"settings", {{"seq", 128}, {"lora", {{"r", 16}, {"target_modules", "all-linear"}}}, {"quantization", "nf4"}}},
                        {"gpu", "rtx-4090"}},
                       {{"run", "resnet18"},
                        {"settings", {{"batch", 4}, {"optimizer", "SGD"}, {"optimizer_args", {{"momentum", 0.9}, {"nesterov", true}}}}}},
                       {{"run", "gpt2"}, {"settings", {{"seq", 64}, {"framework", "jax"}}}, {"gpu", "tpu-v5e"}},
                       {{"run", "gpt2"},
                        {"settings", {{"seq", 64}, {"config", {{"n_layer", 10}, {"resid_pdrop", 0.0}, {"attn_pdrop", 0.0}}}}},
                        {"gpu", "400MiB"}},
                       {{"run", "gpt2"}, {"settings", {{"seq", 64}}}, {"gpus", "all"}},
                       {{"run", "t5-small"}, {"settings", {{"seq", 64}}}, {"gpu", {"m1-max-32gb", "rtx-4090", "mi300x"}}}};
  for (const Json& request : jobs)
    for (const size_t width : {80, 120})
      for (const bool unicode : {true, false})
        for (const std::string& line : lines_of(answer_text(request, width, unicode))) EXPECT_LE(display_width(line), width) << line;
  Job job = job_of("gpt2", {{"seq", 64}});
  job.model = long_name;
  Style narrow;
  narrow.width = 80;
  const EstimateScreen s{estimate(job, 0), {}, {}, {}, ""};
  doc::Document d = screen_head(s);
  doc::append(d.blocks, screen_rows(s));
  for (const std::string& line : lines_of(doc::to_text(d, narrow))) EXPECT_LE(display_width(line), 80u) << line;
}

// Sizes below each other are in one unit.
TEST(Screen, HasOneUnitInAColumn) {
  const std::vector<std::string> lines = lines_of(answer_text({{"run", "gpt2"}, {"settings", {{"seq", 64}}}}));
  bool alive = false;
  int rows = 0;
  for (const std::string& line : lines) {
    alive = line.starts_with("  ") ? alive : line == "Alive at the peak";
    if (!alive || line == "Alive at the peak") continue;
    ++rows;
    EXPECT_TRUE(holds(line, " GiB")) << line;
  }
  EXPECT_GT(rows, 2);
}

TEST(Counters, AreThoseOfTheDevice) {
  const auto shown = [](const char* gpu, bool jax = false, bool verbose = false) {
    Json settings{{"seq", 64}};
    if (jax) settings["framework"] = "jax";
    return answer_text({{"run", "gpt2"}, {"settings", settings}, {"gpu", gpu}, {"verbose", verbose}});
  };
  EXPECT_TRUE(holds(shown("rtx-4090"), "nvidia-smi"));
  for (const bool verbose : {false, true}) {
    const std::string apple = shown("m1-max-32gb", false, verbose), amd = shown("mi300x", false, verbose),
                      tpu = shown("tpu-v5e", true, verbose);
    for (const std::string& text : {apple, amd, tpu})
      for (const char* word : {"nvidia-smi", "cuBLAS", "CUDA context", "NVIDIA"}) EXPECT_FALSE(holds(text, word)) << word << "\n" << text;
    EXPECT_TRUE(holds(apple, "torch.mps.driver_allocated_memory()")) << apple;
    EXPECT_TRUE(holds(apple, "recommended_max_memory")) << apple;
    EXPECT_FALSE(holds(apple, "OOM messages")) << apple;
    EXPECT_FALSE(holds(apple, "torch.cuda")) << apple;
    EXPECT_TRUE(holds(apple, "not established")) << apple;
    EXPECT_TRUE(holds(amd, "rocm-smi")) << amd;
    if (!verbose) {
      EXPECT_TRUE(holds(tpu, "peak_bytes_in_use")) << tpu;
    }
  }
}

TEST(Answer, HasHeadlineInsightsAndTheCheapestChange) {
  const nlohmann::ordered_json no = answer_json({{"run", "gpt2"}, {"settings", {{"batch", 8}, {"seq", 512}}}, {"gpu", "6GiB"}});
  EXPECT_TRUE(no["headline"].get<std::string>().starts_with("does not fit 6GiB: needs ")) << no["headline"];
  ASSERT_TRUE(no["cheapest_change"].is_object());
  EXPECT_LT(no["cheapest_change"]["device_bytes"].get<int64_t>(), int64_t{6} << 30);
  EXPECT_FALSE(no["cheapest_change"]["flags"].get<std::string>().empty());
  EXPECT_GT(no["executions"].get<int>(), 1);
  const nlohmann::ordered_json yes = answer_json({{"run", "gpt2"}, {"settings", {{"seq", 64}}}, {"gpu", "24GiB"}});
  EXPECT_TRUE(yes["cheapest_change"].is_null());
  EXPECT_EQ(yes["executions"], 1) << "of a run that fits nothing else is executed";
}

}  // namespace
}  // namespace plimsoll::screen_test
