#include "runtime/worker/processor_policy.h"

#include <sched.h>

namespace lockstep {

void keep_the_processor_when_waking() {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  const sched_param usual{};
  // Refused where a sandbox forbids it; the job is then as slow as it was.
  static_cast<void>(sched_setscheduler(0, SCHED_BATCH, &usual));
}

}  // namespace lockstep
