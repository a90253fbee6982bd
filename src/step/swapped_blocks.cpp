#include "step/swapped_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

namespace plimsoll {

namespace {

struct BlockPlace {
  std::string list;  // "model.layers"
  int64_t index = 0;
};

// Of the outermost numbered module that a parameter is in; none: of no block.
std::optional<BlockPlace> place_of(const std::string& path) {
  std::istringstream parts(path);
  std::string list;
  for (std::string part; std::getline(parts, part, '.');) {
    const bool number = part.size() < 10 && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    if (number && !part.empty()) return BlockPlace{list, std::stoll(part)};
    list += (list.empty() ? "" : ".") + part;
  }
  return std::nullopt;
}

std::optional<BlockPlace> block_of(const Tape& tape, const Parameter& p) {
  return p.value.storage().bytes == 0 ? std::nullopt : place_of(tape.trace.scope_path(tape.scope_of(p.value)));
}

// How many blocks of each list are swapped, the last ones. Flux has two lists, of which sd-scripts takes N / 2 double and twice the rest of
// single blocks, and leaves two of each (kohya-ss/sd-scripts, flux_models.py, Flux.enable_block_swap). Other models: N of the longest.
std::map<std::string, int64_t> shares_of(const std::map<std::string, int64_t>& lists, int64_t blocks) {
  for (const auto& [name, single] : lists) {
    const size_t at = name.rfind("single_transformer_blocks");
    const auto joint = at == std::string::npos ? lists.end() : lists.find(name.substr(0, at) + "transformer_blocks");
    if (joint == lists.end()) continue;
    const int64_t of_joint = blocks / 2, of_single = (blocks - of_joint) * 2;
    if (of_joint > joint->second - 2 || of_single > single - 2)
      throw Error(fmt::format("[job] swap_blocks {}: that is {} double and {} single blocks, and two of {} and of {} stay", blocks,
                              of_joint, of_single, joint->second, single),
                  "choose fewer");
    return {{joint->first, of_joint}, {name, of_single}};
  }
  const auto longest = std::max_element(lists.begin(), lists.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (longest == lists.end() || blocks >= longest->second)
    throw Error(fmt::format("[job] swap_blocks {}: the model has {} blocks, and one at least stays", blocks,
                            longest == lists.end() ? 0 : longest->second),
                "choose fewer");
  return {{longest->first, blocks}};
}

}  // namespace

Bytes take_off_device(Tape& tape, const std::vector<Parameter*>& weights) {
  Bytes taken;
  std::set<StorageId> never_there;
  for (Parameter* p : weights) {
    taken += Bytes{p->value.storage().bytes};
    never_there.insert(p->value.storage().id);
    p->value.body().storage = tape.allocate(0);
  }
  std::erase_if(tape.trace.events, [&](const Event& e) {
    const bool of_storage = e.kind == Event::Kind::alloc || e.kind == Event::Kind::free || e.kind == Event::Kind::relabel;
    return of_storage && never_there.contains(e.storage);
  });
  return taken;
}

Bytes swap_blocks(Tape& tape, const std::vector<Parameter*>& parameters, int64_t blocks) {
  std::map<std::string, int64_t> lists;  // how many blocks each has
  for (const Parameter* p : parameters)
    if (const std::optional<BlockPlace> place = block_of(tape, *p)) lists[place->list] = std::max(lists[place->list], place->index + 1);
  const std::map<std::string, int64_t> shares = shares_of(lists, blocks);
  std::vector<Parameter*> swapped;
  for (Parameter* p : parameters) {
    const std::optional<BlockPlace> place = block_of(tape, *p);
    const auto share = place ? shares.find(place->list) : shares.end();
    if (share == shares.end() || place->index < lists[share->first] - share->second) continue;
    if (p->value.requires_grad() || p->name != "weight") continue;
    swapped.push_back(p);
  }
  if (swapped.empty())
    throw Error(fmt::format("[job] swap_blocks {}: no weight of these blocks is frozen, and only frozen ones are swapped", blocks),
                "add an adapter (lora: {r: 16}), or leave swap_blocks out");
  return take_off_device(tape, swapped);
}

}  // namespace plimsoll
