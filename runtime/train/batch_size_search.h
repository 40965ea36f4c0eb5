// Finds the largest batch that fits: doubles until one does not, then bisects.
//
// It assumes that if a batch fits, every smaller one does. Takes about 2 log2(largest) tries.
#pragma once

#include <optional>

namespace lockstep::runtime {

class BatchSizeSearch {
 public:
  // From `first` to at most `most`; 1 <= first <= most.
  BatchSizeSearch(int first, int most);

  // The size to try next, or nothing when the largest size that fits is known to within a
  // sixteenth. If even `first` does not fit, tries smaller sizes.
  std::optional<int> next() const;
  // Records the result of trying next().
  void record(bool fits);

  // The largest size that fitted, or 0.
  int largest() const { return fits_; }

 private:
  int first_, most_;
  int fits_ = 0;  // the largest size that fitted
  int fails_;     // the smallest size that did not
};

}  // namespace lockstep::runtime
