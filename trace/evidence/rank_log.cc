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
//   host:12:34 [0] … NCCL WARN …                            NCCL's warnings
//
// PyTorch adds a rank prefix to uncaught exceptions only. A traceback without prefix may have been
// caught: if the rank's output continues after it, it is RankNote::Kind::caught. Exceptions that
// follow from another rank's end (a closed connection, an aborted communicator, a timeout) are
// Kind::peer_lost: they never show who is at fault.
//
// Launchers put labels before lines. "[1,3]<stderr>:" (mpirun) and "3: " (srun) name a task. That
// is the rank, unless a task is a launcher of several ranks (torchrun), as the output then shows.
// Any other label ("(Worker pid=12, ip=10.0.0.1) ", "[default3]:") must be the same on all lines of
// a traceback; "pid=" in it is the process.
//
// The rank of a file follows from its name (TraceFile::rank), if that contains "rank", or from
// torchrun's folders (…/attempt_0/3/stderr.log).

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/evidence.h"
#include "trace/evidence/launcher_lines.h"
#include "trace/formats/log_lines.h"
#include "trace/formats/watchdog_log/lines.h"
#include "trace/gpus.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

using NoteKind = RankNote::Kind;
constexpr std::size_t kMaxNotesPerKind = 4;  // notes per rank: later ones mostly repeat the first
constexpr std::string_view kTerminate = "terminate called after throwing an instance of '";
constexpr std::string_view kBoxCorner = "\xE2\x95\xAD";  // of rich: ╭
constexpr std::string_view kBoxSide = "\xE2\x94\x82";    // │
constexpr std::string_view kBoxEnd = "\xE2\x95\xB0";     // ╰
constexpr std::string_view kStuckWatchdog =
    "watchdog got stuck for ";  // of PyTorch's heartbeat monitor
constexpr std::string_view kAsyncError = "raised the following async exception: ";
constexpr std::string_view kLastError = "Last error:";    // of NCCL, on the next line
constexpr std::string_view kExceptionIn = "Exception i";  // the two below
constexpr std::string_view kIgnored = "Exception ignored in";
constexpr std::string_view kInThread = "Exception in thread";
constexpr std::string_view kTraceback = "Traceback (most recent call last)";

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// "torch.OutOfMemoryError: CUDA out of memory", "KeyError: 'x'", "AssertionError".
bool looks_like_exception(std::string_view line) {
  const std::size_t end = line.find(':');
  const std::string_view type = line.substr(0, end);
  constexpr std::size_t kLongestType = 128;
  if (type.empty() || type.size() > kLongestType) return false;
  if (end != kNpos && end + 1 < line.size() && line[end + 1] != ' ') return false;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return (letter(type.front()) || type.front() == '_') &&
         std::all_of(type.begin(), type.end(), [&](char c) {
           return letter(c) || c == '_' || c == '.' || (c >= '0' && c <= '9');
         });
}

bool mentions_memory(std::string_view text) {
  static constexpr std::array<std::string_view, 6> kSigns = {
      "OutOfMemoryError",  "out of memory",         "MemoryError",
      "HIP out of memory", "can't allocate memory", "Cannot allocate memory"};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](auto sign) { return contains_text(text, sign); });
}

NoteKind kind_of_exception(std::string_view text) {
  if (mentions_a_peer(text)) return NoteKind::peer_lost;
  return mentions_memory(text) ? NoteKind::out_of_memory : NoteKind::exception;
}

