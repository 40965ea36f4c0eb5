// WorkCount: what a rank that is alone computes between its calls, as costs
// (trace/work_costs.h), counted where LibTorch dispatches it.
//
// The memory that the rank holds is counted with it (runtime/device/counted_memory.h), where
// count_allocations() was called before.
//
// Counting slows down what is counted. So times are taken in a second look at the same rank, which
// counts nothing. They are those that the thread had a processor for.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/record_function.h>

#include "runtime/device/counted_memory.h"
#include "runtime/job/lone_ranks.h"
#include "runtime/record/recorder.h"
#include "trace/work_costs.h"

namespace lockstep::runtime {

// Listens to `recorder`, which must outlive it, while it lives, on the thread that trains; one at a
// time in a thread. What the other ranks' answers take to be made up is nobody's work and left out.
class WorkCount {
 public:
  WorkCount(Recorder& recorder, LoneRanks::Costs kept);
  ~WorkCount();
  WorkCount(const WorkCount&) = delete;
  WorkCount& operator=(const WorkCount&) = delete;

  std::vector<trace::WorkCost> take();
  // Where times are kept: of processors, that all other threads have taken since this began.
  std::int64_t beside_nanos() const;

 private:
  void hear(Recorder::Moment moment, std::int64_t number);
  void end_stretch(trace::WorkCost::Before before, std::int64_t id);
  // Of a step, or of what comes between two.
  void end_part(trace::WorkCost::Before before, std::int64_t number);
  void begin_stretch();
  void settle_memory();

  Recorder& recorder_;
  LoneRanks::Costs kept_;
  std::optional<at::CallbackHandle> handle_;
  std::optional<CountedMemory> memory_;
  std::vector<trace::WorkCost> work_;
  std::size_t settled_ = 0;  // of `work_`: those whose memory is known
  std::int64_t began_ = 0;
  std::int64_t beside_before_ = 0;
};

}  // namespace lockstep::runtime
