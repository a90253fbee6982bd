// The page of a run: its data agree with the estimate to the byte, nothing in it can break out of its element, and a browser draws it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/recorded_file.h"
#include "api/report.h"
#include "api/verbs.h"
#include "report/category_look.h"
#include "report/page.h"
#include "report/stroke_text.h"
#include "shown.h"
#include "trace/trace_file.h"
#include "util/error.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const Json kSettings{{"batch", 4}, {"seq", 64}, {"config", {{"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 1000}}}};

ReportRequest request(OutputForm format, std::vector<std::string> gpus = {"rtx-4090"}) {
  ReportRequest r;
  r.job.run = {"gpt2"};
  for (const auto& [key, value] : kSettings.items()) r.job.set(key, value, "test");
  r.devices.names = std::move(gpus);
  r.format = format;
  r.brief = true;
  return r;
}

Json page_of(const ReportRequest& r) { return Json::parse(document(r)); }

int64_t sum(const Json& children) {
  int64_t out = 0;
  for (const Json& c : children) out += c["bytes"].get<int64_t>();
  return out;
}

void expect_sums(const Json& node) {
  if (!node.contains("children")) return;
  EXPECT_EQ(sum(node["children"]), node["bytes"].get<int64_t>()) << node["name"];
  for (const Json& c : node["children"]) expect_sums(c);
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  if (from == std::string::npos) return "";
  return text.substr(from + begin.size(), text.find(end, from + begin.size()) - from - begin.size());
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(Page, TimelineTreeAndNumbersAreThoseOfTheEstimate) {
  const Json page = page_of(request(OutputForm::json));
  nlohmann::ordered_json answer;
  ask("estimate", Json{{"run", "gpt2"}, {"settings", kSettings}, {"gpu", "rtx-4090"}}.dump(), answer);
  const Json estimate = Json::parse(answer.dump());
  EXPECT_EQ(page["estimate"]["peak_bytes"], estimate["peak_bytes"]);
  EXPECT_EQ(page["estimate"]["by_category"], estimate["by_category"]);
  EXPECT_EQ(page["numbers"][0]["bytes"], estimate["allocated_peak_bytes"]);
  EXPECT_EQ(page["numbers"][1]["bytes"], estimate["reserved_peak_bytes"]);
  EXPECT_EQ(page["numbers"][2]["bytes"], estimate["device_peak_bytes"]);

  const Json& t = page["timeline"];
  std::map<std::string, int64_t> at_peak;
  int64_t now = 0, most = 0;
  for (size_t i = 0; i < t["bytes"].size(); ++i) {
    now += t["bytes"][i].get<int64_t>();
    most = std::max(most, now);
    if (i < t["peak_at"].get<size_t>()) at_peak[t["groups"][t["group"][i].get<size_t>()]["name"]] += t["bytes"][i].get<int64_t>();
  }
  EXPECT_EQ(most, estimate["peak_bytes"].get<int64_t>());
  for (const Json& c : estimate["by_category"]["children"]) EXPECT_EQ(at_peak[c["name"]], c["bytes"].get<int64_t>()) << c["name"];

  const Json& tree = page["tree"];
  EXPECT_EQ(tree["bytes"], estimate["peak_bytes"]);
  expect_sums(tree);
  for (size_t i = 0; i < tree["children"].size(); ++i) {
    EXPECT_EQ(tree["children"][i]["name"], estimate["by_category"]["children"][i]["name"]);
    EXPECT_EQ(tree["children"][i]["bytes"], estimate["by_category"]["children"][i]["bytes"]);
  }
  int64_t reserved = 0;
  for (size_t i = 1; i < t["reserved"].size(); i += 2) reserved = std::max(reserved, t["reserved"][i].get<int64_t>());
  EXPECT_EQ(reserved, estimate["reserved_peak_bytes"].get<int64_t>());
}

TEST(Page, SegmentsAreTiledByTheirBlocks) {
  const Json segments = page_of(request(OutputForm::json))["segments"];
  int64_t held = 0, used = 0;
  for (const Json& s : segments["list"]) {
    int64_t size = 0;
    for (size_t i = 0; i < s["blocks"].size(); i += 3) {
      size += s["blocks"][i].get<int64_t>();
      if (s["blocks"][i + 1] >= 0) used += s["blocks"][i].get<int64_t>();
    }
    EXPECT_EQ(size, s["size"].get<int64_t>());
    held += size;
  }
  EXPECT_EQ(held, segments["reserved_bytes"].get<int64_t>());
  EXPECT_EQ(used, segments["used_bytes"].get<int64_t>());
  EXPECT_EQ(segments["count"], segments["list"].size());
}

TEST(Page, HasEverySection) {
  ReportRequest r = request(OutputForm::json);
  r.brief = false;
  const Json page = page_of(r);
  EXPECT_EQ(page["verdict"]["state"], "fits");
  EXPECT_GT(page["fits"].size(), 100u);
  EXPECT_EQ(page["asked"], 1);
  EXPECT_GT(page["what_if"]["levers"].size(), 3u);
  EXPECT_FALSE(page["plan"]["front"].empty());
  EXPECT_FALSE(page["origins"].empty());
  EXPECT_FALSE(page["assumptions"].empty());
  EXPECT_FALSE(page["not_modelled"].empty());
  bool batch = false;
  for (const Json& o : page["origins"]) batch |= o["name"] == "batch" && o["origin"] == "test" && o["value"] == "4";
  EXPECT_TRUE(batch);
}

TEST(Page, SaysHowOftenItExecuted) {
  ReportRequest r = request(OutputForm::json);
  EXPECT_EQ(page_of(r)["executions"], 1) << "a brief page is one run";
  r.brief = false;
  const Json page = page_of(r);
  // The run as it is and the changes alone are candidates of the plan. Beside them: three other kinds of devices, the fused twin of
  // torch.compile, which is no candidate, and a change that is found to be impossible by executing it.
  const size_t levers = page["what_if"]["levers"].size(), planned = page["plan"]["executed"].get<size_t>();
  EXPECT_GT(planned, levers);
  EXPECT_LE(page["executions"].get<size_t>(), planned + 5);
}

TEST(Page, RanksThatKeepDifferentStatesHaveRowsOfTheirOwn) {
  ReportRequest r = request(OutputForm::json);
  r.job.set("zero1", "world=4", "test");
  const Json zero1 = page_of(r)["ranks"];
  ASSERT_GE(zero1.size(), 2u);  // those that are alike have one
  EXPECT_EQ(zero1[0]["name"].get<std::string>().substr(0, 1), "0");
  EXPECT_TRUE(zero1[zero1.size() - 1]["name"].get<std::string>().ends_with("3"));
  r.job.settings.erase("zero1");
  r.job.set("ddp", "world=8", "test");
  const Json ddp = page_of(r)["ranks"];
  ASSERT_EQ(ddp.size(), 1u);
  EXPECT_EQ(ddp[0]["name"], "0 to 7");
  r.job.settings.erase("ddp");
  r.job.set("fsdp", "world=4", "test");
  const Json fsdp = page_of(r)["ranks"];
  ASSERT_FALSE(fsdp.empty());
  EXPECT_TRUE(fsdp[fsdp.size() - 1]["name"].get<std::string>().ends_with("3"));  // the last of four, alone or with those like it
  EXPECT_TRUE(page_of(request(OutputForm::json))["ranks"].empty());
}

TEST(Page, StagesOfAPipelineHaveRowsOfTheirOwn) {
  ReportRequest r = request(OutputForm::json);
  r.job.run = {"llama"};
  r.job.set("config",
            Json{{"num_hidden_layers", 4},
                 {"hidden_size", 64},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 4},
                 {"intermediate_size", 128},
                 {"vocab_size", 1000}},
            "test");
  r.job.set("precision", "bf16", "test");
  r.job.set("megatron", "world=8,tensor=2,pipeline=2", "test");
  const Json ranks = page_of(r)["ranks"];
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0]["name"], "0 to 3 (stage 0)");
  EXPECT_EQ(ranks[1]["name"], "4 to 7 (stage 1)");
}

