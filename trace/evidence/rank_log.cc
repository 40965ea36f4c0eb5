// The output of a job's ranks, which says why one of them ended. A file has the output of one
// rank, or of several whose lines have PyTorch's prefix ("[rank3]:"), with any other lines in
// between.
//
//   Traceback (most recent call last):                      an exception: the last line counts
//     …
//   torch.OutOfMemoryError: CUDA out of memory. Tried …     out of memory
//   terminate called after throwing an instance of 'X'      an exception of C++, with its what()
//   Fatal Python error: Segmentation fault                  crashed
//   Root Cause (first observed failure): … rank : 3 …       torchrun's summary: rank, exit code
//   srun: error: node7: task 3: Out Of Memory               launchers and the kernel: by rank or
//   Memory cgroup out of memory: Killed process 12 (python) by process (launcher_lines.h)
//   NVRM: Xid (PCI:0000:3b:00): 79, pid=12, …               the driver's log: by process
//   [Rank 3] Watchdog caught collective operation timeout…  PyTorch's watchdog
//   … Stack trace of the failed collective: …               where it was called (watchdog)
//   host:12:34 [0] … NCCL WARN …                            NCCL's warnings; before 2.3 "WARN"
//   HW Exception by GPU node-9 … reason :GPU Hang           ROCm's (gpu_lines.h)
//   … Failed to check the "should dump" flag on TCPStore …  the store's process ended
//   INFO: task python3:71 blocked for more than 122 seconds.           the kernel (blocked_tasks.h)
//   Parameter indices which did not receive grad for rank 2: 6 7       DistributedDataParallel
//   … Forward order differs from that of the first iteration on rank 3.  FullyShardedDataParallel
//   … UNAVAILABLE: The following tasks are unhealthy (stopped sending …   JAX (jax_tasks.h)
//   EI0002: … The wait execution of the Notify register times out      HCCL, behind an exception
//
// PyTorch adds a rank prefix to uncaught exceptions only. A traceback without prefix may have been
// caught: if the rank's output continues after it, it is RankNote::Kind::caught. Exceptions that
// follow from another rank's end (a closed connection, an aborted communicator, a timeout) are
// Kind::peer_lost: they never show who is at fault.
//
// Launchers put labels before lines. "[1,3]<stderr>:" (mpirun), "3: " (srun) and "[3] " (MPICH)
// name a task. That is the rank, unless a task is a launcher of several ranks (torchrun), as the
// output then shows.
// "[pod/worker-3/pytorch] ", "worker-3  | " and "node01: " name a host.
// "[default3]:" (torchrun --tee) is a number on the node (local_ranks.h).
// Any other label ("(Worker pid=12, ip=10.0.0.1) ", "[default3]:") must be the same on all lines of
// a traceback; "pid=" in it is the process. A message may stand before the first line, behind the
// label or without one: "(Worker pid=12) Exception in worker: Traceback (most recent call last):".
// Other lines that name the process of what follows: named_processes.h.
//
// The rank of a file follows from its name (TraceFile::rank), if that contains "rank", or from
// torchrun's folders (…/attempt_0/3/stderr.log).

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "base/word_search.h"
#include "trace/evidence/blocked_tasks.h"
#include "trace/evidence/evidence.h"
#include "trace/evidence/exception_details.h"
#include "trace/evidence/exceptions.h"
#include "trace/evidence/failure_messages.h"
#include "trace/evidence/frames.h"
#include "trace/evidence/gpu_lines.h"
#include "trace/evidence/horovod_stalls.h"
#include "trace/evidence/jax_tasks.h"
#include "trace/evidence/launcher_lines.h"
#include "trace/evidence/line_labels.h"
#include "trace/evidence/local_ranks.h"
#include "trace/evidence/log_notes.h"
#include "trace/evidence/named_processes.h"
#include "trace/evidence/nccl_lines.h"
#include "trace/evidence/output_streams.h"
#include "trace/evidence/task_numbers.h"
#include "trace/evidence/torchrun_summary.h"
#include "trace/formats/log_lines.h"
#include "trace/formats/watchdog_log/lines.h"
#include "trace/gpus.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

