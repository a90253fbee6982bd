#include "watch/history.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "report/fit_report.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr int kApplication = 0x506c6d73;  // "Plms": what `file` and SQLite know the file by
constexpr int kLooksInOneWrite = 10;

constexpr const char* kTables = R"(
CREATE TABLE session (id INTEGER PRIMARY KEY, began REAL, target TEXT, prediction TEXT);
CREATE TABLE look (session INTEGER, time REAL, run_bytes INTEGER, device_bytes INTEGER, shm_bytes INTEGER, left_bytes INTEGER, step INTEGER,
                   rate REAL, document TEXT);
CREATE INDEX look_by_time ON look (session, time);
CREATE TABLE alert (session INTEGER, time REAL, id TEXT, level TEXT, began INTEGER, text TEXT);
)";

// A statement that is prepared, filled in order, and finalized.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) { code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr); }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& operator<<(int64_t v) { return sqlite3_bind_int64(statement_, ++at_, v), *this; }
  Statement& operator<<(double v) { return sqlite3_bind_double(statement_, ++at_, v), *this; }
  Statement& operator<<(const std::string& v) { return sqlite3_bind_text(statement_, ++at_, v.c_str(), -1, SQLITE_TRANSIENT), *this; }
  Statement& operator<<(const std::optional<Bytes>& v) { return v ? *this << v->count : (++at_, *this); }
  Statement& operator<<(const std::optional<double>& v) { return v ? *this << *v : (++at_, *this); }

  bool step() { return code_ == SQLITE_OK && sqlite3_step(statement_) == SQLITE_ROW; }
  bool done() { return code_ == SQLITE_OK && sqlite3_step(statement_) == SQLITE_DONE; }
  int64_t number(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) const {
    const unsigned char* t = sqlite3_column_text(statement_, column);
    return t ? reinterpret_cast<const char*>(t) : "";
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_ERROR, at_ = 0;
};

int64_t pragma(sqlite3* db, const char* name) {
  Statement s(db, fmt::format("PRAGMA {}", name).c_str());
  return s.step() ? s.number(0) : -1;
}

// Whose file it is: 0 an empty one.
void check(sqlite3* db, const std::string& file) {
  const int64_t application = pragma(db, "application_id"), version = pragma(db, "user_version");
  if (application < 0)
    throw Error("[watch] " + file + " is no SQLite file", "give a new name, or what --history wrote", ExitCode::bad_input);
  Statement tables(db, "SELECT count(*) FROM sqlite_master");
  const bool empty = tables.step() && tables.number(0) == 0;
  if (application != kApplication && !(empty && application == 0))
    throw Error("[watch] " + file + " is a database of another program", "give a new name", ExitCode::bad_input);
  if (version > kVersion)
    throw Error(fmt::format("[watch] {} was written by a newer plimsoll (format {}, this one knows {})", file, version, kVersion),
                "use that version, or give a new name", ExitCode::bad_input);
}

Bytes device_sum(const Sample& s) {
  Bytes sum;
  for (const DeviceSample& d : s.devices) sum += d.ours.value_or(Bytes{0});
  return sum;
}

std::string prediction_text(const Judge& judge) {
  const auto& p = judge.prediction();
  if (!p) return "";
  Json j{{"model", p->model}, {"source", p->source}};
  if (p->device) j["device"] = range_json(*p->device);
  if (p->host) j["host"] = range_json(*p->host);
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void read_session(const std::string& file, const std::function<void(const Sample&)>& take) {
  sqlite3* db = nullptr;
  const std::unique_ptr<sqlite3, int (*)(sqlite3*)> closer((sqlite3_open_v2(file.c_str(), &db, SQLITE_OPEN_READONLY, nullptr), db),
                                                           sqlite3_close);
  check(db, file);
  Statement rows(db, "SELECT document FROM look WHERE session = (SELECT max(id) FROM session) ORDER BY time");
  while (rows.step()) take(sample_of(nlohmann::json::parse(rows.text(0), nullptr, false)));
}

}  // namespace