// One vocabulary: that of the command's own bar, in its order and its colours, of which none is red.
TEST(Page, CategoriesHaveTheWordsAndColoursOfTheCommand) {
  const Json page = page_of(request(OutputForm::json));
  size_t last = 0;
  for (const Json& g : page["timeline"]["groups"]) {
    size_t i = 0;
    while (i < kCategoryGroups && g["group"] != look_of(static_cast<CategoryGroup>(i)).name) ++i;
    ASSERT_LT(i, kCategoryGroups) << g;
    EXPECT_EQ(g["colour"], look_of(static_cast<CategoryGroup>(i)).colour.hex);
    EXPECT_GE(i, last) << "in the order of the look";
    last = i;
    for (const char c : g["name"].get<std::string>()) EXPECT_FALSE(std::isupper(static_cast<unsigned char>(c))) << g["name"];
  }
  int64_t sum = 0;
  for (const Json& p : page["bar"]["parts"]) sum += p["bytes"].get<int64_t>();
  EXPECT_EQ(sum, page["numbers"][2]["bytes"].get<int64_t>());
  for (size_t i = 0; i < kPlaceColours; ++i) {
    const Pixel p = pixel_of(place_colour(i));
    EXPECT_FALSE(p.red > 1.8 * p.green && p.red > 1.8 * p.blue) << place_colour(i);
  }
}

