// Before a step, neighbouring stages of a pipeline send each other the lengths of its
// micro-batches, as pipelines with variable sequence lengths do before they exchange tensors. Here
// it shows that the stages read different batches before any of them computes.
//
// A send waits for its receive. So stages an even number of stages before the last one send first,
// and the others receive first: neighbours are one stage apart, so no two neighbours do the same.
//
//  group "replica<k>.lengths"   the ranks of a replica; one int64 [micro-batches, 3] each way
#pragma once

#include <vector>

#include "runtime/groups/process_groups.h"
#include "runtime/models/batch.h"
#include "runtime/record/recorder.h"
#include "runtime/strategies/pipeline_schedule.h"

namespace lockstep::runtime {

class StageLengths {
 public:
  // Creates the group: collective. The number of ranks must be a multiple of `stages`.
  // `sent_first`: all stages send first, which is a mistake (Fault::lengths_sent_first). `groups`
  // and `recorder` must outlive it.
  StageLengths(int stages, ProcessGroups& groups, Recorder& recorder, bool sent_first);

  // Collective over the neighbours. Throws std::runtime_error where a neighbour has other lengths,
  // and what c10d throws.
  void exchange(const std::vector<Batch>& batches);

 private:
  const PipelineStage& stage_;
  Recorder& recorder_;
  bool sends_first_;
  ProcessGroups::Ptr group_;
};

}  // namespace lockstep::runtime
