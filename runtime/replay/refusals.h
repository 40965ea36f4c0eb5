// Reasons why a run cannot be replayed, found before anything is converted.
#pragma once

#include <optional>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

// The first reason why `run` is not a program that Gloo could run: MPI, ranks or parts of traces
// that are missing, too many ranks, operations that c10d does not have, groups or peers that were
// not recorded.
std::optional<Error> find_refusal(const trace::Run& run);

// The first reason why NCCL could not carry the calls of `program`: receives from any source, and
// messages that are received in another order than they are sent, which Gloo distinguishes by tags.
// O(calls log calls).
std::optional<Error> find_nccl_refusal(const trace::Run& program);

// "call 17, all_reduce in group dp0", for error messages. Safe to print.
std::string call_in_words(const trace::Tables& tables, const trace::Call& call);

}  // namespace lockstep::runtime
