// The two sides of a reduction: what ranks put in, and what they hold afterwards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "verify/context.h"
#include "verify/numbers/rounding.h"
#include "verify/numbers/sketch.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/value_table.h"

namespace lockstep {

// One rank's part in a reduction.
struct Term {
  std::uint32_t rank = 0;
  const StateMark* local = nullptr;  // nullptr: it had no gradient

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
  double norms = 0;  // the terms' 2-norms, added up
  Sketch total;      // the sum of the terms' sketches; empty where some term has none

  std::size_t world() const { return terms.size(); }
  // Whether `got` is `expected_total` divided by that, up to rounding.
  bool fits(const Sketch& got, const Sketch& expected_total, double divisor) const;
};

// Puts the terms of reductions together.
class Assembler {
 public:
  // O(readings). Keeps references to all three.
  Assembler(const Context& context, const ValueTable& table, const SyncCalls& calls);

  enum class Gap : std::uint8_t { none, not_recorded, rank_missing };

  // Of the synchronised gradient `synced`; the gap tells why `out` is not whole. O(ranks).
  Gap assemble(const ValueRow& synced, Reduction& out) const;

 private:
  double roundoff_of(const ValueRow& local, const SyncCall* call) const;

  const Context& context_;
  const ValueTable& table_;
  const SyncCalls& calls_;
  // By rank and step: whether a rank recorded any gradient of its own; then one that it did not
  // record was not there.
  std::set<std::pair<std::uint32_t, std::int64_t>> recorded_;
};

}  // namespace lockstep
