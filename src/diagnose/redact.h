// Takes out of a text what is nobody else's business: tokens, keys, passwords, home folders, names of users and machines. What was taken
// out is counted by kind, never shown.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// Names of this machine; those in a text's own paths (/home/NAME) are found as well.
struct PrivateNames {
  std::string home, user, host;
  static PrivateNames here();
};

class Redaction {
 public:
  explicit Redaction(PrivateNames names) : names_(std::move(names)) {}

  // Remembers names of users and machines that a text gives away in its paths and prefixes.
  void learn(std::string_view text);
  // The text without what is private, the learned names included.
  std::string operator()(std::string_view text);
  std::string value(std::string_view name, std::string_view text);  // of a setting: all of it when the name says that it is a secret
  // "2 tokens of Hugging Face", by kind.
  const std::map<std::string, int64_t>& left_out() const { return counts_; }

 private:
  std::string secrets(std::string_view text);
  std::string settings(std::string_view line);
  std::string places(std::string_view text);
  void count(const std::string& kind) { ++counts_[kind]; }

  PrivateNames names_;
  std::vector<std::pair<std::string, std::string>> learned_;  // a name, and "user" or "host"
  std::map<std::string, int64_t> counts_;
};

}  // namespace plimsoll
