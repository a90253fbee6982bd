#include "formats/placed.h"

#include <fmt/format.h>

#include <algorithm>

#include "job/config.h"
#include "job/settings.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;
using Kind = Document::Kind;

bool is_word(const std::string& text, const char* more) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) || c == '_' || std::string_view(more).find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// Text that YAML 1.1 and 1.2 both read as text without quotes.
bool is_plain_yaml(const std::string& text) {
  const std::string word = lower(text);
  for (const char* other : {"yes", "no", "on", "off", "y", "n", "true", "false", "null", "none"})
    if (word == other) return false;
  return is_word(text, "._/-") && std::isalpha(static_cast<unsigned char>(text[0])) && parse_scalar(text).is_string();
}

std::string quoted_key(const std::string& key, Kind kind) {
  if (kind == Kind::json) return dump(key);
  if (kind == Kind::yaml ? is_plain_yaml(key) : is_word(key, "-")) return key;
  return dump(key);
}

std::string line_end_of(const std::string& text) {
  const size_t line = text.find('\n');
  return line != std::string::npos && line > 0 && text[line - 1] == '\r' ? "\r\n" : "\n";
}

size_t line_begin(const std::string& text, size_t at) {
  const size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return before == std::string::npos ? 0 : before + 1;
}

// Before the line end of that line.
size_t line_stop(const std::string& text, size_t at) {
  size_t end = std::min(text.find('\n', at), text.size());
  if (end > at && text[end - 1] == '\r') --end;
  return end;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r") == std::string_view::npos; }

// So many blanks as what stands before: "  - " of an item of a list becomes four.
std::string indent_of(const std::string& text, size_t key_begin) {
  std::string indent = text.substr(line_begin(text, key_begin), key_begin - line_begin(text, key_begin));
  for (char& c : indent)
    if (c != '\t') c = ' ';
  return indent;
}

[[noreturn]] void refuse(const std::string& name, const std::vector<std::string>& path, const std::string& why, const std::string& hint) {
  throw Error(fmt::format("[{}] {} cannot be written: {}", name, shown(path), why), hint);
}

class Edited {
 public:
  Edited(const std::string& text, Kind kind, const std::string& name) : text_(text), kind_(kind), name_(name) {
    root_ = kind == Kind::json ? place_json(text) : kind == Kind::yaml ? place_yaml(text, name) : place_toml(text, name);
  }

  std::string with(const KeyEdit& edit) {
    Placed* at = &root_;
    for (size_t depth = 0; depth < edit.path.size(); ++depth) {
      if (!at->refused.empty()) refuse(name_, edit.path, at->refused, "write the value out there");
      std::vector<Placed*> found;
      for (PlacedMember& m : at->members)
        if (m.key == edit.path[depth]) found.push_back(&m.value);
      if (found.size() > 1) refuse(name_, edit.path, "the key is there twice", "keep one of them");
      if (found.empty() && edit.value.is_discarded()) return text_;
      if (found.empty()) {
        for (const PlacedMember& m : at->members)
          if (kind_ == Kind::yaml && m.key == "<<")
            refuse(name_, edit.path, "its section merges another one (<<)", "write the value out there");
        return with_new(*at, edit, depth);
      }
      if (depth + 1 == edit.path.size() && edit.value.is_discarded()) return without(*at, *found[0], edit);
      at = found[0];
    }
    return with_replaced(*at, edit);
  }

 private:
  std::string spliced(size_t begin, size_t end, const std::string& put) const { return text_.substr(0, begin) + put + text_.substr(end); }

  // The way the file itself writes true.
  std::string in_style(const Json& value, const std::string& old) const {
    std::string out = render(value, kind_);
    if (kind_ == Kind::yaml && value.is_boolean() && (old == "True" || old == "False")) out[0] = static_cast<char>(std::toupper(out[0]));
    if (kind_ != Kind::json && value.is_string() && out.find_first_of("'\"\\") == std::string::npos && old.size() > 1 &&
        (old[0] == '\'' || old[0] == '"'))
      out = old[0] + out + old[0];
    if (kind_ == Kind::toml && value.is_string() && old.size() > 1 && old[0] == '\'' && old[1] != '\'' && out.size() > 1 &&
        out.find_first_of("'\\") == std::string::npos)
      out = "'" + out.substr(1, out.size() - 2) + "'";
    return out;
  }

  std::string with_replaced(const Placed& at, const KeyEdit& edit) const {
    if (!at.refused.empty()) refuse(name_, edit.path, at.refused, "write the value out there");
    if (at.header) refuse(name_, edit.path, "it is a table of its own", "edit the file by hand");
    const std::string old = text_.substr(at.begin, at.end - at.begin);
    if (at.kind != Placed::Kind::scalar && old.find('#') != std::string::npos)
      refuse(name_, edit.path, "comments stand inside its value", "edit the file by hand");
    if (at.begin == at.end) return spliced(at.begin, at.end, " " + in_style(edit.value, ""));  // `key:`
    if (at.kind != Placed::Kind::scalar && !at.flow && kind_ == Kind::yaml) {                  // a block, from the colon on
      const size_t from = text_.find_last_not_of(" \t\r\n", at.begin - 1) + 1;
      if (from == 0 || text_.substr(from, at.begin - from).find('\n') == std::string::npos || text_[from - 1] != ':')
        refuse(name_, edit.path, "its value is a block", "edit the file by hand");
      return spliced(from, at.end, " " + in_style(edit.value, ""));
    }
    return spliced(at.begin, at.end, in_style(edit.value, old));
  }

  // Its line, when it has one of its own and others are around it.
  std::string without(const Placed& parent, const Placed& value, const KeyEdit& edit) const {
    const auto member =
        std::find_if(parent.members.begin(), parent.members.end(), [&](const PlacedMember& m) { return &m.value == &value; });
    const size_t line = line_begin(text_, member->key_begin), stop = line_stop(text_, value.end), next = text_.find('\n', stop);
    const std::string_view rest = std::string_view(text_).substr(value.end, stop - value.end);
    const size_t word = rest.find_first_not_of(" \t");
    const bool own_line =
        is_blank(std::string_view(text_).substr(line, member->key_begin - line)) && (word == std::string_view::npos || rest[word] == '#');
    if (kind_ == Kind::json || parent.flow || parent.members.size() < 2 || !own_line || value.kind != Placed::Kind::scalar ||
        !value.refused.empty())
      refuse(name_, edit.path, "it would have to go, and shares its line or section", "take it out by hand");
    return spliced(line, next == std::string::npos ? text_.size() : next + 1, "");
  }

  std::string with_new(Placed& at, const KeyEdit& edit, size_t depth) const {
    if (at.kind == Placed::Kind::sequence) refuse(name_, edit.path, "the list has no such item", "edit the file by hand");
    Json value = edit.value;
    for (size_t i = edit.path.size() - 1; i > depth; --i) value = Json{{edit.path[i], value}};
    if (at.kind == Placed::Kind::scalar) {
      const std::string old = text_.substr(at.begin, at.end - at.begin);
      if (&at == &root_ || (!old.empty() && old != "null" && old != "~"))
        refuse(name_, edit.path, fmt::format("'{}' has no keys", printable(old, 40)), "edit the file by hand");
      return spliced(at.begin, at.end, (old.empty() ? " " : "") + render(Json{{edit.path[depth], value}}, kind_));
    }
    if (kind_ == Kind::toml && !at.flow) return with_toml_line(at, edit.path[depth], value, edit);
    const std::string separator = kind_ == Kind::toml ? " = " : ": ";
    const std::string entry = quoted_key(edit.path[depth], kind_) + separator + render(value, kind_);
    if (kind_ == Kind::json && !at.members.empty()) return with_json_member(at, entry);
    if (at.flow || kind_ == Kind::json) return spliced(at.begin + 1, at.begin + 1, entry + (at.members.empty() ? "" : ", "));
    return with_yaml_line(at, entry);
  }

  // Behind the last member, on a line of its own if that has one.
  std::string with_json_member(const Placed& at, const std::string& entry) const {
    const PlacedMember& last = at.members.back();
    const size_t line = line_begin(text_, last.key_begin), stop = line_stop(text_, last.value.end);
    if (!is_blank(std::string_view(text_).substr(line, last.key_begin - line)))
      return spliced(last.value.end, last.value.end, ", " + entry);
    const std::string_view rest = std::string_view(text_).substr(last.value.end, stop - last.value.end);
    const size_t word = rest.find_first_not_of(" \t");
    const size_t to = word == std::string_view::npos || rest.substr(word).starts_with("//") ? stop : last.value.end;
    return text_.substr(0, last.value.end) + "," + text_.substr(last.value.end, to - last.value.end) + line_end_of(text_) +
           text_.substr(line, last.key_begin - line) + entry + text_.substr(to);
  }

  // Below the last member whose value is on its line; there is none: above the first.
  std::string with_yaml_line(const Placed& at, const std::string& entry) const {
    for (auto it = at.members.rbegin(); it != at.members.rend(); ++it) {
      if (it->value.kind != Placed::Kind::scalar || !it->value.refused.empty()) continue;
      const size_t stop = line_stop(text_, it->value.end);
      const std::string_view rest = std::string_view(text_).substr(it->value.end, stop - it->value.end);
      const size_t word = rest.find_first_not_of(" \t");
      if (word != std::string_view::npos && rest[word] != '#') continue;
      return spliced(stop, stop, line_end_of(text_) + indent_of(text_, it->key_begin) + entry);
    }
    if (at.members.empty()) return entry + line_end_of(text_) + text_;
    const size_t first = at.members.front().key_begin;
    return spliced(first, first, entry + line_end_of(text_) + indent_of(text_, first));
  }

  std::string with_toml_line(const Placed& at, const std::string& key, const Json& value, const KeyEdit& edit) const {
    const std::string eol = line_end_of(text_);
    if (value.is_object() && &at == &root_) {  // a table that is not there yet
      std::string table = fmt::format("[{}]{}", quoted_key(key, kind_), eol);
      for (const auto& item : value.items()) table += quoted_key(item.key(), kind_) + " = " + render(item.value(), kind_) + eol;
      return text_ + (text_.empty() || text_.ends_with('\n') ? "" : eol) + (text_.empty() ? "" : eol) + table;
    }
    if (!at.header && &at != &root_) refuse(name_, edit.path, "its table is spread over keys with dots", "edit the file by hand");
    const std::string entry = quoted_key(key, kind_) + " = " + render(value, kind_);
    const PlacedMember* last = nullptr;
    for (const PlacedMember& m : at.members)
      if (!m.value.header && m.value.end > m.value.begin && (!last || m.value.end > last->value.end)) last = &m;
    if (last) {
      const size_t stop = line_stop(text_, last->value.end);
      return spliced(stop, stop, eol + indent_of(text_, last->key_begin) + entry);
    }
    if (&at == &root_) return entry + eol + text_;
    const size_t stop = line_stop(text_, at.end);
    return spliced(stop, stop, eol + entry);
  }

  const std::string& text_;
  Kind kind_;
  const std::string& name_;
  Placed root_;
};

}  // namespace

