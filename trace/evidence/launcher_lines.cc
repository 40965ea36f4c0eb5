#include "trace/evidence/launcher_lines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "base/text.h"
#include "trace/formats/format.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

using NoteKind = RankNote::Kind;

constexpr std::string_view kSrun = "srun: error: ";
constexpr std::string_view kMpirun = "noticed that process rank ";
constexpr std::string_view kMpirunName = "Process name: [";
constexpr std::string_view kElastic = "failed (exitcode: ";
constexpr std::string_view kDeepSpeed = "exits with return code = ";
constexpr std::string_view kRay = "A worker died or was killed";
constexpr std::string_view kCancelled = " CANCELLED AT ";

constexpr std::string_view kDockerLog = R"({"log":")";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

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
  return own ? NoteKind::crashed : NoteKind::peer_lost;
}

// "0-2,5" up to the first other character. At most as many ranks as a person reads.
std::vector<Rank> tasks_in(std::string_view list) {
  constexpr std::size_t kMost = 64;
  std::vector<Rank> out;
  while (!list.empty() && is_digit(list.front())) {
    std::int32_t first = 0;
    const char* const end = list.data() + list.size();
    const char* at = std::from_chars(list.data(), end, first).ptr;
    std::int32_t last = first;
    if (at != end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
    if (!is_possible_rank(first, kMaxWorldSize) || !is_possible_rank(last, kMaxWorldSize))
      return out;
    for (std::int32_t r = first; r <= last && out.size() < kMost; ++r) out.emplace_back(r);
    if (at != end && *at == ',') ++at;
    list.remove_prefix(static_cast<std::size_t>(at - list.data()));
  }
  return out;
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
       {"Aborted", NoteKind::peer_lost},
       {"Terminated", NoteKind::peer_lost},
       {"Exited with exit code", NoteKind::peer_lost}}};
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
  out.kind = NoteKind::peer_lost;
  out.ends_others = true;
  out.exit_code = 1;
  return out;
}

// An exit code as Python has it: that of a signal is negative. Nothing for other ends.
std::optional<LauncherLine> ended_by_signal(std::string_view text, std::int64_t code) {
  if (code >= 0) return std::nullopt;
  LauncherLine out;
  out.text = text;
  out.kind = kind_of_signal(-code);
  out.ends_others = true;
  return out.kind == NoteKind::peer_lost ? std::nullopt : std::optional(out);
}

std::optional<LauncherLine> parse_elastic(std::string_view text) {
  auto out = ended_by_signal(text, number_after(text, kElastic).value_or(0));
  if (out) out->pid = number_after(text, "(pid: ").value_or(kNone);
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
  if (const std::size_t at = line.find("oom-kill:constraint="); at != kNpos) {
    out.text = line.substr(at);
    out.pid = number_after(out.text, ",pid=").value_or(kNone);
    return out;
  }
  const std::size_t at = line.find("ut of memory: Kill");
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

// The end of "[31m" of a colour; the size of the text where it does not end.
std::size_t end_of_escape(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size() || text[at + 1] != '[') return at + 1;
  std::size_t end = at + 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

// Without "2025-01-31T12:37:42.149692541Z ", and without what containerd writes behind it: "stderr
// F ".
std::string_view after_timestamp(std::string_view line) {
  constexpr std::string_view kShape = "0000-00-00T00:00:00";
  if (line.size() <= kShape.size()) return line;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] == '0' ? !is_digit(line[i]) : kShape[i] != line[i]) return line;
  }
  const std::size_t end = line.find(' ');
  constexpr std::size_t kLongest = 40;
  if (end == kNpos || end > kLongest) return line;
  line.remove_prefix(end + 1);
  for (const std::string_view stream : {"stderr F ", "stdout F "})
    if (line.starts_with(stream)) line.remove_prefix(stream.size());
  return line;
}

// What a process wrote, from a line of Docker's log. The text ends at the first quote that is not
// escaped.
void unpack_docker_line(std::string_view line, std::string& out) {
  out.clear();
  for (std::size_t at = kDockerLog.size(); at < line.size() && line[at] != '"'; ++at) {
    if (line[at] != '\\' || at + 1 == line.size()) {
      out += line[at];
      continue;
    }
    const char escaped = line[++at];
    if (escaped == 'n' || escaped == 'r') continue;  // the end of the line
    out += escaped == 't' ? '\t' : escaped;
  }
}

}  // namespace

