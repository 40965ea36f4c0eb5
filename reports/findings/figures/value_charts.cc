#include "reports/findings/figures/value_charts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/columns.h"
#include "base/text.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"

namespace lockstep::html {
namespace {

constexpr double kValuesWidth = 320;
constexpr double kValuesLeft = 58;  // room for the numbers of an axis
constexpr double kValuesTop = 8;
constexpr double kValuesPlot = 110;  // height
constexpr double kStrip = 8;         // height of the strip of agreement
constexpr std::size_t kMostValuePoints = 160;
constexpr std::size_t kMostCells = 80;

// Three digits.
std::string number(double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::general, 3);
  return {buffer.data(), end.ptr};
}

struct Range {
  double low = INFINITY, high = -INFINITY;

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // 0 … 1; the middle where there is one value.
  double place(double value) const { return high > low ? (value - low) / (high - low) : .5; }
};

class ValueChart {
 public:
  explicit ValueChart(const ValueCurves& curves) : curves_(curves) {
    for (const Curve& curve : curves.curves) {
      for (const CurvePoint& point : curve.points) {
        steps_.add(static_cast<double>(point.n));
        values_.add(point.value);
      }
    }
    for (const auto& step : curves.agreement) steps_.add(static_cast<double>(step.n));
    if (!values_.empty()) left_ = kValuesLeft;
  }

  std::string str() const {
    if (steps_.empty()) return {};
    const double plot = values_.empty() ? 0 : kValuesPlot;
    double y = kValuesTop + plot;
    std::string content = values_.empty() ? "" : axes() + lines();
    if (!curves_.agreement.empty()) {
      y += 8;
      content += strip(y);
      y += kStrip;
    }
    y += 16;
    content += svg_text("note", {left_, y}, "step " + number(steps_.low));
    content += svg_text("note", {kValuesWidth - 4, y}, number(steps_.high), "end");
    return element("figure", "",
                   element("h3", "", code(curves_.name) + " " + text(curves_.kind)) +
                       svg_picture(summary(), kValuesWidth, y + 6, content) + legend());
  }

 private:
  Point at(const CurvePoint& point) const {
    return {x_of(static_cast<double>(point.n)),
            kValuesTop + kValuesPlot * (1 - values_.place(point.value))};
  }
  double x_of(double n) const { return left_ + (kValuesWidth - 8 - left_) * steps_.place(n); }

  std::string axes() const {
    std::string out = svg_line("axis", {left_, kValuesTop}, {left_, kValuesTop + kValuesPlot}) +
                      svg_line("axis", {left_, kValuesTop + kValuesPlot},
                               {kValuesWidth - 4, kValuesTop + kValuesPlot});
    if (values_.high > values_.low) {
      out += svg_text("note", {left_ - 7, kValuesTop + 9}, number(values_.high), "end");
      out += svg_text("note", {left_ - 7, kValuesTop + kValuesPlot}, number(values_.low), "end");
    } else {
      out += svg_text("note", {left_ - 7, kValuesTop + kValuesPlot / 2 + 4}, number(values_.low),
                      "end");
    }
    if (curves_.first_difference) {
      const double x = x_of(static_cast<double>(*curves_.first_difference));
      out += svg_line("mark", {x, kValuesTop}, {x, kValuesTop + kValuesPlot});
    }
    return out;
  }

  std::string lines() const {
    std::string out;
    for (std::size_t c = 0; c < curves_.curves.size(); ++c) {
      const std::vector<CurvePoint>& points = curves_.curves[c].points;
      const std::size_t stride = points.size() / kMostValuePoints + 1;
      std::string data;
      for (std::size_t i = 0; i < points.size(); i += stride)
        data += (data.empty() ? "" : " ") + px(at(points[i]).x) + "," + px(at(points[i]).y);
      if (points.size() == 1) {
        const Point only = at(points[0]);
        data += " " + px(only.x + 3) + "," + px(only.y);
      }
      out += "<polyline class=\"curve s" + std::to_string(c) + "\" points=\"" + data + "\"/>";
    }
    return out;
  }

  // A cell for each step, or for a few of them: red where ranks differed in any.
  std::string strip(double y) const {
    const std::size_t cells = std::min(kMostCells, curves_.agreement.size());
    const double width = (kValuesWidth - 4 - left_) / static_cast<double>(cells);
    std::string out;
    for (std::size_t c = 0; c < cells; ++c) {
      const std::size_t begin = c * curves_.agreement.size() / cells;
      const std::size_t end = (c + 1) * curves_.agreement.size() / cells;
      bool agree = true;
      for (std::size_t i = begin; i < end; ++i) agree = agree && curves_.agreement[i].agree;
      // What differs is higher as well, for those who do not tell the colours apart.
      out += svg_rect(agree ? "same" : "differ",
                      {left_ + static_cast<double>(c) * width, agree ? y + 3 : y,
                       std::max(1.0, width - 1), agree ? kStrip - 3 : kStrip},
                      0);
    }
    return out;
  }

  std::string summary() const {
    std::string out = curves_.name + ", " + curves_.kind;
    if (!values_.empty())
      out += ", between " + number(values_.low) + " and " + number(values_.high);
    if (curves_.first_difference)
      out += "; ranks differ from step " + std::to_string(*curves_.first_difference);
    else if (!curves_.agreement.empty())
      out += "; ranks agree in every step";
    return out;
  }

  std::string legend() const {
    std::string out;
    if (curves_.curves.size() > 1) {
      for (std::size_t c = 0; c < curves_.curves.size(); ++c)
        out += "<span><svg aria-hidden=\"true\" width=\"28\" height=\"6\" viewBox=\"0 0 28 6\">" +
               svg_line("curve s" + std::to_string(c), {0, 3}, {28, 3}) + "</svg>" +
               text(rank_label(curves_.curves[c].ranks, 30)) + "</span>";
      if (curves_.curves_left_out > 0)
        out += element("span", "", text(plural(curves_.curves_left_out, "more curve")));
    } else if (!curves_.curves.empty()) {
      out += element("span", "", text(rank_label(curves_.curves[0].ranks, 30)));
    }
    if (curves_.first_difference)
      out += element("span", "",
                     text("ranks differ from step " + std::to_string(*curves_.first_difference)));
    else if (!curves_.agreement.empty())
      out += element("span", "", "ranks agree");
    return element("div", "legend", out);
  }

  const ValueCurves& curves_;
  Range steps_, values_;
  double left_ = 0;  // of the plot
};

}  // namespace

std::string value_charts(const std::vector<ValueCurves>& all) {
  std::string out;
  for (const ValueCurves& curves : all) out += ValueChart(curves).str();
  return out.empty() ? out : element("div", "charts", out);
}

}  // namespace lockstep::html
