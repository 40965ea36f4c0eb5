// An entry of a Flight Recorder dump, as PyTorch 2.4 to 2.15 write it, in JSON:
//
//   {"frames": [{"name": "forward", "filename": "train.py", "line": 12}, …], "record_id": 7,
//    "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 3, "p2p_seq_id": 0,
//    "op_id": 3, "profiling_name": "nccl:all_reduce", "time_created_ns": 1717000000000000000,
//    "input_sizes": [[4000]], "input_dtypes": ["Float"], "output_sizes": [[4000]],
//    "output_dtypes": ["Float"], "state": "completed", "retired": true, "is_p2p": false, …}
//
// Peculiarities (torch/csrc/distributed/c10d/FlightRecorder.hpp, and dumps of real jobs):
// - The rank is not in the dump, only in the file's name. The world is the largest group.
// - Entries are numbered per group and kind: collective_seq_id and p2p_seq_id, both from 1.
//   Call::seq is that number minus one, which aligns ranks whose rings dropped different numbers of
//   entries. record_id counts across groups and aligns nothing.
// - Gloo's entries stay "scheduled": `retired` says that they completed. Its dumps hold neither
//   messages nor the members of groups. (pg_config has one entry without a name, whose ranks are
//   those within the group that was made last: the job has at least as many.) Threads complete
//   calls out of order, so that pg_status lags. No watchdog writes them: they say nothing about
//   whether a rank hangs (link_dumps.cc).
// - The calls of a coalesced batch stay "scheduled" too; only the closing `coalesced` entry has the
//   batch's state.
// - A dump of active calls only leaves out the entries that completed, but not the calls of batches
//   that did: they are "scheduled". So its first entry may be the process's first, and record_id
//   skips numbers. Where it skips the one after a batch's last call, the batch completed.
// - Frames come innermost first; `at` is the first one outside PyTorch and Python's own library.
//
// A bit that flips would make a rank's calls differ from all others'. It shows where a dump
// contradicts itself: a name that is known except for one byte (names.h), a number that skips and
// comes back, a message of another rank. Such values count as damage and are not compared. Sizes
// and types are compared whatever they are: they may be what is wrong. An entry that is lost leaves
// a gap in the numbers that its process counted: it made that call, whatever it was.
//
// O(bytes): a pickle that refers to its parts too often is not read to its end (VisitBudget).
#include "trace/formats/flight_recorder/dump_reader.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/flight_recorder/dump_frames.h"
#include "trace/formats/flight_recorder/dump_groups.h"
#include "trace/formats/flight_recorder/dump_signatures.h"
#include "trace/formats/flight_recorder/dump_threads.h"
#include "trace/formats/flight_recorder/names.h"
#include "trace/formats/torch_names.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

using Value = DataTree::Value;
using ValueKind = DataTree::Kind;
using Operation = DumpOperation;

class DumpReader {
 public:
  DumpReader(const DataTree& tree, const TraceFile& file, Tables& tables)
      : tree_(tree),
        file_(file),
        tables_(tables),
        visits_(file.bytes.size()),
        names_(tree, tables),
        groups_(tree, visits_, names_, tables, trace_),
        threads_(tree),
        frames_(tree, visits_, tables),
        signatures_(tree, visits_, names_, tables) {}

