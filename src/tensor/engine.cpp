// The backward pass: PyTorch's engine on one thread.
#include <deque>
#include <queue>
#include <unordered_set>

#include "tensor/iterator.h"
#include "tensor/node.h"
#include "tensor/transposed_copy.h"

namespace plimsoll {

namespace {

struct LowerSequence {
  bool operator()(const Node* a, const Node* b) const { return a->sequence < b->sequence; }
};
// The same heap as PyTorch's ready queue, so that equal sequence numbers (AccumulateGrad) come out in the same order.
using ReadyQueue = std::priority_queue<Node*, std::vector<Node*>, LowerSequence>;

// A node that an outer backward waits for cannot be counted again: it would lose what it has collected.
void begin_count(Node& node, uint64_t run) {
  if (node.visited != 0 && node.dependencies > 0)
    throw Error("[backward] reentrant checkpointing of a block that shares a weight with the rest of the model is not modelled",
                "set reentrant to false in checkpointing");
  node.visited = run;
  node.dependencies = 0;
}

void count_dependencies(const std::vector<Node*>& roots, uint64_t run) {
  std::vector<Node*> stack;
  for (Node* root : roots)
    if (root->visited != run) {
      begin_count(*root, run);
      stack.push_back(root);
    }
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (const Edge& e : node->next) {
      Node* next = e.node.get();
      if (!next) continue;
      if (next->visited != run) {
        begin_count(*next, run);
        stack.push_back(next);
      }
      ++next->dependencies;
    }
  }
}

// at::sum_to: leading dimensions are summed even when they are 1, so a gradient of another shape is always a new tensor.
Tensor sum_to(const Tensor& grad, const Dims& sizes) {
  Op op(grad.tape(), "sum", {});
  op.reads(grad);
  return empty(grad.tape(), sizes, grad.dtype());
}

Tensor cast(const Tensor& grad, DType dtype) {
  Op op(grad.tape(), "_to_copy", {});
  op.reads(grad);
  return empty_like(grad, dtype);
}

Tensor sum(const Tensor& a, const Tensor& b) {
  Op op(a.tape(), "add", {});
  op.reads(a);
  op.reads(b);
  return empty_strided(a.tape(), a.sizes(), iterator_strides(a.sizes(), {&a, &b}), promote(a.dtype(), b.dtype()));
}

// engine.cpp validate_outputs: a gradient is summed to the shape and cast to the type of what it is the gradient of. One that nobody asked
// for (the part of a cat that needs none) is left as it is: it lives until the node is done.
void validate(const Node& node, Tensors& grads) {
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i]) continue;
    const Edge& e = node.next[i];
    if (!e.node) continue;
    const TensorMeta& meta = e.node->outputs[e.input_nr];
    if (!(grads[i].sizes() == meta.sizes)) grads[i] = sum_to(grads[i], meta.sizes);
    if (grads[i].dtype() != meta.dtype) grads[i] = cast(grads[i], meta.dtype);
  }
}

// sum += grad, of which nothing is seen but the time.
void add_in_place(const Tensor& sum, const Tensor& grad) {
  Op op(sum.tape(), "add_", {});
  op.reads(sum);
  op.reads(grad);
}

// InputBuffer::accumulate: the first gradient is moved in; later ones are added in place when nobody else sees the memory.
void add_to_buffer(Tensor& slot, Tensor grad) {
  if (!grad) return;
  if (!slot) {
    slot = std::move(grad);
    return;
  }
  const bool fits = slot.storage().bytes == checked_mul(slot.numel(), size_of(slot.dtype())) && slot.dtype() == grad.dtype();
  if (fits && slot.is_sole_owner() && slot.tape().dialect.rules.adds_gradients_in_place) return add_in_place(slot, grad);
  if (fits && slot.tape().dialect.recorder) {  // the recorder sees such a sum only at the next allocation
    grad.reset();
    slot = sum(slot, slot);
    return;
  }
  slot = sum(slot, grad);
}

void run_hook(const Node& node, Tensors& grads) {
  const auto hook = node.tape->gradient_hooks.extract(&node);
  if (hook && grads[0]) grads[0] = hook.mapped()(grads[0]);
}

void evaluate(Node& node, ReadyQueue& ready, bool retain_graph) {
  Tape& tape = *node.tape;
  ScopeGuard scope(tape, node.scope);
  Tensors results;
  {
    Tensors grads = std::move(node.buffer);
    node.buffer.clear();
    if (!tape.gradient_hooks.empty()) run_hook(node, grads);
    results = node.apply(grads);
    validate(node, results);
  }
  if (!retain_graph) node.release_variables();
  for (size_t i = 0; i < results.size(); ++i) {
    const Edge& e = node.next[i];
    if (!e.node) continue;
    Node& next = *e.node;
    next.buffer.resize(next.outputs.size());
    Tensor& slot = next.buffer[e.input_nr];
    if (slot && tape.dialect.rules.holds_added_gradients)
      add_to_buffer(slot, results[i]);
    else
      add_to_buffer(slot, std::move(results[i]));
    if (--next.dependencies == 0) ready.push(&next);
  }
}

