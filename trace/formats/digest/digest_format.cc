#include "trace/formats/digest/digest_format.h"

#include <algorithm>
#include <utility>

#include "trace/formats/digest/digest.h"

namespace lockstep {

namespace {

// Whether such a trace can be of that format: those that link traces rely on what their own readers
// make. Profiles are cut by their calls and steps; in NCCL's logs a communicator's place and size
// stand where others have ranks.
bool is_of(const Format& format, const RankTrace& trace) {
  if (format.name == "kineto" &&
      std::any_of(trace.events.begin(), trace.events.end(), [](const Event& event) {
        return event.kind > EventKind::write && event.kind != EventKind::step;
      })) {
    return false;
  }
  return format.name == "nccl-log" ||
         std::all_of(trace.groups.begin(), trace.groups.end(),
                     [](const RankTrace::Membership& m) { return m.ranks.distinct(); });
}

Result<Recording> read_recording(const TraceFile& file, Tables& tables) {
  Result<ReadDigest> digest = read_digest(file.bytes, file.name, tables);
  if (!digest) return digest.error();
  Recording out;
  out.format = format_named(digest->origin.format);
  if (out.format == nullptr) {
    return Error{"a digest of traces of an unknown format",
                 {file.name},
                 "read it with the lockstep that made it, or a newer one"};
  }
  for (const RankTrace& trace : digest->traces) {
    if (!is_of(*out.format, trace)) {
      return Error{"the digest is damaged: it holds what its format does not record",
                   {file.name},
                   "make it again with `lockstep digest`"};
    }
  }
  out.traces = std::move(digest->traces);
  out.unreadable = std::move(digest->origin.unreadable);
  return out;
}

}  // namespace

Format digest_format() {
  return {.name = "digest",
          .summary = "digests of any of these (lockstep digest)",
          .recognises = looks_like_digest,
          .read = [](const TraceFile& file, Tables& tables) -> Result<std::vector<RankTrace>> {
            Result<Recording> recording = read_recording(file, tables);
            if (!recording) return recording.error();
            return std::move(recording->traces);
          },
          .read_recording = read_recording};
}

}  // namespace lockstep
