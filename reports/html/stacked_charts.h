// Charts of what adds up: bars, columns and areas whose parts stand on each other. A part has the
// look of its series (class f0, f1, … of the style sheet); the legend names the series in the order
// in which they stand, and a table beside it should have the numbers: colours alone say nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep::reports::html {

inline constexpr std::size_t kSeriesLooks = 8;

struct Series {
  std::string name;      // text
  std::size_t look = 0;  // below kSeriesLooks
};

// How a number is written: "1.2 GB".
using NumberWords = std::function<std::string(double)>;

// `label` is read out instead of each picture. Numbers are not negative.
struct StackedBar {
  std::string label;
  std::vector<double> parts;  // of each series
};
// A bar for each, all as long as what adds up to `whole`.
std::string stacked_bars(const std::string& label, const std::vector<Series>& series,
                         const std::vector<StackedBar>& bars, double whole);

// A column for each of `columns` (parts of each series), from left to right; of very many the means
// of neighbours. `first`, `last`: what is written below them.
std::string stacked_columns(const std::string& label, const std::vector<Series>& series,
                            const std::vector<std::vector<double>>& columns,
                            const NumberWords& words, const std::string& first,
                            const std::string& last);

struct AreaPoint {
  double x = 0;
  std::vector<double> parts;  // of each series, from x on
};
// What holds from each point to the next one, by x; the last one until `end`. Of very many the
// largest of neighbours. `limit`: a line at this height; 0: none.
std::string stacked_areas(const std::string& label, const std::vector<Series>& series,
                          const std::vector<AreaPoint>& points, double end, double limit,
                          const NumberWords& words, const NumberWords& x_words);

// A bar to the right for each number above 0, to the left for each below, with their words.
struct SignedBar {
  std::string label;
  double value = 0;
  std::string words;
};
std::string signed_bars(const std::string& label, const std::vector<SignedBar>& bars);

// Names and looks of the series.
std::string series_legend(const std::vector<Series>& series);

}  // namespace lockstep::reports::html