std::optional<LauncherLine> parse_launcher_line(std::string_view line) {
  // The cheap test first: most lines are other ones.
  const auto has = [&](std::string_view part) {
    return memmem(line.data(), line.size(), part.data(), part.size()) != nullptr;
  };
  if (!has("exit") && !has("ill") && !has("error: ") && !has(kMpirunName)) return std::nullopt;
  if (const std::size_t at = line.find(kSrun); at != kNpos) return parse_srun(line.substr(at));
  if (const std::size_t at = line.find("slurmstepd: error: "); at != kNpos)
    return parse_slurmstepd(line.substr(at));
  if (const std::size_t at = line.find(kMpirun); at != kNpos) return parse_mpirun(line.substr(at));
  if (const std::size_t at = line.find(kMpirunName); at != kNpos)
    return parse_mpirun_name(line.substr(at));
  if (const std::size_t at = line.find(kElastic); at != kNpos)
    return parse_elastic(line.substr(at));
  if (const std::size_t at = line.find(kDeepSpeed); at != kNpos) {
    const std::string_view text = line.substr(at);
    return ended_by_signal(text, number_after(text, kDeepSpeed).value_or(0));
  }
  if (const std::size_t at = line.find(kRay); at != kNpos) return parse_ray(line.substr(at));
  return parse_kernel(line);
}

bool has_launcher_line(std::string_view text) {
  static constexpr std::array<std::string_view, 10> kSigns = {
      kSrun,      "slurmstepd: error: ", kMpirun,         kMpirunName,           kElastic, kRay,
      kDeepSpeed, "Killed process ",     "Kill process ", "oom-kill:constraint="};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](auto sign) { return contains_text(text, sign); });
}

std::optional<LabelledLine> parse_label(std::string_view line) {
  const std::size_t first = line.find_first_not_of(' ');
  if (first == kNpos) return std::nullopt;
  line.remove_prefix(first);
  const bool of_mpirun = line.front() == '[';
  if (of_mpirun) {
    const std::size_t close = line.find("]<std");
    constexpr std::size_t kLongest = 128;
    if (close == kNpos || close > kLongest) return std::nullopt;
    const std::size_t comma = line.rfind(',', close);
    const std::size_t end = line.find(">:", close);
    if (comma == kNpos || end == kNpos) return std::nullopt;
    const std::vector<Rank> rank = tasks_in(line.substr(comma + 1, close - comma - 1));
    if (rank.size() != 1) return std::nullopt;
    std::string_view text = line.substr(end + 2);
    // PMIx writes a blank behind the label, Open MPI before version 5 none.
    if (line.substr(0, close).find('@') != kNpos && text.starts_with(' ')) text.remove_prefix(1);
    return LabelledLine{rank[0], text};
  }
  const std::size_t colon = line.find(": ");
  constexpr std::size_t kMostDigits = 6;
  if (colon == 0 || colon == kNpos || colon > kMostDigits) return std::nullopt;
  if (!std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon), is_digit))
    return std::nullopt;
  const std::vector<Rank> rank = tasks_in(line.substr(0, colon));
  if (rank.size() != 1) return std::nullopt;
  return LabelledLine{rank[0], line.substr(colon + 2)};
}

bool is_docker_log(std::string_view bytes) { return bytes.starts_with(kDockerLog); }

std::string_view plain_text(std::string_view line, std::string& buffer) {
  if (line.starts_with(kDockerLog)) {
    unpack_docker_line(line, buffer);
    return buffer;
  }
  if (line.find('\x1b') != kNpos) {
    buffer.clear();
    for (std::size_t at = 0; at < line.size();) {
      if (line[at] == '\x1b') {
        at = end_of_escape(line, at);
      } else {
        buffer += line[at++];
      }
    }
    line = buffer;
  }
  return after_timestamp(line);
}

}  // namespace lockstep::trace
