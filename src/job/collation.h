// How samples become a batch: all of one length, padded to the longest with a mask, or packed into one row. Plain data and
// the shape that follows from it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "job/problem.h"

namespace plimsoll {

enum class Padding : uint8_t {
  none,  // no attention_mask is given to the model
  ones,  // one is, but no token is padding
  mask,  // one is, and some tokens are
};

enum class Collate : uint8_t {
  pad,   // DataCollatorWithPadding: rows of the longest sample
  pack,  // DataCollatorWithFlattening: one row of all samples, with position_ids that start anew
};

struct Collation {
  Padding padding = Padding::none;
  bool padding_given = false;  // by the user, not by the lengths
  Collate collate = Collate::pad;
  std::vector<int64_t> lengths;    // tokens of each sample; empty: all have the job's
  int64_t pad_to_multiple_of = 1;  // rows are filled up to that
};

// The tensors of one batch.
struct BatchShape {
  int64_t rows = 1, tokens = 1;
  Padding padding = Padding::none;
  int64_t packed_samples = 0;  // in the one row; 0: not packed
  int64_t longest = 0;         // of the packed samples
  int64_t labelled = 0;        // tokens that have a label, the first of each sample has none
  bool own_labels = false;     // labels are a tensor of their own: ignored tokens are marked in them
};

const char* to_string(Padding p);
const char* to_string(Collate c);
Padding parse_padding(const std::string& text);
Collate parse_collate(const std::string& text);
// A list of numbers, or text like "512+301+77".
std::vector<int64_t> parse_lengths(const nlohmann::json& value);

// Settings that contradict each other. `batch`: as many samples as the user asked for, 0 if that was left open.
void check_collation(const Collation& c, int64_t batch, Problems& out);
// A batch of so many samples; where lengths are given they are used in turn, else each has `length` tokens.
BatchShape batch_shape(const Collation& c, int64_t samples, int64_t length);

}  // namespace plimsoll
