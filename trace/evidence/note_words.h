// How the texts of notes begin, or what they contain, where verify/first_cause.cc decides by it.
// The sources of evidence write these words, so that both sides change together.
#pragma once

#include <string_view>

namespace lockstep::trace {

inline constexpr std::string_view kWasIn = "its process was in ";
inline constexpr std::string_view kMadeFailedCallIn = "it made the call that failed in ";
inline constexpr std::string_view kByTorchfrtrace = "by torchfrtrace it ";
inline constexpr std::string_view kFirstFailure = "the first failure, ";  // by torchrun
// By NCCL's RAS.
inline constexpr std::string_view kConsideredDead = "considered dead";
inline constexpr std::string_view kDoesNotAnswer = "does not answer";

}  // namespace lockstep::trace
