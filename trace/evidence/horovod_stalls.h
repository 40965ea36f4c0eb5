// What Horovod says of tensors that only some ranks submitted, so that the others wait for them.
// Its rank 0 writes it once a minute. Source: horovod/common/stall_inspector.cc, 0.17 to 0.28, and
// operations.cc before:
//
//   [2023-06-26 07:23:58.4: W …/stall_inspector.cc:107] One or more tensors were submitted to be
//       reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks
//       …
//   Missing ranks:
//   2: [allreduce.image.fc.bias, allreduce.image.fc.weight ...]
//   3!: [allreduce.image.fc.bias]            "!": for so long that Horovod ends the job
//
//   HorovodAllreduce_image_fc_0 [missing ranks: 1, 2]                              before 0.17
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "trace/ids.h"

namespace lockstep::trace {

class HorovodStalls {
 public:
  static constexpr std::string_view kSign = "tensors were submitted to be reduced, gathered or";
  static constexpr std::string_view kMissing = " [missing ranks: ";

  struct Stall {
    std::vector<Rank> missing;  // did not submit …
    std::string_view tensors;   // … these: a view into the line, as Horovod lists them
  };
  // What the line says; nothing where it is none of these. O(line).
  std::optional<Stall> take(std::string_view line);
  // Whether the next line may belong to a list, though it holds neither sign.
  bool goes_on() const { return in_list_; }

 private:
  bool in_list_ = false;
};

}  // namespace lockstep::trace
