#include "reports/findings/figures/replayed.h"

#include <algorithm>

#include "verify/schedules/schedule_search.h"
#include "verify/schedules/wildcards.h"

namespace lockstep {

ReplayResult replayed(const Run& run, const std::vector<GroupStreams>& groups, Agreement& agreement,
                      std::optional<CallSemantics> given) {
  const CallSemantics semantics = given.value_or(recorded_semantics(run));
  ReplayOptions options;
  options.semantics = semantics;
  options.live = std::all_of(run.ranks.begin(), run.ranks.end(),
                             [](const RankTrace& trace) { return trace.end == End::cut; });
  ScheduleSearch search;
  if (!options.live) {
    SearchOptions bounds;
    bounds.buffered_sends = semantics == CallSemantics::mpi;
    search = search_schedules(run, groups, semantics, bounds);
  }
  return replay_as_recorded(run, groups, agreement, options, search);
}

}  // namespace lockstep
