#include "runtime/record/c10d/recording_work.h"

#include <chrono>

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

namespace lockstep::runtime {
namespace {

// The work's future; null if the transport has none for this operation (it throws then).
c10::intrusive_ptr<c10::ivalue::Future> future_of(c10d::Work& work) {
  try {
    return work.getFuture();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

std::string message_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const c10::Error*>(&error)) {
    return ours->what_without_backtrace();
  }
  return error.what();
}

RecordingWork::RecordingWork(c10::intrusive_ptr<c10d::Work> inner, Recorder& recorder,
                             std::uint32_t call, WorkWatch* watch, DeviceTime* time)
    : Work(-1, inner->retrieveOpType()),
      inner_(std::move(inner)),
      recorder_(recorder),
      call_(call),
      time_(time) {
  if (watch != nullptr) {
    seen_by_wait_alone_ = false;
    watch->follow(inner_, call_);
    return;
  }
  const auto future = future_of(*inner_);
  if (!future) return;
  seen_by_wait_alone_ = false;
  // Runs on the transport's thread, perhaps a little after the waiting thread continues.
  future->addCallback([&recorder = recorder_, call = call_](c10::ivalue::Future& done) {
    const Recorder::Timed timed(recorder);
    recorder.complete(call, done.hasError() ? done.tryRetrieveErrorMessage() : std::string());
  });
}

std::optional<std::uint32_t> RecordingWork::call_in(const Recorder& recorder) const {
  if (&recorder_ == &recorder) return call_;
  const auto* const inner = dynamic_cast<const RecordingWork*>(inner_.get());
  return inner == nullptr ? std::nullopt : inner->call_in(recorder);
}

void RecordingWork::complete(std::string_view error) {
  if (!seen_by_wait_alone_) return;
  seen_by_wait_alone_ = false;
  recorder_.complete(call_, error);
}

void RecordingWork::synchronize() {
  if (time_ == nullptr) return inner_->synchronize();
  time_->leave_out([&] { inner_->synchronize(); });
}

bool RecordingWork::wait(std::chrono::milliseconds timeout) {
  {
    const Recorder::Timed timed(recorder_);
    recorder_.wait(call_);
  }
  bool done = false;
  try {
    if (time_ == nullptr) {
      done = inner_->wait(timeout);
    } else {
      time_->leave_out([&] { done = inner_->wait(timeout); });
    }
  } catch (const std::exception& error) {
    complete(message_of(error));
    recorder_.wait_failed(call_, message_of(error));
    throw;
  }
  const Recorder::Timed timed(recorder_);
  complete();
  recorder_.waited(call_);
  return done;
}

}  // namespace lockstep::runtime
