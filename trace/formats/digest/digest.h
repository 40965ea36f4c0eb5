// Digests: the traces of many ranks in one small file. What several ranks did alike is stored once.
//
// `lockstep convert --to digest` makes one on each machine of a job; any tool that runs a command
// on many machines can collect them. A digest holds what the analyses need of a trace and leaves
// out the rest (trace/formats/digest/form.h), so digests get the same verdict as the traces.
//
// Merging means reading several and writing one. The bytes depend on the set of traces only, not on
// their order nor on earlier merges: merging is commutative and associative.
//
// The layout, byte by byte: docs/digest.md.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/formats/format.h"
#include "trace/run.h"

namespace lockstep::trace {

// What a digest says about a recording besides its traces.
struct DigestOrigin {
  std::string format;  // of the files that it was made from ("ring"; trace/formats/format.cc)
  std::vector<Run::Unreadable> unreadable;  // files that could not be read
};

struct Digest {
  std::string bytes;
  std::size_t forms = 0;  // classes of ranks with equal traces
};
// O(events log distinct values). The traces must come straight from their format's reader: not
// linked, and without separate_namesakes().
Digest write_digest(std::span<const RankTrace> traces, const Tables& tables,
                    const DigestOrigin& origin);

struct ReadDigest {
  DigestOrigin origin;
  std::vector<RankTrace> traces;  // by rank
};
// Reads a digest from memory; `file` names it in errors and is the traces' source. Takes the memory
// of the expanded traces: at most 8192 times as much as the digest, but never less than 256 MiB and
// never more than 64 GiB. Errors: an unknown version, damage anywhere (a checksum covers all of
// it), or traces larger than that.
Result<ReadDigest> read_digest(std::string_view bytes, const std::string& file, Tables& tables);

// Digests as a format: their traces are read like those of the format that they were made from.
Format digest_format();

}  // namespace lockstep::trace
