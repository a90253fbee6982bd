#include "step/sharded_model.h"

#include <algorithm>

#include "ops/reshape.h"

namespace plimsoll {

std::optional<DType> type_of(WireType t) {
  switch (t) {
    case WireType::own: return std::nullopt;
    case WireType::fp32: return DType::float32;
    case WireType::bf16: return DType::bfloat16;
    case WireType::fp16: return DType::float16;
  }
  return std::nullopt;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

namespace {

bool is_number(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::string_view last_name(const std::string& path) {
  const size_t dot = path.rfind('.');
  return std::string_view(path).substr(dot == std::string::npos ? 0 : dot + 1);
}

}  // namespace

bool is_list(const Module& m) {
  return m.has_children() &&
         std::all_of(m.children().begin(), m.children().end(), [](const Module* c) { return is_number(last_name(c->path())); });
}

Tensor from_pool(Stream stream, Tensor t) {
  if (t.storage().bytes > 0) t.tape().trace.events.back().value = static_cast<uint8_t>(stream);
  return t;
}

void resize_up(Tape& tape, Storage& s, int64_t bytes) {
  const Ref<Storage> fresh = tape.allocate(bytes);
  s.id = fresh->id;
  s.bytes = std::exchange(fresh->bytes, 0);
}

void resize_to_nothing(Tape& tape, Storage& s) {
  tape.on_free(s);
  s.bytes = 0;
}

void look_at(Tensor& t, const Ref<Storage>& storage, const Dims& sizes, DType dtype) {
  TensorBody& body = t.body();
  body.storage = storage;
  body.sizes = sizes;
  body.strides = contiguous_strides(sizes);
  body.dtype = dtype;
}

Tensors cast_inputs(Tensors inputs, DType dtype) {
  for (Tensor& t : inputs)
    if (t && is_floating(t.dtype()) && t.dtype() != dtype) t = to(t, dtype);
  return inputs;
}

Batch cast_inputs(const Batch& batch, DType dtype) {
  Batch cast = batch;
  const Tensors numbers = cast_inputs(Tensors{batch.pixel_values, batch.numbers}, dtype);
  cast.pixel_values = numbers[0];
  cast.numbers = numbers[1];
  cast.own = cast_inputs(batch.own, dtype);
  return cast;
}

Tensor with_gradient_hook(const Tensor& output, const std::function<void()>& hook) {
  Op op(output.tape(), "pre_backward", {&output});
  return op.finish(detach(output), [hook](Tensors& grads, Needs) {
    hook();
    return std::move(grads);
  });
}

}  // namespace plimsoll
