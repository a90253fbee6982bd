#include "api/replay.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "allocator/replay_protocol.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/request_flags.h"

namespace plimsoll {

namespace {

struct ReplayFlags {
  ReplayRequest request;
  OutputFlags output;
};

// One line in, one line out; answers are written when the buffer is full and at the end.
ExitCode speak_protocol() {
  constexpr size_t kBuffer = 1 << 16;
  ProtocolSession session;
  std::string pending, out;
  const auto flush = [&] {
    std::fwrite(out.data(), 1, out.size(), stdout);
    out.clear();
  };
  std::array<char, kBuffer> chunk;
  try {
    while (const size_t n = std::fread(chunk.data(), 1, chunk.size(), stdin)) {
      pending.append(chunk.data(), n);
      size_t start = 0;
      for (size_t end; (end = pending.find('\n', start)) != std::string::npos; start = end + 1)
        session.feed(std::string_view(pending).substr(start, end - start), out);
      pending.erase(0, start);
      if (out.size() >= kBuffer) flush();
    }
    session.feed(pending, out);
  } catch (const Error&) {
    flush();
    throw;
  }
  flush();
  return ExitCode::ok;
}

}  // namespace

std::function<ExitCode()> set_up_replay(CLI::App& app) {
  auto flags = std::make_shared<ReplayFlags>();
  app.footer(
      "FILE is a PyTorch memory snapshot (torch.cuda.memory._dump_snapshot) or a trace file; its content decides.\n"
      "Examples:\n"
      "  plimsoll replay snap.pickle                                          what the allocator did, checked against the recording\n"
      "  plimsoll replay snap.pickle --alloc-conf expandable_segments:True    the same run under other settings, side by side\n"
      "  plimsoll replay snap.pickle --device-memory 24GiB --in-use 500MiB    would it have fit on that device?\n"
      "  plimsoll estimate gpt2 --save-trace run.trace\n"
      "  plimsoll replay run.trace --alloc-conf max_split_size_mb:128         a simulated step, or any trace\n"
      "  plimsoll replay run.trace --allocator bfc --device-memory 24GiB      what XLA's allocator would make of it\n"
      "  plimsoll replay < script.case                                        the line protocol (docs/replay.md)\n"
      "Without --alloc-conf a snapshot is replayed under the settings in it, a trace under the defaults. No code in a snapshot\n"
      "is ever run. GB means GiB. docs/replay.md explains every number, docs/trace-format.md the trace file.\n"
      "Exit codes: 0 done, 3 out of memory, 2 wrong usage, 5 input not understood, 1 a bug.");
  app.add_option("file", flags->request.file, "snapshot or trace file; without one, the line protocol on stdin and stdout")
      ->type_name("FILE");
  add_flags(app, replay_keys(), flags->request);
  flags->output.add_to(app);
  return [flags, &app] {
    if (!flags->request.file.empty())
      return answer_with_progress(flags->output, [&](const Show& show) { return answer(flags->request, show); });
    const std::vector<CLI::Option*> options = app.get_options();
    if (std::any_of(options.begin(), options.end(), [](const CLI::Option* o) { return o->count() > 0; }))
      throw Error("[replay] flags need a trace file or a snapshot",
                  "on stdin, the header names the device and the settings (docs/replay.md)", ExitCode::usage);
    return speak_protocol();
  };
}

}  // namespace plimsoll
