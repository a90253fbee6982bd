// Plimsoll for C++17: the verbs of plimsoll.h with exceptions and owned answers. All of it is inline over the C interface, so that no C++
// type crosses the library's border and any compiler and standard library will do.
#pragma once

#include <plimsoll.h>

#include <cstdio>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace plimsoll {
inline namespace abi0 {

// Thrown by every verb for what is no answer: what() names the value, hint() a way out.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, std::string hint, plimsoll_code code)
      : std::runtime_error(message), hint_(std::move(hint)), code_(code) {}
  const std::string& hint() const noexcept { return hint_; }
  plimsoll_code code() const noexcept { return code_; }

 private:
  std::string hint_;
  plimsoll_code code_;
};

// The text of a JSON value.
class Value {
 public:
  Value(bool v) : text_(v ? "true" : "false") {}
  template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  Value(T v) : text_(std::to_string(v)) {}
  Value(double v) : text_(number(v)) {}
  Value(const char* v) : text_(v ? quoted(v) : "null") {}
  Value(std::string_view v) : text_(quoted(v)) {}
  Value(const std::string& v) : text_(quoted(v)) {}
  Value(const std::vector<Value>& list) : text_("[") {
    for (const Value& v : list) text_ += (text_.size() > 1 ? "," : "") + v.text_;
    text_ += "]";
  }
  Value(const std::map<std::string, Value>& object) : text_("{") {
    for (const auto& [key, v] : object) text_ += (text_.size() > 1 ? "," : "") + quoted(key) + ":" + v.text_;
    text_ += "}";
  }
  const std::string& text() const noexcept { return text_; }

 private:
  static std::string number(double v) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.17g", v);
    for (char* c = buffer; *c; ++c)
      if (*c == ',') *c = '.';  // of the locale
    return buffer;
  }
  static std::string quoted(std::string_view v) {
    std::string out = "\"";
    for (const char c : v) {
      if (static_cast<unsigned char>(c) < 0x20) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
        out += escape;
      } else {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
      }
    }
    return out + "\"";
  }
  std::string text_;
};

// A request as it is written down: Request("gpt2").set("batch", 8).with("gpu", "rtx-4090").
class Request {
 public:
  Request() = default;
  Request(const char* run) { with("run", run); }
  Request(const std::string& run) { with("run", run); }
  explicit Request(const std::vector<Value>& command) { with("run", command); }

  Request& with(const std::string& key, Value value) {  // a key of the request itself
    fields_.insert_or_assign(key, std::move(value));
    return *this;
  }
  Request& set(const std::string& key, Value value) {  // a setting of the run
    settings_.insert_or_assign(key, std::move(value));
    return *this;
  }
  std::string json() const {
    std::map<std::string, Value> all = fields_;
    if (!settings_.empty()) all.insert_or_assign("settings", Value(settings_));
    return Value(all).text();
  }

 private:
  std::map<std::string, Value> fields_, settings_;
};

// What a verb answered. Values are found by JSON pointers: integer("/fits/0/margin_bytes").
class Answer {
 public:
  // Takes it over. Throws an Error when it is one.
  explicit Answer(plimsoll_answer* answer) : answer_(answer, plimsoll_answer_free) {
    if (code() != PLIMSOLL_OK && !tight() && code() != PLIMSOLL_NO)
      throw Error(plimsoll_answer_message(answer), plimsoll_answer_hint(answer), code());
  }
  plimsoll_code code() const noexcept { return plimsoll_answer_code(answer_.get()); }
  // Something was asked to fit and does: a device, a machine, a plan. Never when nothing was asked.
  bool fits() const noexcept {
    if (code() != PLIMSOLL_OK) return false;
    for (size_t i = 0; i < plimsoll_answer_count(answer_.get(), "/fits"); ++i)
      if (says_fits("/fits/%zu/verdict", i)) return true;
    for (size_t i = 0; i < plimsoll_answer_count(answer_.get(), "/plans"); ++i)
      if (says_fits("/plans/%zu/plan/verdict", i)) return true;
    return says_fits("/plan/verdict") || says_fits("/layouts/0/verdict") || says_fits("/host/verdict") || says_fits("/unified/verdict");
  }
  bool tight() const noexcept { return code() == PLIMSOLL_TIGHT; }
  std::string_view json() const noexcept {
    size_t size = 0;
    const char* text = plimsoll_answer_json(answer_.get(), &size);
    return {text, size};
  }
  std::optional<int64_t> integer(const std::string& pointer) const noexcept {
    int64_t value = 0;
    return plimsoll_answer_integer(answer_.get(), pointer.c_str(), &value) ? std::optional(value) : std::nullopt;
  }
  std::optional<double> number(const std::string& pointer) const noexcept {
    double value = 0;
    return plimsoll_answer_number(answer_.get(), pointer.c_str(), &value) ? std::optional(value) : std::nullopt;
  }
  std::optional<std::string> text(const std::string& pointer) const {
    const char* value = plimsoll_answer_text(answer_.get(), pointer.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  }
  size_t count(const std::string& pointer) const noexcept { return plimsoll_answer_count(answer_.get(), pointer.c_str()); }

 private:
  bool says_fits(const char* pattern, size_t index = 0) const noexcept {
    char pointer[64];
    std::snprintf(pointer, sizeof pointer, pattern, index);
    const char* verdict = plimsoll_answer_text(answer_.get(), pointer);
    return verdict && std::string_view(verdict) == "fits";
  }
  std::shared_ptr<plimsoll_answer> answer_;  // never written to, so copies may share it
};

// The micro-batches of a training step: docs/scaling.md. Not to be copied; one training loop's own.
class BatchScaler {
 public:
  using Measured = plimsoll_measured;
  struct MicroBatch {
    int64_t size;
    double weight;  // of its mean loss
  };

