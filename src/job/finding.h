// Where what a configuration declares is not what happens.
#pragma once

#include <cstdint>
#include <string>

namespace plimsoll {

enum class Effect : uint8_t {
  none,      // the setting is read by nothing
  partial,   // it does less than it says
  other,     // it does something else, or another value is used
  refused,   // the trainer stops with an error
  conflict,  // two settings that do not go together
  unknown,   // this reader does not know the setting
  assumed,   // nothing said it: `what` is the value that was taken
  missing,   // a part of the run that is not in the answer, named by `setting`: whether the whole fits is unknown
  note,      // nothing is wrong, but good to know
};

const char* to_string(Effect e);

struct Finding {
  Effect effect = Effect::note;
  std::string setting;  // "vram.max_seq_len = 512"; empty: the whole
  std::string source;   // the file or trainer it is in
  std::string what;     // what really happens
  std::string why;      // the place in the trainer's code, or the rule
};

}  // namespace plimsoll
