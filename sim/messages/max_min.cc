#include "sim/messages/max_min.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace lockstep::sim {
namespace {

struct Link {
  Int128 left = 0;             // capacity that no settled flow has
  std::int64_t unsettled = 0;  // flows that have no rate yet
};

std::size_t used(const SharedFlow& flow) { return flow.links[0] == flow.links[1] ? 1 : 2; }

}  // namespace

void share_fairly(std::span<const std::int64_t> capacities, std::vector<SharedFlow>& flows) {
  std::vector<Link> links;
  links.reserve(capacities.size());
  for (const std::int64_t capacity : capacities)
    links.push_back({static_cast<Int128>(capacity) * kRateScale, 0});
  for (const SharedFlow& flow : flows)
    for (std::size_t i = 0; i < used(flow); ++i) ++links[flow.links[i]].unsettled;

  std::vector<char> settled(flows.size(), 0);
  for (std::size_t left = flows.size(); left > 0;) {
    // The link that gives each of its flows least is where these flows are stuck.
    const Link* tightest = nullptr;
    for (const Link& link : links) {
      if (link.unsettled == 0) continue;
      if (tightest == nullptr || link.left / link.unsettled < tightest->left / tightest->unsettled)
        tightest = &link;
    }
    LOCKSTEP_CHECK(tightest != nullptr, "a flow that no link carries");
    const auto bottleneck = static_cast<std::uint32_t>(tightest - links.data());
    // More flows than a link has units still all get on.
    const Int128 share = std::max<Int128>(tightest->left / tightest->unsettled, 1);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      SharedFlow& flow = flows[f];
      if (settled[f] != 0 || (flow.links[0] != bottleneck && flow.links[1] != bottleneck)) continue;
      flow.rate = share;
      settled[f] = 1, --left;
      for (std::size_t i = 0; i < used(flow); ++i) {
        const std::uint32_t link = flow.links[i];
        links[link].left = std::max<Int128>(links[link].left - share, 0);
        --links[link].unsettled;
      }
    }
  }
}

}  // namespace lockstep::sim
