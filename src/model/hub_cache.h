// Models that were downloaded from the Hub before: the folders in which huggingface_hub 1.0 keeps them. Nothing is fetched.
#pragma once

#include <optional>
#include <string>

namespace plimsoll {

// The folder of a model ("Qwen/Qwen3-8B") that holds its config.json: the snapshot of its main branch, else the newest one. It is looked
// for where $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub say, as huggingface_hub does.
std::optional<std::string> in_hub_cache(const std::string& id);

}  // namespace plimsoll
