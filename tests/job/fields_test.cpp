// Settings with parts: a mapping and the text of a flag mean the same, and both name what is wrong in them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "job/fields.h"

namespace plimsoll::fields_test {
namespace {

using Json = nlohmann::json;

Config read(const Json& value) { return fields_of(value, "lora", {"r", "alpha", "bias", "names"}, "e.g. --lora r=16"); }

std::string refusal(const Json& value) {
  try {
    read(value);
  } catch (const Error& e) {
    return std::string(e.what()) + " " + e.hint();
  }
  return "";
}

TEST(Fields, TextAndMappingMeanTheSame) {
  const Json mapping{{"r", 16}, {"alpha", 0.5}, {"bias", "all"}, {"names", {"q_proj", "layers.0.v_proj"}}};
  EXPECT_EQ(read("r=16,alpha=0.5,bias=all,names=q_proj+layers.0.v_proj").values(), mapping);
  EXPECT_EQ(read(mapping).values(), mapping);
  EXPECT_EQ(read(true).values(), Json::object());
}

TEST(Fields, APlusJoinsNamesAndNumbersButNoNumberOrPatternIsTornApart) {
  EXPECT_EQ(parse_flag_value("0+3+7"), (Json{0, 3, 7}));
  EXPECT_EQ(parse_flag_value("1e+2"), Json(100.0));
  EXPECT_EQ(parse_flag_value("(q|v)_proj+"), Json("(q|v)_proj+"));
}

TEST(Fields, WhatIsWrongIsNamedWithAWayOut) {
  EXPECT_EQ(refusal("r16"), "[lora] 'r16' is not KEY=VALUE e.g. --lora r=16");
  EXPECT_NE(refusal("r=4,").find("'' is not KEY=VALUE"), std::string::npos);
  EXPECT_NE(refusal("=4").find("'=4' is not KEY=VALUE"), std::string::npos);
  EXPECT_NE(refusal("r=4,r=8").find("'r' is given twice"), std::string::npos);
  EXPECT_NE(refusal("alfa=4").find("did you mean 'alpha'?"), std::string::npos);
  EXPECT_NE(refusal(7).find("7 is not a mapping"), std::string::npos);
  EXPECT_NE(refusal(false).find("false is not a mapping"), std::string::npos);
  EXPECT_NE(refusal(Json::array({1})).find("is not a mapping"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::fields_test
