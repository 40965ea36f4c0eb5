// What the analyses of one verify() share: the run, its streams, where everybody stands, and the
// words in which findings speak of ranks and calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/modality.h"
#include "verify/replay/replay.h"
#include "verify/report.h"
#include "verify/streams/agreement.h"
#include "verify/streams/deviations.h"
#include "verify/streams/streams.h"

namespace lockstep {

struct Context {
  const Run& run;
  const std::vector<GroupStreams>& groups;
  const ReplayResult& where;
  const Modalities& modalities;
  Agreement& agreement;
  bool live = false;
  CallSemantics semantics = CallSemantics::gloo;

  const Call& call(CallRef ref) const { return run.ranks[ref.rank].calls[ref.call]; }
  // By rank index; sorted.
  std::vector<Rank> ranks(const std::vector<std::uint32_t>& indices) const;

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

std::string rank_words(const std::vector<Rank>& sorted);

// The usual finding of a rule: its severity and general fix filled in.
Finding make_finding(RuleId id);

// Sets the fingerprint from rule, group, operation and parameters; nothing that differs from run to
// run (ranks, times, steps) enters it.
void set_fingerprint(Finding& finding, const std::string& operation);

}  // namespace lockstep
