#include "verify/first_cause.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/text.h"
#include "trace/evidence/exceptions.h"
#include "trace/formats/log_lines.h"
#include "trace/run.h"
#include "verify/context.h"

namespace lockstep::verify {

namespace {

using trace::RankNote;
using NoteKind = RankNote::Kind;

constexpr std::string_view kUniqueId = "setting up NCCL communicator and retr";
constexpr std::string_view kStoreBarrier = "store based barrier";
constexpr std::string_view kMonitored = "failed to pass monitoredBarrier";
constexpr std::string_view kClients = "waiting for clients";
constexpr std::string_view kStoreLost = "flag on TCPStore";

bool mentions_any(std::string_view text, std::initializer_list<std::string_view> signs) {
  return std::any_of(signs.begin(), signs.end(),
                     [&](std::string_view sign) { return contains_text(text, sign); });
}

// Exceptions that only say that NCCL failed; its own warnings say why.
bool only_says_nccl_failed(std::string_view text) {
  return mentions_any(
      text, {"unhandled cuda error", "unhandled system error", "internal error - please report",
             "ncclInternalError", "ncclUnhandledCudaError", "NCCL Error "});
}

// NCCL's warnings that are no consequence of another process' end.
bool is_own_warning(std::string_view text) {
  return mentions_any(
      text, {"Cuda failure", "CUDA calloc", "Got completion", "async event", "Duplicate GPU",
             "ismatch", "no socket interface", "No space left on device"});
}

// In the order in which they explain the others.
enum class Weight : std::uint8_t {
  hardware,
  own_end,        // memory, a crash, an exception
  killed,         // from outside
  warning,        // of NCCL
  may_be_caught,  // an exception that much output follows
  nccl_fails,     // an exception that says no more
  waits_for,      // a rank that did not come
  store_lost,
  lost,  // any other lost peer
  timeout,
  ended_first,  // as a launcher saw it
  ended,
};

std::optional<Weight> weight_of(const RankNote& note) {
  switch (note.kind) {
    case NoteKind::gpu_fault:
      return Weight::hardware;
    case NoteKind::exception:
      if (trace::mentions_hardware(note.text)) return Weight::hardware;
      if (note.output_follows) return Weight::may_be_caught;
      return only_says_nccl_failed(note.text) ? Weight::nccl_fails : Weight::own_end;
    case NoteKind::out_of_memory:
    case NoteKind::crashed:
      return Weight::own_end;
    case NoteKind::killed:
      return Weight::killed;
    case NoteKind::nccl_warning:
      return is_own_warning(note.text) ? Weight::warning : Weight::lost;
    case NoteKind::peer_lost:
      if (contains_text(note.text, "ChildFailedError")) return std::nullopt;  // of the launcher
      if (contains_text(note.text, "Watchdog caught")) return Weight::timeout;
      if (mentions_any(note.text, {kUniqueId, kStoreBarrier, kMonitored, kClients}))
        return Weight::waits_for;
      return contains_text(note.text, kStoreLost) ? Weight::store_lost : Weight::lost;
    case NoteKind::watchdog:
      return Weight::timeout;
    case NoteKind::ended:
      return note.text.starts_with("the first") ? Weight::ended_first : Weight::ended;
    case NoteKind::caught:
    case NoteKind::gpu_warning:
    case NoteKind::stack:
    case NoteKind::ras:
    case NoteKind::calls:
    case NoteKind::contradiction:
      return std::nullopt;
  }
  return std::nullopt;
}

// "node4" of "closed by remote peer node4<42830>", "10.0.0.4" of "[10.0.0.4]:8021"; empty where the
// text names no peer, or one that a shell could take for something else.
std::string peer_in(std::string_view text) {
  std::string_view peer;
  for (const std::string_view before :
       {"remote peer ", "recv from ", "send to ", "Connect to ", "from peer "}) {
    peer = trace::word_after(text, before);
    if (!peer.empty()) break;
  }
  if (peer.empty()) {
    const std::size_t open = text.rfind('[');
    const std::size_t close = open == std::string_view::npos ? open : text.find("]:", open);
    if (close != std::string_view::npos) peer = text.substr(open + 1, close - open - 1);
  }
  peer = peer.substr(0, peer.find('<'));
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  };
  const bool usable = !peer.empty() && !peer.starts_with('-') && peer != "localhost" &&
                      !peer.starts_with("127.") && peer.size() <= 64 &&
                      std::all_of(peer.begin(), peer.end(), plain);
  return usable ? std::string(peer) : "";
}

std::string shown(const RankNote& note) {
  constexpr std::size_t kShown = 200;
  std::string out = printable(std::string_view(note.text).substr(0, kShown));
  if (note.text.size() > kShown) out += " …";
  return fmt::format("{} ({})", out, printable(note.location.str()));
}

// Who waits in one call, by the watchdog's messages: the ranks that wrote the same as `note`. Where
// few others are known to be there, these are named.
std::string describe_timeout(const trace::Run& run, const std::vector<trace::Rank>& missing,
                             const RankNote& note) {
  const auto call_of = [](std::string_view text) {
    return std::pair(trace::number_after(text, "SeqNum="), trace::word_after(text, "OpType="));
  };
  const auto own = call_of(note.text);
  std::vector<trace::Rank> ranks;
  for (const RankNote& other : run.notes) {
    const bool same = other.kind == NoteKind::watchdog && call_of(other.text) == own;
    if (same && (ranks.empty() || ranks.back() != other.rank)) ranks.push_back(other.rank);
  }
  if (own.second.empty()) return fmt::format("{}: {}", describe_subject(note), shown(note));
  std::vector<trace::Rank> silent;
  std::set_difference(missing.begin(), missing.end(), ranks.begin(), ranks.end(),
                      std::back_inserter(silent));
  const bool few_are_silent = !silent.empty() && silent.size() <= ranks.size();
  return fmt::format(
      "{} gave up waiting in {}{}; {}",
      note.rank.value == trace::kNone ? describe_subject(note) : describe_ranks(ranks),
      printable(own.second), own.first ? fmt::format(" (call {})", *own.first) : "",
      few_are_silent ? fmt::format("{} wrote nothing of it", describe_ranks(silent))
                     : std::string("the log does not show who did not come"));
}

// Rank 0 makes the id by which the others find each other.
std::string describe_wait_for(const trace::Run& run, const RankNote& note) {
  // "Rank 3 failed to pass monitoredBarrier in 600000 ms", "Ranks 1, 2 failed to pass …".
  if (const std::size_t at = note.text.find(kMonitored); at != std::string::npos) {
    const std::size_t who = note.text.rfind("Rank", at);
    const std::string others =
        who == std::string::npos
            ? std::string("others")
            : fmt::format("r{}",
                          trimmed(std::string_view(note.text).substr(who + 1, at - who - 1)));
    return fmt::format("{} waited in monitored_barrier() for {}, which did not come",
                       describe_subject(note), printable(others));
  }
  if (!contains_text(note.text, kUniqueId)) {
    auto world = trace::number_after(note.text, "world_size=");
    auto came = trace::number_after(note.text, "worker_count=");
    // "waiting for clients. 1/2 clients joined."
    if (!came) came = trace::number_after(note.text, "clients. ");
    if (!world && came) world = trace::number_after(note.text, fmt::format("{}/", *came));
    if (world && came)
      return fmt::format("{} waited for the other ranks to start: {} of {} came",
                         describe_subject(note), *came, *world);
    return fmt::format("{} waited for the other ranks to start", describe_subject(note));
  }
  std::vector<trace::Rank> ranks;
  for (const RankNote& other : run.notes) {
    const bool same = other.kind == NoteKind::peer_lost && contains_text(other.text, kUniqueId);
    if (same && other.rank.value != trace::kNone && (ranks.empty() || ranks.back() != other.rank))
      ranks.push_back(other.rank);
  }
  const auto root = trace::number_after(note.text, "ncclUniqueId from [");
  return fmt::format(
      "{} waited for rank {} of their group, which did not come to the group's first call",
      ranks.empty() ? describe_subject(note) : describe_ranks(ranks), root.value_or(0));
}

std::string headline_for(const trace::Run& run, const std::vector<trace::Rank>& missing,
                         const RankNote& note, Weight weight) {
  switch (weight) {
    case Weight::killed:
      return fmt::format("{} was killed: {}", describe_subject(note), shown(note));
    case Weight::ended_first:
    case Weight::ended:
      return fmt::format("{} ended, and the log does not hold its reason: {}",
                         describe_subject(note), shown(note));
    case Weight::warning:
      return fmt::format("{}: {}", describe_subject(note), shown(note));
    case Weight::waits_for:
      return describe_wait_for(run, note);
    case Weight::store_lost:
      return fmt::format(
          "{} lost the store, so the process that serves it ended first: rank 0, or its launcher",
          describe_subject(note));
    case Weight::lost: {
      if (contains_text(note.text, "got signal"))
        return fmt::format("{} was told to end: {}", describe_subject(note), shown(note));
      const std::string peer = peer_in(note.text);
      return peer.empty() ? fmt::format("{} lost a peer: {}", describe_subject(note), shown(note))
                          : fmt::format(
                                "{} lost the connection to {}: a process there ended first, or the "
                                "network failed ({})",
                                describe_subject(note), peer, printable(note.location.str()));
    }
    case Weight::timeout:
      return describe_timeout(run, missing, note);
    case Weight::may_be_caught:
      return fmt::format("{} raised an exception, after which the log goes on for long: {}",
                         describe_subject(note), shown(note));
    case Weight::hardware:
    case Weight::own_end:
    case Weight::nccl_fails:
      break;
  }
  const std::string_view ended = note.kind == NoteKind::out_of_memory ? "ran out of memory"
                                 : note.kind == NoteKind::crashed     ? "crashed"
                                 : note.kind == NoteKind::gpu_fault   ? "lost its GPU"
                                                                      : "raised an exception";
  return fmt::format("{} {}: {}", describe_subject(note), ended, shown(note));
}

Advice advice_for(const RankNote& note, Weight weight) {
  constexpr std::string_view kRecorder =
      "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1";
  switch (weight) {
    case Weight::killed:
      if (contains_text(note.text, " CANCELLED AT "))
        return {"ask the scheduler: time limit, preemption, or somebody's scancel", ""};
      return {"look at the logs of the scheduler and of the kernel: memory, time limit, preemption",
              fmt::format(
                  "{}dmesg -T | grep -i 'killed process'",
                  note.host.empty()
                      ? ""
                      : fmt::format("ssh {} ", peer_in(fmt::format("from peer {}", note.host))))};
    case Weight::nccl_fails:
      return {"NCCL says why with NCCL_DEBUG=INFO in the job's environment",
              "export NCCL_DEBUG=INFO"};
    case Weight::waits_for:
    case Weight::store_lost:
      return {"read the output of the rank that did not come; if it is alive, see where it is", ""};
    case Weight::lost: {
      if (contains_text(note.text, "got signal"))
        return {"ask the scheduler (time limit, preemption), and look for a failure on other nodes",
                ""};
      const std::string peer = peer_in(note.text);
      return {"read the output of the processes there; if they say nothing, look at the network",
              peer.empty() ? "" : fmt::format("ssh {} dmesg -T", peer)};
    }
    case Weight::timeout:
      return {"let the next run record its calls, and give `lockstep verify` the dumps",
              std::string(kRecorder)};
    case Weight::ended_first:
    case Weight::ended:
      return {"read that process' own output: `torchrun --log-dir logs --redirects 3` keeps it",
              ""};
    case Weight::hardware:
    case Weight::own_end:
    case Weight::may_be_caught:
    case Weight::warning:
      return advice_about(note.text, note.host);
  }
  return {};
}

}  // namespace

