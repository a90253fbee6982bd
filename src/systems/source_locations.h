// Where in a user's own code the tensors of a model come from: for systems whose published documents speak of costs by file and line.
#pragma once

#include <string_view>

namespace plimsoll {

struct SourceLocation {
  const char* part;   // of a scope path: names in a row, "*" for any; empty: the model itself
  const char* op;     // only what this op makes; empty: everything in the part
  const char* where;  // "train_stdiff.py:293"
  const char* what;   // that the statement does
};

// The most exact entry for what `op` makes in the module at `scope_path`: the one whose part ends deepest in the path, of those one that
// names the op. Null: the family has no table, or nothing fits.
const SourceLocation* source_of(std::string_view family, std::string_view scope_path, std::string_view op = {});

}  // namespace plimsoll
