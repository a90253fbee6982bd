#include "diagnose/secret_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

template <class F>
size_t run_at(std::string_view text, size_t at, F is) {
  size_t end = at;
  while (end < text.size() && is(text[end])) ++end;
  return end - at;
}

// `least` characters must follow.
struct KnownStart {
  std::string_view start;
  size_t least;
  const char* kind;
};
constexpr std::array<KnownStart, 35> kStarts{{{"hf_", 16, "tokens of Hugging Face"},
                                              {"api_org_", 16, "tokens of Hugging Face"},
                                              {"wandb_v1_", 16, "keys of Weights & Biases"},
                                              {"local-", 36, "keys of Weights & Biases"},
                                              {"sk-", 16, "API keys"},
                                              {"sk_live_", 12, "API keys"},
                                              {"sk_test_", 12, "API keys"},
                                              {"pk-", 24, "API keys"},
                                              {"r8_", 24, "API keys"},
                                              {"gsk_", 16, "API keys"},
                                              {"tgp_v1_", 16, "API keys"},
                                              {"rpa_", 16, "API keys"},
                                              {"nvapi-", 16, "API keys"},
                                              {"AIza", 30, "API keys"},
                                              {"ya29.", 16, "API keys"},
                                              {"GOCSPX-", 16, "API keys"},
                                              {"SG.", 20, "API keys"},
                                              {"npm_", 20, "API keys"},
                                              {"pypi-", 20, "API keys"},
                                              {"dckr_pat_", 16, "API keys"},
                                              {"ghp_", 16, "tokens of GitHub"},
                                              {"gho_", 16, "tokens of GitHub"},
                                              {"ghu_", 16, "tokens of GitHub"},
                                              {"ghs_", 16, "tokens of GitHub"},
                                              {"ghr_", 16, "tokens of GitHub"},
                                              {"github_pat_", 16, "tokens of GitHub"},
                                              {"glpat-", 16, "tokens of GitLab"},
                                              {"AKIA", 16, "keys of AWS"},
                                              {"ASIA", 16, "keys of AWS"},
                                              {"xoxb-", 10, "tokens of Slack"},
                                              {"xoxp-", 10, "tokens of Slack"},
                                              {"xapp-", 10, "tokens of Slack"},
                                              {"hooks.slack.com/services/", 8, "tokens of Slack"},
                                              {"discord.com/api/webhooks/", 8, "API keys"},
                                              {"eyJ", 30, "web tokens"}}};

// How often a word changes between upper case, lower case and digits as no name does: a capital with small letters after it is one.
double randomness(std::string_view word) {
  const auto kind = [](char c) {
    return std::isupper(static_cast<unsigned char>(c)) ? 1 : std::islower(static_cast<unsigned char>(c)) ? 2 : is_digit(c) ? 3 : 0;
  };
  int changes = 0;
  for (size_t i = 1; i < word.size(); ++i) {
    const int before = kind(word[i - 1]), now = kind(word[i]), after = i + 1 < word.size() ? kind(word[i + 1]) : 0;
    const bool named = (before == 2 && now == 1 && after == 2) || (before == 1 && now == 2);
    changes += before && now && before != now && !named;
  }
  return static_cast<double>(changes) / static_cast<double>(word.size());
}

// Long words of all three kinds that change too often to be names: AWS's secret keys, base64. Names that a compiler mangled are none.
size_t random_word(std::string_view text, size_t at) {
  const size_t length = run_at(text, at, [](char c) { return in_word(c) || c == '+' || c == '/' || c == '-'; });
  const std::string_view word = text.substr(at, length);
  const bool part = at > 0 && (text[at - 1] == '/' || text[at - 1] == '-' || text[at - 1] == '+');  // of a path or a name
  if (part || length < 32 || word.starts_with("_Z") || word.starts_with("Z")) return 0;
  const auto count = [&](auto is) {
    return std::count_if(word.begin(), word.end(), [&](char c) { return is(static_cast<unsigned char>(c)); });
  };
  const bool mixed = count([](int c) { return std::isupper(c); }) >= 3 && count([](int c) { return std::islower(c); }) >= 3 &&
                     count([](int c) { return std::isdigit(c); }) >= 1;
  // AWS's example key has 0.125, paths of checkpoints below 0.09.
  return mixed && randomness(word) > 0.11 ? length : 0;
}

