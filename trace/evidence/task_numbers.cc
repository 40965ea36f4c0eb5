#include "trace/evidence/task_numbers.h"

#include <cstddef>

#include "base/word_search.h"

namespace lockstep::trace {

bool TaskNumbers::are_ranks(std::string_view output) const {
  if (start_ranks_) return false;
  // Numbers far above how many there are were no tasks.
  constexpr std::size_t kSparse = 8;
  if (!tasks_.empty() &&
      static_cast<std::size_t>(tasks_.rbegin()->value) > kSparse * (tasks_.size() + 1))
    return false;
  static const WordSearch launchers_of_ranks({"torchrun", "local_rank", "distributed/elastic",
                                              "multiprocessing/spawn", "distributed.elastic"});
  return !launchers_of_ranks.occurs_in(output);
}

}  // namespace lockstep::trace
