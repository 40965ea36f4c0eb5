#include "runtime/derive/torch/work_count.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/device/operation_cost.h"

namespace lockstep::runtime {
namespace {

std::int64_t nanos_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// CPU time of this thread: other load on the machine does not count.
std::int64_t thread_nanos() { return nanos_of(CLOCK_THREAD_CPUTIME_ID); }

std::int64_t nanos_of_other_threads() {
  return nanos_of(CLOCK_PROCESS_CPUTIME_ID) - thread_nanos();
}

struct Operation : at::ObserverContext {
  OperationCost cost;
};

// The costs of the current segment of this thread.
struct Counting {
  bool on = false;
  trace::WorkCost cost;
  // The operations on the stack, outermost first: whether an operation called by it is a kernel,
  // and whether its floating-point operations count.
  struct Frame {
    bool wraps = false, multiplies = false;
  };
  std::vector<Frame> frames;
  int multiplying = 0;  // number of frames with `multiplies`
};
thread_local Counting counting;

void add_flops(trace::WorkCost& cost, const OperationCost& operation) {
  auto known =
      std::find_if(cost.flops.begin(), cost.flops.end(),
                   [&](const trace::WorkCost::Flops& f) { return f.dtype == operation.dtype; });
  if (known == cost.flops.end()) known = cost.flops.insert(known, {operation.dtype, 0, 0});
  known->matmul += operation.matmul;
  known->convolution += operation.convolution;
}

std::unique_ptr<at::ObserverContext> begin_operation(const at::RecordFunction& function) {
  auto operation = std::make_unique<Operation>();
  if (counting.on) {
    operation->cost = cost_at_start(function);
    ++counting.cost.operations;
  }
  const bool multiplies = counting.multiplying == 0 && operation->cost.flops() > 0;
  counting.multiplying += multiplies ? 1 : 0;
  counting.frames.push_back({false, multiplies});
  return operation;
}

// The innermost operation that moves bytes is the kernel; its callers are wrappers. For products
// (at::convolution) the outermost operation counts, whatever implements it; its callees only add to
// the number of kernels.
void end_operation(const at::RecordFunction& function, at::ObserverContext* context) {
  if (counting.frames.empty()) return;  // it began before counting did
  const Counting::Frame frame = counting.frames.back();
  counting.frames.pop_back();
  counting.multiplying -= frame.multiplies ? 1 : 0;
  bool is_kernel = false;
  if (counting.on && context != nullptr && (!frame.wraps || frame.multiplies)) {
    const OperationCost& cost = static_cast<const Operation*>(context)->cost;
    const double bytes = bytes_at_end(function, cost);
    is_kernel = !frame.wraps && bytes >= 0;
    counting.cost.kernels += is_kernel ? 1 : 0;
    if (frame.multiplies) {
      add_flops(counting.cost, cost);
      counting.cost.product_bytes += std::max(bytes, 0.0);
    } else if (is_kernel && counting.multiplying == 0) {
      counting.cost.memory_bytes += bytes;
    }
  }
  if (!counting.frames.empty() && (frame.wraps || is_kernel)) counting.frames.back().wraps = true;
}

}  // namespace

WorkCount::WorkCount(Recorder& recorder, LoneRanks::Costs kept) : recorder_(recorder), kept_(kept) {
  if (kept_ == LoneRanks::Costs::none) return;
  counting = {};
  if (kept_ == LoneRanks::Costs::counts) {
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin_operation, end_operation)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
    memory_.emplace();
  }
  recorder_.listen(
      [this](Recorder::Moment moment, std::int64_t number) { on_moment(moment, number); });
  other_threads_began_ = nanos_of_other_threads();
  begin_segment();
}

std::int64_t WorkCount::other_threads_nanos() const {
  return kept_ == LoneRanks::Costs::times
             ? std::max<std::int64_t>(nanos_of_other_threads() - other_threads_began_, 0)
             : 0;
}

std::vector<trace::WorkCost> WorkCount::take() {
  assign_memory();
  return std::move(work_);
}

WorkCount::~WorkCount() {
  if (kept_ == LoneRanks::Costs::none) return;
  recorder_.listen({});
  if (handle_) at::removeCallback(*handle_);
  counting = {};
}

void WorkCount::on_moment(Recorder::Moment moment, std::int64_t number) {
  using Moment = Recorder::Moment;
  switch (moment) {
    case Moment::call:
      return end_segment(trace::WorkCost::Before::call, number);
    case Moment::wait:
      return end_segment(trace::WorkCost::Before::wait, number);
    case Moment::step:
      return end_part(trace::WorkCost::Before::step, number);
    case Moment::checkpoint:
      return end_part(trace::WorkCost::Before::checkpoint, number);
    case Moment::evaluation:
      return end_part(trace::WorkCost::Before::evaluation, number);
    case Moment::returned:
    case Moment::waited:
      return begin_segment();
  }
}

void WorkCount::end_part(trace::WorkCost::Before before, std::int64_t number) {
  end_segment(before, number);
  assign_memory();
  begin_segment();
}

void WorkCount::end_segment(trace::WorkCost::Before before, std::int64_t id) {
  const std::int64_t now = thread_nanos();
  trace::WorkCost cost = std::exchange(counting.cost, {});
  cost.before = before;
  cost.id = id;
  cost.step = recorder_.context().step;
  if (counting.on && kept_ == LoneRanks::Costs::times) cost.nanos = now - began_;
  counting.on = false;
  work_.push_back(std::move(cost));
  if (!memory_) return;
  memory_->pause();
  memory_->account().end_segment();
}

void WorkCount::assign_memory() {
  if (!memory_) return;
  for (const trace::SegmentMemory& memory : memory_->account().end_step())
    work_.at(memory_known_++).memory = memory;
}

void WorkCount::begin_segment() {
  counting.on = true;
  if (memory_) memory_->resume();
  began_ = thread_nanos();
}

}  // namespace lockstep::runtime
