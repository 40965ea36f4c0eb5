#include "trace/evidence/launcher_lines.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

using NoteKind = RankNote::Kind;

constexpr std::string_view kSrun = "srun: error: ";
constexpr std::string_view kSlurmstepd = "slurmstepd: error: ";
constexpr std::string_view kMpirun = "noticed that process rank ";
constexpr std::string_view kMpirunName = "Process name: [";
constexpr std::string_view kOpenMpiAbort = "MPI_ABORT was invoked on rank ";
constexpr std::string_view kMpichAbort = "application called MPI_Abort(";
constexpr std::string_view kElastic = "failed (exitcode: ";
constexpr std::string_view kDeepSpeed = "exits with return code = ";
constexpr std::string_view kLightning = "Child process with PID ";
constexpr std::string_view kShell = " Killed  ";
constexpr std::string_view kRay = "A worker died or was killed";
constexpr std::string_view kVllm = " died unexpectedly, shutting down executor";
constexpr std::string_view kUcx = "] Caught signal ";
constexpr std::string_view kOpenMpi = "] Signal: ";
constexpr std::string_view kOomKill = "oom-kill:constraint=";
constexpr std::string_view kKilled = "ut of memory: Kill";  // "Out" and "out"
constexpr std::string_view kCancelled = " CANCELLED AT ";

// How a process ended that a signal ended. SIGABRT and SIGTERM follow from another rank's end: the
// watchdog aborts those that wait, the launcher ends the rest.
NoteKind kind_of_signal(std::int64_t signal) {
  constexpr std::int64_t kIllegal = 4;
  constexpr std::int64_t kBus = 7;
  constexpr std::int64_t kFloat = 8;
  constexpr std::int64_t kKill = 9;
  constexpr std::int64_t kSegmentation = 11;
  if (signal == kKill) return NoteKind::killed;
  const bool own =
      signal == kIllegal || signal == kBus || signal == kFloat || signal == kSegmentation;
  return own ? NoteKind::crashed : NoteKind::ended;
}

// The kind of "Out Of Memory", "Segmentation fault (core dumped)", "Killed", "Exited with exit …".
std::optional<NoteKind> kind_of_reason(std::string_view reason) {
  static constexpr std::array<std::pair<std::string_view, NoteKind>, 9> kReasons = {
      {{"Out Of Memory", NoteKind::out_of_memory},
       {"Segmentation fault", NoteKind::crashed},
       {"Bus error", NoteKind::crashed},
       {"Illegal instruction", NoteKind::crashed},
       {"Floating point exception", NoteKind::crashed},
       {"Killed", NoteKind::killed},
       {"Aborted", NoteKind::ended},
       {"Terminated", NoteKind::ended},
       {"Exited with exit code", NoteKind::ended}}};
  const auto found = std::find_if(kReasons.begin(), kReasons.end(),
                                  [&](const auto& r) { return reason.starts_with(r.first); });
  if (found == kReasons.end()) return std::nullopt;
  return found->second;
}

// srun: error: node7: task 3: Exited with exit code 1
std::optional<LauncherLine> parse_srun(std::string_view text) {
  std::string_view rest = text.substr(kSrun.size());
  LauncherLine out;
  out.text = text;
  if (rest.starts_with("Node failure on ")) return out;
  const std::size_t colon = rest.find(": task");
  if (colon == kNpos) return std::nullopt;
  out.host = rest.substr(0, colon);
  const std::size_t number = rest.find_first_of("0123456789", colon);
  if (number == kNpos) return std::nullopt;
  rest.remove_prefix(number);
  const std::size_t reason = rest.find(": ");
  if (reason == kNpos) return std::nullopt;
  out.tasks = tasks_in(rest);
  const std::optional<NoteKind> kind = kind_of_reason(rest.substr(reason + 2));
  if (!kind || out.tasks.empty()) return std::nullopt;
  out.kind = *kind;
  out.ends_others = true;
  out.exit_code = number_after(rest, "Exited with exit code ");
  return out;
}

// mpirun noticed that process rank 3 with PID 71 on node node7 exited on signal 9 (Killed).
std::optional<LauncherLine> parse_mpirun(std::string_view text) {
  LauncherLine out;
  out.text = text;
  out.tasks = tasks_in(text.substr(kMpirun.size()));
  const auto signal = number_after(text, "exited on signal ");
  if (out.tasks.size() != 1 || !signal) return std::nullopt;
  out.pid = number_after(text, "with PID ").value_or(kNone);
  if (out.pid <= 0) out.pid = kNone;
  out.host = word_after(text, "on node ");
  out.kind = kind_of_signal(*signal);
  out.ends_others = true;
  return out;
}

