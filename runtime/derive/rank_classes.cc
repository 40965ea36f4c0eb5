#include "runtime/derive/rank_classes.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lockstep {

Result<std::vector<std::vector<int>>> rank_classes(const Scenario& scenario) {
  const int shard_ranks = scenario.strategy.shard_ranks;
  const bool replicas = scenario.ranks_of_replica() > 1;
  if (replicas || (shard_ranks != 0 && shard_ranks != scenario.ranks)) {
    return Error{"each rank of this job is in other groups than the next: none stands for others",
                 {scenario.file},
                 replicas ? "derive it with fewer ranks"
                          : "derive it with fewer ranks, or with \"shard_ranks: 0\""};
  }
  const bool groups_by_image =
      scenario.strategy.process_groups == Scenario::Strategy::Groups::image_ranks;
  const std::vector<std::int32_t> with_images = scenario.ranks_with_images(scenario.ranks);
  std::map<std::tuple<bool, bool, int>, std::vector<int>> classes;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    const bool image =
        groups_by_image && std::binary_search(with_images.begin(), with_images.end(), rank);
    classes[{rank != 0, image, scenario.micro_batches(rank)}].push_back(rank);
  }
  std::vector<std::vector<int>> out;
  for (auto& [key, ranks] : classes) out.push_back(std::move(ranks));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace lockstep
