// WatchState: what `lockstep watch` shows of a running job at one moment: where every rank is, for
// whom it waits, and who is late. Computed from traces by a pure function; reports/live/screen.h
// draws it or reports it line by line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

struct WatchedRank {
  enum class Doing : std::uint8_t {
    works,   // outside of any call that blocks it
    waits,   // in a call that other ranks have not reached
    stuck,   // the same, and proven that it cannot continue
    ended,   // it ended cleanly
    raised,  // an exception ended it
    hung,    // a watchdog ended it
    killed,  // by a signal, or its process disappeared
  };
  trace::Rank rank;
  Doing doing = Doing::works;
  std::int64_t steps = 0;  // training steps finished
  // The call that it waits in, else its last one: "all_reduce(head.weight)"; empty: none yet.
  std::string call;
  std::string group;
  std::uint64_t seq = 0;                // of that call in its group
  std::string at;                       // its source location; may be empty
  std::vector<trace::Rank> waits_for;   // sorted
  trace::Nanos quiet = trace::kNoTime;  // since its last event; kNoTime: not known
  // How much later than the group's median it reached the last call that all members reached. If
  // others wait for it now: how much later it will be at least. 0: not late, or not known.
  trace::Nanos behind = 0;
  std::string behind_in;                  // that call: "all_reduce(head.weight), train.py:33"
  trace::Nanos waiting = trace::kNoTime;  // since it came to the call that it waits in
  std::optional<double> loss;             // of its last step, if recorded
  std::string host;                       // where it runs; may be empty
  std::int64_t pid = 0;                   // 0: not known

  friend bool operator==(const WatchedRank&, const WatchedRank&) = default;
};
std::string_view to_string(WatchedRank::Doing doing);

struct WatchState {
  std::string folder;
  double watched_s = 0;                   // since watching began
  std::vector<WatchedRank> ranks;         // by rank
  std::vector<trace::Rank> absent;        // without a trace so far, sorted
  std::vector<verify::Finding> findings;  // worst first
  std::string problem;                    // why the last poll failed; empty: it did not
  std::optional<double> steps_per_s;      // of the whole job, between the last polls

  // Steps that every rank has finished; 0 if a rank is absent.
  std::int64_t steps() const;
  // The mean of the ranks' last losses; nothing where none was recorded.
  std::optional<double> loss() const;
};

// Where the ranks are. `now`: the time of the poll on the traces' clock; kNoTime: unknown, then
// neither silences nor current waits are measured. Times are not compared if ranks are on different
// hosts, whose clocks are unrelated. `live`: traces without an end mark continue. O(events log
// events), as verify().
WatchState watch_state(const trace::Run& run, const verify::Report& report, trace::Nanos now,
                       bool live);

}  // namespace lockstep::reports
