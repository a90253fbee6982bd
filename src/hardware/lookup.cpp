#include "hardware/lookup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Words = std::vector<std::string>;

// Makers and product lines: they tell no two devices of the catalogue apart.
const std::set<std::string> kNoise{"nvidia", "geforce", "tesla", "amd",      "radeon",     "instinct", "intel",      "apple",
                                   "google", "jetson",  "gpu",   "graphics", "generation", "edition",  "corporation"};
// Prefixes that people leave out: "4090", "7900 xtx".
const std::set<std::string> kPrefixes{"rtx", "gtx", "rx", "arc"};
// How a device is mounted or counted: the same chip, so leaving such a word out is no other product.
const std::set<std::string> kForms{"pcie", "sxm", "nvl", "gcd", "blackwell", "workstation", "server", "max", "q"};

// Lower-case runs of letters and digits; "80 GB", "80g" and "80GiB" become "80gb"; SXM2 to SXM6 become "sxm".
Words words_of(std::string_view text) {
  Words out;
  std::string word;
  const auto flush = [&] {
    if ((word == "gb" || word == "gib") && !out.empty() && std::all_of(out.back().begin(), out.back().end(), ::isdigit)) {
      out.back() += "gb";
    } else if (!word.empty()) {
      out.push_back(word);
    }
    word.clear();
  };
  for (const unsigned char c : text) {
    if (std::isalnum(c)) {
      word += static_cast<char>(std::tolower(c));
    } else {
      flush();
    }
  }
  flush();
  for (std::string& w : out) {
    if (w.size() == 4 && w.starts_with("sxm") && std::isdigit(static_cast<unsigned char>(w[3]))) w = "sxm";
    const size_t digits = static_cast<size_t>(std::find_if_not(w.begin(), w.end(), ::isdigit) - w.begin());
    if (digits > 0 && (w.substr(digits) == "g" || w.substr(digits) == "gib")) w = w.substr(0, digits) + "gb";
  }
  return out;
}

Words without(Words words, const std::set<std::string>& dropped) {
  std::erase_if(words, [&](const std::string& w) { return dropped.contains(w); });
  return words;
}

// The number of a word such as "80gb".
std::optional<double> gigabytes(const std::string& word) {
  if (word.size() < 3 || word.size() > 8 || !word.ends_with("gb")) return std::nullopt;
  if (!std::all_of(word.begin(), word.end() - 2, ::isdigit)) return std::nullopt;
  return std::stod(word.substr(0, word.size() - 2));
}

std::optional<double> take_gigabytes(Words& words) {
  std::optional<double> found;
  std::erase_if(words, [&](const std::string& w) {
    const auto gb = gigabytes(w);
    if (gb) found = gb;
    return gb.has_value();
  });
  return found;
}

// What a row may be called: its id, its name with and without the part in parentheses, its driver name likewise.
std::vector<Words> names_of(const DeviceSpec& d) {
  std::vector<Words> out{words_of(d.id)};
  for (const std::string& text : {d.name, d.driver_name}) {
    out.push_back(words_of(text));
    if (const size_t open = text.find('('); open != std::string::npos) out.push_back(words_of(text.substr(0, open)));
  }
  for (Words& w : out) w = without(w, kNoise);
  std::erase_if(out, [](const Words& w) { return w.empty(); });
  return out;
}

// Equal word for word, or when written together ("rtx4090", "4070ti").
bool equal(const Words& a, const Words& b) { return a == b || join(a, "") == join(b, ""); }

bool equal_but_prefix(const Words& asked, const Words& name) {
  if (equal(asked, name)) return true;
  const Words bare = without(name, kPrefixes);
  return !bare.empty() && equal(asked, bare);
}

// Every word asked for is there; `extra` receives the others.
bool contains_all(const Words& name, const Words& asked, Words& extra) {
  extra = name;
  for (const std::string& w : asked) {
    const auto found = std::find(extra.begin(), extra.end(), w);
    if (found == extra.end()) return false;
    extra.erase(found);
  }
  return true;
}

using Match = bool (*)(const Words& asked, const Words& name);

