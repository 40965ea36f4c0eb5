#include "runtime/replay/kept_calls.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "runtime/replay/refusals.h"

namespace lockstep::runtime {

namespace {

using Kept = std::vector<std::vector<bool>>;

// The sequence in which a call matches others: its group's, or the channel of a message.
using Sequence = std::tuple<std::uint32_t, std::int32_t, std::int32_t, std::int32_t>;

Sequence sequence_of(const trace::Run& run, const trace::RankTrace& trace,
                     const trace::Call& call) {
  const trace::Op op = run.tables.op(call);
  if (!trace::is_point_to_point(op))
    return {call.group.value, trace::kNone, trace::kNone, trace::kNone};
  const bool sends = op == trace::Op::send;
  return {call.group.value, sends ? trace.rank.value : call.peer.value,
          sends ? call.peer.value : trace.rank.value, call.ptag};
}

bool is_collective(const trace::Run& run, const trace::Call& call) {
  return !run.tables.is_message(call);
}

// An error if a channel has different numbers of sends and receives: then the first of what is left
// do not belong together.
std::optional<Error> find_torn_channel(const trace::Run& run) {
  std::map<Sequence, std::int64_t> balance;
  for (const trace::RankTrace& trace : run.ranks) {
    for (const trace::Call& call : trace.calls) {
      if (is_collective(run, call)) continue;
      const trace::Op op = run.tables.op(call);
      balance[sequence_of(run, trace, call)] += op == trace::Op::send ? 1 : -1;
    }
  }
  for (const trace::RankTrace& trace : run.ranks) {
    for (const trace::Call& call : trace.calls) {
      if (is_collective(run, call) || balance[sequence_of(run, trace, call)] == 0) continue;
      return Error{
          fmt::format("rank {}, {}: the recorders lost the ranks' oldest calls, and which messages "
                      "belong together is not known",
                      trace.rank.value, call_in_words(run.tables, call)),
          {trace.source},
          "record with a larger buffer"};
    }
  }
  return std::nullopt;
}

// Leaves out calls that not all members' recorders kept. Group {0, 1}: rank 0's recorder kept calls
// 5…, rank 1's kept 8…: both keep 8….
std::optional<Error> drop_what_recorders_lost(const trace::Run& run, Kept& kept) {
  const auto cut = [](const trace::RankTrace& trace) { return trace.dropped > 0; };
  if (std::none_of(run.ranks.begin(), run.ranks.end(), cut)) return std::nullopt;
  if (auto error = find_torn_channel(run)) return error;
  std::map<trace::GroupId, std::uint64_t> begin;
  for (const trace::RankTrace& trace : run.ranks) {
    std::set<trace::GroupId> seen;
    for (const trace::Call& call : trace.calls) {
      if (!is_collective(run, call)) continue;
      if (!seen.insert(call.group).second) continue;
      if (cut(trace) && !trace.first_seq.contains(call.group)) {
        return Error{
            fmt::format(
                "the recorder lost the oldest calls of rank {}, and the trace does not number "
                "the others",
                trace.rank.value),
            {trace.source},
            "record with a larger buffer"};
      }
      std::uint64_t& first = begin[call.group];
      first = std::max<std::uint64_t>(first, call.seq);
    }
  }
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const std::vector<trace::Call>& calls = run.ranks[r].calls;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      if (is_collective(run, calls[c]) && calls[c].seq < begin[calls[c].group]) kept[r][c] = false;
    }
  }
  return std::nullopt;
}

// The index of each rank's first kept call. It only moves back; each move brings back calls of some
// sequences, and only these are checked again.
class Cut {
 public:
  Cut(const trace::Run& run, Kept& kept, std::size_t last) : run_(run), kept_(kept) {
    for (std::size_t r = 0; r < run.ranks.size(); ++r) {
      const trace::RankTrace& trace = run.ranks[r];
      std::vector<std::size_t>& calls = calls_.emplace_back();
      for (std::size_t c = 0; c < trace.calls.size(); ++c) {
        if (kept[r][c]) calls.push_back(c);
      }
      begin_.push_back(calls.size() > last ? calls.size() - last : 0);
    }
  }

  void apply() {
    note_members();
    for (std::size_t r = 0; r < calls_.size(); ++r) begin_[r] = begin_of_step(r, begin_[r]);
    for (std::size_t s = 0; s < sequences_.size(); ++s) stale_.push_back(s);
    while (!stale_.empty()) {
      const std::size_t sequence = stale_.back();
      stale_.pop_back();
      make_whole(sequence);
    }
    for (std::size_t r = 0; r < calls_.size(); ++r) {
      for (std::size_t i = 0; i < begin_[r]; ++i) kept_[r][calls_[r][i]] = false;
    }
  }