History::History(const std::string& file, const std::string& target) : file_(file) {
  const int code = sqlite3_open_v2(file.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  try {
    if (code != SQLITE_OK)
      throw Error("[watch] cannot open " + file + ": " + sqlite3_errmsg(db_), "is the folder there, and writable?", ExitCode::bad_input);
    sqlite3_busy_timeout(db_, 1000);
    check(db_, file);
    if (pragma(db_, "user_version") == 0) {
      const bool made = run(kTables) && run(fmt::format("PRAGMA application_id = {}", kApplication).c_str()) &&
                        run(fmt::format("PRAGMA user_version = {}", kVersion).c_str());
      if (!made) throw Error("[watch] cannot write " + file + ": " + sqlite3_errmsg(db_), "is the disk full?", ExitCode::bad_input);
    }
    run("PRAGMA journal_mode = WAL");
    run("PRAGMA synchronous = NORMAL");
    Statement insert(db_, "INSERT INTO session (began, target) VALUES (strftime('%s', 'now'), ?)");
    if (!(insert << target).done())
      throw Error("[watch] cannot write " + file + ": " + sqlite3_errmsg(db_), "is it writable?", ExitCode::bad_input);
    session_ = sqlite3_last_insert_rowid(db_);
  } catch (...) {
    sqlite3_close(db_);
    throw;
  }
}

History::~History() {
  commit();
  sqlite3_close(db_);
}

bool History::run(const char* sql) { return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK; }

void History::commit() {
  if (pending_ > 0 && !run("COMMIT")) run("ROLLBACK");
  pending_ = 0;
}

std::string History::keep(const Judge& judge) {
  const Sample& s = judge.now();
  std::optional<Bytes> run_bytes;
  for (const ProcessSample& p : s.processes)
    if (const auto w = p.weight()) run_bytes = run_bytes.value_or(Bytes{0}) + *w;
  bool good = pending_ > 0 || run("BEGIN");
  if (good) {
    if (pending_ == 0 && judge.prediction())
      (Statement(db_, "UPDATE session SET prediction = ? WHERE id = ?") << prediction_text(judge) << session_).done();
    Statement look(db_, "INSERT INTO look VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
    good = (look << session_ << s.time << run_bytes << std::optional(device_sum(s)) << s.host.shm_used << s.host.left()
                 << (s.steps ? s.steps->step : int64_t{-1}) << (s.steps ? s.steps->rate : std::nullopt)
                 << sample_json(s).dump(-1, ' ', false, Json::error_handler_t::replace))
               .done();
    for (const AlertChange& c : judge.changes())
      (Statement(db_, "INSERT INTO alert VALUES (?, ?, ?, ?, ?, ?)")
       << session_ << s.time << c.alert.id << std::string(to_string(c.alert.level)) << int64_t{c.raised} << c.alert.text)
          .done();
    ++pending_;
  }
  bool written = false;
  if (good && pending_ >= kLooksInOneWrite) {
    good = written = run("COMMIT");
    if (good) pending_ = 0;
  }
  if (written && failed_) {
    failed_ = false;
    return "the history " + file_ + " is written again";
  }
  if (good) return "";
  const std::string why = sqlite3_errmsg(db_);
  run("ROLLBACK");
  pending_ = 0;
  if (failed_) return "";
  failed_ = true;
  return fmt::format("the history {} cannot be written: {}; watching goes on without it", file_, why);
}

Json look_json(const Judge& judge) {
  Json j = sample_json(judge.now());
  const auto alert = [](const Alert& a) {
    return Json{{"id", a.id}, {"level", to_string(a.level)}, {"since", a.since}, {"text", a.text}, {"advice", a.advice}};
  };
  j["alerts"] = Json::array();
  for (const Alert& a : judge.alerts()) j["alerts"].push_back(alert(a));
  j["changes"] = Json::array();
  for (const AlertChange& c : judge.changes()) j["changes"].push_back({{"raised", c.raised}, {"alert", alert(c.alert)}});
  if (const auto& p = judge.prediction()) {
    j["predicted"] = {{"model", p->model}, {"source", p->source}, {"corrected", p->corrected}};
    if (p->device) j["predicted"]["device"] = range_json(*p->device);
    if (p->host) j["predicted"]["host"] = range_json(*p->host);
    if (p->shm) j["predicted"]["shm"] = range_json(*p->shm);
  }
  j["peaks"] = {{"run_bytes", judge.peaks().tree ? Json(judge.peaks().tree->count) : Json()}, {"device_bytes", Json::object()}};
  for (const auto& [index, peak] : judge.peaks().devices) j["peaks"]["device_bytes"][std::to_string(index)] = peak.count;
  return j;
}

void read_samples(const std::string& file, const std::function<void(const Sample&)>& take) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error("[watch] cannot read " + file, "give what --history or --jsonl wrote", ExitCode::bad_input);
  char magic[16] = {};
  in.read(magic, 15);
  if (std::string(magic) == "SQLite format 3") return read_session(file, take);
  in.clear();
  in.seekg(0);
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const nlohmann::json j = nlohmann::json::parse(line, nullptr, false);
    if (j.is_discarded())
      throw Error(fmt::format("[watch] line {} of {} is no JSON: {}", number, file, printable(line, 60)),
                  "give what --history or --jsonl wrote", ExitCode::bad_input);
    take(sample_of(j));
  }
}

}  // namespace plimsoll
