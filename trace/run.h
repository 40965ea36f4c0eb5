// Run: the event model. Every source of events (a recorded run, another tool's dump, a derivation,
// a simulation) produces a Run; every analysis consumes one.
//
// Data is in columns, not objects: per rank one vector of 16-byte events in program order, one
// vector of calls (one per collective or point-to-point operation that the rank issued) to which
// the events refer, and small side tables for what is rare. Names, shapes, parameter lists and
// signatures are interned once per run, in Tables. Ranks that do the same share their columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/column.h"
#include "trace/ids.h"
#include "trace/rank_list.h"
#include "trace/signature.h"

// RankNote: what a source besides the recorded calls says about a rank: its log, its stack, NCCL's
// RAS. Notes explain ends and missing traces; unlike calls, they are never compared.

namespace lockstep::trace {

struct RankNote {
  enum class Kind : std::uint8_t {
    exception,      // an uncaught exception ended it
    out_of_memory,  // the device or host ran out of memory, which ended it
    killed,         // a signal ended it; from outside, as far as the source says
    crashed,        // a signal of its own ended it: a segmentation fault, a bus error
    gpu_fault,      // the driver reported that its GPU stopped working (Xid)
    caught,         // an exception after which the rank went on
    peer_lost,      // an exception that follows from another rank's end, or from a timeout
    ended,          // a launcher saw it end, and does not say why, or whether it ended it itself
    watchdog,       // PyTorch's watchdog: a call timed out
    nccl_warning,   // NCCL WARN
    gpu_warning,    // an Xid that a job may survive
    stack,          // where the process was
    ras,            // what NCCL's RAS reports
    analysis,       // what PyTorch's analysis of dumps, Horovod, FSDP or JAX says of it
    calls,          // another recording of its calls
    contradiction,  // two sources that contradict each other
  };
  Kind kind{};
  Rank rank{kNone};          // kNone: unknown, or only the process is known
  std::int64_t pid = kNone;  // of the process, where the source names it
  std::string text = {};     // as in the source, at most kLongest bytes; not yet printable()
  Location location = {};    // in which file, and on which line
  std::string host = {};     // where the process runs; empty: the source does not tell
  std::int32_t gpu = kNone;  // as RankTrace::gpu

  // What the source says, where notes of a kind may say different things, and the part of `text`
  // that is its content. Sources set both, so that nobody has to decide by the words of `text`.
  enum class Says : std::uint8_t {
    only_its_text,
    where_it_was,     // stack: its process was in `content`
    where_it_called,  // stack, peer_lost: it made the call that failed in `content`
    in_the_kernel,    // stack: its process hangs inside the kernel, in its function `content`; may
                      // be empty
    failed_first,     // ended: torchrun saw it fail before all others of its node, at `content`
    gives_no_answer,  // ras: its process is considered dead, or does not answer
    did_not_join,     // analysis: a call in which others were; `content`: "did not join all_reduce"
    did_not_submit,   // analysis: by Horovod, the tensors `content`, for which others wait
    missed_by_jax,    // analysis: JAX's coordination service misses it; `content`: "stopped sending
                      // heartbeats"
    changed_order,    // analysis: its FSDP units ran in another order than in its first iteration;
                      // `content`: which, as FullyShardedDataParallel says; may be empty
  };
  Says says = Says::only_its_text;
  std::string content = {};  // at most kLongest bytes; not yet printable()

  // An exception's place in the program, "/app/model.py:17", by the traceback before it; empty: the
  // source does not tell it. Not yet printable().
  std::string raised_at = {};

  // stack: it is inside torch.distributed's creation of a process group.
  bool creates_group = false;

  // exception, without a rank: much output follows, so that it may have been caught.
  bool output_follows = false;

  // ras: how many calls of an operation it had launched fewer than another rank of a communicator.
  std::int64_t calls_behind = 0;

  static constexpr std::size_t kLongest = 512;

