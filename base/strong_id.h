// StrongId: an integer with a type of its own, so that a rank is never passed for a group.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>

namespace lockstep {

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
