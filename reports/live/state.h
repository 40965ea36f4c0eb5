// WatchState: what `lockstep watch` shows of a running job at one moment: where every rank stands,
// for whom it waits, and who comes late. Made from traces by a pure function; drawn, and
// told line by line, by reports/live/screen.h.
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
    works,   // outside of any call that holds it
    waits,   // in a call in which others are missing
    stuck,   // the same, and nobody can let it go any more: proven
    ended,   // it ended cleanly
    raised,  // an exception ended it
    hung,    // a watchdog ended it
    killed,  // a signal did, or its process is gone without a word
  };
  trace::Rank rank;
  Doing doing = Doing::works;
  std::int64_t steps = 0;  // training steps finished
  // The call that it waits in, else its last one: "all_reduce(head.weight)"; empty: none yet.
  std::string call;
  std::string group;
  std::uint64_t seq = 0;                // of that call in its group
  std::string at;                       // its source place; may be empty
  std::vector<trace::Rank> waits_for;   // sorted
  trace::Nanos quiet = trace::kNoTime;  // since its last event; kNoTime: not known
  // How much later than the median of the group it came to the last call that all came to, or,
  // where others wait for it now, how much later it will at least be; 0: not late, or not known.
  trace::Nanos behind = 0;
  std::string behind_in;  // that call: "all_reduce(head.weight), train.py:33"

  friend bool operator==(const WatchedRank&, const WatchedRank&) = default;
};
std::string_view to_string(WatchedRank::Doing doing);

struct WatchState {
  std::string folder;
  double watched_s = 0;                   // since the watching began
  std::vector<WatchedRank> ranks;         // by rank
  std::vector<trace::Rank> absent;        // of which there is no trace yet, sorted
  std::vector<verify::Finding> findings;  // worst first
  std::string problem;                    // why the last look saw nothing; empty: it did

  // Steps that every rank has finished; 0 where a rank is absent.
  std::int64_t steps() const;
};

// Where the ranks stand. `now`: the time of the look on the traces' clock; kNoTime: unknown, then
// neither silences nor waits are measured. Nothing is compared where the ranks' hosts differ, whose
// clocks have nothing in common. `live`: traces without an end mark go on.
// O(events log events), as verify().
WatchState watch_state(const trace::Run& run, const verify::Report& report, trace::Nanos now,
                       bool live);

}  // namespace lockstep::reports
