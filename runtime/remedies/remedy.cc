#include "runtime/remedies/remedy.h"

#include "runtime/remedies/dummy_fill.h"
#include "runtime/remedies/presence_vote.h"

namespace lockstep {

std::unique_ptr<Remedy> make_remedy(const Scenario::Remedy& options, RemedyParts parts) {
  using Kind = Scenario::Remedy::Kind;
  switch (options.kind) {
    case Kind::none:
    case Kind::alternating:
    case Kind::alternating_per_rank:
      return std::make_unique<Remedy>(std::move(parts));
    case Kind::dummy_image:
    case Kind::dummy_image_outside_graph:
    case Kind::dummy_image_in_batchnorm:
    case Kind::gradient_mask:
    case Kind::gradient_mask_decayed:
      return std::make_unique<DummyFill>(options, std::move(parts));
    case Kind::presence_vote:
      return std::make_unique<PresenceVote>(std::move(parts));
  }
  LOCKSTEP_CHECK(false, "a remedy without an implementation");
}

}  // namespace lockstep
