// Lines of the text form of traces, for tests that compute values in them. A trace without such
// values reads better as one raw string.
//
//   header_line(rank, 2) + group_line("pair", {0, 1}) + issue_line(0, "pair", "barrier") +
//       (hangs ? "" : event_line("complete", 0)) + end_line("hung")
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep {

// The keys of a line, in the order in which they are written.
using LineKeys = nlohmann::ordered_json;

inline std::string json_line(const LineKeys& keys) { return keys.dump() + "\n"; }

// `more` holds further keys, {{"backend", "nccl"}} say: here and below.
inline std::string header_line(int rank, std::size_t world_size,
                               const LineKeys& more = LineKeys::object()) {
  LineKeys keys = {{"header", 1}, {"rank", rank}, {"world_size", world_size}};
  keys.update(more);
  return json_line(keys);
}

inline std::string group_line(const std::string& name, const std::vector<int>& ranks,
                              const LineKeys& more = LineKeys::object()) {
  LineKeys keys = {{"group", name}, {"ranks", ranks}};
  keys.update(more);
  return json_line(keys);
}

// The group `world`, of all ranks.
inline std::string world_line(std::size_t world_size) {
  std::vector<int> ranks(world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return group_line("world", ranks);
}

inline std::string issue_line(int id, const std::string& group, const std::string& op,
                              const LineKeys& more = LineKeys::object()) {
  LineKeys keys = {{"ev", "issue"}, {"id", id}, {"g", group}, {"op", op}};
  keys.update(more);
  return json_line(keys);
}

// "start", "complete", "wait" or "waited" of a call.
inline std::string event_line(const char* kind, int id, const LineKeys& more = LineKeys::object()) {
  LineKeys keys = {{"ev", kind}, {"id", id}};
  keys.update(more);
  return json_line(keys);
}

inline std::string end_line(const std::string& how) { return json_line({{"end", how}}); }

}  // namespace lockstep
