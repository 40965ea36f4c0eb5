#include "sim/collectives/nccl_curves.h"

#include <algorithm>
#include <cmath>

#include "base/documents/yaml_document.h"
#include "base/text.h"
#include "sim/collectives/collective.h"

namespace lockstep::sim {
namespace {

// Bounds of a point, so that ratios and logarithms of two points are finite.
constexpr double kLeastBytes = 1, kMostBytes = 1e18;
constexpr double kLeastSeconds = 1e-12, kMostSeconds = 1e6;

// The time on one curve: see the three cases in the header.
double on_curve(const NcclCurve& curve, double bytes) {
  const std::vector<NcclCurve::Point>& points = curve.points;
  // The segment that holds `bytes`, or the nearest one.
  std::size_t next = 1;
  while (next + 1 < points.size() && points[next].bytes < bytes) ++next;
  const NcclCurve::Point& a = points[next - 1];
  const NcclCurve::Point& b = points[next];
  // Two points are latency plus bytes over bandwidth. At small sizes the line may fall to 0 or
  // below; a tenth of the first point is the floor.
  if (points.size() == 2)
    return std::max(a.seconds / 10,
                    a.seconds + (b.seconds - a.seconds) * (bytes - a.bytes) / (b.bytes - a.bytes));
  // Before the first point latency dominates: the time stays. After the last one bandwidth does: it
  // grows in proportion.
  if (bytes <= points.front().bytes) return points.front().seconds;
  if (bytes >= points.back().bytes) return points.back().seconds * bytes / points.back().bytes;
  // A straight line in the logarithms of size and time.
  const double share = std::log(bytes / a.bytes) / std::log(b.bytes / a.bytes);
  return a.seconds * std::pow(b.seconds / a.seconds, share);
}

Error wrong(const YamlDocument& document, const std::string& pointer, std::string message,
            std::string fix) {
  return Error{std::move(message), document.value_location(pointer), std::move(fix)};
}

Result<NcclCurve> read_curve(const YamlDocument& document, const nlohmann::json& value,
                             const std::string& pointer) {
  if (!value.is_object() || !value.contains("machine") || !value["machine"].is_string() ||
      !value.contains("ranks") || !value["ranks"].is_number_integer() ||
      !value.contains("points") || !value["points"].is_array())
    return wrong(document, pointer, "a curve has \"machine\", \"ranks\" and \"points\"",
                 "write {machine: NAME, ranks: N, points: [[BYTES, MICROSECONDS], ..]}");
  NcclCurve curve;
  curve.machine = value["machine"].get<std::string>();
  curve.ranks = value["ranks"].get<std::int64_t>();
  for (const nlohmann::json& point : value["points"]) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number())
      return wrong(document, pointer, "a point is a pair of bytes and microseconds",
                   "write [BYTES, MICROSECONDS]");
    const NcclCurve::Point read{point[0].get<double>(), point[1].get<double>() * 1e-6};
    // Both must grow strictly: equal neighbours would divide by zero.
    const bool grows = curve.points.empty() ? read.bytes >= kLeastBytes
                                            : read.bytes > curve.points.back().bytes &&
                                                  read.seconds > curve.points.back().seconds;
    if (!grows || !(read.seconds >= kLeastSeconds && read.seconds <= kMostSeconds) ||
        read.bytes > kMostBytes)
      return wrong(
          document, pointer,
          "the points grow in bytes, from 1, and in time, from a millionth of a microsecond",
          "put them in order");
    curve.points.push_back(read);
  }
  if (curve.points.size() < 2 || curve.ranks < 2)
    return wrong(document, pointer, "a curve has at least two points, and two ranks",
                 "add what is missing");
  return curve;
}

}  // namespace

Result<std::vector<NcclCurve>> parse_nccl_curves(const std::string& text, const std::string& file) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  const nlohmann::json& root = document->value;
  if (!root.is_object() || !root.contains("curves") || !root["curves"].is_array())
    return wrong(*document, "", "the file has no list \"curves\"",
                 "docs/simulate-workloads.md shows one");
  std::vector<NcclCurve> curves;
  for (std::size_t i = 0; i < root["curves"].size(); ++i) {
    Result<NcclCurve> curve =
        read_curve(*document, root["curves"][i], "/curves/" + std::to_string(i));
    if (!curve) return curve.error();
    curves.push_back(std::move(*curve));
  }
  return curves;
}

Result<double> nccl_seconds(const std::vector<NcclCurve>& curves, const std::string& machine,
                            std::int64_t ranks, double bytes) {
  const NcclCurve* below = nullptr;
  const NcclCurve* above = nullptr;
  std::vector<std::string> known;
  for (const NcclCurve& curve : curves) {
    known.push_back(curve.machine + " with " + std::to_string(curve.ranks) + " ranks");
    if (curve.machine != machine) continue;
    // The nearest measured rank counts on both sides; the same curve where one fits exactly.
    if (curve.ranks <= ranks && (below == nullptr || curve.ranks > below->ranks)) below = &curve;
    if (curve.ranks >= ranks && (above == nullptr || curve.ranks < above->ranks)) above = &curve;
  }
  if (below == nullptr || above == nullptr)
    return Error{"there is no curve for " + std::to_string(ranks) + " ranks on \"" +
                     printable(machine) + "\"",
                 {},
                 "there are " + join_and(known, 6) +
                     "; add points of this one to a file for "
                     "--nccl-curves"};
  if (below == above) return on_curve(*below, bytes);
  const double share =
      static_cast<double>(ranks - below->ranks) / static_cast<double>(above->ranks - below->ranks);
  // Compared at the size that puts as many bytes on each link: an all-reduce of n ranks moves
  // 2(n-1)/n of its buffer.
  const auto at_volume = [&](const NcclCurve& curve) {
    return on_curve(curve, bytes * bus_factor(trace::Op::all_reduce, ranks) /
                               bus_factor(trace::Op::all_reduce, curve.ranks));
  };
  return (1 - share) * at_volume(*below) + share * at_volume(*above);
}

}  // namespace lockstep::sim
