// An optimizer that keeps a State for every parameter it updates: when states are made, whose, and which form of the step runs. An
// optimizer of its own says what a State holds, how one begins, and what each form of the step allocates.
#pragma once

#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizer.h"

namespace plimsoll {

// The tensors of a state, in the order in which they are listed; absent ones may be among them. A struct has a member `tensors`.
inline Tensors tensors_of(const Tensor& state) { return {state}; }
inline Tensors tensors_of(const Tensors& state) { return state; }
template <class State>
Tensors tensors_of(const State& state) {
  return state.tensors();
}

enum class StatesMade {
  before_step,     // those of all parameters with a gradient, before the first of them is updated
  one_by_one,      // each right before its parameter is updated
  by_constructor,  // those of all trained parameters, whether or not a gradient ever comes
};

template <class OneState>
class StatefulOptimizer : public Optimizer {
 public:
  void attach(const std::vector<Parameter*>& all) override {
    if (made_ != StatesMade::by_constructor) return;
    prepare(all);
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i]->value.requires_grad()) started(all, i);
  }

  void step(const std::vector<Parameter*>& all) final {
    prepare(all);
    if (made_ == StatesMade::before_step)
      for (size_t i : with_gradients(all)) started(all, i);
    switch (form_) {
      case Form::foreach: return step_foreach(all);
      case Form::loop: return step_loop(all);
      case Form::fused: return step_fused(all);
    }
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : tensors_of(s))
        if (t) out.push_back(t);
    return out;
  }

  bool supports_amp_scaling() const override { return form_ == Form::fused; }

 protected:
  using State = OneState;

  explicit StatefulOptimizer(Form form = Form::loop, StatesMade made = StatesMade::before_step) : form_(form), made_(made) {}

  // The first contents of a parameter's state. Those that depend on the step itself are made there.
  virtual void init(State&, const Parameter&) {}
  // A form that works in place allocates nothing.
  virtual void step_foreach(const std::vector<Parameter*>&) {}
  virtual void step_loop(const std::vector<Parameter*>&) {}
  virtual void step_fused(const std::vector<Parameter*>&) {}

  Form form() const { return form_; }
  State& state(size_t position) { return states_[position]; }
  // The state, made if it is not there yet.
  State& started(const std::vector<Parameter*>& all, size_t position) {
    if (!started_[position]) init(states_[position], *all[position]);
    started_[position] = true;
    return states_[position];
  }
  // One tensor of each state, as foreach kernels take them.
  template <class Owner>
  Tensors each(const Positions& positions, Tensor Owner::*tensor) const {
    return gather(positions, [&](size_t i) { return states_[i].*tensor; });
  }

 private:
  void prepare(const std::vector<Parameter*>& all) {
    states_.resize(all.size());
    started_.resize(all.size());
  }

  Form form_;
  StatesMade made_;
  std::vector<State> states_;  // by position in the parameter list
  std::vector<bool> started_;
};

}  // namespace plimsoll
