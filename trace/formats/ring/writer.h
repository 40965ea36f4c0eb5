// RingWriter: records a rank's events into a memory-mapped ring file, from any thread.
//
// The hot calls (issue, start, complete, wait, waited) take no lock, allocate nothing and make no
// system call: one atomic add reserves a record, plain stores fill it, a release store publishes
// it. Whatever was published is in the file even if the process is killed at the next instruction,
// because the page cache, not the process, owns a MAP_SHARED page.
//
// Interning (strings, groups, signatures) is the slow path: a mutex and an append to the table.
// Callers keep the ids.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "trace/formats/ring/ring_file.h"
#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

class RingWriter {
 public:
  struct Options {
    std::string path;
    Rank rank;
    std::int32_t world_size = 1;
    std::string backend;  // "gloo", "nccl"
    std::string program;
    // The same in all ranks of one run of a job, and growing from run to run; empty: not known.
    // After a "/" which attempt of a launcher it is: the same in ranks that have marks of their
    // own.
    std::string job;
    std::uint64_t capacity = 1 << 16;  // records; rounded up to a power of two
    std::uint64_t table_bytes = 4 << 20;
  };
  // Creates (or truncates) the file. Errors: the file cannot be made or mapped.
  static Result<std::unique_ptr<RingWriter>> create(const Options& options);
  ~RingWriter();  // unmaps; writes no end mark: that is finish()'s
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // Table ids of this file; 0 where the table is full (counted) or the value is empty.
  struct StringRef {
    std::uint32_t id = 0;
  };
  struct NamesRef {
    std::uint32_t id = 0;
  };
  struct GroupRef {
    std::uint32_t id = 0;
  };
  struct SignatureRef {
    std::uint32_t id = 0;
  };

  StringRef intern(std::string_view text);
  NamesRef intern_names(const std::vector<std::string>& names);
  // A group must be made before its first use. `ranks`: global, in group order.
  // `made`: `created` where the groups of the file are made in the order in which the rank created
  // them; `first_use` where that order is not known.
  enum class Made : std::uint8_t { created, first_use };
  GroupRef make_group(std::string_view name, std::span<const std::int32_t> ranks,
                      std::string_view desc = {}, Made made = Made::created);
  // A group in which the rank knows only its own group rank among `size` (trace/groups.h). Peers
  // and roots of its calls are group ranks. `name` is the same in all its processes, and not empty.
  GroupRef make_communicator(std::string_view name, std::int32_t group_rank, std::int32_t size,
                             std::string_view desc = {});
  struct SignatureFields {
    Op op = Op::other;
    std::string other_op;  // the operation's own name where op is Op::other
    std::vector<std::vector<std::int64_t>> in, out;  // shapes
    bool has_in = false, has_out = false;            // false: not recorded
    std::vector<std::string> dtypes;
    std::string redop;
    std::int32_t root = kNone;
    std::vector<std::int64_t> splits_in, splits_out;
  };
  SignatureRef make_signature(const SignatureFields& fields);

  struct Issue {
    GroupRef group;
    SignatureRef signature;
    NamesRef what;
    StringRef at, tag;
    std::int32_t step = kNone;
    std::int32_t peer = kNone, ptag = kNoPeerTag;
    std::uint32_t seq = 0;  // the caller counts per group, collectives and point-to-point apart
    bool is_async = false;
    std::uint16_t thread = 0;  // Call::thread
  };
  // Records that the rank issues an operation; returns the call's id for the calls below.
  std::uint32_t issue(const Issue& fields);
  void start(std::uint32_t call);
  void complete(std::uint32_t call);
  void wait(std::uint32_t call);
  void waited(std::uint32_t call);
  // Records an exception; `call` < 0: none known.
  void exception(std::string_view what, std::int64_t call = -1);
  void step(std::int64_t n, double loss, std::int64_t samples);
  void modality(std::int64_t n, NamesRef has);
  // `modality`: what was read of these samples, where a step's modalities are read apart.
  void data(std::int64_t n, std::span<const std::int64_t> indices, StringRef modality);
  void data(std::int64_t n, std::span<const std::int64_t> indices) { data(n, indices, {0}); }
  // Work that began at `began` (ns, CLOCK_MONOTONIC) and took `duration` ns.
  void span(StringRef name, Nanos began, Nanos duration);
  struct State {
    std::int64_t n = 0;
    StringRef name, dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t hash = 0;
    bool has_hash = true;
    double norm = 0;  // NaN: none
    StateMark::Kind kind = StateMark::Kind::param;
    StateMark::When when = StateMark::When::unspecified;
    bool sharded = false;
    std::span<const double> sketch;  // at most ring::kMaxSketch values
  };
  void state(const State& state);
  // Says which GPU of the host the rank uses, as nvidia-smi counts. Before, none is known.
  void use_gpu(std::int32_t index);
  // Writes the end mark if there is none yet; the first one stays. Async-signal-safe.
  void finish(End end);
  // Takes the end mark `hung` back: it moves again. Any other stays.
  void resume();

  // Records written so far: a watchdog compares two readings to see whether anything moves.
  std::uint64_t written() const;

 private:
  struct Impl;
  explicit RingWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether somebody writes a ring file at this moment.

// The process of this machine that writes the ring file: the one that its header names, where the
// kernel says that it has the file mapped. So a number that another process has got since is not
// taken for it. Nothing: nobody does, it is not a ring file, or the system does not say.
std::optional<std::int64_t> ring_file_writer(const std::string& path);

// RingTableWriter: appends interned values to the table of a ring file. Internal to the ring
// writer; the layout is in ring_file.h.
//
// Thread-safe: one mutex. A value that is in the table already is found without allocating. An
// entry is complete before `table_used` covers it, so a killed process leaves whole entries.
class RingTableWriter {
 public:
  // `table` is header.table_bytes long; both stay the file's and must outlive this.
  RingTableWriter(ring::Header& header, char* table) : header_(header), table_(table) {}

  // Each returns the value's table id; 0 for an empty value and for one that has no room, or that
  // refers to one without room (counted in Header::table_lost).
  std::uint32_t string(std::string_view text);
  std::uint32_t names(std::span<const std::string> names);
  std::uint32_t ints(std::span<const std::int64_t> values);
  // `kind`: group or used_group.
  std::uint32_t group(ring::EntryKind kind, std::string_view name,
                      std::span<const std::int32_t> ranks, std::string_view desc);
  std::uint32_t communicator(std::string_view name, std::string_view desc, std::int32_t group_rank,
                             std::int32_t size);
  std::uint32_t signature(const ring::SignatureEntry& entry);

  void count_lost() { header_.table_lost.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view bytes) const {
      return std::hash<std::string_view>{}(bytes);
    }
  };
  using Index = std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>>;

  // These want the mutex held.
  std::uint32_t string_locked(std::string_view text);
  std::uint32_t find_or_append(ring::EntryKind kind, std::string_view payload);
  std::uint32_t append(ring::EntryKind kind, std::string_view payload);

  ring::Header& header_;
  char* table_;
  std::mutex mutex_;
  std::vector<Index> index_{static_cast<std::size_t>(ring::EntryKind::used_group) + 1};
  std::vector<std::uint32_t> scratch_;
};

}  // namespace lockstep::trace
