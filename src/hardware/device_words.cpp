#include "hardware/device_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// More of one kind than anyone has in a run; a larger number is part of a name: "4090x2".
constexpr int64_t kMostInACluster = 1024;
// A bare number up to here is a size; above it a name, as "980" or "4090". The largest device has 512 GB (M3 Ultra).
constexpr double kLargestBareSize = 512;

std::string trimmed(std::string_view text, const char* dropped = " ") {
  const size_t begin = text.find_first_not_of(dropped), end = text.find_last_not_of(dropped);
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin, end - begin + 1));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

std::optional<int64_t> whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return all_digits(text) && error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// "8xh100", "8 x h100-sxm", "2x4090".
bool take_count_before(DeviceWords& words) {
  const size_t digits = std::min(words.name.find_first_not_of("0123456789"), words.name.size());
  const size_t sign = std::min(words.name.find_first_not_of(' ', digits), words.name.size());
  if (digits == 0 || sign == words.name.size() || (words.name[sign] != 'x' && words.name[sign] != 'X')) return false;
  const std::string rest = trimmed(std::string_view(words.name).substr(sign + 1), " -");
  const auto count = whole(std::string_view(words.name).substr(0, digits));
  if (!count || *count > kMostInACluster || rest.empty() || (all_digits(rest) && rest.size() < 3)) return false;
  words.count = *count;
  words.name = rest;
  return true;
}

// "4090x2", "h100 x8", "a100-80gb x 4"; not "rtx 4090", whose x has a letter before it.
bool take_count_behind(DeviceWords& words) {
  const size_t last = words.name.find_last_not_of("0123456789");
  if (last == std::string::npos || last + 1 == words.name.size()) return false;
  const size_t sign = words.name.find_last_not_of(' ', last);
  if (sign == std::string::npos || sign == 0 || (words.name[sign] != 'x' && words.name[sign] != 'X')) return false;
  const char before = words.name[sign - 1];
  const auto count = whole(std::string_view(words.name).substr(last + 1));
  if (!count || *count > kMostInACluster || !(is_digit(before) || before == ' ' || before == '-')) return false;
  const std::string rest = trimmed(std::string_view(words.name).substr(0, sign), " -");
  if (rest.empty()) return false;
  words.count = *count;
  words.name = rest;
  return true;
}

// "24", "24GB", "24 gb", "24g". "24GiB" is no card but a number of bytes.
std::optional<double> card_size(const std::string& text) {
  const std::string small = lower(text);
  double value = 0;
  const auto [end, error] = std::from_chars(small.data(), small.data() + small.size(), value);
  if (error != std::errc() || !is_digit(small[0]) || !std::isfinite(value) || value <= 0) return std::nullopt;
  const std::string unit = trimmed(std::string_view(end, static_cast<size_t>(small.data() + small.size() - end)));
  if (unit.empty() ? value > kLargestBareSize : unit != "gb" && unit != "g") return std::nullopt;
  return value;
}

// Places that lend devices. Colab: what "Colab GPUs Features & Pricing" (mccormickml.com, 2026-03) lists; Kaggle: its own choice of
// accelerators, "GPU T4 x2" and "GPU P100".
struct Place {
  const char* word;
  const char* device;  // empty: it lends several kinds whose memory differs
  const char* says;
};
constexpr Place kPlaces[] = {
    {"colab", "t4", "Colab's free GPU is a T4"},
    {"colab-free", "t4", "Colab's free GPU is a T4"},
    {"colab-pro", "", "Colab Pro lends several: --gpu t4, l4 or a100-40gb"},
    {"kaggle", "t4", "Kaggle lends two T4 or one P100: taken for one T4; the other is --gpu p100"},
};

void settle_place(DeviceWords& words, const std::string& typed) {
  std::string word = lower(words.name);
  std::replace_if(
      word.begin(), word.end(), [](char c) { return c == ' ' || c == '_' || c == '+'; }, '-');
  const auto place = std::find_if(std::begin(kPlaces), std::end(kPlaces), [&](const Place& p) { return word == p.word; });
  if (place == std::end(kPlaces)) return;
  if (*place->device == '\0') throw Error(fmt::format("[gpu] '{}' is no one device", typed), place->says);
  words.name = place->device;
  words.note = place->says;
}

void refuse_programs_words(const std::string& typed) {
  const std::string word = lower(typed.substr(0, typed.find(':')));
  if (word == "cuda" || word == "gpu" || word == "auto" || word == "mps" || word == "metal" || word == "hip" || word == "xpu")
    throw Error(fmt::format("[gpu] '{}' says where to run, not on what", typed),
                "--gpu this for the devices of this machine, or a name: --gpu rtx-4090");
  if (word == "cpu") throw Error("[gpu] 'cpu' is no device with memory of its own", "--host-memory this: does it fit into the RAM here?");
}

}  // namespace

DeviceWords read_device_words(std::string_view text) {
  DeviceWords words;
  words.name = trimmed(text.substr(0, 100));  // no name is longer
  const std::string typed = words.name;
  refuse_programs_words(typed);
  if (!take_count_before(words)) take_count_behind(words);
  if (words.count < 1) throw Error(fmt::format("[gpu] '{}': no devices at all", typed), "e.g. 8xh100-sxm, or h100-sxm for one");
  words.card_gb = card_size(words.name);
  if (words.card_gb) {
    words.note = fmt::format("'{}' is read as a card sold with {:g} GB, of which the driver keeps a part; exactly that much: {:g}GiB",
                             words.name, *words.card_gb, *words.card_gb);
    return words;
  }
  settle_place(words, typed);
  return words;
}

}  // namespace plimsoll
