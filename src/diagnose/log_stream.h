// The lines of a log of any size, with bounded memory: a window of what came before and what follows. A carriage return ends a line as a
// progress bar means it; UTF-16, as a Windows shell writes it, is read too. Lines that are JSON records (Docker's, a structured logger's)
// stand for the text in them.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll {

class LogStream {
 public:
  explicit LogStream(std::istream& in);

  bool next();  // to the next line; false at the end
  std::string_view line() const { return view(begin_, end_); }
  int64_t number() const { return number_; }                                 // as an editor counts
  std::string_view before() const { return view(first_, begin_); }           // up to 256 KiB
  std::string_view after() const { return view(end_, end_ + following()); }  // up to 64 KiB
  // All of a text that fits into one piece, and is at most so long; else empty.
  std::string_view whole(size_t most) const { return single_ && filled_ <= most ? view(0, filled_) : std::string_view(); }
  bool binary() const { return binary_; }  // zero bytes in the first piece: no text

 private:
  std::string_view view(size_t from, size_t to) const { return {buffer_.get() + from, to - from}; }
  size_t following() const;
  void fill();
  size_t read_piece(char* to, size_t most);

  std::istream& in_;
  std::unique_ptr<char[]> buffer_;  // not initialised: a short log touches little of it
  size_t filled_ = 0, first_ = 0, begin_ = 0, end_ = 0;
  int64_t number_ = 0;
  bool finished_ = false, started_ = false, binary_ = false, single_ = false;
  bool counted_ = true;  // the line end before this line was a line feed
  enum class Encoding : uint8_t { bytes, utf16le, utf16be } encoding_ = Encoding::bytes;
};

// A line without what launchers, schedulers and terminals put before and into it. The text of a record may have line ends in it.
struct CleanLine {
  std::string text;
  std::optional<int> rank;
};
CleanLine clean_line(std::string_view raw);

}  // namespace plimsoll
