// JAX: the train step as one program that XLA compiles.
#include "program/program.h"
#include "xla/optax.h"

namespace plimsoll {

namespace {

class JaxProgram final : public Program {
 public:
  const char* name() const override { return "JAX"; }
  bool takes(const Job& job) const override { return job.program.framework == Framework::jax; }

  Problems problems(const Job& job) const override {
    Problems out;
    check_forward(job, out);
    succeeds([&] { optax_states(job.optimizer, {1}, DType::float32); }, out);
    return out;
  }

  std::string target_key(const Job&, const Target& target) const override { return to_string(target.kind); }

  std::shared_ptr<const Run> execute(const Job& job, const Target& target, const Detail&) const override {
    return std::make_shared<Run>(job, compile(job, target.kind));
  }
};

}  // namespace

const Program& jax_program() {
  static const JaxProgram kProgram;
  return kProgram;
}

}  // namespace plimsoll
