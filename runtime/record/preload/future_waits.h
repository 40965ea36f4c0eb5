// FutureWaits: sees where a program waits for the future of a call instead of for its handle.
//
// DDP's Reducer does, and whoever calls Work.get_future().wait(). A future cannot be wrapped: its
// class is final. But it waits on a condition variable that is a part of it, in the C++ library; so
// where this library is preloaded, a function of ours stands in front of that wait, and asks
// whether the condition variable lies in a future that it knows. (Loaded later, by
// torch.ops.load_library, it is not asked, and these waits stay unknown.)
//
// A program that finds the future complete does not wait on it, and is not seen. So a future that
// was handed out counts as waited for at its completion, where nobody waited before.
//
// Not seen: waits for a future that was made of it by `then`, as communication hooks do.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include <ATen/core/ivalue.h>

#include "runtime/record/c10d/recording_work.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

class FutureWaits {
 public:
  // Never destroyed: programs wait until they are gone.
  static FutureWaits& of_process();

  // From now on until it is complete, waits for the future are waits for the call, whose completion
  // is recorded by a callback before. `recorder` must outlive the future.
  void follow(const c10::intrusive_ptr<c10::ivalue::Future>& future, Recorder& recorder,
              std::uint32_t call);

  struct Wait {
    Recorder* recorder;
    std::uint32_t call;
    const c10::ivalue::Future* future = nullptr;
  };
  // The program begins to wait on the condition variable at this address: for which call? Nothing:
  // it lies in no future that is followed. One load where there is none.
  std::optional<Wait> begin_wait(const void* condition);

 private:
  void forget(const c10::ivalue::Future* future, const c10::ivalue::Future& done);

  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;  // guards what follows
  struct Followed {
    c10::weak_intrusive_ptr<c10::ivalue::Future> keeps_the_address;
    Wait wait;  // its future is this one
    bool waited_for = false;
  };
  std::map<const c10::ivalue::Future*, Followed> futures_;
};

// A recorded work that tells FutureWaits of the future that it hands out. Not where a watch sees
// the call's completion: on a device a future is complete as soon as the call is queued.
class PreloadedWork : public RecordingWork {
 public:
  PreloadedWork(c10::intrusive_ptr<c10d::Work> inner, Recorder& recorder, std::uint32_t call,
                WorkWatch* watch)
      : RecordingWork(std::move(inner), recorder, call, watch),
        recorder_(recorder),
        call_(call),
        is_watched_(watch != nullptr) {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  Recorder& recorder_;
  std::uint32_t call_;
  bool is_watched_;
};

}  // namespace lockstep::runtime