std::string shown(const std::vector<std::string>& path) {
  std::string out;
  for (const std::string& key : path) {
    const bool number = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isdigit(c); });
    if (number)
      out += "[" + key + "]";
    else
      out += (out.empty() ? "" : ".") + key;
  }
  return out;
}

std::string render(const Json& value, Kind kind) {
  if (value.is_object()) {
    std::string out;
    for (const auto& item : value.items())
      out += (out.empty() ? "" : ", ") + quoted_key(item.key(), kind) + (kind == Kind::toml ? " = " : ": ") + render(item.value(), kind);
    return "{" + out + "}";
  }
  if (value.is_array()) {
    std::string out;
    for (const Json& item : value) out += (out.empty() ? "" : ", ") + render(item, kind);
    return "[" + out + "]";
  }
  if (kind == Kind::yaml && value.is_string() && is_plain_yaml(value.get<std::string>())) return value.get<std::string>();
  return dump(value);
}

void edit_value(Json& value, const KeyEdit& edit) {
  Json* at = &value;
  for (const std::string& key : edit.path) {
    if (edit.value.is_discarded() && &key == &edit.path.back()) {
      if (at->is_object()) at->erase(key);
      return;
    }
    if (at->is_array()) {
      at = &at->at(static_cast<size_t>(std::stoul(key)));
    } else {
      if (!at->is_object()) *at = Json::object();
      at = &(*at)[key];
    }
  }
  *at = edit.value;
}

std::string edit_settings(const std::string& text, Kind kind, const std::string& name, const std::vector<KeyEdit>& edits) {
  std::string out = text;
  for (const KeyEdit& edit : edits) out = Edited(out, kind, name).with(edit);
  return out;
}

}  // namespace plimsoll
