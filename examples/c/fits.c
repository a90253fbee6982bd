/* Will this run fit on each of my GPUs?
 *
 *   fits RUN BATCH GPU...        e.g. fits gpt2-xl 4 rtx-4090 rtx-3060-12gb 16GiB
 *
 * RUN is a model, a configuration file, or a training command in quotes. Exits like the command: 0 when it fits one of them. */
#include <plimsoll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends `text` as a JSON string; 0 when there is no room. */
static int append_quoted(char* out, size_t room, const char* text) {
  size_t n = strlen(out);
  if (n + 2 * strlen(text) + 3 > room) return 0;
  out[n++] = '"';
  for (; *text; ++text) {
    if (*text == '"' || *text == '\\') out[n++] = '\\';
    out[n++] = *text;
  }
  out[n++] = '"';
  out[n] = '\0';
  return 1;
}

static int write_request(char* out, size_t room, char** words, int count) {
  char batch[64];
  int i;
  strcpy(out, "{\"run\": ");
  if (!append_quoted(out, room - 64, words[0])) return 0;
  snprintf(batch, sizeof batch, ", \"settings\": {\"batch\": %ld}, \"gpu\": [", strtol(words[1], NULL, 10));
  strcat(out, batch);
  for (i = 2; i < count; ++i) {
    if (i > 2) strcat(out, ", ");
    if (!append_quoted(out, room - 64, words[i])) return 0;
  }
  strcat(out, "]}");
  return 1;
}

static double gib(const plimsoll_answer* answer, int device, const char* what) {
  char pointer[64];
  double bytes = 0;
  snprintf(pointer, sizeof pointer, "/fits/%d/%s/bytes", device, what);
  plimsoll_answer_number(answer, pointer, &bytes);
  return bytes / (1 << 30);
}

static const char* text(const plimsoll_answer* answer, int device, const char* what) {
  char pointer[64];
  const char* found;
  snprintf(pointer, sizeof pointer, "/fits/%d/%s", device, what);
  found = plimsoll_answer_text(answer, pointer);
  return found ? found : "";
}

int main(int argc, char** argv) {
  char request[4096];
  plimsoll_answer* answer;
  int i, code;
  if (argc < 4 || !write_request(request, sizeof request, argv + 1, argc - 1)) {
    fprintf(stderr, "usage: fits RUN BATCH GPU...\n");
    return PLIMSOLL_USAGE;
  }
  answer = plimsoll_estimate(request);
  code = plimsoll_answer_code(answer);
  if (*plimsoll_answer_message(answer))
    fprintf(stderr, "fits: %s\n  hint: %s\n", plimsoll_answer_message(answer), plimsoll_answer_hint(answer));
  for (i = 0; i < (int)plimsoll_answer_count(answer, "/fits"); ++i)
    printf("%-24s %-12s needs %6.2f GiB of %6.2f GiB: %s\n", text(answer, i, "device"), text(answer, i, "verdict"),
           gib(answer, i, "device_peak"), gib(answer, i, "capacity"), text(answer, i, "reason"));
  plimsoll_answer_free(answer);
  return code;
}
