#include "trace/rank_list.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

namespace lockstep::trace {

namespace {

static_assert(sizeof(Rank) == sizeof(std::int32_t) && std::is_trivially_copyable_v<Rank>,
              "ranks are hashed and compared as bytes");

// Four lanes, because one would wait for each of its multiplications: the lists are long.
std::uint64_t hash_of(std::span<const Rank> ranks) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15ULL;
  constexpr std::size_t kLanes = 4;
  std::array<std::uint64_t, kLanes> lanes{};
  const auto add = [](std::uint64_t& lane, Rank rank) {
    lane = (lane ^ static_cast<std::uint32_t>(rank.value)) * kFactor;
    lane ^= lane >> 32U;
  };
  std::size_t i = 0;
  for (; i + kLanes <= ranks.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(lanes[lane], ranks[i + lane]);
  }
  for (; i < ranks.size(); ++i) add(lanes[i % kLanes], ranks[i]);
  std::uint64_t hash = ranks.size();
  for (const std::uint64_t lane : lanes) {
    hash = (hash ^ lane) * kFactor;
    hash ^= hash >> 32U;
  }
  return hash;
}

std::vector<std::uint32_t> sorted_places(const std::vector<Rank>& ranks) {
  std::vector<std::uint32_t> out(ranks.size());
  std::iota(out.begin(), out.end(), 0U);
  std::sort(out.begin(), out.end(), [&](std::uint32_t a, std::uint32_t b) {
    return ranks[a] != ranks[b] ? ranks[a] < ranks[b] : a < b;
  });
  return out;
}

}  // namespace

RankList::RankList(std::vector<Rank> ranks) {
  if (ranks.empty()) return;
  List list;
  list.hash = hash_of(ranks);
  const auto [lowest, highest] = std::minmax_element(ranks.begin(), ranks.end());
  list.lowest = *lowest;
  list.highest = *highest;
  // Growing ranks are the usual case and need no memory to be found.
  const bool grows =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (!grows) {
    list.by_rank = sorted_places(ranks);
    list.distinct = std::adjacent_find(list.by_rank.begin(), list.by_rank.end(),
                                       [&](std::uint32_t a, std::uint32_t b) {
                                         return ranks[a] == ranks[b];
                                       }) == list.by_rank.end();
  }
  list.ranks = std::move(ranks);
  list_ = std::make_shared<const List>(std::move(list));
}

const std::vector<Rank>& RankList::ranks() const {
  static const std::vector<Rank> none;
  return list_ == nullptr ? none : list_->ranks;
}

std::optional<std::size_t> RankList::index_of(Rank rank) const {
  if (list_ == nullptr || rank < list_->lowest || list_->highest < rank) return std::nullopt;
  const std::vector<Rank>& all = list_->ranks;
  const std::vector<std::uint32_t>& by_rank = list_->by_rank;
  if (by_rank.empty()) {
    const auto at = std::lower_bound(all.begin(), all.end(), rank);
    if (*at != rank) return std::nullopt;  // not the end: the highest rank is no lower
    return static_cast<std::size_t>(at - all.begin());
  }
  const auto at = std::lower_bound(by_rank.begin(), by_rank.end(), rank,
                                   [&](std::uint32_t index, Rank r) { return all[index] < r; });
  if (all[*at] != rank) return std::nullopt;
  return *at;
}

std::strong_ordering operator<=>(const RankList& a, const RankList& b) {
  if (a.list_ == b.list_) return std::strong_ordering::equal;
  return a.ranks() <=> b.ranks();
}

RankList RankLists::intern(std::span<const Rank> ranks) {
  if (ranks.empty()) return {};
  if (const auto found = lists_.find(ranks); found != lists_.end()) return *found;
  return *lists_.emplace(std::vector<Rank>(ranks.begin(), ranks.end())).first;
}

std::optional<RankList> RankLists::intern(const std::vector<RankRange>& ranges) {
  const auto [known, is_new] = of_ranges_.try_emplace(ranges);
  if (!is_new) return known->second;
  std::size_t size = 0;
  for (const RankRange& range : ranges) size += range.size();
  if (size > kMaxExpanded - expanded_) {
    of_ranges_.erase(known);
    return std::nullopt;
  }
  expanded_ += size;
  std::vector<Rank> ranks;
  ranks.reserve(size);
  for (const RankRange& range : ranges)
    for (std::size_t i = 0; i < range.size(); ++i)
      ranks.emplace_back(range.first + static_cast<std::int32_t>(i) * range.step);
  known->second = intern(std::span<const Rank>(ranks));
  return known->second;
}

std::vector<RankRange> as_ranges(const RankList& list) {
  std::vector<RankRange> out;
  const std::vector<Rank>& ranks = list.ranks();
  for (std::size_t i = 0; i < ranks.size();) {
    RankRange range{ranks[i].value, ranks[i].value, 1};
    std::size_t next = i + 1;
    if (next < ranks.size() && ranks[next] > ranks[i]) range.step = ranks[next].value - range.first;
    while (next < ranks.size() && ranks[next].value == range.last + range.step)
      range.last = ranks[next++].value;
    if (range.first == range.last) range.step = 1;
    out.push_back(range);
    i = next;
  }
  return out;
}

RankList RankLists::share(const RankList& list) {
  return list.empty() ? list : *lists_.insert(list).first;
}

std::size_t RankLists::Hash::operator()(std::span<const Rank> ranks) const noexcept {
  return hash_of(ranks);
}

bool RankLists::Equal::operator()(std::span<const Rank> a, const RankList& b) const {
  const std::vector<Rank>& ranks = b.ranks();
  return a.size() == ranks.size() &&
         (a.empty() || std::memcmp(a.data(), ranks.data(), a.size_bytes()) == 0);
}

}  // namespace lockstep::trace