  Result<RankTrace> read() {
    trace_.source = file_.name;
    trace_.rank = *file_.rank;
    if (const Value* const host = tree_.find(tree_.root, "host_name"); host != nullptr) {
      trace_.host = tree_.text(*host).substr(0, 256);
    }
    trace_.backend = "nccl";
    trace_.world_size = kMaxWorldSize;
    // The watchdog wrote the dump because a call timed out, or somebody asked for it.
    trace_.end = End::hung;
    trace_.snapshot = true;
    const Value* const entries = part("entries");
    const Value* const config = part("pg_config");
    const Value* const status = part("pg_status");
    if (entries == nullptr && config == nullptr && status == nullptr) {
      return Error{"not a Flight Recorder dump: it has no entries, pg_config or pg_status",
                   {file_.name},
                   "leave other programs' files out of the folder"};
    }
    // Groups first: entries name their peers by group rank, and need the members.
    if (config != nullptr) groups_.read_config(*config, builder_);
    // A dump without entries (of active calls only) is that of a rank that waits for nothing. The
    // world size follows from all dumps (link_dumps): until then every rank is possible.
    if (entries != nullptr) read_entries(*entries);
    if (only_active_) {
      if (status != nullptr) note_skipped_at_end(*status);
      complete_batches_without_end();
    }
    if (status != nullptr) groups_.read_status(*status);
    for (const std::string& what : names_.all_mended()) damage(what);
    if (visits_.exhausted())
      damage("the dump refers to the same parts too often; the rest was not read");
    // An entry after the last one of its group may be among the lost ones.
    trace_.open_ended = trace_.open_ended || lost_ > 0;
    // Without entries the other ranks' dumps decide (link_dumps); over NCCL, its version does.
    const Value* const version = tree_.find(tree_.root, "comm_lib_version");
    const bool no_nccl = version != nullptr && tree_.text(*version).empty();
    if (only_gloo_ && (!trace_.calls.empty() || no_nccl)) {
      trace_.backend = trace_.calls.empty() ? "" : "gloo";
    }
    builder_.finish();
    threads_.finish(trace_);
    if (!trace_.unrecorded.empty()) trace_.unrecorded.resize(trace_.calls.size());
    note_durations();
    if (only_gloo_ && groups_.least_world() > 0) {  // link_dumps compares it with the other dumps
      trace_.world_size = std::max(groups_.least_world(), trace_.rank.value + 1);
      for (const auto& group : trace_.groups)
        trace_.world_size = std::max(trace_.world_size, group.ranks.highest().value + 1);
    }
    return std::move(trace_);
  }

