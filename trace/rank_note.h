// RankNote: what a source beside the recorded calls says of a rank: its log, its stack, NCCL's RAS.
// Notes explain ends and missing traces; they are never compared as calls are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/ids.h"

namespace lockstep {

struct RankNote {
  enum class Kind : std::uint8_t {
    exception,      // an exception that nobody caught ended it
    out_of_memory,  // of the device or of the host, which ended it
    killed,         // a signal ended it; from outside, as far as the source tells
    crashed,        // a signal of its own ended it: a segmentation fault, a bus error
    gpu_fault,      // the driver reported that its GPU stopped working (Xid)
    caught,         // an exception behind which the rank went on
    peer_lost,      // an exception, or an end, that another rank's end or a time-out brings about
    watchdog,       // PyTorch's watchdog: a call timed out
    nccl_warning,   // NCCL WARN
    gpu_warning,    // an Xid that a job may survive
    stack,          // where the process was
    ras,            // what NCCL's RAS says of it
    calls,          // another recording of its calls
    contradiction,  // what two sources say of it that cannot both be
  };
  Kind kind{};
  Rank rank{kNone};          // kNone: the source does not tell, or names the process alone
  std::int64_t pid = kNone;  // of the process, where the source names it
  std::string text;          // as in the source, at most kLongest bytes; not yet printable()
  Place place;               // in which file, and on which line

  static constexpr std::size_t kLongest = 512;

  // True where the rank ended by itself, and not because of others.
  bool ends() const {
    return kind == Kind::exception || kind == Kind::out_of_memory || kind == Kind::killed ||
           kind == Kind::crashed || kind == Kind::gpu_fault;
  }
};

// "exception", "out of memory", …
std::string_view to_string(RankNote::Kind kind);

}  // namespace lockstep