TEST(Page, NoPointOfThePlansOwnKindIsSmallerAndFaster) {
  ReportRequest r = request(OutputForm::json);
  r.brief = false;
  const Json plan = page_of(r)["plan"];
  const std::vector<std::string> kinds{"same result", "different numerics", "different training"};
  const auto rank = [&](const Json& run) { return std::find(kinds.begin(), kinds.end(), run["kind"]) - kinds.begin(); };
  const auto seconds = [](const Json& run) { return 1 / run["time"]["samples_per_second"].get<double>(); };
  ASSERT_FALSE(plan["plan"].is_null());
  bool of_its_kind = false;
  for (const Json& run : plan["front"]) {
    EXPECT_EQ(run["flags"].get<std::string>().find("--compile"), std::string::npos) << "it is shown, never planned";
    if (rank(run) > rank(plan["plan"])) continue;
    of_its_kind = true;
    EXPECT_FALSE(run["device_peak"]["bytes"] < plan["plan"]["device_peak"]["bytes"] && seconds(run) < .999 * seconds(plan["plan"]))
        << run["flags"];
  }
  EXPECT_TRUE(of_its_kind);
}

TEST(Page, CommandsCanBeTypedWithTheChange) {
  ReportRequest r = request(OutputForm::json);
  r.brief = false;
  const Json page = page_of(r);
  const std::string run = page["commands"]["run"];
  EXPECT_TRUE(run.starts_with("plimsoll estimate gpt2 --batch 4 --seq 64 ")) << run;
  EXPECT_NE(run.find("--config n_layer=2"), std::string::npos) << "a flag for each key: " << run;
  EXPECT_NE(run.find(" --gpu rtx-4090"), std::string::npos) << run;
  const Json &levers = page["what_if"]["levers"], &typed = page["commands"]["levers"];
  ASSERT_EQ(levers.size(), typed.size());
  for (size_t i = 0; i < levers.size(); ++i) {
    EXPECT_EQ(count_of(typed[i], "--batch"), 1u) << typed[i];
    if (levers[i]["settings"].contains("checkpointing")) {
      EXPECT_NE(typed[i].get<std::string>().find("--checkpointing"), std::string::npos) << typed[i];
    }
  }
}

