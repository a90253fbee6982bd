#include "step/grad_scaler.h"

#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "optim/foreach.h"

namespace plimsoll {

namespace {
Tensor amp_scalar(const char* op, DType dtype, Tape& tape) { return temporary(op, Dims{}, dtype, tape); }
}  // namespace

Tensor GradScaler::scale(const Tensor& loss) {
  Tape& tape = loss.tape();
  if (!scale_) {  // _lazy_init_scale_growth_tracker: both live as long as the scaler
    scale_ = amp_scalar("full", DType::float32, tape);
    growth_tracker_ = amp_scalar("full", DType::int32, tape);
    tape.relabel(scale_, Category::optimizer_state);
    tape.relabel(growth_tracker_, Category::optimizer_state);
  }
  const Tensor scaled = mul(loss, scale_);  // autograd keeps scale_ itself, since .to(device) makes no copy
  const bool sharded = gradients_ == Gradients::flat || gradients_ == Gradients::on_host;
  return sharded ? to(scaled, loss.dtype()) : scaled;  // ShardedGradScaler.scale: in the type of the loss
}

// _unscale_grads_: the gradients are unscaled in place, but each _MultiDeviceReplicator hands out a copy of its tensor, also
// on the device where that tensor is. DTensors: found_inf_reduce_handler of torch/distributed/tensor/_dispatch.py.
void GradScaler::unscale_grads(const std::vector<Parameter*>& parameters, const Tensor& inv_scale, const Tensor& found_inf) {
  unscaled_ = true;
  if (gradients_ == Gradients::on_host) return;
  if (gradients_ != Gradients::flat && with_gradients(parameters).empty())
    throw Error("[grad_scaler] no parameter has a gradient, so there is nothing to unscale", "unfreeze a parameter or add an adapter");
  found_inf_ = temporary("_to_copy", found_inf);  // stays in found_inf_per_device until update()
  if (with_gradients(parameters).empty()) return;
  const Tensor device_inv_scale = temporary("_to_copy", inv_scale);  // dies with its replicator
  Tensor agreed;
  for (int i = 0; gradients_ == Gradients::dtensors && i < mesh_dims_; ++i) agreed = temporary("all_reduce", found_inf_);
}

void GradScaler::unscale(const std::vector<Parameter*>& parameters) {
  Tensor inv_scale = amp_scalar("_to_copy", DType::float64, scale_.tape());  // scale.double()
  inv_scale = temporary("reciprocal", inv_scale);                            // still double
  inv_scale = amp_scalar("_to_copy", DType::float32, scale_.tape());         // .float()
  const Tensor found_inf = amp_scalar("full", DType::float32, scale_.tape());
  unscale_grads(parameters, inv_scale, found_inf);
  if (gradients_ == Gradients::on_host) const Tensor sent = temporary("_to_copy", found_inf);
}

void GradScaler::step(Optimizer& optimizer, const std::vector<Parameter*>& parameters) {
  if (!optimizer.supports_amp_scaling() || gradients_ == Gradients::on_host) {
    if (!unscaled_) unscale(parameters);
    optimizer.step(parameters);  // reading found_inf waits for the device and allocates nothing
    return;
  }
  const bool unscaled = unscaled_;
  if (!unscaled) {  // _check_inf_per_device: only looks for overflow; the kernel unscales
    const Tensor dummy_inv_scale = amp_scalar("full", DType::float32, scale_.tape());
    const Tensor found_inf = amp_scalar("full", DType::float32, scale_.tape());
    unscale_grads(parameters, dummy_inv_scale, found_inf);
  }
  const Tensor found_inf = temporary("add", found_inf_);  // sum() over devices starts at the number 0
  Tensor grad_scale;
  if (!unscaled) grad_scale = temporary("mul", scale_);  // scale * 1
  optimizer.step(parameters);
}

void GradScaler::update() {
  unscaled_ = false;
  found_inf_.reset();  // _amp_update_scale_ works in place
}

}  // namespace plimsoll
