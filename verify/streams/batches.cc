#include "verify/streams/batches.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "trace/groups.h"
#include "verify/streams/past.h"

namespace lockstep::verify {

bool do_batches_explain(const trace::Run& run, const Modalities& modalities, Agreement& agreement,
                        std::uint32_t rank, CallRef call, BatchNumber batch) {
  if (modalities.lacking(rank, call.rank, batch).empty()) return false;
  const trace::Call& like = run.ranks[call.rank].calls[call.call];
  constexpr std::size_t kMaxAsked = 64;  // members; batches
  std::vector<std::uint32_t> members{rank, call.rank};
  for (std::uint32_t r = 0; r < run.ranks.size() && members.size() < kMaxAsked; ++r) {
    if (r != rank && r != call.rank && trace::membership(run.ranks[r], like.group) != nullptr)
      members.push_back(r);
  }
  const auto first_with = [&](const std::optional<std::vector<std::string>>& held,
                              BatchNumber earlier) -> std::optional<std::uint32_t> {
    const auto found = std::find_if(members.begin(), members.end(), [&](std::uint32_t r) {
      return modalities.held(r, earlier) == held;
    });
    return found == members.end() ? std::nullopt : std::optional(*found);
  };
  const auto times_made = [&](std::uint32_t r, BatchNumber in) {
    const std::vector<trace::Call>& calls = run.ranks[r].calls;
    std::size_t times = 0;
    for (std::uint32_t c = 0; c < calls.size(); ++c) {
      if (calls[c].step == in.step && is_same_of_program(agreement, calls[c], like) &&
          (in.micro == trace::kNone || modalities.batch_of(r, c) == in)) {
        ++times;
      }
    }
    return times;
  };
  const auto without = modalities.held(rank, batch);
  const auto with = modalities.held(call.rank, batch);
  std::vector<BatchNumber> earlier = modalities.before(rank, batch);
  if (earlier.size() > kMaxAsked)
    earlier.erase(earlier.begin(), earlier.end() - std::ptrdiff_t{kMaxAsked});
  return std::none_of(earlier.begin(), earlier.end(), [&](const BatchNumber& then) {
    const auto lacks = first_with(without, then);
    const auto holds = first_with(with, then);
    if (!lacks || !holds) return false;
    const std::size_t times = times_made(*holds, then);
    return times > 0 && times_made(*lacks, then) == times;
  });
}

}  // namespace lockstep::verify