TEST(Page, StandsBesideWhatWasMeasured) {
  ReportRequest r = request(OutputForm::json);
  EXPECT_TRUE(page_of(r)["measured"].is_null());
  r.measured = "3GiB";
  Json measured = page_of(r)["measured"];
  EXPECT_EQ(measured["numbers"], Json::parse(R"([{"name": "device", "bytes": 3221225472}])"));
  EXPECT_TRUE(measured["slices"].empty());
  r.measured = PLIMSOLL_SOURCE_DIR "/tests/data/oom.pickle";
  const Json page = page_of(r);
  measured = page["measured"];
  EXPECT_EQ(measured["source"], "oom.pickle");
  EXPECT_EQ(measured["slices"], Json::parse("[39845888, 20971520]")) << "from what was there when the recording began";
  int64_t most = 0;
  for (const Json& b : measured["predicted_slices"]) most = std::max(most, b.get<int64_t>());
  EXPECT_EQ(most, page["estimate"]["peak_bytes"].get<int64_t>());
  for (const char* wrong : {"lots", PLIMSOLL_SOURCE_DIR "/tests/data/oom/expected.jsonl"}) {
    r.measured = wrong;
    EXPECT_THROW(document(r), Error) << wrong;
  }
}

TEST(Page, OfASnapshotBeginsAndEndsAsItsRecordingDoes) {
  const nlohmann::ordered_json page = recorded_page({PLIMSOLL_SOURCE_DIR "/tests/data/oom.pickle", {}, "", {}});
  constexpr int64_t kMiB = 1 << 20;
  const auto& t = page["timeline"];
  int64_t now = 0, first = -1;
  for (size_t i = 0; i <= t["bytes"].size(); ++i) {
    if (i == t["begins_at"].get<size_t>()) first = now;
    if (i < t["bytes"].size()) now += t["bytes"][i].get<int64_t>();
  }
  EXPECT_EQ(first, 38 * kMiB);
  EXPECT_EQ(now, 20 * kMiB);
  EXPECT_EQ(page["capacity"], 40 * kMiB) << "what PyTorch could have";
  ASSERT_EQ(t["failures"].size(), 1u);
  EXPECT_EQ(t["failures"][0]["bytes"], 30 * kMiB);
  EXPECT_EQ(t["failures"][0]["label"], "forward (model.py:57)");
  ASSERT_EQ(page["tree"]["children"].size(), 1u);
  EXPECT_EQ(page["tree"]["children"][0]["name"], "allocated before the recording");
  EXPECT_EQ(page["bar"]["parts"].size(), 1u) << "no place is left over";
}

TEST(Page, AllowsNothingFromElsewhereAndCarriesItsPicture) {
  const std::string html = document(request(OutputForm::html));
  EXPECT_NE(html.find("http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"), std::string::npos);
  EXPECT_TRUE(between(html, "name=\"description\" content=\"", "\"").starts_with("fits RTX 4090: needs "));
  EXPECT_EQ(between(html, "og:image\" content=\"", "\""), data_address(card(request(OutputForm::html), "a.png")));
}

TEST(Page, NeedsNothingElseAndHoldsTheSameData) {
  const ReportRequest r = request(OutputForm::html);
  const std::string html = document(r);
  EXPECT_EQ(html.find("https:"), std::string::npos);
  EXPECT_EQ(count_of(html, "http:"), 1u);  // the name of SVG's namespace
  EXPECT_EQ(html.find("src="), std::string::npos);
  EXPECT_EQ(html.find("{{"), std::string::npos);
  EXPECT_EQ(count_of(html, "</script>"), 2u);
  EXPECT_EQ(Json::parse(between(html, "id=\"data\">", "</script>")), page_of(request(OutputForm::json)));
}

