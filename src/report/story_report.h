// What a recorded run says about its memory, as text with a picture of the segments, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "diagnose/snapshot_story.h"
#include "report/page.h"
#include "report/style.h"

namespace plimsoll {

std::string story_text(const Snapshot& snapshot, const SnapshotStory& story, const Style& style);
nlohmann::ordered_json story_json(const Snapshot& snapshot, const SnapshotStory& story);
// The tables of the same for a page.
std::vector<PageTable> story_tables(const SnapshotStory& story);

// One line a segment, those with the largest holes first: what is used, what is free, where. Plain data in, text out.
std::string segment_map(const std::vector<PlacedSegment>& segments, size_t most, const Style& style);

}  // namespace plimsoll
