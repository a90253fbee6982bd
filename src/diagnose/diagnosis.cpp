#include "diagnose/diagnosis.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "diagnose/log_stream.h"
#include "diagnose/needles.h"
#include "diagnose/other_forms.h"
#include "diagnose/printed_size.h"
#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kMessage = 16 << 10, kRepetition = 2 << 10;  // what readers see of the first message and of those after it
constexpr size_t kCandidates = 50000;                         // places looked at closely; a log that has more repeats itself
constexpr size_t kShort = 1 << 20;                            // a text that may be something pasted, in another form
constexpr int64_t kLinesThatTell = 2000;                      // of which one may show that it is a log
constexpr double kFragmentedShare = 0.1;                      // of what is reserved; insights.cpp has the same

struct Wordings {
  Needles needles;
  size_t progress;  // indices from here on are words of progress lines
  size_t settings;  // and from here on of settings

  Wordings() : needles(words()), progress(symptom_readers().size()), settings(progress + progress_words().size()) {}

  static std::vector<std::string_view> words() {
    std::vector<std::string_view> all;
    for (const SymptomReader& r : symptom_readers()) all.emplace_back(r.needle);
    for (const std::string_view w : progress_words()) all.push_back(w);
    for (const std::string_view w : setting_words()) all.push_back(w);
    return all;
  }
};

const Wordings& wordings() {
  static const Wordings kWordings;
  return kWordings;
}

// A line and those that follow of the same rank, without prefixes.
std::string message_text(const CleanLine& first, std::string_view after, size_t most) {
  std::string text = first.text;
  while (!after.empty() && text.size() < most) {
    after.remove_prefix(1);
    const size_t end = std::min(after.size(), after.find('\n'));
    std::string_view raw = after.substr(0, std::min(end, most));
    if (raw.ends_with('\r')) raw.remove_suffix(1);
    if (const size_t drawn = raw.rfind('\r'); drawn != std::string_view::npos) raw.remove_prefix(drawn + 1);
    const CleanLine line = clean_line(raw);
    after = after.substr(end);
    if (first.rank && line.rank && line.rank != first.rank) continue;
    text += '\n';
    text += line.text;
  }
  return text;
}

std::string single_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\t' || c == '\n';
    if (!(space && (out.empty() || out.back() == ' '))) out += space ? ' ' : c;
  }
  return out;
}

