// Settings with parts: a mapping and the text of a flag mean the same, and both name what is wrong in them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "job/mapping.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

const MappingForm kForm{"lora", {"r", "alpha", "bias", "names"}, "r=16"};

std::string refusal(const Json& value) {
  try {
    read_mapping(value, kForm);
  } catch (const Error& e) {
    return std::string(e.what()) + " " + e.hint();
  }
  return "";
}

TEST(Mapping, TextAndMappingMeanTheSame) {
  const Json mapping{{"r", 16}, {"alpha", 0.5}, {"bias", "all"}, {"names", {"q_proj", "layers.0.v_proj"}}};
  EXPECT_EQ(read_mapping("r=16,alpha=0.5,bias=all,names=q_proj+layers.0.v_proj", kForm).values(), mapping);
  EXPECT_EQ(read_mapping(mapping, kForm).values(), mapping);
  EXPECT_EQ(read_mapping(true, kForm).values(), Json::object());
}

TEST(Mapping, APlusJoinsNamesAndNumbersButNoNumberOrPatternIsTornApart) {
  EXPECT_EQ(parse_flag_value("0+3+7"), (Json{0, 3, 7}));
  EXPECT_EQ(parse_flag_value("1e+2"), Json(100.0));
  EXPECT_EQ(parse_flag_value("(q|v)_proj+"), Json("(q|v)_proj+"));
}

TEST(Mapping, WhatIsWrongIsNamedWithAWayOut) {
  EXPECT_EQ(refusal("r16"), "[lora] 'r16' is not KEY=VALUE e.g. --lora r=16, or a mapping in a job file");
  EXPECT_NE(refusal("r=4,").find("'' is not KEY=VALUE"), std::string::npos);
  EXPECT_NE(refusal("=4").find("'=4' is not KEY=VALUE"), std::string::npos);
  EXPECT_NE(refusal("r=4,r=8").find("'r' is given twice"), std::string::npos);
  EXPECT_NE(refusal("alfa=4").find("did you mean 'alpha'?"), std::string::npos);
  EXPECT_NE(refusal(7).find("7 is not a mapping"), std::string::npos);
  EXPECT_NE(refusal(false).find("false is not a mapping"), std::string::npos);
  EXPECT_NE(refusal(Json::array({1})).find("is not a mapping"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