// Process name: [[4711,1],3]
std::optional<LauncherLine> parse_mpirun_name(std::string_view text) {
  const std::size_t comma = text.rfind(',');
  if (comma == kNpos) return std::nullopt;
  LauncherLine out;
  out.text = text;
  out.tasks = tasks_in(text.substr(comma + 1));
  if (out.tasks.size() != 1) return std::nullopt;
  out.kind = NoteKind::ended;
  out.ends_others = true;
  out.exit_code = 1;
  return out;
}

// MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD
// application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3
std::optional<LauncherLine> parse_abort(std::string_view text, std::string_view before_rank) {
  const std::size_t at = text.find(before_rank);
  if (at == kNpos) return std::nullopt;
  LauncherLine out;
  out.text = text;
  out.tasks = tasks_in(text.substr(at + before_rank.size()));
  if (out.tasks.size() != 1) return std::nullopt;
  out.kind = NoteKind::ended;
  out.ends_others = true;
  out.exit_code = 1;  // not 0, as far as the line says
  return out;
}

// An exit code as Python has it: that of a signal is negative. Nothing for other ends.
std::optional<LauncherLine> ended_by_signal(std::string_view text, std::int64_t code) {
  if (code >= 0) return std::nullopt;
  LauncherLine out;
  out.text = text;
  out.kind = kind_of_signal(-code);
  out.ends_others = true;
  return out.kind == NoteKind::ended ? std::nullopt : std::optional(out);
}

std::optional<LauncherLine> parse_elastic(std::string_view text) {
  auto out = ended_by_signal(text, number_after(text, kElastic).value_or(0));
  if (out) out->pid = number_after(text, "(pid: ").value_or(kNone);
  return out;
}

// [rank: 1] Child process with PID 71 terminated with code 1. Forcefully terminating all other …
std::optional<LauncherLine> parse_lightning(std::string_view line, std::size_t at) {
  const auto rank = number_after(line.substr(0, at), "[rank: ");
  LauncherLine out;
  out.text = line.substr(at);
  out.pid = number_after(out.text, kLightning).value_or(kNone);
  out.exit_code = number_after(out.text, "terminated with code ");
  if (!rank || !out.exit_code || !is_possible_rank(*rank, kMaxWorldSize)) return std::nullopt;
  out.tasks = {Rank(static_cast<std::int32_t>(*rank))};
  out.kind = *out.exit_code < 0 ? kind_of_signal(-*out.exit_code) : NoteKind::ended;
  out.ends_others = true;
  return out;
}

// run.sh: line 12:    71 Killed                  python train.py
std::optional<LauncherLine> parse_shell(std::string_view line, std::size_t at) {
  const std::size_t begin = line.find(": line ");
  const std::size_t colon = begin == kNpos ? kNpos : line.find(": ", begin + 1);
  if (colon == kNpos || colon > at) return std::nullopt;
  const std::string_view pid = trimmed(line.substr(colon + 2, at - colon - 2));
  const auto number = number_after(pid, "");
  if (!number || pid.find_first_not_of("0123456789") != kNpos) return std::nullopt;
  LauncherLine out;
  out.text = line.substr(begin + 2);
  out.pid = *number;
  return out;
}

// [node7:71  :0:5704] Caught signal 7 (Bus error: nonexistent physical address)        UCX
// [node7:00071] Signal: Segmentation fault (11)                                     Open MPI
std::optional<LauncherLine> parse_caught_signal(std::string_view line, std::size_t close) {
  const std::size_t open = line.rfind('[', close);
  if (open == kNpos) return std::nullopt;
  const std::string_view process = line.substr(open + 1, close - open - 1);
  const std::size_t colon = process.find(':');
  const auto pid = colon == kNpos ? std::nullopt : number_after(process.substr(colon), ":");
  const std::string_view rest = line.substr(close);
  auto signal = number_after(rest, "Caught signal ");
  if (!signal) signal = number_after(rest, " (");
  if (!pid || !signal || *pid <= 0 || process.substr(0, colon).find(' ') != kNpos)
    return std::nullopt;
  LauncherLine out;
  out.text = line.substr(open);
  out.host = process.substr(0, colon);
  out.pid = *pid;
  out.kind = kind_of_signal(*signal);
  return out;
}