size_t mail_at(std::string_view text, size_t at) {
  const size_t name = run_at(text, at, [](char c) { return in_word(c) || c == '.' || c == '-' || c == '+'; });
  if (at + name >= text.size() || text[at + name] != '@') return 0;
  const size_t host = run_at(text, at + name + 1, [](char c) { return in_word(c) || c == '.' || c == '-'; });
  return host > 0 && text[at + name + 1] != '.' ? name + 1 + host : 0;
}

size_t ipv4_at(std::string_view text, size_t at) {
  const size_t length = run_at(text, at, [](char c) { return is_digit(c) || c == '.'; });
  const std::string_view number = text.substr(at, length);
  const bool form = std::count(number.begin(), number.end(), '.') == 3 && number.size() >= 7 && number.size() <= 15 && number.back() != '.';
  if (!form || (at + length < text.size() && in_word(text[at + length]))) return 0;
  return number == "127.0.0.1" || number == "0.0.0.0" ? 0 : length;
}

// fe80::1, 2001:db8:0:0:0:0:0:1, 52:54:00:12:34:56. Times and buses of devices (0000:01:00.0) have fewer colons.
size_t colons_at(std::string_view text, size_t at) {
  const size_t length = run_at(text, at, [](char c) { return is_hex(c) || c == ':'; });
  const std::string_view word = text.substr(at, length);
  const auto colons = std::count(word.begin(), word.end(), ':');
  if (length < 6 || colons < 2 || word.ends_with(':') || (at + length < text.size() && in_word(text[at + length]))) return 0;
  const bool shortened = has(word, "::") && colons >= 2, whole = colons == 7, hardware = colons == 5 && length == 17;
  return shortened || whole || hardware ? length : 0;
}

}  // namespace

std::optional<SecretWord> secret_word_at(std::string_view text, size_t at) {
  for (const KnownStart& k : kStarts) {
    if (text.compare(at, k.start.size(), k.start) != 0) continue;
    const bool path = k.start.ends_with('/');
    const size_t length =
        run_at(text, at + k.start.size(), [&](char c) { return in_word(c) || c == '-' || c == '.' || (path && c == '/'); });
    if (length >= k.least) return SecretWord{k.start.size() + length, k.kind};
  }
  // Keys of Weights & Biases have 40 hexadecimal digits. Addresses (0x...) are shorter.
  const size_t digits = run_at(text, at, is_hex);
  if (digits >= 32 && (at + digits == text.size() || !in_word(text[at + digits]))) return SecretWord{digits, "long hexadecimal keys"};
  if (const size_t length = random_word(text, at)) return SecretWord{length, "long random words"};
  return {};
}

bool is_secret_name(std::string_view name) {
  const std::string n = lower(name);
  for (const std::string_view whole : {"key", "sig", "pwd", "pass", "pw", "sas", "pat", "jwt", "otp"})
    if (n == whole) return true;
  for (const std::string_view part :
       {"token",   "secret",     "password",  "passwd",      "passphrase", "credential", "api_key",     "apikey",
        "api-key", "access_key", "accesskey", "private_key", "auth",       "cookie",     "session_key", "signature",
        "bearer",  "_pat",       "_pwd",      "_pass",       "dsn",        "webhook"})
    if (has(n, part)) {
      // Settings of tokenizers and counts of tokens are none.
      const bool account = has(n, "access") || has(n, "auth") || has(n, "refresh") || has(n, "hub") || has(n, "api");
      if (part == "token" && !account)
        for (const std::string_view harmless :
             {"tokens", "tokenizer", "token_id", "tokenizers", "pad_token", "eos_token", "bos_token", "unk_token", "mask_token",
              "cls_token", "sep_token", "num_token", "tokens_per", "add_token", "image_token", "special_token"})
          if (has(n, harmless)) return false;
      if (part == "_pat" && !n.ends_with("_pat")) continue;  // _path, _patch
      if (part == "_pass" && !n.ends_with("_pass")) continue;
      return part != "auth" || !has(n, "author") || has(n, "authoriz");
    }
  return n.ends_with("_key") || n.ends_with("-key");
}

size_t address_at(std::string_view text, size_t at) {
  if (const size_t mail = mail_at(text, at)) return mail;
  if (const size_t four = ipv4_at(text, at)) return four;
  return colons_at(text, at);
}

}  // namespace plimsoll
