// What cannot be replayed, said before anything is made of it.
#pragma once

#include <optional>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

// The first reason why `run` is not a program that Gloo could run: MPI, ranks or parts of their
// traces that are missing, too many ranks, operations that c10d does not have, groups or
// other sides that were not recorded.
std::optional<Error> find_refusal(const trace::Run& run);

// The first reason why NCCL could not carry the calls of `program` as they were made: receives from
// any source, and messages that are received in another order than they are sent in, which Gloo
// tells by their tags. O(calls log calls).
std::optional<Error> find_nccl_refusal(const trace::Run& program);

// "call 17, all_reduce in group dp0", for messages. Safe to print.
std::string call_in_words(const trace::Tables& tables, const trace::Call& call);

}  // namespace lockstep::runtime
