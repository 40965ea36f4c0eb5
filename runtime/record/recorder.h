// Recorder: writes what happens to one rank's collectives into the ring file.
//
// It connects those who know *what* is done (a strategy sets the context) with those who see *that*
// it is done (the recording backend reports calls). It also knows whether the rank waits for
// something, which the watchdog asks, and how much time recording took.
//
// The context belongs to the thread that trains; everything else may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/formats/ring/writer.h"

namespace lockstep::runtime {

// What the trace says about a call in addition to its shapes. Created once, used for many calls.
struct CallNote {
  trace::RingWriter::NamesRef what;  // the parameters, buffers or values carried
  trace::RingWriter::StringRef tag;
};

// Set before calls are made.
struct CallContext {
  std::int32_t step = trace::kNone;
  trace::RingWriter::StringRef at;  // source location
  CallNote note;                    // for every call while `coming` is empty
  std::deque<CallNote> coming;      // one for each of the next calls
};

class Recorder {
 public:
  // `ring` must outlive the recorder.
  explicit Recorder(trace::RingWriter& ring) : ring_(ring) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  trace::RingWriter& ring() { return ring_; }
  CallContext& context() { return context_; }

  CallNote note(const std::vector<std::string>& what, std::string_view tag = {});
  // "manual.cc:57". Cheap if the location was asked for before.
  trace::RingWriter::StringRef location(const std::source_location& where);

  // Records a call that is about to be given to the transport. Fills in step and what from the
  // context, and the tag and the location where it has none. Returns the call's id.
  std::uint32_t issue(trace::RingWriter::Issue fields);
  // The transport finished the call; `error` empty: successfully. At most once per call.
  void complete(std::uint32_t call, std::string_view error = {});
  void wait(std::uint32_t call);
  void waited(std::uint32_t call);
  // The wait ended with an exception, which propagates to the program.
  void wait_failed(std::uint32_t call, std::string_view what);
  // An exception reached the training program. It is recorded once, however often it is reported on
  // its way up. Without `call`, it is attributed to the call whose failure text it contains.
  // Returns whether it is a call's, as of one whose peer is gone, and none of the program itself.
  bool raised(std::string_view what, std::optional<std::uint32_t> call = {});
  // Whether any was.
  bool has_raised();

  void step(std::int64_t n, double loss, std::int64_t samples);
  void modality(std::int64_t n, const std::vector<std::string>& has);
  void data(std::int64_t n, std::span<const std::int64_t> indices);
  // Work that began at `began` (ns, CLOCK_MONOTONIC) and ends now.
  void span(std::string_view name, trace::Nanos began);

  // What listeners are called with, on the recording thread, right after the record was written.
  enum class Moment : std::uint8_t {
    call,      // number: the call's id; the transport is next
    returned,  // the transport has taken the call
    wait,      // number: the call's id
    waited,
    step,        // number: the step that has ended
    checkpoint,  // one was saved, and its barrier is over; number: the last step
    evaluation,  // the model was evaluated; number: the last step
  };
  using Listener = std::function<void(Moment, std::int64_t number)>;
  // Must be set before anything is recorded. Without a listener it costs a pointer test.
  void listen(Listener listener) { listener_ = std::move(listener); }
  bool has_listener() const { return static_cast<bool>(listener_); }
  // The transport has taken the call that was issued last.
  void returned() { notify(Moment::returned); }
  // Between two steps or after the last one. Traces have no events for these.
  void saved_checkpoint() { notify(Moment::checkpoint, context_.step); }
  void evaluated() { notify(Moment::evaluation, context_.step); }

  // Whether calls were issued and have not completed. A failed call stays outstanding: a device
  // that waits for it may never continue, whatever the transport says.
  bool outstanding() const { return outstanding_.load(std::memory_order_relaxed) > 0; }
  // Whether the program is inside a wait.
  bool waiting() const { return waiting_.load(std::memory_order_relaxed) > 0; }

  // Track calls in flight individually, for HostWait. For devices that queue calls.
  void follow_calls() { follows_calls_ = true; }
  // While it lives, the host blocks until its device has done what was queued, because it reads a
  // value. With NCCL that is where hosts wait, outside of any call. It is recorded as a wait for
  // each call in flight, so a trace shows which calls block the rank. Nothing is recorded if calls
  // are not tracked or none is in flight, or inside another HostWait. For the thread that trains.
  class HostWait {
   public:
    explicit HostWait(Recorder& recorder);
    ~HostWait();
    HostWait(const HostWait&) = delete;
    HostWait& operator=(const HostWait&) = delete;

