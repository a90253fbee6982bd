// The fenced blocks of the memory documents that the project grew from.
#include "evidence/evidence.h"
#include "snippets.h"

namespace plimsoll::documents_evidence {
namespace {

constexpr const char* kAlloc = " alloc_conf=expandable_segments:True";
constexpr const char* kSmall = " d_model:512 max_seq_len:1024 n_layers:8 vocab_size:50257";
constexpr const char* kMedium = " d_model:768 max_seq_len:2048 n_layers:12 vocab_size:50257";

SnippetOutcomes expectations() {
  const std::string mamba = "mamba_trainer model=mamba-trainer", safe = " d_model:512 d_state:16 dropout:0.1 expand_factor:2";
  const std::string small_8gb = mamba + " batch=1 accumulation=16 seq=1024 precision=amp-fp16" + kAlloc + kSmall;
  const std::string gsa = "gsa", no_trainer = "error [command] ", unread = "error *";
  const std::string own_script = no_trainer + "train.py is a Python script*", nobodys = "error [test] snippet.*";
  const std::string trains = no_trainer + "training/train.py is a Python script*";
  SnippetOutcomes e{
      // commands, and the file of the first remedy
      {"002/1", {small_8gb}},
      {"002/2", {mamba + " batch=2 accumulation=8 seq=2048 precision=amp-fp16" + kAlloc + kMedium}},
      {"002/3",
       {mamba + " batch=1 accumulation=16 seq=256 precision=amp-fp16 clip=1" + kAlloc + safe +
        " max_seq_len:256 n_layers:8 vocab_size:50257"}},
      {"002/4", {own_script}},           // its file is not here
      {"002/5", {unread}},               // an OOM message
      {"002/6", {" model=nvidia-smi"}},  // one word: the name of a model, which does not exist
      {"002/7", {small_8gb}},
      {"002/8", {no_trainer + "'watch' is not a trainer*"}},
      // parts of a file: each is a KeyError, and comments are refused besides
      {"002/9", {mamba + " batch=1 seq=128" + kAlloc + " max_seq_len:128 vocab_size:50257 refused refused"}},
      {"002/10", {std::string("mamba_trainer") + kAlloc + " refused"}},
      {"002/11", {std::string("mamba_trainer precision=amp-fp16") + kAlloc + " refused"}},
      {"002/12", {unread}},  // a comment in what is then YAML
      {"002/13", {std::string("mamba_trainer") + kAlloc + " refused"}},
      {"002/14", {small_8gb}},
      // the balanced file: adam_* and max_grad_norm are not there
      {"002/15",
       {mamba + " batch=2 accumulation=8 seq=512 precision=amp-fp16" + kAlloc + safe +
        " max_seq_len:512 n_layers:8 vocab_size:50257 refused"}},
      {"002/16", {nobodys}},  // a model's length is anybody's
      {"002/17", {std::string("mamba_trainer batch=1 accumulation=16") + kAlloc + " refused"}},
      {"002/18", {no_trainer + "'--model_size' is not a trainer*"}},
      {"002/19", {no_trainer + "'' is not a trainer*"}},
      {"002/20", {" model=nvidia-smi", no_trainer + "'kill' is not a trainer*"}},
      {"002/21", {own_script}},
      {"002/22", {own_script}},
      {"002/23", {small_8gb}},
      // the AI Toolkit's
      {"003/3", {"ai_toolkit ema_update=ai-toolkit"}},
      {"003/4", {"ai_toolkit dop:true"}},
      {"003/5", {nobodys}},
      {"003/9", {nobodys}},
      {"003/10", {nobodys}},
      {"003/11", {"ai_toolkit cache_latents:true"}},
      {"003/12", {" model=htop", no_trainer + "'ps' is not a trainer*"}},
      {"003/13", {no_trainer + "'watch' is not a trainer*", " model=btop"}},
      {"003/14", {"ai_toolkit"}},
      // Gated-Sparse-Attention's
      {"004/2", {trains, trains}},                        // its file is not here
      {"004/9", {"error [test] snippet.yaml is none*"}},  // precision: fp16, which means another thing elsewhere
      {"004/10", {gsa + " model=gsa k_base:256 k_max:512 refused"}},
      {"004/11", {no_trainer + "'watch' is not a trainer*", no_trainer + "'nvidia-smi' is not a trainer*"}},
  };
  // parts with keys that many trainers have: --as gsa reads them
  for (const int i : {1, 3, 4, 5, 6, 7, 8}) e[fmt::format("004/{}", i)] = {nobodys};
  // source code, sums and messages are no configurations
  for (int i = 1; i <= 12; ++i) e[fmt::format("001/{}", i)] = {unread};
  for (const int i : {1, 2, 6, 7, 8, 15, 16, 17}) e[fmt::format("003/{}", i)] = {unread};
  return e;
}

TEST(Documents, EveryBlockIsReadOrRefusedForTheRightReason) { expect_outcomes(evidence("seeds"), expectations()); }

}  // namespace
}  // namespace plimsoll::documents_evidence