  // Whether the rank ended by itself, rather than because of others.
  bool ends() const {
    return kind == Kind::exception || kind == Kind::out_of_memory || kind == Kind::killed ||
           kind == Kind::crashed || kind == Kind::gpu_fault;
  }
};

// "exception", "out of memory", …
std::string_view to_string(RankNote::Kind kind);

// The kind of one line of a trace. issue … waited, use and write refer to a call; the others have
// their data in the side table of that name.
enum class EventKind : std::uint8_t {
  issue,      // the rank called the operation
  start,      // the device or transport began it
  complete,   // the device or transport finished it
  wait,       // the rank began to block on it
  waited,     // the wait returned
  use,        // the rank read the buffer of an unfinished operation
  write,      // the rank wrote the buffer of an unfinished operation
  exception,  // the rank raised an exception
  step,       // the rank finished a training step
  state,      // a parameter's, gradient's, buffer's or optimizer state's value
  data,       // the sample ids that the rank consumed in a step
  modality,   // the modalities in the rank's batch of a step
  span,       // compute or copy work
};

struct Event {
  Nanos time = kNoTime;
  std::uint32_t index = 0;  // into RankTrace::calls or the side table of `kind`
  EventKind kind = EventKind::issue;
};
static_assert(sizeof(Event) == 16);

// One operation that a rank issued.
struct Call {
  std::int64_t id = 0;  // as in the source; grows within a rank
  SignatureId signature;
  GroupId group;
  std::uint32_t seq =
      0;            // index among the rank's collectives in the group, or point-to-point calls
  NameListId what;  // the parameters, buffers or values carried
  StringId at;      // source location in the user's program: "train.py:120"
  StringId tag;     // free text
  StringId stream;  // in-order queue; 0: the group's own
  StringId stack;   // the frames around `at`, innermost first, a line each
  std::int32_t step = kNone;
  Rank peer{kNone};  // point-to-point: the other side; -1 in MPI traces: any source
  std::int32_t ptag = kNoPeerTag;
  std::int32_t coalesced = kNone;  // the operations issued as one batch share it
  std::uint32_t values = 0;        // 1 + index into RankTrace::values; 0: none
  std::uint8_t flags = 0;          // CallFlags
  // The rank's thread that issued it; 0: the program's first, autograd's, or not
  // recorded. The numbers of two ranks do not correspond.
  std::uint16_t thread = 0;

  bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
};

enum CallFlags : std::uint8_t {
  kAsync = 1,       // returned before completion
  kStarted = 2,     // a start event was recorded
  kCompleted = 4,   // a complete event was recorded
  kWaitBegan = 8,   // the rank began to block on it
  kWaitEnded = 16,  // … and the wait returned
  kFailed = 32,     // an exception names it
};

struct CallValues {
  std::optional<std::uint64_t> hash;  // of the input's content
  std::vector<double> sketch;         // linear in the input
  // MPI traces: the sender and tag of the message that a wildcard receive took.
  std::int32_t from = kNone;
  std::int32_t fromtag = kNoPeerTag;
};

struct StepMark {
  std::int64_t n = 0;
  std::optional<double> loss;
  std::optional<std::int64_t> samples;
};
struct StateMark {
  enum class Kind : std::uint8_t { param, grad, buffer, optim };
  enum class When : std::uint8_t { unspecified, local, synced };
  std::int64_t n = 0;
  StringId name;
  std::optional<std::uint64_t> hash;
  std::optional<double> norm;
  IntListId shape;  // plain dimensions, no terminator
  StringId dtype;
  Kind kind = Kind::param;
  When when = When::unspecified;
  bool sharded = false;
  std::vector<double> sketch;
};
struct DataMark {
  std::int64_t n = 0;
  std::vector<std::int64_t> indices;
  StringId modality;  // the part of these samples that was read; 0: all of it
};
struct ModalityMark {
  std::int64_t n = 0;
  NameListId has;  // sorted by name
};
// The names of spans in which a remedy computed something in place of what a batch lacks begin so.
inline constexpr std::string_view kRemedySpan = "remedy.";
struct SpanMark {
  StringId name;
  StringId stream;  // in-order queue that does the work; 0: the host itself
  Nanos duration = 0;
  // The number by which others wait for it, from the ids of calls; kNone: nobody does.
  std::int64_t id = kNone;
  // No work but a wait: the host, or the stream, goes on when the call or span with this id is
  // over. An event of CUDA is one on a stream. kNone: work.
  std::int64_t after = kNone;
};
struct ExceptionMark {
  std::string what;
  std::optional<std::uint32_t> call;  // index into RankTrace::calls
};

enum class End : std::uint8_t {
  cut,  // no end mark: the file was cut off, the process vanished, or it still runs
  clean,
  hung,  // a watchdog ended it
  exception,
  killed,
  interrupted,  // its user, or a limit that its user set, ended the whole job while it worked
};
enum class Semantics : std::uint8_t { c10d, mpi };

// A record that could not be used; the rest of the file still counts.
struct DamagedRecord {
  Location location;
  std::string message;
};

struct RankTrace {
  Rank rank;
  std::int32_t world_size = kNone;
  std::string source;  // the file it came from
  // The format that it had before `lockstep convert` wrote it as text; otherwise empty. And what of
  // Run::header_conflicts this trace keeps.
  std::string converted_from;
  std::vector<std::string> conflicts;
  std::string backend, host, program;
  std::int64_t pid = kNone;
  // The index of its GPU on the host, as nvidia-smi counts; kNone: not known. Where a source has
  // CUDA's own index, which CUDA_VISIBLE_DEVICES shifts, see keep_plausible_gpus().
  std::int32_t gpu = kNone;
  std::uint64_t dropped = 0;  // oldest events lost to a bounded buffer
  Semantics semantics = Semantics::c10d;
  End end = End::cut;
  bool end_is_told = false;  // by evidence, and not by the recording, which has no end mark

