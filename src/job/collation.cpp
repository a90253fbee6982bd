#include "job/collation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "job/named_value.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::array kPaddings{"none", "ones", "mask"};
constexpr std::array kCollates{"pad", "pack"};

int64_t length_of(const nlohmann::json& value) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) || value.get<int64_t>() < 1)
    throw Error(fmt::format("[job] lengths: {} is not a number of tokens above 0", value.dump()),
                "give whole numbers, e.g. [512, 301, 77]");
  return value.get<int64_t>();
}

nlohmann::json numbers_in(const std::string& text) {
  nlohmann::json numbers = nlohmann::json::array();
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, '+');) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc() || end != part.data() + part.size())
      throw Error(fmt::format("[job] lengths: '{}' is not a number of tokens above 0", part), "the flag is written 512+301+77");
    numbers.push_back(n);
  }
  return numbers;
}

}  // namespace

const char* to_string(Padding p) { return kPaddings[static_cast<size_t>(p)]; }
const char* to_string(Collate c) { return kCollates[static_cast<size_t>(c)]; }
Padding parse_padding(const std::string& text) { return one_of<Padding>(kPaddings, text, "padding"); }
Collate parse_collate(const std::string& text) { return one_of<Collate>(kCollates, text, "collate"); }

std::vector<int64_t> parse_lengths(const nlohmann::json& value) {
  const nlohmann::json list = value.is_string() ? numbers_in(value.get<std::string>()) : value.is_number() ? nlohmann::json{value} : value;
  if (!list.is_array() || list.empty())
    throw Error(fmt::format("[job] lengths {} is not a list of numbers", value.dump()),
                "give the tokens of each sample, e.g. [512, 301, 77]");
  std::vector<int64_t> lengths;
  for (const nlohmann::json& n : list) lengths.push_back(length_of(n));
  return lengths;
}

void check_collation(const Collation& c, int64_t batch, Problems& out) {
  if (c.collate == Collate::pack && c.lengths.empty())
    out.push_back({"[job] collate pack: the lengths of the samples are missing", "e.g. lengths: [512, 301, 77]"});
  if (c.collate == Collate::pack && c.padding_given && c.padding != Padding::none)
    out.push_back(
        {fmt::format("[job] padding {}: a packed row has no padding", to_string(c.padding)), "leave padding out, or collate: pad"});
  if (c.collate == Collate::pack && c.pad_to_multiple_of > 1)
    out.push_back({"[job] pad_to_multiple_of: a packed row is not padded", "leave it out, or collate: pad"});
  if (batch && !c.lengths.empty() && static_cast<size_t>(batch) != c.lengths.size())
    out.push_back({fmt::format("[job] batch {} does not agree with {} lengths", batch, c.lengths.size()),
                   "leave batch out, or give one length a sample"});
}

BatchShape batch_shape(const Collation& c, int64_t samples, int64_t length) {
  BatchShape s;
  if (c.lengths.empty()) {
    s.rows = samples;
    s.tokens = round_up(length, c.pad_to_multiple_of);
    s.padding = c.padding;
    if (s.tokens != length && !c.padding_given) s.padding = Padding::mask;
    s.labelled = checked_mul(samples, length - 1);
    s.own_labels = s.tokens != length;
    return s;
  }
  // The list again and again until there are so many samples.
  const int64_t listed = static_cast<int64_t>(c.lengths.size()), rest = samples % listed;
  int64_t total = 0, sum = 0, longest = 0;
  for (int64_t i = 0; i < listed; ++i) {
    const int64_t n = c.lengths[static_cast<size_t>(i)];
    total = checked_add(total, n);
    if (i < rest) sum = checked_add(sum, n);
    if (i < samples) longest = std::max(longest, n);
  }
  sum = checked_add(sum, checked_mul(samples / listed, total));
  s.labelled = sum - samples;
  s.own_labels = true;
  if (c.collate == Collate::pack) {
    s.tokens = sum;
    s.packed_samples = samples;
    s.longest = longest;
    return s;
  }
  s.rows = samples;
  s.tokens = round_up(longest, c.pad_to_multiple_of);
  s.padding = c.padding_given ? c.padding : checked_mul(s.rows, s.tokens) == sum ? Padding::ones : Padding::mask;
  return s;
}

}  // namespace plimsoll
