#include "reports/html/pareto_chart.h"

#include <algorithm>
#include <cmath>

#include "reports/html/markup.h"
#include "reports/html/svg.h"

namespace lockstep::reports::html {
namespace {

constexpr double kParetoWidth = 760, kParetoHeight = 420;
constexpr Box kParetoPlot{74, 30, kParetoWidth - 74 - 24, kParetoHeight - 30 - 52};
constexpr double kFarApart = 50;        // largest to smallest, from which an axis is logarithmic
constexpr std::size_t kMostMarks = 24;  // that stay readable
constexpr double kTicks = 5;

// An axis from its numbers to 0 … 1.
class Axis {
 public:
  explicit Axis(const std::vector<double>& values) {
    double low = INFINITY;
    for (const double value : values) {
      low = std::min(low, value);
      high_ = std::max(high_, value);
    }
    logarithmic_ = low > 0 && high_ / low > kFarApart;
    if (high_ <= 0) high_ = 1;
    if (logarithmic_) {
      low_ = std::pow(10, std::floor(std::log10(low)));
      high_ *= 1.1;
    } else {
      high_ *= 1.06;
    }
  }

  double place(double value) const {
    return logarithmic_ ? std::log(value / low_) / std::log(high_ / low_) : value / high_;
  }

  std::vector<double> ticks() const {
    std::vector<double> out;
    if (logarithmic_) {
      for (double tick = low_; tick <= high_; tick *= 10) out.push_back(tick);
      return out;
    }
    // The step is 1, 2 or 5 times a power of ten.
    const double rough = high_ / kTicks;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0})
      if (factor * power >= rough * 0.8) step = factor * power;
    for (double i = 0; i * step <= high_; ++i) out.push_back(i * step);
    return out;
  }

 private:
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
  explicit ParetoDrawing(const ParetoChart& chart)
      : chart_(chart), x_(numbers(&ParetoDot::x)), y_(numbers(&ParetoDot::y)) {}

  std::string str() const {
    // The front lies on top.
    return axes() + dots(ParetoDot::Kind::too_large) + dots(ParetoDot::Kind::beaten) +
           dots(ParetoDot::Kind::front) + marks();
  }

 private:
  std::vector<double> numbers(double ParetoDot::*member) const {
    std::vector<double> out;
    for (const ParetoDot& dot : chart_.dots) out.push_back(dot.*member);
    return out;
  }
  Point at(const ParetoDot& dot) const {
    return {kParetoPlot.x + kParetoPlot.width * x_.place(dot.x),
            kParetoPlot.y + kParetoPlot.height * (1 - y_.place(dot.y))};
  }

  std::string axes() const {
    const double bottom = kParetoPlot.y + kParetoPlot.height;
    std::string out =
        svg_line("axis", {kParetoPlot.x, kParetoPlot.y}, {kParetoPlot.x, bottom}) +
        svg_line("axis", {kParetoPlot.x, bottom}, {kParetoPlot.x + kParetoPlot.width, bottom});
    for (const double tick : x_.ticks()) {
      const double x = kParetoPlot.x + kParetoPlot.width * x_.place(tick);
      out += svg_line("axis", {x, bottom}, {x, bottom + 5}) +
             svg_text("note", {x, bottom + 19}, chart_.x_text(tick), "middle");
    }
    for (const double tick : y_.ticks()) {
      const double y = kParetoPlot.y + kParetoPlot.height * (1 - y_.place(tick));
      out += svg_line("axis", {kParetoPlot.x - 5, y}, {kParetoPlot.x, y}) +
             svg_text("note", {kParetoPlot.x - 9, y + 4}, chart_.y_text(tick), "end");
    }
    return out +
           svg_text("note", {kParetoPlot.x + kParetoPlot.width, kParetoHeight - 8}, chart_.x_title,
                    "end") +
           svg_text("note", {6, 14}, chart_.y_title);
  }

  std::string dots(ParetoDot::Kind kind) const {
    std::string out;
    for (const ParetoDot& dot : chart_.dots) {
      if (dot.kind != kind) continue;
      const Point where = at(dot);
      out += "<circle class=\"" + classes_of(kind) + "\" cx=\"" + px(where.x) + "\" cy=\"" +
             px(where.y) + "\" r=\"" + (kind == ParetoDot::Kind::front ? "6" : "4") + "\"><title>" +
             text(dot.words) + "</title></circle>";
    }
    return out;
  }

  std::string marks() const {
    std::string out;
    std::size_t marked = 0;
    for (const ParetoDot& dot : chart_.dots) {
      if (dot.mark.empty() || ++marked > kMostMarks) continue;
      const Point where = at(dot);
      out += svg_text("state", {where.x + 8, where.y - 7}, dot.mark);
    }
    return out;
  }

  const ParetoChart& chart_;
  Axis x_, y_;
};

}  // namespace

std::string pareto_chart(const ParetoChart& chart) {
  if (chart.dots.empty()) return {};
  const std::string picture =
      svg_picture(chart.label, kParetoWidth, kParetoHeight, ParetoDrawing(chart).str());
  return element("figure", "", scroller(chart.label, picture));
}

}  // namespace lockstep::reports::html
