// Samples and alerts kept in an SQLite file, and read back from it or from JSON lines.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "watch/judge.h"

struct sqlite3;

namespace plimsoll {

class History {
 public:
  // Opens or makes the file. Throws an Error when it is no such file, or one of a newer version.
  History(const std::string& file, const std::string& target);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // Keeps what the judge saw last. A full disk or a lost file does not end the watch: what is wrong is returned, once; else nothing.
  std::string keep(const Judge& judge);

 private:
  bool run(const char* sql);
  void commit();

  std::string file_;
  sqlite3* db_ = nullptr;
  int64_t session_ = 0;
  int pending_ = 0;
  bool failed_ = false;
};

// Gives every sample of a --history file (its last session) or of a --jsonl file to `take`, in order. Throws an Error for anything else.
void read_samples(const std::string& file, const std::function<void(const Sample&)>& take);

// One line of --jsonl: the sample, the alerts that are on, and those that began or ended with it.
nlohmann::ordered_json look_json(const Judge& judge);

}  // namespace plimsoll
