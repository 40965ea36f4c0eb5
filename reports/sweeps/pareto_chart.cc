#include "reports/sweeps/pareto_chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "base/text.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"

namespace lockstep::reports::html {
namespace {

constexpr double kParetoWidth = 760, kParetoNarrow = 340;  // with a card's width, and a phone's
constexpr double kParetoHeight = 420;
constexpr double kFarApart = 50;  // ratio of largest to smallest from which an axis is logarithmic
constexpr double kTicks = 5, kTicksNarrow = 3;
constexpr double kBeyond = 3;  // of the largest plan that fits: how far the x axis goes

// The largest power of 1024 that is at most this: what bytes_text() shows it in.
double unit_of_bytes(double size) {
  double unit = 1;
  while (size >= unit * 1024) unit *= 1024;
  return unit;
}

// Maps numbers to positions from 0 to 1. A linear axis begins at 0, a logarithmic one at a power of
// ten. Ticks are round numbers, of bytes in the unit that they are shown in.
class Axis {
 public:
  enum class Of : unsigned char { numbers, bytes };
  Axis(const std::vector<double>& values, Of what) {
    double low = INFINITY;
    for (const double value : values) {
      low = std::min(low, value);
      high_ = std::max(high_, value);
    }
    logarithmic_ = low > 0 && high_ / low > kFarApart;
    if (high_ <= 0) high_ = 1;  // all are 0: any length serves
    if (what == Of::bytes) unit_ = unit_of_bytes(logarithmic_ ? low : high_);
    if (logarithmic_) {
      low_ = unit_ * std::pow(10, std::floor(std::log10(low / unit_)));
      high_ *= 1.1;  // as below
    } else {
      high_ *= 1.06;  // so that no dot is cut off at the edge
    }
  }

  double fraction(double value) const {
    return logarithmic_ ? std::log(value / low_) / std::log(high_ / low_) : value / high_;
  }

  // About `most` of them.
  std::vector<double> ticks(double most) const {
    std::vector<double> out;
    if (logarithmic_) {
      for (double tick = low_; tick <= high_; tick *= 10) out.push_back(tick);
      return out;
    }
    // Ticks at multiples of 1, 2 or 5 times a power of ten.
    const double rough = high_ / most;
    const double power = unit_ * std::pow(10, std::floor(std::log10(rough / unit_)));
    double step = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0})
      if (factor * power >= rough * 0.8) step = factor * power;
    for (double i = 0; i * step <= high_; ++i) out.push_back(i * step);
    return out;
  }

 private:
  double unit_ = 1;
  double low_ = 0, high_ = 0;
  bool logarithmic_ = false;
};

std::string classes_of(ParetoDot::Kind kind) {
  switch (kind) {
    case ParetoDot::Kind::beaten:
      return "dot";
    case ParetoDot::Kind::front:
      return "dot front";
    case ParetoDot::Kind::too_large:
      return "dot off";
  }
  return "dot";
}

class ParetoDrawing {
 public:
  ParetoDrawing(const ParetoChart& chart, double width)
      : chart_(chart),
        width_(width),
        // Room on the left for the numbers of the y axis, above for its title, below for the
        // numbers and the title of the x axis.
        plot_{width < kParetoWidth ? 40.0 : 74.0, 30, 0, kParetoHeight - 30 - 52},
        x_(numbers(&ParetoDot::x), Axis::Of::bytes),
        y_(numbers(&ParetoDot::y), Axis::Of::numbers) {
    plot_.width = width - plot_.x - 24;
  }

  std::string str() const {
    // Drawn in this order, the front is on top.
    return svg_picture(chart_.label, width_, kParetoHeight,
                       axes() + dots(ParetoDot::Kind::too_large) + dots(ParetoDot::Kind::beaten) +
                           dots(ParetoDot::Kind::front) + marks());
  }

