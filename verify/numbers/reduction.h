// Checks whether a synchronised gradient is the mean (or sum) of the ranks' own gradients.
//
// A sketch is linear: the sketch of a mean is the mean of the sketches, up to rounding
// (verify/numbers/rounding.h). Where synchronised gradients break this, the sketches also show how:
// a wrong divisor, a rank left out or counted twice, another tensor instead of a rank's own.
// Tensors can be identified because the sketches of all tensors use the same signs
// (docs/trace-format.md). Without sketches, hashes show gradients that were not synchronised at
// all, and norms those that are too large to be a mean (triangle inequality).
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "verify/context.h"
#include "verify/numbers/rounding.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {

struct ReductionFault {
  enum class Kind : std::uint8_t {
    unsynchronised,  // it is still the rank's own gradient
    divisor,         // correct except for the number that the sum was divided by
    left_out,        // a rank's gradient is not in it
    counted_twice,   // a rank's gradient is in it twice
    mispaired,       // a rank contributed another tensor
    diluted,         // divided by all ranks, although only some had a gradient
    too_large,       // larger than any mean of these gradients
    corrupt,         // none of these: values changed on the way
  };
  Kind kind{};
  const ValueRow* row = nullptr;        // the synchronised gradient
  std::vector<std::uint32_t> culprits;  // rank indices; may be empty
  std::size_t world = 0;                // ranks that take part
  std::size_t contributors = 0;         // those of them that had a gradient
  double divisor = 0;                   // Kind::divisor and left_out: the divisor that was used
  trace::StringId partner;              // Kind::mispaired: the tensor that was contributed instead
  bool declared = false;                // Kind::diluted: the program says "average=contributors"
};

struct Reductions {
  std::vector<ReductionFault> faults;  // in the order of the rows
  std::size_t checked = 0;             // gradients that could be checked
  std::size_t unchecked = 0;           // not checked: ranks of their group left no trace
};

// Checks all synchronised gradients of the table. O(readings · sketch size) where all is well. A
// wrong row costs a few passes over its ranks, and for the first 64 one over the tensors of its
// size.
Reductions check_reductions(const Context& context, const ValueTable& table,
                            const SyncCalls& calls);

// The two sides of a reduction: what ranks contribute, and what they hold afterwards.

// One rank's contribution to a reduction.
struct Term {
  std::uint32_t rank = 0;
  const trace::StateMark* local = nullptr;  // nullptr: it had no gradient

  // Whether the gradient is there and not zero. Without norm and sketch it counts as not zero.
  bool contributes() const {
    if (local == nullptr) return false;
    if (local->norm) return *local->norm != 0;
    return local->sketch.empty() || norm_estimate(local->sketch) != 0;
  }
  // The 2-norm of the gradient: recorded, or estimated from the sketch.
  double size() const {
    if (local == nullptr) return 0;
    return std::max(local->norm.value_or(0), norm_estimate(local->sketch));
  }
};

struct Reduction {
  const ValueRow* row = nullptr;  // the synchronised gradient
  std::vector<Term> terms;        // of all ranks that take part
  std::size_t contributors = 0;
  Average average = Average::undeclared;
  double roundoff = kFloat32Roundoff;
  double norms = 0;  // the sum of the terms' 2-norms
  Sketch total;      // the sum of the terms' sketches; empty where some term has none

  std::size_t world() const { return terms.size(); }
  // Whether `got` is `expected_total` / `divisor`, up to rounding.
  bool fits(const Sketch& got, const Sketch& expected_total, double divisor) const;
};

// Collects the terms of reductions.
class Assembler {
 public:
  // O(readings). Keeps references to all three.
  Assembler(const Context& context, const ValueTable& table, const SyncCalls& calls);

  // Why a reduction cannot be checked.
  enum class Gap : std::uint8_t { none, not_recorded, rank_missing };

  // Fills `out` for the synchronised gradient `synced`. With a gap, `out` is incomplete. O(ranks).
  Gap assemble(const ValueRow& synced, Reduction& out) const;

 private:
  double roundoff_of(const ValueRow& local, const SyncCall* call) const;

  const Context& context_;
  const ValueTable& table_;
  const SyncCalls& calls_;
  // Rank and step in which the rank recorded any gradient of its own. Then a gradient that it did
  // not record did not exist.
  std::set<std::pair<std::uint32_t, std::int64_t>> recorded_;
};

// Explains wrong reductions: one finding per fault, however many tensors and steps show it.

struct ReductionCause {
  ReductionFault::Kind kind{};
  std::int64_t n = 0;  // the first step that shows it
  Cause cause;

  // Whether ranks end up with different gradients, so that everything after it differs.
  bool makes_ranks_differ() const {
    using Kind = ReductionFault::Kind;
    return kind == Kind::unsynchronised || kind == Kind::mispaired ||
           (kind == Kind::corrupt && !cause.deviants.empty());
  }
};

// The causes, sorted by first step. O(faults log faults).
std::vector<ReductionCause> explain_reductions(const Context& context,
                                               const Reductions& reductions);

}  // namespace lockstep::verify
