// Recorded behaviour of the real caching allocator, and of GPUs.
#include "evidence/evidence.h"
#include "snapshot_cases.h"

namespace plimsoll::allocator_evidence {
namespace {

TEST(Allocator, ReproducesEveryCase) { EXPECT_GE(check_cases(evidence("truth/allocator/dev")), 200); }

// With the state that was found at the start of each recording: peaks and every placement come back.
TEST(Allocator, GpuCasesComeBackFromTheirSnapshots) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(evidence("truth/allocator/dev"))) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("gpu_") || name.find(".case") == std::string::npos) continue;
    ++cases;
    expect_case_from_snapshot(entry.path());
  }
  EXPECT_EQ(cases, 94);
}

}  // namespace
}  // namespace plimsoll::allocator_evidence
