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

  // The size to try now; nothing at the end. If even `first` does not fit, smaller sizes are tried.
  // Ends when the largest size that fits is known to within a sixteenth.
  std::optional<int> next() const;
  // Reports the result of trying next().
  void tell(bool fits);

  // The largest size that fitted; 0: none.
  int largest() const { return fits_; }

 private:
  int first_, most_;
  int fits_ = 0;  // the largest that fitted
  int fails_;     // the smallest that did not
};

}  // namespace lockstep::runtime
