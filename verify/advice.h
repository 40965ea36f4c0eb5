// What to do about an error, by what its message says.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::trace {
struct RankNote;
}

namespace lockstep::verify {

// What to do about an end for that reason.
struct Advice {
  std::string fix;   // a sentence; empty: the rule's own
  std::string next;  // a shell command; empty: none
};
// `text`: the exception, or what the launcher said.
Advice advice_about(std::string_view text, const std::string& host);

// About a process that hangs inside the kernel (RankNote::Says::in_the_kernel): by the module of
// the kernel in whose function it waits.
Advice advice_about_blocked(const trace::RankNote& note);

// "ssh node4 ", before a command that must run where the process was; empty: on this machine, or
// nobody knows where, or the host's name is one that a shell could take for something else.
std::string command_at(const std::string& host);

// Where ranks run different units of FullyShardedDataParallel.
inline constexpr std::string_view kRunSameUnits =
    "run the same FSDP modules in the same order on every rank, also for a batch without that "
    "modality: give them an input of zeros, and add their output times 0";

// The environment variables with which a backend of torch.distributed ("nccl", "HCCL", "cuda:nccl")
// writes what it recorded when a call times out; empty where it has none.
std::string_view recorder_variables(std::string_view backend);

// "node4" of "closed by remote peer node4<42830>", "10.0.0.4" of "[10.0.0.4]:8021"; empty where the
// text names no peer, or one that a shell could take for something else.
std::string peer_in(std::string_view text);

}  // namespace lockstep::verify