using NoteKind = RankNote::Kind;
constexpr std::string_view kAsyncError = "raised the following async exception: ";
// "… from  rank 7 and we will try our best to dump the debug info. Last enqueued NCCL work: 56, …",
// or from "this local rank".
constexpr std::string_view kDumpSignal = "Received a dump signal due to a collective timeout from ";
constexpr std::string_view kFailedCall = "Stack trace of the failed collective: ";
// Of PyTorch's data loader.
constexpr std::string_view kWorkersBus = "Unexpected bus error encountered in worker";
constexpr std::array<std::string_view, 5> kCrashes = {
    "Fatal Python error: Segmentation fault", "Fatal Python error: Bus error",
    "Segmentation fault (core dumped)", "!!!!!!! Segfault encountered !!!!!!!", kWorkersBus};

WordSearch search_with_launchers(std::initializer_list<std::string_view> words) {
  std::vector<std::string_view> all(words);
  all.insert(all.end(), launcher_signs().begin(), launcher_signs().end());
  return WordSearch(std::move(all));
}

// Whether a line may say anything, as long as nothing goes on from an earlier one. Hardly any line
// of a job's output does.
bool may_tell(std::string_view line) {
  static const WordSearch search = search_with_launchers(
      {ExceptionReader::kTraceback, ExceptionReader::kIgnored, ExceptionReader::kInThread,
       ExceptionReader::kCauses, ExceptionReader::kHandled, ExceptionReader::kTerminate,
       ExceptionReader::kSnippet, JaxTasks::kBarrier, JaxTasks::kAbsent, JaxTasks::kUnhealthy,
       kStuckWatchdog, kAsyncError, kNcclWarning, kOldNcclWarning, kLastError, kXid, kWorkersBus,
       kFailedCall, kDeepEp, kCrashes[0], kCrashes[1], kCrashes[2], kCrashes[3], kStoreLost,
       UnusedParameters::kSign, kOfHccl, kRankOfAscend, kAbnormalDevice, GpuLines::kException,
       GpuLines::kAccess, GpuLines::kNamed, GpuLines::kLost, HorovodStalls::kSign,
       HorovodStalls::kMissing, OrderWarnings::kSign, OrderWarnings::kWhich, BlockedTasks::kHung,
       BlockedTasks::kLockup, BlockedTasks::kWorker,
       // which process it is that ended
       DeadActor::kBegin, DeadActor::kEnd, DeadActor::kPid, DeadActor::kName, DeadActor::kHost,
       "Process ",
       // of torchrun's summary
       "(first observed failure)", "time      : ", "host      : ", "(local_rank: ", "exitcode ",
       // of the watchdog
       "Watchdog caught", "watchdog thread terminated", "ast enqueued ", "ast completed "});
  return search.occurs_in(line);
}

class RankLogReader {
 public:
  explicit RankLogReader(const TraceFile& file) : file_(file) {}

  FileEvidence read() {
    LogLines lines(file_.bytes);
    WatchdogLineJoiner joiner;
    const auto take_line = [&](std::string_view line, int number) {
      notes_.set_line(number);
      take(line);
    };
    while (const auto line = lines.next())
      joiner.add(plain_text(*line, plain_), lines.number(), take_line);
    joiner.finish(take_line);
    if (failed_call_) end_failed_call();
    notes_.end_text();
    add_failed_process();
    drop_task_numbers();
    for (const auto& [note, rank] : local_ranks_.ranks()) notes_[note].rank = rank;
    name_aborted();
    name_first_failure();
    return std::move(notes_).take();
  }

