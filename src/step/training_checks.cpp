#include "step/training_checks.h"

#include "optim/optimizer.h"
#include "step/deepspeed.h"
#include "step/in_backward.h"
#include "step/master_weights.h"
#include "step/model_of_job.h"
#include "step/offloaded_optimizer.h"
#include "step/sharding_checks.h"

namespace plimsoll {

void check_training(const Job& job, Problems& out) {
  succeeds([&] { make_optimizer(job.optimizer.name, job.optimizer.args); }, out);
  check(job.parallel, out);
  check(job.tuning, out);
  check_step_in_backward(job, out);
  check_master_weights(job, out);
  check_offloaded_optimizer(job, out);
  check_fsdp(job, out);
  check_deepspeed(job, out);
  const ModelEntry* model = nullptr;
  if (succeeds([&] { model = &entry_of(job); }, out)) check_tensor_parallel(job, *model, out);
  if (job.ema) check(job.averaging, out);
}

}  // namespace plimsoll
