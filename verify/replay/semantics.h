// What blocks a rank: the rules by which calls wait for each other.
//
//   gloo  the host blocks at a wait and in every call that is not asynchronous; a send waits for
//         its receive
//   nccl  a call returns when it is enqueued, and a wait only orders CUDA streams: the host goes on
//         and blocks where it reads a value. On the device the calls of one communicator run one
//         after the other, and kernels of different communicators may keep each other from running.
//         A call is over when the device has completed it
//   mpi   standard sends may or may not be buffered, collectives may or may not synchronise; a
//         correct program ends in all cases
//
// docs/verify.md describes the consequences.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/run.h"

namespace lockstep::verify {

enum class CallSemantics : std::uint8_t { gloo, nccl, mpi };

std::string_view to_string(CallSemantics semantics);
std::optional<CallSemantics> call_semantics_from_name(std::string_view name);

// The semantics that the traces' headers name: mpi where a rank's `semantics` says so; nccl where a
// rank's backend is NCCL or another that queues calls on devices, or a snapshot names no backend;
// otherwise gloo, whose rules hold for every backend of c10d.
CallSemantics recorded_semantics(const trace::Run& run);

// Whether the rank's trace shows that a call is over: it completed, or a wait for it returned where
// waits block the host. (Over NCCL `waited` says nothing: the wait returned at once.)
bool is_over(const trace::Call& call, CallSemantics semantics);

// Whether any rank's trace records completions. Where none does, a call counts as open if its group
// cannot have completed it. O(calls).
bool records_completion(const trace::Run& run, CallSemantics semantics);

// Whether a receive (or probe) takes a message from any sender. In c10d traces a peer of -1 means
// that it was not recorded, except for recv_any.
bool is_any_source(const trace::Tables& tables, const trace::Call& call, CallSemantics semantics);

// Whether a send may return before its receive is posted: buffered sends always, synchronous ones
// never, standard ones if `buffered`.
bool returns_at_once(const trace::Tables& tables, const trace::Call& send, bool buffered);

// Whether a message does not fit the receive that takes it: the types or sizes differ. MPI's
// counts may be larger at the receive. Unknown sizes and types fit.
bool message_differs(const trace::Signature& send, const trace::Signature& receive);

}  // namespace lockstep::verify
