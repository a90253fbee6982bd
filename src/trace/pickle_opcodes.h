// The opcodes of Python's Lib/pickle.py that build plain values, and the names of those that could run code.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

enum PickleOpcode : uint8_t {
  kOpMark = '(',
  kOpStop = '.',
  kOpPop = '0',
  kOpBinFloat = 'G',
  kOpBinInt = 'J',
  kOpBinInt1 = 'K',
  kOpBinInt2 = 'M',
  kOpNone = 'N',
  kOpBinUnicode = 'X',
  kOpAppend = 'a',
  kOpDict = 'd',
  kOpAppends = 'e',
  kOpBinGet = 'h',
  kOpLongBinGet = 'j',
  kOpList = 'l',
  kOpBinPut = 'q',
  kOpLongBinPut = 'r',
  kOpSetItem = 's',
  kOpTuple = 't',
  kOpSetItems = 'u',
  kOpEmptyList = ']',
  kOpEmptyDict = '}',
  kOpEmptyTuple = ')',
  kOpProto = 0x80,
  kOpTuple1 = 0x85,
  kOpTuple2 = 0x86,
  kOpTuple3 = 0x87,
  kOpNewTrue = 0x88,
  kOpNewFalse = 0x89,
  kOpLong1 = 0x8a,
  kOpShortBinUnicode = 0x8c,
  kOpBinUnicode8 = 0x8d,
  kOpMemoize = 0x94,
  kOpFrame = 0x95,
};

// The name of an opcode that names, makes or calls objects; "" for any other.
inline std::string_view name_of_refused(uint8_t opcode) {
  switch (opcode) {
    case 'c': return "GLOBAL";
    case 'R': return "REDUCE";
    case 'b': return "BUILD";
    case 'i': return "INST";
    case 'o': return "OBJ";
    case 'P': return "PERSID";
    case 'Q': return "BINPERSID";
    case 0x81: return "NEWOBJ";
    case 0x82: return "EXT1";
    case 0x83: return "EXT2";
    case 0x84: return "EXT4";
    case 0x92: return "NEWOBJ_EX";
    case 0x93: return "STACK_GLOBAL";
    case 0x97: return "NEXT_BUFFER";
    default: return "";
  }
}

}  // namespace plimsoll