 private:
  // By rank index, for all members, even if they never call in the sequence: the indices of their
  // calls in calls_.
  using Members = std::map<std::size_t, std::vector<std::size_t>>;

  const trace::Call& call(std::size_t r, std::size_t i) const {
    return run_.ranks[r].calls[calls_[r][i]];
  }

  std::size_t number_of(const Sequence& sequence) {
    const auto [known, is_new] = numbers_.try_emplace(sequence, sequences_.size());
    if (is_new) sequences_.emplace_back();
    return known->second;
  }
  void note_member(std::size_t sequence, trace::Rank rank) {
    const trace::RankTrace* const trace = run_.find(rank);
    if (trace != nullptr) sequences_[sequence][static_cast<std::size_t>(trace - run_.ranks.data())];
  }

  void note_members() {
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      const trace::RankTrace& trace = run_.ranks[r];
      for (const trace::RankTrace::Membership& group : trace.groups) {
        const std::size_t sequence =
            number_of({group.group.value, trace::kNone, trace::kNone, trace::kNone});
        for (const trace::Rank member : group.ranks) note_member(sequence, member);
      }
      std::vector<std::size_t>& own = sequence_.emplace_back();
      for (std::size_t i = 0; i < calls_[r].size(); ++i) {
        const std::size_t sequence = number_of(sequence_of(run_, trace, call(r, i)));
        own.push_back(sequence);
        sequences_[sequence][r].push_back(i);
        if (!is_collective(run_, call(r, i))) note_member(sequence, call(r, i).peer);
      }
    }
  }

  // Keep whole steps: half a step would look as if a rank had left out the other half.
  std::size_t begin_of_step(std::size_t r, std::size_t i) const {
    if (i == calls_[r].size() || call(r, i).step == trace::kNone) return i;
    while (i > 0 && call(r, i - 1).step == call(r, i).step) --i;
    return i;
  }

  // All members must lose the same number of calls of a sequence: move the cuts of those that lose
  // more back to the least.
  void make_whole(std::size_t sequence) {
    const Members& members = sequences_[sequence];
    const auto lost = [&](const Members::value_type& member) {
      const auto& [r, indices] = member;
      return static_cast<std::size_t>(std::lower_bound(indices.begin(), indices.end(), begin_[r]) -
                                      indices.begin());
    };
    std::size_t least = SIZE_MAX;
    for (const auto& member : members) least = std::min(least, lost(member));
    for (const auto& member : members) {
      if (lost(member) > least) move_back(member.first, member.second[least]);
    }
  }

  void move_back(std::size_t r, std::size_t to) {
    to = begin_of_step(r, to);
    for (std::size_t i = to; i < begin_[r]; ++i) stale_.push_back(sequence_[r][i]);
    begin_[r] = to;
  }

  const trace::Run& run_;
  Kept& kept_;
  std::vector<std::vector<std::size_t>> calls_;     // by rank index: calls kept so far
  std::vector<std::size_t> begin_;                  // by rank index, into calls_
  std::vector<std::vector<std::size_t>> sequence_;  // by rank index and index in calls_
  std::map<Sequence, std::size_t> numbers_;
  std::vector<Members> sequences_;  // by number
  std::vector<std::size_t> stale_;  // sequences to check again
};

}  // namespace

Result<std::vector<std::vector<bool>>> kept_calls(const trace::Run& run, std::size_t last) {
  Kept kept;
  for (const trace::RankTrace& trace : run.ranks) kept.emplace_back(trace.calls.size(), true);
  if (const auto error = drop_what_recorders_lost(run, kept)) return *error;
  if (last == 0) return kept;
  for (const trace::RankTrace& trace : run.ranks) {
    for (const trace::Call& call : trace.calls) {
      if (run.tables.op(call) != trace::Op::recv_any) continue;
      return Error{
          fmt::format(
              "rank {}, {}: which message a receive from any source took is not recorded, so "
              "that nothing in front of it can be left out",
              trace.rank.value, call_in_words(run.tables, call)),
          {trace.source},
          "leave out --last"};
    }
  }
  Cut(run, kept, last).apply();
  return kept;
}

}  // namespace lockstep::runtime
