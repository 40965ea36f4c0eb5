// What the analyses of one verify() share: the run, its streams, how far each rank got, and the
// phrases by which findings name ranks and calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/modality.h"
#include "verify/replay/replay.h"
#include "verify/report.h"
#include "verify/streams/agreement.h"
#include "verify/streams/deviations.h"
#include "verify/streams/exchanges.h"
#include "verify/streams/odd_programs.h"
#include "verify/streams/streams.h"
#include "verify/streams/uneven_rounds.h"

namespace lockstep::verify {

struct Context {
  const trace::Run& run;
  const std::vector<GroupStreams>& groups;
  const ReplayResult& where;
  const Modalities& modalities;
  Agreement& agreement;
  bool live = false;
  CallSemantics semantics = CallSemantics::gloo;
  // Nothing shows that the ranks hang. The analysis assumes that they stand where their traces end.
  bool presumed = false;
  // The ranks whose program diverges from those of their kind. Null: there are none, or it was not
  // looked for because nobody waits.
  const OddProgram* odd_program = nullptr;
  // Messages of a round that two ranks count differently. Null as above.
  const UnevenExchange* uneven_exchange = nullptr;
  // Rounds in which members of a group made different numbers of its calls. At most one for each
  // group in which ranks wait.
  std::vector<UnevenRound> uneven_rounds = {};
  bool hung = false;  // as VerifyOptions

  const trace::Call& call(CallRef ref) const { return run.ranks[ref.rank].calls[ref.call]; }
  trace::Op op(CallRef ref) const { return run.tables.op(call(ref)); }
  // By rank index; sorted.
  std::vector<trace::Rank> ranks(const std::vector<std::uint32_t>& indices) const;

  // "rank 1", "ranks 0, 2-4".
  std::string describe_ranks(const std::vector<std::uint32_t>& indices) const;
  // "group world", "TENSOR_PARALLEL"; as the rank (index) names it.
  std::string describe_group(std::uint32_t rank, trace::GroupId group) const;
  // "all_reduce(image_proj.weight and 2 more)".
  std::string describe_call(CallRef ref) const;
  // "call 14 of group world", "call 318 of TENSOR_PARALLEL": the number is the source's.
  std::string describe_numbered(CallRef ref, std::uint64_t seq) const;
  // "call 14 of group world, step 4, train.py:122", as far as known.
  std::string describe_location(CallRef ref, std::uint64_t seq) const;
  // A call as evidence.
  Evidence evidence(CallRef ref, std::string text) const;
  // The sequence number of a wait point's call. Requires a collective.
  std::uint64_t seq_of(const WaitPoint& point) const;
};

// A finding with the data that later analyses need to put consequences below it.
struct Cause {
  Finding finding;
  std::vector<std::uint32_t> deviants;  // rank indices, ascending; also without named culprits
  std::size_t group = SIZE_MAX;         // index into Context::groups; SIZE_MAX: none
  std::uint64_t seq = 0;
  std::int32_t step = trace::kNone;
  trace::SignatureId call;  // for a deviation: the call at which the ranks differ
  bool can_block = true;    // false: it makes numbers wrong but keeps nobody waiting
  // Rank indices, ascending: who waits because of it, as far as the wait-for graph shows.
  std::vector<std::uint32_t> held_up;
};

// "rank 3", "ranks 0, 2-7". `sorted` is not empty.
std::string describe_ranks(const std::vector<trace::Rank>& sorted);

// A finding of the rule, with the rule's severity and fix.
Finding make_finding(RuleId id);

// Sets the fingerprint from rule, group, operation and parameters, but from nothing that differs
// between runs (ranks, times, steps). Call it when these fields are set.
void set_fingerprint(Finding& finding, const std::string& operation);

// Whether two causes are one fault in two groups: the same rule, call, index, step and parameters,
// in groups of the same size. A tensor-parallel group that leaves out a call leaves it out in the
// data-parallel group of each of its members.
bool is_same_in_sister_group(const Context& context, const Cause& a, const Cause& b);

// Joins two such causes to one, which names the ranks of both and lists the group of the second in
// Finding::also. Causes of messages, which are in no group's sequence, may be joined, too.
void merge_sister(const Context& context, Cause& into, Cause&& same);

// A set of ranks as indices into Run::ranks, ascending.
using RankIndices = std::vector<std::uint32_t>;

// The union of two ascending lists, ascending.
template <class T>
std::vector<T> united(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

// The same in place. O(size of `more`) if all of it comes after `into`.
template <class T>
void unite(std::vector<T>& into, const std::vector<T>& more) {
  if (into.empty() || more.empty() || into.back() < more.front()) {
    into.insert(into.end(), more.begin(), more.end());
  } else {
    into = united(into, more);
  }
}

// Phrases about ranks that wait, and about the ranks for which they wait.

// The call in which a rank waits; kNoCall: in none.
CallRef waiting_call(const Context& context, std::uint32_t rank);

// The call in which the point's ranks wait, of one whose trace shows which it is, if any does: a
// watchdog's counters tell its number alone.
CallRef shown_call(const Context& context, const WaitPoint& point);

// The sequence number of a wait point's call; for point-to-point, that in the rank's own sequence.
std::uint64_t seq_at(const Context& context, const WaitPoint& point);

// "ranks 0, 2 wait in all_reduce(w) (call 4 of group world, step 1)".
std::string describe_wait(const Context& context, const WaitPoint& point);
// The same, and for whom: "… for rank 1".
std::string describe_awaited(const Context& context, const WaitPoint& point);
// The wait as evidence, in the words of one of these two.
Evidence wait_evidence(const Context& context, const WaitPoint& point, std::string words);

// "finished its program", "raised an exception: …"; of several `ranks` that do as this one:
// "finished their programs".
std::string describe_state(const Context& context, std::uint32_t rank, std::size_t ranks = 1);
// "ranks 1-7 hung outside of any collective; rank 8 was killed": at most `most` different states.
std::string describe_states(const Context& context, const std::vector<std::uint32_t>& ranks,
                            std::size_t most);
// The rank's last call: "its last call was …".
std::string last_seen(const Context& context, std::uint32_t rank);

// Sets a cause's group, sequence number, step and parameters to those of a wait point.
void locate_cause(const Context& context, const WaitPoint& point, Cause& cause);
// The same, to those of another call of its group.
void locate_cause(const Context& context, const WaitPoint& point, CallRef call, std::uint64_t seq,
                  Cause& cause);

// Shared by findings about values.

// "a.weight", "a.weight, b.weight and 3 more".
std::string describe_names(const Context& context, const std::vector<trace::StringId>& names);

// A cause of a rule about values, with the step, the tensors and the culprits (rank indices). It
// concerns all ranks of the run unless the caller changes that, and blocks nobody.
Cause value_cause(const Context& context, RuleId rule, std::int64_t n,
                  const std::vector<trace::StringId>& names,
                  const std::vector<std::uint32_t>& culprits);

}  // namespace lockstep::verify
