// Configurations and commands as they stand in people's notes: cut out of a document, each is read, or refused for the right reason.
#include "snippets.h"

namespace plimsoll::snippets_test {
namespace {

TEST(Snippets, AreReadOrRefusedForTheRightReason) {
  expect_outcomes(
      std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/data/snippets",
      {
          {"101/1", {" model=gpt2 batch=4 seq=256 precision=bf16 checkpointing=on"}},
          {"101/2", {"transformers model=gpt2 batch=4 accumulation=8 alloc_conf=expandable_segments:True"}},
          {"101/3", {"transformers model=gpt2 batch=2 ddp=4", "error [command] 'watch' is not a trainer*", " model=nvidia-smi"}},
          {"101/4", {" model=snippet.json"}},  // a model's description is read later, from the file
          {"101/5", {"error *"}},              // an error message
          {"101/6", {"error *"}},              // code
          {"101/7", {"error [test] snippet.yaml is none*"}},
      });
}

}  // namespace
}  // namespace plimsoll::snippets_test
