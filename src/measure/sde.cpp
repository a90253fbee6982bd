#include "measure/sde.h"

#include <cmath>

#include "model/diffusion/brownian_path.h"

namespace plimsoll::measure {

namespace {

// The noise, for each row by a seed of its own, whatever rows are beside it.
class BrownianInterval final : public BrownianPath<Tensor> {
 public:
  BrownianInterval(double t0, double t1, const Tensor& like, const std::vector<uint64_t>& seeds)
      : BrownianPath(t0, t1), sizes_(like.sizes().vec()), seeds_(seeds) {
    Tensor whole = noise(0) * std::sqrt(t1 - t0);
    begin(std::move(whole), noise(1) * std::sqrt((t1 - t0) / 12));
  }

 private:
  Tensor noise(uint64_t number) const {
    Tensor out = torch::empty(sizes_);
    for (int64_t row = 0; row < sizes_[0]; ++row)
      out.select(0, row).normal_(0, 1, at::detail::createCPUGenerator(seeds_[static_cast<size_t>(row)] + number * 0x9e3779b97f4a7c15u));
    return out;
  }

  // A bridge: the mean by length, and noise that both halves share.
  Tensor halved(const Interval& half, const Tensor& whole) override {
    const Interval& parent = *half.parent;
    const double left_dt = parent.left->end - parent.start, right_dt = parent.end - parent.left->end, dt = parent.end - parent.start;
    Tensor mean = whole * left_dt;
    mean = mean * (1 / dt);
    const Tensor random = noise(parent.number);
    Tensor left = random * std::sqrt(left_dt * right_dt / dt);
    left = mean + left;
    return half.is_left ? left : whole - left;
  }

  Tensor sum(const Tensor& a, const Tensor& b) override { return a + b; }

  Shape sizes_;
  std::vector<uint64_t> seeds_;
};

using Step = std::function<Tensor(double t0, double t1, const Tensor& y0)>;

// Times are fp32 numbers: their sums are rounded. The end of an interval is always interpolated.
Tensor solve(double dt, const Step& step, const Tensor& y0, const std::vector<double>& ts) {
  double t = ts.front(), before_t = t;
  Tensor before = y0, y = y0;
  Tensors ys{y0};
  for (size_t i = 1; i < ts.size(); ++i) {
    while (t < ts[i]) {
      const double next = std::min<double>(static_cast<float>(t) + static_cast<float>(dt), ts.back());
      before = y;
      before_t = t;
      y = step(t, next, y);
      t = next;
    }
    const double weight = (ts[i] - before_t) / (t - before_t);
    const Tensor from = before * (1 - weight);
    const Tensor to = y * weight;
    ys.push_back(from + to);
  }
  return torch::stack(ys, 0);
}

Tensor g_prod(const Equation& e, const Tensor& y, const Tensor& noise) {
  const Tensor g = e.diffusion(y);
  return g * noise;
}

Tensor euler_heun(const Equation& e, const Tensor& y0, const Tensor& noise, double dt) {
  const Tensor f = e.drift(y0);
  const Tensor g = g_prod(e, y0, noise);
  const Tensor y_prime = y0 + g;
  const Tensor g_prime = g_prod(e, y_prime, noise);
  Tensor drifted = f * dt;
  drifted = y0 + drifted;
  Tensor diffused = g + g_prime;
  diffused = diffused * 0.5;
  return drifted + diffused;
}

Tensor joined(const Tensors& parts) {
  Tensors flat;
  for (const Tensor& t : parts) flat.push_back(t.reshape({-1}));
  return torch::cat(flat, 0);
}

// The equation of [state, its gradient, the gradients of the parameters] as one row, back in time.
class Adjoint {
 public:
  Adjoint(const Equation& equation, const Shape& state) : e_(equation), state_(state), states_(state[0] * state[1]) {}

  Tensor midpoint(const Tensor& y0, const Tensor& noise, double dt) const {
    Tensor y_prime;
    const Slopes here = slopes(y0, noise);
    {
      Tensor drifted = here.f * (0.5 * dt);
      drifted = y0 + drifted;
      const Tensor diffused = here.g * 0.5;
      y_prime = drifted + diffused;
    }
    const Slopes there = slopes(y_prime, noise);
    Tensor y1 = there.f * dt;
    y1 = y0 + y1;
    return y1 + there.g;
  }

