// ScalableShampoo of pytorch_optimizer (kozistr/pytorch_optimizer 3.x, optimizer/shampoo.py and shampoo_utils.py): parameters are cut into
// blocks of at most block_size a side, and every side of a block has a statistic and its inverse root, square matrices in fp32. With them a
// momentum and the momentum of the grafted optimizer for every parameter.
#include <algorithm>

#include "ops/reshape.h"
#include "optim/schur_newton.h"
#include "optim/stateful_optimizer.h"
#include "optim/tensordot.h"

namespace plimsoll {

namespace {

enum class Graft : int64_t { none, sgd, adagrad, rmsprop, sqrtn };  // LayerWiseGrafting

Tensor norm(const Tensor& t) { return temporary("linalg_vector_norm", Dims{}, t.dtype(), t.tape()); }

struct ShampooState {
  Tensor momentum, graft_momentum, graft_statistics;
  Dims shape;                             // after small dimensions were merged
  std::vector<std::vector<int64_t>> cut;  // sizes along each dimension
  Tensors statistics, roots;              // by block and side; views of one tensor where all are of one size
  Tensors tensors() const {
    Tensors out{momentum, graft_momentum, graft_statistics};
    out.insert(out.end(), statistics.begin(), statistics.end());
    out.insert(out.end(), roots.begin(), roots.end());
    return out;
  }
};

class ScalableShampoo final : public StatefulOptimizer<ShampooState> {
 public:
  explicit ScalableShampoo(const Arguments& args)
      : block_(args.size("block_size")),
        largest_(args.size("no_preconditioning_for_layers_with_dim_gt")),
        smallest_rank_(args.integer("skip_preconditioning_rank_lt")),
        start_(args.size("start_preconditioning_step")),
        frequency_(args.size("preconditioning_compute_steps")),
        statistics_frequency_(args.size("statistics_compute_steps")),
        exponent_(args.integer("inverse_exponent_override")),
        merges_(args.flag("shape_interpretation")),
        nesterov_(args.flag("nesterov")),
        graft_(static_cast<Graft>(args.integer("graft_type"))) {
    if (graft_ < Graft::none || graft_ > Graft::sqrtn)
      args.refuse("graft_type is 0 to 4", "none 0, SGD 1, Adagrad 2, RMSprop 3, sqrt(n) 4");
    if (args.integer("pre_conditioner_type") != 0)
      args.refuse("only pre_conditioner_type 0 (every side) is simulated", "leave pre_conditioner_type out");
    if (args.flag("use_svd"))
      args.refuse("use_svd true is not simulated", "leave use_svd out: the default is Schur and Newton's iteration");
  }

  void attach(const std::vector<Parameter*>& all) override {
    for (const Parameter* p : all)
      if (is_half(p->value.dtype()))
        throw Error(
            "[optimizer] ScalableShampoo refuses half-precision weights: its matrices are in fp32, and tensordot does not mix types",
            "take precision fp32 or amp");
  }

 private:
  void step_loop(const std::vector<Parameter*>& all) override {
    ++step_;
    Names names;
    for (size_t i : with_gradients(all)) {
      const ScopeGuard module(all[i]->value.tape(), all[i]->value.tape().scope_of(all[i]->value));
      update(state(i), all[i]->grad, names);
    }
  }

  // Of step() itself, from one parameter to the next.
  struct Names {
    Tensor graft_grad, shampoo_grad, graft_norm, shampoo_norm, decayed, nesterov;
  };

  void init(State& s, const Parameter& p) override {
    const ScopeGuard module(p.value.tape(), p.value.tape().scope_of(p.value));
    s.momentum = zeros_like(p.grad);
    s.shape = merges_ ? merged(p.value.sizes()) : p.value.sizes();
    if (s.shape.size() > 1 && !skips(p.value.sizes())) make_matrices(s, p.value.tape());
    if (graft_ == Graft::none || graft_ == Graft::sqrtn) return;
    s.graft_momentum = zeros_like(p.value);
    if (graft_ != Graft::sgd) s.graft_statistics = zeros_like(p.value);
  }

  bool skips(const Dims& sizes) const {
    if (sizes.size() < smallest_rank_) return true;
    for (int d = 0; d < sizes.size(); ++d)
      if (sizes[d] > largest_) return true;
    return false;
  }

  // merge_small_dims: neighbours become one while their product is at most a block; a single one left is no matrix.
  Dims merged(const Dims& sizes) const {
    Dims out;
    int64_t product = 1;
    for (int d = 0; d < sizes.size(); ++d) {
      product = checked_mul(product, sizes[d]);
      if (product <= block_) continue;
      out.push_back(product / sizes[d]);
      product = sizes[d];
    }
    out.push_back(product);
    return out.size() > 1 ? out : Dims{1};
  }

  void make_matrices(State& s, Tape& tape) const {
    for (int d = 0; d < s.shape.size(); ++d) {
      std::vector<int64_t>& sizes = s.cut.emplace_back();
      for (int64_t left = s.shape[d]; left > 0; left -= block_) sizes.push_back(std::min(left, block_));
    }
    const std::vector<int64_t> sides = sides_of_blocks(s);
    for (int64_t n : sides) s.statistics.push_back(chain(square("eye", n, tape), {"mul"}));
    for (int64_t n : sides) s.roots.push_back(square("eye", n, tape));
    if (std::adjacent_find(sides.begin(), sides.end(), std::not_equal_to<>()) != sides.end()) return;
    s.statistics = stacked(s.statistics);
    s.roots = stacked(s.roots);
  }

  static Tensors stacked(const Tensors& list) {
    const Tensor all = stack(list, 0);
    return unbind(all, 0);
  }

