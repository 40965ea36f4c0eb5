// What a rank does in one part of a program (its start, step 0, a later step under a condition, its
// end), cut from the traces of a derivation.
//
// Where a program looks back (ProductSpec::looks_back), a later step is a part by its condition and
// that of the step before.
//
// Where histories go on to step 1 (ProductSpec::History::second), that is a part of its own,
// kSecond, with whatever comes in it.
//
// Parts follow each other in the trace: a part ends where a call of a later step comes. Calls of
// step 0 may come *late*, among those of step 1 (DDP arranges its buckets by the gradients of step
// 0 once the next batch is there). Step 1 is then a part of its own, kSecond, in which they stand
// where they came; what the rest of step 1 is without them must be what its condition is later.
//
// O(events of all traces).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/derivation.h"
#include "verify/product/sequence_table.h"

namespace lockstep::verify {

using trace::ConditionId;
using trace::HistoryId;
inline constexpr HistoryId kNoHistory{kNothing};

// Where a sequence was recorded: the events [begin, end) of that rank's trace.
struct RecordedPart {
  SequenceId sequence = kNoSequence;
  std::uint32_t begin = 0, end = 0;  // into RankTrace::events
};

// A rank's trace ended with an exception.
struct RecordedRaise {
  std::int64_t step = 0;             // in which it was raised
  std::uint32_t begin = 0, end = 0;  // the events of that step, up to the exception
  std::string what;
};

class ProductSequences : public SequenceTable {
 public:
  // kSecond: step 1 where calls of step 0 come late, or where histories have a `second`; else not
  // recorded. From kFirstCondition on,
  // one part per condition, or per pair of conditions: under().
  enum Part : std::uint32_t { kStart, kFirst, kSecond, kEnd, kFirstCondition };
  // Of a step after 0. `previous`, of the step before, counts only where the program looks back.
  std::uint32_t under(ConditionId previous, ConditionId condition) const {
    return kFirstCondition + previous.value * per_previous_ + condition.value;
  }
  // How many parts there may be.
  std::uint32_t parts() const { return static_cast<std::uint32_t>(width_); }

  const RecordedPart& part(HistoryId history, std::int32_t rank, std::uint32_t part) const {
    return parts_[(std::size_t{history.value} * ranks_ + static_cast<std::size_t>(rank)) * width_ +
                  part];
  }
  const std::optional<RecordedRaise>& raise(HistoryId history, std::int32_t rank) const {
    return raises_[std::size_t{history.value} * ranks_ + static_cast<std::size_t>(rank)];
  }
  // Step 1 of some rank is a part of its own.
  bool has_late_calls() const { return has_late_calls_; }

 private:
  friend class SequenceCutter;
  std::size_t ranks_ = 0, width_ = 0;
  std::uint32_t per_previous_ = 0;  // the conditions; 0: the step before does not count
  std::vector<RecordedPart> parts_;
  std::vector<std::optional<RecordedRaise>> raises_;
  bool has_late_calls_ = false;
};

// Cuts all traces. What cannot be decided is listed in `inconclusive`, with rank and folder.
ProductSequences cut_sequences(const trace::Derivation& derivation);

}  // namespace lockstep::verify
