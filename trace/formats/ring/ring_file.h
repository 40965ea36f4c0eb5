// The ring file: what the recorder writes while a job runs and `lockstep` reads like any trace.
// Byte layout, and why it survives SIGKILL: docs/ring-file.md. Little-endian, 64-bit.
//
// The file has three parts: a header page, a table of interned values (append-only) and a ring of
// 64-byte records. All memory is bounded by the sizes chosen at creation.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace lockstep::trace::ring {

inline constexpr char kMagic[8] = {'L', 'K', 'S', 'R', 'I', 'N', 'G', '1'};
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::uint32_t kHeaderBytes = 4096;

// The tag of a call that a rank without batches makes in place of one of its peers' (PyTorch's
// Join). It has no use for the result, and need not wait for it.
inline constexpr std::string_view kJoinTag = "join";
// The tag of a call that a functional collective makes (PyTorch's, also DTensor's): its result
// waits when it is used. A rank that has no use for it never waits, and needs not to.
inline constexpr std::string_view kFunctionalTag = "functional";

// Ends the name of the file that a rank which torchrun started again puts beside the ring file of
// its last attempt, until it makes its own.
inline constexpr char kStartedAgain[] = ".started";

enum class RecordKind : std::uint16_t {
  none = 0,
  issue = 1,
  start = 2,
  complete = 3,
  wait = 4,
  waited = 5,
  exception = 6,
  step = 7,
  modality = 8,
  data = 9,  // up to kDataPerRecord sample ids; more follow in further records of the same step
  state = 10,
  span = 11,
};

enum class EndMark : std::uint32_t {
  none = 0,
  clean = 1,
  hung = 2,
  exception = 3,
  killed = 4,
  interrupted = 5
};

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint32_t record_bytes;
  std::int32_t rank;
  std::int32_t world_size;
  std::uint32_t semantics;     // 0: c10d
  std::uint64_t capacity;      // records in the ring; a power of two
  std::uint64_t table_offset;  // from the start of the file
  std::uint64_t table_bytes;
  std::uint64_t ring_offset;
  std::int64_t pid;
  char backend[32];  // NUL-padded
  char host[64];
  char program[256];
  // Written while the job runs:
  std::atomic<std::uint64_t>
      written;  // records reserved since the start; the ring holds the last `capacity`
  std::atomic<std::uint64_t> table_used;  // bytes of complete table entries
  std::atomic<std::uint64_t> table_lost;  // values that the file had no room for
  std::atomic<std::uint32_t> end_mark;    // EndMark
  std::atomic<std::uint32_t> gpu;         // 1 + RankTrace::gpu; 0: not known
  char job[64];  // NUL-padded; see RingWriter::Options. Written once, at creation
};
static_assert(sizeof(Header) <= kHeaderBytes);

// Table entries follow one another, each a TableEntry header and `bytes` of payload, padded to 8.
// An entry's id is its byte offset in the table divided by 8, plus 1; id 0 is "not recorded".
enum class EntryKind : std::uint32_t {
  string = 1,        // UTF-8
  names = 2,         // u32 string ids
  ints = 3,          // i64 values
  group = 4,         // u32 name, u32 desc, then i32 global ranks
  signature = 5,     // SignatureEntry
  communicator = 6,  // CommunicatorEntry: a group in which the rank knows only its own group rank
  used_group = 7,    // as group, but written at its first use: when it was created is not known
};
struct TableEntry {
  std::uint32_t kind;
  std::uint32_t bytes;
};
struct CommunicatorEntry {
  std::uint32_t name, desc;       // string ids; the name is the same in all processes
  std::int32_t group_rank, size;  // roots and peers of its calls are group ranks
};
struct SignatureEntry {
  std::uint32_t op;       // string id of the operation's name
  std::uint32_t in, out;  // ints ids of flattened shapes
  std::uint32_t dtypes;   // names id
  std::uint32_t redop;    // string id
  std::int32_t root;
  std::uint32_t splits_in, splits_out;
};

inline constexpr std::uint32_t kDataPerRecord = 4;
inline constexpr std::uint32_t kSketchPerRecord = 5;
inline constexpr std::uint32_t kMaxSketch = 64;

struct CallFields {  // issue
  std::uint32_t group, signature, what, at, tag;
  std::int32_t step, peer, ptag;
  std::uint32_t seq;  // in (rank, group), collectives and point-to-point apart
  std::uint32_t is_async;
};
struct StepFields {
  double loss;           // NaN: none
  std::int64_t samples;  // < 0: none
};
struct ModalityFields {
  std::uint32_t has;  // names id
};
struct DataFields {
  std::uint16_t count;
  std::uint16_t more;      // 1: further records of this step follow
  std::uint32_t modality;  // string id
  std::int64_t indices[kDataPerRecord];
};
struct StateFields {
  std::uint64_t hash;
  double norm;  // NaN: none
  std::uint32_t name, shape, dtype;
  std::uint8_t kind, when, sharded, has_hash;
  std::uint32_t sketch;  // how many values of a sketch follow, in records of their own
};
struct SketchFields {  // the records that continue a state
  double values[kSketchPerRecord];
};
struct SpanFields {
  std::int64_t duration;  // ns, from the record's time
  std::uint32_t name;     // string id
  std::uint32_t reserved;
};
struct ExceptionFields {
  std::uint32_t what;      // string id
  std::uint32_t has_call;  // 1: Record::id names the call
};

struct Record {
  std::atomic<std::uint64_t> stamp;  // 1 + the record's number since the start, written last;
                                     // anything else: the record is torn or not yet written
  std::int64_t time;                 // ns, CLOCK_MONOTONIC
  std::uint32_t id;  // of the call; the step's number for step, modality, data, state
  RecordKind kind;
  std::uint16_t part;  // data, state: 0 in a mark's first record, 1 in those that continue it;
                       // issue: Call::thread; else 0
  union {
    CallFields call;
    StepFields step;
    ModalityFields modality;
    DataFields data;
    StateFields state;
    SketchFields sketch;
    ExceptionFields exception;
    SpanFields span;
  };
};
static_assert(sizeof(Record) == 64);

}  // namespace lockstep::trace::ring