 private:
  // A part of the dump, also where a byte of its name is damaged.
  const Value* part(std::string_view name) {
    if (const Value* const found = tree_.find(tree_.root, name)) return found;
    const auto pairs = tree_.pairs(tree_.root);
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (!differ_in_a_byte(tree_.text(pairs[i]), name)) continue;
      damage(fmt::format("\"{}\" is damaged, and taken as \"{}\"", printable(tree_.text(pairs[i])),
                         name));
      return &pairs[i + 1];
    }
    return nullptr;
  }

  void damage(std::string message) { trace_.add_damage(std::move(message)); }
  // An entry from which no call could be made.
  void lose(std::string message) {
    damage(std::move(message));
    ++lost_;
  }

  // Decides how calls are numbered. False: the calls of different ranks cannot be aligned.
  //
  // torchcomms' recorder numbers the calls of all communicators in one sequence, messages included,
  // and records no peers. Its collectives are counted here instead. That needs the beginning of the
  // ring, unless there is one communicator and nothing but collectives. The recorder is known by
  // its names: they begin with the communicator's description ("ncclx:all_reduce") where PyTorch
  // has the backend's name ("nccl:all_reduce").
  bool choose_numbers(const Value& entries) {
    const auto items = tree_.items(entries);
    const auto group_of_entry = [&](const Value& entry) {
      const Value* const group = tree_.find(entry, "process_group");
      return group == nullptr ? std::span<const Value>() : tree_.items(*group);
    };
    const auto name_of_entry = [&](const Value& entry) {
      const Value* const name = tree_.find(entry, "profiling_name");
      return name == nullptr ? std::string_view() : tree_.text(*name);
    };
    if (items.empty()) return true;
    // Until PyTorch 2.3, `seq_id` numbers collectives and messages of a group together, so that
    // members count differently, and groups have numbers that are the process's own.
    if (tree_.find(items.front(), "collective_seq_id") == nullptr &&
        tree_.find(items.front(), "seq_id") != nullptr) {
      trace_.inconclusive =
          "the dump is PyTorch 2.2's or 2.3's, which does not number the calls of a group alike on "
          "all ranks: PyTorch 2.4 and later do";
      return false;
    }
    const auto first = group_of_entry(items.front());
    if (first.size() < 2 || tree_.text(first[1]).empty()) return true;
    const std::string prefix = std::string(tree_.text(first[1])) + ":";
    // torchcomms has the key p2p_seq_id, but leaves it at 0.
    const Value* const number = tree_.find(items.front(), "p2p_seq_id");
    numbered_together_ = name_of_entry(items.front()).starts_with(prefix) && number != nullptr &&
                         number->integer(kNone) == 0;
    if (!numbered_together_ || trace_.dropped == 0) return true;
    for (const Value& entry : items) {
      if (!visits_.spend(tree_.pairs(entry).size() + 1)) return false;
      const auto group = group_of_entry(entry);
      const std::string_view name = name_of_entry(entry);
      const bool alike = !group.empty() && tree_.text(group[0]) == tree_.text(first[0]) &&
                         !name.ends_with(":send") && !name.ends_with(":recv") &&
                         !name.ends_with(":batch_op_issue");
      if (alike) continue;
      trace_.inconclusive =
          "torchcomms' Flight Recorder numbers the calls of all communicators together, and its "
          "ring "
          "lost the oldest: the ranks' calls cannot be aligned";
      return false;
    }
    return true;
  }

  void read_entries(const Value& entries) {
    if (!entries.is(ValueKind::list)) return damage("entries is not a list");
    // record_id counts from 0, so the first entry's is the number of entries that the ring dropped.
    for (const Value& first :
         tree_.items(entries).first(std::min<std::size_t>(tree_.items(entries).size(), 1))) {
      const Value* const id = tree_.find(first, "record_id");
      if (id != nullptr) {
        trace_.dropped = static_cast<std::uint64_t>(std::max<std::int64_t>(0, id->integer(0)));
      }
    }
    if (const std::uint64_t left_out = count_left_out(tree_.items(entries)); left_out > 0) {
      only_active_ = true;
      trace_.dropped += left_out;
    }
    if (!choose_numbers(entries)) return;
    // torchcomms counts from 0.
    trace_.first_number = numbered_together_ ? 0 : 1;
    const std::size_t count = tree_.items(entries).size();
    // Not for a pickle whose list repeats one entry: its length says nothing about the file's size.
    if (count <= file_.bytes.size() / kBytesPerEntry) {
      trace_.calls.reserve(count);
      trace_.events.reserve(kEventsPerEntry * count);
    }
    const auto items = tree_.items(entries);
    for (std::size_t i = 0; i < items.size(); ++i) {
      DumpEntry entry;
      if (!take_fields(items[i], entry)) return;
      if (only_active_) note_skipped(entry);
      if (entry.complete()) {
        read_entry(entry, items.subspan(i + 1));
      } else {
        lose("an entry without profiling_name, process_group, collective_seq_id or state");
      }
    }
  }

  // How many entries a dump of active calls only leaves out after its first one; 0: it is none. If
  // numbers are skipped though some entry completed, they are damaged. O(1) where none is skipped.
  std::uint64_t count_left_out(std::span<const Value> items) {
    if (items.empty()) return 0;
    const auto number_of = [&](const Value& entry) {
      const Value* const id = tree_.find(entry, "record_id");
      return id == nullptr ? -1 : id->integer(-1);
    };
    const std::int64_t first = number_of(items.front()), last = number_of(items.back());
    const auto count = static_cast<std::int64_t>(items.size());
    if (first < 0 || last - first < count) return 0;
    for (const Value& value : items) {
      DumpEntry entry;
      if (!take_fields(value, entry) || is_complete(entry)) return 0;
    }
    return static_cast<std::uint64_t>(last - first + 1 - count);
  }

  // In a dump of active calls only: the entry that closes a batch has the number after its last
  // call's. If the next entry's number is higher, the closing one is left out.
  void note_skipped(const DumpEntry& entry) {
    const std::int64_t id = entry[DumpKey::record_id].integer(-1);
    if (newest_batch_ != nullptr && id > last_record_ + 1) note_batch_without_end(*newest_batch_);
    newest_batch_ = nullptr;
    last_record_ = id;
  }

  // Also at the dump's end, if pg_status counts an entry that closes the newest batch. For a
  // group with collectives it mixes the two counters.
  void note_skipped_at_end(const Value& status) {
    if (newest_batch_ == nullptr || newest_batch_->last > 0) return;
    const std::optional<std::uint64_t> enqueued = groups_.enqueued(status, *newest_batch_);
    if (enqueued.has_value() && *enqueued >= newest_batch_->batch_seq)
      note_batch_without_end(*newest_batch_);
  }

  void note_batch_without_end(DumpGroup& state) {
    auto& calls = state.batch_calls;
    state.without_end.insert(state.without_end.end(), calls.begin(), calls.end());
    calls.clear();
  }

  // A call without a batch has no closing entry. It looks like a batch of one call, so a group's
  // batches count only if one of them has several, or an end.
  void complete_batches_without_end() {
    groups_.for_each([&](DumpGroup& state) {
      if (!state.batched) return;
      for (const std::uint32_t c : state.without_end) {
        const Call& call = trace_.calls[c];
        if (!call.has(kCompleted)) builder_.add_call_event(EventKind::complete, call.id, kNoTime);
      }
    });
  }

  // False: the budget is used up.
  bool take_fields(const Value& value, DumpEntry& entry) {
    const auto pairs = tree_.pairs(value);
    if (!visits_.spend(pairs.size() + 1)) return false;
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2)
      entry.fields[static_cast<std::size_t>(names_.key(pairs[i]))] = &pairs[i + 1];
    return true;
  }

  // The number of the next collective of the group; 0: there is none among the next entries.
  std::int64_t next_number(GroupId group, std::span<const Value> rest) {
    constexpr std::size_t kFarthest = 64;
    for (const Value& value : rest.first(std::min(rest.size(), kFarthest))) {
      DumpEntry entry;
      if (!take_fields(value, entry)) return 0;
      if (!entry.complete() || entry[DumpKey::is_p2p].boolean()) continue;
      const auto process_group = tree_.items(entry[DumpKey::process_group]);
      if (!process_group.empty() && groups_.named(process_group) == group)
        return entry[DumpKey::collective_seq_id].integer(0);
    }
    return 0;
  }

  // The number of a collective, mended where it skips numbers and the next entry's does not follow
  // it but the one before.
  std::int64_t number_of(GroupId group, const DumpGroup& state, std::int64_t seq,
                         std::span<const Value> rest) {
    const std::int64_t expected = state.last + 1;
    if (!is_aligned(state) || seq == expected || seq == state.last) return seq;
    if (next_number(group, rest) != expected + 1) return seq;
    damage(fmt::format("an entry whose collective_seq_id {} stands between {} and {}", seq,
                       state.last, expected + 1));
    return expected;
  }

  // Whether the number of the group's next collective follows from what was read.
  bool is_aligned(const DumpGroup& state) const { return state.last > 0 || trace_.dropped == 0; }

  // Adds calls of which nothing is known but that their process counted them, in place of entries
  // that were lost.
  void fill_gap(DumpGroup& state, const Call& next, bool completed) {
    constexpr std::int64_t kMostFilled = 16;
    const std::int64_t first = state.last + 1;
    const std::int64_t end = std::int64_t{next.seq} + 1;
    if (lost_ == 0 || !is_aligned(state) || end <= first || end - first > kMostFilled) return;
    for (std::int64_t n = first; n < end; ++n) {
      Call call;
      call.id = next_id_++;
      call.group = next.group;
      call.seq = static_cast<std::uint32_t>(n - 1);
      call.flags = kAsync;
      if (!builder_.add_issue(call, false, kNoTime, TraceBuilder::Numbering::recorded).empty())
        return;
      if (completed) builder_.add_call_event(EventKind::complete, call.id, kNoTime);
      lost_ -= lost_ > 0 ? 1 : 0;
    }
  }

  // Turns an entry into a call with its events, or closes a batch with it.
  void read_entry(const DumpEntry& entry, std::span<const Value> rest) {
    const auto process_group = tree_.items(entry[DumpKey::process_group]);
    if (process_group.empty() || !process_group[0].is(ValueKind::string))
      return lose("an entry's process_group is not a pair of names");
    const GroupId group = groups_.named(process_group);
    const bool linked =
        !entry.has(DumpKey::pg_id) || groups_.link(entry[DumpKey::pg_id].integer(-1), group);
    if (!linked && !numbered_together_)
      return lose("an entry of a group that its pg_id and pg_config contradict");
    DumpGroup& state = groups_[group];
    const DumpFrames::Location location = frames_.location(tree_.items(entry[DumpKey::frames]));
    // torch_npu names coalesced calls only; of all others the frames tell what was called.
    const bool named = !tree_.text(entry[DumpKey::profiling_name]).empty();
    const Operation operation = named ? names_.operation(entry[DumpKey::profiling_name])
                                      : operation_of_function(location.function);
    // "gloo:all_reduce" alone: a job on CPUs. A job on GPUs may use Gloo in addition.
    only_gloo_ &= operation.gloo;
    for (const std::string_view other : {"hccl", "xccl", "mccl", "cncl"})
      if (operation.library == other) trace_.backend = other;
    const bool p2p = entry[DumpKey::is_p2p].boolean();
    state.point_to_point |= p2p;
    if (p2p && !named) return leave_out_message(entry);
    std::int64_t seq = entry[p2p ? DumpKey::p2p_seq_id : DumpKey::collective_seq_id].integer(0);
    if (numbered_together_) {
      // Skip messages, whose peers are unknown, and what is no communication.
      const std::string_view name = operation.name;
      const bool no_call =
          name == "split" || name == "new_window" || name == "finalize" || name == "batch_op_issue";
      if (no_call || is_point_to_point(operation.op)) return;
      seq = trace_.dropped == 0 ? ++state.counted : seq + 1;
    }
    // The entry that ends a coalesced batch: without tensors for collectives, with is_p2p for
    // messages. "allreduce_coalesced" with tensors is an operation by itself.
    const bool empty_sizes = tree_.items(entry[DumpKey::input_sizes]).empty() &&
                             tree_.items(entry[DumpKey::output_sizes]).empty();
    if (operation.closes_batch && (p2p || empty_sizes)) {
      close_batch(state, entry);
      if (p2p || operation.name == "coalesced") return;
    }
    if (seq < 1) return lose("an entry without a sequence number");
    if (!p2p && !numbered_together_) seq = number_of(group, state, seq, rest);
    if (p2p) join_batch(state, static_cast<std::uint64_t>(seq));
    Call call;
    call.group = group;
    // Calls of one batch share the number. Their order in the dump decides, not the number.
    call.seq = static_cast<std::uint32_t>(std::min<std::int64_t>(seq - 1, UINT32_MAX));
    call.flags = kAsync;
    call.coalesced = p2p ? state.batch : kNone;
    if (is_point_to_point(operation.op)) {
      if (!find_peer(state, operation, call.peer)) {
        return lose(fmt::format("the peer of {} is not in its group", printable(operation.name)));
      }
      if (operation.own >= 0 && !state.members.empty()) {
        if (!is_own_message(state, operation.own))
          return lose(
              fmt::format("a {} of another rank than the dump's", printable(operation.name)));
        state.own = operation.own;
      }
    } else if (p2p) {
      return lose("a point-to-point entry that is neither send nor recv");
    }
    // Without an operation, what the sizes mean is not known either.
    if (!operation.name.empty()) call.signature = signatures_.of(entry, operation);
    call.thread = threads_.of(entry);
    call.at = location.at;
    call.stack = location.stack;
    if (same_collective(call, operation)) return;
    if (!p2p) fill_gap(state, call, is_complete(entry));
    call.id = next_id_++;
    const auto problem = builder_.add_issue(call, is_point_to_point(operation.op),
                                            entry[DumpKey::time_created_ns].integer(kNoTime),
                                            TraceBuilder::Numbering::recorded);
    if (!problem.empty()) return lose(std::string(problem));
    if (operation.gloo && !p2p) note_unrecorded(state, entry[DumpKey::op_id].integer(0), seq);
    if (!p2p) state.last = seq;
    const auto index = static_cast<std::uint32_t>(trace_.calls.size() - 1);
    if (p2p) state.batch_calls.push_back(index);
    if (p2p && only_active_) newest_batch_ = &state;
    add_progress(entry, call.id);
  }

  // A message of which nothing tells the peer.
  void leave_out_message(const DumpEntry& entry) {
    if (is_complete(entry) || !trace_.inconclusive.empty()) return;
    trace_.inconclusive =
        "the dump holds messages that had not completed, and does not record who their peers are";
  }

  // Notes how many operations of the group came before the newest call that the dump does not hold.
  // Gloo's dumps leave out messages, but number them: op_id counts all operations of a group,
  // collective_seq_id its collectives. What came before the first entry of a ring that lost its
  // oldest is not known, and neither is anything in a dump without op_id.
  void note_unrecorded(DumpGroup& state, std::int64_t op, std::int64_t seq) {
    const bool from_begin = state.last_op > 0 || (state.last == 0 && trace_.dropped == 0);
    if (op > 0) trace_.unrecorded.resize(trace_.calls.size());
    if (op > 0 && from_begin) {
      const std::int64_t left_out = op - state.last_op - (seq - state.last);
      trace_.unrecorded.back() =
          static_cast<std::uint32_t>(std::clamp<std::int64_t>(left_out, 0, UINT32_MAX));
    }
    state.last_op = std::max<std::int64_t>(op, 0);
  }

  // Whether the entry belongs to the collective of the previous one. An uneven all_gather is
  // recorded as one broadcast per rank, all with the same number, then `ALLGATHER_coalesced`.
  bool same_collective(const Call& call, const Operation& operation) {
    if (trace_.calls.empty() || is_point_to_point(operation.op)) return false;
    const Call& last = trace_.calls.back();
    if (last.group != call.group || last.seq != call.seq) return false;
    const Op op = tables_.op(last);
    return !is_point_to_point(op);
  }

  bool is_complete(const DumpEntry& entry) {
    return names_.state(entry[DumpKey::state]) == DumpState::completed ||
           entry[DumpKey::retired].boolean();
  }

  // Adds the call's events by `state`, `retired` and the times.
  void add_progress(const DumpEntry& entry, std::int64_t id) {
    const DumpState state = names_.state(entry[DumpKey::state]);
    const bool completed = is_complete(entry);
    // A time that was not recorded is 0 in JSON and None in a pickle.
    const auto time = [&](DumpKey k) {
      const std::int64_t t = entry[k].integer(kNoTime);
      return t > 0 ? t : kNoTime;
    };
    const bool gloo = names_.operation(entry[DumpKey::profiling_name]).gloo;  // no times of starts
    if (state == DumpState::started || (completed && !gloo)) {
      builder_.add_call_event(EventKind::start, id, time(DumpKey::started));
    }
    if (completed) builder_.add_call_event(EventKind::complete, id, time(DumpKey::completed));
  }

  // Sets how long calls took, if the file's time tells when the dump was written: it was not where
  // the dump holds later times, beyond what clocks may differ. One such time alone is damaged. A
  // call that was queued behind others has been open since these completed: a rank that waited in a
  // barrier for a checkpoint has issued its next calls long before. Entries are in the order in
  // which they were issued: an earlier time than that of the call before is damaged. For how long
  // such a call, or one without a time, has been open is not known. O(events).
  void note_durations() {
    if (file_.written == kNoTime) return;
    constexpr Nanos kClocksDiffer = 1'000'000'000;  // times of files are whole seconds here
    const Nanos latest = file_.written + kClocksDiffer;
    std::vector<Nanos> issued(trace_.calls.size(), kNoTime), completions = issued;
    Nanos open = 0, completed = 0;
    std::size_t later = 0;
    for (const Event& event : trace_.events) {
      if (event.time < 0) continue;
      if (event.time > latest) {
        ++later;
        continue;
      }
      if (event.kind == EventKind::issue) issued[event.index] = event.time;
      if (event.kind != EventKind::complete) continue;
      completions[event.index] = event.time;
      if (issued[event.index] != kNoTime)
        completed = std::max(completed, event.time - issued[event.index]);
    }
    if (later > 1) return;
    trace_.written = file_.written;
    Nanos last_issue = kNoTime, earlier_ended = kNoTime;
    for (std::size_t c = 0; c < trace_.calls.size(); ++c) {
      last_issue = std::max(last_issue, issued[c]);
      earlier_ended = std::max(earlier_ended, completions[c]);
      if (trace_.calls[c].has(kCompleted)) continue;
      if (last_issue == kNoTime) return;
      if (issued[c] == last_issue)
        open = std::max(open, file_.written - std::max(last_issue, earlier_ended));
    }
    trace_.longest_open = open;
    trace_.longest_completed = completed;
  }

  // Begins a new batch unless the number is that of the open one: consecutive point-to-point calls
  // with the same number are a batch.
  void join_batch(DumpGroup& state, std::uint64_t seq) {
    if (!state.batch_calls.empty() && state.batch_seq == seq) {
      state.batched = true;
      return;
    }
    state.batch_calls.clear();
    state.batch = next_batch_++;
    state.batch_seq = seq;
  }

  // Gives the closing entry's state to the calls of the open batch.
  void close_batch(DumpGroup& state, const DumpEntry& entry) {
    const DumpState state_of_batch = names_.state(entry[DumpKey::state]);
    const bool completed = is_complete(entry);
    state.batched |= !state.batch_calls.empty();
    for (const std::uint32_t c : state.batch_calls) {
      const Call& call = trace_.calls[c];
      if (completed && !call.has(kCompleted)) {
        builder_.add_call_event(EventKind::complete, call.id, kNoTime);
      } else if (state_of_batch == DumpState::started && !call.has(kStarted)) {
        builder_.add_call_event(EventKind::start, call.id, kNoTime);
      }
    }
    state.batch_calls.clear();
  }

  // Finds the peer's global rank by its group rank. False: it is not in the group.
  bool find_peer(const DumpGroup& state, const Operation& operation, Rank& peer) const {
    if (operation.op == Op::recv_any || operation.peer < 0) return operation.op == Op::recv_any;
    if (state.members.empty()) {  // unknown members: taken for the world, where both are the same
      peer = Rank(operation.peer);
      return is_possible_rank(operation.peer, kMaxWorldSize);
    }
    const auto index = static_cast<std::size_t>(operation.peer);
    if (index >= state.members.size()) return false;
    peer = state.members[index];
    return true;
  }

  // Whether a message is the rank's own: what its members say, or, where the rank knows other
  // members than it says, what its messages before say. No value of a single one is wrong then.
  bool is_own_message(const DumpGroup& state, std::int32_t own) const {
    const auto index = static_cast<std::size_t>(own);
    const bool fits = index < state.members.size() && state.members[index] == trace_.rank;
    return fits || state.own == kNone || state.own == own;
  }

  static constexpr std::size_t kBytesPerEntry = 64;  // at least: an entry has twenty keys
  static constexpr std::size_t kEventsPerEntry = 3;  // issue, start, complete

  const DataTree& tree_;
  const TraceFile& file_;
  Tables& tables_;
  VisitBudget visits_;
  DumpNames names_;
  RankTrace trace_;
  TraceBuilder builder_{trace_};
  DumpGroups groups_;
  DumpThreads threads_;
  DumpFrames frames_;
  DumpSignatures signatures_;
  std::int64_t next_id_ = 0;
  std::size_t lost_ = 0;  // entries from which no call was made, and that no gap shows
  std::int32_t next_batch_ = 0;
  bool numbered_together_ = false;
  bool only_active_ = false;           // the dump leaves out entries that completed
  std::int64_t last_record_ = -1;      // only where it does: the last entry's record_id …
  DumpGroup* newest_batch_ = nullptr;  // … and the group of its call, if it is a message
  bool only_gloo_ = true;
};

}  // namespace

Result<RankTrace> read_dump_tree(const DataTree& tree, const TraceFile& file, Tables& tables) {
  return DumpReader(tree, file, tables).read();
}

}  // namespace lockstep::trace