// True for lines that processes and libraries write while they end, and for the further lines of a
// long message. Any other line after an exception shows that the rank continued.
bool is_written_at_end(std::string_view text) {
  if (!text.empty() && is_blank(text.front())) return true;  // in a message, mostly a list
  text = trimmed(text);
  if (text.empty()) return true;
  // "[W" to "[I" and "E0" to "W1" begin log lines of C++ and Python: "[W709 …", "E0709 …".
  static constexpr std::array<std::string_view, 27> kBegins = {
      "CUDA kernel errors",
      "HIP kernel errors",
      "For debugging consider passing",
      "Compile with `TORCH_USE_",
      "Search for `cuda",
      "nccl",
      "Parameter indices which did not receive grad",
      "Parameters which did not receive grad",
      "Last error:",
      "[rank",
      "[W",
      "[E",
      "[F",
      "[I",
      "frame #",
      "Traceback",
      "terminate ",
      "what():",
      "Exception",
      "The above",
      "During handling",
      "WARNING:torch",
      "ERROR:torch",
      "E0",
      "W0",
      "E1",
      "W1"};
  if (std::any_of(kBegins.begin(), kBegins.end(), [&](auto b) { return text.starts_with(b); })) {
    return true;
  }
  static constexpr std::array<std::string_view, 9> kSigns = {
      "NCCL ",   "torch.distributed", "resource_tracker",
      "leaked ", "warnings.warn",     "destroy_process_group",
      "elastic", "Aborted",           "core dumped"};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](auto sign) { return contains_text(text, sign); });
}

