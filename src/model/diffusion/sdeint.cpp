#include "model/diffusion/sdeint.h"

#include <algorithm>

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// One step from t0 to t1.
using Step = std::function<Tensor(double t0, double t1, const Tensor& y0)>;

class Clock {
 public:
  explicit Clock(const TimeGrid& grid) : dt_(grid.dt), single_(grid.single) {}
  double next(double t) const { return single_ ? static_cast<float>(t) + static_cast<float>(dt_) : t + dt_; }

 private:
  double dt_;
  bool single_;
};

// Always weighted, also when the step ended where it should.
Tensor linear_interp(const Tensor& y0, const Tensor& y1) {
  const Tensor from = mul_scalar(y0);
  const Tensor to = mul_scalar(y1);
  return add(from, to);
}

// BaseSDESolver.integrate
Tensor integrate(const Clock& clock, const Step& step, const Tensor& y0, const std::vector<double>& ts) {
  double t = ts.front();
  Tensor before = y0, y = y0;
  Tensors ys{y0};
  for (size_t i = 1; i < ts.size(); ++i) {
    while (t < ts[i]) {
      const double next = std::min(clock.next(t), ts.back());
      before = y;
      y = step(t, next, y);
      t = next;
    }
    ys.push_back(linear_interp(before, y));
  }
  return stack(ys, 0);
}

// ForwardSDE.g_prod
Tensor g_prod(const Sde& sde, const Tensor& y, const Tensor& noise) {
  const Tensor g = sde.diffusion(y);
  return mul(g, noise);
}

Tensor euler_heun(const Sde& sde, const Tensor& y0, const Tensor& noise) {
  const Tensor f = sde.drift(y0);
  const Tensor g = g_prod(sde, y0, noise);
  const Tensor y_prime = add(y0, g);
  const Tensor g_prime = g_prod(sde, y_prime, noise);
  Tensor drifted = mul_scalar(f);
  drifted = add(y0, drifted);
  Tensor diffused = add(g, g_prime);
  diffused = mul_scalar(diffused);
  return add(drifted, diffused);
}

// misc.flatten
Tensor joined(const Tensors& parts) {
  Tensors flat;
  for (const Tensor& t : parts) flat.push_back(reshape(t, {-1}));
  return cat(flat, 0);
}

Tensor zeros_like(const Tensor& t) { return filled(t.tape(), "zeros_like", t.sizes(), t.dtype()); }

// The equation of [state, its gradient, the gradients of the parameters] as one row, back in time.
class AdjointSde {
 public:
  AdjointSde(const Sde& sde, const Dims& state) : sde_(sde), state_(state), states_(numel(state)) {}

  Tensor midpoint(const Tensor& y0, const Tensor& noise) const {
    Tensor y_prime;
    const Slopes here = slopes(y0, noise);
    {
      Tensor drifted = mul_scalar(here.f);
      drifted = add(y0, drifted);
      const Tensor diffused = mul_scalar(here.g);
      y_prime = add(drifted, diffused);
    }
    const Slopes there = slopes(y_prime, noise);
    Tensor y1 = mul_scalar(there.f);
    y1 = add(y0, y1);
    return add(y1, there.g);
  }

  // Views of its parts: state, its gradient, the parameters' gradients.
  Tensors parts(const Tensor& row) const {
    std::vector<int64_t> lengths{states_, states_};
    for (const Tensor& p : sde_.parameters) lengths.push_back(p.numel());
    Tensors out = split(squeeze(row, 0), lengths, 0);
    out[0] = reshape(out[0], state_);
    out[1] = reshape(out[1], state_);
    for (size_t i = 2; i < out.size(); ++i) out[i] = reshape(out[i], sde_.parameters[i - 2].sizes());
    return out;
  }

 private:
  struct Slopes {
    Tensor f, g;
  };

