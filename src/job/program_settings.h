// Who trains the model: PyTorch, by a loop of the user's or of a trainer's, or a program that brings its own step, loop and layout:
// torchtitan and Megatron-LM on PyTorch, or JAX. Plain data; src/program has the programs themselves.
#pragma once

#include "job/jax_settings.h"
#include "job/megatron.h"
#include "job/torchtitan.h"

namespace plimsoll {

struct ProgramSettings {
  Framework framework = Framework::pytorch;
  JaxSettings jax;  // of framework jax
  std::optional<MegatronSettings> megatron;
  std::optional<TorchtitanSettings> torchtitan;

  bool has_stages() const { return megatron || torchtitan; }  // what differs between ranks are the stages of a pipeline
};

}  // namespace plimsoll
