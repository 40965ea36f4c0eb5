#include "reports/forecasts/path.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/table.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kShownSums = 6, kShownItems = 8, kShownRanks = 30;
// Parts below 0.5 % are many and change nothing; the longest is always shown.
constexpr double kShownShare = 0.005;

std::string who(const std::string& name) { return shorten_end(name, kShownRanks); }

std::string where(bool between_nodes) { return between_nodes ? "between nodes" : "inside a node"; }

// The first lines of a list, the longest, and the sum of the others.
template <class T>
std::string shares_list(const sim::ForecastPath& path, const std::vector<T>& parts,
                        std::size_t most, const std::vector<std::string>& names,
                        const std::string& noun, std::size_t width) {
  Table table({{"", Column::number}, {.name = "", .wrapped = true}});
  double left = 1;
  std::size_t i = 0;
  for (; i < std::min(most, parts.size()); ++i) {
    const double share = path.share(parts[i].time);
    if (i > 0 && share < kShownShare) break;
    table.add({percent(share), words_of(parts[i], names)});
    left -= share;
  }
  if (i < parts.size())
    table.add({percent(std::max(left, 0.0)),
               fmt::format("in {}", plural(parts.size() - i, fmt::format("other {}", noun)))});
  return table.text(width, 4);
}

}  // namespace

std::string named_ranks(const std::string& ranks) {
  // "7" is one rank; "0-3" and "1,5" are several.
  const bool one = ranks.find_first_of(",-") == std::string::npos;
  return fmt::format("{} {}", one ? "rank" : "ranks", ranks);
}

std::string words_of(const sim::ForecastPath::Sum& sum, const std::vector<std::string>& names) {
  if (sum.rank_class) return fmt::format("work of {}", who(names[*sum.rank_class]));
  return fmt::format("calls in group {}, {}", sum.group, where(sum.between_nodes));
}

std::string words_of(const sim::ForecastPath::Item& item, const std::vector<std::string>& names) {
  if (item.is_call) return fmt::format("{}, {}", item.call, where(item.between_nodes));
  return fmt::format(
      "work of {}{}", who(names[item.rank_class]),
      item.call.empty() ? " at the end of a step" : fmt::format(" before {}", item.call));
}

std::string path_text(const sim::ForecastPath& path, const std::vector<std::string>& names,
                      std::size_t width) {
  return fmt::format("  critical path of {}, {}\n{}  most of it in\n{}", path.covers(),
                     duration_text(path.end - path.begin),
                     shares_list(path, path.sums, kShownSums, names, "kind", width),
                     shares_list(path, path.items, kShownItems, names, "place", width));
}

std::string change_in_words(const sim::WhatIf& one) {
  // A gain of 0.12 is a step time of "-12 %". Without a sign: what rounds to no change.
  const std::string change = percent(-one.gain);
  if (change == "0 %" || change == "-0 %") return "0 %";
  return one.gain < 0 ? fmt::format("+{}", change) : change;
}

std::string what_if_text(const std::vector<sim::WhatIf>& what_ifs, std::size_t width) {
  Table table(columns({"what if"}, {"step time"}));
  for (const sim::WhatIf& one : what_ifs) table.add({one.change, change_in_words(one)});
  return table.text(width, 2);
}

nlohmann::ordered_json path_json(const sim::ForecastPath& path,
                                 const std::vector<std::string>& ranks) {
  nlohmann::ordered_json out = {
      {"begin_ps", path.begin.value}, {"end_ps", path.end.value}, {"steps", path.steps}};
  out["sums"] = nlohmann::ordered_json::array();
  out["items"] = nlohmann::ordered_json::array();
  for (const sim::ForecastPath::Sum& sum : path.sums) {
    nlohmann::ordered_json one;
    if (sum.rank_class) {
      one = {{"kind", "work"}, {"ranks", ranks[*sum.rank_class]}};
    } else {
      one = {
          {"kind", "calls"}, {"group", printable(sum.group)}, {"between_nodes", sum.between_nodes}};
    }
    one["time_ps"] = sum.time.value;
    one["share"] = path.share(sum.time);
    out["sums"].push_back(std::move(one));
  }
  for (std::size_t i = 0; i < std::min(kMaxPathItems, path.items.size()); ++i) {
    const sim::ForecastPath::Item& item = path.items[i];
    nlohmann::ordered_json one = {{"kind", item.is_call ? "call" : "work"},
                                  {"ranks", ranks[item.rank_class]}};
    if (!item.call.empty()) {
      one[item.is_call ? "call" : "before"] = printable(item.call);
      one["group"] = printable(item.group);
    }
    if (item.is_call) one["between_nodes"] = item.between_nodes;
    one["time_ps"] = item.time.value;
    one["share"] = path.share(item.time);
    one["count"] = item.count;
    out["items"].push_back(std::move(one));
  }
  return out;
}

nlohmann::ordered_json what_if_json(const std::vector<sim::WhatIf>& what_ifs) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const sim::WhatIf& one : what_ifs)
    out.push_back({{"change", one.key},
                   {"what", one.change},
                   {"step_time_ps", one.step_time.value},
                   {"gain", one.gain}});
  return out;
}

}  // namespace lockstep::reports
