// Fault: a mistake that a scenario asks for on purpose (`fault: NAME`), so that one can see what it
// does to a job and what the verifier says about it. A job has at most one. What each one does to
// training is in runtime/faults/; docs/scenarios.md lists them with the rules that find them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::runtime {

// In the order of the names in the schema.
enum class Fault : std::uint8_t {
  none,
  detached_negatives,     // features of other ranks are gathered without their gradient
  unsharded_data,         // every rank reads the same items
  no_reshuffle,           // every epoch has the first one's order
  gradients_summed,       // the sum over the ranks is not divided by their number
  gradients_not_reduced,  // each rank keeps its own gradients
  crossed_stages,         // the pipeline's stages send and receive in orders that form a cycle
  dummy_outside_graph,    // the dummy image does not join the loss: it gives no gradients
  dummy_in_batchnorm,     // BatchNorm's running statistics learn from the dummy image
  alternating_per_rank,   // each rank alternates between the modalities at its own time
  mask_decayed,           // where no rank has an image: zeros as gradients, so the weights decay
  diluted_average,        // "average: contributors", and divided by all ranks
  clip_before_sync,       // each rank clips its own gradients, before they are synchronised
  clip_local_norm,        // fsdp: each rank clips by the norm of its own shards
  local_overflow,         // float16: each rank decides for itself whether a step overflowed
  barrier_on_rank_0,      // of a checkpoint's barrier: rank 0 alone waits
  zero_grad_forgotten,    // the gradients of all steps add up
};

// As scenarios name it: "zero-grad-forgotten"; "none".
std::string_view to_string(Fault fault);

// The fault with that name; none has it: std::nullopt.
std::optional<Fault> fault_named(std::string_view name);

// True for faults of a remedy: they go away with it.
bool is_of_remedy(Fault fault);

}  // namespace lockstep::runtime
