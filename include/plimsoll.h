/* Plimsoll: how much memory a training run needs, what takes it, whether it fits, and what would help.
 *
 * A question is a JSON text, the answer is the JSON that the command of the same name prints with --json: docs/library.md. Every verb
 * returns a new answer, never NULL, that belongs to the caller and is given back with plimsoll_answer_free(). What goes wrong is in the
 * answer: its code, a message that names the value, and a hint that names a way out. Nothing is printed, no exception leaves, no signal
 * handler is set, and no state is shared: any thread may ask at any time. One answer may be read by many threads at once. */
#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PLIMSOLL_API __attribute__((visibility("default")))
#else
#define PLIMSOLL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What the command would exit with. PLIMSOLL_OK, PLIMSOLL_NO and PLIMSOLL_TIGHT are answers, the others errors. */
enum plimsoll_code {
  PLIMSOLL_OK = 0,          /* done; with a device: it fits one of them */
  PLIMSOLL_INTERNAL = 1,    /* a bug of Plimsoll, or no memory for the answer */
  PLIMSOLL_USAGE = 2,       /* the request is none: an unknown key, something missing, NULL */
  PLIMSOLL_NO = 3,          /* done; it fits none of them, or the replay ran out of memory */
  PLIMSOLL_TIGHT = 4,       /* done; the best estimate fits, its upper end does not */
  PLIMSOLL_BAD_INPUT = 5,   /* not understood: a wrong value, an unknown model, a malformed file or JSON text */
  PLIMSOLL_NO_HARDWARE = 6, /* "gpu": "this" on a machine without one */
  PLIMSOLL_CANCELLED = 7    /* the caller's own progress function ended the call */
};

typedef struct plimsoll_answer plimsoll_answer;

/* Verbs. `request` is UTF-8 JSON that ends with a NUL and is only read during the call. The answer belongs to the caller. */

/* {"run": "llama-3.1-8b", "settings": {"batch": 4, "precision": "bf16"}, "gpu": ["rtx-4090"], "what_if": true} */
PLIMSOLL_API plimsoll_answer* plimsoll_estimate(const char* request);
/* {"run": "llama-3.1-8b", "settings": {"batch": 16}, "gpu": "rtx-4090", "keep": ["precision"]} */
PLIMSOLL_API plimsoll_answer* plimsoll_plan(const char* request);
/* {"jobs": ["gpt2", "gpt2-medium"], "settings": {"seq": 512}, "vary": {"batch": [1, 2, 4]}, "gpu": "rtx-4090"} */
PLIMSOLL_API plimsoll_answer* plimsoll_compare(const char* request);
/* {"run": ["torchrun", "--nproc_per_node=4", "train.py", "--config", "x.yaml"]} */
PLIMSOLL_API plimsoll_answer* plimsoll_explain(const char* request);
/* {"file": "snapshot.pickle", "alloc_conf": "expandable_segments:True", "device_memory": "24GiB"} */
PLIMSOLL_API plimsoll_answer* plimsoll_replay(const char* request);
/* {"what": "gpus"}: models, presets, optimizers, optimizer-bytes, settings, gpus, overheads, ai-toolkit */
PLIMSOLL_API plimsoll_answer* plimsoll_list(const char* request);
/* Any verb by its name. plimsoll_ask("plan", request) is plimsoll_plan(request); ai-toolkit has no function of its own. */
PLIMSOLL_API plimsoll_answer* plimsoll_ask(const char* verb, const char* request);

/* A call that may take long: plans execute hundreds of runs. */
typedef struct plimsoll_callbacks {
  /* Called now and then from a thread that works on the answer, never from two at once: how much is done, of `total` (0: not known), and
   * of what ("candidates executed"). Returns 0 to go on; anything else ends the call with PLIMSOLL_CANCELLED. May be NULL. */
  int (*progress)(void* context, int64_t done, int64_t total, const char* text);
  void* context; /* is handed to `progress` */
} plimsoll_callbacks;
/* The same with progress. `callbacks` may be NULL and is only read during the call. */
PLIMSOLL_API plimsoll_answer* plimsoll_ask_with(const char* verb, const char* request, const plimsoll_callbacks* callbacks);
/* "0.1.0": of the library that is loaded. Lives as long as it; not to be freed. */
PLIMSOLL_API const char* plimsoll_version(void);

/* Answers. Texts belong to the answer and live as long as it. Of NULL the code is PLIMSOLL_USAGE and every text is "". */

PLIMSOLL_API enum plimsoll_code plimsoll_answer_code(const plimsoll_answer* answer);
/* The whole document; of an error {"schema": 1, "command": "error", "verb", "code", "message", "hint"}. "" only when there was no memory
 * for it. `size`, if not NULL, becomes its length without the NUL. */
PLIMSOLL_API const char* plimsoll_answer_json(const plimsoll_answer* answer, size_t* size);
/* What is wrong, and what to do about it; "" when nothing is. */
PLIMSOLL_API const char* plimsoll_answer_message(const plimsoll_answer* answer);
PLIMSOLL_API const char* plimsoll_answer_hint(const plimsoll_answer* answer);
/* Gives it back. NULL is fine. */
PLIMSOLL_API void plimsoll_answer_free(plimsoll_answer* answer);

/* One value of the document without a JSON parser, by its JSON pointer (RFC 6901): "/fits/0/verdict". */