  // What may occur in `events` and `calls`: an analysis of what occurs nowhere need not look
  // through millions of them. TraceBuilder keeps it exact; a trace that was made otherwise may hold
  // all.
  struct Occurs {
    bool waits = true;       // wait and waited events
    bool accesses = true;    // use and write events
    bool messages = true;    // point-to-point calls
    bool parameters = true;  // calls with Call::what
    bool threads = true;     // calls with Call::thread
  };
  Occurs occurs;

  Column<Event> events;  // program order
  Column<Call> calls;    // in the order of their issue events
  std::vector<CallValues> values;
  std::vector<StepMark> steps;
  std::vector<StateMark> states;
  std::vector<DataMark> data;
  std::vector<ModalityMark> modalities;
  Column<SpanMark> spans;
  std::vector<ExceptionMark> exceptions;

  // The groups that this rank knows, with their members as it sees them (global ranks, in group
  // order).
  struct Membership {
    GroupId group;
    RankList ranks;  // equal lists of one Run are one object
    StringId desc;
  };
  std::vector<Membership> groups;
  // The first this many of `groups` are in the order in which the rank created them.
  std::uint32_t created_in_order = 0;
  // How far the rank got in a group by its own counters, in collectives since the start of the run:
  // 3 enqueued means seq 0, 1 and 2. Nothing where the source does not tell.
  struct Progress {
    GroupId group;
    std::optional<std::uint64_t> enqueued, started, completed;
  };
  std::vector<Progress> progress;
  // The trace is a snapshot of a running process. It may have issued further calls later, so a call
  // that it lacks counts as missing only where others wait for it.
  bool snapshot = false;
  // In a Flight Recorder dump: for how long at most a call had been open when its file was written
  // (or copied, where a copy lost the time), and how long at most one took that completed.
  // kNoTime: not known.
  Nanos longest_open = kNoTime, longest_completed = kNoTime;
  // When the dump was written at the latest, by the time of its file; kNoTime: not known.
  Nanos written = kNoTime;
  // The source writes the end of each wait, as a ring file does: a wait without an end had not
  // ended when the trace was cut.
  bool ends_of_waits = false;
  // The number that the source gives a group's first call: 1 for PyTorch's collective_seq_id and
  // SeqNum. People are shown Call::seq plus this.
  std::uint32_t first_number = 0;
  // Why these calls can show neither a fault nor its absence, where the recording is too poor;
  // otherwise empty.
  std::string inconclusive;
  // Records after the last one were lost (the file was cut off), although the rank went on.
  bool open_ended = false;
  // The first recorded seq by group, where the stream starts mid-run and the source numbers calls.
  std::map<GroupId, std::uint64_t> first_seq;
  // By call: how long the rank's device was in it, its wait for the others included; 0: not
  // recorded. For a source that records this and not when calls began and ended (Chakra); of others
  // it is empty.
  std::vector<Nanos> device_times;
  // By call: how many operations of its group the rank issued since its call there before that the
  // source counts and does not hold, as Gloo's dumps hold no messages. Empty: it does not count.
  std::vector<std::uint32_t> unrecorded;

