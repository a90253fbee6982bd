// SOAP (nikhilvyas/SOAP, soap.py): Adam in the eigenbasis of Shampoo's matrices. exp_avg and exp_avg_sq for every parameter; GG and Q, two
// square matrices in fp32, for every dimension up to max_precond_dim. The names of its Python step outlive the parameter they were for.
// cuSOLVER's own workspaces (eigh, qr) are not known and left out.
#include "ops/matmul.h"
#include "ops/reshape.h"
#include "optim/stateful_optimizer.h"
#include "optim/tensordot.h"

namespace plimsoll {

namespace {

// torch.linalg.eigh(m + 1e-30 * eye), its vectors in the order of falling values. `values` is the name that keeps them.
Tensor eigenvectors(const Tensor& m, Tensor& values) {
  Tape& tape = m.tape();
  const int64_t n = m.size(0);
  Tensor vectors;
  {
    Tensor shifted = chain(square("eye", n, tape), {"mul"});
    shifted = temporary("add", m);
    Tensor new_values = temporary("_linalg_eigh", {n}, DType::float32, tape);
    vectors = square("_linalg_eigh", n, tape);
    shifted.reset();
    values = std::move(new_values);
  }
  return chain(vectors, {"flip"});
}

struct SoapState {
  Tensor exp_avg, exp_avg_sq;
  Tensors gg, q;  // by dimension; none where it is too large
  int64_t step = 0;
  Tensors tensors() const {
    Tensors out{exp_avg, exp_avg_sq};
    out.insert(out.end(), gg.begin(), gg.end());
    out.insert(out.end(), q.begin(), q.end());
    return out;
  }
};

class Soap final : public StatefulOptimizer<SoapState> {
 public:
  explicit Soap(const Arguments& args)
      : largest_(args.size("max_precond_dim")),
        frequency_(args.size("precondition_frequency")),
        merge_(args.flag("merge_dims")),
        vectors_(args.flag("precondition_1d")),
        normalize_(args.flag("normalize_grads")) {
    if (args.text("data_format") != "channels_first") args.refuse("only data_format channels_first is simulated", "leave data_format out");
  }

  void attach(const std::vector<Parameter*>& all) override {
    for (const Parameter* p : all)
      if (p->value.dim() > 1 && is_half(p->value.dtype()))
        throw Error("[optimizer] SOAP refuses half-precision weights: its matrices are in fp32, and lerp_ does not mix types",
                    "take precision fp32 or amp");
  }

 private:
  void step_loop(const std::vector<Parameter*>& all) override {
    Names names;
    for (size_t i : with_gradients(all)) {
      const ScopeGuard module(all[i]->value.tape(), all[i]->value.tape().scope_of(all[i]->value));
      names.grad = all[i]->grad;
      if (!state(i).exp_avg) {
        start(state(i), names.grad);  // the first step updates nothing
      } else {
        update(state(i), names);
      }
    }
  }

  // Of step() itself, from one parameter to the next.
  struct Names {
    Tensor grad, projected, exp_avg, exp_avg_sq, denominator, exp_avg_projected, norm_grad;
  };

  bool has_matrix(int64_t size) const { return size <= largest_; }

  void start(State& s, const Tensor& grad) const {
    s.exp_avg = zeros_like(grad);
    s.exp_avg_sq = zeros_like(grad);
    const Dims sizes = merged(grad).sizes();
    for (int d = 0; d < sizes.size(); ++d)
      s.gg.push_back(has_matrix(sizes[d]) && (grad.dim() > 1 || vectors_) ? square("zeros", sizes[d], grad.tape()) : Tensor());
    const Tensor last = accumulate(s, grad);
    Tensor values;
    for (const Tensor& m : s.gg) s.q.push_back(m ? eigenvectors(m, values) : Tensor());
  }

  void update(State& s, Names& n) const {
    n.projected = project(n.grad, s.q, 0);
    n.exp_avg = s.exp_avg;
    n.exp_avg_sq = s.exp_avg_sq;
    ++s.step;
    temporary("square", n.projected);
    n.denominator = temporary("sqrt", n.exp_avg_sq);
    n.exp_avg_projected = n.exp_avg;
    n.norm_grad = project(temporary("div", n.exp_avg_projected), s.q, 1);
    if (normalize_) n.norm_grad = normalized(n.norm_grad);
    update_preconditioner(s, n.grad);
  }

  static Tensor normalized(const Tensor& grad) {
    Tensor mean;
    {
      const Tensor squares = temporary("pow", grad);
      mean = temporary("mean", Dims{}, grad.dtype(), grad.tape());
    }
    mean = chain(mean, {"pow", "add"});
    return temporary("div", grad);
  }

