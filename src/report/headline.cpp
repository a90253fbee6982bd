#include "report/headline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "report/counters.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

std::string in_gib(Bytes bytes, int decimals) {
  return fmt::format("{:.{}f}", static_cast<double>(bytes.count) / static_cast<double>(kGiB), decimals);
}

int decimals_for(Bytes smallest) { return smallest.count >= 10 * kGiB ? 1 : 2; }

std::string interval_text(const ByteRange& r, int decimals) {
  return r.is_exact() ? "" : fmt::format(" ({} to {})", in_gib(r.low, decimals), in_gib(r.high, decimals));
}

// "needs 34.1 of 79.2 GiB (32.9 to 36.0)". Two numbers that differ do not print alike.
std::string needs_text(const ByteRange& need, const std::optional<Capacity>& capacity) {
  if (!capacity)
    return fmt::format("needs {} GiB{}", in_gib(need.bytes, decimals_for(need.bytes)), interval_text(need, decimals_for(need.bytes)));
  int decimals = decimals_for(std::min(need.bytes, capacity->bytes));
  if (in_gib(need.bytes, decimals) == in_gib(capacity->bytes, decimals)) decimals = 2;
  const std::string needs = in_gib(need.bytes, decimals), has = in_gib(capacity->bytes, decimals);
  return (need.bytes > capacity->bytes ? fmt::format("needs {} GiB of {}", needs, has) : fmt::format("needs {} of {} GiB", needs, has)) +
         interval_text(need, decimals);
}

// Where the numbers alone would say the opposite.
bool needs_reason(const Fit& f) {
  if (!f.device.capacity) return false;
  const bool room = f.margin.count >= 0;
  return (f.verdict == Verdict::does_not_fit && room) || (f.verdict == Verdict::tight && !room);
}

// "the pool is the host's too" is a note of its own.
std::string without_pool(const std::string& reason) { return reason.substr(0, reason.find("; the pool is the host's")); }

}  // namespace

std::string gib_text(Bytes bytes) { return in_gib(bytes, decimals_for(bytes)) + " GiB"; }

std::string device_name(const std::string& name) {
  for (const char* maker : {"NVIDIA GeForce ", "GeForce ", "NVIDIA "})
    if (name.starts_with(maker)) return name.substr(std::string_view(maker).size());
  const bool id = std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::islower(c) || std::isdigit(c) || c == '-'; });
  if (!id || name.find('-') == std::string::npos) return name;
  std::string out;
  for (std::string word : split_at(name, '-')) {
    const size_t digits = static_cast<size_t>(std::find_if_not(word.begin(), word.end(), ::isdigit) - word.begin());
    if (digits > 0 && word.substr(digits) == "gb") {
      word.insert(digits, " ");
    }
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

std::string headline_text(const Fit& f) {
  const std::string device = device_name(f.device.name), needs = needs_text(f.memory.device, f.device.capacity);
  if (f.verdict == Verdict::unknown) {
    const bool parts = f.reason.find(" not in it") != std::string::npos;
    return fmt::format("unknown whether it fits {}: {}; {}{}", device, without_pool(f.reason), parts ? "the rest " : "", needs);
  }
  const char* words = f.verdict == Verdict::fits ? "fits" : f.verdict == Verdict::tight ? "tight on" : "does not fit";
  std::string out = fmt::format("{} {}: {}", words, device, needs);
  if (f.device.others.count > 0) out += fmt::format(", other processes use {}", gib_text(f.device.others));
  if (needs_reason(f)) out += "; " + without_pool(f.reason);
  return out;
}

std::string headline_text(const Estimate& e) {
  if (!e.memory) return "needs more than 1 PiB";
  const ByteRange& need = e.memory->device;
  const int decimals = decimals_for(need.bytes);
  return fmt::format("needs {} GiB on {}{}", in_gib(need.bytes, decimals), counters_of(e).card, interval_text(need, decimals));
}

doc::Text verdict_mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::fits: return doc::good("✓");
    case Verdict::tight: return doc::warn("!");
    case Verdict::does_not_fit: return doc::bad("✗");
    case Verdict::unknown: break;
  }
  return doc::bold("?");
}

doc::Text headline(const Fit& f) {
  const std::string line = headline_text(f);
  const size_t colon = f.verdict == Verdict::unknown ? line.size() : line.find(": ");
  const doc::Tone tone = f.verdict == Verdict::fits           ? doc::Tone::good
                         : f.verdict == Verdict::tight        ? doc::Tone::warn
                         : f.verdict == Verdict::does_not_fit ? doc::Tone::bad
                                                              : doc::Tone::bold;
  return verdict_mark(f.verdict) + " " + doc::toned(line.substr(0, colon), tone) + doc::bold(line.substr(colon));
}

doc::Text headline(const Estimate& e) { return doc::bold(headline_text(e)); }

}  // namespace plimsoll
