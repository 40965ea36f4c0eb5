// Shrinks tensors so that sizes that were equal stay equal, and sizes that differed stay different.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

// Sizes up to half the limit stay. The k-th larger one, in ascending order, becomes half the limit
// + k. So the order of sizes is kept. With limit 8, sizes 3, 1000, 4096 become 3, 5, 6. Gathers and
// scatters over n ranks keep their ratio n : 1.
class SizeClasses {
 public:
  // `limit`: elements of one rank's part of the largest tensor; at least 2.
  explicit SizeClasses(std::int64_t limit) : limit_(limit) {}

  void add(std::int64_t elements) { sizes_.insert(elements); }
  // Call once, after the last add(). Returns false if there are more different sizes than the limit
  // has room for.
  bool settle();
  // The new size for `elements`, which must have been added.
  std::int64_t small(std::int64_t elements) const;

 private:
  std::int64_t limit_;
  std::set<std::int64_t> sizes_;
  std::map<std::int64_t, std::int64_t> small_;  // sizes that change
};

// Gives the calls of `program` signatures with small sizes. Shapes become flat, except the rows of
// an all-to-all with splits: their number stays, they become shorter. Errors: more different sizes
// than `max_elements` has room for; splits with more rows.
Status shrink_sizes(trace::Run& program, std::int64_t max_elements);

}  // namespace lockstep::runtime
