// What verbs about this machine and about Plimsoll itself answer.
#include "hardware/machine.h"
#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "hardware/catalogue.h"

namespace plimsoll {

namespace {

using namespace shape;

Shape size_or_null(const char* meaning) { return null_or(bytes(std::string(meaning) + "; null: not known")); }
Shape text_or_null(const char* meaning) { return null_or(text(std::string(meaning) + "; null: not known")); }

Shape detected_device() {
  return object(
      {{"vendor", text("who makes it")},
       {"name", text_or_null("what the driver calls it")},
       {"index", null_or(integer("its number; null: it has none"))},
       {"uuid", text_or_null("its UUID")},
       {"parent_uuid", null_or(text("of a slice: the whole device's UUID; null: it is no slice"))},
       {"pci", text_or_null("its address on the bus")},
       {"target", text_or_null("the compiler's name for it")},
       {"source", text("who told about it")},
       {"visible", word(names_up_to(Visible::unknown), "whether a program started here would see it")},
       {"split", flag("whether it is cut into slices")},
       {"memory", word(names_up_to(MemoryKind::unified), "whether it has memory of its own")},
       {"total_bytes", size_or_null("memory as the driver reports it")},
       {"reserved_bytes", size_or_null("of it, what the driver keeps")},
       {"used_bytes", size_or_null("of it, what is in use")},
       {"gtt_bytes", size_or_null("memory of the host that it can use")},
       {"usable_bytes", size_or_null("what a process can have")},
       {"usable_basis", text_or_null("how that is known")},
       {"catalogue_id", null_or(text("its id in the catalogue; null: it is not there"))},
       {"processes", list(object({{"pid", integer("a process")}, {"used_bytes", size_or_null("what it has there")}}), "who uses it")}});
}

}  // namespace

Shape doctor_shape() {
  return answer_shape(
      "doctor", 1,
      {{"system", text_or_null("the operating system")},
       {"wsl", flag("whether it runs inside of Windows")},
       {"container", flag("whether it runs in a container")},
       {"nvidia_driver", null_or(text("the version of the driver; null without one"))},
       {"host", object({{"total_bytes", size_or_null("RAM")},
                        {"available_bytes", size_or_null("RAM that is available now")},
                        {"swap_bytes", size_or_null("swap")},
                        {"limit_bytes", null_or(bytes("the control group's limit; null: none"))},
                        {"limit_used_bytes", null_or(bytes("what is used of it; null: none"))},
                        {"limit_source", null_or(text("who sets it; null: none"))},
                        {"shm_bytes", size_or_null("size of /dev/shm")},
                        {"usable_total_bytes", size_or_null("what a run can have at most")},
                        {"usable_now_bytes", size_or_null("what a run can have now")}},
                       "memory of the machine")},
       {"devices", list(detected_device(), "devices that were found")},
       {"conclusions", texts("what follows")},
       {"blockers", texts("what is in the way of an answer")},
       {"raw",
        list(object({{"source", text("a file, a library, a variable")}, {"what", text("what was asked")}, {"value", text("what it said")}}),
             "what was seen")}});
}

Shape schema_shape() {
  return answer_shape("schema", 1,
                      {{"verb", text("whose schemas they are")},
                       {"request", null_or(map(any("a keyword of JSON Schema"), "the JSON Schema of its request; null: it takes none"))},
                       {"answer", map(any("a keyword of JSON Schema"), "the JSON Schema of its answer")}});
}

Shape version_shape() { return answer_shape("version", 1, {{"version", text("the version of Plimsoll")}}); }

Shape error_shape() {
  return answer_shape("error", 1,
                      {{"verb", text("the verb that was asked")},
                       {"code", integer("the command's exit code: docs/exit-codes.md")},
                       {"message", text("what is wrong, with the value")},
                       {"hint", text("a way out; empty: none")}});
}

Shape watch_shape() {
  const auto alert = part("alert",
                          object({{"id", text("which alert: docs/watch.md")},
                                  {"level", word({"note", "warning", "critical"}, "how bad it is")},
                                  {"since", number("when it began, in seconds since 1970")},
                                  {"text", text("what is wrong")},
                                  {"advice", texts("what to do")}},
                                 "something that is wrong"),
                          "");
  const auto seen = [](const char* meaning) { return null_or(bytes(std::string(meaning) + "; null: not told to this user")); };
  const Shape process = object({{"role", word({"main", "rank", "worker", "other"}, "what it is in the run")},
                                {"state", text("as in /proc/PID/stat")},
                                {"pid", integer("the process")},
                                {"parent", integer("who started it")},
                                {"started", integer("clock ticks since boot")},
                                {"name", text("its name")},
                                {"cpu", number("cores in use")},
                                {"blocked", number("share of the time spent waiting for a disk")},
                                {"queued", number("share of the time in which no core was free for it")},
                                {"rss_bytes", seen("resident memory")},
                                {"anonymous_bytes", seen("of it, memory that is no file's")},
                                {"shmem_bytes", seen("of it, shared memory")},
                                {"pss_bytes", seen("its share of what is shared, and the rest")},
                                {"shared_bytes", seen("what others share")},
                                {"own_bytes", seen("what nobody else has")},
                                {"swap_bytes", seen("in swap")},
                                {"pinned_bytes", seen("page-locked memory")},
                                {"device_bytes", seen("on all devices together")}});
  const Shape device = object(
      {{"index", integer("its number")},
       {"name", text("its name")},
       {"unified", flag("whether it shares one pool with the host")},
       {"answers", flag("whether the driver still tells about it")},
       {"total_bytes", seen("its memory")},
       {"used_bytes", seen("what is in use")},
       {"ours_bytes", seen("what the run has of it")},
       {"busy", null_or(number("how busy it is, 0 to 1; null: not told"))},
       {"others", list(object({{"pid", integer("a process")}, {"name", text("its name")}, {"used_bytes", seen("what it has there")}}),
                       "processes of others on it")}});
  const Shape host = object({{"total_bytes", seen("RAM")},
                             {"available_bytes", seen("RAM that is available")},
                             {"swap_total_bytes", seen("swap")},
                             {"swap_used_bytes", seen("swap in use")},
                             {"shm_total_bytes", seen("size of /dev/shm")},
                             {"shm_used_bytes", seen("/dev/shm in use")},
                             {"limit_bytes", null_or(bytes("the tightest control group's limit; null: none"))},
                             {"limit_used_bytes", null_or(bytes("what is used of it, without page cache; null: none"))},
                             {"limit_source", text("who sets it; empty: nobody")},
                             {"pressure_some", null_or(number("share of the last 10 s in which some waited for memory; null: not told"))},
                             {"pressure_full", null_or(number("share of the last 10 s in which all waited for memory; null: not told"))},
                             {"swap_in", number("bytes a second from swap")},
                             {"swap_out", number("bytes a second to swap")},
                             {"refaults", number("bytes a second that were dropped from memory and read again")},
                             {"oom_kills", integer("processes killed for memory since boot")},
                             {"idle_cpus", null_or(number("cores that idle; null: not told"))},
                             {"cpus", integer("cores")}},
                            "the machine");
  const Shape steps = null_or(object({{"step", integer("as the log counts")},
                                      {"total", null_or(integer("steps in all; null: not said"))},
                                      {"seen", integer("steps since the watch began")},
                                      {"rate", null_or(number("steps a second; null: not known"))},
                                      {"rounds", integer("how often the count began anew")}},
                                     "the run's progress; null: there is no log"));
  const Shape predicted = object({{"model", text("the model")},
                                  {"source", text("who described the run")},
                                  {"corrected", flag("whether measured runs on this machine count")},
                                  {"device", range("device memory of a process"), kSometimes},
                                  {"host", range("RAM of the run"), kSometimes},
                                  {"shm", range("its part in /dev/shm"), kSometimes}},
                                 "what was predicted for the run");
  return answer_shape("watch", 1,
                      {{"time", number("seconds since 1970")},
                       {"processes", list(process, "processes of the run")},
                       {"devices", list(device, "devices that it uses")},
                       {"host", host},
                       {"steps", steps},
                       {"events", texts("what happened since the last look")},
                       {"alerts", list(alert, "what is wrong now")},
                       {"changes", list(object({{"raised", flag("whether it began, and did not end")}, {"alert", alert}}),
                                        "alerts that began or ended with this look")},
                       {"predicted", predicted, kSometimes},
                       {"peaks", object({{"run_bytes", null_or(bytes("the most RAM that the run had; null: not told"))},
                                         {"device_bytes", map(bytes("the most that the run had there"), "by the device's number")}},
                                        "since the watch began")}});
}

}  // namespace plimsoll
