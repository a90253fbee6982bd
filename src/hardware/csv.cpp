#include "hardware/csv.h"

#include "util/error.h"

namespace plimsoll {

namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  std::vector<CsvRow> rows() {
    std::vector<CsvRow> out;
    while (at_ < text_.size()) {
      CsvRow row{line_, {}};
      do row.fields.push_back(field());
      while (take(','));
      end_of_line();
      if (row.fields.size() > 1 || !row.fields[0].empty()) out.push_back(std::move(row));
    }
    return out;
  }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void end_of_line() {
    take('\r');
    if (at_ < text_.size() && !take('\n')) fail(line_, "text after a closing quote");
    ++line_;
  }

  std::string field() {
    if (take('"')) return quoted();
    const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    std::string out(text_.substr(at_, end - at_));
    at_ = end;
    return out;
  }

  std::string quoted() {
    const int opened = line_;
    std::string out;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        out += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        out += text_[++at_];
      } else {
        ++at_;
        return out;
      }
    }
    fail(opened, "a quote that is never closed");
  }

  [[noreturn]] void fail(int line, const std::string& what) const {
    throw Error("[csv] " + source_ + ":" + std::to_string(line) + ": " + what,
                "a field with commas is written \"a, b\"; a quote inside it is doubled");
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<CsvRow> read_csv(std::string_view text, const std::string& source) { return Reader(text, source).rows(); }

}  // namespace plimsoll
