// Some settings and their values, on top of a job: what a plan changes, what a lever turns, what a request says, what is written back into
// a file. Keys are those of the table of settings (settings.h): any other is an Error, wherever it is used, also where it is only asked
// for. Sorted by key, so that equal patches have one text.
#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "job/job.h"

namespace plimsoll {

class Patch {
 public:
  using Json = nlohmann::json;
  using Values = std::map<std::string, Json>;

  Patch() = default;
  Patch(std::initializer_list<std::pair<std::string, Json>> values);  // the last of several for one key is taken
  static Patch from(const Json& object);

  Patch& set(const std::string& key, Json value);
  Patch& erase(const std::string& key);
  bool contains(const std::string& key) const;
  const Json* find(const std::string& key) const;        // null: it is not in the patch
  Json& operator[](const std::string& key);              // as in a JSON object: null is put where there is none
  const Json& operator[](const std::string& key) const;  // null (the JSON value) where it is not in the patch

  bool empty() const { return values_.empty(); }
  size_t size() const { return values_.size(); }
  Values::const_iterator begin() const { return values_.begin(); }
  Values::const_iterator end() const { return values_.end(); }

  // As the table of settings has them, for people: batch before accumulation.
  std::vector<std::pair<std::string, Json>> in_order() const;

  // Each value through the schema, in the order of the keys; `origin` is what the job remembers for them. Wrong values throw an Error.
  void apply(Job& job, const std::string& origin) const;

  Json json() const;         // {key: value}
  std::string text() const;  // its JSON on one line: equal patches and no others have the same

  friend bool operator==(const Patch&, const Patch&) = default;

 private:
  Values values_;
};

// Where both have a key the second wins; keys of the model's configuration add up.
Patch merged(Patch first, const Patch& second);

}  // namespace plimsoll