  // itertools.product of the cuts: the last dimension runs fastest.
  static std::vector<int64_t> sides_of_blocks(const State& s) {
    std::vector<int64_t> out;
    std::vector<size_t> at(s.cut.size(), 0);
    for (;;) {
      for (size_t d = 0; d < at.size(); ++d) out.push_back(s.cut[d][at[d]]);
      size_t d = at.size();
      while (d > 0 && ++at[d - 1] == s.cut[d - 1].size()) at[--d] = 0;
      if (d == 0) return out;
    }
  }

  static Tensors blocks(const State& s, const Tensor& grad) {
    Tensors out{reshape(grad, s.shape)};
    for (size_t d = 0; d < s.cut.size(); ++d) {
      if (s.cut[d].size() == 1) continue;
      Tensors finer;
      for (const Tensor& t : out)
        for (const Tensor& piece : split(t, s.cut[d], static_cast<int>(d))) finer.push_back(piece);
      out = std::move(finer);
    }
    return out;
  }

  // A real run is past the start, and its largest step computes the roots; recorded ones count.
  bool late(const Tensor& t) const { return !t.tape().dialect.item && step_ > 1; }

  void update(State& s, const Tensor& grad, Names& n) const {
    if (graft_ == Graft::adagrad) temporary("pow", grad);
    if (step_ % statistics_frequency_ == 0) add_statistics(s, grad);
    if (late(grad) || step_ % frequency_ == 0) compute_roots(s);
    const bool preconditions = late(grad) || step_ >= start_;
    n.graft_grad = graft_gradient(s, grad);
    n.shampoo_grad = preconditions ? preconditioned(s, grad) : grad;
    if (graft_ != Graft::none) {
      n.graft_norm = norm(n.graft_grad);
      n.shampoo_norm = norm(n.shampoo_grad);
      chain(n.shampoo_norm, {"add", "div"});
    }
    n.decayed = n.shampoo_grad;  // the last of a loop over both
    if (nesterov_) n.nesterov = preconditions ? n.shampoo_grad : n.graft_grad;
  }

  void add_statistics(const State& s, const Tensor& grad) const {
    if (s.statistics.empty()) return;
    Tensor statistic;
    for (const Tensor& block : blocks(s, grad))
      for (int d = 0; d < block.dim(); ++d) statistic = outer_product(block, d);
  }

  // Into the stacked tensor, or in place of the old ones.
  void compute_roots(State& s) const {
    const int64_t power = exponent_ > 0 ? exponent_ : 2 * static_cast<int64_t>(s.cut.size());
    const bool one_tensor = s.roots.size() > 1 && s.roots[0].body().storage.get() == s.roots[1].body().storage.get();
    for (size_t i = 0; i < s.statistics.size(); ++i) {
      Tensor root = inverse_root(s.statistics[i], power);
      if (!one_tensor) s.roots[i] = std::move(root);
    }
  }

  Tensor graft_gradient(const State& s, const Tensor& grad) const {
    const Tensor scaled = temporary("mul", grad);
    if (graft_ == Graft::sqrtn) return temporary("sign", scaled);
    if (!s.graft_statistics) return scaled;
    const Tensor root = temporary("sqrt", s.graft_statistics);
    return temporary("div", scaled);
  }

  static Tensor preconditioned(const State& s, const Tensor& grad) {
    if (s.roots.empty()) return grad;
    const Tensors pieces = blocks(s, grad);
    Tensors done;
    for (size_t i = 0; i < pieces.size(); ++i) {
      Tensor block = pieces[i];
      for (size_t d = 0; d < s.cut.size(); ++d) block = tensordot(block, s.roots[i * s.cut.size() + d], {0}, {0});
      done.push_back(block);
    }
    return reshape(joined(s, done), grad.sizes());
  }

  // merge_partitions: the last dimension first. The blocks live on with their caller.
  static Tensor joined(const State& s, Tensors pieces) {
    for (size_t d = s.cut.size(); d-- > 0;) {
      const size_t n = s.cut[d].size();
      if (n == 1) continue;
      Tensors wider;
      for (size_t i = 0; i < pieces.size(); i += n)
        wider.push_back(
            cat(Tensors(pieces.begin() + static_cast<long>(i), pieces.begin() + static_cast<long>(i + n)), static_cast<int>(d)));
      pieces = std::move(wider);
    }
    return pieces[0];
  }

  int64_t block_, largest_, smallest_rank_, start_, frequency_, statistics_frequency_, exponent_;
  bool merges_, nesterov_;
  Graft graft_;
  int64_t step_ = 0;
};

}  // namespace

extern const OptimizerEntry kScalableShampoo{
    .name = "ScalableShampoo",
    .library = "pytorch_optimizer",
    .keeps = "2 states a parameter, 2 fp32 matrices for every side of every block of it",
    .make = make<ScalableShampoo>,
    .arguments = {{"betas", {0.9, 0.999}},
                  {"moving_average_for_momentum", false},
                  {"weight_decay", 0.0},
                  {"decoupled_weight_decay", false},
                  {"decoupled_learning_rate", true},
                  {"inverse_exponent_override", 0},
                  {"start_preconditioning_step", 25},
                  {"preconditioning_compute_steps", 1000},
                  {"statistics_compute_steps", 1},
                  {"block_size", 512},
                  {"skip_preconditioning_rank_lt", 1},
                  {"no_preconditioning_for_layers_with_dim_gt", 8192},
                  {"shape_interpretation", true},
                  {"graft_type", 1},
                  {"pre_conditioner_type", 0},
                  {"nesterov", true},
                  {"diagonal_eps", 1e-10},
                  {"matrix_eps", 1e-6},
                  {"use_svd", false},
                  {"maximize", false}},
};

}  // namespace plimsoll