   private:
    Recorder& recorder_;
    std::vector<std::uint32_t> calls_;
  };

  // While it lives, the program depends on the other ranks outside of any call: to find them, to
  // connect to them, to exit together. For the thread that trains; can be nested.
  class Blocked {
   public:
    enum class Limit : std::uint8_t {
      hang_after,  // counts as a hang after limits.hang_after_s
      total,       // may last as long as the job: ranks do not start at the same time
    };
    // `what`: completes "while it waits for …"; must outlive the recorder.
    Blocked(Recorder& recorder, const char* what, Limit limit = Limit::hang_after);
    ~Blocked();
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;

   private:
    Recorder& recorder_;
    const char* what_before_;
    Limit limit_before_;
  };
  // What the program is blocked in outside of any call; null: nothing.
  const char* blocked_in() const { return blocked_in_.load(std::memory_order_relaxed); }
  Blocked::Limit blocked_until() const { return blocked_until_.load(std::memory_order_relaxed); }

  // Changes whenever the rank moves: it recorded something, or entered or left Blocked.
  std::uint64_t movements() const {
    return ring_.written() + blocks_.load(std::memory_order_relaxed);
  }

  // Time that the program has spent inside waits. For the thread that waits.
  trace::Nanos waited_nanos() const { return waited_nanos_; }

  // Cost of recording so far, over all threads.
  std::int64_t nanos() const { return nanos_.load(std::memory_order_relaxed); }
  std::uint64_t events() const { return ring_.written(); }

  // Counts its lifetime as recording time.
  class Timed {
   public:
    explicit Timed(Recorder& recorder);
    ~Timed();
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

   private:
    Recorder& recorder_;
    std::int64_t began_;
  };

 private:
  void notify(Moment moment, std::int64_t number = trace::kNone) {
    if (listener_) listener_(moment, number);
  }

  trace::RingWriter& ring_;
  Listener listener_;
  CallContext context_;
  std::atomic<std::int64_t> outstanding_{0};
  std::atomic<std::int64_t> waiting_{0};
  std::atomic<std::int64_t> nanos_{0};
  void end_wait();
  std::atomic<trace::Nanos> wait_began_{0}, waited_nanos_{0};

  struct KnownLocation {
    const char* file;
    std::uint_least32_t line;
    trace::RingWriter::StringRef name;
  };
  std::vector<KnownLocation> locations_;  // few, so a linear search is fast

  std::mutex failures_mutex_;
  struct Failure {
    std::uint32_t call;
    std::string text;
  };
  std::vector<Failure> failures_;  // reported by the transport; at most kMaxFailures
  std::string raised_;             // the last exception that was recorded
  bool raised_by_call_ = false;    // … is a call's

  bool follows_calls_ = false;
  bool host_waits_ = false;  // inside a HostWait; for the thread that trains
  std::mutex in_flight_mutex_;
  std::vector<std::uint32_t> in_flight_;  // issued and not complete, if calls are tracked

  std::atomic<const char*> blocked_in_{nullptr};
  std::atomic<Blocked::Limit> blocked_until_{Blocked::Limit::hang_after};
  std::atomic<std::uint64_t> blocks_{0};  // times that Blocked was entered or left
};

// While it lives, calls are recorded with `note`, at the source location where it was created.
class NoteScope {
 public:
  NoteScope(Recorder& recorder, const CallNote& note,
            std::source_location where = std::source_location::current())
      : context_(recorder.context()), note_before_(context_.note), at_before_(context_.at) {
    const Recorder::Timed timed(recorder);
    context_.note = note;
    context_.at = recorder.location(where);
  }
  ~NoteScope() {
    context_.note = note_before_;
    context_.at = at_before_;
    context_.coming.clear();
  }
  NoteScope(const NoteScope&) = delete;
  NoteScope& operator=(const NoteScope&) = delete;

 private:
  CallContext& context_;
  CallNote note_before_;
  trace::RingWriter::StringRef at_before_;
};

}  // namespace lockstep::runtime
