#include "trace/spread.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"

namespace lockstep::trace {
namespace {

// What a rank calls is the same for those that it stands for; which samples it read is not. Nothing
// is known of theirs, and equal ones would read as shards that overlap.
void forget_samples(RankTrace& trace) {
  std::erase_if(trace.events, [](const Event& event) { return event.kind == EventKind::data; });
  trace.data.clear();
}

// Puts the shard group of `rank` in the place of the one that its trace was derived in.
void move_to_own_shard(Tables& tables, RankTrace& trace, std::int32_t from, std::int32_t rank,
                       std::int32_t shard_ranks) {
  const auto group_of = [&](std::int32_t member) {
    return tables.groups.intern("shard" + std::to_string(member / shard_ranks));
  };
  const GroupId derived = group_of(from), own = group_of(rank);
  if (derived == own) return;
  std::vector<Rank> members;
  for (std::int32_t i = 0; i < shard_ranks; ++i)
    members.emplace_back(rank / shard_ranks * shard_ranks + i);
  for (RankTrace::Membership& group : trace.groups) {
    if (group.group != derived) continue;
    group.group = own;
    group.ranks = tables.rank_lists.intern(members);
  }
  for (Call& call : trace.calls)
    if (call.group == derived) call.group = own;
}

// Checks that a trace can represent another rank: no messages, which name single ranks, and only
// groups that the other rank is in, too.
Status stands_for(const Run& run, const RankTrace& trace, std::int32_t from, std::int32_t rank) {
  const auto refuse = [&](const std::string& why) {
    return Error{"rank " + std::to_string(from) + " cannot stand for rank " + std::to_string(rank) +
                     ": " + why,
                 {trace.source},
                 "take fewer ranks, so that each is derived"};
  };
  for (const Call& call : trace.calls)
    if (is_point_to_point(run.tables.signatures[call.signature].op))
      return refuse("it sends messages to single ranks");
  for (const RankTrace::Membership& group : trace.groups)
    if (std::find(group.ranks.begin(), group.ranks.end(), Rank(rank)) == group.ranks.end())
      return refuse("its group \"" + printable(run.tables.str(group.group)) +
                    "\" does not include it");
  return Status::ok();
}

}  // namespace

Result<Run> spread(Run run, const std::vector<std::int32_t>& traced, std::int32_t shard_ranks) {
  std::vector<RankTrace> ranks;
  std::uint64_t events = 0;
  for (std::size_t r = 0; r < traced.size(); ++r) {
    const RankTrace* trace = run.find(Rank(traced[r]));
    const auto rank = static_cast<std::int32_t>(r);
    if (trace == nullptr)
      return Error{"rank " + std::to_string(traced[r]) + " left no trace", {}, "derive it again"};
    events += trace->events.size();
    if (events > kMostSpreadEvents)
      return Error{"this many ranks make more than " + std::to_string(kMostSpreadEvents) +
                       " events, which take gigabytes",
                   {},
                   "take fewer steps, or fewer ranks"};
    ranks.push_back(*trace);
    ranks.back().rank = Rank(rank);
    if (traced[r] == rank) continue;
    forget_samples(ranks.back());
    // A job of which one copy is the world has no such groups.
    if (shard_ranks > 0 && static_cast<std::size_t>(shard_ranks) < traced.size())
      move_to_own_shard(run.tables, ranks.back(), traced[r], rank, shard_ranks);
    if (const Status ok = stands_for(run, ranks.back(), traced[r], rank); !ok) return ok.error();
  }
  run.ranks = std::move(ranks);
  run.world_size = static_cast<std::int32_t>(traced.size());
  return run;
}

}  // namespace lockstep::trace
