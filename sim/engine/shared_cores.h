// Runs a job's programs where ranks have to share processor cores, and communicate by processors:
// Gloo over the loopback of a machine.
//
// What a rank works, and its part of every hop of a call, need a core of its node. Threads that
// want one have it in the order in which they came, until they block, or others wait and a slice of
// time is over: what Linux does with threads that do not take the processor from each other when
// they are woken. So a rank that was late to wake stays behind the others, and a call beside which
// ranks compute waits for a core at each of its hops. Cores that are busy at the same time share
// caches and memory and slow each other down. When something ends depends on what else goes on:
// events are taken in the order of time, ties by rank and step. Where there are cores enough the
// times are those of execute().
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

// The cores of a node, and the threads that want to run on them: first come, first served, by turns
// of a slice of time, as an operating system does (sim/engine/shared_cores.h).

namespace lockstep::sim {

struct CoreSpeeds {
  std::int64_t cores = 1;
  // How much longer work takes while all cores are busy; from 1, and in proportion with fewer.
  double contention = 1;
  // What a thread runs before one that waits has its turn; above 0. forever(): until it blocks.
  Picos slice = Picos::forever();
};

// After so many turns in a row in which no work of a node began or ended, its slices are twice as
// long: slices of nothing would keep work of days going for years. With slices of milliseconds
// that is minutes of work in one piece.
inline constexpr std::uint32_t kTurnsInARow = 1U << 16U;

class CorePool {
 public:
  struct Task {
    std::uint32_t rank = 0;
    std::uint32_t step = 0;
    std::uint8_t thread = 0;  // of the rank
    bool sleeps = false;      // needs no core
  };

  explicit CorePool(const CoreSpeeds& speeds) : speeds_(speeds) {}

  // Times of calls do not decrease. A task that begins when another of its thread has just ended
  // keeps its core and what is left of the slice. `amount`: what it takes with a core to itself.
  void begin(Picos now, Picos amount, const Task& task);

  // Gives the cores that are free to those who wait. Call it when all that begins now has begun.
  void dispatch();

  // When the next task ends, or gives up its core, if none begins before; forever(): never.
  Picos next_event() const;

  // Takes the tasks that ended by now, and turns on what has run its slice. By rank and step; those
  // that slept come last.
  std::vector<Task> take_ended(Picos now);

  bool idle() const { return running_.empty() && waiting_.empty() && sleeping_.empty(); }

 private:
  struct Running {
    Task task;
    double left = 0;   // of the work, in picoseconds
    double slice = 0;  // what is left of it
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

  // Of all that run: 1 where one is alone.
  double speed() const;
  void serve(Picos now);

  CoreSpeeds speeds_;
  std::uint32_t turns_ = 0;  // in a row
  Picos at_;
  std::vector<Running> running_;  // at most as many as there are cores
  std::vector<Running> vacated_;  // cores of tasks that ended just now
  std::deque<Waiting> waiting_;
  std::priority_queue<Sleeping, std::vector<Sleeping>, std::greater<>> sleeping_;
};

struct SharedCores {
  CoreSpeeds speeds;                   // of each node
  std::vector<std::uint32_t> node_of;  // of each rank of the job: 0, 1, …
  Picos wake;                          // until a thread can run that a hop has come for
  // … on top of that, at the first hop of a call whose group has rested for kRest.
  Picos start;
  // What a rank's work takes longer, at most, after it waited for a call: others had the caches
  // meanwhile, for no longer than it waited, and no work takes more than twice as long.
  Picos refill;
};
// As long as Linux's KVM polls for work before it lets a processor sleep (halt_poll_ns).
inline constexpr Picos kRest{200'000'000};

// `cost`: what each member of the group works for a call, on a core, once all have come: in equal
// parts at its hops. The call ends when the last of them is done. Every rank is a class of its own
// in the result (keep_apart()), and its steps' beginnings are recorded; `compute` is the time that
// work took. `variation`, not owned: of what is worked.
ExecutionResult execute_on_cores(const ProgramJob& job, const CostOfCall& cost,
                                 const SharedCores& shared,
                                 const DurationVariation* variation = nullptr);

}  // namespace lockstep::sim
