#include "formats/safetensors_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostHeader = 100'000'000;  // MAX_HEADER_SIZE of the safetensors library
constexpr size_t kMostEntries = 1'000'000, kMostDimensions = 32;

struct ElementType {
  const char* name;
  int bits;
};
constexpr std::array kElementTypes{
    ElementType{"BOOL", 8},        ElementType{"F4", 4},   ElementType{"F6_E2M3", 6},     ElementType{"F6_E3M2", 6},
    ElementType{"U8", 8},          ElementType{"I8", 8},   ElementType{"F8_E5M2", 8},     ElementType{"F8_E4M3", 8},
    ElementType{"F8_E8M0", 8},     ElementType{"I16", 16}, ElementType{"F8_E4M3FNUZ", 8}, ElementType{"U16", 16},
    ElementType{"F8_E5M2FNUZ", 8}, ElementType{"F16", 16}, ElementType{"BF16", 16},       ElementType{"I32", 32},
    ElementType{"U32", 32},        ElementType{"F32", 32}, ElementType{"C64", 64},        ElementType{"F64", 64},
    ElementType{"I64", 64},        ElementType{"U64", 64},
};

uint64_t little_endian(std::string_view bytes) {
  uint64_t n = 0;
  for (size_t i = 8; i-- > 0;) n = n << 8 | static_cast<unsigned char>(bytes[i]);
  return n;
}

struct Entry {
  WeightTensor tensor;
  int64_t begin = 0, end = 0;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Builds the list while the text is parsed, so that memory depends on the tensors and not on the text around them.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const std::string& file) : file_(file) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_float(double, const std::string& text) override { return other(text); }
  bool number_integer(int64_t n) override { return other(std::to_string(n)); }
  bool binary(Json::binary_t&) override { return other("binary"); }

  bool number_unsigned(uint64_t n) override {
    if (!list_) return other(std::to_string(n));
    if (n > static_cast<uint64_t>(INT64_MAX)) fail(fmt::format("{} of '{}' is {}", key_, shown(), n));
    if (list_->size() >= kMostDimensions) fail(fmt::format("{} of '{}' has more than {} numbers", key_, shown(), kMostDimensions));
    list_->push_back(static_cast<int64_t>(n));
    return true;
  }

  bool string(std::string& text) override {
    if (in_metadata_) {
      if (metadata.size() < 1000) metadata[key_] = printable(text, 2000);
      return true;
    }
    if (depth_ != 2 || key_ != "dtype" || list_) return other(text);
    current_.tensor.dtype = text;
    current_.has_dtype = true;
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) {
      name_ = text;
      if (!seen_.insert(text).second) fail(fmt::format("'{}' is there twice", shown()));
    }
    key_ = text;
    return true;
  }

  bool start_object(size_t) override {
    if (++depth_ > 2 || list_) fail(fmt::format("'{}' holds an object", shown()));
    if (depth_ < 2) return true;
    in_metadata_ = name_ == "__metadata__";
    current_ = {};
    return true;
  }

  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) add();
    in_metadata_ = false;
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || list_) return other("a list");
    if (key_ == "shape") {
      current_.has_shape = true;
      list_ = &current_.tensor.shape;
    } else if (key_ == "data_offsets") {
      current_.has_offsets = true;
      list_ = &offsets_;
    } else {
      return other("a list");
    }
    list_->clear();
    return true;
  }

  bool end_array() override {
    if (list_ == &offsets_) {
      if (offsets_.size() != 2) fail(fmt::format("data_offsets of '{}' are {} numbers", shown(), offsets_.size()));
      current_.begin = offsets_[0];
      current_.end = offsets_[1];
    }
    list_ = nullptr;
    return true;
  }

  bool parse_error(size_t at, const std::string&, const Json::exception& e) override {
    fail(fmt::format("the header is not JSON at byte {}", at));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("[safetensors] {}: {}", file_, what), "the file is damaged or incomplete: fetch it again");
  }

  std::vector<Entry> entries;
  Json metadata = Json::object();

 private:
  bool other(const std::string& value) const {
    fail(fmt::format("'{}' of '{}' is {}", printable(key_, 80), shown(), printable(value, 80)));
  }
  std::string shown() const { return printable(name_, 80); }

  // dtype, shape and offsets must agree.
  void add() {
    WeightTensor& t = current_.tensor;
    if (!current_.has_dtype || !current_.has_shape || !current_.has_offsets)
      fail(fmt::format("'{}' lacks {}", shown(), !current_.has_dtype ? "dtype" : !current_.has_shape ? "shape" : "data_offsets"));
    t.name = name_;
    check_tensor_name(t.name, file_);
    const auto type = std::find_if(kElementTypes.begin(), kElementTypes.end(), [&](const ElementType& e) { return t.dtype == e.name; });
    if (type == kElementTypes.end()) fail(fmt::format("dtype '{}' of '{}' is not known", printable(t.dtype, 40), shown()));
    t.elements = 1;
    for (const int64_t n : t.shape) t.elements = checked_mul(t.elements, n);
    const int64_t bits = checked_mul(t.elements, type->bits);
    t.bytes = current_.end - current_.begin;
    if (current_.end < current_.begin || bits % 8 != 0 || t.bytes != bits / 8)
      fail(fmt::format("'{}' has data_offsets {} to {}, but its shape and type make {} bytes", shown(), current_.begin, current_.end,
                       bits / 8));
    if (entries.size() >= kMostEntries) fail("more than a million tensors");
    entries.push_back(std::move(current_));
  }

  const std::string& file_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_, key_;
  Entry current_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t>* list_ = nullptr;
  std::set<std::string> seen_;
};

