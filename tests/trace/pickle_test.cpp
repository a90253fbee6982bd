// The restricted pickle reader: plain values of every protocol, shared values stay shared, and whatever could run code or
// break a bound is an Error.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "pickle_writer.h"
#include "trace/pickle.h"
#include "util/error.h"
#include "util/mapped_file.h"

namespace plimsoll::pickle_test {
namespace {

using Kind = Pickle::Kind;
using namespace std::string_literals;

std::vector<Pickle::Id> items(const Pickle& p, Pickle::Id id) {
  std::vector<Pickle::Id> out;
  for (const Pickle::Id i : p.items(id)) out.push_back(i);
  return out;
}

// The body is what stands between PROTO 4 and STOP.
std::string framed(const std::string& body, bool stop = true) {
  std::string bytes = "\x80\x04";
  bytes += body;
  if (stop) bytes += '.';
  return bytes;
}

std::string error_of(const std::string& body, bool stop = true) {
  const std::string bytes = framed(body, stop);
  try {
    read_pickle(bytes, "f.pickle");
  } catch (const Error& e) {
    EXPECT_NE(e.hint(), "");
    EXPECT_EQ(e.code(), ExitCode::bad_input);
    return e.what();
  }
  return "no error";
}

void expect_error(const std::string& body, const std::string& words, bool stop = true) {
  const std::string error = error_of(body, stop);
  EXPECT_NE(error.find(words), std::string::npos) << words << " | " << error;
  EXPECT_NE(error.find("f.pickle, byte "), std::string::npos) << error;
}

struct Read {
  std::string bytes;
  Pickle pickle;
  explicit Read(const std::string& body) : bytes(framed(body)), pickle(read_pickle(bytes, "f.pickle")) {}
};

TEST(Pickle, ReadsNumbersOfEveryOpcode) {
  const Read r(
      "](K\xff"
      "M\xff\xff"
      "J\xfe\xff\xff\xff"
      "\x8a\x00"
      "\x8a\x01\x80"
      "\x8a\x02\x00\x80"
      "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
      "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"
      "G\x3f\xf8\x00\x00\x00\x00\x00\x00"
      "N\x88\x89"
      "e"s);
  const auto i = items(r.pickle, r.pickle.root());
  ASSERT_EQ(i.size(), 12u);
  const int64_t expected[] = {255, 65535, -2, 0, -128, -32768, INT64_MAX, -1};
  for (size_t k = 0; k < std::size(expected); ++k) EXPECT_EQ(r.pickle.integer(i[k]), expected[k]) << k;
  EXPECT_EQ(r.pickle.real(i[8]), 1.5);
  EXPECT_EQ(r.pickle.kind(i[9]), Kind::none);
  EXPECT_TRUE(r.pickle.boolean(i[10]));
  EXPECT_FALSE(r.pickle.boolean(i[11]));
}

TEST(Pickle, ReadsTextsAndKeepsOneOfEach) {
  const Read r(
      "](\x8c\x01"
      "a"
      "X\x01\x00\x00\x00"
      "a"
      "\x8d\x02\x00\x00\x00\x00\x00\x00\x00"
      "bc"
      "\x8c\x00"
      "e"s);
  const auto i = items(r.pickle, r.pickle.root());
  ASSERT_EQ(i.size(), 4u);
  EXPECT_EQ(r.pickle.text(i[0]), "a");
  EXPECT_EQ(i[0], i[1]);
  EXPECT_EQ(r.pickle.text(i[2]), "bc");
  EXPECT_EQ(r.pickle.text(i[3]), "");
  EXPECT_EQ(r.pickle.find_text("bc"), i[2]);
  EXPECT_EQ(r.pickle.find_text("nowhere"), Pickle::kNothing);
}

TEST(Pickle, BuildsContainersInEveryWay) {
  const Read r(
      "((K\x01l"
      "(\x8c\x01kK\x02"
      "d"
      "(K\x01K\x02K\x03t"
      ")\x4b\x07\x85\x4b\x07\x4b\x08\x86\x4b\x07\x4b\x08\x4b\x09\x87"
      "l"s);
  const auto i = items(r.pickle, r.pickle.root());
  ASSERT_EQ(i.size(), 7u);
  EXPECT_EQ(r.pickle.kind(i[0]), Kind::list);
  EXPECT_EQ(r.pickle.kind(i[1]), Kind::dict);
  EXPECT_EQ(r.pickle.size(i[1]), 1u);
  for (const auto& [id, size] : {std::pair{i[2], 3u}, {i[3], 0u}, {i[4], 1u}, {i[5], 2u}, {i[6], 3u}}) {
    EXPECT_EQ(r.pickle.kind(id), Kind::tuple);
    EXPECT_EQ(r.pickle.size(id), size);
    EXPECT_EQ(items(r.pickle, id).size(), size);
  }
}

TEST(Pickle, AListMayGrowInBatches) {
  std::string body = "]\x94";
  for (int i = 0; i < 5; ++i)
    body +=
        "(K\x01K\x02"
        "e"
        "K\x03"
        "a"s;
  const Read r(body);
  EXPECT_EQ(r.pickle.size(r.pickle.root()), 15u);
  EXPECT_EQ(items(r.pickle, r.pickle.root()).size(), 15u);
}

// Thirty lists, each with the one before it twice: 2^30 values when expanded.
TEST(Pickle, SharedValuesStayShared) {
  std::string body = "]\x94";
  for (char i = 0; i < 30; ++i) body += "](h" + std::string(1, i) + "h" + std::string(1, i) + "e\x94";
  const Read r(body);
  EXPECT_LT(r.pickle.values(), 400u);
  const auto i = items(r.pickle, r.pickle.root());
  EXPECT_EQ(i[0], i[1]);
}

TEST(Pickle, NeverRunsCode) {
  for (const auto& [body, name] : {std::pair{"cos\nsystem\n"s, "GLOBAL"},
                                   {"\x8c\x02os\x8c\x06system\x93"s, "STACK_GLOBAL"},
                                   {"N)R"s, "REDUCE"},
                                   {"NNb"s, "BUILD"},
                                   {"(ios\nsystem\n"s, "INST"},
                                   {"(No"s, "OBJ"},
                                   {"N)\x81"s, "NEWOBJ"},
                                   {"\x82\x01"s, "EXT1"},
                                   {"P1\n"s, "PERSID"},
                                   {"NQ"s, "BINPERSID"},
                                   {"\x97"s, "NEXT_BUFFER"}}) {
    expect_error(body, name);
    expect_error(body, "no code of the file is run");
  }
  expect_error("I1\n", "opcode 0x49");
  expect_error("\x8e", "opcode 0x8e");  // BINBYTES8
}

TEST(Pickle, BoundsAreErrors) {
  expect_error("", "too little on the stack");
  expect_error("N", "bytes are needed", false);
  expect_error("h\x05", "memo 5 was never written");
  expect_error("Nr\xff\xff\xff\x7f"s, "memo 2147483647 after 0 entries");
  expect_error("\x94", "too little");
  expect_error("e", "no mark");
  expect_error("(e", "too little");
  expect_error("N(e", "expected a list");
  expect_error("Na", "too little");
  expect_error("](0NNe", "no mark");
  expect_error("(a", "too little");
  expect_error("\x86", "too little");
  expect_error("(](\x86", "too little");
  expect_error("}(K\x01K\x02u", "a dict key is a whole number");
  expect_error("}(\x8c\x01ku", "a dict key without a value");
  expect_error("}\x8c\x01ks", "too little");
  expect_error("\x8a\x0a" + std::string(10, '\1'), "more than 64 bits");
  expect_error("\x8a\x09" + std::string(9, '\1'), "more than 64 bits");
  expect_error(
      "\x8c\xff"
      "abc",
      "255 bytes are needed");
  expect_error("\x8d\xff\xff\xff\xff\xff\xff\xff\x7f"s, "a text of 9223372036854775807 bytes");
  expect_error("X\xff\xff\xff\xff"s, "4294967295 bytes are needed");
  expect_error("\x95\xff\xff\x00\x00\x00\x00\x00\x00N"s, "a frame of 65535 bytes");
  expect_error("\x80\x04N", "opcode 0x80");
}

TEST(Pickle, NoValueContainsItself) {
  expect_error(
      "]\x94h\x00"
      "a"s,
      "grows");
  expect_error("}\x94\x8c\x01kh\x00s"s, "grows");
  expect_error(
      "]\x94](h\x00"
      "eh\x00h\x01"
      "a"s,
      "memo 1");
  expect_error(
      "]\x94]\x94h\x00"
      "ah\x00h\x01"
      "a"s,
      "grows");
}

TEST(Pickle, DeepNestingIsAnError) {
  std::string body(99, ']');
  body += "K\x01" + std::string(99, 'a');
  EXPECT_EQ(error_of(body), "no error");
  expect_error(std::string(1'000'000, ']') + std::string(999'999, 'a'), "nested more than 100 deep");
  expect_error(std::string(900, '('), "too little on the stack");
  // What is begun and never ended is bounded, whatever the file's size.
  expect_error(std::string(1'000'000, '('), "open at once");
  expect_error(std::string(5'000'000, ']'), "open at once");
}

// Sums up what it takes; a list that is shared is a number from then on.
struct Taker : PickleConsumer {
  explicit Taker(const Pickle& p) : read(p) {}
  std::string_view key() const override { return "lists"; }
  std::string_view interned_key() const override { return "shared"; }
  int64_t intern(Pickle::Id list) override { return 1000 + static_cast<int64_t>(read.size(list)); }
  void take(size_t list, Pickle::Id dict) override {
    taken.resize(std::max(taken.size(), list + 1));
    for (auto it = read.items(dict).begin(); it != std::default_sentinel; ++it) {
      const Pickle::Id name = *it, value = *++it;
      if (read.text(name) == "n") taken[list].push_back(read.integer(value));
      if (read.kind(value) == Kind::interned) shared.push_back(read.interned(value));
    }
  }
  const Pickle& read;
  std::vector<std::vector<int64_t>> taken;
  std::vector<int64_t> shared;
};

// {"lists": [[{"n": 1000, "shared": [...]}, ...], [], ...], "rest": 7}, in protocol 4 in batches that end with an APPEND where one is left.
std::string lists_of(int protocol, const std::vector<int>& sizes) {
  PickleWriter w(protocol);
  uint32_t shared = 0;
  w.open('}');
  w.text("lists");
  w.open(']');
  for (const int size : sizes) {
    w.open(']');
    for (int i = 0; i < size; ++i) {
      if (w.batches() && i > 0 && i % 1000 == 0) w.batch();
      w.open('}');
      w.text("n");
      w.integer(1000 + i);
      w.text("shared");
      if (i == 0) {
        shared = w.open(']');
        for (int k = 0; k < 50; ++k) w.integer(5000 + k);
        w.close('e');
      } else {
        w.get(shared);
      }
      w.close('u');
    }
    w.close('e');
  }
  w.close('e');
  w.text("rest");
  w.integer(7);
  w.close('u');
  return w.finish();
}

TEST(Pickle, AConsumerTakesWhatNeedNotBeKept) {
  for (const int protocol : {2, 4}) {
    const std::vector<int> sizes{3, 0, 2500, 1};
    const std::string bytes = lists_of(protocol, sizes);
    Pickle p;
    Taker taker(p);
    read_pickle(p, bytes, "f", {}, &taker);
    ASSERT_EQ(taker.taken.size(), 4u);
    for (size_t list = 0; list < sizes.size(); ++list) {
      ASSERT_EQ(taker.taken[list].size(), static_cast<size_t>(sizes[list])) << protocol << " " << list;
      for (int i = 0; i < sizes[list]; ++i) EXPECT_EQ(taker.taken[list][static_cast<size_t>(i)], 1000 + i);
    }
    EXPECT_EQ(taker.shared.size(), 2504u);
    EXPECT_TRUE(std::all_of(taker.shared.begin(), taker.shared.end(), [](int64_t n) { return n == 1050; }));
    const std::vector<Pickle::Id> root = items(p, p.root());
    ASSERT_EQ(root.size(), 4u);
    EXPECT_EQ(p.integer(root[3]), 7);
    // Ten times as many take no more than the same.
    Pickle larger;
    Taker other(larger);
    const std::string many = lists_of(protocol, {3, 0, 25000, 1});
    read_pickle(larger, many, "f", {}, &other);
    EXPECT_EQ(other.taken[2].size(), 25000u);
    EXPECT_LE(larger.kept(), p.kept() + 8);
    EXPECT_GT(larger.values(), 10 * p.kept());
  }
}

// What was taken is gone: a file that uses it again is refused.
TEST(Pickle, WhatWasTakenCannotBeUsedAgain) {
  PickleWriter w(4);
  w.open('}');
  w.text("lists");
  w.open(']');
  w.open(']');
  const uint32_t dict = w.open('}');
  w.text("n");
  w.integer(1);
  w.close('u');
  w.close('e');
  w.close('e');
  w.text("rest");
  w.get(dict);
  w.close('u');
  const std::string bytes = w.finish();
  Pickle p;
  Taker taker(p);
  EXPECT_THROW(read_pickle(p, bytes, "f", {}, &taker), Error);
  EXPECT_NO_THROW(read_pickle(bytes, "f"));
}

TEST(Pickle, OnlyProtocolsTwoToFive) {
  for (const std::string& bytes : {""s, "\x80"s, "\x80\x01N."s, "\x80\x06N."s, "N."s, "{}"s}) {
    EXPECT_FALSE(looks_like_pickle(bytes));
    EXPECT_THROW(read_pickle(bytes, "f"), Error);
  }
  for (const char protocol : {2, 3, 4, 5}) EXPECT_NO_THROW(read_pickle("\x80"s + protocol + "N.", "f"));
}

TEST(Pickle, TellsHowFarItIs) {
  PickleWriter w(4);
  w.open(']');
  for (int i = 0; i < 200'000; ++i) w.text(std::string(200, 'x') + std::to_string(i));
  w.close('e');
  const std::string bytes = w.finish();
  size_t calls = 0, last = 0;
  read_pickle(bytes, "f", [&](size_t done, size_t total) {
    ++calls;
    EXPECT_EQ(total, bytes.size());
    EXPECT_GT(done, last);
    last = done;
  });
  EXPECT_EQ(calls, (bytes.size() >> 24) + 1);  // and at the end
  EXPECT_EQ(last, bytes.size());
}

TEST(MappedFile, MapsFilesAndReadsWhatCannotBeMapped) {
  const std::string path = (std::filesystem::temp_directory_path() / ("plimsoll_mapped_" + std::to_string(::getpid()))).string();
  std::ofstream(path) << "hello";
  EXPECT_EQ(MappedFile(path).bytes(), "hello");
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_EQ(MappedFile(path).bytes(), "");
  std::filesystem::remove(path);
  EXPECT_EQ(MappedFile("/dev/null").bytes(), "");
  EXPECT_THROW(MappedFile{path}, Error);
  EXPECT_THROW(MappedFile{"/"}, Error);
}

}  // namespace
}  // namespace plimsoll::pickle_test