 private:
  void take(std::string_view line) {
    if (failed_call_ && take_failed_call(line)) return;
    if (blocked_.goes_on())
      if (const auto detail = blocked_.detail(line)) return add_blocked_detail(*detail);
    // "2: [allreduce.a]" has no label, though srun's are like this.
    if (horovod_.goes_on())
      if (const auto stall = horovod_.take(line)) return add_stall(*stall);
    const std::optional<LabelledLine> label = file_.rank ? std::nullopt : parse_label(line, form_);
    const std::string_view host = label ? label->host : std::string_view();
    const bool by_task = label && host.empty();
    if (by_task) tasks_.saw(label->rank);
    const bool tells = streams_.any_goes_on() || may_tell(line);
    if ((tells || jax_.goes_on()) && take_jax_task(line)) return;
    if (!tells && !label) return;
    std::string_view text = line;
    const std::optional<Rank> prefix = rank_in_prefix(line);
    local_ = file_.rank || label ? std::nullopt : local_rank_in(line);
    if (local_ && prefix) local_ranks_.learn(*local_, *prefix);
    if (prefix) {
      // Ray names the process, and PyTorch the rank: "(WorkerDict pid=833) [rank3]:[E…".
      if (line.starts_with('('))
        if (const auto pid = number_after(line, " pid=")) rank_of_pid_.emplace(*pid, *prefix);
      // The number before a line is not the rank where PyTorch's own prefix is another.
      if (by_task && label->rank != *prefix) tasks_.saw_another_rank();
      text = after_rank(line);
    } else if (label) {
      text = label->text;
    }
    if (!tells) return;
    const Rank rank = prefix ? *prefix : label ? label->rank : file_.rank.value_or(Rank(kNone));
    notes_.set_host(host);
    notes_.set_by_task(by_task && !prefix);
    label_ = streams_.label_of(text, {rank, host});
    text.remove_prefix(label_.size());
    streams_.change({rank, host}, label_, [&](OutputStream& stream) {
      take_in_stream(stream, line, text, rank, prefix.has_value());
    });
    notes_.set_by_task(false);
  }

  void take_in_stream(OutputStream& stream, std::string_view line, std::string_view text, Rank rank,
                      bool prefix) {
    if (const auto death = actor_.take(text)) {
      add(NoteKind::killed, Rank(kNone), death->text, {.pid = death->pid, .host = death->host});
      return;
    }
    if (take_details(stream, text)) return;
    if (std::string who = process_named_by(text); !who.empty()) {
      stream.who = std::move(who);
      return;
    }
    if (take_exception(stream, rank, prefix, text)) return;
    if (take_summary(line)) return;
    if (take_signs(stream, rank, text)) return;
    // Any other line shows that the rank continues, unless the line may be another rank's. PyTorch
    // writes the prefix on what ends a rank only.
    if (prefix || rank.value == kNone) return;
    if (!stream.exception || is_written_at_end(text)) return;
    // The rank continues, so the exception was caught. A crash is not: the process writes what it
    // can of itself, "Extension modules: …", and ends.
    RankNote& note = notes_[*stream.exception];
    if (note.ends() && note.kind != NoteKind::crashed) note.kind = NoteKind::caught;
    stream.exception.reset();
  }

  // "(WorkerDict pid=833, ip=172.26.153.33) ": the process that Ray's label names.
  // "ray::Actor.train() (pid=833, ip=172.26.153.33, actor_id=…)": that of another one's task.
  static LoggedProcess process_in(std::string_view text) {
    LoggedProcess out;
    const bool is_label = text.starts_with('(');
    if (!is_label && !contains_text(text, "(pid=")) return out;
    out.pid = number_after(text, is_label ? " pid=" : "(pid=").value_or(kNone);
    out.host = word_after(text, ", ip=");
    return out;
  }

  std::optional<std::size_t> add(NoteKind kind, Rank rank, std::string_view text,
                                 const LoggedProcess& process = {}) {
    const auto note = notes_.add({.kind = kind,
                                  .rank = rank,
                                  .pid = process.pid,
                                  .text = std::string(trimmed(text)),
                                  .host = std::string(process.host),
                                  .gpu = process.gpu});
    if (note) unused_.remember(notes_[*note], *note);
    if (note && local_ && rank.value == kNone) local_ranks_.remember(*note, *local_);
    return note;
  }

  // The functions below return true if the line was of their kind.

  // What belongs to the exception before it.
  bool take_details(OutputStream& stream, std::string_view text) {
    if (text.starts_with(kLastError)) return stream.in_last_error = true;
    const bool is_last_error = std::exchange(stream.in_last_error, false);
    if (!stream.exception) return false;
    RankNote& note = notes_[*stream.exception];
    if (!is_last_error) return note_process_shape(note, text) || add_hccl_error(note, text);
    add_last_error(note, text);
    return true;
  }