// Tensors follow each other without holes and never share bytes. Returns where the last one ends.
int64_t check_offsets(const std::vector<Entry>& entries, const HeaderHandler& header) {
  std::vector<const Entry*> by_offset;
  for (const Entry& e : entries) by_offset.push_back(&e);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const Entry* a, const Entry* b) { return a->begin != b->begin ? a->begin < b->begin : a->end < b->end; });
  int64_t end = 0;
  for (const Entry* e : by_offset) {
    if (e->begin != end)
      header.fail(fmt::format("'{}' begins at {}, {} the end of the tensor before it at {}", printable(e->tensor.name, 80), e->begin,
                              e->begin < end ? "before" : "after", end));
    end = e->end;
  }
  return end;
}

}  // namespace

// No length below the limit has a bit in its upper four bytes; no text has four zero bytes there.
bool looks_like_safetensors(std::string_view bytes) {
  return bytes.size() > 8 && bytes[8] == '{' && bytes.substr(4, 4) == std::string_view("\0\0\0\0", 4);
}

void parse_safetensors(std::string_view bytes, Document& d) {
  HeaderHandler header(d.name);
  if (bytes.starts_with("version https://git-lfs"))
    throw Error(fmt::format("[safetensors] {} is a pointer of Git LFS, not the file itself", d.name), "run git lfs pull");
  if (bytes.size() < 8) header.fail(fmt::format("{} bytes are too few for a header", bytes.size()));
  const uint64_t length = little_endian(bytes);
  if (length > kMostHeader) header.fail(fmt::format("a header of {} bytes is more than {}", length, kMostHeader));
  if (length > bytes.size() - 8)
    header.fail(fmt::format("the header has {} bytes, the file {} after its length", length, bytes.size() - 8));
  const std::string_view text = bytes.substr(8, length);
  if (text.empty() || text[0] != '{') header.fail("the header is no JSON object");
  Json::sax_parse(text.begin(), text.end(), &header);
  const int64_t data = check_offsets(header.entries, header);
  const int64_t there = static_cast<int64_t>(bytes.size() - 8 - length);
  if (there > data) header.fail(fmt::format("{} bytes follow the last tensor", there - data));
  d.kind = Document::Kind::safetensors;
  d.value = {{"metadata", std::move(header.metadata)}, {"missing_bytes", data - there}};
  d.tensors.reserve(header.entries.size());
  for (Entry& e : header.entries) d.tensors.push_back(std::move(e.tensor));
}

}  // namespace plimsoll
