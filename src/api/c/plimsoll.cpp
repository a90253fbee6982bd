// The C interface: a thin shell around api/verbs.h through which nothing is thrown. It is compiled into the shared library alone.
#include "plimsoll.h"

#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>

#include "api/c/answer.h"
#include "api/schema.h"
#include "api/verbs.h"
#include "job/config.h"

struct plimsoll_answer {
  plimsoll_code code = PLIMSOLL_INTERNAL;
  nlohmann::ordered_json document;
  std::string json, message, hint;
};

namespace {

using namespace plimsoll;

// For when there is no memory for another one. Short enough to need none itself.
plimsoll_answer& out_of_memory() {
  static plimsoll_answer answer{PLIMSOLL_INTERNAL, nullptr, "", "out of memory", ""};
  return answer;
}

OnProgress progress_of(const plimsoll_callbacks* callbacks) {
  if (!callbacks || !callbacks->progress) return {};
  return [c = *callbacks, one_at_a_time = std::make_shared<std::mutex>()](size_t done, size_t total, const char* text) {
    const std::lock_guard lock(*one_at_a_time);
    return c.progress(c.context, static_cast<int64_t>(done), static_cast<int64_t>(total), text) == 0;
  };
}

// In the place of the document that was asked for (schemas/error.json).
void write_error(plimsoll_answer& out, const std::string& verb) {
  out.document = error_json(verb, out.code, out.message, out.hint);
  out.json = dump(out.document, 2);
}

void fill(plimsoll_answer& out, const char* verb, const char* request, const plimsoll_callbacks* callbacks) {
  try {
    if (!verb) throw Error("[ask] the verb is NULL", "e.g. \"estimate\"", ExitCode::usage);
    if (!request) throw Error("[request] is NULL", R"(a JSON text, e.g. {"run": "gpt2"})", ExitCode::usage);
    const ExitCode code = ask(verb, request, out.document, progress_of(callbacks));
    out.json = dump(out.document, 2);
    out.code = static_cast<plimsoll_code>(code);
  } catch (const Cancelled&) {
    out.code = static_cast<plimsoll_code>(Cancelled::kCode);
    out.message = "cancelled";
  } catch (const Error& e) {
    out.code = static_cast<plimsoll_code>(e.code());
    out.message = e.what();
    out.hint = e.hint();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    out.message = std::string("internal error: ") + e.what();
    out.hint = "please report this with the request";
  }
  if (out.json.empty()) write_error(out, verb ? verb : "");
}

plimsoll_answer* answer_of(const char* verb, const char* request, const plimsoll_callbacks* callbacks = nullptr) noexcept {
  plimsoll_answer* out = nullptr;
  try {
    out = new plimsoll_answer;
    fill(*out, verb, request, callbacks);
    return out;
  } catch (...) {  // there is no memory, not even for a message
    delete out;
    return &out_of_memory();
  }
}

// The value at `pointer`; null when there is none.
const nlohmann::ordered_json* find(const plimsoll_answer* answer, const char* pointer) noexcept {
  if (!answer || !pointer) return nullptr;
  try {
    return &answer->document.at(nlohmann::ordered_json::json_pointer(pointer));
  } catch (...) {  // no pointer, or to nothing
    return nullptr;
  }
}

}  // namespace

plimsoll_answer* plimsoll::error_answer(ExitCode code, const std::string& message, const std::string& hint) {
  auto out = std::make_unique<plimsoll_answer>(plimsoll_answer{static_cast<plimsoll_code>(code), nullptr, "", message, hint});
  write_error(*out, "scaler");
  return out.release();
}

plimsoll_answer* plimsoll_estimate(const char* request) { return answer_of("estimate", request); }
plimsoll_answer* plimsoll_plan(const char* request) { return answer_of("plan", request); }
plimsoll_answer* plimsoll_compare(const char* request) { return answer_of("compare", request); }
plimsoll_answer* plimsoll_explain(const char* request) { return answer_of("explain", request); }
plimsoll_answer* plimsoll_replay(const char* request) { return answer_of("replay", request); }
plimsoll_answer* plimsoll_list(const char* request) { return answer_of("list", request); }
plimsoll_answer* plimsoll_ask(const char* verb, const char* request) { return answer_of(verb, request); }
plimsoll_answer* plimsoll_ask_with(const char* verb, const char* request, const plimsoll_callbacks* callbacks) {
  return answer_of(verb, request, callbacks);
}
const char* plimsoll_version(void) { return version(); }

plimsoll_code plimsoll_answer_code(const plimsoll_answer* answer) { return answer ? answer->code : PLIMSOLL_USAGE; }

const char* plimsoll_answer_json(const plimsoll_answer* answer, size_t* size) {
  if (size) *size = answer ? answer->json.size() : 0;
  return answer ? answer->json.c_str() : "";
}

const char* plimsoll_answer_message(const plimsoll_answer* answer) { return answer ? answer->message.c_str() : ""; }
const char* plimsoll_answer_hint(const plimsoll_answer* answer) { return answer ? answer->hint.c_str() : ""; }

void plimsoll_answer_free(plimsoll_answer* answer) {
  if (answer != &out_of_memory()) delete answer;
}

int plimsoll_answer_integer(const plimsoll_answer* answer, const char* pointer, int64_t* out) {
  const nlohmann::ordered_json* value = find(answer, pointer);
  if (!value || !value->is_number_integer()) return 0;
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return 0;
  if (out) *out = value->get<int64_t>();
  return 1;
}

int plimsoll_answer_number(const plimsoll_answer* answer, const char* pointer, double* out) {
  const nlohmann::ordered_json* value = find(answer, pointer);
  if (!value || !value->is_number()) return 0;
  if (out) *out = value->get<double>();
  return 1;
}

const char* plimsoll_answer_text(const plimsoll_answer* answer, const char* pointer) {
  const nlohmann::ordered_json* value = find(answer, pointer);
  return value && value->is_string() ? value->get_ref<const std::string&>().c_str() : nullptr;
}

size_t plimsoll_answer_count(const plimsoll_answer* answer, const char* pointer) {
  const nlohmann::ordered_json* value = find(answer, pointer);
  return value && value->is_structured() ? value->size() : 0;
}