  bool take_exception(OutputStream& stream, Rank rank, bool uncaught, std::string_view text) {
    const ExceptionReader::Taken taken = stream.exceptions.take(text);
    // A thread's exception does not end the process.
    if (taken.raised && taken.in_thread && !uncaught) {
      add(NoteKind::caught, rank, text);
    } else if (taken.raised && taken.of_rank.value != kNone && stream.exception &&
               raised_by_all(notes_[*stream.exception].text)) {
      add_other_ranks(notes_[*stream.exception], taken.of_rank, *taken.raised);
    } else if (taken.raised) {
      const std::size_t before = notes_.size();
      note_exception(stream, taken.of_rank.value != kNone ? taken.of_rank : rank, *taken.raised,
                     taken.of_task);
      if (notes_.size() > before) {
        notes_[before].raised_at = taken.at;
        if (notes_[before].kind == NoteKind::peer_lost && !taken.in.empty()) {
          notes_[before].says = RankNote::Says::where_it_called;
          notes_[before].content = taken.in.substr(0, RankNote::kLongest);
        }
        if (taken.aborts) aborts_.push_back(before);
      }
      place_chain(stream, before, taken);
    }
    return taken.part;
  }

  // The exceptions of a chain were raised in one statement of the user's code, which the last one's
  // traceback tells. `note`: the index of the one that was taken, if it was noted.
  void place_chain(OutputStream& stream, std::size_t note, const ExceptionReader::Taken& taken) {
    if (!taken.chained) stream.chain.clear();
    if (note < notes_.size()) stream.chain.push_back(note);
    if (!taken.at_users) return;
    for (const std::size_t n : stream.chain)
      if (of_a_library(notes_[n].raised_at)) notes_[n].raised_at = taken.at;
  }

  // `of_task`: Ray's line that names the process, if there is one.
  void note_exception(OutputStream& stream, Rank rank, std::string_view text,
                      std::string_view of_task = {}) {
    // "[PG 0 (default_pg) Rank 7] NCCL watchdog thread terminated with exception: …": in the
    // default group the group rank is the rank.
    if (const auto group = watchdog_group_in(text); rank.value == kNone && group &&
                                                    watchdog_group_name(*group) == "world" &&
                                                    is_possible_rank(group->rank, kMaxWorldSize))
      rank = Rank(static_cast<std::int32_t>(group->rank));
    if (rank.value == kNone) rank = rank_said_by(text);
    // In a chain ("During handling of …") the last one ended the rank. The earlier ones stay as its
    // causes.
    // What a rank raises after its own watchdog ended its calls follows from that.
    const NoteKind kind = timed_out_.contains(rank) ? NoteKind::peer_lost : kind_of_exception(text);
    // A connection that fails after an exception of the rank's own is a consequence.
    if (kind == NoteKind::peer_lost && stream.exception && notes_[*stream.exception].ends()) return;
    // "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of …"
    const std::size_t gpu = text.find(". GPU ");
    LoggedProcess process = of_task.empty() ? process_in(label_) : process_in(of_task);
    if (gpu != kNpos && kind == NoteKind::out_of_memory)
      process.gpu = gpu_index(number_after(text.substr(gpu), ". GPU ").value_or(kNone));
    const std::string who = std::exchange(stream.who, {});
    const auto note = add(
        kind, rank, who.empty() ? told_exception(text) : fmt::format("{}: {}", who, text), process);
    if (note) stream.exception = note;
  }

  bool take_signs(OutputStream& stream, Rank rank, std::string_view text) {
    if (const auto parsed = parse_watchdog_line(text))
      return take_watchdog(stream, rank, text, *parsed);
    if (take_nccl(stream, rank, text)) return true;
    if (const auto xid = parse_xid(text)) {
      add(xid->kind, Rank(kNone), xid->text, {.pid = xid->pid});
      return true;
    }
    if (const auto fault = gpus_.take(text)) {
      add(fault->kind, rank, fault->text);
      return true;
    }
    if (const auto stall = horovod_.take(text)) {
      add_stall(*stall);
      return true;
    }
    if (const auto blocked = blocked_.take(text)) {
      add_blocked(*blocked);
      return true;
    }
    if (unused_.take(text, rank, notes_) || orders_.take(text, rank, notes_)) return true;
    if (const auto launched = parse_launcher_line(text)) return take_launcher(*launched);
    for (const std::string_view sign : kCrashes) {
      if (!contains_text(text, sign)) continue;
      if (const auto note = add(NoteKind::crashed, rank, sign)) stream.exception = note;
      return true;
    }
    return false;
  }

