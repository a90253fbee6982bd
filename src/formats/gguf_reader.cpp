#include "formats/gguf_reader.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <set>

#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostGgufTensors = 1'000'000, kMostKeys = 100'000, kMostText = 1 << 20;
constexpr int kMostNesting = 4;

// ggml_type (ggml.h): so many elements are stored in a block of so many bytes.
struct BlockType {
  uint32_t number;
  const char* name;
  int64_t elements, bytes;
};
constexpr std::array kBlockTypes{
    BlockType{0, "F32", 1, 4},         BlockType{1, "F16", 1, 2},         BlockType{2, "Q4_0", 32, 18},
    BlockType{3, "Q4_1", 32, 20},      BlockType{6, "Q5_0", 32, 22},      BlockType{7, "Q5_1", 32, 24},
    BlockType{8, "Q8_0", 32, 34},      BlockType{9, "Q8_1", 32, 36},      BlockType{10, "Q2_K", 256, 84},
    BlockType{11, "Q3_K", 256, 110},   BlockType{12, "Q4_K", 256, 144},   BlockType{13, "Q5_K", 256, 176},
    BlockType{14, "Q6_K", 256, 210},   BlockType{15, "Q8_K", 256, 292},   BlockType{16, "IQ2_XXS", 256, 66},
    BlockType{17, "IQ2_XS", 256, 74},  BlockType{18, "IQ3_XXS", 256, 98}, BlockType{19, "IQ1_S", 256, 50},
    BlockType{20, "IQ4_NL", 32, 18},   BlockType{21, "IQ3_S", 256, 110},  BlockType{22, "IQ2_S", 256, 82},
    BlockType{23, "IQ4_XS", 256, 136}, BlockType{24, "I8", 1, 1},         BlockType{25, "I16", 1, 2},
    BlockType{26, "I32", 1, 4},        BlockType{27, "I64", 1, 8},        BlockType{28, "F64", 1, 8},
    BlockType{29, "IQ1_M", 256, 56},   BlockType{30, "BF16", 1, 2},       BlockType{34, "TQ1_0", 256, 54},
    BlockType{35, "TQ2_0", 256, 66},   BlockType{39, "MXFP4", 32, 17},
};

enum ValueType : uint32_t { kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kFloat32, kBool, kString, kArray, kUint64, kInt64, kFloat64 };
constexpr std::array<size_t, 13> kSizes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: not fixed

class Cursor {
 public:
  Cursor(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("[gguf] {}: {} at byte {}", file_, what, at_), "the file is damaged or incomplete: fetch it again");
  }

  std::string_view take(uint64_t n) {
    if (n > bytes_.size() - at_) fail(fmt::format("{} bytes are wanted and {} left", n, bytes_.size() - at_));
    const std::string_view piece = bytes_.substr(at_, n);
    at_ += n;
    return piece;
  }

  uint64_t number(size_t size) {
    const std::string_view piece = take(size);
    uint64_t n = 0;
    for (size_t i = size; i-- > 0;) n = n << 8 | static_cast<unsigned char>(piece[i]);
    return n;
  }

  std::string_view text() { return take(number(8)); }

  std::string short_text(const char* what) {
    const std::string_view t = text();
    if (t.size() > 1000) fail(fmt::format("{} of {} bytes", what, t.size()));
    return std::string(t);
  }

  ValueType type() {
    const uint64_t t = number(4);
    if (t >= kSizes.size()) fail(fmt::format("a value of type {}, which is not known,", t));
    return static_cast<ValueType>(t);
  }

 private:
  std::string_view bytes_;
  const std::string& file_;
  size_t at_ = 0;
};

Json scalar(Cursor& in, ValueType type) {
  switch (type) {
    case kString: return printable(in.text().substr(0, kMostText), 2000);
    case kBool: return in.number(1) != 0;
    case kInt8: return static_cast<int8_t>(in.number(1));
    case kInt16: return static_cast<int16_t>(in.number(2));
    case kInt32: return static_cast<int32_t>(in.number(4));
    case kInt64: return static_cast<int64_t>(in.number(8));
    case kFloat32: return std::bit_cast<float>(static_cast<uint32_t>(in.number(4)));
    case kFloat64: return std::bit_cast<double>(in.number(8));
    default: return in.number(kSizes[type]);
  }
}

