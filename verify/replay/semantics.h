// What blocks a rank: the rules by which calls wait for each other, as a parameter.
//
//   gloo  the host blocks at wait, and in a call that is not asynchronous; sends wait for their
//         receive
//   nccl  a call returns once it is enqueued, and a wait only orders streams: the host goes on, and
//         blocks where it reads a value. On the device the calls of one communicator run in their
//         order, each after the one before, and kernels of different communicators may keep each
//         other from running. A call is over when the device says so
//   mpi   standard sends may or may not be buffered, collectives may or may not synchronise:
//         a right program ends under all of these
//
// docs/verify.md says what follows from each.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/run.h"

namespace lockstep::verify {

enum class CallSemantics : std::uint8_t { gloo, nccl, mpi };

std::string_view to_string(CallSemantics semantics);
std::optional<CallSemantics> call_semantics_from_name(std::string_view name);

// What the headers say: mpi where a rank's `semantics` does, nccl where a rank's backend is NCCL or
// a snapshot names none, else gloo, whose rules hold for every backend of c10d.
CallSemantics recorded_semantics(const trace::Run& run);

// Whether the rank's trace shows that a call is over: it completed, or a wait for it returned where
// waits block the host. (Over NCCL `waited` says nothing: the wait returned at once.)
bool is_over(const trace::Call& call, CallSemantics semantics);

// Whether any rank's trace tells when calls complete. Where none does, an open call is one that its
// group cannot have completed. O(events) where there is none.
bool records_completion(const trace::Run& run, CallSemantics semantics);

// A receive (or probe) that takes a message from whoever sends one. In c10d traces a peer of -1 is
// one that was not recorded, except for recv_any.
bool is_any_source(const trace::Tables& tables, const trace::Call& call, CallSemantics semantics);

// Whether a send of this call's mode may return before its receive, where `buffered` says that
// standard sends do.
bool returns_at_once(const trace::Tables& tables, const trace::Call& send, bool buffered);

// Whether a message does not fit the receive that takes it: another type, or another size (of which
// MPI allows the receive to be the larger one).
bool message_differs(const trace::Signature& send, const trace::Signature& receive);

}  // namespace lockstep::verify
