// The Pareto chart. Choices are dots: cost to the right, gain upwards; the front is highlighted.
// Inline SVG without script; a dot's text is its tooltip.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::reports::html {

struct ParetoDot {
  double x = 0, y = 0;  // finite, not negative; x in bytes
  enum class Kind { beaten, front, too_large } kind = Kind::beaten;
  std::string words;  // identifies it among the others
  std::string mark;   // next to a dot of the front: for example its number in a table
};

struct ParetoChart {
  std::string label;  // for screen readers
  std::string x_title, y_title;
  std::function<std::string(double)> x_text, y_text;  // formats a number at an axis
  std::vector<ParetoDot> dots;
  bool less_is_better = false;  // of y; of x it always is
};

inline constexpr std::size_t kMaxMarks = 24;  // more are not readable, and are not drawn

// An axis is logarithmic if its numbers are far apart. Dots that are too large for the plans that
// fit to be seen beside them are counted below. Empty without dots.
std::string pareto_chart(ParetoChart chart);

}  // namespace lockstep::reports::html
