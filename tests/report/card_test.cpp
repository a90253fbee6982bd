// The answer as a picture: what stands on it, and that a PNG holds the pixels that were drawn.
#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "api/report.h"
#include "report/card.h"
#include "report/stroke_text.h"
#include "util/error.h"
#include "util/png.h"

namespace plimsoll {
namespace {

ReportRequest gpt2_on(const std::string& gpu) {
  ReportRequest r;
  r.job.run = {"gpt2"};
  r.job.set("batch", 2, "test");
  r.job.set("seq", 64, "test");
  r.job.set("config", {{"n_layer", 1}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 1000}}, "test");
  if (!gpu.empty()) r.devices.names = {gpu};
  return r;
}

uint32_t number_at(const std::string& bytes, size_t at) {
  uint32_t out = 0;
  for (size_t i = 0; i < 4; ++i) out = out << 8 | static_cast<uint8_t>(bytes[at + i]);
  return out;
}

// Chunks by name, each with its checksum looked at.
std::string chunk(const std::string& file, const std::string& name) {
  for (size_t at = 8; at + 12 <= file.size(); at += number_at(file, at) + 12) {
    const std::string checked = file.substr(at + 4, number_at(file, at) + 4);
    EXPECT_EQ(number_at(file, at + 4 + checked.size()), crc32(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size()));
    if (checked.starts_with(name)) return checked.substr(4);
  }
  return "";
}

TEST(Card, SaysTheAnswerAndWhatFillsTheMemory) {
  const std::string svg = card(gpt2_on("rtx-4090"), "answer.svg");
  for (const char* part : {">gpt2<", ">fits RTX 4090<", ">needs ", "of 23.64 GiB", "#999999", "other "})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  EXPECT_EQ(svg.find("#b3261e"), std::string::npos) << "red is for what is over its limit";
  EXPECT_NE(card(gpt2_on("256MiB"), "answer.svg").find("#b3261e"), std::string::npos);
  EXPECT_NE(card(gpt2_on(""), "answer.svg").find("on an NVIDIA card"), std::string::npos);
}

TEST(Card, OfARecordingNamesItsPlaces) {
  ReportRequest r;
  r.job.run = {PLIMSOLL_SOURCE_DIR "/tests/data/oom.pickle"};
  const std::string svg = card(r, "a.SVG");
  EXPECT_NE(svg.find("allocated before the recording"), std::string::npos);
  EXPECT_NE(svg.find("asked for 30.00 MiB"), std::string::npos);
}

TEST(Card, OfAnyOtherEndingIsRefused) {
  EXPECT_THROW(card(gpt2_on("rtx-4090"), "answer.jpg"), Error);
  EXPECT_THROW(card(gpt2_on("rtx-4090"), "answer"), Error);
}

TEST(Card, AsPngHasTheSizeOfAPreview) {
  const std::string file = card(gpt2_on("rtx-4090"), "answer.png");
  EXPECT_TRUE(file.starts_with("\x89PNG\r\n\x1a\n"));
  const std::string head = chunk(file, "IHDR");
  EXPECT_EQ(number_at(head, 0), 1200u);
  EXPECT_EQ(number_at(head, 4), 630u);
  EXPECT_LT(file.size(), 60'000u);
}

TEST(Png, UnpacksToThePixelsThatWereDrawn) {
  Picture p(3, 2, {1, 2, 3});
  p.at(2, 1) = {200, 100, 50};
  const std::string packed = chunk(png(p), "IDAT");
  std::string rows(2 * (1 + 3 * 3), '?');
  uLongf size = rows.size();
  ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()), Z_OK);
  ASSERT_EQ(size, rows.size());
  EXPECT_EQ(rows, std::string("\0\1\2\3\1\2\3\1\2\3\0\1\2\3\1\2\3\xc8\x64\x32", 20));
}

TEST(Png, IsAnAddressInBase64) {  // RFC 4648, section 10
  for (const auto& [plain, coded] : {std::pair{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}})
    EXPECT_EQ(data_address(plain), std::string("data:image/png;base64,") + coded);
}

TEST(StrokeText, DrawsEveryLetterInsideItsWidth) {
  const TextStyle style{24, .125, {0, 0, 0}};
  for (char c = '!'; c <= '~'; ++c) {
    const std::string text(1, c);
    Picture p(60, 60, {255, 255, 255});
    draw_text(p, 20, 40, text, style);
    int inside = 0, outside = 0;
    for (int y = 0; y < p.height; ++y)
      for (int x = 0; x < p.width; ++x)
        if (p.at(x, y).red < 128) ++(x >= 17 && x <= 23 + text_width(text, style) && y >= 13 && y <= 52 ? inside : outside);
    EXPECT_GT(inside, 4) << c;
    EXPECT_EQ(outside, 0) << c;
  }
  EXPECT_GT(text_width("mm", style), 2 * text_width("m", style));
}

}  // namespace
}  // namespace plimsoll