std::string describe_subject(const RankNote& note) {
  if (note.rank.value != trace::kNone) return describe_ranks({note.rank});
  const std::string on = note.host.empty() ? "" : fmt::format(" on {}", printable(note.host));
  if (note.pid != trace::kNone) return fmt::format("process {}{}", note.pid, on);
  return fmt::format("a rank{} that the log does not name", on);
}

Advice advice_about(std::string_view text, const std::string& host) {
  const std::string there = peer_in(fmt::format("from peer {}", host));
  const std::string at = there.empty() ? "" : fmt::format("ssh {} ", there);
  if (contains_text(text, "by GPU node-"))  // ROCm's words
    return {"the GPU or its driver hangs: reset it, or leave out the node",
            at + "rocm-smi --showrasinfo"};
  if (trace::mentions_hardware(text))
    return {"the GPU is defective or lost, not the program: reset it, or leave out the node",
            at + "nvidia-smi -q -d ECC,ROW_REMAPPER"};
  if (trace::mentions_unused_parameters(text)) return {};
  if (contains_text(text, "DataLoader worker")) {
    const bool killed = contains_text(text, "signal: Killed");
    return {
        "a worker of its data loader ended: mostly for memory of the host, or shared memory that "
        "is too small (docker run --shm-size)",
        at + (killed ? "dmesg -T | grep -i 'killed process'" : "df -h /dev/shm")};
  }
  if (trace::mentions_memory(text))
    return {
        "use less memory there (smaller micro-batches, activation checkpointing), or find out "
        "why this rank needs more than the others",
        ""};
  if (contains_text(text, "return code = -7") || contains_text(text, "Bus error"))
    return {"a bus error is mostly shared memory that is too small (docker run --shm-size)",
            at + "df -h /dev/shm"};
  if (contains_text(text, "Got completion") || contains_text(text, "async event"))
    return {"the network adapter reports it: check the link, the cable and the switch of both ends",
            at + "ibstat"};
  if (contains_text(text, "Duplicate GPU"))
    return {"give each process a GPU of its own: torch.cuda.set_device(local_rank)", ""};
  return {};
}

