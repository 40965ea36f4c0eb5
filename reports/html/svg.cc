#include "reports/html/svg.h"

#include <cmath>

#include "base/text.h"
#include "reports/html/markup.h"

namespace lockstep::reports::html {
namespace {

std::string svg_attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + std::string(value) + "\"";
}
std::string svg_attribute(std::string_view name, double value) {
  return svg_attribute(name, px(value));
}

std::string at(Point point) { return px(point.x) + " " + px(point.y); }

std::string path(std::string_view classes, const std::string& data) {
  return "<path" + svg_attribute("class", classes) + svg_attribute("d", data) + "/>";
}

}  // namespace

std::string px(double value) {
  std::string out = fixed(value, 1);
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

std::string svg_rect(std::string_view classes, const Box& box, double radius) {
  return "<rect" + svg_attribute("class", classes) + svg_attribute("x", box.x) +
         svg_attribute("y", box.y) + svg_attribute("width", box.width) +
         svg_attribute("height", box.height) + svg_attribute("rx", radius) + "/>";
}

std::string svg_line(std::string_view classes, Point from, Point to) {
  return "<line" + svg_attribute("class", classes) + svg_attribute("x1", from.x) +
         svg_attribute("y1", from.y) + svg_attribute("x2", to.x) + svg_attribute("y2", to.y) + "/>";
}

std::string svg_text(std::string_view classes, Point at, std::string_view words,
                     std::string_view anchor) {
  std::string out = "<text";
  if (!classes.empty()) out += svg_attribute("class", classes);
  out += svg_attribute("x", at.x) + svg_attribute("y", at.y);
  if (anchor != "start") out += svg_attribute("text-anchor", anchor);
  return out + ">" + text(words) + "</text>";
}

std::string svg_upright_curve(std::string_view classes, Point from, Point to) {
  const double bend = (to.y - from.y) / 2;
  return path(classes, "M" + at(from) + "C" + at({from.x, from.y + bend}) + " " +
                           at({to.x, to.y - bend}) + " " + at(to));
}

std::string svg_level_curve(std::string_view classes, Point from, Point to) {
  const double bend = (to.x - from.x) / 2;
  return path(classes, "M" + at(from) + "C" + at({from.x + bend, from.y}) + " " +
                           at({to.x - bend, to.y}) + " " + at(to));
}

std::string svg_tip(std::string_view classes, Point from, Point to) {
  constexpr double kLength = 9;
  constexpr double kHalf = 4.5;
  const double length = std::max(1e-6, std::hypot(to.x - from.x, to.y - from.y));
  const Point along{(to.x - from.x) / length, (to.y - from.y) / length};
  const Point base{to.x - along.x * kLength, to.y - along.y * kLength};
  return path(classes, "M" + at(to) + "L" +
                           at({base.x - along.y * kHalf, base.y + along.x * kHalf}) + "L" +
                           at({base.x + along.y * kHalf, base.y - along.x * kHalf}) + "Z");
}

std::string svg_picture(std::string_view label, double width, double height,
                        std::string_view content, bool has_links) {
  // Wide pictures shrink with the window down to where their words can still be read (page.css).
  constexpr double kWide = 640;
  return "<svg" + svg_attribute("role", has_links ? "group" : "img") +
         (width > kWide ? svg_attribute("class", "wide") : "") +
         svg_attribute("aria-label", text(label)) + svg_attribute("width", width) +
         svg_attribute("height", height) +
         svg_attribute("viewBox", "0 0 " + px(width) + " " + px(height)) + ">" +
         std::string(content) + "</svg>\n";
}

}  // namespace lockstep::reports::html