TEST(Page, NamesCannotEndTheElementTheyAreIn) {
  Trace trace;
  const ScopeId scope = trace.add_scope(0, "</script><script>alert(1)</script>");
  trace.storages.push_back({1024, trace.intern("<!--"), scope, Category::activation, Phase::forward});
  trace.events = {{Event::Kind::step, 0, 0}, {Event::Kind::alloc, 0, 0}};
  RunPage page{.kind = "trace",
               .title = "<b>{{data}}&</title>",
               .subtitle = "",
               .state = "note",
               .sentence = "",
               .trace = trace,
               .curve = memory_curve(trace, 1),
               .alive = alive_at(trace, 1),
               .numbers = {},
               .tables = {},
               .notes = {}};
  const std::string html = page_html(page_json(page));
  EXPECT_EQ(count_of(html, "</script>"), 2u);
  EXPECT_EQ(html.find("<!--"), std::string::npos);
  EXPECT_EQ(between(html, "<title>", "</title>"), "Memory of &#60;b>&#123;&#123;data}}&#38;&#60;/title>");
  const Json data = Json::parse(between(html, "id=\"data\">", "</script>"));
  EXPECT_EQ(data["timeline"]["labels"][0], "</script><script>alert(1)</script>: <!--");
}

TEST(Page, TheTableAddsUpToThePeak) {
  const std::string csv = document(request(OutputForm::csv));
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "category,module,op,tensor,count,bytes");
  int64_t all = 0;
  while (std::getline(lines, line)) all += std::stoll(line.substr(line.rfind(',') + 1));
  EXPECT_EQ(all, page_of(request(OutputForm::json))["estimate"]["peak_bytes"].get<int64_t>());
}

TEST(Page, FormatsByNameAndByEnding) {
  EXPECT_EQ(document_format_of("a/b.HTML"), OutputForm::html);
  EXPECT_EQ(document_format_of("b.csv"), OutputForm::csv);
  EXPECT_EQ(document_format_of("b.json"), OutputForm::json);
  EXPECT_EQ(document_format_of(""), OutputForm::markdown);
  EXPECT_EQ(parse_form("md", true), OutputForm::markdown);
  EXPECT_THROW(parse_form("pdf", true), Error);
  ReportRequest r = request(OutputForm::html);
  r.against.push_back(r.job);
  r.against_name.push_back("other");
  EXPECT_THROW(document(r), Error);
}

TEST(Page, AJobOfJaxHasOneToo) {
  ReportRequest r = request(OutputForm::json);
  r.job.set("framework", "jax", "test");
  const Json page = page_of(r);
  EXPECT_TRUE(page["segments"].is_null());
  EXPECT_EQ(page["tree"]["bytes"], page["estimate"]["peak_bytes"]);
  expect_sums(page["tree"]);
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  fs::path folder_ = fs::temp_directory_path() / ("plimsoll_page_" + std::to_string(getpid()));
};

using TracePage = Folder;

// A trace of 100,000 events, as long as real ones are.
Trace long_trace() {
  Trace trace;
  trace.events.push_back({Event::Kind::step, 0, 0});
  const NameId op = trace.intern("addmm");
  for (uint32_t i = 0; i < 50000; ++i) {
    trace.storages.push_back({512 * (1 + i % 97), op, 0, static_cast<Category>(i % 7), Phase::forward});
    trace.events.push_back({Event::Kind::alloc, 0, i});
    if (i >= 100) trace.events.push_back({Event::Kind::free, 0, i - 100});
  }
  return trace;
}

TEST_F(TracePage, OfALongTraceHasEveryEvent) {
  const Trace trace = long_trace();
  const std::string path = (folder_ / "long.trace").string();
  write_trace(trace, path);
  ASSERT_TRUE(is_recorded_file({path}));
  const nlohmann::ordered_json page = recorded_page({path, {}, "", {}});
  EXPECT_EQ(page["timeline"]["bytes"].size(), trace.events.size() - 1);
  EXPECT_EQ(page["timeline"]["peak_bytes"], ideal_timeline(trace).peak().bytes);
  EXPECT_EQ(page["tree"]["bytes"], page["timeline"]["peak_bytes"]);
  EXPECT_EQ(page["kind"], "trace");
  const std::string markdown = doc::to_markdown(page_document(page));
  EXPECT_NE(markdown.find("# Memory of long.trace"), std::string::npos);
}