void tell_first_cause(const trace::Run& run, Report& report) {
  // Who only lost a peer: the error tells no cause yet.
  const auto is_victim = [](const Finding& f) {
    return f.rule == RuleId::rank_exception && f.culprits.empty() && f.consequences.empty();
  };
  const bool told =
      std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& f) {
        return (f.severity != Severity::note && !is_victim(f)) || !f.headline.empty();
      });
  if (told || report.findings.empty()) return;
  const RankNote* best = nullptr;
  std::optional<Weight> weight;
  const auto key = [](const RankNote& note, Weight w) {
    return std::tuple(w, std::string_view(note.location.file), note.location.line);
  };
  for (const RankNote& note : run.notes) {
    const std::optional<Weight> own = weight_of(note);
    if (!own || (best != nullptr && key(note, *own) >= key(*best, *weight))) continue;
    best = &note;
    weight = own;
  }
  if (best == nullptr) return;
  // The finding that shows the note: that of its rank, else the one about all other notes.
  const auto shows = [&](const Finding& f) {
    const bool killed = f.rule == RuleId::rank_killed;
    return std::find(f.ranks.begin(), f.ranks.end(), best->rank) != f.ranks.end() &&
           (killed || f.rule == RuleId::missing_rank);
  };
  auto finding = std::find_if(report.findings.begin(), report.findings.end(), is_victim);
  if (finding == report.findings.end())
    finding = std::find_if(report.findings.begin(), report.findings.end(), shows);
  if (finding == report.findings.end()) {
    finding = std::find_if(report.findings.begin(), report.findings.end(),
                           [](const Finding& f) { return f.rule == RuleId::job_evidence; });
  }
  if (finding == report.findings.end()) finding = report.findings.begin();
  const Advice advice = advice_for(*best, *weight);
  finding->headline = headline_for(run, report.ranks_missing, *best, *weight);
  if (!advice.fix.empty()) finding->fix = advice.fix;
  finding->next = advice.next;
}

}  // namespace lockstep::verify
