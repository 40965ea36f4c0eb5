#include "verify/replay/wait_points.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "trace/groups.h"
#include "verify/replay/semantics.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

namespace {

class WaitPoints {
 public:
  WaitPoints(const Advance& at, const std::vector<Position>& positions)
      : at_(at), positions_(positions) {}

  // Groups the waiting ranks by the call in which they wait, and finds who is missing there.
  void collect(ReplayResult& out) const {
    std::map<std::pair<std::uint32_t, std::uint32_t>, WaitPoint> points;
    out.point_of.assign(at_.run().ranks.size(), SIZE_MAX);
    for (std::uint32_t r = 0; r < at_.run().ranks.size(); ++r) {
      const std::uint32_t c = positions_[r].waiting_in();
      if (c == kNoCall) continue;
      if (at_.is_message(r, c)) {
        // Every waiting message is a wait point of its own, sorted after all groups.
        describe_message(r, c, points[{kMessages, r}]);
        continue;
      }
      const CollectiveInstance instance = at_.instance(r, c);
      if (instance.is_known()) points[{instance.group, instance.index}].waiting.push_back(r);
    }
    for (auto& [key, point] : points) {
      if (key.first != kMessages) describe_instance({key.first, key.second}, point);
      for (const std::uint32_t r : point.waiting) out.point_of[r] = out.wait_points.size();
      out.wait_points.push_back(std::move(point));
    }
  }

 private:
  // After every group.
  static constexpr std::uint32_t kMessages = UINT32_MAX;

  // Fills in whom a rank waits for that waits in a message.
  void describe_message(std::uint32_t r, std::uint32_t c, WaitPoint& point) const {
    point.waiting.push_back(r);
    // The partner was posted: then its device may have an older open call before it.
    if (const std::optional<CallRef> partner = at_.partner(r, c)) {
      const bool behind =
          stands_before(partner->rank, partner->call) &&
          !is_beside(partner->rank, positions_[partner->rank].waiting_in(), partner->call);
      if (behind) point.behind.push_back(partner->rank);
      return;
    }
    if (lost_in_transport(r, c)) return;  // nobody is missing
    const trace::Call& call = at_.call(r, c);
    if (is_any_source(at_.run().tables, call, at_.options().semantics)) {
      add_all_others(point, r, call.group);
    } else {
      add_missing(point, call.peer);
    }
  }

  // Whether a watchdog ended the rank in a point-to-point call whose partner was posted.
  bool lost_in_transport(std::uint32_t r, std::uint32_t c) const {
    return positions_[r].state == Position::State::hung && at_.matched(r, c) &&
           !at_.run().ranks[r].snapshot &&
           !is_any_source(at_.run().tables, at_.call(r, c), at_.options().semantics);
  }

  // Fills in who is missing or queued at an instance of a collective. In dumps that do not list the
  // members of a group, a call that all known ones issued and that is still open may lack another.
  void describe_instance(CollectiveInstance instance, WaitPoint& point) const {
    const auto [g, m] = instance;
    point.group = g;
    point.instance = m;
    point.mismatched = at_.mismatched(instance);
    point.unknown_member = !at_.groups()[g].absent.empty();
    std::vector<std::uint32_t> beside;
    for (const Stream& stream : at_.groups()[g].streams) {
      const std::uint32_t r = stream.rank_index;
      if (m < stream.calls.size() && arrived_at(r, stream.calls[m])) {
        if (at_.queues() && stands_before(r, stream.calls[m]))
          (is_beside(r, positions_[r].waiting_in(), stream.calls[m]) ? beside : point.behind)
              .push_back(r);
        continue;
      }
      if (at_.run().ranks[stream.rank_index].open_ended) {
        point.unknown_member = true;  // the file ends here, the rank did not
      } else {
        point.missing.push_back(stream.rank_index);
      }
    }
    const bool may_lack =
        at_.dumps_hosts() && !at_.groups()[g].declared && !at_.completed_somewhere(instance);
    if (may_lack && point.missing.empty() && !point.unknown_member) add_other_ranks(g, point);
    point.unknown_member |= point.missing.empty() && may_be_silent(g, instance);
    // Nobody is missing, and the job hangs: something holds the call up, if only a wait for the
    // other thread.
    const bool held_up = point.missing.empty() && point.behind.empty() && !point.unknown_member;
    if (held_up && std::all_of(beside.begin(), beside.end(), [&](auto r) { return hangs(r); }))
      point.behind = std::move(beside);
  }

  // Whether the rank is known to hang. A dump may be that of a job that goes on.
  bool hangs(std::uint32_t r) const {
    const trace::RankTrace& trace = at_.run().ranks[r];
    return at_.options().hung || (trace.end == trace::End::hung && !trace.snapshot);
  }

