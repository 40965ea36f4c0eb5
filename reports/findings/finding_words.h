// Parts of a finding in words, as several report forms put them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/ids.h"
#include "verify/report.h"

namespace lockstep::reports {

// "rank 1", "ranks 0,2-7"; with a width that this does not fit into: "512 ranks: 0,2,4..".
// `sorted` must not be empty. `width` 0: any.
std::string rank_label(std::span<const trace::Rank> sorted, std::size_t width = 0);

// "group world, seq 7, step 3", leaving out what is not known; may be empty.
std::string where_in_words(const verify::Finding& finding);

// "rank 1; concerns ranks 0,2 too", "ranks 0,1; none can be singled out"; may be empty.
std::string who_in_words(const verify::Finding& finding);

// The verdict as one sentence: "2 errors and 1 note in 4 ranks, 1,234 events".
std::string verdict_in_words(const verify::Report& report);

// Evidence of several ranks that says the same is one.
struct FoldedEvidence {
  std::vector<trace::Rank> ranks;  // sorted
  const verify::Evidence* one;     // of the first of them; points into what was folded
};

// In the order in which each comes first. O(evidence log evidence).
std::vector<FoldedEvidence> fold_evidence(const std::vector<verify::Evidence>& all);

// Names for findings that are unique within a report and stable over runs: the fingerprint, with
// "-2", "-3" … where several findings share it. Called once per finding, in order.
class UniqueFingerprints {
 public:
  std::string next(const verify::Finding& finding);

 private:
  std::map<std::string, std::size_t> seen_;
};

// The source place of a call, as traces write it ("trainer.cc:120", "/job/src/train.py:57:3"),
// taken apart for formats that show findings beside the code.

struct SourcePlace {
  std::string file;                     // valid UTF-8, "/" between folders; relative where it is
                                        // inside of the root
  std::uint32_t line = 0;               // from 1
  std::optional<std::uint32_t> column;  // from 1
};

// `root`: an absolute folder; what is inside of it is named relative to it, as CI services do.
// Nothing where `at` does not end in a line number: then it is only text.
std::optional<SourcePlace> source_place(std::string_view at, std::string_view root = {});

// Where a finding is shown: the first place of a culprit's evidence, else of anybody's.
std::optional<SourcePlace> place_of(const verify::Finding& finding, std::string_view root = {});

}  // namespace lockstep::reports
