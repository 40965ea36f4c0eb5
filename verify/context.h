// What the analyses of one verify() share: the run, its streams, where everybody stands, and the
// words in which findings speak of ranks and calls.
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
#include "verify/streams/streams.h"

namespace lockstep::verify {

struct Context {
  const trace::Run& run;
  const std::vector<GroupStreams>& groups;
  const ReplayResult& where;
  const Modalities& modalities;
  Agreement& agreement;
  bool live = false;
  CallSemantics semantics = CallSemantics::gloo;

  const trace::Call& call(CallRef ref) const { return run.ranks[ref.rank].calls[ref.call]; }
  // By rank index; sorted.
  std::vector<trace::Rank> ranks(const std::vector<std::uint32_t>& indices) const;

  // "rank 1", "ranks 0, 2-4".
  std::string rank_words(const std::vector<std::uint32_t>& indices) const;
  // "all_reduce(image_proj.weight and 2 more)".
  std::string call_words(CallRef ref) const;
  // "call 14 of group world, step 4, train.py:122", with what is known.
  std::string place_words(CallRef ref, std::uint64_t seq) const;
  // A call as evidence.
  Evidence evidence(CallRef ref, std::string text) const;
  // Where a waiting rank's call stands in its group's sequence.
  std::uint64_t seq_of(const WaitPoint& point) const;
};

// A finding together with what later analyses need to hang consequences below it.
struct Cause {
  Finding finding;
  std::vector<std::uint32_t> deviants;  // rank indices, ascending; also where no culprit is named
  std::size_t group = SIZE_MAX;         // SIZE_MAX: none
  std::uint64_t seq = 0;
  std::int32_t step = trace::kNone;
  trace::SignatureId call;  // of a deviation: the call at which the ranks part
  bool can_block = true;    // false: it makes numbers wrong but keeps nobody waiting
};

std::string rank_words(const std::vector<trace::Rank>& sorted);

// The usual finding of a rule: its severity and general fix filled in.
Finding make_finding(RuleId id);

// Sets the fingerprint from rule, group, operation and parameters; nothing that differs from run to
// run (ranks, times, steps) enters it.
void set_fingerprint(Finding& finding, const std::string& operation);

// Sets of ranks as indices into Run::ranks, ascending.

using RankIndices = std::vector<std::uint32_t>;

// What is in either of two ascending lists, ascending.
template <class T>
std::vector<T> united(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

// The words in which findings speak of ranks that wait, and of what became of those they wait for.

// The call in which a waiting rank waits.
CallRef waiting_call(const Context& context, std::uint32_t rank);

// The place of a wait point's call in its group's sequence (point-to-point: in the rank's own).
std::uint64_t seq_at(const Context& context, const WaitPoint& point);

// "ranks 0, 2 wait in all_reduce(w) (call 4 of group world, step 1)".
std::string waiting_words(const Context& context, const WaitPoint& point);
// The same, and for whom: "… for rank 1".
std::string waiting_for_words(const Context& context, const WaitPoint& point);

// "finished its program", "raised an exception: …".
std::string state_words(const Context& context, std::uint32_t rank);
// The last thing that a rank is known to have done.
std::string last_seen(const Context& context, std::uint32_t rank);

// Places a cause at a wait point: its group, sequence number, step and parameters.
void place_at(const Context& context, const WaitPoint& point, Cause& cause);

// The words that findings about values share.

// "a.weight", "a.weight, b.weight and 3 more".
std::string names_words(const Context& context, const std::vector<trace::StringId>& names);

// The usual cause of a rule of values: the step, the tensors and the culprits (rank indices) filled
// in; concerns all ranks of the run until told otherwise, and keeps nobody waiting.
Cause value_cause(const Context& context, RuleId rule, std::int64_t n,
                  const std::vector<trace::StringId>& names,
                  const std::vector<std::uint32_t>& culprits);

}  // namespace lockstep::verify
