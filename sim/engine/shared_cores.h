// Runs a job's programs where ranks share processor cores and the processors also carry out the
// communication: Gloo over the loopback of a machine.
//
// A rank's work, and its part of every hop of a call, need a core of its node. Threads that want a
// core get it in the order in which they asked. A thread keeps its core until it blocks, or until
// others wait and its time slice is over. Linux does the same with threads that do not preempt each
// other when they are woken. So a rank that was woken late stays behind the others, and a call that
// runs while other ranks compute waits for a core at each of its hops. Cores that are busy at the
// same time share caches and memory and slow each other down. When something ends therefore depends
// on what else runs: events are taken in the order of time, ties by rank and step. Where there are
// enough cores the times are those of execute().
//
// O((operations + hops of calls + bounded turns) · (cores + log(ranks))).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "base/quantities.h"
#include "sim/engine/executor.h"
#include "sim/engine/program.h"

namespace lockstep::sim {

// CorePool: the cores of one node and the threads that want to run on them. First come, first
// served, in turns of a time slice, as an operating system schedules them.

struct CoreSpeeds {
  std::int64_t cores = 1;
  // By what factor work takes longer while all cores are busy, from 1; linear with fewer busy
  // cores.
  double contention = 1;
  // How long a thread runs before a waiting one gets its core; above 0. forever(): until it blocks.
  Picos slice = Picos::forever();
};

// After this many turns in a row in which no work of a node began or ended, its slices double. This
// bounds the number of events: a slice of 1 ns would otherwise turn days of work into years of
// simulation. With slices of milliseconds the bound needs minutes of uninterrupted work.
inline constexpr std::uint32_t kTurnsInARow = 1U << 16U;

class CorePool {
 public:
  struct Task {
    std::uint32_t rank = 0;
    std::uint32_t step = 0;
    std::uint8_t thread = 0;  // of the rank: its stream
    bool sleeps = false;      // a delay that needs no core
  };

  explicit CorePool(const CoreSpeeds& speeds) : speeds_(speeds) {}

  // Starts a task at `now`, which never decreases between calls. `amount`: how long it takes with a
  // core to itself. A task that begins when another of the same thread has just ended keeps that
  // thread's core and the rest of its slice.
  void begin(Picos now, Picos amount, const Task& task);

  // Gives free cores to waiting threads. Call it once everything that begins now has begun: a
  // thread that continues must find its core still free.
  void dispatch();

  // When the next task ends or gives up its core, if none begins before; forever(): never.
  Picos next_event() const;

  // Takes the tasks that ended by now, and moves threads whose slice is over to the back of the
  // queue. Sorted by rank and step; tasks that slept come last, in the order of their ends.
  std::vector<Task> take_ended(Picos now);

  bool idle() const { return running_.empty() && waiting_.empty() && sleeping_.empty(); }

 private:
  struct Running {
    Task task;
    double left = 0;   // work that is left, in picoseconds of a core alone
    double slice = 0;  // what is left of its time slice
  };
  struct Waiting {
    Task task;
    double left = 0;
  };
  struct Sleeping {
    Picos until;
    Task task;
    bool operator>(const Sleeping& other) const;
  };

  // The speed of each running task; 1 where one runs alone.
  double speed() const;
  // Advances all running tasks from at_ to `now`.
  void serve(Picos now);

  CoreSpeeds speeds_;
  std::uint32_t turns_ = 0;  // turns in a row without a beginning or an end
  Picos at_;
  std::vector<Running> running_;  // at most as many as there are cores
  std::vector<Running> vacated_;  // cores of tasks that ended at this moment
  std::deque<Waiting> waiting_;
  std::priority_queue<Sleeping, std::vector<Sleeping>, std::greater<>> sleeping_;
};

struct SharedCores {
  CoreSpeeds speeds;                   // the same for each node
  std::vector<std::uint32_t> node_of;  // by rank of the job: 0, 1, …
  Picos wake;                          // from the arrival of a hop until its thread can run
  // Added to `wake` at the first hop of a call whose group has been idle for kRest.
  Picos start;
  // How much longer a rank's work takes, at most, after the rank waited for a call: other ranks
  // used the caches meanwhile. Never more than it waited, and no work takes more than twice as
  // long.
  Picos refill;
};
// The time for which Linux's KVM polls for work before it lets a processor sleep (halt_poll_ns).
inline constexpr Picos kRest{200'000'000};

// `cost`: how long each member works for a call, on a core, once all have arrived; the hops take
// equal parts. The call ends when its last member is done. In the result every rank is a class of
// its own (unfolded()), the beginnings of steps are recorded, and `compute` is the elapsed time
// of work. `variation`, not owned, may be null, changes the amounts of work and calls. No step may
// be a StepKind::follow.
ExecutionResult execute_on_cores(const ProgramJob& job, const CostOfCall& cost,
                                 const SharedCores& shared,
                                 const DurationVariation* variation = nullptr);

}  // namespace lockstep::sim
