#include "reports/sweeps/table.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/columns.h"
#include "base/text.h"
#include "sim/sweep/document.h"
#include "sim/sweep/values.h"

namespace lockstep::sweep {
namespace {

// The last `count` parts of a key.
std::string tail(const std::string& key, std::size_t count) {
  const std::vector<std::string> parts = key_parts(key);
  std::string out;
  for (std::size_t i = parts.size() - std::min(count, parts.size()); i < parts.size(); ++i)
    out += (out.empty() ? "" : ".") + parts[i];
  return out;
}

// As few of its last parts as tell it from the other keys.
std::string short_key(const std::string& key, const std::vector<std::string>& keys) {
  const std::size_t parts = key_parts(key).size();
  for (std::size_t count = 1; count < parts; ++count) {
    const std::string candidate = tail(key, count);
    const bool is_number = candidate.find_first_not_of("0123456789") == std::string::npos;
    const auto same = [&](const std::string& other) { return tail(other, count) == candidate; };
    if (!is_number && std::count_if(keys.begin(), keys.end(), same) == 1) return candidate;
  }
  return key;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::vector<std::string> value_heads(const Summary& summary) {
  std::vector<std::string> out;
  for (const std::string& key : summary.keys)
    out.push_back(printable(short_key(key, summary.keys)));
  if (summary.several_machines) out.emplace_back("machine");
  return out;
}

std::vector<std::string> value_cells(const Summary& summary, const Row& row) {
  std::vector<std::string> out;
  for (const std::string& key : summary.keys)
    out.push_back(row.values.contains(key) ? printable(value_text(row.values.at(key))) : "");
  if (summary.several_machines) out.push_back(printable(file_name(row.machine)));
  return out;
}

std::string point_text(const Summary& summary, const Row& row) {
  const std::vector<std::string> heads = value_heads(summary);
  const std::vector<std::string> cells = value_cells(summary, row);
  std::string out;
  for (std::size_t i = 0; i < heads.size(); ++i)
    out += (out.empty() ? "" : " ") + heads[i] + "=" + cells[i];
  return out.empty() ? summary.transformers ? "the plan as it stands" : "the job as it stands"
                     : out;
}

std::string in_milliseconds(double seconds) { return fixed(seconds * 1e3, 3); }

std::string tried_text(const Summary& summary) {
  std::string out = grouped(summary.rows.size()) + " of " + grouped(summary.grid_points) +
                    (summary.grid_points == 1 ? " point" : " points");
  if (!summary.exhaustive)
    out += "; a search with seed " + std::to_string(summary.seed) +
           ", which is not exhaustive: a better plan may be among the others";
  if (summary.interrupted) out += "; interrupted, the same command goes on";
  return out;
}

std::string objective_text(Objective objective) {
  switch (objective) {
    case Objective::step_time:
      return "step time";
    case Objective::samples_per_second:
      return "samples/s";
    case Objective::samples_per_second_per_rank:
      return "samples/s a rank";
  }
  return {};
}

std::string memory_text(const Summary& summary) {
  const bool counted = std::all_of(summary.rows.begin(), summary.rows.end(), [](const Row& row) {
    return row.memory_counted || row.outcome != Outcome::trains;
  });
  if (summary.transformers)
    return "memory: all that a GPU of the fullest pipeline stage must hold, by formula";
  if (counted) return "memory: what the device of the fullest rank must have at its peak";
  return "memory of the fullest rank: parameters, gradients and the optimizer's state at least; "
         "activations and buffers were not counted everywhere";
}

std::vector<Reason> by_reason(const Summary& summary, const std::vector<std::size_t>& rows) {
  std::map<std::string, std::size_t> places;
  std::vector<Reason> out;
  for (const std::size_t row : rows) {
    const auto [place, is_new] = places.emplace(summary.rows[row].reason, out.size());
    if (is_new) out.push_back({summary.rows[row].reason, {}});
    out[place->second].rows.push_back(row);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Reason& a, const Reason& b) { return a.rows.size() > b.rows.size(); });
  return out;
}

}  // namespace lockstep::sweep
