#include "diagnose/log_stream.h"
#include "diagnose/words.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

namespace plimsoll {

namespace {

constexpr size_t kBuffer = 4 << 20, kHistory = 256 << 10, kFollowing = 64 << 10, kLongestLine = 256 << 10;

bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.'; }

// ESC [ ... letter, ESC ] ... BEL, and other two-byte sequences.
std::string without_colours(std::string_view raw) {
  std::string out;
  out.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\x1b') {
      if (raw[i] != '\b' && raw[i] != '\0') out += raw[i];
      continue;
    }
    if (i + 1 >= raw.size()) break;
    const char kind = raw[++i];
    if (kind == '[') {
      while (i + 1 < raw.size() && (static_cast<unsigned char>(raw[i + 1]) < 0x40 || raw[i + 1] == '[')) ++i;
      ++i;
    } else if (kind == ']') {
      while (i + 1 < raw.size() && raw[i + 1] != '\a' && raw[i + 1] != '\x1b') ++i;
      if (i + 1 < raw.size() && raw[i + 1] == '\a') ++i;
    }
  }
  return out;
}

// What a record says, in the order of its fields: Docker's "log", journald's "MESSAGE", a logger's "message" and its traceback.
void collect_texts(const nlohmann::ordered_json& record, std::string& out, int depth) {
  static constexpr std::string_view kFields[] = {
      "log",       "message",  "msg",    "MESSAGE", "text",      "textPayload", "jsonPayload", "event",     "error",       "err",
      "exception", "exc_info", "detail", "errors",  "traceback", "stack_trace", "stderr",      "extraInfo", "py_callstack"};
  for (const auto& [key, value] : record.items()) {
    if (std::find(std::begin(kFields), std::end(kFields), key) == std::end(kFields)) continue;
    if (value.is_object() && depth < 4) collect_texts(value, out, depth + 1);
    if (!value.is_string()) continue;
    if (!out.empty()) out += '\n';
    out += value.get_ref<const std::string&>();
    while (out.ends_with('\n') || out.ends_with('\r')) out.pop_back();
  }
}

// The text of a line that is a JSON record; none: it is no record, or says nothing.
std::optional<std::string> record_text(std::string_view line) {
  if (!line.starts_with('{') || !line.ends_with('}')) return {};
  const auto record = nlohmann::ordered_json::parse(line, nullptr, false);
  std::string text;
  if (record.is_object()) collect_texts(record, text, 0);
  return text.empty() ? std::nullopt : std::optional(text);
}

std::optional<int> small_number(std::string_view text) {
  if (text.empty() || text.size() > 5) return {};
  int n = 0;
  for (const char c : text) {
    if (!is_digit(c)) return {};
    n = n * 10 + (c - '0');
  }
  return n;
}

// The number after `key` in a prefix such as "(VllmWorker rank=3 pid=1090)".
std::optional<int> number_of(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + key.size());
  return small_number(text.substr(0, std::min(text.size(), text.find_first_not_of("0123456789"))));
}

struct Prefix {
  size_t length = 0;  // 0: none
  std::optional<int> rank;
};

// "[rank7]:", "[Rank 0]", "[default3]:", "[1,3]<stderr>:", "[pod/name/container]".
Prefix bracketed(std::string_view text) {
  const size_t close = text.find(']');
  if (text.empty() || text[0] != '[' || close == std::string_view::npos || close > 80) return {};
  const std::string_view inside = text.substr(1, close - 1), rest = text.substr(close + 1);
  for (const std::string_view name : {"rank ", "rank", "Rank ", "default"})
    if (inside.starts_with(name)) {
      const auto rank = small_number(inside.substr(name.size()));
      if (rank) return {close + 1 + (rest.starts_with(':') ? 1 : 0), rank};
    }
  for (const std::string_view stream : {"<stderr>:", "<stdout>:", "<stddiag>:"})
    if (rest.starts_with(stream)) {
      const size_t comma = inside.find(',');
      return {close + 1 + stream.size(), comma == std::string_view::npos ? std::nullopt : small_number(inside.substr(comma + 1))};
    }
  if (inside.starts_with("pod/")) return {close + 1, {}};
  return {};
}

// "(RayTrainWorker pid=123, ip=...)", "(VllmWorker rank=3 pid=1090)".
Prefix parenthesised(std::string_view text) {
  const size_t close = text.find(')');
  if (text.empty() || text[0] != '(' || close == std::string_view::npos || close > 120) return {};
  const std::string_view inside = text.substr(1, close - 1);
  if (inside.find("pid=") == std::string_view::npos) return {};
  return {close + 1, number_of(inside, "rank=")};
}

// "2024-05-01T12:00:00.123456789Z ", "2024-05-01 12:00:00,123 ", with what a container's log has after it ("stderr F ").
Prefix dated(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00?00:00:00";
  if (text.size() < kForm.size()) return {};
  for (size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == '0' ? !is_digit(text[i]) : kForm[i] == '?' ? text[i] != 'T' && text[i] != ' ' : text[i] != kForm[i]) return {};
  const size_t end = text.find_first_not_of("0123456789.,:+-Z", kForm.size());
  if (end == std::string_view::npos || text[end] != ' ') return {};
  for (const std::string_view stream : {" stderr F ", " stdout F "})
    if (text.substr(end).starts_with(stream)) return {end + stream.size(), {}};
  return {end + 1, {}};
}

