// The autograd graph: nodes, what they keep for backward, and how an op records one. What a backward closure captures is
// what autograd saves; it is captured as Saved so that activation checkpointing can pack it.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>

#include "tensor/inline_vector.h"
#include "tensor/tape.h"

namespace plimsoll {

struct Edge {
  Ref<Node> node;  // null: this input needs no gradient
  uint16_t input_nr = 0;
};

struct TensorMeta {
  Dims sizes;
  DType dtype;
};

using Edges = InlineVector<Edge, 4>;

// Which inputs of a node want a gradient.
class Needs {
 public:
  explicit Needs(const Edges& edges) : edges_(edges) {}
  bool operator[](size_t i) const { return static_cast<bool>(edges_[i].node); }

 private:
  const Edges& edges_;
};

struct Node {
  uint32_t refs = 0;
  uint32_t bytes = 0;         // of the whole object, for the pool it is from
  uint32_t dependencies = 0;  // engine: edges into this node that have not delivered
  uint64_t visited = 0;       // engine: the backward run that counted this node
  uint64_t sequence = 0;
  ScopeId scope = 0;
  const char* name = "";
  Tape* tape = nullptr;
  Edges next;                           // one per input of the op
  InlineVector<TensorMeta, 1> outputs;  // one per output of the op: what its gradient must look like
  Tensors buffer;                       // engine: gradients collected so far
  // Attributes of a Python function's ctx: they live as long as the node.
  Tensors kept;
  std::shared_ptr<const void> kept_closure;

  virtual ~Node() = default;
  virtual Tensors apply(Tensors& grads) = 0;
  virtual void release_variables() = 0;
  static void destroy(Node* n) { n->tape->destroy_deferred(n); }
};

// In the memory of that tape.
template <class N, class... Args>
N* make_node(Tape& tape, Args&&... args) {
  N* node = new (tape.node_memory.take(sizeof(N))) N(std::forward<Args>(args)...);
  node->bytes = sizeof(N);
  node->tape = &tape;
  return node;
}

template <class F>
struct NodeOf final : Node {
  explicit NodeOf(F f) : function(std::move(f)) {}
  Tensors apply(Tensors& grads) override { return (*function)(grads, Needs(next)); }
  void release_variables() override { function.reset(); }
  std::optional<F> function;
};

// A tensor kept for backward. Under a checkpoint only a ticket is kept, and unpack() recomputes the block once; with offloaded
// activations, the host copy; unpack() copies it back.
class Saved {
 public:
  Saved();
  Saved(Saved&&) noexcept;
  Saved& operator=(Saved&&) noexcept;
  ~Saved();
  static Saved pack(const Tensor& t);

  bool defined() const;
  Tensor unpack() const;

 private:
  struct HostCopy;
  void drop();
  Tensor tensor_;
  Ref<CheckpointFrame> frame_;
  uint32_t ticket_ = 0;
  std::unique_ptr<HostCopy> host_;
};

// One call of one op: names it for the trace, knows whether autograd records it, and records it.
// Save inputs before allocating the output and outputs after, as PyTorch does: a checkpoint stops recomputing in between.
class Op {
 public:
  Op(Tape& tape, const char* name, std::initializer_list<const Tensor*> inputs);
  Op(Tape& tape, const char* name, const Tensors& inputs);
  ~Op() {
    tape_.op = outer_;
    if (tape_.dataflow || tape_.work) end_call();
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  bool recording() const { return recording_; }
  bool needs(size_t i) const { return recording_ && edges_[i].node; }
  Saved save(const Tensor& t) const { return recording_ && t.defined() ? Saved::pack(t) : Saved(); }
  Saved save_if(bool wanted, const Tensor& t) const { return wanted ? save(t) : Saved(); }

  // Keeps a tensor as a Python autograd function keeps what it sets on its ctx: hooks do not see it, and backward does not
  // release it.
  void keep(const Tensor& t) {
    if (recording_ && t.defined()) kept_.push_back(t);
  }
  void keep(std::shared_ptr<const void> closure) { kept_closure_ = std::move(closure); }

  // For the count of bytes: an input that autograd is not told of; or that only a part of the inputs is read.
  void reads(const Tensor& t) const {
    if (tape_.work) tape_.work->reads(t);
  }
  void reads_part() const {
    if (tape_.work) tape_.work->reads_part();
  }

  // Connects `out` to its inputs. `backward` is Tensors(Tensors& grads, Needs needs): one result per input.
  template <class F>
  Tensor finish(Tensor out, F backward) {
    if (tape_.dataflow) result(out);
    if (recording_) {
      Ref<Node> node = make(std::move(backward));
      attach(node, out, 0);
    }
    return out;
  }
  template <class F>
  void finish(Tensors& outs, F backward) {
    if (tape_.dataflow)
      for (Tensor& out : outs) result(out);
    if (!recording_) return;
    Ref<Node> node = make(std::move(backward));
    for (size_t i = 0; i < outs.size(); ++i) attach(node, outs[i], static_cast<uint16_t>(i));
  }

 private:
  template <class F>
  Ref<Node> make(F backward) {
    Ref<Node> node(make_node<NodeOf<F>>(tape_, std::move(backward)));
    init(*node);
    return node;
  }
  void add_input(const Tensor* t);
  void init(Node& node);
  void end_call() const;           // to the Dataflow and the count of work
  void result(Tensor& out) const;  // to the Dataflow
  static void attach(const Ref<Node>& node, Tensor& out, uint16_t nr);

  Tape& tape_;
  const char* name_;
  const char* outer_;
  bool recording_ = false;
  uint64_t sequence_ = 0;
  Edges edges_;
  Tensors kept_;
  std::shared_ptr<const void> kept_closure_;
};

Tensor make_parameter(Tape& tape, Parameter& p, const Dims& sizes, DType dtype, bool requires_grad = true);

// Makes a fresh tensor a leaf whose gradient is collected though nobody reads it: both live as long as the graph does.
void make_leaf(Tensor& t);
// What such a leaf has collected; undefined: nothing.
Tensor leaf_gradient(const Tensor& leaf);

// Runs backward from a scalar loss in PyTorch's order; `seed` is its gradient and is held by the caller as Python does.
void run_backward(const Tensor& loss, const Tensor& seed);
// From several tensors at once; also within a backward.
void run_backward(const Tensors& roots, const Tensors& seeds);
// torch.autograd.grad(..., allow_unused=True, retain_graph=True): what arrives at each of `leaves`, undefined where nothing does. It is
// not accumulated, and the graph stays. Also within a backward that waits for the same leaves.
Tensors gradients(const Tensors& roots, const Tensors& seeds, const Tensors& leaves);
// Where the gradient of a tensor goes; an empty edge when it wants none.
Edge gradient_edge(const Tensor& t);
// Called by the engine for each gradient that reaches its parameter.
void accumulate_grad(Parameter& p, Tensor grad);
void accumulate_grad(const Tensor& value, Tensor& sum, Tensor grad);

}  // namespace plimsoll
