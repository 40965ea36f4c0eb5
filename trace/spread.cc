#include "trace/spread.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::trace {
namespace {

Error cannot_be_used(const RankTrace& trace, Rank rank, const std::string& why) {
  return {fmt::format("the trace of rank {} cannot be used for rank {}: {}", trace.rank.value,
                      rank.value, why),
          {trace.source},
          "use fewer ranks, so that each one is derived"};
}

// The name with the number `from` replaced by `to`: "replica3.back" is "replica17.back" in copy 17.
std::string renumbered(const std::string& name, std::int32_t from, std::int32_t to) {
  for (auto first = std::find_if(name.begin(), name.end(), is_digit); first != name.end();) {
    const auto last = std::find_if_not(first, name.end(), is_digit);
    if (std::string(first, last) == std::to_string(from))
      return fmt::format("{}{}{}", std::string(name.begin(), first), to,
                         std::string(last, name.end()));
    first = std::find_if(last, name.end(), is_digit);
  }
  return name;
}

// From one copy to another, whose ranks are greater by `distance`.
class CopyMove {
 public:
  CopyMove(Tables& tables, const RankTrace& trace, Rank rank, std::int32_t copy_ranks)
      : tables_(tables),
        to_(rank),
        first_(trace.rank.value / copy_ranks * copy_ranks),
        copy_ranks_(copy_ranks),
        distance_(rank.value - trace.rank.value) {}

  Status move(RankTrace& trace) {
    for (RankTrace::Membership& group : trace.groups) {
      if (!is_of_copy(group.ranks)) continue;
      const GroupId own = tables_.groups.intern(renumbered(
          tables_.str(group.group), first_ / copy_ranks_, (first_ + distance_) / copy_ranks_));
      std::vector<Rank> members;
      for (const Rank member : group.ranks) members.emplace_back(member.value + distance_);
      groups_.emplace(group.group, own);
      group.group = own;
      group.ranks = tables_.rank_lists.intern(members);
    }
    for (Call& call : trace.calls.own()) {
      if (tables_.is_message(call)) {
        if (!is_in_copy(call.peer))
          return cannot_be_used(trace, to_, "it sends messages to another copy of the model");
        call.peer = Rank(call.peer.value + distance_);
      }
      const auto own = groups_.find(call.group);
      if (own == groups_.end()) continue;
      call.group = own->second;
      call.signature = moved(call.signature);
    }
    return Status::ok();
  }

 private:
  bool is_in_copy(Rank rank) const {
    return rank.value >= first_ && rank.value < first_ + copy_ranks_;
  }
  bool is_of_copy(const RankList& ranks) const {
    return is_in_copy(ranks.lowest()) && is_in_copy(ranks.highest());
  }

  // A call in a group of the copy has its root there.
  SignatureId moved(SignatureId id) {
    const auto [known, is_new] = signatures_.try_emplace(id, id);
    if (!is_new) return known->second;
    Signature signature = tables_.signatures[id];
    if (signature.root == kNone) return id;
    signature.root += distance_;
    known->second = tables_.make_signature(signature);
    return known->second;
  }

  Tables& tables_;
  const Rank to_;
  const std::int32_t first_;  // rank of the copy that it comes from
  const std::int32_t copy_ranks_, distance_;
  std::map<GroupId, GroupId> groups_;
  std::map<SignatureId, SignatureId> signatures_;
};

// Checks that a trace can represent another rank: no messages, which name single ranks, and only
// groups that the other rank is in, too.
Status stands_for(const Run& run, const RankTrace& trace, Rank rank, std::int32_t copy_ranks) {
  const bool has_copies = copy_ranks > 0;
  if (has_copies && trace.rank.value % copy_ranks != rank.value % copy_ranks)
    return cannot_be_used(trace, rank, "it has another index in its copy of the model");
  if (has_copies) return Status::ok();  // messages are held against the copy when they are moved
  for (const Call& call : trace.calls)
    if (run.tables.is_message(call))
      return cannot_be_used(trace, rank, "it sends messages to single ranks");
  return Status::ok();
}

Status is_in_its_groups(const Tables& tables, const RankTrace& trace, Rank rank) {
  for (const RankTrace::Membership& group : trace.groups)
    if (!group.ranks.contains(rank))
      return cannot_be_used(
          trace, rank,
          fmt::format("its group \"{}\" does not include it", printable(tables.str(group.group))));
  return Status::ok();
}

}  // namespace

void forget_samples(RankTrace& trace) {
  if (trace.data.empty()) return;  // ranks without samples go on sharing their events
  std::erase_if(trace.events.own(),
                [](const Event& event) { return event.kind == EventKind::data; });
  trace.data.clear();
}

Status move_to_copy(Tables& tables, RankTrace& trace, Rank rank, std::int32_t copy_ranks) {
  if (copy_ranks > 0 && trace.rank.value / copy_ranks != rank.value / copy_ranks) {
    if (const Status ok = CopyMove(tables, trace, rank, copy_ranks).move(trace); !ok) return ok;
  }
  if (const Status ok = is_in_its_groups(tables, trace, rank); !ok) return ok;
  trace.rank = rank;
  return Status::ok();
}

Result<Run> spread(Run run, const std::vector<std::int32_t>& traced, std::int32_t copy_ranks) {
  // If one copy is the whole job, there is no other.
  if (static_cast<std::size_t>(copy_ranks) >= traced.size()) copy_ranks = 0;
  std::vector<RankTrace> ranks;
  std::map<std::int32_t, RankTrace> stand_ins;  // by traced rank: its trace for others
  std::uint64_t own_calls = 0;
  for (std::size_t r = 0; r < traced.size(); ++r) {
    const RankTrace* trace = run.find(Rank(traced[r]));
    const Rank rank(static_cast<std::int32_t>(r));
    if (trace == nullptr)
      return Error{fmt::format("rank {} left no trace", traced[r]), {}, "derive it again"};
    if (trace->rank == rank) {
      ranks.push_back(*trace);
      continue;
    }
    const auto [known, is_new] = stand_ins.try_emplace(traced[r]);
    RankTrace& stand_in = known->second;
    if (is_new) {
      // The calls of the ranks of a class are the same, their samples are not.
      stand_in = *trace;
      forget_samples(stand_in);
    }
    if (is_new || copy_ranks > 0)
      if (const Status ok = stands_for(run, stand_in, rank, copy_ranks); !ok) return ok.error();
    ranks.push_back(stand_in);
    if (const Status ok = move_to_copy(run.tables, ranks.back(), rank, copy_ranks); !ok)
      return ok.error();
    if (ranks.back().calls.identity() != stand_in.calls.identity())
      own_calls += stand_in.calls.size();
    if (own_calls > kMaxSpreadCalls)
      return Error{fmt::format("this many copies of the model make more than {} calls, which take "
                               "gigabytes",
                               kMaxSpreadCalls),
                   {},
                   "take fewer steps, or fewer ranks"};
  }
  run.ranks = std::move(ranks);
  run.world_size = static_cast<std::int32_t>(traced.size());
  return run;
}

}  // namespace lockstep::trace
