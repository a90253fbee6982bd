#include "trace/captured_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "captured_program.h"
#include "fuzzing.h"
#include "trace/trace_file.h"

namespace plimsoll::captured_trace_test {
namespace {

CapturedTrace read(const std::string& text) { return read_captured_trace_text(text, "train.trace"); }

std::string error_in(const std::string& text) {
  try {
    read(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string text_of(const Trace& trace) {
  std::ostringstream out;
  write_trace(trace, out);
  return out.str();
}

TEST(CapturedTrace, HoldsWhatTheFileSays) {
  const CapturedTrace t = read(captured_text());
  EXPECT_EQ(t.torch, "2.13.0");
  EXPECT_EQ(t.script, "train.py");
  EXPECT_EQ(t.command, (std::vector<std::string>{"python", "train.py", "--lr", "1e-3"}));
  EXPECT_EQ(sizes_text(t.base()), "batch 6, seq 160");
  EXPECT_EQ(t.steps(), 2);
  ASSERT_EQ(t.conditions.size(), 2u);
  EXPECT_FALSE(t.conditions[0].pin);
  EXPECT_TRUE(t.conditions[1].pin);
  EXPECT_EQ(t.conditions[1].where, "train.py:14");
  ASSERT_EQ(t.reads.size(), 1u);
  EXPECT_EQ(t.reads[0].value, "1.0");
  ASSERT_EQ(t.notes.size(), 2u);
  EXPECT_TRUE(t.notes[0].skipped);
  ASSERT_EQ(t.kernels.size(), 2u);
  EXPECT_EQ(t.amount(t.kernels[0].flops, t.evaluate_formulas(t.values({}))), 2 * 1024 * 1024 * 6);
}

TEST(CapturedTrace, IsItselfAtTheSizesOfTheCapture) {
  const CapturedTrace t = read(captured_text());
  EXPECT_EQ(t.program.storages[2].bytes, 3072 * 6 * 160);
  EXPECT_EQ(text_of(t.evaluate(t.values({}))), text_of(t.program));
  EXPECT_EQ(text_of(read_trace_text(captured_text(), "f")), text_of(t.program));
}

// The same program with numbers in the place of formulas, as version 1 writes it.
TEST(CapturedTrace, EqualsTheTraceOfNumbersAtAnotherSize) {
  const CapturedTrace t = read(captured_text());
  for (const auto& [batch, seq] : {std::pair{2, 384}, std::pair{16, 512}, std::pair{40, 128}}) {
    Trace numbers = read(captured_text()).program;
    for (const size_t i : {1u, 4u}) numbers.storages[i].bytes = 8 * batch * seq;
    for (const size_t i : {2u, 5u}) numbers.storages[i].bytes = 3072 * batch * seq;
    const Trace recorded = read_trace_text(text_of(numbers), "version 1");
    EXPECT_EQ(text_of(t.evaluate(t.values({{"batch", batch}, {"seq", seq}}))), text_of(recorded));
  }
}

TEST(CapturedTrace, IsWrittenAndReadTheSame) {
  for (const std::string& text : {captured_text(), captured_count_text()}) {
    std::ostringstream first, second;
    write_trace(read(text), first);
    write_trace(read(first.str()), second);
    EXPECT_EQ(first.str(), second.str());
    EXPECT_EQ(read(first.str()).kernels.size(), 2u);
    EXPECT_EQ(text_of(read(first.str()).evaluate(read(first.str()).values({{"seq", 512}}))),
              text_of(read(text).evaluate(read(text).values({{"seq", 512}}))));
  }
}

TEST(CapturedTrace, SaysWhichConditionsASizeBreaks) {
  const CapturedTrace t = read(captured_text());
  EXPECT_TRUE(t.broken(t.values({})).empty());
  EXPECT_TRUE(t.broken(t.values({{"batch", 32}, {"seq", 128}})).empty());
  const auto broken = t.broken(t.values({{"batch", 8}, {"seq", 200}}));
  ASSERT_EQ(broken.size(), 2u);
  EXPECT_EQ(broken[0]->where, "train.py:11");
  EXPECT_EQ(broken[1]->condition.text(), "mod(seq, 32) = 0");
}

TEST(CapturedTrace, RefusesSizesItWasNotTracedFor) {
  const CapturedTrace t = read(captured_text());
  EXPECT_THROW(t.values({{"batch", 1}}), Error);
  EXPECT_THROW(t.values({{"batch", int64_t{1} << 33}}), Error);
  EXPECT_THROW(t.values({{"side", 32}}), Error);
}

TEST(CapturedTrace, RefusesBytesThatNoDeviceHas) {
  const CapturedTrace t = read(captured_text());
  EXPECT_THROW(t.evaluate(t.values({{"batch", 4294967296}, {"seq", 4294967296}})), Error);
  EXPECT_THROW(t.evaluate(t.values({{"batch", 4294967296}, {"seq", 1 << 20}})), Error);
}

TEST(CapturedTrace, KeepsTheShareOfADataDependentCount) {
  const CapturedTrace t = read(captured_count_text());
  EXPECT_TRUE(t.depends_on_counts());
  EXPECT_FALSE(read(captured_text()).depends_on_counts());
  const SymbolSizes sizes{{"batch", 12}, {"seq", 384}};
  const size_t n1 = t.names.at("n1");
  EXPECT_EQ(t.values({})[n1], 480);
  EXPECT_EQ(t.values(sizes)[n1], 12 * 384 / 2);
  EXPECT_EQ(t.values(sizes, CountShare::none)[n1], 0);
  EXPECT_EQ(t.values(sizes, CountShare::all)[n1], 12 * 384);
  EXPECT_EQ(t.evaluate(t.values(sizes, CountShare::none)).storages[2].bytes, 0);
}

TEST(CapturedTrace, KnowsTheSizesThatWereChecked) {
  const CapturedTrace t = read(captured_text());
  EXPECT_TRUE(t.is_checked({{"batch", 40}, {"seq", 128}}));
  EXPECT_FALSE(t.is_checked({{"batch", 40}}));
  const std::string path = (std::filesystem::temp_directory_path() / "plimsoll_checked.trace").string();
  std::ofstream(path) << captured_text();
  std::ofstream(path + ".checks") << "{\"checked\":{\"batch\":4,\"seq\":224}}\n\n";
  EXPECT_TRUE(read_captured_trace(path).is_checked({{"batch", 4}, {"seq", 224}}));
  std::ofstream(path + ".checks") << "{\"checked\":{\"batch\":4}}\n{\"checked\":{\"width\":4}}\n";
  try {
    read_captured_trace(path);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(".checks:2: 'width' is no symbol"), std::string::npos) << e.what();
  }
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".checks");
}

TEST(CapturedTrace, NamesTheLineThatIsWrong) {
  const std::string head = R"({"plimsoll_trace":2,"torch":"2.13.0","script":"train.py"}
{"symbol":"batch","at":6,"min":2,"max":64}
{"formula":0,"bytes":"8*batch"}
)";
  for (const char* line : {R"({"symbol":"batch","at":6,"min":2,"max":64})",
                           R"({"symbol":"seq","at":1,"min":2,"max":64})",
                           R"({"symbol":"seq","at":8,"min":9,"max":2})",
                           R"({"symbol":"min","at":8,"min":2,"max":64})",
                           R"({"symbol":"seq","at":8,"min":2,"max":9000000000})",
                           R"({"symbol":"seq","at":8,"min":2,"max":64,"unit":"tokens"})",
                           R"({"formula":0,"bytes":"batch"})",
                           R"({"formula":1,"bytes":"seq"})",
                           R"({"formula":1,"bytes":4})",
                           R"({"formula":-1,"bytes":"batch"})",
                           R"({"alloc":0,"bytes":{"formula":1}})",
                           R"({"alloc":0,"bytes":{"formula":0,"x":1}})",
                           R"({"alloc":0,"bytes":{"formula":-1}})",
                           R"({"alloc":0,"bytes":"8*batch"})",
                           R"({"alloc":0,"bytes":8,"stream":1})",
                           R"({"guard":"batch","where":"a:1"})",
                           R"({"guard":"batch < 9"})",
                           R"({"pin":"seq = 9","where":"a:1"})",
                           R"({"count":"n","at":7,"most":"batch","known":true,"where":"a:1"})",
                           R"({"count":"n","at":3,"most":"batch","known":1,"where":"a:1"})",
                           R"({"count":"n","at":3,"most":"n","known":true,"where":"a:1"})",
                           R"({"read":"a:1","dtype":"float32","value":[1],"known":true})",
                           R"({"read":"a:1","dtype":"float32","value":1})",
                           R"({"work":"aten::mm","flops":-1,"read":0,"written":0})",
                           R"({"work":"aten::mm","flops":{"formula":5},"read":0,"written":0})",
                           R"({"checked":{"seq":4}})",
                           R"({"checked":{"batch":"4"}})",
                           R"({"checked":{}})",
                           R"({"hello":1})",
                           R"({"free":0})"})
    EXPECT_NE(error_in(head + line).find("train.trace:4: "), std::string::npos) << line << " -> " << error_in(head + line);
  EXPECT_EQ(error_in(head), "");
}

TEST(CapturedTrace, RefusesAHeadThatItDoesNotKnow) {
  EXPECT_NE(error_in(R"({"plimsoll_trace":3})").find("version 3"), std::string::npos);
  EXPECT_NE(error_in(R"({"plimsoll_trace":2,"script":"a.py"})").find("'torch'"), std::string::npos);
  EXPECT_NE(error_in(R"({"plimsoll_trace":2,"torch":"2.13","script":"a.py","gpu":"x"})").find("'gpu'"), std::string::npos);
}

TEST(CapturedTrace, RefusesAFileThatIsCutOff) {
  const std::string whole = captured_text();
  EXPECT_NE(error_in(whole.substr(0, whole.rfind("{\"step\""))).find("cut off"), std::string::npos);
}

TEST(CapturedTrace, RefusesAConditionThatTheCaptureItselfBreaks) {
  EXPECT_NE(
      error_in(captured_head("{\"guard\":\"batch > 6\",\"where\":\"train.py:3\"}\n") + captured_body()).find("'batch > 6' of train.py:3"),
      std::string::npos);
}

TEST(CapturedTrace, LetsAConditionNameACountThatFollows) {
  const std::string guard = "{\"guard\":\"n1 >= 2\",\"where\":\"train.py:20\"}\n";
  const std::string text = captured_count_text();
  const size_t count = text.find("{\"count\"");
  const CapturedTrace t = read(text.substr(0, count) + guard + text.substr(count));
  EXPECT_TRUE(t.is_about_counts(t.conditions[0]));
  EXPECT_EQ(t.broken(t.values({}, CountShare::none)).front()->where, "train.py:20");
}

TEST(CapturedTrace, OfVersion1HasNoSymbolsAndReadsAsBefore) {
  const CapturedTrace t = read("{\"plimsoll_trace\":1}\n{\"alloc\":0,\"bytes\":64,\"unknown\":1}\n{\"step\":true}\n");
  EXPECT_EQ(t.version, 1);
  EXPECT_TRUE(t.symbols.empty());
  EXPECT_EQ(text_of(t.evaluate(t.values({}))), text_of(t.program));
  EXPECT_NE(error_in("{\"plimsoll_trace\":1}\n{\"symbol\":\"batch\",\"at\":6,\"min\":2,\"max\":64}\n"), "");
}

TEST(CapturedTraceFuzz, AnyFileIsATraceOrAnError) {
  Fuzzing("captured_trace", [](const std::string& text) {
    const CapturedTrace t = read(text);
    const std::vector<int64_t> values = t.values({}, CountShare::all);
    t.broken(values);
    t.evaluate(values);
  }).run({captured_text(), captured_count_text()}, 4000);
}

}  // namespace
}  // namespace plimsoll::captured_trace_test
