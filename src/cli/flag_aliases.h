// What people type from other tools: the words of transformers, axolotl, accelerate, kohya and Megatron-LM for flags that have another
// name here. One table: a spelling, the flag it means, and what is said about it.
#pragma once

#include <span>

namespace plimsoll {

struct FlagAlias {
  const char* typed;        // "--batch-size": '_' may stand for '-'
  const char* flag;         // "--batch"; empty: there is none, and `note` is the way on
  const char* value = "";   // of a word that takes none: the flag's value ("amp"); with {}: what is made of the value that follows ("r={}")
  const char* note = "";    // said when it is more than another spelling
  const char* values = "";  // its own words for values, "bf16=amp,no=fp32"
};

// In order: of several rows for one spelling the first whose flag the command has is meant.
std::span<const FlagAlias> flag_aliases();

}  // namespace plimsoll