  // The average is taken back, the basis may turn, and the average is projected again.
  void update_preconditioner(State& s, const Tensor& grad) const {
    s.exp_avg = project(s.exp_avg, s.q, 1);
    const Tensor last = accumulate(s, grad);
    if (turns(s.step, grad.tape())) s.q = turned(s);
    s.exp_avg = project(s.exp_avg, s.q, 0);
  }

  // A real run is past the first turn; recorded ones count.
  bool turns(int64_t step, const Tape& tape) const { return !tape.dialect.item || step % frequency_ == 0; }

  // Shampoo's statistics; the last outer product lives as long as the function that made it.
  Tensor accumulate(const State& s, const Tensor& grad) const {
    Tensor product;
    if (grad.dim() == 1) {
      if (s.gg[0]) mm(unsqueeze(grad, 1), unsqueeze(grad, 0));
      return product;
    }
    const Tensor view = merged(grad);
    for (int d = 0; d < view.dim(); ++d)
      if (s.gg[static_cast<size_t>(d)]) product = outer_product(view, d);
    return product;
  }

  // Into the basis (dim 0 of each matrix) or back (dim 1).
  Tensor project(Tensor grad, const Tensors& q, int dim) const {
    const Dims original = grad.sizes();
    if (merge_) grad = merged(grad);
    for (const Tensor& m : q) grad = m ? tensordot(grad, m, {0}, {dim}) : rolled(grad);
    return merge_ ? reshape(grad, original) : grad;
  }

  // get_orthogonal_matrix_QR: one round of power iteration.
  Tensors turned(State& s) const {
    Tensor exp_avg_sq = merge_ ? merged(s.exp_avg_sq) : s.exp_avg_sq, estimate, order, o, power, r;
    Tensors final;
    for (size_t d = 0; d < s.gg.size(); ++d) {
      const Tensor& m = s.gg[d];
      final.emplace_back();
      if (!m) continue;
      o = s.q[d];
      {
        const Tensor turned = product(product(t(o), m), o);
        estimate = temporary("diagonal_copy", {m.size(0)}, DType::float32, m.tape());
      }
      {
        const Tensor values = temporary("sort", {m.size(0)}, DType::float32, m.tape());
        order = temporary("sort", {m.size(0)}, DType::int64, m.tape());
      }
      exp_avg_sq = temporary("index_select", exp_avg_sq.sizes(), exp_avg_sq.dtype(), m.tape());
      o = square("index", m.size(0), m.tape());
      power = mm(m, o);
      final.back() = square("linalg_qr", m.size(0), m.tape());
      r = square("linalg_qr", m.size(0), m.tape());
    }
    s.exp_avg_sq = merge_ ? reshape(exp_avg_sq, s.exp_avg_sq.sizes()) : exp_avg_sq;
    return final;
  }

  // The argument dies when the product exists.
  static Tensor product(Tensor a, const Tensor& b) { return mm(a, b); }

  // merge_dims: neighbours become one dimension while their product is at most max_precond_dim.
  Tensor merged(const Tensor& grad) const {
    if (!merge_ || grad.dim() == 1) return grad;
    Dims shape;
    int64_t current = 1;
    for (int d = 0; d < grad.dim(); ++d) {
      const int64_t next = checked_mul(current, grad.size(d));
      if (next <= largest_) {
        current = next;
      } else if (current > 1) {
        shape.push_back(current);
        current = grad.size(d);
      } else {
        shape.push_back(grad.size(d));
        current = 1;
      }
    }
    if (current > 1 || shape.size() == 0) shape.push_back(current);
    return reshape(grad, shape);
  }

  int64_t largest_, frequency_;
  bool merge_, vectors_, normalize_;
};

}  // namespace

extern const OptimizerEntry kSoap{
    .name = "SOAP",
    .library = "nikhilvyas/SOAP",
    .keeps = "2 states a parameter, 2 fp32 matrices for every side of it",
    .make = make<Soap>,
    .arguments = {{"betas", {0.95, 0.95}},
                  {"shampoo_beta", -1},
                  {"eps", 1e-8},
                  {"weight_decay", 0.01},
                  {"precondition_frequency", 10},
                  {"max_precond_dim", 10000},
                  {"merge_dims", false},
                  {"precondition_1d", false},
                  {"normalize_grads", false},
                  {"data_format", "channels_first"},
                  {"correct_bias", true}},
};

}  // namespace plimsoll
