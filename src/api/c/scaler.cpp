// The batch scaler of the C interface: a shell around scale/batch_scaler.h through which nothing is thrown.
#include "plimsoll.h"

#include <exception>
#include <memory>
#include <nlohmann/json.hpp>

#include "api/c/answer.h"
#include "job/config.h"
#include "supervise/batch_scaler.h"

struct plimsoll_scaler {
  explicit plimsoll_scaler(const plimsoll::ScalerSettings& settings) : scaler(settings), ranks(settings.ranks) {}
  plimsoll::BatchScaler scaler;
  int64_t ranks;
  std::string reason, state;
};

namespace {

using namespace plimsoll;

// Runs `work`; what it throws becomes an answer in `error`.
template <class Work>
bool attempt(plimsoll_answer** error, Work work) noexcept {
  if (error) *error = nullptr;
  ExitCode code = ExitCode::internal;
  std::string message, hint;
  try {
    try {
      work();
      return true;
    } catch (const Error& e) {
      code = e.code();
      message = e.what();
      hint = e.hint();
    } catch (const std::exception& e) {
      message = e.what();
    }
    if (error) *error = error_answer(code, message, hint);
  } catch (...) {  // there is no memory, not even for a message
  }
  return false;
}

nlohmann::json json_of(const char* text) {
  if (!text) throw Error("[scaler] the text is NULL", R"(a JSON text, e.g. {"global_batch": 256, "batch": 16})", ExitCode::usage);
  nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  if (value.is_discarded()) throw Error("[scaler] this is no JSON", R"(e.g. {"global_batch": 256, "batch": 16})");
  return value;
}

plimsoll_action report(plimsoll_scaler* s, ScalerPhase phase, bool out_of_memory, const plimsoll_measured* measured) noexcept {
  if (!s) return PLIMSOLL_GIVE_UP;
  try {
    StepReport r;
    r.phase = phase;
    r.out_of_memory = out_of_memory;
    if (measured) {
      if (measured->peak > 0) r.peak = measured->peak;
      if (measured->limit > 0) r.limit = measured->limit;
      if (measured->retries > 0) r.retries = measured->retries;
      if (measured->seconds > 0) r.seconds = measured->seconds;
    }
    const ScalerDecision decision = s->scaler.report(r);
    s->reason = decision.reason;
    return static_cast<plimsoll_action>(decision.action);
  } catch (const std::exception& e) {  // ranks that do not answer
    attempt(nullptr, [&] { s->reason = e.what(); });
  } catch (...) {  // of a callback, which must not throw
    attempt(nullptr, [&] { s->reason = "a callback has thrown"; });
  }
  return PLIMSOLL_GIVE_UP;
}

}  // namespace

plimsoll_scaler* plimsoll_scaler_new(const char* settings, plimsoll_answer** error) {
  plimsoll_scaler* out = nullptr;
  attempt(error, [&] { out = new plimsoll_scaler(scaler_settings(json_of(settings))); });
  return out;
}

void plimsoll_scaler_free(plimsoll_scaler* s) { delete s; }

void plimsoll_scaler_predict_with(plimsoll_scaler* s, int64_t (*predict)(void* context, int64_t failed, int64_t limit), void* context) {
  if (!s) return;
  attempt(nullptr, [&] {
    if (!predict) return s->scaler.predict_with(nullptr);
    s->scaler.predict_with([=](int64_t failed, std::optional<int64_t> limit) { return predict(context, failed, limit.value_or(0)); });
  });
}

int plimsoll_scaler_agree_by_files(plimsoll_scaler* s, const char* folder, int rank, plimsoll_answer** error) {
  return attempt(error, [&] {
    if (!s || !folder) throw Error("[scaler] NULL", "a scaler and a folder", ExitCode::usage);
    s->scaler.agree_with(agreement_by_files(folder, rank, static_cast<int>(s->ranks)));
  });
}

void plimsoll_scaler_agree_with(plimsoll_scaler* s, int (*least)(void* context, int64_t* values, size_t count), void* context) {
  if (!s || !least) return;
  attempt(nullptr, [&] {
    s->scaler.agree_with(
        agreement_by_call(static_cast<int>(s->ranks), [=](std::vector<int64_t>& v) { return least(context, v.data(), v.size()) != 0; }));
  });
}

size_t plimsoll_scaler_count(const plimsoll_scaler* s) { return s ? s->scaler.step().size() : 0; }
int64_t plimsoll_scaler_size(const plimsoll_scaler* s, size_t i) { return i < plimsoll_scaler_count(s) ? s->scaler.step()[i].size : 0; }
double plimsoll_scaler_weight(const plimsoll_scaler* s, size_t i) { return i < plimsoll_scaler_count(s) ? s->scaler.step()[i].weight : 0; }
int64_t plimsoll_scaler_batch(const plimsoll_scaler* s) { return s ? s->scaler.batch() : 0; }
int64_t plimsoll_scaler_evaluation_batch(const plimsoll_scaler* s) { return s ? s->scaler.evaluation_batch() : 0; }

plimsoll_action plimsoll_scaler_step_done(plimsoll_scaler* s, const plimsoll_measured* m) {
  return report(s, ScalerPhase::training, false, m);
}
plimsoll_action plimsoll_scaler_out_of_memory(plimsoll_scaler* s, const plimsoll_measured* m) {
  return report(s, ScalerPhase::training, true, m);
}
plimsoll_action plimsoll_scaler_evaluation_out_of_memory(plimsoll_scaler* s) { return report(s, ScalerPhase::evaluation, true, nullptr); }

void plimsoll_scaler_more_memory(plimsoll_scaler* s) {
  if (s) s->scaler.more_memory();
}

const char* plimsoll_scaler_reason(const plimsoll_scaler* s) { return s ? s->reason.c_str() : "there is no scaler"; }

const char* plimsoll_scaler_state(plimsoll_scaler* s) {
  if (!s) return "";
  return attempt(nullptr, [&] { s->state = dump(s->scaler.saved()); }) ? s->state.c_str() : "";
}

int plimsoll_scaler_restore(plimsoll_scaler* s, const char* state, plimsoll_answer** error) {
  return attempt(error, [&] {
    if (!s) throw Error("[scaler] NULL", "a scaler", ExitCode::usage);
    s->scaler.restore(json_of(state));
  });
}
