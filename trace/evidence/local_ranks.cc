#include "trace/evidence/local_ranks.h"

#include <algorithm>

#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

std::optional<std::int64_t> local_rank_in(std::string_view line) {
  constexpr std::size_t kLongest = 64;
  constexpr std::string_view kDigits = "0123456789";
  if (!line.starts_with('[')) return std::nullopt;
  const std::size_t close = line.substr(0, kLongest).find("]:");
  if (close == kNpos) return std::nullopt;
  const std::string_view name = line.substr(1, close - 1);
  const std::size_t last = name.find_last_not_of(kDigits);
  // A role, not "[3]:", "[rank3]:" of PyTorch, or "[E709 12:31:45.123 …".
  if (last == kNpos || last + 1 == name.size() || !is_letter(name.front()) ||
      name.find_first_of(" ,.:/") != kNpos || name.substr(0, last + 1) == "rank")
    return std::nullopt;
  return number_after(name, name.substr(0, last + 1));
}

void LocalRanks::learn(std::int64_t local, Rank rank) {
  const std::int64_t first = rank.value - local;
  several_nodes_ = several_nodes_ || first < 0 || first_.value_or(first) != first;
  first_ = first;
}

std::vector<std::pair<std::size_t, Rank>> LocalRanks::ranks() const {
  std::vector<std::pair<std::size_t, Rank>> out;
  if (!first_ || several_nodes_) return out;
  for (const auto& [note, local] : notes_)
    if (local <= kMaxWorldSize && is_possible_rank(*first_ + local, kMaxWorldSize))
      out.emplace_back(note, Rank(static_cast<std::int32_t>(*first_ + local)));
  return out;
}

}  // namespace lockstep::trace