// Vocabularies are long, and nothing of them is needed but the length; a short list of numbers is kept.
void array(Cursor& in, const std::string& key, Json& out, int depth = 0) {
  if (depth > kMostNesting) in.fail(fmt::format("lists nest deeper than {}", kMostNesting));
  const ValueType type = in.type();
  const uint64_t count = in.number(8);
  if (depth == 0) out[key + ".length"] = count;
  if (depth == 0 && kSizes[type] != 0 && count <= 1024) {
    Json list = Json::array();
    for (uint64_t i = 0; i < count; ++i) list.push_back(scalar(in, type));
    out[key] = std::move(list);
    return;
  }
  if (kSizes[type] != 0) {
    if (count > UINT64_MAX / 8) in.fail(fmt::format("a list of {} values", count));
    in.take(count * kSizes[type]);
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {  // each takes some bytes, so the file's end ends this too
    if (type == kString)
      in.text();
    else
      array(in, key, out, depth + 1);
  }
}

WeightTensor tensor(Cursor& in, const std::string& file) {
  WeightTensor t;
  t.name = in.short_text("a tensor's name");
  check_tensor_name(t.name, file);
  const uint64_t dimensions = in.number(4);
  if (dimensions > 8) in.fail(fmt::format("'{}' has {} dimensions", t.name, dimensions));
  t.elements = 1;
  for (uint64_t i = 0; i < dimensions; ++i) {
    const uint64_t n = in.number(8);
    if (n > static_cast<uint64_t>(INT64_MAX)) in.fail(fmt::format("'{}' has a dimension of {}", t.name, n));
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(n));  // ggml's first dimension is the innermost
    t.elements = checked_mul(t.elements, static_cast<int64_t>(n));
  }
  const uint64_t number = in.number(4);
  in.number(8);  // where its data begins
  for (const BlockType& type : kBlockTypes) {
    if (type.number != number) continue;
    t.dtype = type.name;
    t.bytes = checked_mul(t.elements / type.elements, type.bytes);
    return t;
  }
  in.fail(fmt::format("'{}' is of ggml's type {}, which is not known,", t.name, number));
}

}  // namespace

bool looks_like_gguf(std::string_view bytes) { return bytes.starts_with("GGUF"); }

void parse_gguf(std::string_view bytes, Document& d) {
  Cursor in(bytes, d.name);
  if (bytes.starts_with("version https://git-lfs"))
    throw Error(fmt::format("[gguf] {} is a pointer of Git LFS, not the file itself", d.name), "run git lfs pull");
  if (in.take(4) != "GGUF") in.fail("this is no GGUF file");
  const uint64_t version = in.number(4);
  if (version != 2 && version != 3)
    throw Error(
        fmt::format("[gguf] {}: version {} is not 2 or 3", d.name, version),
        version == 1 ? "convert the model again with a newer llama.cpp" : "a file for machines of the other byte order has such a number");
  const uint64_t tensors = in.number(8), keys = in.number(8);
  if (tensors > kMostGgufTensors) in.fail(fmt::format("{} tensors", tensors));
  if (keys > kMostKeys) in.fail(fmt::format("{} keys", keys));
  d.kind = Document::Kind::gguf;
  d.value = Json::object();
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string key = in.short_text("a key");
    if (d.value.contains(key)) d.duplicates.push_back(key);
    const ValueType type = in.type();
    if (type == kArray)
      array(in, key, d.value);
    else
      d.value[key] = scalar(in, type);
  }
  std::set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    d.tensors.push_back(tensor(in, d.name));
    if (!names.insert(d.tensors.back().name).second) in.fail(fmt::format("'{}' is there twice", d.tensors.back().name));
  }
}

}  // namespace plimsoll