// Worker proc VllmWorker-2 died unexpectedly, shutting down executor.
// RayWorkerProc rank=[3] died unexpectedly, shutting down executor.
// The numbers are of one engine, of which a job may have several.
std::optional<LauncherLine> parse_vllm(std::string_view line, std::size_t at) {
  std::size_t begin = line.substr(0, at).rfind("Worker proc ");
  if (begin == kNpos) begin = line.substr(0, at).rfind("RayWorkerProc ");
  if (begin == kNpos) return std::nullopt;
  LauncherLine out;
  out.text = line.substr(begin, at + kVllm.size() - begin);
  out.kind = NoteKind::ended;
  out.ends_others = true;
  return out;
}

std::optional<LauncherLine> parse_ray(std::string_view text) {
  if (!contains_text(text, "SYSTEM_ERROR")) return std::nullopt;
  LauncherLine out;
  out.text = text;
  out.pid = number_after(text, "Worker PID: ").value_or(kNone);
  out.host = word_after(text, "Worker IP address: ");
  return out;
}

// Memory cgroup out of memory: Killed process 71 (python3) …
// oom-kill:constraint=CONSTRAINT_MEMCG,…,task=python3,pid=71,uid=0
std::optional<LauncherLine> parse_kernel(std::string_view line) {
  LauncherLine out;
  out.kind = NoteKind::out_of_memory;
  if (const std::size_t at = line.find(kOomKill); at != kNpos) {
    out.text = line.substr(at);
    out.pid = number_after(out.text, ",pid=").value_or(kNone);
    return out;
  }
  const std::size_t at = line.find(kKilled);
  if (at == kNpos || at == 0) return std::nullopt;
  out.text = line.substr(at - 1);
  auto pid = number_after(out.text, "Killed process ");
  if (!pid) pid = number_after(out.text, "Kill process ");  // until Linux 5.0
  if (!pid) return std::nullopt;
  out.pid = *pid;
  return out;
}

std::optional<LauncherLine> parse_slurmstepd(std::string_view text) {
  LauncherLine out;
  out.text = text;
  if (contains_text(text, "oom_kill event") || contains_text(text, "oom-kill event")) {
    out.kind = NoteKind::out_of_memory;
    return out;
  }
  if (contains_text(text, "*** ") && contains_text(text, kCancelled)) {
    out.ends_others = true;
    return out;
  }
  return std::nullopt;
}

}  // namespace

std::optional<LauncherLine> parse_launcher_line(std::string_view line) {
  if (const std::size_t at = line.find(kSrun); at != kNpos) return parse_srun(line.substr(at));
  if (const std::size_t at = line.find(kSlurmstepd); at != kNpos)
    return parse_slurmstepd(line.substr(at));
  if (const std::size_t at = line.find(kMpirun); at != kNpos) return parse_mpirun(line.substr(at));
  if (const std::size_t at = line.find(kMpirunName); at != kNpos)
    return parse_mpirun_name(line.substr(at));
  if (const std::size_t at = line.find(kOpenMpiAbort); at != kNpos)
    return parse_abort(line.substr(at), kOpenMpiAbort);
  if (const std::size_t at = line.find(kMpichAbort); at != kNpos)
    return parse_abort(line.substr(at), ") - process ");
  if (const std::size_t at = line.find(kElastic); at != kNpos)
    return parse_elastic(line.substr(at));
  if (const std::size_t at = line.find(kDeepSpeed); at != kNpos) {
    // "['python', '-u', 'train.py', '--local_rank=3'] exits with return code = -9"
    const std::size_t local = line.substr(0, at).rfind("--local_rank=");
    return ended_by_signal(line.substr(local == kNpos ? at : local),
                           number_after(line.substr(at), kDeepSpeed).value_or(0));
  }
  if (const std::size_t at = line.find(kRay); at != kNpos) return parse_ray(line.substr(at));
  if (const std::size_t at = line.find(kVllm); at != kNpos) return parse_vllm(line, at);
  if (const std::size_t at = line.find(kLightning); at != kNpos) return parse_lightning(line, at);
  if (const std::size_t at = line.find(kShell); at != kNpos) return parse_shell(line, at);
  if (const std::size_t at = line.find(kUcx); at != kNpos) return parse_caught_signal(line, at);
  if (const std::size_t at = line.find(kOpenMpi); at != kNpos) return parse_caught_signal(line, at);
  return parse_kernel(line);
}

std::span<const std::string_view> launcher_signs() {
  static constexpr std::array<std::string_view, 16> kSigns = {
      kOpenMpiAbort, kMpichAbort, kSrun,   kSlurmstepd, kMpirun,    kMpirunName,
      kElastic,      kDeepSpeed,  kRay,    kShell,      kLightning, kUcx,
      kOpenMpi,      kOomKill,    kKilled, kVllm};
  return kSigns;
}

}  // namespace lockstep::trace
