#include "runtime/train/batch_size_search.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::runtime {

BatchSizeSearch::BatchSizeSearch(int first, int most)
    : first_(first), most_(most), fails_(most + 1) {
  LOCKSTEP_CHECK(first >= 1 && first <= most, "sizes to try");
}

std::optional<int> BatchSizeSearch::next() const {
  constexpr int kPrecision = 16;
  const int gap = fails_ - fits_;
  if (gap <= 1) return std::nullopt;
  const bool failed = fails_ <= most_;
  if (!failed) return fits_ == 0 ? first_ : std::min(most_, 2 * fits_);
  if (fits_ > 0 && gap <= fits_ / kPrecision) return std::nullopt;
  return fits_ + gap / 2;
}

void BatchSizeSearch::tell(bool fits) {
  const auto tried = next();
  LOCKSTEP_CHECK(tried.has_value(), "a search that is over");
  (fits ? fits_ : fails_) = *tried;
}

}  // namespace lockstep::runtime
