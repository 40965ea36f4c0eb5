// The identifiers of the event model. Every one is its own type.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"

namespace lockstep {

// An integer with its own type, so that a rank cannot be passed as a group.
template <class Tag, class Rep>
struct StrongId {
  Rep value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

}  // namespace lockstep

template <class Tag, class Rep>
struct std::hash<lockstep::StrongId<Tag, Rep>> {
  std::size_t operator()(lockstep::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};

// Interner: gives equal values the same small id and keeps one copy of each.
//
//   Interner<std::string, StringId> strings;
//   StringId a = strings.intern("world");   // O(length), amortised
//   strings[a];                             // "world"; references stay valid
//
// Id 0 is the default-constructed value ("not recorded"), which is always present.
//
// Strings are text: what is not UTF-8 gets U+FFFD for each wrong byte, and two strings that then
// are equal are one. Files may hold any bytes where a name should be, and reports and other formats
// may not.

namespace lockstep {

template <class T, class Id, class Hash = std::hash<T>>
class Interner {
 public:
  Interner() { intern(T{}); }
  Interner(const Interner&) = delete;  // the index refers into values_
  Interner& operator=(const Interner&) = delete;
  Interner(Interner&&) = default;             // NOLINT(performance-noexcept-move-constructor):
  Interner& operator=(Interner&&) = default;  // NOLINT: moving libstdc++'s deques allocates

  Id intern(const T& value) {
    // A direct-mapped cache before the hash map: a trace repeats the values of one step, some
    // hundreds at most.
    std::uint32_t& recent = recent_[Hash{}(value) % recent_.size()];
    if (recent < values_.size() && values_[recent] == value) return Id(recent);
    if (auto found = index_.find(value); found != index_.end()) return Id(recent = found->second);
    if constexpr (std::is_same_v<T, std::string>) {
      if (!is_utf8(value)) return intern(to_utf8(value));
    }
    LOCKSTEP_CHECK(values_.size() < UINT32_MAX, "too many distinct values in one run");
    recent = static_cast<std::uint32_t>(values_.size());
    values_.push_back(value);
    index_.emplace(values_.back(), recent);
    return Id(recent);
  }

  const T& operator[](Id id) const {
    LOCKSTEP_CHECK(id.value < values_.size(), "id of another interner");
    return values_[id.value];
  }

  std::size_t size() const { return values_.size(); }

 private:
  struct RefHash {
    std::size_t operator()(const std::reference_wrapper<const T>& r) const {
      return Hash{}(r.get());
    }
  };
  struct RefEqual {
    bool operator()(const std::reference_wrapper<const T>& a,
                    const std::reference_wrapper<const T>& b) const {
      return a.get() == b.get();
    }
  };
  std::deque<T> values_;                      // a deque: growing moves no element
  std::array<std::uint32_t, 1024> recent_{};  // the last id for each hash, modulo 1024
  std::unordered_map<std::reference_wrapper<const T>, std::uint32_t, RefHash, RefEqual> index_;
};

}  // namespace lockstep

namespace lockstep::trace {

using Rank = StrongId<struct RankTag, std::int32_t>;       // global rank, 0-based; < 0: unknown
using GroupId = StrongId<struct GroupTag, std::uint32_t>;  // a name of a process group, in one Run
using Seq = StrongId<struct SeqTag, std::uint64_t>;        // index in a group's sequence, from 0
using StringId = StrongId<struct StringTag, std::uint32_t>;        // 0: not recorded
using IntListId = StrongId<struct IntListTag, std::uint32_t>;      // 0: not recorded
using NameListId = StrongId<struct NameListTag, std::uint32_t>;    // 0: not recorded
using SignatureId = StrongId<struct SignatureTag, std::uint32_t>;  // 0: nothing recorded
using Nanos = std::int64_t;  // nanoseconds on one rank's monotonic clock; kNoTime: not recorded

inline constexpr Nanos kNoTime = -1;
inline constexpr std::int32_t kNone = -1;              // "not recorded" for steps, ranks, tags, …
inline constexpr std::int32_t kNoPeerTag = INT32_MIN;  // -1 is "any tag" in MPI traces

}  // namespace lockstep::trace