bool same_in_another_form(const Words& asked, const Words& name) {
  Words extra;
  return contains_all(name, asked, extra) && without(extra, kForms).empty();
}
bool related(const Words& asked, const Words& name) {
  Words extra;
  return contains_all(name, asked, extra);
}

struct Named {
  const DeviceSpec* device;
  std::vector<Words> names;
};

std::vector<Named> named(const std::vector<DeviceSpec>& devices) {
  std::vector<Named> out;
  for (const DeviceSpec& d : devices) out.push_back({&d, names_of(d)});
  return out;
}

void drop_memory(std::vector<Named>& devices) {
  for (Named& d : devices) {
    for (Words& name : d.names) take_gigabytes(name);
    std::erase_if(d.names, [](const Words& name) { return name.empty(); });
  }
}

std::vector<DeviceSpec> matching(const Words& asked, Match match, const std::vector<Named>& devices) {
  std::vector<DeviceSpec> out;
  if (asked.empty()) return out;
  for (const Named& d : devices)
    if (std::any_of(d.names.begin(), d.names.end(), [&](const Words& name) { return match(asked, name); })) out.push_back(*d.device);
  return out;
}

std::vector<std::string> ids_of(const std::vector<DeviceSpec>& devices) {
  std::vector<std::string> out;
  for (const DeviceSpec& d : devices) out.push_back(d.id);
  return out;
}

std::string listed(const std::vector<DeviceSpec>& devices) {
  std::vector<std::string> out;
  for (const DeviceSpec& d : devices) out.push_back(d.nominal_gb ? fmt::format("{} ({:g} GB)", d.id, *d.nominal_gb) : d.id);
  return join(out, ", ");
}

template <class T>
void keep_agreed(T& mine, const T& other) {
  if (mine != other) mine = T{};
}

// One row out of several that differ in little: what they agree on.
DeviceSpec merged(std::string_view asked, const std::vector<DeviceSpec>& rows) {
  DeviceSpec out = rows[0];
  for (const DeviceSpec& d : rows) {
    keep_agreed(out.driver_name, d.driver_name);
    keep_agreed(out.segment, d.segment);
    keep_agreed(out.driver_total_mib, d.driver_total_mib);
    keep_agreed(out.usable_gib, d.usable_gib);
    keep_agreed(out.memory_type, d.memory_type);
    keep_agreed(out.bandwidth_gbs, d.bandwidth_gbs);
    keep_agreed(out.bf16_tflops, d.bf16_tflops);
    keep_agreed(out.fp16_tflops, d.fp16_tflops);
    keep_agreed(out.tf32_tflops, d.tf32_tflops);
    keep_agreed(out.fp32_tflops, d.fp32_tflops);
    keep_agreed(out.interconnect, d.interconnect);
    keep_agreed(out.interconnect_gbs, d.interconnect_gbs);
    keep_agreed(out.compute_capability, d.compute_capability);
    for (const std::string& s : d.sources)
      if (std::find(out.sources.begin(), out.sources.end(), s) == out.sources.end()) out.sources.push_back(s);
  }
  out.id = lower(asked);
  out.name = std::string(asked);
  out.notes = "one of " + join(ids_of(rows), ", ") + ": only what they agree on is filled in";
  return out;
}

// As many as fit on two lines; "rtx" alone is in the names of seventy.
std::string first_of(const std::vector<DeviceSpec>& rows) {
  constexpr size_t kMost = 8;
  if (rows.size() <= kMost) return listed(rows);
  return fmt::format("{} and {} more (plimsoll list gpus)", listed({rows.begin(), rows.begin() + kMost}), rows.size() - kMost);
}

bool same_memory(const std::vector<DeviceSpec>& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](const DeviceSpec& d) {
    return d.nominal_gb && d.nominal_gb == rows[0].nominal_gb && d.memory == rows[0].memory && d.arch == rows[0].arch;
  });
}

