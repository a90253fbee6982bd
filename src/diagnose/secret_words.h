// What a secret looks like: tokens by how they begin, keys by how random they are, settings by their names, addresses by their form.
#pragma once

#include <optional>
#include <string_view>

namespace plimsoll {

struct SecretWord {
  size_t length = 0;
  const char* kind = "";  // "tokens of Hugging Face"
};

// The token or key that begins at `at`, where a word begins.
std::optional<SecretWord> secret_word_at(std::string_view text, size_t at);
// A name whose value is a secret, whatever it looks like.
bool is_secret_name(std::string_view name);
// The length of the mail, IPv4, IPv6 or hardware address that begins at `at`; 0: none.
size_t address_at(std::string_view text, size_t at);

}  // namespace plimsoll