  Tensors parts(const Tensor& row) const {
    Shape lengths{states_, states_};
    for (const Tensor& p : e_.parameters) lengths.push_back(p.numel());
    Tensors out = row.squeeze(0).split_with_sizes(lengths, 0);
    out[0] = out[0].reshape(state_);
    out[1] = out[1].reshape(state_);
    for (size_t i = 2; i < out.size(); ++i) out[i] = out[i].reshape(e_.parameters[i - 2].sizes());
    return out;
  }

 private:
  struct Slopes {
    Tensor f, g;
  };

  Slopes slopes(const Tensor& row, const Tensor& noise) const {
    const Tensor both = row.squeeze(0).slice(0, 0, 2 * states_);
    Tensor y = both.slice(0, 0, states_).reshape(state_).detach();
    const Tensor adj_y = both.slice(0, states_, 2 * states_).reshape(state_);
    y.requires_grad_(true);
    const torch::AutoGradMode with_graph(true);
    const Tensor f = e_.drift(y);
    const Tensor g = g_prod(e_, y, noise);
    Slopes out;
    out.f = slope(f, y, adj_y);
    out.g = slope(g, y, adj_y);
    return out;
  }

  Tensor slope(const Tensor& value, const Tensor& y, const Tensor& adj_y) const {
    Tensors leaves{y};
    leaves.insert(leaves.end(), e_.parameters.begin(), e_.parameters.end());
    Tensors products = torch::autograd::grad({value}, leaves, {adj_y}, true, false, true);
    const torch::AutoGradMode no_graph(false);
    for (size_t i = 0; i < leaves.size(); ++i)
      if (!products[i].defined()) products[i] = torch::zeros_like(leaves[i]);
    products.insert(products.begin(), -value);
    return joined(products).unsqueeze(0);
  }

  const Equation& e_;
  Shape state_;
  int64_t states_;
};

// _SdeintAdjointMethod: of y0 and the parameters; the states are saved.
struct SdeintAdjoint : GraphFunction {
  Tensors forward(const Tensors& inputs) {
    const Step step = [&](double t0, double t1, const Tensor& y) {
      const Tensor noise = (*path)(t0, t1);
      return euler_heun(equation, y, noise, t1 - t0);
    };
    return {solve(dt, step, inputs[0].detach(), ts)};
  }

  // One integration for each interval of the grid, from the last.
  Tensors backward(const Tensors& gradients) override {
    const Tensor ys = saved_tensors()[0];
    const Tensor& grad_ys = gradients[0];
    const int64_t last = ys.size(0) - 1;
    const Adjoint adjoint(equation, {ys.size(1), ys.size(2)});
    const Step step = [&](double t0, double t1, const Tensor& y0) {
      const Tensor noise = (*path)(-t1, -t0);
      return adjoint.midpoint(y0, noise, t1 - t0);
    };
    Tensors aug{ys.select(0, last), grad_ys.select(0, last)};
    for (const Tensor& p : equation.parameters) aug.push_back(torch::zeros_like(p));
    Tensor row;
    Tensor solution;  // Python's `_`: a view of the last one
    for (int64_t i = last; i > 0; --i) {
      row = joined(aug);
      aug.clear();
      row = row.unsqueeze(0);
      solution = solve(dt, step, row, {-ts[static_cast<size_t>(i)], -ts[static_cast<size_t>(i - 1)]});
      row = solution.select(0, 1);
      aug = adjoint.parts(row);
      aug[0] = ys.select(0, i - 1);
      aug[1] = aug[1] + grad_ys.select(0, i - 1);
    }
    aug.erase(aug.begin());
    return aug;
  }

  void forget() override { path.reset(); }

  Equation equation;
  std::unique_ptr<BrownianInterval> path;
  std::vector<double> ts;
  double dt = 0;
};

}  // namespace

Tensor integrate(const Equation& equation, const Tensor& y0, double start, int64_t points, double dt, const std::vector<uint64_t>& seeds) {
  equation.drift(y0);  // check_contract tries both for their shapes
  equation.diffusion(y0);
  auto solver = std::make_unique<SdeintAdjoint>();
  solver->equation = equation;
  solver->dt = dt;
  for (int64_t i = 0; i < points; ++i) solver->ts.push_back(start + static_cast<double>(i));
  {
    const torch::NoGradGuard no_grad;
    solver->path = std::make_unique<BrownianInterval>(solver->ts.front(), solver->ts.back(), y0, seeds);
  }
  Tensors inputs{y0};
  inputs.insert(inputs.end(), equation.parameters.begin(), equation.parameters.end());
  SdeintAdjoint& method = *solver;  // lives until `run` has returned
  return GraphFunction::run(std::move(solver), inputs, false, [&method](const Tensors& in) { return method.forward(in); })[0];
}

}  // namespace plimsoll::measure