// The candidates by memory, the size that most of them have first; several of one size by the name that stands for all of them.
std::string by_memory(const Words& asked, const std::vector<DeviceSpec>& rows) {
  std::vector<std::vector<DeviceSpec>> sizes;
  for (const DeviceSpec& d : rows) {
    const auto same = std::find_if(sizes.begin(), sizes.end(), [&](const auto& s) { return s[0].nominal_gb == d.nominal_gb; });
    same == sizes.end() ? void(sizes.push_back({d})) : same->push_back(d);
  }
  std::stable_sort(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::vector<std::string> out;
  for (const std::vector<DeviceSpec>& same : sizes)
    out.push_back(same.size() == 1 || !same_memory(same) ? listed(same)
                                                         : fmt::format("{}-{:g}gb ({:g} GB: {})", join(asked, "-"), *same[0].nominal_gb,
                                                                       *same[0].nominal_gb, join(ids_of(same), ", ")));
  return join(out, ", ");
}

DeviceSpec one_of(std::string_view asked, const Words& words, const std::vector<DeviceSpec>& rows) {
  if (rows.size() == 1) return rows[0];
  if (same_memory(rows)) return merged(asked, rows);
  throw Error(fmt::format("[gpu] '{}' could be {} devices", asked, rows.size()), "name one: " + by_memory(words, rows));
}

}  // namespace

DeviceSpec find_device(std::string_view asked, const std::vector<DeviceSpec>& devices) {
  // No device's name is longer; what is longer is not read to the end.
  const std::string shown(asked.substr(0, 100)), id = lower(shown);
  for (const DeviceSpec& d : devices)
    if (asked.size() == d.id.size() && id == lower(d.id)) return d;
  Words words = without(words_of(shown), kNoise);
  if (words.empty()) throw Error(fmt::format("[gpu] '{}' names no device", shown), "plimsoll list gpus shows what is known");
  std::vector<Named> names = named(devices);
  if (const auto rows = matching(words, equal, names); !rows.empty()) return one_of(shown, words, rows);
  const std::optional<double> memory = take_gigabytes(words);
  drop_memory(names);
  std::vector<DeviceSpec> other_sizes;
  for (const Match match : {&equal_but_prefix, &same_in_another_form}) {
    std::vector<DeviceSpec> rows = matching(words, match, names);
    if (!rows.empty()) other_sizes = rows;
    if (memory) std::erase_if(rows, [&](const DeviceSpec& d) { return d.nominal_gb != memory; });
    if (!rows.empty()) return one_of(shown, words, rows);
  }
  // "a100-80", "m3-max 64": a size without its unit.
  if (!memory && words.size() > 1 && words.back().size() < 4 && std::all_of(words.back().begin(), words.back().end(), ::isdigit) &&
      words.back() != "0") {
    Words sized = words;
    sized.back() += "gb";
    const Words bare(words.begin(), words.end() - 1);
    if (!matching(bare, equal_but_prefix, names).empty() || !matching(bare, same_in_another_form, names).empty())
      return find_device(join(sized, "-"), devices);
  }
  if (!other_sizes.empty())
    throw Error(fmt::format("[gpu] '{}': no such device has {:g} GB", shown, *memory), "known: " + listed(other_sizes));
  if (const auto rows = matching(words, related, names); !rows.empty())
    throw Error(fmt::format("[gpu] '{}' is not in the catalogue", shown), "others with these words: " + first_of(rows));
  throw Error(fmt::format("[gpu] '{}' is not in the catalogue", shown), did_you_mean(shown, ids_of(devices)) + " (plimsoll list gpus)");
}

std::vector<DeviceSpec> devices_of_driver(std::string_view driver_name, std::optional<Bytes> total, std::string_view target,
                                          const std::vector<DeviceSpec>& devices) {
  const Words words = words_of(driver_name);
  const Words telling = without(words, kNoise);
  std::vector<DeviceSpec> rows;
  for (const DeviceSpec& d : devices) {
    if (d.driver_name.empty() || words_of(d.driver_name) != words) continue;
    if (target.empty() ? telling.empty() : !d.compute_capability.empty() && d.compute_capability != target) continue;
    rows.push_back(d);
  }
  if (rows.size() < 2 || !total) return rows;
  // Sizes under one name are at least 20 % apart; reserves and ECC take at most 8 %.
  std::erase_if(rows, [&](const DeviceSpec& d) {
    const double gib = static_cast<double>(total->count) / (1 << 30);
    return !d.nominal_gb || gib > *d.nominal_gb * 1.02 || gib < *d.nominal_gb * 0.9;
  });
  return rows;
}

}  // namespace plimsoll