  // What PyTorch's watchdog says behind its message where it knows: in which code the call was made
  // that failed. Lines without a rank follow: "#0 all_reduce from /x/distributed_c10d.py:2696".
  bool take_failed_call(std::string_view line) {
    const std::size_t at = line.find('#');
    if (at != kNpos && failed_call_->stack.take(line.substr(at))) return true;
    end_failed_call();
    return false;
  }

  void end_failed_call() {
    const FailedCall failed = *std::exchange(failed_call_, std::nullopt);
    if (failed.stack.empty()) return;
    const int line = notes_.line();
    notes_.set_line(failed.line);
    const std::string place = failed.stack.words();
    if (const auto note = add(NoteKind::stack, failed.rank,
                              fmt::format("it made the call that failed in {}", place))) {
      notes_[*note].says = RankNote::Says::where_it_called;
      notes_[*note].content = place;
    }
    notes_.set_line(line);
  }

  // Of PyTorch's process group and of NCCL itself.
  bool take_nccl(OutputStream& stream, Rank rank, std::string_view text) {
    if (contains_text(text, kFailedCall)) {
      failed_call_.emplace(FailedCall{rank, notes_.line(), {}});
      return true;
    }
    if (const std::size_t at = text.find(kAsyncError); at != kNpos) {
      note_exception(stream, rank, text.substr(at + kAsyncError.size()));
      return true;
    }
    const std::optional<NcclMessage> message = nccl_message_in(text);
    if (!message) return false;
    add(message->kind, rank, message->text, message->process);
    return true;
  }

  bool take_watchdog(OutputStream& stream, Rank rank, std::string_view text,
                     const WatchdogLine& line) {
    // "watchdog thread terminated with exception: CUDA error: an illegal memory access …"
    if (!line.error.empty()) note_exception(stream, rank, line.error);
    if (const std::size_t at = text.find(kDumpSignal); at != kNpos)
      add(NoteKind::watchdog, rank, text.substr(at, text.find(" and we will", at) - at));
    if (!line.timeout) return true;
    const std::size_t at = text.find("Watchdog caught");
    const std::int64_t in_group = line.timeout->rank;
    // "[Rank 3]" is the group rank. In the default group it is the global rank, too.
    const bool is_default = !line.group || line.group->desc == "default_pg";
    if (rank.value == kNone && is_default && is_possible_rank(in_group, kMaxWorldSize)) {
      rank = Rank(static_cast<std::int32_t>(in_group));
    }
    add(NoteKind::watchdog, rank, text.substr(at == kNpos ? 0 : at));
    if (rank.value != kNone) timed_out_.insert(rank);
    return true;
  }

  void add_stall(const HorovodStalls::Stall& stall) {
    const std::string_view tensors = stall.tensors.substr(0, RankNote::kLongest);
    for (const Rank rank : stall.missing) {
      const auto note =
          add(NoteKind::analysis, rank,
              fmt::format("by Horovod it did not submit {}, which others did", tensors));
      if (!note) continue;
      notes_[*note].says = RankNote::Says::did_not_submit;
      notes_[*note].content = tensors;
    }
  }

  void add_blocked(const BlockedTasks::Blocked& blocked) {
    blocked_note_ = add(NoteKind::stack, Rank(kNone), blocked.text, {.pid = blocked.pid});
    if (blocked_note_) notes_[*blocked_note_].says = RankNote::Says::in_the_kernel;
  }

  void add_blocked_detail(const BlockedTasks::Detail& detail) {
    if (!blocked_note_) return;
    RankNote& note = notes_[*blocked_note_];
    note.pid = detail.process.value_or(note.pid);
    if (detail.function.empty()) return;
    note.text += fmt::format(", in {}", detail.function);
    note.content = detail.function;
  }

  // A line that begins a list may be an exception, too. False: it names no task.
  bool take_jax_task(std::string_view line) {
    const auto missed = jax_.take(line);
    if (!missed) return false;
    const auto note = add(NoteKind::analysis, missed->rank,
                          fmt::format("by JAX's coordination service it {}", missed->what));
    if (note) {
      notes_[*note].says = RankNote::Says::missed_by_jax;
      notes_[*note].content = missed->what;
    }
    return true;
  }

