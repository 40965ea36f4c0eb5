// Smaller tensors whose sizes still agree where the recorded ones do, and differ where they do.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

// Sizes up to half the limit stay; the k-th larger one, in ascending order, becomes half the limit
// + k. So equal stays equal, different stays different, and larger stays larger. A ring that
// gathers or scatters over n ranks keeps its n : 1.
class SizeClasses {
 public:
  // `limit`: elements of the largest tensor of one rank's part; at least 2.
  explicit SizeClasses(std::int64_t limit) : limit_(limit) {}

  void add(std::int64_t elements) { sizes_.insert(elements); }
  // Call once, after the last add(). False: more different sizes than the limit has room for.
  bool settle();
  // What `elements`, which was added, becomes.
  std::int64_t small(std::int64_t elements) const;

 private:
  std::int64_t limit_;
  std::set<std::int64_t> sizes_;
  std::map<std::int64_t, std::int64_t> small_;  // of those that change
};

// Gives the calls of `program` signatures with small sizes. Shapes become flat, but for the rows of
// an all-to-all with splits, which stay, with shorter rows.
// Errors: more different sizes than `max_elements` has room for; splits of more rows.
Status shrink_sizes(trace::Run& program, std::int64_t max_elements);

}  // namespace lockstep::runtime