/* 1 and the value in `out`; 0 and `out` as it was when there is no whole number, or none that fits. `out` may be NULL. */
PLIMSOLL_API int plimsoll_answer_integer(const plimsoll_answer* answer, const char* pointer, int64_t* out);
/* The same for any number. */
PLIMSOLL_API int plimsoll_answer_number(const plimsoll_answer* answer, const char* pointer, double* out);
/* A text, or NULL when there is none. Belongs to the answer. */
PLIMSOLL_API const char* plimsoll_answer_text(const plimsoll_answer* answer, const char* pointer);
/* The elements of the list or object there; 0 when it is neither. "" is the whole document. */
PLIMSOLL_API size_t plimsoll_answer_count(const plimsoll_answer* answer, const char* pointer);

/* The batch scaler: how large the micro-batches of a training step are, smaller after an out-of-memory and larger again when there is room,
 * while the batch of the step and its gradients stay the same: docs/scaling.md. A scaler is a training loop's own: one thread uses it. */

typedef struct plimsoll_scaler plimsoll_scaler;

enum plimsoll_action {
  PLIMSOLL_GO_ON = 0,  /* the next step, as the last one */
  PLIMSOLL_RESIZE = 1, /* the next step in other micro-batches */
  PLIMSOLL_REPLAY =
      2, /* the same samples again: free the cache, zero the gradients, restore the random state, take the new micro-batches */
  PLIMSOLL_GIVE_UP = 3 /* plimsoll_scaler_reason() says why */
};

/* Of a step; 0 is not known. Without peak and limit nothing grows. */
typedef struct plimsoll_measured {
  int64_t peak;    /* bytes that the process held at most */
  int64_t limit;   /* bytes that it could have held: free ones and its own */
  int64_t retries; /* of the allocator: it gave its cache back and asked again */
  double seconds;
} plimsoll_measured;

/* {"global_batch": 256, "batch": 16, "minimum": 1, "maximum": 32, "ranks": 1}: every key is optional. NULL when they are wrong;
 * `error`, if not NULL, then becomes an answer that says why, to be given back with plimsoll_answer_free(), and NULL otherwise. */
PLIMSOLL_API plimsoll_scaler* plimsoll_scaler_new(const char* settings, plimsoll_answer** error);
PLIMSOLL_API void plimsoll_scaler_free(plimsoll_scaler* scaler);

/* Who knows the largest micro-batch that fits: asked after an out-of-memory with what failed and the limit (0: not known); 0: not known. */
PLIMSOLL_API void plimsoll_scaler_predict_with(plimsoll_scaler* scaler, int64_t (*predict)(void* context, int64_t failed, int64_t limit),
                                               void* context);
/* With "ranks" above 1 all of them report every step and act alike: through files in a folder that all see and that belongs to this attempt
 * of this run (1, or 0 and `error`), or through an all-reduce of the run's own that leaves the least of each value over all ranks in
 * `values` and returns 1, or 0 when it failed. */
PLIMSOLL_API int plimsoll_scaler_agree_by_files(plimsoll_scaler* scaler, const char* folder, int rank, plimsoll_answer** error);
PLIMSOLL_API void plimsoll_scaler_agree_with(plimsoll_scaler* scaler, int (*least)(void* context, int64_t* values, size_t count),
                                             void* context);

/* The micro-batches of this rank's step: sizes sum to global_batch / ranks; a weight is that of a micro-batch's mean loss. */
PLIMSOLL_API size_t plimsoll_scaler_count(const plimsoll_scaler* scaler);
PLIMSOLL_API int64_t plimsoll_scaler_size(const plimsoll_scaler* scaler, size_t index);
PLIMSOLL_API double plimsoll_scaler_weight(const plimsoll_scaler* scaler, size_t index);
PLIMSOLL_API int64_t plimsoll_scaler_batch(const plimsoll_scaler* scaler); /* the largest of them */
PLIMSOLL_API int64_t plimsoll_scaler_evaluation_batch(const plimsoll_scaler* scaler);

/* One of the two after every step, before ranks exchange gradients. `measured` may be NULL. */
PLIMSOLL_API enum plimsoll_action plimsoll_scaler_step_done(plimsoll_scaler* scaler, const plimsoll_measured* measured);
PLIMSOLL_API enum plimsoll_action plimsoll_scaler_out_of_memory(plimsoll_scaler* scaler, const plimsoll_measured* measured);
/* An evaluation that ran out of memory changes the batch of evaluations alone, and is a rank's own affair. */
PLIMSOLL_API enum plimsoll_action plimsoll_scaler_evaluation_out_of_memory(plimsoll_scaler* scaler);
/* Something changed (another process ended): sizes that failed may be tried again. */
PLIMSOLL_API void plimsoll_scaler_more_memory(plimsoll_scaler* scaler);
/* Why the last answer was no PLIMSOLL_GO_ON; lives until the next report. */
PLIMSOLL_API const char* plimsoll_scaler_reason(const plimsoll_scaler* scaler);

/* For a checkpoint, as JSON that lives until the next call; and back: 1, or 0 and `error`. */
PLIMSOLL_API const char* plimsoll_scaler_state(plimsoll_scaler* scaler);
PLIMSOLL_API int plimsoll_scaler_restore(plimsoll_scaler* scaler, const char* state, plimsoll_answer** error);

#ifdef __cplusplus
}
#endif

#endif