  // A launcher's first line says what failed; the others may be what it ended then.
  bool take_launcher(const LauncherLine& line) {
    const bool first = !line.ends_others || !std::exchange(others_end_, line.ends_others);
    NoteKind kind = first ? line.kind : NoteKind::ended;
    // Exit codes of all at once, or a killed step, show no rank that failed first.
    if (line.tasks.size() > 1 && kind == NoteKind::killed) kind = NoteKind::ended;
    if (first && line.exit_code.value_or(0) != 0 && line.tasks.size() == 1)
      raised_first_ = line.tasks[0];
    // torchrun's summary follows, and names the rank.
    if (line.tasks.empty() && line.ends_others && line.pid != kNone) {
      if (!failed_process_) {
        failed_process_.emplace(
            FailedProcess{kind, line.pid, std::string(line.text), notes_.line()});
      }
      return true;
    }
    // A process that its own watchdog ended.
    const auto known = rank_of_pid_.find(line.pid);
    if (line.tasks.empty() && known != rank_of_pid_.end()) {
      if (timed_out_.contains(known->second)) kind = NoteKind::ended;
      add(kind, known->second, line.text, {.pid = line.pid, .host = line.host});
      return true;
    }
    notes_.set_by_task(true);
    for (const Rank task : line.tasks)
      add(kind, task, line.text, {.pid = line.pid, .host = line.host});
    notes_.set_by_task(false);
    if (line.tasks.empty()) add(kind, Rank(kNone), line.text, {.pid = line.pid, .host = line.host});
    return true;
  }

  // The process that torchrun says failed, where its summary is missing.
  void add_failed_process() {
    if (!failed_process_ || summary_.present()) return;
    notes_.set_line(failed_process_->line);
    add(failed_process_->kind, Rank(kNone), failed_process_->text, {.pid = failed_process_->pid});
  }

  // Where each task started several ranks, its number is none of theirs.
  void drop_task_numbers() {
    if (!notes_.any_by_task() && raised_first_.value == kNone) return;
    if (tasks_.are_ranks(file_.bytes)) return;
    notes_.drop_task_numbers();
    raised_first_ = Rank(kNone);
  }

  bool take_summary(std::string_view line) {
    const TorchrunSummary::Taken taken = summary_.take(line);
    if (taken.failure == nullptr) return taken.part;
    const TorchrunSummary::Failure& failed = *taken.failure;
    if (failed.local_rank != kNone) local_ranks_.learn(failed.local_rank, failed.rank);
    const auto note =
        add(failed.kind, failed.rank, failed.text, {.pid = failed.pid, .host = failed.host});
    if (note && failed.first) {
      notes_[*note].says = RankNote::Says::failed_first;
      notes_[*note].content = failed.time;
    }
    return taken.part;
  }

  // The C++ library writes no rank before "terminate called", but torchrun's summary says which
  // ranks ended with SIGABRT. Where there are as many, and the texts are one, each is one of
  // theirs.
  void name_aborted() {
    const std::vector<Rank>& ranks = summary_.aborted();
    std::erase_if(aborts_, [&](std::size_t n) { return notes_[n].rank.value != kNone; });
    if (aborts_.size() != ranks.size()) return;
    for (const std::size_t n : aborts_)
      if (notes_[n].pid != kNone || notes_[n].text != notes_[aborts_.front()].text) return;
    for (std::size_t n = 0; n < ranks.size(); ++n) notes_[aborts_[n]].rank = ranks[n];
  }

  // In output of several ranks without prefixes, torchrun's summary says which rank ended first,
  // with an exception. If the output has only one exception, it is that rank's.
  void name_first_failure() {
    const Rank named = summary_.raised_first();
    const Rank first = named.value != kNone ? named : raised_first_;
    if (first.value == kNone) return;
    RankNote* only = nullptr;
    for (RankNote& note : notes_) {
      const bool raised = note.kind == NoteKind::exception || note.kind == NoteKind::out_of_memory;
      if (!raised || note.rank.value != kNone || note.pid != kNone) continue;
      if (only != nullptr && only->text != note.text) return;
      if (only == nullptr) only = &note;
    }
    if (only != nullptr) only->rank = first;
  }

