// torch.optim.Muon (torch/optim/_muon.py of PyTorch 2.14): a momentum for every matrix, orthogonalised in bf16 by five steps of
// Newton and Schulz, matrix by matrix. It takes matrices alone, so the usual recipe gives the rest to AdamW.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "job/tuning.h"
#include "ops/reshape.h"
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

std::string name_of(const Parameter& p) {
  const std::string module = p.value.tape().trace.scope_path(p.value.tape().scope_of(p.value));
  return module.empty() ? p.name : module + "." + p.name;
}

// torch.addmm of three matrices: cuBLAS without a fused bias, into a copy of the first.
Tensor product(const char* name, const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  Op op(tape, name, {});
  op.reads(a);
  op.reads(b);
  Tensor out = empty(tape, {a.size(0), b.size(1)}, a.dtype());
  tape.use_blas(false);
  tape.flops(2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(1)), a.dtype(), Unit::matmul);
  return out;
}

class Muon final : public StatefulOptimizer<Tensor> {
 public:
  explicit Muon(const Arguments& args) : nesterov_(args.flag("nesterov")), iterations_(args.integer("ns_steps")) {
    if (iterations_ < 0 || iterations_ >= 100)
      args.refuse(fmt::format("ns_steps {} is not below 100", iterations_), "PyTorch raises a ValueError here; its default is 5");
  }

  void attach(const std::vector<Parameter*>& all) override {
    size_t refused = 0;
    const Parameter* first = nullptr;
    for (const Parameter* p : all)
      if (p->value.dim() != 2 && ++refused == 1) first = p;
    if (!first) return;
    throw Error(fmt::format("[optimizer] Muon takes matrices alone, and {} of {} trained parameters are none: the first is {} of shape {}",
                            refused, all.size(), name_of(*first), to_string(first->value.sizes())),
                "take optimizer Muon+AdamW: matrices by Muon, the rest by AdamW");
  }

 private:
  void init(Tensor& buffer, const Parameter& p) override { buffer = zeros_like(p.grad); }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor update;
    for (size_t i : with_gradients(all)) {
      const ScopeGuard module(all[i]->value.tape(), all[i]->value.tape().scope_of(all[i]->value));
      update = nesterov_ ? temporary("lerp", all[i]->grad) : state(i);
      update = orthogonal(update);
    }
  }

  // _zeropower_via_newtonschulz. A bf16 update is normalised in place: .bfloat16() makes no copy of it.
  Tensor orthogonal(const Tensor& update) const {
    const bool tall = update.size(0) > update.size(1);
    Tensor ortho = to(update, DType::bfloat16), gram, polynomial;
    if (tall) ortho = t(ortho);
    chain(temporary("linalg_vector_norm", Dims{}, DType::bfloat16, update.tape()), {"clamp"});
    for (int64_t i = 0; i < iterations_; ++i) {
      gram = product("mm", ortho, t(ortho));
      polynomial = product("addmm", gram, gram);
      ortho = product("addmm", polynomial, ortho);
    }
    return tall ? t(ortho) : ortho;
  }

  bool nesterov_;
  int64_t iterations_;
};

// Two optimizers, one step after the other.
class MuonAndAdamW final : public Optimizer {
 public:
  explicit MuonAndAdamW(const Arguments& args) : muon_(std::make_unique<Muon>(args)) {
    const nlohmann::json* adamw = args.config().find({"adamw"});
    const nlohmann::json* modules = args.config().find({"adamw_modules"});
    adamw_ = make_optimizer("AdamW", adamw ? Config("adamw", *adamw) : Config());
    if (modules) adamw_modules_ = parse_name_list(*modules, "adamw_modules");
  }

  void attach(const std::vector<Parameter*>& all) override {
    for (Parameter* p : all) (by_muon(*p) ? matrices_ : rest_).push_back(p);
    if (matrices_.empty())
      throw Error(fmt::format("[optimizer] Muon+AdamW: none of {} trained parameters is a matrix for Muon", all.size()),
                  adamw_modules_.empty() ? "take AdamW" : "take AdamW, or shorten adamw_modules");
    muon_->attach(matrices_);
    adamw_->attach(rest_);
  }

  void step(const std::vector<Parameter*>&) override {
    muon_->step(matrices_);
    adamw_->step(rest_);
  }

  Tensors states() const override {
    Tensors out = muon_->states();
    const Tensors more = adamw_->states();
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }

 private:
  bool by_muon(const Parameter& p) const {
    if (p.value.dim() != 2) return false;
    const std::string name = name_of(p);
    for (const std::string& module : with_parents(name))
      for (const std::string& wanted : adamw_modules_)
        if (ends_with_name(module, wanted)) return false;
    return true;
  }

  std::unique_ptr<Optimizer> muon_, adamw_;
  std::vector<std::string> adamw_modules_;
  std::vector<Parameter*> matrices_, rest_;
};

}  // namespace

extern const OptimizerEntry kMuon{
    .name = "Muon",
    .library = "torch.optim",
    .keeps = "1 state a parameter; takes matrices alone",
    .make = make<Muon>,
    .arguments = {{"weight_decay", 0.1},
                  {"momentum", 0.95},
                  {"nesterov", true},
                  {"ns_coefficients", {3.4445, -4.775, 2.0315}},
                  {"eps", 1e-7},
                  {"ns_steps", 5},
                  {"adjust_lr_fn"}},
};

// Its arguments are Muon's; `adamw` holds AdamW's, `adamw_modules` the names of matrices that are left to AdamW, too.
extern const OptimizerEntry kMuonAndAdamW{
    .name = "Muon+AdamW",
    .library = "torch.optim",
    .keeps = "1 state for matrices by Muon, 2 for the rest by AdamW",
    .make = make<MuonAndAdamW>,
    .arguments = {{"weight_decay", 0.1},
                  {"momentum", 0.95},
                  {"nesterov", true},
                  {"ns_coefficients", {3.4445, -4.775, 2.0315}},
                  {"eps", 1e-7},
                  {"ns_steps", 5},
                  {"adjust_lr_fn"},
                  {"adamw"},
                  {"adamw_modules"}},
};

}  // namespace plimsoll
