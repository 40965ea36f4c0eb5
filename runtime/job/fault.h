// Fault: a deliberate mistake in a scenario (`fault: NAME`), to show what it does to a job and what
// the verifier reports. A job has at most one. runtime/faults/ implements them; docs/scenarios.md
// lists them with the rules that find them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::runtime {

// In the order of the names in the schema.
enum class Fault : std::uint8_t {
  none,
  detached_negatives,     // features of other ranks are gathered without their gradients
  unsharded_data,         // every rank reads the same items
  no_reshuffle,           // every epoch has the order of the first
  gradients_summed,       // the sum over the ranks is not divided
  gradients_not_reduced,  // each rank keeps its own gradients
  crossed_stages,         // the pipeline's stages send and receive in orders that form a cycle
  lengths_sent_first,     // all stages of the pipeline send lengths before they receive any
  dummy_outside_graph,    // the dummy image is not added to the loss, so it gives no gradients
  dummy_not_recomputed,   // activations of the dummy image are kept, so its encoder runs only once
  dummy_in_batchnorm,     // the dummy image enters BatchNorm's running statistics
  alternating_per_rank,   // ranks alternate between the modalities in different steps
  mask_decayed,           // if no rank has an image, gradients are zeros, so weight decay applies
  diluted_average,        // "average: contributors", but divided by all ranks
  clip_before_sync,       // each rank clips its own gradients before they are synchronised
  clip_local_norm,        // fsdp: each rank clips by the norm of its own shards
  local_overflow,         // float16: each rank decides by itself whether a step overflowed
  barrier_on_rank_0,      // only rank 0 calls the barrier after a checkpoint
  zero_grad_forgotten,    // gradients of all steps add up
  stalled_network,        // fsdp: from step 1 on no reduce-scatter completes
};

// The name in scenarios: "zero-grad-forgotten"; "none".
std::string_view to_string(Fault fault);

// The fault with that name; std::nullopt if there is none.
std::optional<Fault> fault_named(std::string_view name);

// True for faults of a remedy: they disappear with it.
bool is_of_remedy(Fault fault);

}  // namespace lockstep::runtime
