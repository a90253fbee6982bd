// Some settings and their values, on top of a job: what a plan changes, what a lever turns, what a request says, what is written back into
// a file. Keys are those of the table of settings (settings.h): any other is an Error, wherever it is used, also where it is only asked
// for. Sorted by key, so that equal patches are equal whatever the order they were made in; comparing and copying them is cheap.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "util/outcome.h"

namespace plimsoll {

struct Job;

class Patch {
 public:
  using Json = nlohmann::json;
  using Values = std::vector<std::pair<std::string, Json>>;

  Patch();
  Patch(std::initializer_list<std::pair<std::string, Json>> values);  // the last of several for one key is taken
  Patch(const Patch&);
  Patch(Patch&&) noexcept;
  Patch& operator=(const Patch&);
  Patch& operator=(Patch&&) noexcept;
  ~Patch();
  static Patch from(const Json& object);

  Patch& set(const std::string& key, Json value);
  Patch& set(const std::string& key, const std::string& field, Json value);  // of a setting that is a mapping
  Patch& erase(const std::string& key);
  Patch without(std::initializer_list<const char*> keys) const;

  bool contains(const std::string& key) const;
  bool includes(const Patch& other) const;                       // all its keys, with the same values
  bool turns_on(const std::string& key) const;                   // it is there, and neither null nor false
  std::optional<int64_t> integer(const std::string& key) const;  // none: it is not there, or no whole number
  std::string text(const std::string& key) const;                // empty: it is not there, or no text
  const Json* find(const std::string& key) const;                // null: it is not there
  const Json& operator[](const std::string& key) const;          // null (the JSON value) where it is not there

  bool empty() const;
  size_t size() const;
  Values::const_iterator begin() const;  // by key
  Values::const_iterator end() const;
  Values in_order() const;  // as the table of settings has them, for people: batch before accumulation

  // Each value through the schema, in the order of the keys; `origin` is what the job remembers for them. Wrong values throw an Error.
  void apply(Job& job, const std::string& origin) const;

  Json json() const;          // {key: value}
  std::string text() const;   // its JSON on one line
  std::string flags() const;  // Plimsoll's own, in_order(): "--batch 2 --checkpointing"

  friend bool operator==(const Patch& a, const Patch& b);
  friend bool operator<(const Patch& a, const Patch& b);

 private:
  Values values_;
};

// Where both have a key the second wins; keys of the model's configuration add up.
Patch merged(Patch first, const Patch& second);

// The job with these settings. Wrong values throw an Error.
Job patched(const Job& job, const Patch& patch, const std::string& origin);
// The same where some of them may be refused.
Outcome<Job> try_patched(const Job& job, const Patch& patch, const std::string& origin);

}  // namespace plimsoll