  const TraceFile& file_;
  LogNotes notes_{file_.name};
  OutputStreams streams_;
  UnusedParameters unused_;
  OrderWarnings orders_;
  GpuLines gpus_;
  HorovodStalls horovod_;
  JaxTasks jax_;
  DeadActor actor_;
  BlockedTasks blocked_;
  std::optional<std::size_t> blocked_note_;  // of which more may follow
  TaskNumbers tasks_;
  LocalRanks local_ranks_;
  std::optional<std::int64_t> local_;  // before the current line
  TorchrunSummary summary_;
  LabelForm form_ = label_form_of(file_.bytes);
  std::string_view label_;  // of the current line
  std::string plain_;       // the current line, where it had colours
  std::map<std::int64_t, Rank> rank_of_pid_;
  std::set<Rank> timed_out_;         // ranks whose watchdog ended their calls
  std::vector<std::size_t> aborts_;  // notes of exceptions that nobody caught in C++
  bool others_end_ = false;          // a launcher has reported a failure: it ends the rest
  Rank raised_first_{kNone};         // the first task to fail, if it ended with an exception
  struct FailedCall {
    Rank rank;
    int line;
    CalledFrom stack;
  };
  std::optional<FailedCall> failed_call_;  // whose stack is being read
  struct FailedProcess {
    NoteKind kind;
    std::int64_t pid;
    std::string text;
    int line;
  };
  std::optional<FailedProcess> failed_process_;  // the first that torchrun says failed
};

FileEvidence read_rank_log(const TraceFile& file) { return RankLogReader(file).read(); }

// True for a text with one of the lines above. Also for a text with the name of a log, where such a
// line may come late.
bool is_rank_log(std::string_view bytes, std::string_view name) {
  constexpr std::size_t kHead = std::size_t{64} << 10U;
  const std::string_view head = bytes.substr(0, kHead);
  if (head.empty() || head.find('\0') != kNpos) return false;
  if ((head.front() == '{' && !is_docker_log(head)) || head.front() == '[') {
    // JSON, unless it is a line's prefix ("[rank0]:", "[2024-…") or what Python prints of a dict
    // ("{'loss': 0.5}").
    const std::size_t second = head.find_first_not_of(" \t\r\n", 1);
    const bool is_dict = second != kNpos && head[second] == '\'';
    if ((head.front() == '{' && !is_dict) || second == kNpos || head[second] == '{') return false;
  }
  static const WordSearch search =
      search_with_launchers({ExceptionReader::kTraceback,
                             kStuckWatchdog,
                             kAsyncError,
                             "watchdog thread terminated with exception",
                             kNcclWarning,
                             "Watchdog caught collective",
                             kXid,
                             "terminate called after throwing",
                             "Fatal Python error",
                             "(first observed failure)",
                             kStoreLost,
                             UnusedParameters::kSign,
                             GpuLines::kException,
                             GpuLines::kAccess,
                             GpuLines::kLost,
                             kWorkersBus,
                             kDeepEp,
                             kDumpSignal,
                             HorovodStalls::kSign,
                             HorovodStalls::kMissing,
                             OrderWarnings::kSign,
                             JaxTasks::kAbsent,
                             JaxTasks::kUnhealthy,
                             BlockedTasks::kHung,
                             BlockedTasks::kLockup,
                             BlockedTasks::kWorker});
  const bool has_sign = sample_of(bytes).any(
      [](std::string_view text) { return search.occurs_in(text) || has_old_nccl_warning(text); });
  if (has_sign) return true;
  std::string_view base = name.substr(name.find_last_of("/:") + 1);
  if (base.ends_with(".gz")) base.remove_suffix(3);
  static constexpr std::array<std::string_view, 3> kEndings = {".log", ".out", ".err"};
  return base == "stdout" || base == "stderr" ||
         std::any_of(kEndings.begin(), kEndings.end(), [&](auto e) { return base.ends_with(e); });
}

}  // namespace

EvidenceSource rank_log_source() {
  return {.name = "log",
          .summary = "output of ranks: tracebacks, out of memory, NCCL, Xid",
          .recognises = is_rank_log,
          .read = read_rank_log};
}

}  // namespace lockstep::trace