// The message: its line, and those below that belong to it by their words, as terminals and XLA break it.
std::string message_of(std::string_view text) {
  constexpr std::array<std::string_view, 8> kMore{"Tried to allocate", " is free",        "Currently allocated", "Requested ",
                                                  "Device limit",      "Free (according", "Exceeded hbm",        "Cannot allocate "};
  std::string out;
  for (int i = 0; i < 10 && !text.empty(); ++i) {
    const size_t end = std::min(text.size(), text.find('\n'));
    const std::string_view line = text.substr(0, end);
    const bool belongs =
        i == 0 || line.empty() || std::any_of(kMore.begin(), kMore.end(), [&](std::string_view w) { return has(line, w); });
    if (!belongs) break;
    out += line;
    out += '\n';
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  out = single_line(out).substr(0, 1500);
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

// The traceback, or some lines of the log, and the message.
std::string excerpt_of(std::string_view before, std::string_view line, std::string_view after) {
  before = before.substr(before.size() > 32000 ? before.size() - 32000 : 0);
  size_t begin = before.rfind("Traceback (most recent call last)");
  if (begin == std::string_view::npos) begin = before.size() > 1500 ? before.size() - 1500 : 0;
  begin = begin == 0 ? 0 : before.rfind('\n', begin - 1) + 1;  // npos + 1 is the beginning
  size_t end = 0;
  for (int i = 0; i < 30 && end < std::min<size_t>(after.size(), 16000); ++i) end = std::min(after.size(), after.find('\n', end + 1));
  std::string out(before.substr(begin));
  out += line.substr(0, 4000);
  out += after.substr(0, end);
  std::replace(out.begin(), out.end(), '\r', '\n');
  return out;
}

// Who else is on the card: what is in use less what this process has.
std::optional<Bytes> others_of(const Symptom& s) {
  if (s.memory == Memory::mps && !s.processes.empty()) return Bytes{s.processes[0].bytes};
  if (s.memory != Memory::gpu) return {};
  int64_t listed = 0;
  for (const ProcessOnDevice& p : s.processes) listed += p.bytes;
  if (s.process && !s.processes.empty()) return Bytes{listed};
  if (!s.total || !s.free) return {};
  const auto own = s.process ? s.process : s.reserved ? s.reserved : s.allocated;
  return own ? std::optional(Bytes{std::max<int64_t>(0, *s.total - *s.free - *own)}) : std::nullopt;
}

Fragmentation fragmentation_of(const Symptom& s) {
  if (!s.tried || !s.reserved || !s.allocated) return Fragmentation::unknown;
  return *s.reserved - *s.allocated >= *s.tried && *s.tried > 0 ? Fragmentation::yes : Fragmentation::no;
}

// How much a symptom says: an error that says it, a program that went on, a signal, a status with other reasons.
int weight(const Symptom& s) {
  if (s.certainty == Certainty::possible) return 0;
  if (s.harmless_alone) return 1;
  return s.certainty == Certainty::likely ? 2 : 3;
}

int numbers_of(const Symptom& s) {
  return (s.tried ? 2 : 0) + s.total.has_value() + s.free.has_value() + s.allocated.has_value() + s.reserved.has_value() +
         (s.shape.empty() ? 0 : 1);
}

// A rank inside a line: "[TRT-LLM] [RANK 2] [E] ...".
std::optional<int> rank_in(std::string_view line) {
  for (const std::string_view marker : {"[RANK ", "[Rank ", "[rank ", "[Rank:", "[rank:"})
    if (const auto n = number_after(line, marker); n && *n < 100000) return static_cast<int>(*n);
  return {};
}

// What tells one message from another: what it is about and its numbers.
using SameMessage = std::tuple<std::string, std::optional<int64_t>, std::optional<int64_t>, std::optional<int64_t>, std::optional<int64_t>,
                               std::optional<int64_t>>;
SameMessage same_message(const Symptom& s) { return {s.kind, s.tried, s.total, s.free, s.allocated, s.reserved}; }

// What programs print before or in the lines of a log.
bool is_log_line(std::string_view raw) {
  for (const std::string_view word : {"Traceback (most recent call last)", "ERROR", "WARNING", "INFO", "DEBUG",
                                      "Error: ", "error: ", "Exception: ", "[rank", "Killed", "exit code", "exited with"})
    if (has(raw, word)) return true;
  return clean_line(raw.substr(0, 400)).text.size() < std::min<size_t>(raw.size(), 400);
}

// The last lines that may tell how far the run is; which of them do is found out when it is asked.
class LastProgress {
 public:
  void add(std::string_view line, int64_t number) {
    if (line.find("File \"") != std::string_view::npos) return;  // "training_step" in a traceback
    const std::string_view text = trimmed(line);
    if (text.starts_with('#') || text.starts_with("**")) return;  // a heading: "## Step 10: ..."
    Line& slot = lines_[next_++ % lines_.size()];
    slot.text.assign(line.substr(line.size() > 400 ? line.size() - 400 : 0));
    slot.number = number;
  }

  // The last that tells, of those below line `after`.
  std::optional<Progress> last(int64_t after = -1) const {
    for (size_t i = 0; i < std::min(next_, lines_.size()); ++i) {
      const Line& line = lines_[(next_ - 1 - i) % lines_.size()];
      if (line.number <= after) return {};
      if (auto p = read_progress(line.text)) return p;
    }
    return {};
  }

 private:
  struct Line {
    std::string text;
    int64_t number = 0;
  };
  std::array<Line, 64> lines_;
  size_t next_ = 0;
};

class Reading {
 public:
  explicit Reading(std::istream& in) : log_(in) {}

  Diagnosis run() {
    while (log_.next()) read_line();
    finish();
    return std::move(d_);
  }
  // For those who know it in another form; empty: it is too long for that.
  std::string_view whole() const { return log_.whole(kShort); }

 private:
  void read_line() {
    const std::string_view raw = log_.line();
    const Wordings& w = wordings();
    bool progressed = false, sets = false;
    hits_.clear();
    const auto found = [&](size_t word, size_t end) {
      if (word >= w.settings) {
        sets = true;
      } else if (word >= w.progress) {
        progressed = true;
      } else if (hits_.size() < 16) {
        hits_.push_back(word);
      }
    };
    if (raw.find('\x1b') == std::string_view::npos && !raw.starts_with('{')) {
      w.needles.search(raw, found);
    } else {
      w.needles.search(clean_line(raw).text, found);
    }
    if (!hits_.empty() && candidates_ < kCandidates) read_hits(raw);
    if (progressed) progress_.add(raw, log_.number());
    if (sets) d_.set.read(raw);
    if (!d_.is_log && log_.number() <= kLinesThatTell) d_.is_log = is_log_line(raw);
  }

  void read_hits(std::string_view raw) {
    ++candidates_;
    const CleanLine line = clean_line(raw);
    const std::string text = message_text(line, log_.after(), d_.symptom ? kRepetition : kMessage);
    std::optional<Symptom> best;  // one line, one symptom: the one that says most
    size_t begin = 0;             // of its line in the text: a record has several
    for (const size_t hit : hits_) {
      const SymptomReader& reader = symptom_readers()[hit];
      const size_t at = text.find(reader.needle);
      if (at == std::string::npos || at > line.text.size()) continue;
      const size_t start = text.rfind('\n', at) + 1;  // npos + 1 is the beginning
      const auto symptom = reader.read({std::string_view(text).substr(start), at - start, std::string_view(reader.needle).size()});
      if (symptom &&
          (!best || weight(*symptom) > weight(*best) || (weight(*symptom) == weight(*best) && numbers_of(*symptom) > numbers_of(*best))))
        best = symptom, begin = start;
    }
    if (best) take(*best, line, text, begin, raw);
  }

  void take(const Symptom& symptom, const CleanLine& line, const std::string& text, size_t begin, std::string_view raw) {
    const std::string_view message = std::string_view(text).substr(begin);
    const auto rank = line.rank ? line.rank : symptom.rank ? symptom.rank : rank_in(message.substr(0, message.find('\n')));
    if (rank) ranks_.insert(*rank);
    if (is_new(symptom, rank)) ++d_.occurrences;
    const auto same_line = has(raw, "it]") || has(raw, "it/s") ? read_progress(raw) : std::nullopt;  // a bar and the error on one line
    last_line_ = log_.number();
    last_progress_ = same_line ? same_line : progress_.last();
    // What is not certain gives way to what is; else the first counts.
    const bool better = !d_.symptom || weight(symptom) > weight(*d_.symptom);
    // The same failure, told again with numbers: NCCL's size after its error, the kernel's summary.
    const bool completes = d_.symptom && symptom.kind == d_.symptom->kind && !d_.symptom->tried && !d_.symptom->allocated &&
                           (symptom.tried || symptom.allocated) && log_.number() <= d_.line + 60;
    if (!better && !completes) return;
    if (completes && !better) {
      d_.occurrences = std::max<int64_t>(1, d_.occurrences - 1);
      Symptom both = symptom;
      if (both.note.empty()) both.note = d_.symptom->note;
      d_.symptom = both;
      return;
    }
    d_.symptom = symptom;
    d_.rank = rank;
    d_.line = log_.number();
    d_.text = message_of(message);
    d_.excerpt = begin > 0 ? line.text.substr(0, 16000) : excerpt_of(log_.before(), raw, log_.after());
    d_.traceback = read_traceback(begin > 0 ? std::string_view(line.text).substr(0, begin) : log_.before(), line.rank);
    // cudaHostAlloc fails with the words of cudaMalloc.
    if (symptom.kind == "cuda_error" && (d_.traceback.pins() || has(log_.after().substr(0, 4000), "CachingHostAllocator"))) {
      d_.symptom->kind = "cuda_pinned";
      d_.symptom->memory = Memory::host;
    }
    d_.progress = last_progress_;
  }

  // One message may be printed twice, broken into lines, or printed by every rank; after a step it is another one.
  bool is_new(const Symptom& symptom, std::optional<int> rank) {
    const SameMessage message = same_message(symptom);
    const bool first = seen_.insert(message).second;
    const bool other_rank = rank && told_by_.insert({*rank, message}).second;
    if (first || other_rank) return first;
    const auto since = progress_.last(last_line_);
    return since && since->training && since->done;
  }

  void finish() {
    d_.lines = log_.number();
    d_.is_log |= d_.symptom || progress_.last();
    d_.binary = log_.binary();
    d_.ranks.assign(ranks_.begin(), ranks_.end());
    if (!d_.symptom) {
      d_.progress = progress_.last();  // how far it came
      return;
    }
    d_.recovered = went_on_after_last();
    if (d_.symptom->harmless_alone && d_.recovered) {
      const int64_t lines = d_.lines;
      d_ = {};
      d_.lines = lines;
      d_.is_log = true;
      return;
    }
    d_.phase = d_.traceback.phase();
    if (d_.phase.empty() && d_.progress && !d_.progress->training && lower(d_.progress->text).find("load") != std::string::npos)
      d_.phase = "loading";
    if (d_.progress && d_.progress->training)
      d_.first_step = d_.progress->done ? std::optional(*d_.progress->done == 0) : std::optional(false);
    d_.others = others_of(*d_.symptom);
    d_.fragmentation = fragmentation_of(*d_.symptom);
    find_causes(d_);
    find_fixes(d_);
  }

  // One that was survived says nothing about the one that ended the run.
  bool went_on_after_last() const {
    const auto later = progress_.last(last_line_);
    return later && later->training && later->done && (!last_progress_ || !last_progress_->done || *later->done > *last_progress_->done);
  }

  LogStream log_;
  Diagnosis d_;
  std::vector<size_t> hits_;
  std::set<int> ranks_;
  std::set<SameMessage> seen_;
  std::set<std::pair<int, SameMessage>> told_by_;
  LastProgress progress_;
  int64_t last_line_ = 0;  // of the last symptom, and how far training was
  std::optional<Progress> last_progress_;
  size_t candidates_ = 0;
};

}  // namespace

const char* to_string(Fragmentation f) {
  switch (f) {
    case Fragmentation::no: return "no";
    case Fragmentation::yes: return "yes";
    case Fragmentation::unknown: return "unknown";
  }
  return "";
}

bool Diagnosis::fragmented() const {
  if (fragmentation != Fragmentation::yes || !symptom) return false;
  const int64_t idle = *symptom->reserved - *symptom->allocated;
  return static_cast<double>(idle) >= kFragmentedShare * static_cast<double>(*symptom->reserved);
}

Diagnosis diagnose(std::istream& log) {
  Reading reading(log);
  Diagnosis best = reading.run();
  const auto knows = [](const Diagnosis& d) { return d.symptom ? 10 * weight(*d.symptom) + numbers_of(*d.symptom) : 0; };
  for (const OtherForm& form : best.binary ? std::vector<OtherForm>() : other_forms(reading.whole())) {
    std::istringstream in(form.text);
    Diagnosis other = Reading(in).run();
    // A comment that mentions an error is none; one with its numbers or its traceback is a log that somebody kept.
    const bool whole = other.symptom && (other.symptom->total || other.symptom->allocated || !other.traceback.frames.empty());
    const bool mended = form.mends && knows(other) == knows(best) && whole && same_message(*other.symptom) != same_message(*best.symptom);
    if (whole && (knows(other) > knows(best) || mended)) best = std::move(other);
  }
  return best;
}

}  // namespace plimsoll