  // Whether a member that no trace mentions may have never come: nothing tells the members of the
  // group, and not all ranks of the job are known (the watchdog's messages).
  bool may_be_silent(std::uint32_t g, CollectiveInstance instance) const {
    return !at_.groups()[g].declared && !at_.completed_somewhere(instance) &&
           !knows_all_ranks(at_.run());
  }

  // One of the ranks that did not use the group may be a member. Where a rank of the job has no
  // trace, it may be that one, and nobody can be said to be missing.
  void add_other_ranks(std::uint32_t g, WaitPoint& point) const {
    if (!knows_all_ranks(at_.run())) {
      point.unknown_member = true;
      return;
    }
    const std::set<std::uint32_t> others = ranks_of_sisters(g);
    for (std::uint32_t r = 0; r < at_.run().ranks.size(); ++r)
      if (!uses(at_.groups()[g], r) && !others.contains(r)) point.missing.push_back(r);
    point.any_source = !point.missing.empty();
  }

  static bool uses(const GroupStreams& group, std::uint32_t r) {
    return std::any_of(group.streams.begin(), group.streams.end(),
                       [&](const Stream& s) { return s.rank_index == r; });
  }

  // The ranks that use another group of the same kind, as the tensor-parallel groups of a mesh, of
  // which each rank is in one: so they are no members. None where a rank uses two of the kind.
  std::set<std::uint32_t> ranks_of_sisters(std::uint32_t g) const {
    const auto kind = [&](const GroupStreams& group) {
      return trace::kind_in_name(at_.run().tables.str(group.group));
    };
    const std::string_view own = kind(at_.groups()[g]);
    std::set<std::uint32_t> all, out;
    if (own.empty()) return out;
    for (const GroupStreams& group : at_.groups()) {
      if (group.declared || kind(group) != own) continue;
      for (const Stream& stream : group.streams) {
        if (!all.insert(stream.rank_index).second) return {};
        if (&group != &at_.groups()[g]) out.insert(stream.rank_index);
      }
    }
    return out;
  }

  // Whether the rank's device has an older open call than this one, and nothing shows that this one
  // started nevertheless.
  bool stands_before(std::uint32_t r, std::uint32_t c) const {
    if (at_.options().semantics != CallSemantics::nccl)
      return false;  // no device: nothing is queued
    const std::uint32_t open = positions_[r].waiting_in();
    const trace::Call& k = at_.call(r, c);
    const bool same_batch = open != kNoCall && k.coalesced != trace::kNone &&
                            k.coalesced == at_.call(r, open).coalesced;
    return open < c && !same_batch && !k.has(trace::kStarted) && !k.has(trace::kCompleted);
  }

  // Whether the open call is another thread's, and what this thread issued after it in the call's
  // group completed nevertheless: a checkpoint that is saved in the background has a communicator,
  // and a stream, of its own, and keeps no gradient from being reduced.
  bool is_beside(std::uint32_t r, std::uint32_t open, std::uint32_t c) const {
    const std::vector<trace::Call>& calls = at_.run().ranks[r].calls;
    const trace::Call& k = calls[c];
    if (calls[open].thread == k.thread || calls[open].group == k.group) return false;
    return std::any_of(calls.begin() + open + 1, calls.begin() + c, [&](const trace::Call& later) {
      return later.thread == k.thread && later.group == k.group && later.has(trace::kCompleted);
    });
  }

  bool arrived_at(std::uint32_t r, std::uint32_t c) const {
    // In a replayed program, calls after the rank's position have not been issued.
    const Advance::RankState& state = at_.state(r);
    return at_.follows_record() || state.blocked == kNoCall || c <= state.blocked;
  }

  // A peer without a trace, or whose file is cut off, may have issued its side unseen.
  void add_missing(WaitPoint& point, trace::Rank peer) const {
    const trace::RankTrace* trace = at_.run().find(peer);
    if (trace == nullptr || trace->open_ended) {
      point.unknown_member = true;
    } else {
      point.missing.push_back(static_cast<std::uint32_t>(trace - at_.run().ranks.data()));
    }
  }

  // For a receive from any source: each other member of the group may send the message.
  void add_all_others(WaitPoint& point, std::uint32_t r, trace::GroupId group) const {
    point.any_source = true;
    const std::uint32_t g = at_.index_of(group);
    if (g == CollectiveInstance::kNone) {
      point.unknown_member = true;
      return;
    }
    point.unknown_member = !at_.groups()[g].absent.empty();
    for (const Stream& stream : at_.groups()[g].streams) {
      if (stream.rank_index == r) continue;
      if (at_.run().ranks[stream.rank_index].open_ended)
        point.unknown_member = true;
      else
        point.missing.push_back(stream.rank_index);
    }
  }

  const Advance& at_;
  const std::vector<Position>& positions_;
};

}  // namespace

void find_wait_points(const Advance& at, const std::vector<Position>& positions,
                      ReplayResult& out) {
  WaitPoints(at, positions).collect(out);
}

}  // namespace lockstep::verify