  // Drift and diffusion with a graph, and two products of a vector with their derivatives.
  Slopes slopes(const Tensor& row, const Tensor& noise) const {
    const Tensor both = slice(squeeze(row, 0), 0, 0, 2 * states_);
    Tensor y = detach(reshape(slice(both, 0, 0, states_), state_));
    const Tensor adj_y = reshape(slice(both, 0, states_, 2 * states_), state_);
    make_leaf(y);
    const GradGuard with_graph(row.tape(), true);
    const Tensor f = sde_.drift(y);
    const Tensor g = g_prod(sde_, y, noise);
    Slopes out;
    out.f = slope(f, y, adj_y);
    out.g = slope(g, y, adj_y);
    return out;
  }

  Tensor slope(const Tensor& value, const Tensor& y, const Tensor& adj_y) const {
    Tensors leaves{y};
    leaves.insert(leaves.end(), sde_.parameters.begin(), sde_.parameters.end());
    Tensors products = gradients({value}, {adj_y}, leaves);
    const GradGuard no_graph(y.tape(), false);
    for (size_t i = 0; i < leaves.size(); ++i)
      if (!products[i]) products[i] = zeros_like(leaves[i]);
    products.insert(products.begin(), neg(value));
    return unsqueeze(joined(products), 0);
  }

  const Sde& sde_;
  Dims state_;
  int64_t states_;
};

// _SdeintAdjointMethod.backward: one integration for each interval of the grid, from the last.
Tensors adjoint(const Sde& sde, BrownianInterval& path, const TimeGrid& grid, const std::vector<double>& ts, const Tensor& ys,
                const Tensor& grad_ys) {
  const Clock clock(grid);
  const int64_t last = ys.size(0) - 1;
  const AdjointSde equation(sde, {ys.size(1), ys.size(2)});
  const Step step = [&](double t0, double t1, const Tensor& y0) {
    const Tensor noise = path(-t1, -t0);
    return equation.midpoint(y0, noise);
  };
  Tensors aug{select(ys, 0, last), select(grad_ys, 0, last)};
  for (const Tensor& p : sde.parameters) aug.push_back(zeros_like(p));
  Tensor row;
  Tensor solution;  // Python's `_`: a view of the last one
  for (int64_t i = last; i > 0; --i) {
    row = joined(aug);
    aug.clear();
    row = unsqueeze(row, 0);
    solution = integrate(clock, step, row, {-ts[static_cast<size_t>(i)], -ts[static_cast<size_t>(i - 1)]});
    row = select(solution, 0, 1);
    aug = equation.parts(row);
    aug[0] = select(ys, 0, i - 1);
    aug[1] = add(aug[1], select(grad_ys, 0, i - 1));
  }
  aug.erase(aug.begin());
  return aug;
}

// check_contract tries both functions for their shapes, and throws the results away.
void try_out(const Sde& sde, const Tensor& y0) {
  sde.drift(y0);
  sde.diffusion(y0);
}

std::vector<double> times(const TimeGrid& grid) {
  std::vector<double> ts;
  for (int64_t i = 0; i < grid.points; ++i) ts.push_back(grid.start + static_cast<double>(i));
  return ts;
}

}  // namespace

// saves the states; keeps the path.
SdeSolution sdeint_adjoint(const Sde& sde, const Tensor& y0, const TimeGrid& grid) {
  Tape& tape = y0.tape();
  try_out(sde, y0);
  const std::vector<double> ts = times(grid);
  auto path = std::make_shared<BrownianInterval>(tape, ts.front(), ts.back(), y0.sizes(), y0.dtype());
  Tensors inputs{y0};
  inputs.insert(inputs.end(), sde.parameters.begin(), sde.parameters.end());
  Op op(tape, "_SdeintAdjointMethod", inputs);
  Tensor ys;
  {
    const GradGuard no_graph(tape, false);
    const Step step = [&](double t0, double t1, const Tensor& y) {
      const Tensor noise = (*path)(t0, t1);
      return euler_heun(sde, y, noise);
    };
    ys = integrate(Clock(grid), step, detach(y0), ts);
  }
  Saved states = op.save(ys);
  ys = op.finish(ys, [sde, path, grid, ts, states = std::move(states)](Tensors& g, Needs) {
    return adjoint(sde, *path, grid, ts, states.unpack(), g[0]);
  });
  return {ys, path};
}

}  // namespace plimsoll
