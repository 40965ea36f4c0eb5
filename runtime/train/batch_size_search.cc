#include "runtime/train/batch_size_search.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::runtime {

BatchSizeSearch::BatchSizeSearch(int first, int most)
    : first_(first), most_(most), fails_(most + 1) {
  LOCKSTEP_CHECK(first >= 1 && first <= most, "sizes to try");
}

std::optional<int> BatchSizeSearch::next() const {
  // A sixteenth: finer steps cost a training run each and gain less than noise in memory use.
  constexpr int kPrecision = 16;
  // Invariant: fits_ is known to fit (0: nothing yet) and fails_ to fail (most_ + 1: nothing yet).
  const int gap = fails_ - fits_;
  if (gap <= 1) return std::nullopt;
  const bool failed = fails_ <= most_;
  // Phase 1 doubles. 8 fits: try 16, 32, …
  if (!failed) return fits_ == 0 ? first_ : std::min(most_, 2 * fits_);
  // Phase 2 halves. 32 fits, 64 fails: try 48, then 40 or 56, until the gap is at most 1/16.
  if (fits_ > 0 && gap <= fits_ / kPrecision) return std::nullopt;
  return fits_ + gap / 2;
}

void BatchSizeSearch::record(bool fits) {
  const auto tried = next();
  LOCKSTEP_CHECK(tried.has_value(), "a search that is over");
  (fits ? fits_ : fails_) = *tried;
}

}  // namespace lockstep::runtime