// "rank3: ", "3: " of srun --label, "stderr: ", "vllm-1  | " of docker compose.
Prefix named(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && length < 64 && is_word(text[length])) ++length;
  const std::string_view name = text.substr(0, length), rest = text.substr(length);
  if (length == 0) return {};
  if (rest.starts_with(": ")) {
    if (const auto rank = small_number(name)) return {length + 2, rank};
    if (name.starts_with("rank"))
      if (const auto rank = small_number(name.substr(4))) return {length + 2, rank};
    if (name == "stderr" || name == "stdout") return {length + 2, {}};
  }
  const size_t bar = rest.find_first_not_of(' ');
  if (bar != std::string_view::npos && bar > 0 && rest.substr(bar).starts_with("| ") && length > 1 &&
      name.find('-') != std::string_view::npos)
    return {length + bar + 2, {}};
  return {};
}

}  // namespace

LogStream::LogStream(std::istream& in) : in_(in), buffer_(std::make_unique_for_overwrite<char[]>(kBuffer)) {}

size_t LogStream::following() const { return std::min(filled_ - end_, kFollowing); }

// Wide characters become one byte; what is not ASCII becomes '?': no wording needs it.
size_t LogStream::read_piece(char* to, size_t most) {
  if (encoding_ == Encoding::bytes) {
    in_.read(to, static_cast<std::streamsize>(most));
    return static_cast<size_t>(in_.gcount());
  }
  std::vector<char> wide(most / 2 * 2);
  in_.read(wide.data(), static_cast<std::streamsize>(wide.size()));
  const size_t pairs = static_cast<size_t>(in_.gcount()) / 2;
  for (size_t i = 0; i < pairs; ++i) {
    const char low = wide[2 * i + (encoding_ == Encoding::utf16le ? 0 : 1)], high = wide[2 * i + (encoding_ == Encoding::utf16le ? 1 : 0)];
    to[i] = high == 0 ? low : '?';
  }
  return pairs;
}

void LogStream::fill() {
  const size_t keep = begin_ > kHistory ? begin_ - kHistory : 0;
  std::memmove(buffer_.get(), buffer_.get() + keep, filled_ - keep);
  filled_ -= keep;
  begin_ -= keep;
  end_ -= keep;
  first_ = 0;
  const bool first = !started_;
  if (first) {
    started_ = true;
    char mark[2] = {};
    in_.read(mark, 2);
    const auto n = static_cast<size_t>(in_.gcount());
    if (n == 2 && mark[0] == '\xff' && mark[1] == '\xfe') {
      encoding_ = Encoding::utf16le;
    } else if (n == 2 && mark[0] == '\xfe' && mark[1] == '\xff') {
      encoding_ = Encoding::utf16be;
    } else {
      // Without the mark a zero byte beside the first character tells.
      if (n == 2 && (mark[0] == 0) != (mark[1] == 0)) encoding_ = mark[1] == 0 ? Encoding::utf16le : Encoding::utf16be;
      const bool wide = encoding_ != Encoding::bytes;
      if (wide) mark[0] = mark[0] == 0 ? mark[1] : mark[0];
      filled_ = wide ? 1 : n;
      std::memcpy(buffer_.get(), mark, filled_);
    }
    filled_ += read_piece(buffer_.get() + filled_, kBuffer - filled_);
    binary_ = std::memchr(buffer_.get(), 0, std::min<size_t>(filled_, 4096)) != nullptr;
  } else {
    filled_ += read_piece(buffer_.get() + filled_, kBuffer - filled_);
  }
  finished_ = !in_;
  single_ = finished_ && first;
}

bool LogStream::next() {
  if (!started_) {
    fill();
  } else {
    if (end_ < filled_) {  // past the line end
      counted_ = buffer_[end_] == '\n' || end_ + 1 >= filled_ || buffer_[end_ + 1] == '\n';
      const bool ends = buffer_[end_] == '\n' || buffer_[end_] == '\r';
      const bool both = buffer_[end_] == '\r' && end_ + 1 < filled_ && buffer_[end_ + 1] == '\n';
      end_ += both ? 2 : ends ? 1 : 0;
      if (!ends) counted_ = false;  // a line that was cut
    }
    begin_ = end_;
  }
  if (filled_ - begin_ < kLongestLine + kFollowing && !finished_) fill();
  if (begin_ >= filled_) return false;
  const std::string_view rest = view(begin_, std::min(filled_, begin_ + kLongestLine));
  const char* feed = static_cast<const char*>(std::memchr(rest.data(), '\n', rest.size()));
  size_t length = feed ? static_cast<size_t>(feed - rest.data()) : rest.size();
  if (const void* carriage = std::memchr(rest.data(), '\r', length))
    length = static_cast<size_t>(static_cast<const char*>(carriage) - rest.data());
  end_ = begin_ + length;
  if (counted_) ++number_;
  return true;
}

CleanLine clean_line(std::string_view raw) {
  CleanLine out;
  out.text = without_colours(raw);
  if (auto text = record_text(trimmed(out.text))) out.text = std::move(*text);
  size_t at = 0;
  for (int i = 0; i < 4; ++i) {
    const std::string_view rest = std::string_view(out.text).substr(at);
    const size_t spaces = i == 0 ? 0 : std::min(rest.size(), rest.find_first_not_of(' '));
    Prefix p;
    for (const auto& read : {bracketed, parenthesised, dated, named})
      if (p = read(rest.substr(spaces)); p.length > 0) break;
    if (p.length == 0) break;
    if (p.rank && !out.rank) out.rank = p.rank;
    at += spaces + p.length;
    if (at < out.text.size() && out.text[at] == ' ') ++at;  // one space belongs to the prefix, the rest to the line
  }
  out.text.erase(0, at);
  return out;
}

}  // namespace plimsoll