// "[rank1]: ValueError" and "[rank1]:[E709 …" without the prefix.
std::string_view after_prefix(std::string_view line) {
  const std::size_t at = line.find("[rank");
  const std::size_t end = line.find("]:", at == kNpos ? 0 : at);
  if (at == kNpos || end == kNpos) return line;
  line.remove_prefix(end + 2);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

// True for XIDs after which the GPU does no work until it is reset (NVIDIA's catalog: double-bit
// errors, a GPU off the bus, an uncontained error, GSP time-outs).
bool stops_the_gpu(std::int64_t xid) {
  static constexpr std::array<std::int64_t, 8> kFatal = {48, 62, 79, 95, 109, 119, 120, 140};
  return std::find(kFatal.begin(), kFatal.end(), xid) != kFatal.end();
}

// The state of reading one rank's output, or that of lines without a rank.
struct Stream {
  bool in_traceback = false;
  bool boxed = false;          // the traceback is drawn as a box (rich)
  bool ignored = false;        // the traceback is of an exception that Python ignores
  bool in_thread = false;      // the traceback is of a thread
  bool in_last_error = false;  // the next line is NCCL's last error
  bool in_terminate = false;   // the next line is what() of a C++ exception
  std::string terminated_by;   // its type
  // The last exception that may have ended the rank, as an index in the notes.
  std::optional<std::size_t> exception;
};

// A process as a line names it.
struct LoggedProcess {
  std::int64_t pid = kNone;
  std::string_view host = {};
  std::int32_t gpu = kNone;
};

class RankLogReader {
 public:
  explicit RankLogReader(const TraceFile& file) : file_(file) {}

  FileEvidence read() {
    LogLines lines(file_.bytes);
    while (const auto line = lines.next()) {
      number_ = lines.number();
      take(plain_text(*line, plain_));
    }
    add_failed_process();
    drop_task_numbers();
    name_first_failure();
    return std::move(out_);
  }

 private:
  void take(std::string_view line) {
    std::string_view text = line;
    const std::optional<Rank> prefix = rank_in_prefix(line);
    const std::optional<LabelledLine> label = file_.rank ? std::nullopt : parse_label(line);
    if (label) tasks_.insert(label->rank);
    if (prefix) {
      // The number before a line is not the rank where PyTorch's own prefix is another.
      starts_ranks_ |= label && label->rank != *prefix;
      text = after_prefix(line);
    } else if (label) {
      text = label->text;
      is_task_ = true;
    }
    const Rank rank = prefix ? *prefix : label ? label->rank : file_.rank.value_or(Rank(kNone));
    take_text(line, text, rank, prefix.has_value());
    is_task_ = false;
  }

  static bool shows_launcher_of_ranks(std::string_view output) {
    return contains_text(output, "torchrun") || contains_text(output, "local_rank") ||
           contains_text(output, "distributed/elastic") ||
           contains_text(output, "multiprocessing/spawn") ||
           contains_text(output, "distributed.elastic");
  }

  // `text`: the line without a rank's prefix.
  void take_text(std::string_view line, std::string_view text, Rank rank, bool prefix) {
    const std::string_view label = label_of(text);
    text.remove_prefix(label.size());
    label_ = label;
    Stream& stream = streams_[{rank, std::string(label)}];
    if (take_last_error(stream, text)) return;
    if (take_exception(stream, rank, prefix, text)) return;
    if (take_summary(line)) return;
    if (take_signs(stream, rank, text)) return;
    // Any other line shows that the rank continues, unless the line may be another rank's. PyTorch
    // writes the prefix on what ends a rank only.
    if (prefix || rank.value == kNone) return;
    if (!stream.exception || is_written_at_end(text)) return;
    // The rank continues, so the exception was caught.
    RankNote& note = out_.notes[*stream.exception];
    if (note.ends()) note.kind = NoteKind::caught;
    stream.exception.reset();
  }

  // What stands before a traceback on each of its lines: "(Worker pid=12) ". Empty for most lines.
  std::string_view label_of(std::string_view text) {
    constexpr std::size_t kLongest = 160;
    for (const std::string_view opening : {kTraceback, kExceptionIn}) {
      const std::size_t at = text.find(opening);
      if (at == kNpos || at == 0 || at > kLongest) continue;
      // The corner of a box: the next lines do not repeat it.
      if (text.substr(0, at).find_first_of("\xE2+") != kNpos) return {};
      constexpr std::size_t kMostLabels = 1024;
      if (labels_.size() < kMostLabels) labels_.emplace(text.substr(0, at));
      break;
    }
    if (labels_.empty()) return {};
    // The greatest label that is not greater than the text begins it, if any does: of labels of
    // which one begins another, the longer one is greater.
    const auto after = labels_.upper_bound(text);
    if (after == labels_.begin()) return {};
    const std::string& label = *std::prev(after);
    return text.starts_with(label) ? text.substr(0, label.size()) : std::string_view();
  }

  // "(WorkerDict pid=833, ip=172.26.153.33) ": the process that Ray's label names.
  LoggedProcess process_of_label() const {
    LoggedProcess out;
    if (!label_.starts_with('(')) return out;
    out.pid = number_after(label_, " pid=").value_or(kNone);
    out.host = word_after(label_, ", ip=");
    return out;
  }

  std::optional<std::size_t> add(NoteKind kind, Rank rank, std::string_view text,
                                 const LoggedProcess& process = {}) {
    std::size_t& count = counts_[{rank, process.pid, kind}];
    if (count >= kMaxNotesPerKind) return std::nullopt;
    const std::size_t before = out_.notes.size();
    out_.add({kind,
              rank,
              process.pid,
              std::string(trimmed(text)),
              {file_.name, number_},
              std::string(process.host),
              process.gpu});
    if (out_.notes.size() == before) return std::nullopt;
    if (is_task_) by_task_.push_back(before);
    ++count;
    return before;
  }

  // The functions below return true if the line was of their kind.

  // What NCCL says behind an exception: "Last error:", and on the next line what failed.
  bool take_last_error(Stream& stream, std::string_view text) {
    if (text.starts_with(kLastError)) return stream.in_last_error = true;
    if (!std::exchange(stream.in_last_error, false) || !stream.exception) return false;
    RankNote& note = out_.notes[*stream.exception];
    if (note.text.size() + text.size() + 2 <= RankNote::kLongest)
      note.text += fmt::format("; {}", trimmed(text));
    if (!note.ends()) return true;
    if (mentions_a_peer(text)) note.kind = NoteKind::peer_lost;
    if (mentions_memory(text)) note.kind = NoteKind::out_of_memory;
    return true;
  }

  bool take_exception(Stream& stream, Rank rank, bool uncaught, std::string_view text) {
    if (begins_traceback(stream, text)) return true;
    if (stream.in_terminate || contains_text(text, kTerminate))
      return take_terminate(stream, rank, text);
    return stream.in_traceback && take_traceback(stream, rank, uncaught, text);
  }

  static bool begins_traceback(Stream& stream, std::string_view text) {
    if (text.starts_with(kTraceback)) return stream.in_traceback = true;
    // ╭──── Traceback (most recent call last) ────╮
    if (text.starts_with(kBoxCorner) && contains_text(text, kTraceback))
      return stream.boxed = stream.in_traceback = true;
    if (text.starts_with(kIgnored)) return stream.ignored = true;
    if (text.starts_with(kInThread)) return stream.in_thread = true;
    return false;
  }

  // The end of a C++ program: "terminate called …", then a line with what().
  bool take_terminate(Stream& stream, Rank rank, std::string_view text) {
    if (const std::size_t at = text.find(kTerminate); at != kNpos) {
      const std::string_view type = text.substr(at + kTerminate.size());
      stream.in_terminate = true;
      stream.terminated_by = type.substr(0, std::min(type.find('\''), RankNote::kLongest));
      return true;
    }
    stream.in_terminate = false;
    const std::size_t at = text.find("what():");
    const std::string_view what = at == kNpos ? std::string_view() : text.substr(at + 7);
    note_exception(stream, rank, fmt::format("{}: {}", stream.terminated_by, trimmed(what)));
    return at != kNpos;
  }

  bool take_traceback(Stream& stream, Rank rank, bool uncaught, std::string_view text) {
    // Frames are indented. The first line that is not is the exception.
    if (text.empty() || is_blank(text.front())) return true;
    if (stream.boxed && (text.starts_with(kBoxSide) || text.starts_with(kBoxEnd))) return true;
    stream.in_traceback = stream.boxed = false;
    if (!looks_like_exception(text)) return false;
    const bool thread = std::exchange(stream.in_thread, false);
    if (std::exchange(stream.ignored, false)) return true;
    if (text.starts_with("KeyboardInterrupt") || text.starts_with("SystemExit")) return true;
    // A thread's exception does not end the process.
    if (thread && !uncaught) {
      add(NoteKind::caught, rank, text);
      return true;
    }
    note_exception(stream, rank, text);
    return true;
  }

  void note_exception(Stream& stream, Rank rank, std::string_view text) {
    // In a chain ("During handling of …") the last one ended the rank. The earlier ones stay as its
    // causes.
    // What a rank raises after its own watchdog ended its calls follows from that.
    const NoteKind kind = timed_out_.contains(rank) ? NoteKind::peer_lost : kind_of_exception(text);
    // A connection that fails after an exception of the rank's own is a consequence.
    if (kind == NoteKind::peer_lost && stream.exception && out_.notes[*stream.exception].ends())
      return;
    // "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of …"
    const std::size_t gpu = text.find(". GPU ");
    LoggedProcess process = process_of_label();
    if (gpu != kNpos && kind == NoteKind::out_of_memory)
      process.gpu = gpu_index(number_after(text.substr(gpu), ". GPU ").value_or(kNone));
    const auto note = add(kind, rank, text, process);
    if (note) stream.exception = note;
  }

  bool take_signs(Stream& stream, Rank rank, std::string_view text) {
    if (const auto parsed = parse_watchdog_line(text))
      return take_watchdog(stream, rank, text, *parsed);
    if (contains_text(text, "NCCL") && take_nccl(stream, rank, text)) return true;
    if (contains_text(text, "Xid (PCI:")) return take_xid(text);
    if (const auto launched = parse_launcher_line(text)) return take_launcher(*launched);
    static constexpr std::array<std::string_view, 4> kCrashes = {
        "Fatal Python error: Segmentation fault", "Fatal Python error: Bus error",
        "Segmentation fault (core dumped)", "!!!!!!! Segfault encountered !!!!!!!"};
    for (const std::string_view sign : kCrashes) {
      if (!contains_text(text, sign)) continue;
      if (const auto note = add(NoteKind::crashed, rank, sign)) stream.exception = note;
      return true;
    }
    return false;
  }

  // Of PyTorch's process group and of NCCL itself.
  bool take_nccl(Stream& stream, Rank rank, std::string_view text) {
    if (const std::size_t at = text.find(kStuckWatchdog); at != kNpos) {
      add(NoteKind::watchdog, rank, text.substr(at, text.find(". ", at) - at));
      return true;
    }
    if (const std::size_t at = text.find(kAsyncError); at != kNpos) {
      note_exception(stream, rank, text.substr(at + kAsyncError.size()));
      return true;
    }
    if (const std::size_t at = text.find("NCCL WARN "); at != kNpos) {
      add(NoteKind::nccl_warning, rank, text.substr(at), process_of_nccl(text.substr(0, at)));
      return true;
    }
    return false;
  }

  bool take_watchdog(Stream& stream, Rank rank, std::string_view text, const WatchdogLine& line) {
    // "watchdog thread terminated with exception: CUDA error: an illegal memory access …"
    if (!line.error.empty()) note_exception(stream, rank, line.error);
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

  // Of a launcher's lines the first says what failed; the others may be what it ended then.
  bool take_launcher(const LauncherLine& line) {
    const bool first = !line.ends_others || !std::exchange(others_end_, line.ends_others);
    NoteKind kind = first ? line.kind : NoteKind::peer_lost;
    // Exit codes of all at once, or a killed step, show no rank that failed first.
    if (line.tasks.size() > 1 && kind == NoteKind::killed) kind = NoteKind::peer_lost;
    if (first && line.exit_code.value_or(0) != 0 && line.tasks.size() == 1)
      raised_first_ = line.tasks[0];
    // torchrun's summary follows, and names the rank.
    if (line.tasks.empty() && line.ends_others && line.pid != kNone) {
      if (!failed_process_) {
        failed_process_.emplace(FailedProcess{kind, line.pid, std::string(line.text), number_});
      }
      return true;
    }
    is_task_ = true;
    for (const Rank task : line.tasks)
      add(kind, task, line.text, {.pid = line.pid, .host = line.host});
    is_task_ = false;
    if (line.tasks.empty()) add(kind, Rank(kNone), line.text, {.pid = line.pid, .host = line.host});
    return true;
  }

  // The process that torchrun says failed, where its summary is missing.
  void add_failed_process() {
    if (!failed_process_ || has_summary_) return;
    number_ = failed_process_->line;
    add(failed_process_->kind, Rank(kNone), failed_process_->text, {.pid = failed_process_->pid});
  }

  // Where each task started several ranks, its number is none of theirs. Numbers far above how many
  // there are were no tasks.
  void drop_task_numbers() {
    constexpr std::size_t kSparse = 8;
    const bool sparse =
        !tasks_.empty() && std::size_t(tasks_.rbegin()->value) > kSparse * (tasks_.size() + 1);
    if (by_task_.empty() && raised_first_.value == kNone) return;
    starts_ranks_ = starts_ranks_ || shows_launcher_of_ranks(file_.bytes);
    if (!starts_ranks_ && !sparse) return;
    for (const std::size_t n : by_task_) out_.notes[n].rank = Rank(kNone);
    if (!has_summary_) raised_first_ = Rank(kNone);
  }

  // "gpu1:13135:13922 [0] src/transport/net_ib.cc:123 ": host, process and CUDA's index of its GPU.
  static LoggedProcess process_of_nccl(std::string_view before) {
    const std::size_t bracket = before.find(" [");
    if (bracket == kNpos) return {};
    const std::string_view who = before.substr(0, bracket);
    const std::size_t thread = who.rfind(':');
    if (thread == kNpos) return {};
    const std::size_t process = who.substr(0, thread).rfind(':');
    if (process == kNpos) return {};
    const auto pid = number_after(who.substr(process), ":");
    if (!pid || *pid <= 0) return {};
    // A launcher may write a prefix: "[default3]:gpu1".
    const std::string_view head = who.substr(0, process);
    const std::size_t host = head.find_last_of(" \t:") + 1;
    const auto device = number_after(before.substr(bracket), " [");
    return {*pid, head.substr(host), gpu_index(device.value_or(kNone))};
  }

  bool take_xid(std::string_view text) {
    const std::size_t at = text.find("Xid (PCI:");
    const std::size_t close = text.find("): ", at);
    if (close == kNpos) return false;
    const auto number = number_after(text.substr(close), "): ");
    if (!number) return false;
    // "pid='<unknown>'" and "pid=1234" both occur.
    const auto pid = number_after(text, "pid=");
    const auto quoted = number_after(text, "pid='");
    const std::int64_t process = pid ? *pid : quoted.value_or(kNone);
    add(stops_the_gpu(*number) ? NoteKind::gpu_fault : NoteKind::gpu_warning, Rank(kNone),
        text.substr(at), {.pid = process > 0 ? process : kNone});
    return true;
  }

  // torchrun's summary: a block of "key : value" lines for each rank that failed.
  bool take_summary(std::string_view line) {
    if (contains_text(line, "Root Cause (first observed failure)")) {
      in_root_cause_ = true;
      has_summary_ = true;
      return true;
    }
    // The number after a key, which may be anywhere in the line: launchers write prefixes.
    const auto value = [&](std::string_view key) -> std::optional<std::int64_t> {
      const std::size_t at = line.find(key);
      if (at == kNpos) return std::nullopt;
      return number_after(line.substr(at), ": ");
    };
    // "host      : node4", before the rank of the block.
    constexpr std::string_view kHost = "host      : ";
    if (const std::size_t at = line.find(kHost); at != kNpos) {
      failed_host_ = trimmed(line.substr(at + kHost.size()));
      return true;
    }
    if (contains_text(line, "(local_rank: ")) {
      if (const auto rank = value("rank  "); rank && is_possible_rank(*rank, kMaxWorldSize)) {
        failed_ = Rank(static_cast<std::int32_t>(*rank));
        return true;
      }
    }
    if (failed_.value == kNone || !contains_text(line, "exitcode ") ||
        !contains_text(line, "(pid: "))
      return false;
    const std::int64_t pid = number_after(line, "(pid: ").value_or(kNone);
    const std::int64_t code = value("exitcode ").value_or(0);
    // torchrun ends the other ranks itself (SIGTERM), and the watchdog aborts those that wait
    // (SIGABRT): only the first failure is the cause.
    const NoteKind kind = code == -11 || code == -7      ? NoteKind::crashed
                          : code == -9 && in_root_cause_ ? NoteKind::killed
                                                         : NoteKind::peer_lost;
    const std::string host = std::exchange(failed_host_, {});
    const std::string_view which =
        in_root_cause_ ? "the first failure, by torchrun: exit code " : "by torchrun: exit code ";
    if (in_root_cause_ && code == 1) raised_first_ = failed_;
    add(kind, std::exchange(failed_, Rank(kNone)), fmt::format("{}{}", which, code),
        {.pid = pid, .host = host});
    return true;
  }

  // In output of several ranks without prefixes, torchrun's summary says which rank ended first,
  // with an exception. If the output has only one exception, it is that rank's.
  void name_first_failure() {
    if (raised_first_.value == kNone) return;
    RankNote* only = nullptr;
    for (RankNote& note : out_.notes) {
      const bool raised = note.kind == NoteKind::exception || note.kind == NoteKind::out_of_memory;
      if (!raised || note.rank.value != kNone || note.pid != kNone) continue;
      if (only != nullptr && only->text != note.text) return;
      if (only == nullptr) only = &note;
    }
    if (only != nullptr) only->rank = raised_first_;
  }

  const TraceFile& file_;
  FileEvidence out_;
  // By rank and label.
  std::map<std::pair<Rank, std::string>, Stream> streams_;
  std::map<std::tuple<Rank, std::int64_t, NoteKind>, std::size_t> counts_;
  std::set<std::string, std::less<>> labels_;
  std::string_view label_;            // of the current line
  std::string plain_;                 // the current line, where it had colours
  std::set<Rank> timed_out_;          // ranks whose watchdog ended their calls
  std::set<Rank> tasks_;              // by the labels of lines
  bool is_task_ = false;              // the rank of the current line is a task of a launcher
  std::vector<std::size_t> by_task_;  // notes whose rank is a task
  bool starts_ranks_ = false;         // a task starts several ranks
  bool others_end_ = false;           // a launcher has reported a failure: it ends the rest
  struct FailedProcess {
    NoteKind kind;
    std::int64_t pid;
    std::string text;
    int line;
  };
  std::optional<FailedProcess> failed_process_;  // the first that torchrun says failed
  bool has_summary_ = false;                     // torchrun's, with ranks
  int number_ = 0;
  Rank failed_{kNone};  // the rank whose block of torchrun's summary is being read
  std::string failed_host_;
  Rank raised_first_{kNone};  // the first rank to fail, if it ended with an exception
  bool in_root_cause_ = false;
};

FileEvidence read_rank_log(const TraceFile& file) { return RankLogReader(file).read(); }

// True for a text with one of the lines above. Also for a text with the name of a log, where such a
// line may come late.
bool is_rank_log(std::string_view bytes, std::string_view name) {
  constexpr std::size_t kHead = std::size_t{64} << 10U;
  const std::string_view head = bytes.substr(0, kHead);
  if (head.empty() || head.find('\0') != kNpos) return false;
  if ((head.front() == '{' && !is_docker_log(head)) || head.front() == '[') {
    // JSON, unless it is a line's prefix ("[rank0]:", "[2024-…").
    const std::size_t second = head.find_first_not_of(" \t\r\n", 1);
    if (head.front() == '{' || second == kNpos || head[second] == '{') return false;
  }
  static constexpr std::array<std::string_view, 10> kSigns = {
      kTraceback,           kStuckWatchdog,
      kAsyncError,          "watchdog thread terminated with exception",
      "NCCL WARN ",         "Watchdog caught collective",
      "Xid (PCI:",          "terminate called after throwing",
      "Fatal Python error", "(first observed failure)"};
  const bool has_sign = sample_of(bytes).any([](std::string_view text) {
    return has_launcher_line(text) || std::any_of(kSigns.begin(), kSigns.end(), [&](auto sign) {
             return contains_text(text, sign);
           });
  });
  if (has_sign) return true;
  std::string_view base = name.substr(name.find_last_of("/:") + 1);
  if (base.ends_with(".gz")) base.remove_suffix(3);
  static constexpr std::array<std::string_view, 3> kEndings = {".log", ".out", ".err"};
  return base == "stdout" || base == "stderr" ||
         std::any_of(kEndings.begin(), kEndings.end(), [&](auto e) { return base.ends_with(e); });
}

}  // namespace

bool mentions_a_peer(std::string_view text) {
  static constexpr std::array<std::string_view, 29> kSigns = {
      "closed by remote peer",
      "Call to recv from",
      "Got completion from peer",
      "Detected mismatch between collectives",
      "Connection closed by peer",
      "Connection reset by peer",
      "Connection refused",
      "Broken pipe",
      "Timed out waiting",
      "timed out after",
      "has timed out",
      "Application timeout",
      "Socket Timeout",
      "socket timeout",
      "wait timeout",
      "pair closure",
      "got 0 bytes",
      "recvValue failed",
      "Watchdog caught collective operation timeout",
      "remote process exited",
      "remote process has exited",
      "communicator was aborted",
      "NCCL error: remote",
      "ncclRemoteError",
      "ncclSystemError",
      "DistStoreError",
      "DistNetworkError",
      "ChildFailedError",
      "SignalException"};
  if (contains_text(text, "DataLoader")) return false;  // it waits for its own workers
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](auto sign) { return contains_text(text, sign); });
}

EvidenceSource rank_log_source() {
  return {.name = "log",
          .summary = "output of ranks: tracebacks, out of memory, NCCL, Xid",
          .recognises = is_rank_log,
          .read = read_rank_log};
}

}  // namespace lockstep::trace
