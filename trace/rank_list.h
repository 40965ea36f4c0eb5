// RankList: the members of a process group, made once and shared by everybody who names them.
//
// Each of 16,384 ranks knows the group of all of them: with a list of its own each, that would be a
// gigabyte, and comparing the lists would cost more than judging the run. Lists that come from one
// RankLists are the same object wherever they are equal, so that a comparison looks at no rank.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "trace/ids.h"

namespace lockstep::trace {

// A value: never changes, and a copy shares the ranks. Reads as a std::vector<Rank>.
class RankList {
 public:
  using value_type = Rank;
  using const_iterator = std::vector<Rank>::const_iterator;
  using iterator = const_iterator;

  RankList() = default;  // empty
  RankList(std::vector<Rank> ranks);

  operator const std::vector<Rank>&() const { return ranks(); }
  const std::vector<Rank>& ranks() const;
  const_iterator begin() const { return ranks().begin(); }
  const_iterator end() const { return ranks().end(); }
  std::size_t size() const { return ranks().size(); }
  bool empty() const { return ranks().empty(); }
  Rank operator[](std::size_t i) const { return ranks()[i]; }
  Rank front() const { return ranks().front(); }
  Rank back() const { return ranks().back(); }

  // Computed when the list was made. The list must not be empty.
  Rank lowest() const { return list_->lowest; }
  Rank highest() const { return list_->highest; }
  // No rank is in it twice.
  bool distinct() const { return list_ == nullptr || list_->distinct; }
  // The rank's index in the list: its group rank. Nothing if it is not in it; the first index if
  // it is in it twice. O(log size).
  std::optional<std::size_t> index_of(Rank rank) const;
  bool contains(Rank rank) const { return index_of(rank).has_value(); }

  // By ranks, in order. O(1) where both are the same object; else O(size).
  friend bool operator==(const RankList& a, const RankList& b) {
    return a.list_ == b.list_ || a.ranks() == b.ranks();
  }
  friend bool operator==(const RankList& a, const std::vector<Rank>& b) { return a.ranks() == b; }
  friend std::strong_ordering operator<=>(const RankList& a, const RankList& b);
  // Which object it is; nullptr for all empty ones.
  const void* identity() const { return list_.get(); }

 private:
  friend class RankLists;
  struct List {
    std::vector<Rank> ranks;
    std::uint64_t hash = 0;
    Rank lowest, highest;
    // Indices in `ranks`, in ascending order of ranks, and of indices where one is in it twice.
    // Empty where the ranks grow strictly, as they usually do.
    std::vector<std::uint32_t> by_rank;
    bool distinct = true;
  };
  std::shared_ptr<const List> list_;
};

// Ranks at one distance from each other: 0, 2, 4 are {0, 4, 2}.
struct RankRange {
  std::int32_t first = 0, last = 0;  // first <= last
  std::int32_t step = 1;             // above 0, and divides last - first

  std::size_t size() const { return static_cast<std::size_t>((last - first) / step) + 1; }
  friend auto operator<=>(const RankRange&, const RankRange&) = default;
};

// The list as few ranges, in its order: 0, 2, 4, 9, 10, 11 are {0, 4, 2}, {9, 11, 1}. O(size).
std::vector<RankRange> as_ranges(const RankList& list);

// Gives equal lists as one object. Lists stay valid without it. Not for several threads at once;
// the lists that it gave are.
class RankLists {
 public:
  // O(size), and no allocation where the list is known.
  RankList intern(std::span<const Rank> ranks);
  // The list of these ranges, one after the other. Expanded once, however often it is asked for.
  // Nothing where the ranges asked for so far have more than kMaxExpanded ranks: a line of a file
  // can name a million.
  std::optional<RankList> intern(const std::vector<RankRange>& ranges);
  static constexpr std::size_t kMaxExpanded = std::size_t{1} << 24U;
  // The same list, or the one that was there before it. O(1) where it is one of these, or new.
  RankList share(const RankList& list);

  std::size_t size() const { return lists_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::span<const Rank> ranks) const noexcept;
    std::size_t operator()(const RankList& list) const noexcept { return list.list_->hash; }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const RankList& a, const RankList& b) const { return a == b; }
    bool operator()(std::span<const Rank> a, const RankList& b) const;
    bool operator()(const RankList& a, std::span<const Rank> b) const { return (*this)(b, a); }
  };
  std::unordered_set<RankList, Hash, Equal> lists_;  // none is empty
  std::map<std::vector<RankRange>, RankList> of_ranges_;
  std::size_t expanded_ = 0;  // ranks of these
};

}  // namespace lockstep::trace
