// UseOrder: in which order units were used in one pass, which foretells the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

class UseOrder {
 public:
  // A pass begins; gives the first unit of the one before.
  std::optional<std::size_t> restart() {
    last_ = std::exchange(now_, {});
    place_ = 0;
    return at_place();
  }

  // The unit is used now; gives the one that followed it in the pass before. Where it was not used
  // there, nothing is foretold.
  std::optional<std::size_t> use(std::size_t unit) {
    now_.push_back(unit);
    const auto from = last_.begin() + static_cast<std::ptrdiff_t>(place_);
    const auto found = std::find(from, last_.end(), unit);
    if (found == last_.end()) return std::nullopt;
    place_ = static_cast<std::size_t>(found - last_.begin()) + 1;
    return at_place();
  }

 private:
  std::optional<std::size_t> at_place() const {
    if (place_ == last_.size()) return std::nullopt;
    return last_[place_];
  }

  std::vector<std::size_t> last_, now_;
  std::size_t place_ = 0;  // in last_
};

}  // namespace lockstep
