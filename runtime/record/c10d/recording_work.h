// RecordingWork: the handle of one recorded call. Passes everything on to the transport's handle,
// and records when the program begins to wait for it and when it continues.
//
// Completion comes from the transport's future, if it has one (Gloo: all but point-to-point, and
// reduce_scatter in Torch 2.11); otherwise it is only seen when a wait returns. For a device (NCCL)
// neither says when the work is done, so a WorkWatch polls.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <torch/csrc/distributed/c10d/Backend.hpp>  // C10D_BACKEND_HAS_HOOKS: from torch 2.15 on
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/record/c10d/work_watch.h"
#include "runtime/record/device_time.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// The message of an exception, without the C++ stack that c10::Error appends.
std::string message_of(const std::exception& error);

class RecordingWork : public c10d::Work {
 public:
  // `recorder` must outlive the work and its completion. `watch` and `time` may be null.
  RecordingWork(c10::intrusive_ptr<c10d::Work> inner, Recorder& recorder, std::uint32_t call,
                WorkWatch* watch, DeviceTime* time = nullptr);

  // The call's id in `recorder`'s trace; nothing if it is not there. (A program may be recorded
  // twice: by itself, and by a preloaded library.)
  std::optional<std::uint32_t> call_in(const Recorder& recorder) const;

  // Rethrows what the transport throws, after recording it.
  bool wait(std::chrono::milliseconds timeout) override;

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override;
  void blockCurrentStream() override { inner_->blockCurrentStream(); }
  void abort() override { inner_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return inner_->getFuture(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    return inner_->getFutureResult();
  }
  float getDuration() const override { return inner_->getDuration(); }
  std::uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }
#ifdef C10D_BACKEND_HAS_HOOKS
  // PyTorch's own recorder finds a completed call by it.
  std::uint64_t getCompletionKey() const override { return inner_->getCompletionKey(); }
#endif

 private:
  // Records the completion or failure, unless somebody else does; once, however often the program
  // waits.
  void complete(std::string_view error = {});

  c10::intrusive_ptr<c10d::Work> inner_;
  Recorder& recorder_;
  std::uint32_t call_;
  DeviceTime* time_;
  // The completion is not recorded yet, and neither the future's callback nor the watch will do it.
  bool seen_by_wait_alone_ = true;
};

}  // namespace lockstep::runtime