// The roots' gradients, and the nodes that need nothing else.
ReadyQueue begin(const Tensors& roots, const Tensors& seeds) {
  std::vector<Node*> nodes;
  for (const Tensor& root : roots) {
    if (!root.body().grad_fn) throw Error("[backward] nothing in this model requires a gradient", "unfreeze a parameter or add an adapter");
    nodes.push_back(root.body().grad_fn.get());
  }
  count_dependencies(nodes, roots.front().tape().next_sequence() + 1);
  ReadyQueue ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i]->buffer.resize(nodes[i]->outputs.size());
    nodes[i]->buffer[roots[i].body().output_nr] = seeds[i];
    if (nodes[i]->dependencies == 0 && std::find(nodes.begin(), nodes.begin() + i, nodes[i]) == nodes.begin() + i) ready.push(nodes[i]);
  }
  return ready;
}

// A leaf's node during a backward of its own: what an outer one has counted and collected comes back afterwards.
class CapturedLeaf {
 public:
  explicit CapturedLeaf(const Tensor& leaf)
      : edge_(gradient_edge(leaf)),
        visited_(std::exchange(node().visited, 0)),
        dependencies_(std::exchange(node().dependencies, 0)),
        buffer_(std::exchange(node().buffer, {})) {}
  ~CapturedLeaf() {
    node().visited = visited_;
    node().dependencies = dependencies_;
    node().buffer = std::move(buffer_);
  }
  CapturedLeaf(const CapturedLeaf&) = delete;
  CapturedLeaf& operator=(const CapturedLeaf&) = delete;

  Node& node() const { return *edge_.node; }
  Tensor take() { return node().buffer.empty() ? Tensor() : std::move(node().buffer[edge_.input_nr]); }

 private:
  Edge edge_;
  uint64_t visited_;
  uint32_t dependencies_;
  Tensors buffer_;
};

}  // namespace

void run_backward(const Tensor& loss, const Tensor& seed) { run_backward(Tensors{loss}, Tensors{seed}); }

void run_backward(const Tensors& roots, const Tensors& seeds) {
  GradGuard no_grad(roots.front().tape(), false);
  for (ReadyQueue ready = begin(roots, seeds); !ready.empty();) {
    Node* node = ready.top();
    ready.pop();
    evaluate(*node, ready, false);
  }
}

Tensors gradients(const Tensors& roots, const Tensors& seeds, const Tensors& leaves) {
  GradGuard no_grad(roots.front().tape(), false);
  std::deque<CapturedLeaf> captured;
  std::unordered_set<const Node*> ends;
  for (const Tensor& leaf : leaves) ends.insert(&captured.emplace_back(leaf).node());
  for (ReadyQueue ready = begin(roots, seeds); !ready.empty();) {
    Node* node = ready.top();
    ready.pop();
    if (!ends.contains(node)) evaluate(*node, ready, true);
  }
  Tensors out;
  for (CapturedLeaf& leaf : captured) out.push_back(leaf.take());
  return out;
}

namespace {
// utils::obeys_layout_contract. What is a part of something larger is to have a contiguous gradient.
bool laid_out_like(const Tensor& grad, const Tensor& variable) {
  if (!is_non_overlapping_and_dense(variable.sizes(), variable.strides())) return grad.is_contiguous();
  for (int i = 0; i < grad.dim(); ++i) {
    if (grad.size(i) == 1 ? grad.strides()[i] == 0 : grad.strides()[i] != variable.strides()[i]) return false;
  }
  return true;
}

// accumulate_grad.h: the first gradient is taken over if nobody else holds it and it is laid out like its parameter.
void accumulate(const Tensor& value, Tensor& sum, const Tensor& grad) {
  if (!grad) return;
  if (sum) return add_in_place(sum, grad);
  if (grad.is_only_handle() && laid_out_like(grad, value)) {
    sum = detach(grad);
  } else {
    Op op(grad.tape(), "new_empty_strided", {});
    op.reads(grad);
    sum = empty_strided(grad.tape(), value.sizes(), value.strides(), grad.dtype());
    block_transposed_copy(sum, grad);
  }
}
}  // namespace

void accumulate_grad(const Tensor& value, Tensor& sum, Tensor grad) { accumulate(value, sum, grad); }

// What came in lives until the hooks have run.
void accumulate_grad(Parameter& p, Tensor grad) {
  accumulate(p.value, p.grad, grad);
  Tape& tape = p.value.tape();
  if (p.grad && !tape.dialect.late_gradient_labels) tape.relabel(p.grad, Category::gradient);
  if (tape.gradient_arrived) tape.gradient_arrived(p);
}

}  // namespace plimsoll