// What a real browser makes of it; without one, nothing is said.
using BrowserPage = Folder;

std::string drawn(const std::string& path) {
  if (std::system("command -v chromium >/dev/null 2>&1") != 0) return "";
  FILE* pipe = popen(("timeout 120 chromium --headless=new --no-sandbox --disable-gpu --virtual-time-budget=5000 --enable-logging=stderr "
                      "--dump-dom 'file://" +
                      path + "' 2>'" + path + ".log'")
                         .c_str(),
                     "r");
  std::string out;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  std::ifstream log(path + ".log");
  for (std::string line; std::getline(log, line);) EXPECT_EQ(line.find("CONSOLE"), std::string::npos) << line;
  return out;
}

TEST_F(BrowserPage, DrawsTheNumbersOfTheData) {
  ReportRequest r = request(OutputForm::html);
  const std::string path = file("page.html", document(r));
  const std::string dom = drawn(path);
  if (dom.empty()) GTEST_SKIP() << "no chromium";
  EXPECT_NE(dom.find("data-ready=\"yes\""), std::string::npos) << dom.substr(0, 500);
  r.format = OutputForm::json;
  const Json page = page_of(r);
  EXPECT_EQ(between(dom, "data-peak=\"", "\""), page["estimate"]["peak_bytes"].dump());
  EXPECT_EQ(between(dom, "id=\"peak\" aria-labelledby=\"peak-h\" data-bytes=\"", "\""), page["estimate"]["peak_bytes"].dump());
  for (const Json& n : page["numbers"])
    EXPECT_NE(dom.find("data-name=\"" + n["name"].get<std::string>() + "\" data-bytes=\"" + n["bytes"].dump() + "\""), std::string::npos);
  std::string groups = between(dom, "data-groups=\"", "\"");
  for (size_t at; (at = groups.find("&quot;")) != std::string::npos;) groups.replace(at, 6, "\"");
  std::map<std::string, int64_t> shown;
  for (const Json& g : Json::parse(groups)) shown[g[0]] = g[1];
  for (const Json& c : page["estimate"]["by_category"]["children"]) EXPECT_EQ(shown[c["name"]], c["bytes"].get<int64_t>()) << c["name"];
}

TEST_F(BrowserPage, ShowsThreeChangesAndFoldsTheRest) {
  ReportRequest r = request(OutputForm::html);
  r.brief = false;
  r.job.set("batch", 32, "test");  // enough that changes are seen beside the context of CUDA
  r.job.set("seq", 512, "test");
  r.measured = PLIMSOLL_SOURCE_DIR "/tests/data/fragmented.pickle";
  const std::string dom = drawn(file("page.html", document(r)));
  if (dom.empty()) GTEST_SKIP() << "no chromium";
  EXPECT_EQ(count_of(dom, "class=\"card\""), 3u);
  EXPECT_NE(dom.find("other changes</summary>"), std::string::npos);
  EXPECT_GT(count_of(dom, ">Copy this command</button>"), 3u);
  EXPECT_NE(dom.find("Predicted and measured"), std::string::npos);
  EXPECT_NE(dom.find("aria-label=\"Predicted and measured allocated memory over the run\""), std::string::npos);
}

TEST_F(BrowserPage, DrawsALongTraceAndASnapshot) {
  write_trace(long_trace(), (folder_ / "long.trace").string());
  for (const std::string& source : {(folder_ / "long.trace").string(), std::string(PLIMSOLL_SOURCE_DIR "/tests/data/fragmented.pickle")}) {
    const std::string dom = drawn(file("run.html", page_html(recorded_page({source, {}, "", {}}))));
    if (dom.empty()) GTEST_SKIP() << "no chromium";
    EXPECT_NE(dom.find("data-ready=\"yes\""), std::string::npos) << source;
  }
}

}  // namespace
}  // namespace plimsoll
