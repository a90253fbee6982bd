#include "nn/blocks.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "job/module_names.h"
#include "nn/module.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// The number that a block has in its list: the last part of its name.
int64_t index_of(const std::string& path) {
  const std::string last = path.substr(path.rfind('.') + 1);
  const bool number = !last.empty() && std::all_of(last.begin(), last.end(), [](unsigned char c) { return std::isdigit(c); });
  return number ? std::stoll(last) : 0;
}

// Numbers are left out, so that the blocks of a list are one name.
std::string without_numbers(const std::string& path) {
  std::string out;
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');)
    if (!std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); })) out += (out.empty() ? "" : ".") + part;
  return out;
}

// "layers.0-11" is layers.0, layers.1, ... layers.11.
bool is_called(const std::string& path, const std::string& name) {
  const size_t dot = name.rfind('.'), dash = name.find('-', dot == std::string::npos ? 0 : dot);
  if (dot == std::string::npos || dash == std::string::npos) return ends_with_name(path, name);
  int64_t first = 0, last = 0, index = 0;
  const auto number = [](std::string_view text, int64_t& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size();
  };
  const size_t path_dot = path.rfind('.');
  if (path_dot == std::string::npos || !number(std::string_view(path).substr(path_dot + 1), index)) return false;
  if (!number(std::string_view(name).substr(dot + 1, dash - dot - 1), first) || !number(std::string_view(name).substr(dash + 1), last))
    return ends_with_name(path, name);
  return first <= index && index <= last && ends_with_name(path.substr(0, path_dot), name.substr(0, dot));
}

}  // namespace

bool CheckpointPlan::picks(const Module& module, bool is_block) {
  if (!on_) return false;
  has_blocks_ |= is_block;
  if (names_.empty()) return is_block && (every_ == 1 || (index_of(module.path()) + 1) % every_ == 0);
  const std::string path = module.path();
  known_.insert(path);
  bool picked = false;
  for (const std::string& name : names_)
    if (is_called(path, name)) picked = found_.insert(name).second || true;
  return picked;
}

void CheckpointPlan::require_all_found(const Trace& trace) const {
  if (!on_) return;
  for (const std::string& name : names_) {
    if (found_.contains(name)) continue;
    std::set<std::string> shorter;
    for (const std::string& path : known_) shorter.insert(without_numbers(path));
    throw Error("[checkpointing] no module that can be checkpointed is called '" + name + "'",
                "there are " + join({shorter.begin(), shorter.end()}, ", ") + "; with numbers as in the model, or by their ends");
  }
  if (names_.empty() && !has_blocks_)
    throw Error("[checkpointing] this model is no sequence of blocks", "name modules instead: checkpointing: {modules: [...]}");
  const bool any = std::any_of(style.saved_ops.begin(), style.saved_ops.end(), [&](const std::string& op) {
    return std::find(trace.names.begin(), trace.names.end(), op) != trace.names.end();
  });
  if (style.saved_ops.empty() || any) return;
  throw Error("[checkpointing] save: the model runs none of " + join(style.saved_ops, ", "),
              "its ops are " + join(trace.names, ", ").substr(2));
}

bool checkpoints(const Module& module, bool is_block) {
  CheckpointPlan& plan = module.build().checkpointing;
  return (is_block || plan.names_modules()) && plan.picks(module, is_block);
}

WorkBlock note_block(const Module& block) { return WorkBlock(block.tape(), block.scope()); }

Tensor passed_on(const Module& module) { return module.build().position_ids; }

bool is_wrapped(const Module& module) { return module.build().hooks && module.build().hooks->wraps(module); }

bool is_wrapped_layer(const Module& layer) { return layer.build().hooks && layer.build().hooks->wraps_layer(layer); }

Tensor before_function(const Module& owner, const Tensor& x) { return owner.build().hooks->before_function(owner, x); }

Tensor after_function(const Module& owner, Tensor out) { return owner.build().hooks->after_function(owner, std::move(out)); }

Tensors call_with_hooks(const Module& module, const std::function<Tensors(const Tensors&)>& run, const Tensors& inputs) {
  ModuleHooks& hooks = *module.build().hooks;
  const Tensors args = hooks.before_forward(module, inputs);
  return hooks.after_forward(module, run(args));
}

Tensors run_wrapped(const Module& block, std::function<Tensors(const Tensors&)> run, const Tensors& inputs) {
  if (!checkpoints(block, true)) return call_with_hooks(block, run, inputs);
  Tape& tape = block.tape();
  if (block.build().hooks->outside_checkpoints()) {
    const auto checkpointed = [&](const Tensors& in) { return checkpoint(tape, checkpoint_style(block), run, in); };
    return call_with_hooks(block, checkpointed, inputs);
  }
  const auto hooked = [&block, run = std::move(run)](const Tensors& in) { return call_with_hooks(block, run, in); };
  return checkpoint(tape, checkpoint_style(block), hooked, inputs);
}

const CheckpointStyle& checkpoint_style(const Module& module) { return module.build().checkpointing.style; }

}  // namespace plimsoll
