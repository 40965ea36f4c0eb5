#include "runtime/remedies/remedy.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "runtime/faults/faults.h"
#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep::runtime {

std::unique_ptr<Remedy> make_remedy(const Scenario::Remedy& options, RemedyParts parts) {
  using Kind = Scenario::Remedy::Kind;
  switch (options.kind) {
    case Kind::none:
    case Kind::alternating:
      return std::make_unique<Remedy>(std::move(parts));
    case Kind::dummy_image:
    case Kind::gradient_mask:
    case Kind::empty_image:
      return make_dummy_fill(options, std::move(parts));
    case Kind::presence_vote:
      return std::make_unique<PresenceVote>(std::move(parts));
  }
  LOCKSTEP_CHECK(false, "a remedy without an implementation");
}

void PresenceVote::before_step(std::vector<Batch>& batches) {
  const bool present =
      std::all_of(batches.begin(), batches.end(), [](const Batch& b) { return b.has_image(); });
  const at::Tensor vote = at::full({1}, present ? 1 : 0, at::kInt);
  {
    const NoteScope scope(parts().recorder,
                          parts().recorder.note({"has_image"}, "remedy.presence_vote"));
    all_reduce(*parts().groups.world(), vote, Reduce::min);
  }
  {
    const HostRead reading(parts().recorder, vote);
    if (vote.item<int>() == 1) return;
  }
  for (Batch& batch : batches) batch.drop_images();
}

}  // namespace lockstep::runtime
