// Parts of a finding in words, shared by several forms of reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trace/ids.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

// "rank 1", "ranks 0,2-7"; if that is wider than `width` columns, "512 ranks: 0,2,..". What repeats
// is folded (base/folded_ranges.h). `sorted` is not empty. `width` 0: no limit.
std::string rank_label(std::span<const trace::Rank> sorted, std::size_t width = 0);

// "group world", "TENSOR_PARALLEL (ranks 32-39)"; may be empty.
std::string group_in_words(const verify::Finding& finding);

// The call's number as the source counts it: what PyTorch's log calls SeqNum.
std::uint64_t number_of(const verify::Finding& finding);

// The other groups in which the same happened: "TENSOR_PARALLEL (ranks 0-7): rank 5".
std::vector<std::string> also_in_words(const verify::Finding& finding);

// The finding in one sentence: its headline, which says who stopped, where, how long ago and who
// waits; without one its message.
const std::string& summary_of(const verify::Finding& finding);

// What every form of a report says of a finding, a line each: the summary, the message where the
// summary is the headline, "who: …", "where: …", "also: …", "next: …", "what to do: …", without
// what is not known. As in the traces: escape it.
std::vector<std::string> lines_of(const verify::Finding& finding);

// Whether it is about the ranks' calls, which are shown, rather than about their traces: notes of
// missing and damaged files. A stall that nothing proves is a note, too.
bool is_about_calls(const verify::Finding& finding);

// The ranks to look at: culprits or, in a note about ranks without a trace for which all wait,
// these. Empty where nobody can be named.
const std::vector<trace::Rank>& named_ranks(const verify::Finding& finding);

// The finding whose headline stands above the report: the worst one; null where it has none.
const verify::Finding* headline_of(const verify::Report& report);

// "group world, seq 7, step 3", without what is not known; may be empty.
std::string where_in_words(const verify::Finding& finding);

// "rank 1; concerns ranks 0,2 too", "ranks 0,1; none can be singled out"; may be empty.
std::string who_in_words(const verify::Finding& finding);

// "2 errors and 1 note"; empty without findings.
std::string counts_in_words(const verify::Report& report);

// The verdict as one sentence: "2 errors and 1 note in 4 ranks, 1,234 events".
std::string verdict_in_words(const verify::Report& report);

// Evidence of several ranks that is equal.
struct FoldedEvidence {
  std::vector<trace::Rank> ranks;  // sorted
  const verify::Evidence* one;     // the first rank's; points into the input
};

// Folds equal evidence, in the order of its first occurrence. O(evidence log evidence).
std::vector<FoldedEvidence> fold_evidence(const std::vector<verify::Evidence>& all);

// The call that the evidence is about; null: about none.
// O(calls of the rank).
const trace::Call* call_of(const verify::Evidence& evidence, const trace::Run& run);

// "group 5, [8192,4096] to [8192,4096]": the group's own name, which a description hides, and the
// shapes of the tensors, which their number of elements hides; ", runs on its device" where it
// began and did not end. Without what was not recorded.
std::string group_and_shapes(const trace::Call& call, const trace::Tables& tables);

// Its frames, innermost first; empty where none was recorded.
std::vector<std::string> stack_of(const trace::Call& call, const trace::Tables& tables);

// The folder that all of these source locations are in, with a '/' at its end:
// "/srv/alice/llm/src/". Empty where they are not absolute, or naming it once would save little:
// below `worth_naming` bytes.
std::string common_folder(const std::vector<std::string>& locations, std::size_t worth_naming = 24);

// Names for findings, unique within a report and stable across runs: the fingerprint, with "-2",
// "-3" … if several findings share it. Call next() once per finding, in order.
class UniqueFingerprints {
 public:
  std::string next(const verify::Finding& finding);

 private:
  std::map<std::string, std::size_t> seen_;
};

}  // namespace lockstep::reports