  // BatchScaler({{"global_batch", 256}, {"batch", 16}}). Throws an Error for a setting that is wrong.
  explicit BatchScaler(const std::map<std::string, Value>& settings) {
    plimsoll_answer* error = nullptr;
    scaler_.reset(plimsoll_scaler_new(Value(settings).text().c_str(), &error));
    if (!scaler_) fail(error);
  }
  // The largest micro-batch that fits `limit` bytes (0: not known), asked after an out-of-memory; 0: not known. Must not throw.
  void predict_with(std::function<int64_t(int64_t failed, int64_t limit)> predict) {
    predict_ = std::make_unique<Predict>(std::move(predict));
    plimsoll_scaler_predict_with(
        scaler_.get(), [](void* f, int64_t failed, int64_t limit) { return (*static_cast<Predict*>(f))(failed, limit); }, predict_.get());
  }
  void agree_by_files(const std::string& folder, int rank) {
    plimsoll_answer* error = nullptr;
    if (!plimsoll_scaler_agree_by_files(scaler_.get(), folder.c_str(), rank, &error)) fail(error);
  }
  // Leaves the least of each value over all ranks there; false when that failed. Must not throw.
  void agree_with(std::function<bool(int64_t* values, size_t count)> least) {
    least_ = std::make_unique<Least>(std::move(least));
    plimsoll_scaler_agree_with(
        scaler_.get(), [](void* f, int64_t* values, size_t count) { return (*static_cast<Least*>(f))(values, count) ? 1 : 0; },
        least_.get());
  }

  std::vector<MicroBatch> step() const {
    std::vector<MicroBatch> out;
    for (size_t i = 0; i < plimsoll_scaler_count(scaler_.get()); ++i)
      out.push_back({plimsoll_scaler_size(scaler_.get(), i), plimsoll_scaler_weight(scaler_.get(), i)});
    return out;
  }
  int64_t batch() const noexcept { return plimsoll_scaler_batch(scaler_.get()); }
  int64_t evaluation_batch() const noexcept { return plimsoll_scaler_evaluation_batch(scaler_.get()); }

  plimsoll_action step_done(const Measured& measured = {}) { return plimsoll_scaler_step_done(scaler_.get(), &measured); }
  plimsoll_action out_of_memory(const Measured& measured = {}) { return plimsoll_scaler_out_of_memory(scaler_.get(), &measured); }
  plimsoll_action evaluation_out_of_memory() { return plimsoll_scaler_evaluation_out_of_memory(scaler_.get()); }
  void more_memory() { plimsoll_scaler_more_memory(scaler_.get()); }
  std::string reason() const { return plimsoll_scaler_reason(scaler_.get()); }

  std::string state() const { return plimsoll_scaler_state(scaler_.get()); }
  void restore(const std::string& state) {
    plimsoll_answer* error = nullptr;
    if (!plimsoll_scaler_restore(scaler_.get(), state.c_str(), &error)) fail(error);
  }

 private:
  using Predict = std::function<int64_t(int64_t, int64_t)>;
  using Least = std::function<bool(int64_t*, size_t)>;
  struct Free {
    void operator()(plimsoll_scaler* scaler) const noexcept { plimsoll_scaler_free(scaler); }
  };
  [[noreturn]] static void fail(plimsoll_answer* error) {
    const std::unique_ptr<plimsoll_answer, decltype(&plimsoll_answer_free)> owned(error, plimsoll_answer_free);
    throw Error(plimsoll_answer_message(error), plimsoll_answer_hint(error), plimsoll_answer_code(error));
  }
  std::unique_ptr<plimsoll_scaler, Free> scaler_;
  std::unique_ptr<Predict> predict_;
  std::unique_ptr<Least> least_;
};

inline Answer estimate(const Request& request) { return Answer(plimsoll_estimate(request.json().c_str())); }
inline Answer plan(const Request& request) { return Answer(plimsoll_plan(request.json().c_str())); }
inline Answer compare(const Request& request) { return Answer(plimsoll_compare(request.json().c_str())); }
inline Answer explain(const Request& request) { return Answer(plimsoll_explain(request.json().c_str())); }
inline Answer replay(const Request& request) { return Answer(plimsoll_replay(request.json().c_str())); }
// Any verb by its name.
inline Answer ask(const std::string& verb, const Request& request) { return Answer(plimsoll_ask(verb.c_str(), request.json().c_str())); }
// The same with progress: how much is done, of `total` (0: not known), and of what. Returns false to end the call with an Error whose code
// is PLIMSOLL_CANCELLED. Called from another thread, never from two at once; must not throw.
using Progress = std::function<bool(int64_t done, int64_t total, std::string_view text)>;
inline Answer ask(const std::string& verb, const Request& request, const Progress& progress) {
  const plimsoll_callbacks callbacks{
      [](void* f, int64_t done, int64_t total, const char* text) { return (*static_cast<const Progress*>(f))(done, total, text) ? 0 : 1; },
      const_cast<Progress*>(&progress)};
  return Answer(plimsoll_ask_with(verb.c_str(), request.json().c_str(), progress ? &callbacks : nullptr));
}
inline Answer list(const std::string& what) { return Answer(plimsoll_list(Request().with("what", what).json().c_str())); }
inline std::string version() { return plimsoll_version(); }

}  // namespace abi0
}  // namespace plimsoll
