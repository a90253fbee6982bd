// Writes pickles of plain values: protocol 2 as libtorch's C++ writer does (BINPUT, filled at once) or 4 as Python does (MEMOIZE, texts
// once, batches of 1000).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace plimsoll {

class PickleWriter {
 public:
  explicit PickleWriter(int protocol) : protocol_(protocol) { out_ = {'\x80', static_cast<char>(protocol)}; }

  void integer(int64_t v) {
    if (v >= 0 && v < 256 && protocol_ >= 4) return raw('K', static_cast<uint8_t>(v));
    if (v >= INT32_MIN && v <= INT32_MAX) return raw('J', static_cast<int32_t>(v));
    out_ += "\x8a\x08";
    append(v);
  }
  void boolean(bool v) { out_ += v ? '\x88' : '\x89'; }
  void real(double v) { raw('G', __builtin_bswap64(std::bit_cast<uint64_t>(v))); }
  void text(std::string_view v) {
    const auto known = texts_.find(v);
    if (protocol_ >= 4 && known != texts_.end()) return get(known->second);
    if (protocol_ >= 4 && v.size() < 256) {
      raw('\x8c', static_cast<uint8_t>(v.size()));
    } else {
      raw('X', static_cast<uint32_t>(v.size()));
    }
    out_ += v;
    texts_.emplace(v, put());
  }
  uint32_t open(char opcode) {  // '}' or ']'
    out_ += opcode;
    const uint32_t index = put();
    out_ += '(';
    return index;
  }
  void list() { out_ += ']', put(); }          // an empty one
  void close(char opcode) { out_ += opcode; }  // 'u' or 'e'
  void batch() { out_ += "e("; }
  void get(uint32_t index) { index < 256 ? raw('h', static_cast<uint8_t>(index)) : raw('j', index); }
  void pair(int64_t a, int64_t b) {
    integer(a);
    integer(b);
    out_ += '\x86';
    put();
  }
  std::string finish() { return out_ + '.'; }
  uint32_t next_memo() const { return memos_; }
  bool batches() const { return protocol_ >= 4; }

 private:
  template <class T>
  void append(T v) {
    char bytes[sizeof v];
    std::memcpy(bytes, &v, sizeof v);
    out_.append(bytes, sizeof v);
  }
  template <class T>
  void raw(char opcode, T v) {
    out_ += opcode;
    append(v);
  }
  uint32_t put() {
    if (protocol_ >= 4) {
      out_ += '\x94';
    } else {
      memos_ < 256 ? raw('q', static_cast<uint8_t>(memos_)) : raw('r', memos_);
    }
    return memos_++;
  }

  int protocol_;
  std::string out_;
  uint32_t memos_ = 0;
  std::map<std::string, uint32_t, std::less<>> texts_;
};

}  // namespace plimsoll
