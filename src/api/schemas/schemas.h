// What each verb answers, one function each; api/verbs.cpp has them in its rows.
#pragma once

#include "api/answer_schema.h"

namespace plimsoll {

Shape ai_toolkit_shape();
Shape compare_shape();
Shape doctor_shape();
Shape error_shape();  // in the place of any answer
Shape estimate_shape();
Shape explain_shape();
Shape fix_shape();
Shape list_shape();
Shape measure_shape();
Shape plan_shape();
Shape replay_shape();
Shape report_shape();
Shape run_events_shape();  // of each line that `run` writes to --events
Shape run_shape();         // of --dry-run --json
Shape schema_shape();
Shape score_shape();
Shape version_shape();
Shape watch_shape();  // of --json, and of each line of --jsonl

}  // namespace plimsoll
