#include "reports/html/svg.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/tables.h"
#include "base/text.h"
#include "reports/html/markup.h"

namespace lockstep::reports::html {
namespace {

std::string at(Point point) { return fmt::format("{} {}", px(point.x), px(point.y)); }

std::string path(std::string_view classes, const std::string& data) {
  return fmt::format(R"(<path class="{}" d="{}"/>)", classes, data);
}

// A curve with two control points (SVG's "C").
std::string curve(std::string_view classes, Point from, Point by, Point before, Point to) {
  return path(classes, fmt::format("M{}C{} {} {}", at(from), at(by), at(before), at(to)));
}

}  // namespace

std::string px(double value) {
  std::string out = fixed(value, 1);
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

std::string svg_rect(std::string_view classes, const Box& box, double radius) {
  return fmt::format(R"(<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="{}"/>)", classes,
                     px(box.x), px(box.y), px(box.width), px(box.height), px(radius));
}

std::string svg_boxes(std::string_view classes, const std::vector<Box>& boxes) {
  std::string data;
  for (const Box& box : boxes)
    data += fmt::format("M{}h{}v{}h{}z", at({box.x, box.y}), px(box.width), px(box.height),
                        px(-box.width));
  return path(classes, data);
}

std::string svg_line(std::string_view classes, Point from, Point to) {
  return fmt::format(R"(<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>)", classes, px(from.x),
                     px(from.y), px(to.x), px(to.y));
}

std::string svg_text(std::string_view classes, Point at, std::string_view content,
                     std::string_view anchor) {
  return fmt::format(R"(<text{} x="{}" y="{}"{}>{}</text>)",
                     classes.empty() ? "" : fmt::format(R"( class="{}")", classes), px(at.x),
                     px(at.y), anchor == "start" ? "" : fmt::format(R"( text-anchor="{}")", anchor),
                     text(content));
}

std::string svg_upright_curve(std::string_view classes, Point from, Point to) {
  const double bend = (to.y - from.y) / 2;
  return curve(classes, from, {from.x, from.y + bend}, {to.x, to.y - bend}, to);
}

std::string svg_level_curve(std::string_view classes, Point from, Point to) {
  const double bend = (to.x - from.x) / 2;
  return curve(classes, from, {from.x + bend, from.y}, {to.x - bend, to.y}, to);
}

std::string svg_tip(std::string_view classes, Point from, Point to) {
  constexpr double kLength = 9;
  constexpr double kHalf = 4.5;
  const double length = std::max(1e-6, std::hypot(to.x - from.x, to.y - from.y));
  const Point along{(to.x - from.x) / length, (to.y - from.y) / length};
  const Point base{to.x - along.x * kLength, to.y - along.y * kLength};
  return path(classes, fmt::format("M{}L{}L{}Z", at(to),
                                   at({base.x - along.y * kHalf, base.y + along.x * kHalf}),
                                   at({base.x + along.y * kHalf, base.y - along.x * kHalf})));
}

std::string stretched(double height, std::string_view content) {
  return fmt::format(
      R"(<svg width="100%" height="{0}" viewBox="0 0 {1} {0}" preserveAspectRatio="none">{2}</svg>)"
      "\n",
      px(height), kStripWidth, content);
}

std::string svg_strip(std::string_view name, double height, std::string_view content) {
  constexpr std::size_t kNameColumns = 60;
  return element("p", "", text(shorten_middle(std::string(name), kNameColumns))) +
         stretched(height, content);
}

std::string strips(std::string_view label, std::string_view rows) {
  return fmt::format(R"(<div class="strips" role="img" aria-label="{}">{}</div>)", text(label),
                     rows);
}

std::string svg_picture(std::string_view label, double width, double height,
                        std::string_view content, bool has_links) {
  // Wide pictures shrink with the window down to where their words can still be read (page.css).
  constexpr double kWide = 640;
  return fmt::format(
      R"(<svg role="{0}"{1} aria-label="{2}" width="{3}" height="{4}" viewBox="0 0 {3} {4}">{5}</svg>)"
      "\n",
      has_links ? "group" : "img", width > kWide ? R"( class="wide")" : "", text(label), px(width),
      px(height), content);
}

}  // namespace lockstep::reports::html