  std::uint64_t damaged_count = 0;     // records that could not be used
  std::vector<DamagedRecord> damaged;  // the first kDamagedKept of them
  static constexpr std::size_t kDamagedKept = 8;
  bool damaged_at_end = false;  // the last of them is the one in which the file was cut off

  // Counts a record of `source` that could not be used. `line`: 1-based; 0 where there are none.
  void add_damage(std::string message, int line = 0);
};

// The interned values. Ids of one Tables are meaningless in another.
struct Tables {
  Interner<std::string, StringId> strings;
  Interner<IntList, IntListId, IntListHash> int_lists;
  Interner<std::vector<StringId>, NameListId, NameListHash> name_lists;
  Interner<Signature, SignatureId, SignatureHash> signatures;
  Interner<std::string, GroupId> groups;  // id 0 is the group without a name
  RankLists rank_lists;                   // hands out values, not ids: valid with every Tables

  const std::string& str(StringId id) const { return strings[id]; }
  const std::string& str(GroupId id) const { return groups[id]; }
  // What a call does, and whether it is a send or a receive.
  Op op(const Call& call) const { return signatures[call.signature].op; }
  bool is_message(const Call& call) const { return is_point_to_point(op(call)); }
  // The names of a list as strings.
  std::vector<std::string> names(NameListId id) const;
  // Interns a signature after filling in its derived fields. A list of equal dtypes becomes one
  // name, so that ["float32"] and ["float32", "float32"] compare equal.
  SignatureId make_signature(Signature s);
  NameListId make_names(const std::vector<std::string>& names);
};

// "all_reduce of 4000 float32 (sum)", as far as recorded.
std::string describe(const Tables& tables, SignatureId signature);

// "all_reduce(image_proj.weight and 2 more)"; without recorded parameters as above.
std::string describe(const Tables& tables, const Call& call);

struct Run {
  Tables tables;
  std::vector<RankTrace> ranks;  // sorted by rank, one each
  std::int32_t world_size = 0;   // ranks that took part: from headers, groups and files
  // What these sources cannot tell, e.g. "reduce op: not recorded in this format".
  std::vector<std::string> unknown;
  // Files that could not be read at all, with the rank in their names.
  struct Unreadable {
    Error error;
    std::optional<Rank> rank;
  };
  std::vector<Unreadable> unreadable;
  std::vector<std::string> header_conflicts;  // e.g. two world sizes, one rank in two files
  // What other sources of the job say, sorted by rank, kind and location.
  std::vector<RankNote> notes;
  // One sentence: which recordings provided the calls and which are evidence. Empty without
  // evidence.
  std::string sources;

  const RankTrace* find(Rank rank) const;
  std::uint64_t event_count() const;
};

// Moves traces from one set of Tables to another: interns in `into` the values of `from` that
// `traces` use, and replaces the ids. For files that threads read in parallel, each with tables of
// its own. O(calls + distinct values).
void move_to_tables(Tables& into, const Tables& from, std::span<RankTrace> traces);

// Bytes of one element, by its type's PyTorch name: "float32" 4, "bfloat16" 2, "bool" 1,
// "complex64" 8, "float8_e4m3fn" 1. Nothing for unknown names.
std::optional<std::int64_t> element_bytes(std::string_view dtype);

// The bytes that the rank contributes to the call; for a call in which it only receives, the bytes
// received. 0 where shapes or type were not recorded.
double call_bytes(const Run& run, const Call& call);

}  // namespace lockstep::trace
