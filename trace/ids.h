// The identifiers of the event model. Every one is its own type.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace lockstep::trace {

using Rank = StrongId<struct RankTag, std::int32_t>;       // global rank, 0-based; < 0: unknown
using GroupId = StrongId<struct GroupTag, std::uint32_t>;  // a name of a process group, in one Run
using Seq = StrongId<struct SeqTag, std::uint64_t>;        // 0-based place in a group's sequence
using StringId = StrongId<struct StringTag, std::uint32_t>;        // 0: not recorded
using IntListId = StrongId<struct IntListTag, std::uint32_t>;      // 0: not recorded
using NameListId = StrongId<struct NameListTag, std::uint32_t>;    // 0: not recorded
using SignatureId = StrongId<struct SignatureTag, std::uint32_t>;  // 0: nothing recorded
using Nanos = std::int64_t;  // nanoseconds on one rank's monotonic clock; kNoTime: not recorded

inline constexpr Nanos kNoTime = -1;
inline constexpr std::int32_t kNone = -1;              // "not recorded" for steps, ranks, tags, …
inline constexpr std::int32_t kNoPeerTag = INT32_MIN;  // -1 is "any tag" in MPI traces

}  // namespace lockstep::trace
