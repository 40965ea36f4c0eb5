// Deliberate mistakes in dummy images: Fault::dummy_outside_graph,
// Fault::dummy_not_recomputed, Fault::dummy_in_batchnorm, Fault::mask_decayed and
// Fault::diluted_average.
#pragma once

#include <memory>

#include "runtime/remedies/dummy_fill.h"

namespace lockstep::runtime {

// DummyFill, with the mistake of parts.fault if it is one of these.
std::unique_ptr<Remedy> make_dummy_fill(const Scenario::Remedy& options, RemedyParts parts);

}  // namespace lockstep::runtime
