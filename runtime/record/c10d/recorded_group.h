// RecordedGroup: passes the calls that this rank makes in one process group to the recorder.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/groups/forwarding_backend.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// A type's name in traces: "float32".
std::string dtype_name(c10::ScalarType type);

// Where in the program a call comes from.
struct CallOrigin {
  trace::RingWriter::StringRef at, tag;
  std::uint16_t thread = 0;  // trace::Call::thread
};

class RecordedGroup {
 public:
  using Made = trace::RingWriter::Made;
  // Writes the group into the trace. `ranks`: global ranks, in group order. `recorder` must outlive
  // it.
  RecordedGroup(Recorder& recorder, const std::string& name, std::vector<std::int32_t> ranks,
                const std::string& description, Made made = Made::created);

  // Records that the rank issues the call; returns the call's id. From any thread. Allocates
  // nothing for a call like an earlier one. `origin`: instead of the recorder's context, where it
  // says something.
  std::uint32_t issue(const BackendCall& call, const CallOrigin& origin = {});

  int size() const { return static_cast<int>(ranks_.size()); }

 private:
  trace::RingWriter::SignatureRef signature(const BackendCall& call);
  std::int32_t global_rank(std::int64_t group_rank) const;

  Recorder& recorder_;
  const std::vector<std::int32_t> ranks_;
  const trace::RingWriter::GroupRef group_;

  // Every field of a signature as integers.
  using Key = std::vector<std::int64_t>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  std::mutex mutex_;  // guards what follows
  Key key_;
  std::unordered_map<Key, trace::RingWriter::SignatureRef, KeyHash> signatures_;
  std::uint32_t next_collective_ = 0;
  std::uint32_t next_p2p_ = 0;
};

}  // namespace lockstep::runtime
