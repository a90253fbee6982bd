// The device catalogue: what its file may hold, how a device is found by name, and what a framework gets of its memory.
#include <gtest/gtest.h>

#include <set>

#include "hardware/capacity.h"
#include "hardware/catalogue.h"
#include "hardware/csv.h"
#include "hardware/device_words.h"
#include "hardware/lookup.h"
#include "util/error.h"

namespace plimsoll::hardware_test {
namespace {

const std::string kHeader =
    "id,name,driver_name,vendor,segment,arch,memory_gb_nominal,memory_total_mib_driver,memory_gib_usable,memory_type,bandwidth_gbs,bf16_"
    "tflops_dense,"
    "fp16_tflops_dense,tf32_tflops_dense,fp32_tflops,unified,interconnect,interconnect_gbs,compute_capability,source,notes\n";

std::string error_of(const std::string& rows, const std::string& header = kHeader) {
  try {
    parse_catalogue(header + rows, "key,source\nW,somewhere\n", "devices.csv");
  } catch (const Error& e) {
    EXPECT_FALSE(e.hint().empty());
    return e.what();
  }
  return "no error";
}

std::string lookup_error(const std::string& name) {
  try {
    return "found " + find_device(name).id;
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
}

double gib(Bytes b) { return static_cast<double>(b.count) / (1 << 30); }

TEST(Csv, QuotesCommasAndLines) {
  const auto rows = read_csv("a,\"b, \"\"c\"\"\"\r\n\n\"two\nlines\",\nlast", "x.csv");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].fields, (std::vector<std::string>{"a", "b, \"c\""}));
  EXPECT_EQ(rows[1].line, 3);
  EXPECT_EQ(rows[1].fields, (std::vector<std::string>{"two\nlines", ""}));
  EXPECT_EQ(rows[2].line, 5);
  EXPECT_THROW(read_csv("a\n\"b", "x.csv"), Error);
  EXPECT_THROW(read_csv("\"a\"b", "x.csv"), Error);
  EXPECT_TRUE(read_csv("", "x.csv").empty());
}

TEST(Catalogue, HoldsEveryDeviceWithItsSource) {
  EXPECT_EQ(catalogue().size(), 218u);
  std::set<std::string> vendors;
  for (const DeviceSpec& d : catalogue()) {
    EXPECT_FALSE(d.sources.empty()) << d.id;
    vendors.insert(d.vendor);
    EXPECT_EQ(find_device(d.id).id, d.id);
  }
  EXPECT_EQ(vendors, (std::set<std::string>{"AMD", "Apple", "Google", "Intel", "NVIDIA"}));
}

TEST(Catalogue, WhatIsNotEstablishedStaysEmpty) {
  const DeviceSpec laptop = find_device("rtx-4070-laptop");
  EXPECT_FALSE(laptop.bf16_tflops);
  EXPECT_FALSE(laptop.driver_total_mib);
  EXPECT_FALSE(find_device("arc-pro-b70").nominal_gb);
  EXPECT_FALSE(usable_memory(find_device("m5")));
}

TEST(Catalogue, MalformedRowsNameTheLine) {
  EXPECT_NE(error_of("a,b,c\n").find("devices.csv:2: 3 fields instead of 21"), std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,x,,,,,,,,,no,,,,W,\n").find("devices.csv:2: memory_gb_nominal 'x'"), std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,8,,,,,,,,,no,,,,W,\nb,B,,V,,,-8,,,,,,,,,no,,,,W,\n").find("devices.csv:3: memory_gb_nominal '-8'"),
            std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,0,,,,,,,,,no,,,,W,\n").find("'0'"), std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,nan,,,,,,,,,no,,,,W,\n").find("'nan'"), std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,1e999,,,,,,,,,no,,,,W,\n").find("'1e999'"), std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,8,,,,,,,,,maybe,,,,W,\n").find("unified 'maybe'"), std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,8,,,,,,,,,no,,,,,\n").find("source is empty"), std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,8,,,,,,,,,no,,,,XYZ,\n").find("source 'XYZ'"), std::string::npos);
  EXPECT_NE(error_of(",A,,V,,,8,,,,,,,,,no,,,,W,\n").find("id is empty"), std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,8,,,,,,,,,no,,,,W,\nA,B,,V,,,8,,,,,,,,,no,,,,W,\n").find("devices.csv:3: id 'A' repeats"),
            std::string::npos);
  EXPECT_NE(error_of("a,A,,V,,,8,8000,8,,,,,,,no,,,,W,\n").find("is more than"), std::string::npos);
  EXPECT_NE(error_of("a,\"A\n").find("devices.csv:2: a quote that is never closed"), std::string::npos);
  EXPECT_NE(error_of("", "id,name\n").find("devices.csv:1: the header"), std::string::npos);
  EXPECT_NE(error_of("", "").find("devices.csv:1: the header"), std::string::npos);
}

