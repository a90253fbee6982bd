// What a recorded run says about its memory, as a document with a picture of the segments, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "diagnose/snapshot_story.h"
#include "report/document.h"
#include "report/page.h"

namespace plimsoll {

doc::Document story_document(const Snapshot& snapshot, const SnapshotStory& story);
nlohmann::ordered_json story_json(const Snapshot& snapshot, const SnapshotStory& story);
// The tables of the same for a page.
std::vector<PageTable> story_tables(const SnapshotStory& story);

// One row per segment, those with the largest holes first: what is used, what is free, where.
doc::Table segment_map(const std::vector<PlacedSegment>& segments, size_t most);

}  // namespace plimsoll