 private:
  std::vector<double> numbers(double ParetoDot::*member) const {
    std::vector<double> out;
    for (const ParetoDot& dot : chart_.dots) out.push_back(dot.*member);
    return out;
  }
  Point at(const ParetoDot& dot) const {
    return {plot_.x + plot_.width * x_.fraction(dot.x),
            plot_.y + plot_.height * (1 - y_.fraction(dot.y))};
  }

  std::string axes() const {
    const double bottom = plot_.y + plot_.height;
    std::string out = svg_line("axis", {plot_.x, plot_.y}, {plot_.x, bottom}) +
                      svg_line("axis", {plot_.x, bottom}, {plot_.x + plot_.width, bottom});
    for (const double tick : x_.ticks(width_ < kParetoWidth ? kTicksNarrow : kTicks)) {
      const double x = plot_.x + plot_.width * x_.fraction(tick);
      out += svg_line("axis", {x, bottom}, {x, bottom + 5}) +
             svg_text("note", {x, bottom + 19}, chart_.x_text(tick), "middle");
    }
    for (const double tick : y_.ticks(kTicks)) {
      const double y = plot_.y + plot_.height * (1 - y_.fraction(tick));
      out += svg_line("axis", {plot_.x - 5, y}, {plot_.x, y}) +
             svg_text("note", {plot_.x - 9, y + 4}, chart_.y_text(tick), "end");
    }
    return out +
           svg_text("note", {plot_.x + plot_.width, kParetoHeight - 8}, chart_.x_title, "end") +
           svg_text("note", {6, 14}, chart_.y_title);
  }

  std::string dots(ParetoDot::Kind kind) const {
    std::string out;
    for (const ParetoDot& dot : chart_.dots) {
      if (dot.kind != kind) continue;
      const Point where = at(dot);
      out += fmt::format(
          "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"><title>{}</title></circle>",
          classes_of(kind), px(where.x), px(where.y), kind == ParetoDot::Kind::front ? 6 : 4,
          text(dot.words));
    }
    return out;
  }

  std::string marks() const {
    constexpr double kWide = 22, kHigh = 12;  // of a mark
    std::string out;
    std::vector<Point> marked;
    for (const ParetoDot& dot : chart_.dots) {
      if (dot.mark.empty()) continue;
      // Towards better choices, where few dots are.
      const Point where{at(dot).x - 7, at(dot).y + (chart_.less_is_better ? 15 : -7)};
      // A number on another one cannot be read; the dots have their words as tooltips.
      const bool covers = std::any_of(marked.begin(), marked.end(), [&](Point other) {
        return std::abs(other.x - where.x) < kWide && std::abs(other.y - where.y) < kHigh;
      });
      if (covers) continue;
      if (marked.size() == kMaxMarks) break;
      marked.push_back(where);
      out += svg_text("state", where, dot.mark, "end");
    }
    return out;
  }

  const ParetoChart& chart_;
  double width_;
  Box plot_;
  Axis x_, y_;
};

}  // namespace

std::string pareto_chart(ParetoChart chart) {
  if (chart.dots.empty()) return {};
  // Plans that by far do not fit would squeeze those that do into a corner.
  double largest = 0;
  for (const ParetoDot& dot : chart.dots)
    if (dot.kind != ParetoDot::Kind::too_large) largest = std::max(largest, dot.x);
  const std::size_t beyond =
      largest == 0 ? 0 : std::erase_if(chart.dots, [&](const ParetoDot& dot) {
        return dot.kind == ParetoDot::Kind::too_large && dot.x > kBeyond * largest;
      });
  return element("figure", "",
                 element("div", "roomy", ParetoDrawing(chart, kParetoWidth).str()) +
                     element("div", "narrow", ParetoDrawing(chart, kParetoNarrow).str()) +
                     (beyond == 0 ? ""
                                  : element("figcaption", "",
                                            fmt::format("{} that {} not fit: right of this picture",
                                                        plural(beyond, "plan"),
                                                        beyond == 1 ? "does" : "do"))));
}

}  // namespace lockstep::reports::html
