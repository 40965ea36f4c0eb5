#include "verify/first_cause.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/failure_messages.h"
#include "trace/formats/log_lines.h"
#include "trace/run.h"
#include "verify/advice.h"
#include "verify/context.h"
#include "verify/described_notes.h"

namespace lockstep::verify {

namespace {

using trace::PeerFailure;
using trace::RankNote;
using NoteKind = RankNote::Kind;
using Says = RankNote::Says;

// In the order in which they explain the others.
enum class Weight : std::uint8_t {
  hardware,
  own_end,        // memory, a crash, an exception
  killed,         // from outside
  warning,        // of NCCL
  may_be_caught,  // an exception that much output follows
  in_the_kernel,  // it may still go on
  nccl_fails,     // an exception that says no more
  mismatch,       // ranks that called differently, of whom nobody is wrong for sure
  waits_for,      // a rank that did not come
  did_not_join,   // by PyTorch's analysis of dumps, Horovod, FSDP or JAX
  gone,           // by NCCL's RAS
  store_lost,
  lost,     // any other lost peer
  unclear,  // a warning of NCCL that need not have mattered
  behind,   // by NCCL's RAS, which asks while the job goes on
  timeout,
  ended_first,  // as a launcher saw it
  ended,
  stack,
};

std::optional<Weight> weight_of(PeerFailure failure) {
  switch (failure) {
    case PeerFailure::child_failed:
      return std::nullopt;
    case PeerFailure::call_timed_out:
      return Weight::timeout;
    case PeerFailure::calls_differ:
      return Weight::mismatch;
    case PeerFailure::barrier_not_met:
    case PeerFailure::store_not_reached:
    case PeerFailure::nodes_not_met:
    case PeerFailure::hccl_peer_missing:
    case PeerFailure::group_not_met:
    case PeerFailure::ranks_not_met:
      return Weight::waits_for;
    case PeerFailure::store_lost:
      return Weight::store_lost;
    case PeerFailure::barrier_lost:
    case PeerFailure::told_to_end:
    case PeerFailure::peer_unreachable:
    case PeerFailure::connection_lost:
      return Weight::lost;
  }
  return std::nullopt;
}

std::optional<Weight> weight_of(const RankNote& note) {
  switch (note.kind) {
    case NoteKind::gpu_fault:
      return Weight::hardware;
    case NoteKind::exception:
      if (trace::mentions_hardware(note.text)) return Weight::hardware;
      if (note.output_follows) return Weight::may_be_caught;
      return trace::only_says_nccl_failed(note.text) ? Weight::nccl_fails : Weight::own_end;
    case NoteKind::out_of_memory:
    case NoteKind::crashed:
      return Weight::own_end;
    case NoteKind::killed:
      return Weight::killed;
    case NoteKind::nccl_warning:
      if (trace::is_failure_of_its_own(note.text)) return Weight::warning;
      return trace::warns_of_a_peer(note.text) ? Weight::lost : Weight::unclear;
    case NoteKind::peer_lost:
      return weight_of(trace::peer_failure_in(note.text));
    case NoteKind::watchdog:
      return Weight::timeout;
    case NoteKind::ended:
      return note.says == Says::failed_first ? Weight::ended_first : Weight::ended;
    case NoteKind::analysis:
      return Weight::did_not_join;
    case NoteKind::ras:
      if (note.says == Says::gives_no_answer) return Weight::gone;
      return note.calls_behind > 0 ? std::optional(Weight::behind) : std::nullopt;
    case NoteKind::stack:
      if (note.says == Says::in_the_kernel) return Weight::in_the_kernel;
      return note.says == Says::where_it_was ? std::optional(Weight::stack) : std::nullopt;
    case NoteKind::caught:
    case NoteKind::gpu_warning:
    case NoteKind::calls:
    case NoteKind::contradiction:
      return std::nullopt;
  }
  return std::nullopt;
}

// What decides between notes of one weight: when torchrun saw the first failure of its node, how
// far a rank is behind (the farthest first).
std::pair<std::string_view, std::int64_t> order_in(const RankNote& note, Weight weight) {
  if (weight == Weight::ended_first) return {note.content, 0};
  // A watchdog that is stuck itself says less than one that names the call.
  if (weight == Weight::timeout)
    return {"", trace::timed_out_call_in(note.text).operation.empty() ? 1 : 0};
  if (weight == Weight::behind) return {"", -note.calls_behind};
  // Whoever ends the launcher ends the ranks, which then lose each other.
  if (weight == Weight::lost)
    return {"", trace::peer_failure_in(note.text) == PeerFailure::told_to_end ? 0 : 1};
  return {"", 0};
}

std::string headline_for(const trace::Run& run, const std::vector<trace::Rank>& missing,
                         const RankNote& note, Weight weight, const Places& waited) {
  switch (weight) {
    case Weight::killed:
      return fmt::format("{} was killed: {}", describe_subject(note), quote(note));
    case Weight::ended_first:
    case Weight::ended:
      return fmt::format("{} ended, and the log does not hold its reason: {}",
                         describe_subject(note), quote(note));
    case Weight::warning:
    case Weight::unclear:
      return fmt::format("{}: {}", describe_subject(note), quote(note));
    case Weight::waits_for:
      return describe_wait_for(run, note);
    case Weight::store_lost:
      return fmt::format(
          "{} lost the store, so the process that serves it ended first: rank 0, or its launcher",
          describe_subject(note));
    case Weight::lost:
      return describe_loss(run, missing, note, waited);
    case Weight::mismatch:
      return describe_mismatch(note);
    case Weight::did_not_join:
      return describe_analysis(run, note);
    case Weight::gone:
      return fmt::format("{} is gone or hangs, by NCCL's RAS: {}", describe_subject(note),
                         quote(note));
    case Weight::behind:
      return fmt::format("{} was {} behind when NCCL's RAS asked: {}", describe_subject(note),
                         plural(note.calls_behind, "call"), quote(note));
    case Weight::stack:
      return describe_stacks(run);
    case Weight::in_the_kernel:
      return describe_blocked(run, note);
    case Weight::timeout:
      return describe_timeout(run, missing, note);
    case Weight::may_be_caught:
      return fmt::format("{} raised an exception, after which the log goes on for long: {}",
                         describe_subject(note), quote(note));
    case Weight::hardware:
    case Weight::own_end:
    case Weight::nccl_fails:
      break;
  }
  const std::string_view ended = note.kind == NoteKind::out_of_memory ? "ran out of memory"
                                 : note.kind == NoteKind::crashed     ? "crashed"
                                 : note.kind == NoteKind::gpu_fault   ? "lost its GPU"
                                                                      : "raised an exception";
  return fmt::format("{} {}: {}", describe_subject(note), ended, quote(note));
}

Advice advice_for_places(const Places& waited) {
  if (waited.places.size() > 1)
    return {
        fmt::format("find why the ranks came to different {}: a branch that some take, a loop that "
                    "ended early on one, or one message more than its peer expects",
                    waited.line.empty() ? "lines" : "calls"),
        ""};
  if (waited.are_all)
    return {
        "one of them may have made fewer calls before, or other ones: the calls of the next run "
        "show it (`lockstep record`); if they are the same, the network failed",
        ""};
  return {
      "see what the ranks that wrote nothing did: a stack of each while the job hangs "
      "(`py-spy dump --pid PID`), or the calls of the next run (`lockstep record`)",
      ""};
}

Advice advice_for_absent(const RankNote& note) {
  if (trace::peer_failure_in(note.text) == PeerFailure::store_not_reached) {
    const std::string host = peer_in(note.text);
    const auto port = trace::number_after(trace::store_address_in(note.text), ", ");
    return {"see whether rank 0 runs, and whether MASTER_ADDR and MASTER_PORT are its own",
            host.empty() || !port ? "" : fmt::format("nc -vz {} {}", host, *port)};
  }
  if (const auto met = trace::arrivals_in(note.text)) {
    if (met->came > met->expected)
      return {
          "end all processes of earlier starts, use another port or a new file to meet, and "
          "see that each process has a RANK of its own and WORLD_SIZE is their number",
          ""};
    if (!met->group.empty())
      return {
          "let all ranks of the job call new_group(), also those that are not in the group, "
          "in the same order; if one did, read its output and see where it is",
          ""};
  }
  return {"read the output of the rank that did not come; if it is alive, see where it is", ""};
}

Advice advice_by_analysis(const RankNote& note) {
  if (note.says == Says::did_not_submit)
    return {
        "find why these ranks did not compute the tensors: a branch that their data skip, or "
        "fewer batches; let them submit zeros, or see where they are",
        ""};
  if (note.says == Says::missed_by_jax)
    return {
        "read the output of these tasks: who still wrote after that had not crashed, and was "
        "only late; if one is alive, see where it is",
        ""};
  if (note.says == Says::changed_order) return {std::string(kRunSameUnits), ""};
  return {"see where these ranks are, or give `lockstep verify` the dumps themselves", ""};
}

Advice advice_for_loss(const RankNote& note, const Places& waited) {
  const PeerFailure failure = trace::peer_failure_in(note.text);
  if (!waited.places.empty()) return advice_for_places(waited);
  if (is_interrupt(note))
    return {
        "if the job hung, look at it before it is ended the next time: a stack of each rank "
        "(`py-spy dump --pid PID`), or its calls (`lockstep record`)",
        ""};
  if (failure == PeerFailure::told_to_end)
    return {"ask the scheduler (time limit, preemption), and look for a failure on other nodes",
            ""};
  const std::string peer = peer_in(note.text);
  if (failure == PeerFailure::peer_unreachable)
    return {
        "look at the network between the two, and at the interface that was chosen "
        "(NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)",
        peer.empty() ? "" : fmt::format("ip route get {}", peer)};
  return {
      "read the output of the processes there; if they say nothing, one may have finished "
      "before the others (fewer iterations), or the network failed",
      peer.empty() ? "" : fmt::format("ssh {} dmesg -T", peer)};
}

Advice advice_for_timeout(const RankNote& note) {
  const std::string_view library = trace::timed_out_call_in(note.text).library;
  const std::string_view variables = recorder_variables(library.empty() ? "nccl" : library);
  if (variables.empty())
    return {
        "let the next run record its calls (`lockstep record`), and give `lockstep verify` "
        "the records",
        ""};
  return {"let the next run record its calls, and give `lockstep verify` the dumps",
          fmt::format("export {}", variables)};
}

Advice advice_for(const RankNote& note, Weight weight, const Places& waited) {
  switch (weight) {
    case Weight::killed:
      if (contains_text(note.text, " CANCELLED AT "))
        return {"ask the scheduler: time limit, preemption, or somebody's scancel", ""};
      return {"look at the logs of the scheduler and of the kernel: memory, time limit, preemption",
              fmt::format("{}dmesg -T | grep -i 'killed process'", command_at(note.host))};
    case Weight::nccl_fails:
      return {"NCCL says why with NCCL_DEBUG=INFO in the job's environment",
              "export NCCL_DEBUG=INFO"};
    case Weight::waits_for:
      return advice_for_absent(note);
    case Weight::store_lost:
      return {"read the output of the rank that did not come; if it is alive, see where it is", ""};
    case Weight::mismatch:
      return {
          "find why their code or their data took different ways: the call's place in the "
          "program is in the traceback",
          ""};
    case Weight::did_not_join:
      return advice_by_analysis(note);
    case Weight::gone:
      return {"read the output of that process, and see whether its node is up", ""};
    case Weight::behind:
      return {
          "ask again in a minute: if the numbers are the same, see where that rank is",
          note.pid == trace::kNone ? "ncclras -v" : fmt::format("py-spy dump --pid {}", note.pid)};
    case Weight::in_the_kernel:
      return advice_about_blocked(note);
    case Weight::stack:
      return {"take the stacks again in a minute: who has not moved is stuck, or waits", ""};
    case Weight::lost:
      return advice_for_loss(note, waited);
    case Weight::timeout:
      return advice_for_timeout(note);
    case Weight::ended_first:
    case Weight::ended:
      return {"read that process' own output: `torchrun --log-dir logs --redirects 3` keeps it",
              ""};
    case Weight::hardware:
    case Weight::own_end:
    case Weight::may_be_caught:
    case Weight::warning:
    case Weight::unclear:
      return advice_about(note.text, note.host);
  }
  return {};
}

}  // namespace

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
  const auto key = [&](const RankNote& note, Weight w) {
    return std::tuple(w, order_in(note, w), std::string_view(note.location.file),
                      note.location.line);
  };
  for (const RankNote& note : run.notes) {
    const std::optional<Weight> own = weight_of(note);
    if (!own || (best != nullptr && key(note, *own) >= key(*best, *weight))) continue;
    best = &note;
    weight = own;
  }
  if (best == nullptr) return;
  // The traces say more: whose process ended while others were in a call with it.
  const auto is_killed = [](const Finding& f) { return f.rule == RuleId::rank_killed; };
  if (*weight == Weight::stack &&
      std::any_of(report.findings.begin(), report.findings.end(), is_killed))
    return;
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
  const PeerFailure failure =
      *weight == Weight::lost ? trace::peer_failure_in(best->text) : PeerFailure::child_failed;
  const bool ends_waits =
      failure == PeerFailure::connection_lost || failure == PeerFailure::told_to_end;
  const Places waited = ends_waits ? places_of_timeouts(run) : Places{};
  const Advice advice = advice_for(*best, *weight, waited);
  finding->headline = headline_for(run, report.ranks_missing, *best, *weight, waited);
  if (!advice.fix.empty()) finding->fix = advice.fix;
  finding->next = advice.next;
}

}  // namespace lockstep::verify
