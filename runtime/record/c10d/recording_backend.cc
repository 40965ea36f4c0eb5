#include "runtime/record/c10d/recording_backend.h"

#include <utility>

#include "base/check.h"
#include "runtime/record/c10d/recording_work.h"

namespace lockstep::runtime {

RecordingBackend::RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, Recorder& recorder,
                                   Group group, std::optional<OnDevice> device)
    : ForwardingBackend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      recorder_(recorder),
      device_(std::move(device)),
      group_(recorder, group.name, std::move(group.ranks), group.description) {
  LOCKSTEP_CHECK(group_.size() == getSize(), "a group lists all its members");
}

RecordingBackend::WorkPtr RecordingBackend::make(const BackendCall& made, const Forward& forward) {
  BackendCall call = made;
  if (device_ && call.op != trace::Op::barrier) call.is_async = true;
  const std::uint32_t id = group_.issue(call);
  if (coalesced_) {
    coalesced_->push_back(id);
    return forward.now(*inner_);
  }
  return follow({id}, [&] { return forward.now(*inner_); });
}

RecordingBackend::WorkPtr RecordingBackend::follow(const std::vector<std::uint32_t>& calls,
                                                   const std::function<WorkPtr()>& forward) {
  const auto before = device_ ? device_->mark() : nullptr;
  WorkPtr work;
  try {
    if (device_) {
      device_->time.leave_out([&] { work = forward(); });
    } else {
      work = forward();
    }
  } catch (const std::exception& error) {
    for (const std::uint32_t call : calls) recorder_.complete(call, message_of(error));
    if (!calls.empty()) recorder_.raised(message_of(error), calls.front());
    recorder_.returned();
    throw;
  }
  if (work) {
    // All of a batch complete with its one work.
    for (const std::uint32_t call : calls) {
      work = c10::make_intrusive<RecordingWork>(std::move(work), recorder_, call,
                                                device_ ? &device_->watch : nullptr,
                                                device_ ? &device_->time : nullptr);
    }
  } else {
    LOCKSTEP_CHECK(device_.has_value(), "a call without a Work on a backend that queues nothing");
    const auto after = device_->mark();
    for (const std::uint32_t call : calls) device_->watch.follow(before, after, call);
  }
  recorder_.returned();
  return work;
}

void RecordingBackend::startCoalescing() {
  inner_->startCoalescing();
  coalesced_.emplace();
}

RecordingBackend::WorkPtr RecordingBackend::endCoalescing() {
  const std::vector<std::uint32_t> calls = *std::exchange(coalesced_, std::nullopt);
  return follow(calls, [&] { return inner_->endCoalescing(); });
}

void RecordingBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const std::uint32_t id = group_.issue({.op = trace::Op::barrier, .is_async = false});
  recorder_.wait(id);
  try {
    inner_->monitoredBarrier(opts, wait_all_ranks);
  } catch (const std::exception& error) {
    recorder_.complete(id, message_of(error));
    recorder_.wait_failed(id, message_of(error));
    throw;
  }
  recorder_.complete(id);
  recorder_.waited(id);
}

}  // namespace lockstep::runtime
