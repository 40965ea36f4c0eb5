// Communicator: records the calls of one NCCL communicator in its rank's ring file. Used by both
// recorders of NCCL programs: the profiler plugin and the preloaded library.
//
// A call is in the file when issue() returns. Only the own position in the communicator is known
// here; the reader finds the members from all files (trace/groups.h). So roots and peers are
// positions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "trace/formats/ring/writer.h"
#include "trace/signature.h"

namespace lockstep::runtime {

// A rank's ring file, and the number of its calls on the device now. For the profiler: calls that
// began and are not complete. For the preloaded library: calls that NCCL was given and that are not
// complete.
struct RecordedRank {
  std::unique_ptr<trace::RingWriter> ring;  // null: it could not be made
  std::atomic<std::int64_t> on_device{0};
};

// One call, as its arguments say.
struct NcclCall {
  trace::Op op = trace::Op::other;
  std::string_view other_op;          // the operation's own name where op is Op::other
  std::int64_t count = 0;             // NCCL's argument
  std::int32_t dtype = trace::kNone;  // ncclDataType_t; kNone: not known
  std::int32_t redop = trace::kNone;  // ncclRedOp_t; kNone: not known, or the program's own
  std::int32_t root = trace::kNone;   // a position in the communicator
  std::int32_t peer = trace::kNone;   // the same; of Send and Recv
};

// The program's own description of a call, if any.
struct CallLabel {
  trace::RingWriter::NamesRef what;  // the parameters that it carries
  trace::RingWriter::StringRef tag;
};

class Communicator {
 public:
  // 0 <= group_rank < size. The rank has a ring, and outlives it.
  Communicator(RecordedRank& rank, trace::RingWriter::GroupRef group, std::int32_t group_rank,
               std::int32_t size)
      : rank_(rank), group_(group), group_rank_(group_rank), size_(size) {}

  // Records that the call was issued; the returned id is for ring(). Any thread; a lock, held for
  // about 100 ns, keeps sequence numbers in the order of the file.
  std::uint32_t issue(const NcclCall& call, const CallLabel& label = {});
  // The same in two steps, for calls that are captured once and run often.
  trace::RingWriter::SignatureRef signature(const NcclCall& call);
  std::uint32_t issue(trace::RingWriter::SignatureRef signature, const CallLabel& label = {},
                      bool point_to_point = false, std::int32_t peer = trace::kNone);

  // The program has destroyed it; calls that come later are still recorded.
  void close();

  RecordedRank& rank() const { return rank_; }
  trace::RingWriter& ring() const { return *rank_.ring; }
  std::int32_t group_rank() const { return group_rank_; }
  std::int32_t size() const { return size_; }

 private:
  struct Key {
    std::int64_t count;
    std::int32_t dtype, redop, root;
    trace::Op op;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  trace::RingWriter::SignatureRef make_signature(const NcclCall& call);

  RecordedRank& rank_;
  const trace::RingWriter::GroupRef group_;
  const std::int32_t group_rank_, size_;
  std::mutex mutex_;
  std::unordered_map<Key, trace::RingWriter::SignatureRef, KeyHash>
      signatures_;  // at most kMaxKnown
  std::uint32_t next_collective_ = 0, next_p2p_ = 0;
};

}  // namespace lockstep::runtime
