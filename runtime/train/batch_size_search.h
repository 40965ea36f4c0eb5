// The largest batch that fits: doubling until one does not, then halving the interval between.
//
// It assumes that with a batch that fits every smaller one does. Tries: about 2 log2(largest).
#pragma once

#include <optional>

namespace lockstep::runtime {

class BatchSizeSearch {
 public:
  // From `first` to at most `most`; 1 <= first <= most.
  BatchSizeSearch(int first, int most);

  // The size to try now; nothing at the end. Where even `first` does not fit, smaller ones are
  // tried. Ends when the largest size that fits is known to a sixteenth of itself.
  std::optional<int> next() const;
  // What the try of next() gave.
  void tell(bool fits);

  // The largest size that fitted; 0: none.
  int largest() const { return fits_; }

 private:
  int first_, most_;
  int fits_ = 0;  // the largest that did
  int fails_;     // the smallest that did not
};

}  // namespace lockstep::runtime
