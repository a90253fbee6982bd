#include "supervise/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void nobody_answered(const std::vector<int>& missing, Patience patience) {
  std::vector<std::string> names;
  for (const int rank : missing) names.push_back(std::to_string(rank));
  throw Error(fmt::format("[agreement] no answer from rank {} in {} s", join(names, ", "), patience.count() / 1000.0),
              "every rank has to report every step; one that died takes the others with it under torchrun");
}

void take_least(std::vector<int64_t>& all, const std::vector<int64_t>& one) {
  if (one.size() != all.size()) throw Error(fmt::format("[agreement] ranks gave {} and {} numbers", all.size(), one.size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = std::min(all[i], one[i]);
}

void check_rank(int rank, int ranks) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    throw Error(fmt::format("[agreement] there is no rank {} of {}", rank, ranks), "ranks count from 0");
}

// Where threads meet: one round at a time, the next one begins when all have what the last one gave.
class Meeting {
 public:
  Meeting(int ranks, Patience patience) : given_(static_cast<size_t>(ranks)), patience_(patience) {}
  int ranks() const { return static_cast<int>(given_.size()); }

  std::vector<int64_t> least(int rank, const std::vector<int64_t>& mine) {
    std::unique_lock lock(mutex_);
    wait(lock, [&] { return leaving_ == 0; });
    given_[static_cast<size_t>(rank)] = mine;
    if (++arrived_ == ranks()) {
      result_ = mine;
      for (std::optional<std::vector<int64_t>>& one : given_) take_least(result_, *one), one.reset();
      leaving_ = std::exchange(arrived_, 0);
      ++round_;
      changed_.notify_all();
    } else {
      wait(lock, [&, round = round_] { return round_ != round; });
    }
    std::vector<int64_t> out = result_;
    if (--leaving_ == 0) changed_.notify_all();
    return out;
  }

 private:
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    if (changed_.wait_for(lock, patience_, condition)) return;
    std::vector<int> missing;
    for (int rank = 0; rank < ranks(); ++rank)
      if (!given_[static_cast<size_t>(rank)]) missing.push_back(rank);
    nobody_answered(missing, patience_);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<std::vector<int64_t>>> given_;
  std::vector<int64_t> result_;
  int arrived_ = 0, leaving_ = 0;
  int64_t round_ = 0;
  Patience patience_;
};

class OfThreads final : public Agreement {
 public:
  OfThreads(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}
  int ranks() const override { return meeting_->ranks(); }
  std::vector<int64_t> least(const std::vector<int64_t>& mine) override { return meeting_->least(rank_, mine); }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
};

class ByFiles final : public Agreement {
 public:
  ByFiles(fs::path folder, int rank, int ranks, Patience patience)
      : folder_(std::move(folder)), rank_(rank), ranks_(ranks), patience_(patience) {}
  int ranks() const override { return ranks_; }

  std::vector<int64_t> least(const std::vector<int64_t>& mine) override {
    // Whoever has reached this round has read the one before the last.
    std::error_code ignored;
    if (round_ >= 2) fs::remove(file_of(round_ - 2, rank_), ignored);
    write(mine);
    std::vector<int64_t> all = mine;
    const auto end = std::chrono::steady_clock::now() + patience_;
    std::vector<int> missing;
    for (int rank = 0; rank < ranks_; ++rank)
      if (rank != rank_) missing.push_back(rank);
    for (auto pause = std::chrono::microseconds(200);; pause = std::min(pause * 2, std::chrono::microseconds(50000))) {
      std::erase_if(missing, [&](int rank) {
        const std::optional<std::vector<int64_t>> one = read(rank, mine.size());
        if (one) take_least(all, *one);
        return one.has_value();
      });
      if (missing.empty()) break;
      if (std::chrono::steady_clock::now() > end) nobody_answered(missing, patience_);
      std::this_thread::sleep_for(pause);
    }
    ++round_;
    return all;
  }

 private:
  fs::path file_of(int64_t round, int rank) const { return folder_ / fmt::format("{}.{}", round, rank); }

  void write(const std::vector<int64_t>& values) const {
    const fs::path name = file_of(round_, rank_), part = name.string() + ".part";
    std::ofstream out(part);
    for (const int64_t v : values) out << v << '\n';
    out << "end\n";
    out.close();
    std::error_code error;
    if (out) fs::rename(part, name, error);
    if (!out || error) throw Error("[agreement] cannot write " + name.string(), "the folder has to be there, with room, for every rank");
  }

  std::optional<std::vector<int64_t>> read(int rank, size_t count) const {
    std::ifstream in(file_of(round_, rank));
    std::vector<int64_t> values(count);
    for (int64_t& v : values)
      if (!(in >> v)) return std::nullopt;
    std::string end;
    return in >> end && end == "end" ? std::optional(values) : std::nullopt;
  }

  fs::path folder_;
  int rank_, ranks_;
  Patience patience_;
  int64_t round_ = 0;
};

class ByCall final : public Agreement {
 public:
  ByCall(int ranks, LeastOf least) : ranks_(ranks), least_(std::move(least)) {}
  int ranks() const override { return ranks_; }
  std::vector<int64_t> least(const std::vector<int64_t>& mine) override {
    std::vector<int64_t> values = mine;
    if (!least_(values) || values.size() != mine.size()) throw Error("[agreement] the call that takes the least of all ranks failed");
    return values;
  }

 private:
  int ranks_;
  LeastOf least_;
};

}  // namespace

std::vector<std::unique_ptr<Agreement>> agreement_of_threads(int ranks, Patience patience) {
  check_rank(0, ranks);
  const auto meeting = std::make_shared<Meeting>(ranks, patience);
  std::vector<std::unique_ptr<Agreement>> out;
  for (int rank = 0; rank < ranks; ++rank) out.push_back(std::make_unique<OfThreads>(meeting, rank));
  return out;
}

std::unique_ptr<Agreement> agreement_by_files(const std::string& folder, int rank, int ranks, Patience patience) {
  check_rank(rank, ranks);
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder, error))
    throw Error("[agreement] " + folder + " is no folder, nor can one be made there", "name one that every rank sees");
  return std::make_unique<ByFiles>(folder, rank, ranks, patience);
}

std::unique_ptr<Agreement> agreement_by_call(int ranks, LeastOf least) {
  check_rank(0, ranks);
  return std::make_unique<ByCall>(ranks, std::move(least));
}

}  // namespace plimsoll