TEST(Lookup, TheNamesPeopleAndDriversUse) {
  const std::pair<const char*, const char*> kNames[] = {{"rtx-4090", "rtx-4090"},
                                                        {"RTX 4090", "rtx-4090"},
                                                        {"rtx4090", "rtx-4090"},
                                                        {"4090", "rtx-4090"},
                                                        {"NVIDIA GeForce RTX 4090", "rtx-4090"},
                                                        {"GeForce RTX 4090 24GB", "rtx-4090"},
                                                        {"NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"},
                                                        {"4090 laptop", "rtx-4090-laptop"},
                                                        {"RTX 4090 D", "rtx-4090-d"},
                                                        {"4070 ti super", "rtx-4070-ti-super"},
                                                        {"4070TiSuper", "rtx-4070-ti-super"},
                                                        {"rtx 3080 12gb", "rtx-3080-12gb"},
                                                        {"RTX 3080 (10 GB)", "rtx-3080-10gb"},
                                                        {"rtx-3060", "rtx-3060-12gb"},
                                                        {"L4", "l4"},
                                                        {"l40", "l40"},
                                                        {"L40S", "l40s"},
                                                        {"t4", "t4"},
                                                        {"Tesla T4", "t4"},
                                                        {"h100-sxm5", "h100-sxm"},
                                                        {"NVIDIA H100 80GB HBM3", "h100-sxm"},
                                                        {"h100 nvl", "h100-nvl"},
                                                        {"NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"},
                                                        {"A100 SXM 40GB", "a100-sxm4-40gb"},
                                                        {"NVIDIA GH200 480GB", "gh200-96gb"},
                                                        {"DGX Spark", "gb10"},
                                                        {"GB10", "gb10"},
                                                        {"Apple M2 Max 64GB", "m2-max-64gb"},
                                                        {"M3 Max 64 GB", "m3-max-64gb"},
                                                        {"m3-max 64", "m3-max-64gb"},
                                                        {"m1 8gb", "m1-8gb"},
                                                        {"7900 XTX", "rx-7900-xtx"},
                                                        {"AMD Instinct MI250X", "mi250x-gcd"},
                                                        {"mi300x", "mi300x"},
                                                        {"tpu v6e", "tpu-v6e"},
                                                        {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
                                                        {"orin nano", "jetson-orin-nano-8gb"},
                                                        {"arc b580", "arc-b580"}};
  for (const auto& [name, id] : kNames) EXPECT_EQ(lookup_error(name), std::string("found ") + id) << name;
}

TEST(Lookup, NeverBySubstring) {
  EXPECT_EQ(find_device("4070").nominal_gb, 12);
  EXPECT_EQ(find_device("RTX 4070 Laptop GPU").nominal_gb, 8);
  EXPECT_EQ(lookup_error("rx 7600").find("found"), std::string::npos);  // the catalogue has the 7600 XT, another card
  EXPECT_EQ(lookup_error("b1").find("found"), std::string::npos);
  EXPECT_EQ(lookup_error("l").find("found"), std::string::npos);
  EXPECT_EQ(lookup_error("mi300").find("found"), std::string::npos);
}

TEST(Lookup, AnAmbiguousNameListsTheCandidates) {
  const std::string h100 = lookup_error("h100");
  for (const char* part : {"'h100' could be 3 devices", "h100-80gb (80 GB: h100-pcie, h100-sxm), h100-nvl (94 GB)"})
    EXPECT_NE(h100.find(part), std::string::npos) << h100;
  EXPECT_NE(lookup_error("NVIDIA GeForce RTX 3080").find("rtx-3080-10gb (10 GB), rtx-3080-12gb (12 GB)"), std::string::npos);
  EXPECT_NE(lookup_error("a100").find("could be 4 devices"), std::string::npos);
  for (const char* part : {"a100-40gb (40 GB:", "a100-80gb (80 GB:"}) EXPECT_NE(lookup_error("a100").find(part), std::string::npos);
  for (const char* name : {"h100-80gb", "a100-40gb", "a100-80", "v100-16gb"})  // what the lists say can be typed
    EXPECT_EQ(lookup_error(name), std::string("found ") + find_device(name).id) << name;
  for (const char* part : {"m3-max-36gb (36 GB)", "m3-max-64gb (64 GB)", "m3-max-128gb (128 GB)"})
    EXPECT_NE(lookup_error("m3-max").find(part), std::string::npos) << lookup_error("m3-max");
  EXPECT_NE(lookup_error("m3-max-16c").find("m3-max-64gb (64 GB)"), std::string::npos) << lookup_error("m3-max-16c");
  EXPECT_NE(lookup_error("rtx 6000").find("rtx-6000-ada (48 GB)"), std::string::npos);
}

TEST(Lookup, VariantsWithTheSameMemoryGiveWhatTheyAgreeOn) {
  const DeviceSpec d = find_device("a100-80gb");
  EXPECT_EQ(d.id, "a100-80gb");
  EXPECT_EQ(d.usable_gib, 79.15);
  EXPECT_EQ(d.bf16_tflops, 312);
  EXPECT_FALSE(d.bandwidth_gbs);  // 1935 and 2039
  EXPECT_NE(d.notes.find("a100-pcie-80gb, a100-sxm4-80gb"), std::string::npos);
}

TEST(Lookup, UnknownNamesGetAHint) {
  EXPECT_NE(lookup_error("rtx-409O").find("did you mean 'rtx-4090'"), std::string::npos) << lookup_error("rtx-409O");
  EXPECT_NE(lookup_error("rtx 4090 48gb").find("24 GB"), std::string::npos) << lookup_error("rtx 4090 48gb");
  for (const char* name : {"", " ", "NVIDIA", "AMD Radeon Graphics!", "\xff\xfe", "80gb", "%s%n", ","})
    EXPECT_EQ(lookup_error(name).find("found"), std::string::npos) << name;
  EXPECT_EQ(lookup_error(std::string(100000, 'x')).find("found"), std::string::npos);
}

TEST(DeviceWords, ACountStandsBeforeOrBehindTheName) {
  for (const auto& [typed, count, name] : std::vector<std::tuple<const char*, int, const char*>>{{"8xh100", 8, "h100"},
                                                                                                 {"8 x h100-sxm", 8, "h100-sxm"},
                                                                                                 {"2x4090", 2, "4090"},
                                                                                                 {"2X RTX 4090", 2, "RTX 4090"},
                                                                                                 {"4090x2", 2, "4090"},
                                                                                                 {"h100 x8", 8, "h100"},
                                                                                                 {"a100-80gb x 4", 4, "a100-80gb"},
                                                                                                 {"rtx 4090", 1, "rtx 4090"},
                                                                                                 {"rtx4090", 1, "rtx4090"},
                                                                                                 {"gtx1080", 1, "gtx1080"},
                                                                                                 {"4090", 1, "4090"},
                                                                                                 {"7900 xtx", 1, "7900 xtx"},
                                                                                                 {"mi300x", 1, "mi300x"}}) {
    EXPECT_EQ(read_device_words(typed).count, count) << typed;
    EXPECT_EQ(read_device_words(typed).name, name) << typed;
    EXPECT_FALSE(read_device_words(typed).card_gb) << typed;
  }
  EXPECT_THROW(read_device_words("0xh100"), Error);
}

TEST(DeviceWords, ASizeInGigabytesIsACard) {
  for (const char* typed : {"24", "24GB", "24 gb", "24g"}) {
    EXPECT_EQ(read_device_words(typed).card_gb, 24) << typed;
    EXPECT_NE(read_device_words(typed).note.find("24GiB"), std::string::npos) << typed;
  }
  for (const char* typed : {"24GiB", "24564MiB", "4090", "-24GB", "0GB", "80", "t4"})
    EXPECT_EQ(read_device_words(typed).card_gb.has_value(), std::string(typed) == "80") << typed;
}

TEST(DeviceWords, PlacesThatLendADeviceAreNamesForIt) {
  EXPECT_EQ(read_device_words("colab").name, "t4");
  EXPECT_EQ(read_device_words("Kaggle").name, "t4");
  EXPECT_NE(read_device_words("kaggle").note.find("p100"), std::string::npos);
  for (const char* typed : {"colab-pro", "cuda", "cuda:0", "mps", "cpu"}) EXPECT_THROW(read_device_words(typed), Error) << typed;
}

TEST(Lookup, DriverNamesAreToldApartByMemoryAndTarget) {
  const auto ids = [](const char* name, std::optional<Bytes> total, const char* target) {
    std::string out;
    for (const DeviceSpec& d : devices_of_driver(name, total, target)) out += d.id + " ";
    return out;
  };
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(ids("NVIDIA GeForce RTX 4060 Ti", Bytes{16380 * kMiB}, "8.9"), "rtx-4060-ti-16gb ");
  EXPECT_EQ(ids("NVIDIA GeForce RTX 4060 Ti", Bytes{8188 * kMiB}, ""), "rtx-4060-ti-8gb ");
  EXPECT_EQ(ids("NVIDIA GeForce RTX 4060 Ti", std::nullopt, ""), "rtx-4060-ti-8gb rtx-4060-ti-16gb ");
  EXPECT_EQ(ids("AMD Radeon Graphics", std::nullopt, ""), "");
  EXPECT_EQ(ids("AMD Radeon Graphics", std::nullopt, "gfx1103"), "");
  EXPECT_EQ(ids("AMD Radeon Graphics", std::nullopt, "gfx1151"), "strix-halo-8060s ");
  EXPECT_EQ(ids("", std::nullopt, ""), "");
}

TEST(Capacity, SeenElseDerivedWithAnInterval) {
  EXPECT_NEAR(gib(usable_memory(find_device("rtx-4090"))->bytes), 23.64, 0.001);
  const auto super = usable_memory(find_device("rtx-4070-super"));  // driver total only: 12282 MiB
  EXPECT_NEAR(gib(super->bytes), 12282.0 / 1024 - 0.47, 0.001);
  EXPECT_LT(super->low, super->bytes);
  EXPECT_LT(super->bytes, super->high);
  const auto ada = usable_memory(find_device("rtx-6000-ada"));  // nominal only, ECC possible
  EXPECT_NEAR(gib(ada->low), 45 - 0.85, 0.001);
  EXPECT_NEAR(gib(usable_memory(find_device("m1-16gb"))->bytes), 16.0 * 2 / 3, 0.001);
  EXPECT_NEAR(gib(usable_memory(find_device("m2-max-96gb"))->bytes), 72, 0.001);
  for (const DeviceSpec& d : catalogue()) {
    const auto c = usable_memory(d);
    if (!c) continue;
    EXPECT_GE(c->low.count, 0) << d.id;
    EXPECT_LE(c->low, c->bytes) << d.id;
    EXPECT_LE(c->bytes, c->high) << d.id;
    EXPECT_FALSE(c->basis.empty());
  }
}

// The intervals are the ranges of these very rows: this guards the constants against the data, it is no measure of accuracy.
TEST(Capacity, TheRuleCoversWhatWasSeen) {
  int known = 0, covered = 0;
  for (const DeviceSpec& d : catalogue()) {
    if (!d.usable_gib || !d.driver_total_mib) continue;
    DeviceSpec unseen = d;
    unseen.usable_gib.reset();
    const auto rule = usable_memory(unseen), seen = usable_memory(d);
    ++known;
    constexpr Bytes kRounding{11 << 20};  // the sizes seen have two decimals
    covered += rule->low <= seen->bytes + kRounding && seen->bytes <= rule->high + kRounding;
  }
  EXPECT_GT(known, 20);
  EXPECT_EQ(covered, known) << covered << " of " << known;
}

}  // namespace
}  // namespace plimsoll::hardware_test
