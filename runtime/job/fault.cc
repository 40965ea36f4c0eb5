#include "runtime/job/fault.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace lockstep::runtime {

namespace {

// In the order of the enumeration.
constexpr std::array<std::string_view, 20> kNames = {
    "none",
    "detached-negatives",
    "unsharded-data",
    "no-reshuffle",
    "gradients-summed",
    "gradients-not-reduced",
    "crossed-stages",
    "lengths-sent-first",
    "dummy-outside-graph",
    "dummy-not-recomputed",
    "dummy-in-batchnorm",
    "alternating-per-rank",
    "mask-decayed",
    "diluted-average",
    "clip-before-sync",
    "clip-local-norm",
    "local-overflow",
    "barrier-on-rank-0",
    "zero-grad-forgotten",
    "stalled-network",
};

}  // namespace

std::string_view to_string(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }

std::optional<Fault> fault_named(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Fault>(found - kNames.begin());
}

bool is_of_remedy(Fault fault) {
  switch (fault) {
    case Fault::dummy_outside_graph:
    case Fault::dummy_not_recomputed:
    case Fault::dummy_in_batchnorm:
    case Fault::alternating_per_rank:
    case Fault::mask_decayed:
    case Fault::diluted_average:
      return true;
    default:
      return false;
  }
}

}  // namespace lockstep::runtime
