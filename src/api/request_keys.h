// The keys of a request, one row each: the member that a key sets and what it means. From the rows follow what the library reads and
// refuses, the flags of the command line (cli/request_flags.h), and the JSON Schema of the request.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "job/config.h"

namespace plimsoll {

// `texts` is a text or a list of them, `size` a number of bytes or a text like "24GiB".
enum class KeyType : uint8_t { text, texts, number, integer, flag, size, object, list };

struct KeyRange {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above = false;  // the low end itself is out of it

  bool limited() const { return *this != KeyRange{}; }
  bool operator==(const KeyRange&) const = default;
};
// Of the key `calibrated`; the flag is --no-calibration.
constexpr const char* kCalibratedHelp = "whether what `plimsoll watch` measured of like runs on this machine counts";
constexpr KeyRange kAboveZero{0, std::numeric_limits<double>::infinity(), true};

// What is known of a key without the struct that it fills.
struct RequestKey {
  std::string key;
  KeyType type = KeyType::text;
  std::string help;
  KeyRange range = {};
  std::vector<std::string> choices = {};  // all values there are; empty: any
  bool required = false;
};

template <class Request>
struct SizeText {
  std::string Request::*member;
};

template <class Request>
using KeyMember = std::variant<std::string Request::*, SizeText<Request>, std::vector<std::string> Request::*, bool Request::*,
                               double Request::*, int64_t Request::*, std::optional<std::string> Request::*, std::optional<int> Request::*,
                               std::optional<double> Request::*, std::optional<bool> Request::*>;

template <class Request>
struct Key {
  const char* key;  // "total_batch"; the flag is --total-batch
  KeyMember<Request> member;
  const char* value;  // of the flag, as its help shows it: "N"; of a switch ""
  std::string help;
  const char* group = "";  // of flags
  KeyRange range = {};
  bool flag = true;  // whether the command line has it under this name
};

template <class Request>
using Keys = std::vector<Key<Request>>;

inline KeyType type_of(const std::string&) { return KeyType::text; }
inline KeyType type_of(const std::optional<std::string>&) { return KeyType::text; }
inline KeyType type_of(const std::vector<std::string>&) { return KeyType::texts; }
inline KeyType type_of(bool) { return KeyType::flag; }
inline KeyType type_of(const std::optional<bool>&) { return KeyType::flag; }
inline KeyType type_of(double) { return KeyType::number; }
inline KeyType type_of(const std::optional<double>&) { return KeyType::number; }
inline KeyType type_of(int64_t) { return KeyType::integer; }
inline KeyType type_of(const std::optional<int>&) { return KeyType::integer; }

template <class Request>
std::vector<RequestKey> described(const Keys<Request>& keys) {
  std::vector<RequestKey> out;
  const Request sample{};
  for (const Key<Request>& k : keys) {
    const KeyType type = std::visit(
        [&](const auto& member) {
          if constexpr (std::is_same_v<std::decay_t<decltype(member)>, SizeText<Request>>)
            return KeyType::size;
          else
            return type_of(sample.*member);
        },
        k.member);
    out.push_back({k.key, type, k.help, k.range});
  }
  return out;
}

std::vector<RequestKey> operator+(std::vector<RequestKey> a, const std::vector<RequestKey>& b);

// The object of a request. Throws an Error for a key that is not among `keys`, with the nearest that is.
Config request_of(const nlohmann::json& request, const std::vector<RequestKey>& keys);

// Sets `out` to the value of that row's key; leaves it as it is where the request has none. Throws an Error that names key and value.
void read_value(const Config& request, const RequestKey& key, std::string& out);
void read_value(const Config& request, const RequestKey& key, std::optional<std::string>& out);
void read_value(const Config& request, const RequestKey& key, std::vector<std::string>& out);
void read_value(const Config& request, const RequestKey& key, bool& out);
void read_value(const Config& request, const RequestKey& key, std::optional<bool>& out);
void read_value(const Config& request, const RequestKey& key, double& out);
void read_value(const Config& request, const RequestKey& key, std::optional<double>& out);
void read_value(const Config& request, const RequestKey& key, int64_t& out);
void read_value(const Config& request, const RequestKey& key, std::optional<int>& out);
void read_size(const Config& request, const RequestKey& key, std::string& out);

template <class Request>
void read_keys(const Config& request, const Keys<Request>& keys, Request& out) {
  const std::vector<RequestKey> rows = described(keys);
  for (size_t i = 0; i < keys.size(); ++i)
    std::visit(
        [&](const auto& member) {
          if constexpr (std::is_same_v<std::decay_t<decltype(member)>, SizeText<Request>>)
            read_size(request, rows[i], out.*member.member);
          else
            read_value(request, rows[i], out.*member);
        },
        keys[i].member);
}

}  // namespace plimsoll
