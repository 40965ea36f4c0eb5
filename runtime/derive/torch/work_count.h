// WorkCount: the costs (trace/work_costs.h) of what a rank computes between its calls, counted
// where LibTorch dispatches operations. Only for a rank that runs alone.
//
// The memory that the rank holds is counted, too (runtime/device/counted_memory.h), if
// count_allocations() was called before.
//
// Counting slows down what it counts. So times are measured in a second run of the rank that counts
// nothing. They are the thread's CPU time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/record_function.h>

#include "runtime/device/counted_memory.h"
#include "runtime/job/lone_ranks.h"
#include "runtime/record/recorder.h"
#include "trace/work_costs.h"

namespace lockstep::runtime {

// Listens to `recorder`, which must outlive it, on the thread that trains; one per thread. Leaves
// out the time spent on making up the other ranks' answers.
class WorkCount {
 public:
  WorkCount(Recorder& recorder, LoneRanks::Costs kept);
  ~WorkCount();
  WorkCount(const WorkCount&) = delete;
  WorkCount& operator=(const WorkCount&) = delete;

  // The costs of all segments so far.
  std::vector<trace::WorkCost> take();
  // CPU time of all other threads since this was created, in ns; 0 if no times are measured.
  std::int64_t other_threads_nanos() const;

 private:
  void on_moment(Recorder::Moment moment, std::int64_t number);
  void end_segment(trace::WorkCost::Before before, std::int64_t id);
  // Ends a step, or the part between two steps.
  void end_part(trace::WorkCost::Before before, std::int64_t number);
  void begin_segment();
  // Gives the segments of the part that ended their memory, which is known only at its end.
  void assign_memory();

  Recorder& recorder_;
  LoneRanks::Costs kept_;
  std::optional<at::CallbackHandle> handle_;
  std::optional<CountedMemory> memory_;
  std::vector<trace::WorkCost> work_;
  std::size_t memory_known_ = 0;  // entries of `work_` whose memory is known
  std::int64_t began_ = 0;
  std::int64_t other_threads_began_ = 0;
};

}  // namespace lockstep::runtime
