// A module is a name in a tree that owns parameters and buffers; its scope labels what its forward allocates. Models are
// structs of modules with the same names as their Python reference, so that labels match the user's own code.
#pragma once

#include <deque>
#include <memory>

#include "job/loss_kernel.h"
#include "nn/blocks.h"
#include "nn/tuning.h"
#include "tensor/node.h"

namespace plimsoll {

class ModuleHooks;
struct Batch;
struct TensorParallel;

// What every module of one model shares.
struct Build {
  Tape& tape;
  DType dtype = DType::float32;  // of parameters; buffers keep their own
  CheckpointPlan checkpointing;
  Tensor position_ids;               // an argument of blocks and attentions that they only pass on; undefined: none
  int block_depth = 0;               // blocks of a torchvision network that we are in
  std::deque<Parameter> parameters;  // stable addresses
  Tensors buffers;
  // use_cache: keys and values of every causal attention, in the order of the calls; null: off.
  Tensors* cache = nullptr;
  Version transformers = Platform{}.transformers;
  Tuning tuning;                      // what is trained, and how
  bool adapters_active = true;        // false: forwards go past them
  Tensor adapter_multiplier;          // of the AI Toolkit's network: a number for each sample
  DType load_dtype = DType::float32;  // of weights before they are quantised
  Tensor shared_code;                 // bitsandbytes' table of 8-bit values, one for all layers
  bool input_require_grads = false;   // enable_input_require_grads: the embeddings' result collects a gradient
  const Batch* batch = nullptr;       // of the forward that runs, for its mask and positions; null: neither is given
  LossSettings loss;
  bool on_meta = false;                             // parameters have no memory of their own: whoever shards them gives it
  ModuleHooks* hooks = nullptr;                     // around the forwards of the modules that they wrap
  const TensorParallel* tensor_parallel = nullptr;  // null: every layer is whole

  explicit Build(Tape& t) : tape(t) {}
  bool eager() const { return tape.dialect.attention == AttentionKernel::eager; }
  // Before 4.48 each model of transformers had attention code of its own, and the cache held what it was given.
  bool legacy() const { return transformers < Version{4, 48}; }
};

class Module {
 public:
  explicit Module(Build& build) : build_(build) {}
  Module(Module& parent, std::string_view name);
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Build& build() const { return build_; }
  Tape& tape() const { return build_.tape; }
  ScopeId scope() const { return scope_; }
  std::string path() const { return tape().trace.scope_path(scope_); }
  bool has_children() const { return !children_.empty(); }
  const std::vector<const Module*>& children() const { return children_; }
  const std::vector<Parameter*>& own_parameters() const { return own_; }  // without those of children
  // In the order of Python's Module.parameters(): own first, then each child; a tied parameter once.
  std::vector<Parameter*> parameters() const;

 protected:
  // A parameter of the model: of the build's type, trained unless the build's tuning says otherwise.
  Tensor parameter(std::string_view name, const Dims& sizes);
  // One that the tuning adds.
  Tensor parameter(std::string_view name, const Dims& sizes, DType dtype, bool trained);
  // Labels this module's own parameters, from now on, as those of a part of it: PEFT's "base_layer".
  void keep_parameters_in(std::string_view part) { parameter_scope_ = tape().trace.add_scope(scope_, part); }
  ScopeId parameter_scope() const { return parameter_scope_; }
  // Another module's parameter under this module's name too; what forward must use.
  Tensor tied(std::string_view name, const Tensor& value);
  Tensor buffer(std::string_view name, const Dims& sizes, DType dtype = DType::float32);
  // register_buffer under a name that is taken: the old tensor goes.
  void rebind_buffer(Tensor& slot, const Tensor& value);

 private:
  void collect(std::vector<Parameter*>& out) const;
  Tensor trained_copy(std::string_view name, Parameter& original, const std::string& root);

  Build& build_;
  ScopeId scope_ = 0, parameter_scope_ = 0;
  std::vector<Parameter*> own_;
  std::vector<const Module*> children_;
};

class BlockDepth {
 public:
  explicit BlockDepth(Build& build) : build_(build) { ++build.block_depth; }
  ~BlockDepth() { --build_.block_depth; }

 private:
  Build& build_;
};

// nn.ModuleList or nn.Sequential of one type: children "0", "1", ...
template <class T>
class ModuleList : public Module {
 public:
  ModuleList(Module& parent, std::string_view name) : Module(parent, name) {}
  template <class... Args>
  T& add(Args&&... args) {
    return items_.emplace_back(*this, std::to_string(items_.size()), std::forward<Args>(args)...);
  }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }

 private:
  std::deque<T> items_;
};

// The hook of transformers' enable_input_require_grads on the input embeddings.
void require_input_grad(Build& build, Tensor& embeddings);

// Marks the body of a forward: what it allocates is labelled with this module.
class Forward {
 public:
  explicit Forward(const Module& m) : guard_(m.tape(), m.scope()) {}

 private:
  ScopeGuard guard_;
};

}  // namespace plimsoll
