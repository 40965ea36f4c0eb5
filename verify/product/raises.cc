#include "verify/product/raises.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "verify/product/assignments.h"

namespace lockstep {

namespace {

// Whether the rank may begin the history at all.
bool may_begin(const ProductModel& model, std::uint32_t history, std::int32_t rank) {
  const std::uint32_t first = model.spec().histories[history].first;
  for (std::uint32_t m = 0; m < model.situations().meets().size(); ++m) {
    const auto mine = model.situations().conditions(m, rank, 0);
    if (std::binary_search(mine.begin(), mine.end(), first)) return true;
  }
  return false;
}

}  // namespace

RaiseSearch find_raise(const ProductModel& model) {
  constexpr double kMostWork = double{1U << 28U};
  const double work_a_step = static_cast<double>(model.ranks()) *
                             static_cast<double>(model.spec().allowed.size() + 1) *
                             static_cast<double>(model.situations().meets().size());
  double work = 0;
  RaiseSearch out;
  for (std::uint32_t h = 0; h < model.derivation().runs.size(); ++h) {
    for (std::int32_t r = 0; r < model.ranks(); ++r) {
      const auto& raise = model.sequences().raise(h, r);
      if (!raise || (out.first && out.first->step <= raise->step)) continue;
      work += static_cast<double>(raise->step + 1) * work_a_step;
      auto assignment = work > kMostWork ? std::nullopt : follow_trace(model, h, r);
      if (assignment) {
        out.first = PossibleRaise{h, r, raise->step, std::move(*assignment)};
      } else if (may_begin(model, h, r)) {
        out.unknown.push_back("rank " + std::to_string(r) + " raised an exception in step " +
                              std::to_string(raise->step) + " of " +
                              printable(model.spec().histories[h].folder) +
                              ", and whether it can in an allowed assignment is not known");
      }
    }
  }
  return out;
}

}  // namespace lockstep
