#include "runtime/remedies/presence_vote.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep {

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

}  // namespace lockstep
