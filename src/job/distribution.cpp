#include "job/distribution.h"

#include "job/job.h"

namespace plimsoll {

bool is_distributed(const Job& job) { return job.program.has_stages() || job.parallel.any(); }

int64_t world_size(const Job& job) {
  if (job.program.megatron) return job.program.megatron->world;
  return job.program.torchtitan ? job.program.torchtitan->world : job.parallel.world();
}

int64_t replica_count(const Job& job) {
  if (job.program.framework == Framework::jax) return job.program.jax.replicas;
  if (job.program.megatron) return job.program.megatron->data();
  return job.program.torchtitan ? job.program.torchtitan->data() : job.parallel.replicas();
}

bool shards_parameters(const Job& job) { return job.program.has_stages() || job.parallel.shards_parameters(); }

std::string layout_text(const Job& job) {
  if (job.program.megatron) return to_string(*job.program.megatron);
  return job.program.torchtitan ? to_string(*job.program.torchtitan) : to_string(job.parallel);
}

}  // namespace plimsoll
