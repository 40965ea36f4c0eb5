// Elements of inline SVG. Their style comes from classes of the style sheet, since the page's
// policy forbids style attributes. Coordinates are CSS pixels.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::reports::html {

struct Point {
  double x = 0, y = 0;
};
struct Box {
  double x = 0, y = 0, width = 0, height = 0;

  Point top() const { return {x + width / 2, y}; }
  Point bottom() const { return {x + width / 2, y + height}; }
  Point left() const { return {x, y + height / 2}; }
  Point right() const { return {x + width, y + height / 2}; }
};

// A coordinate, to a tenth of a pixel.
std::string px(double value);

std::string svg_rect(std::string_view classes, const Box& box, double radius = 4);
// Many boxes of one style, with sharp corners, as one element.
std::string svg_boxes(std::string_view classes, const std::vector<Box>& boxes);
std::string svg_line(std::string_view classes, Point from, Point to);
// `anchor`: start, middle or end.
std::string svg_text(std::string_view classes, Point at, std::string_view content,
                     std::string_view anchor = "start");
// A curve that leaves and arrives vertically.
std::string svg_upright_curve(std::string_view classes, Point from, Point to);
// A curve that leaves and arrives horizontally.
std::string svg_level_curve(std::string_view classes, Point from, Point to);
// A triangle that points from `from` to its corner `to`.
std::string svg_tip(std::string_view classes, Point from, Point to);

// A picture kStripWidth wide, stretched to the width that there is: without words, which would be
// stretched, too.
inline constexpr int kStripWidth = 1000;
std::string stretched(double height, std::string_view content);
// A row of a chart: such a picture below its name (text). Rows stand in strips(), whose `label` is
// for screen readers.
std::string svg_strip(std::string_view name, double height, std::string_view content);
std::string strips(std::string_view label, std::string_view rows);

// The picture. `label` is for screen readers: instead of the content, or with `has_links` before
// it.
std::string svg_picture(std::string_view label, double width, double height,
                        std::string_view content, bool has_links = false);

}  // namespace lockstep::reports::html
