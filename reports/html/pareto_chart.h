// Choices as dots: what each costs to the right, what it gives upwards, and which of them no other
// beats. Inline SVG without script; a dot's words are its tooltip.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep::reports::html {

struct ParetoDot {
  double x = 0, y = 0;  // finite, not negative
  enum class Kind { beaten, front, too_large } kind = Kind::beaten;
  std::string words;  // that tell it from the others
  std::string mark;   // beside a dot of the front: its number in a table, say
};

struct ParetoChart {
  std::string label;  // read out instead of the picture
  std::string x_title, y_title;
  std::function<std::string(double)> x_text, y_text;  // of a number at an axis
  std::vector<ParetoDot> dots;
};

// Empty where there are no dots. An axis whose numbers lie far apart is logarithmic.
std::string pareto_chart(const ParetoChart& chart);

}  // namespace lockstep::reports::html
