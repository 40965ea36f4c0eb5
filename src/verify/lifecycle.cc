#include "verify/lifecycle.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace lockstep {

namespace {

bool waits(const Call& call) { return call.has(kWaitBegan) || call.has(kWaitEnded); }

// Calls that some member of the group waited for, by their place in the group.
std::vector<bool> waited_meetings(const Run& run, const GroupStreams& group) {
  std::vector<bool> out;
  for (const Stream& stream : group.streams) {
    out.resize(std::max(out.size(), stream.calls.size()));
    for (std::size_t m = 0; m < stream.calls.size(); ++m) {
      if (waits(run.ranks[stream.rank_index].calls[stream.calls[m]])) out[m] = true;
    }
  }
  return out;
}

}  // namespace

std::vector<Cause> check_lifecycle(const Context& context) {
  std::vector<Cause> out;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const GroupStreams& group = context.groups[g];
    if (!group.comparable) continue;
    const std::vector<bool> waited = waited_meetings(context.run, group);
    struct Forgotten {
      std::vector<std::uint32_t> ranks;
      std::uint64_t calls = 0;
      CallRef first;
      std::size_t meeting = 0;
    };
    Forgotten forgotten;
    for (const Stream& stream : group.streams) {
      const RankTrace& trace = context.run.ranks[stream.rank_index];
      if (trace.end != End::clean) continue;
      std::uint64_t count = 0;
      for (std::size_t m = 0; m < stream.calls.size(); ++m) {
        const Call& call = trace.calls[stream.calls[m]];
        if (!call.has(kAsync) || waits(call) || !waited[m]) continue;
        if (forgotten.calls == 0 && count == 0) {
          forgotten.first = {stream.rank_index, stream.calls[m]};
          forgotten.meeting = m;
        }
        ++count;
      }
      if (count == 0) continue;
      forgotten.calls += count;
      forgotten.ranks.push_back(stream.rank_index);
    }
    if (forgotten.calls == 0) continue;
    Cause cause;
    cause.finding = make_finding(RuleId::never_waited);
    Finding& f = cause.finding;
    cause.group = g;
    cause.seq = group.first_seq + forgotten.meeting;
    cause.can_block = false;
    cause.deviants = forgotten.ranks;
    f.message = context.rank_words(forgotten.ranks) + " issued " +
                context.call_words(forgotten.first) + " (" +
                context.place_words(forgotten.first, cause.seq) +
                ") asynchronously and never waited for it; its peers did";
    if (forgotten.calls > 1) {
      f.message += " (" + plural(forgotten.calls, "such call") + " in all)";
    }
    f.group = group.name;
    f.seq = cause.seq;
    f.culprits = context.ranks(forgotten.ranks);
    f.ranks = f.culprits;
    const Call& call = context.call(forgotten.first);
    if (call.step != kNone) f.step = cause.step = call.step;
    f.what = context.run.tables.names(call.what);
    f.evidence = {context.evidence(forgotten.first, "no wait for it")};
    set_fingerprint(f, describe(context.run.tables, call.signature));
    out.push_back(std::move(cause));
  }
  return out;
}

}  // namespace lockstep
