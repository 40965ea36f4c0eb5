// What the ranks recorded of their tensors, side by side: a row for each value of each step, with
// what every rank says of it.
//
// Rows are sorted by step, then by when in a step they are taken (gradients before and after the
// synchronisation, optimiser state, parameters, buffers), then by name in the order in which the
// program first speaks of it: the first row that is wrong is where it went wrong.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

// When in a step a value is taken; in this order.
enum class Phase : std::uint8_t {
  leftover,     // a gradient as backward found it
  local_grad,   // a gradient as backward left it
  synced_grad,  // a gradient as the optimiser gets it
  other_grad,   // a gradient of which the source does not say which of these it is
  optim,
  param,
  buffer,
};

struct Reading {
  std::uint32_t rank = 0;  // index into Run::ranks
  const trace::StateMark* mark = nullptr;
};

struct ValueRow {
  std::int64_t n = 0;
  Phase phase{};
  trace::StringId name;
  std::uint32_t place = 0;        // of the name, in the program's order
  std::vector<Reading> readings;  // by rank; at least one

  const trace::StateMark* of(std::uint32_t rank) const;  // nullptr: the rank recorded none
  bool sharded() const;                                  // ranks rightly hold different parts of it
};

// The rows of one name in one phase, by step.
struct Series {
  Phase phase{};
  trace::StringId name;
  std::vector<const ValueRow*> rows;  // at least one
};

class ValueTable {
 public:
  // O(marks log marks). Where a rank says a value twice in a step the last counts; of a gradient
  // before the synchronisation the first of several is what backward found (Phase::leftover).
  // Points into `run`.
  // `counts` (rank index, name): false for tensors that this rank trains by itself; none: all
  // count.
  using Counts = std::function<bool(std::uint32_t, trace::StringId)>;
  explicit ValueTable(const trace::Run& run, const Counts& counts = {});
  ValueTable(const ValueTable&) = delete;
  ValueTable& operator=(const ValueTable&) = delete;

  bool empty() const { return rows_.empty(); }
  std::span<const ValueRow> rows() const { return rows_; }
  std::span<const Series> series() const { return series_; }  // by phase, then by place
  const Series* series(Phase phase, trace::StringId name) const;
  const ValueRow* row(Phase phase, trace::StringId name, std::int64_t n) const;
  // The rows of one phase in one step.
  std::span<const ValueRow> rows(Phase phase, std::int64_t n) const;

 private:
  std::vector<ValueRow> rows_;
  std::vector<Series> series_;
  std::map<std::pair<Phase, std::uint32_t>, std::size_t> series_of_;  // by phase and StringId
};

// The row of that step, or of the last step before it; nullptr: there is none.
const ValueRow* row_before(const Series& series, std::int64_t n);

// Elements of the tensor by its recorded shape; saturates; 0: not recorded.
std::int64_t elements_of(const trace::Run& run, const trace::StateMark& mark);

// "1 gradient", "3 parameters", as findings call it.
std::string phase_word(Phase phase, std::uint64_t count);

// Arithmetic with sketches (trace/values/fingerprint.h): short vectors, one for a tensor.

using Sketch = std::vector<double>;

// Of equal length.
inline double dot(const Sketch& a, const Sketch& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// a + factor · b; of equal length.
inline Sketch sum(Sketch a, const Sketch& b, double factor = 1) {
  for (std::size_t j = 0; j < a.size(); ++j) a[j] += factor * b[j];
  return a;
}

// The 2-norm of the tensor, estimated: the mean square of sums with random signs is its square.
inline double norm_estimate(const Sketch& s) {
  return s.empty() ? 0 : std::sqrt(dot(s, s) / static_cast<double>(s.size()));
}

}  // namespace lockstep::verify
