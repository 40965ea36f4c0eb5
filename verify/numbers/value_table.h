// The values that ranks recorded of their tensors, side by side: a row per value and step, with
// each rank's reading.
//
// Rows are sorted by step, then by the phase within a step (gradients before and after the
// synchronisation, optimizer state, parameters, buffers), then by the order in which the program
// first mentions the name. So the first wrong row is where the fault occurred.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

// When in a step a value is taken; in this order.
enum class Phase : std::uint8_t {
  leftover,     // a gradient as backward found it
  local_grad,   // a gradient as backward left it
  synced_grad,  // a gradient as the optimizer gets it
  other_grad,   // a gradient without a recorded phase
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
  std::uint32_t name_index = 0;   // the name's index in program order
  std::vector<Reading> readings;  // by rank; at least one
  bool replicated = false;        // assumed to be the same on all ranks (replicas.h)

  const trace::StateMark* of(std::uint32_t rank) const;  // nullptr: the rank recorded none
  bool sharded() const;                                  // ranks hold different parts, as intended
};

// The rows of one name in one phase, by step.
struct Series {
  Phase phase{};
  trace::StringId name;
  std::vector<const ValueRow*> rows;  // at least one
};

class ValueTable {
 public:
  // Whether a rank (index) holds a replica of the tensor: false for tensors that it trains by
  // itself.
  //
  // Builds the table; it points into `run`. If a rank records a value twice in a step, the last one
  // counts; but of several local gradients, the first is what backward found (Phase::leftover).
  // Without `counts`, all values count. `all_replicated`: values that are marked as parts are taken
  // for the same on all ranks (verify/numbers/replicas.h). Values of the step `end` and later are
  // left out. O(marks log marks).
  using Counts = std::function<bool(std::uint32_t, trace::StringId)>;
  explicit ValueTable(const trace::Run& run, const Counts& counts = {}, bool all_replicated = false,
                      std::int64_t end = std::numeric_limits<std::int64_t>::max());
  ValueTable(const ValueTable&) = delete;
  ValueTable& operator=(const ValueTable&) = delete;

  bool empty() const { return rows_.empty(); }
  std::span<const ValueRow> rows() const { return rows_; }
  std::span<const Series> series() const { return series_; }  // by phase, then by position
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

// A gradient that backward found as the last step left it: this, and the parameter's name.
inline constexpr std::string_view kLeftover = "leftover/";
// The state of a rank's random numbers, of which no two ranks may have the same.
inline constexpr std::string_view kDifferentRandom = "different_random";
// Which data a rank reads: equal numbers stand for equal data, and each rank may have its own.
inline constexpr std::string_view kDataSet = "data_set";

// Which of the numbers that lockstep_watch records a name stands for: "lr" of "model2.lr/1@0,2".
// Tensors' names give something else.
std::string_view number_name(std::string_view name);

// "1 gradient", "3 parameters", as findings call it.
std::string phase_name(Phase phase, std::uint64_t count);

// Arithmetic with sketches (trace/values/fingerprint.h): short vectors, one for a tensor.

using Sketch = std::vector<double>;

// The sketches must have equal lengths.
inline double dot(const Sketch& a, const Sketch& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// a + factor · b; of equal length.
inline Sketch sum(Sketch a, const Sketch& b, double factor = 1) {
  for (std::size_t j = 0; j < a.size(); ++j) a[j] += factor * b[j];
  return a;
}

// The estimated 2-norm of the tensor: each entry of a sketch is a sum with random signs, whose mean
// square is the squared norm.
inline double norm_estimate(const Sketch& s) {
  return s.empty() ? 0 : std::sqrt(dot(s, s) / static_cast<double>(s.size()));
}

}  // namespace lockstep::verify
