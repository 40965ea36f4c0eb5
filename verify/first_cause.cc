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

#include "base/quantities.h"
#include "base/text.h"
#include "trace/evidence/failure_messages.h"
#include "trace/formats/log_lines.h"
#include "trace/run.h"
#include "verify/advice.h"
#include "verify/context.h"

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
  return {"", 0};
}

std::string shown(std::string_view text, const Location& location) {
  constexpr std::size_t kShown = 200;
  return fmt::format("{}{} ({})", printable(text.substr(0, kShown)),
                     text.size() > kShown ? " …" : "", printable(location.str()));
}

std::string shown(const RankNote& note) {
  if (note.raised_at.empty()) return shown(note.text, note.location);
  return shown(note.text,
               {fmt::format("{}; {}", note.raised_at, note.location.file), note.location.line});
}

// The ranks that notes of a kind are about; sorted.
template <class IsOfKind>
std::vector<trace::Rank> ranks_that(const trace::Run& run, IsOfKind&& is_of_kind) {
  std::vector<trace::Rank> out;
  for (const RankNote& note : run.notes)
    if (is_of_kind(note)) out.push_back(note.rank);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Who waits in one call, by the watchdog's messages: the ranks that wrote the same as `note`. Where
// few others are known to be there, these are named.
std::string describe_timeout(const trace::Run& run, const std::vector<trace::Rank>& missing,
                             const RankNote& note) {
  const trace::TimedOutCall call = trace::timed_out_call_in(note.text);
  const std::vector<trace::Rank> ranks = ranks_that(run, [&](const RankNote& other) {
    if (other.kind != NoteKind::watchdog) return false;
    const trace::TimedOutCall its = trace::timed_out_call_in(other.text);
    return its.seq == call.seq && its.operation == call.operation;
  });
  if (call.operation.empty()) return fmt::format("{}: {}", describe_subject(note), shown(note));
  std::vector<trace::Rank> silent;
  std::set_difference(missing.begin(), missing.end(), ranks.begin(), ranks.end(),
                      std::back_inserter(silent));
  const bool few_are_silent = !silent.empty() && silent.size() <= ranks.size();
  const bool all_are_there =
      silent.empty() && ranks.size() > 1 &&
      std::all_of(run.ranks.begin(), run.ranks.end(), [&](const trace::RankTrace& trace) {
        return std::binary_search(ranks.begin(), ranks.end(), trace.rank);
      });
  const std::string who_is_not =
      few_are_silent ? fmt::format("{} wrote nothing of it", describe_ranks(silent))
      : all_are_there
          ? "the log names no other: another one did not come, or a device or the network is stuck"
          : "the log does not show who did not come";
  // Where one of them made the call, if its watchdog says so.
  const auto made = std::find_if(run.notes.begin(), run.notes.end(), [&](const RankNote& other) {
    return other.says == Says::where_it_called &&
           std::find(ranks.begin(), ranks.end(), other.rank) != ranks.end();
  });
  return fmt::format(
      "{} gave up waiting in {}{}{}; {}",
      note.rank.value == trace::kNone ? describe_subject(note) : describe_ranks(ranks),
      printable(call.operation), call.seq ? fmt::format(" (call {})", *call.seq) : "",
      made == run.notes.end() ? "" : fmt::format(", made in {}", printable(made->content)),
      who_is_not);
}

// Where each process was, of stacks alone: who is elsewhere than most.
std::string describe_stacks(const trace::Run& run) {
  std::map<std::string, std::vector<const RankNote*>> places;
  for (const RankNote& note : run.notes) {
    if (note.says == Says::where_it_was) places[note.content].push_back(&note);
  }
  const auto who = [](const std::vector<const RankNote*>& notes) {
    std::vector<trace::Rank> ranks;
    for (const RankNote* note : notes)
      if (note->rank.value != trace::kNone) ranks.push_back(note->rank);
    if (ranks.size() == notes.size()) return describe_ranks(ranks);
    return notes.size() == 1 ? describe_subject(*notes[0])
                             : plural(notes.size(), "process", "processes");
  };
  std::vector<std::pair<std::string, std::vector<const RankNote*>>> by_size(places.begin(),
                                                                            places.end());
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  constexpr std::size_t kShown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(by_size.size(), kShown); ++i) {
    const auto& [place, notes] = by_size[i];
    out += fmt::format("{}{} {} in {}", i == 0 ? "" : "; ", who(notes),
                       notes.size() == 1 ? "was" : "were", printable(place));
  }
  if (by_size.size() > kShown)
    out += fmt::format("; {} elsewhere", plural(by_size.size() - kShown, "other place"));
  return out;
}

std::string describe_mismatch(const RankNote& note) {
  const auto ranks = trace::differing_ranks_in(note.text);
  if (!ranks) return fmt::format("ranks made different calls: {}", shown(note));
  return fmt::format("ranks {} and {} made different calls: {}", ranks->one, ranks->other,
                     shown(note));
}

// The ranks of the same report of PyTorch's analysis, or of the same tensors by Horovod or FSDP.
std::string describe_analysis(const trace::Run& run, const RankNote& note) {
  if (note.rank.value == trace::kNone) return shown(note);
  const std::vector<trace::Rank> ranks = ranks_that(run, [&](const RankNote& other) {
    return other.kind == note.kind && other.text == note.text;
  });
  if (note.says == Says::did_not_submit)
    return fmt::format("{} did not submit, by Horovod, {}", describe_ranks(ranks),
                       shown(note.content, note.location));
  if (note.says == Says::missed_by_jax)
    return fmt::format("{}, by JAX's coordination service, {}", describe_ranks(ranks),
                       shown(note.content, note.location));
  if (note.says == Says::changed_order)
    return fmt::format(
        "{} ran FSDP units in another order than in the first iteration: {}", describe_ranks(ranks),
        shown(note.content.empty() ? "FullyShardedDataParallel warns of it" : note.content,
              note.location));
  return fmt::format("{}, by torchfrtrace, {}", describe_ranks(ranks),
                     shown(note.content, note.location));
}

std::string describe_hccl_wait(const RankNote& note) {
  const trace::HcclWait wait = trace::hccl_wait_in(note.text).value_or(trace::HcclWait{});
  const std::string peer = wait.peer ? fmt::format("rank {} of its group", *wait.peer) : "a peer";
  return fmt::format("{} waited for {}{} (HCCL{}), which did not come in time{} ({})",
                     describe_subject(note), peer, wait.to_connect ? " to connect" : "",
                     wait.call.empty() ? "" : fmt::format(", in {}", printable(wait.call)),
                     wait.device.empty()
                         ? ""
                         : fmt::format("; HCCL says of device {}: {}", printable(wait.device),
                                       printable(wait.happened)),
                     printable(note.location.str()));
}

// Of the barrier in which all ranks start or create a process group.
std::string describe_arrivals(const trace::Run& run, const RankNote& note) {
  auto met = trace::arrivals_in(note.text);
  if (!met) return fmt::format("{} waited for the other ranks to start", describe_subject(note));
  const std::vector<trace::Rank> ranks = ranks_that(run, [&](const RankNote& other) {
    const auto its = trace::arrivals_in(other.text);
    if (other.kind != NoteKind::peer_lost || !its || its->group != met->group ||
        its->expected != met->expected)
      return false;
    met->came = std::max(met->came, its->came);  // those who gave up first saw fewer
    return other.rank.value != trace::kNone;
  });
  std::string purpose =
      met->group.empty() ? "start" : fmt::format("create process group {}", printable(met->group));
  if (!note.raised_at.empty()) purpose += fmt::format(" ({})", printable(note.raised_at));
  if (met->came > met->expected)
    return fmt::format(
        "{} waited to {}, and {} processes came where {} were to: they are of two starts of the "
        "job, or several have one rank",
        describe_subject(note), purpose, met->came, met->expected);
  const std::string who = ranks.empty() ? describe_subject(note) : describe_ranks(ranks);
  // Where all who came say so, the others are known.
  if (met->are_ranks && static_cast<std::int64_t>(ranks.size()) == met->came && !ranks.empty() &&
      ranks.back().value < met->expected) {
    std::vector<trace::Rank> absent;
    for (std::int32_t r = 0; r < met->expected; ++r)
      if (!std::binary_search(ranks.begin(), ranks.end(), trace::Rank(r)))
        absent.push_back(trace::Rank(r));
    return fmt::format("{} waited for {} to {}", who, describe_ranks(absent), purpose);
  }
  return fmt::format("{} waited for the other ranks to {}: {} of {} came", who, purpose, met->came,
                     met->expected);
}

std::string describe_wait_for(const trace::Run& run, const RankNote& note, PeerFailure failure) {
  const std::string who = describe_subject(note);
  switch (failure) {
    case PeerFailure::barrier_not_met: {
      const std::string absent = trace::absent_from_barrier(note.text);
      return fmt::format("{} waited in monitored_barrier() for {}, which did not come", who,
                         absent.empty() ? "others" : printable(absent));
    }
    case PeerFailure::store_not_reached:
      return fmt::format(
          "{} could not reach the store at {}: rank 0, or its launcher, does not serve it there "
          "({})",
          who, printable(trace::store_address_in(note.text)), printable(note.location.str()));
    case PeerFailure::nodes_not_met:
      return fmt::format("{} waited in vain for the other nodes' launchers: {}", who, shown(note));
    case PeerFailure::hccl_peer_missing:
      return describe_hccl_wait(note);
    case PeerFailure::group_not_met: {
      const std::vector<trace::Rank> ranks = ranks_that(run, [&](const RankNote& other) {
        return other.kind == NoteKind::peer_lost && other.rank.value != trace::kNone &&
               trace::peer_failure_in(other.text) == failure;
      });
      return fmt::format(
          "{} waited for rank {} of their group, which did not come to the group's first call",
          ranks.empty() ? who : describe_ranks(ranks), trace::group_root_in(note.text));
    }
    default:
      return describe_arrivals(run, note);
  }
}

// Where in the program ranks waited until Gloo's timeout was over, or until those whose timeout was
// over closed the connections: by place, the one of the fewest ranks first. Empty: no rank says
// that its timeout was over. O(notes log notes).
struct Places {
  std::vector<std::pair<std::string, std::vector<trace::Rank>>> places;
  std::vector<trace::Rank> ranks;  // of all places; sorted
};
Places places_of_timeouts(const trace::Run& run) {
  std::map<trace::Rank, std::string> place_of;  // a rank's first
  bool timed_out = false;
  for (const RankNote& note : run.notes) {
    if (note.kind != NoteKind::peer_lost || note.rank.value == trace::kNone ||
        note.raised_at.empty() || trace::peer_failure_in(note.text) != PeerFailure::connection_lost)
      continue;
    const std::string_view keys = trace::store_keys_in(note.text);
    timed_out |= trace::mentions_timeout(note.text) || !keys.empty();
    place_of.try_emplace(
        note.rank, keys.empty() ? note.raised_at
                                : fmt::format("{} for the store's key {}", note.raised_at, keys));
  }
  Places out;
  if (!timed_out) return out;
  std::map<std::string, std::vector<trace::Rank>> by_place;
  for (const auto& [rank, place] : place_of) {
    by_place[place].push_back(rank);
    out.ranks.push_back(rank);
  }
  out.places.assign(by_place.begin(), by_place.end());
  std::stable_sort(out.places.begin(), out.places.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return out;
}

// "; rank 1 wrote nothing of it": the ranks without a trace that are none of `told`, if these are
// not fewer; else nothing.
std::string describe_silent(const std::vector<trace::Rank>& missing,
                            const std::vector<trace::Rank>& told) {
  std::vector<trace::Rank> silent;
  std::set_difference(missing.begin(), missing.end(), told.begin(), told.end(),
                      std::back_inserter(silent));
  const bool few = !silent.empty() && silent.size() <= told.size();
  return few ? fmt::format("; {} wrote nothing of it", describe_ranks(silent)) : "";
}

std::string describe_places(const Places& waited, const std::vector<trace::Rank>& missing) {
  constexpr std::size_t kShown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(waited.places.size(), kShown); ++i) {
    const auto& [place, ranks] = waited.places[i];
    out += i == 0 ? fmt::format("{} waited in vain at {}", describe_ranks(ranks), printable(place))
                  : fmt::format(", {} at {}", describe_ranks(ranks), printable(place));
  }
  if (waited.places.size() > kShown)
    out += fmt::format(", and others at {}",
                       plural(waited.places.size() - kShown, "other place", "other places"));
  return out + describe_silent(missing, waited.ranks);
}

Advice advice_for_places(const Places& waited) {
  if (waited.places.size() > 1)
    return {
        "find why the ranks came to different lines: a branch that some take, a loop that ended "
        "early on one, or one message more than its peer expects",
        ""};
  return {
      "see what the ranks that wrote nothing did: a stack of each while the job hangs "
      "(`py-spy dump --pid PID`), or the calls of the next run (`lockstep record`)",
      ""};
}

std::string describe_lost_peer(const RankNote& note, PeerFailure failure) {
  const std::string who = describe_subject(note);
  if (failure == PeerFailure::barrier_lost)
    return fmt::format(
        "{} was in monitored_barrier() when rank 0 ended or gave up; its output says why ({})", who,
        printable(note.location.str()));
  if (failure == PeerFailure::told_to_end)
    return fmt::format("{} was told to end: {}", who, shown(note));
  const std::string peer = peer_in(note.text);
  if (peer.empty()) return fmt::format("{} lost a peer: {}", who, shown(note));
  if (failure == PeerFailure::peer_unreachable)
    return fmt::format("{} cannot reach {}: {}", who, peer, shown(note));
  return fmt::format(
      "{} lost the connection to {}: a process there ended first, or the network failed ({})", who,
      peer, printable(note.location.str()));
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
    case Weight::unclear:
      return fmt::format("{}: {}", describe_subject(note), shown(note));
    case Weight::waits_for:
      return describe_wait_for(run, note, trace::peer_failure_in(note.text));
    case Weight::store_lost:
      return fmt::format(
          "{} lost the store, so the process that serves it ended first: rank 0, or its launcher",
          describe_subject(note));
    case Weight::lost: {
      const PeerFailure failure = trace::peer_failure_in(note.text);
      const Places waited =
          failure == PeerFailure::connection_lost ? places_of_timeouts(run) : Places{};
      if (!waited.places.empty()) return describe_places(waited, missing);
      const std::string who_lost = describe_lost_peer(note, failure);
      if (failure != PeerFailure::connection_lost) return who_lost;
      // Whoever ended first may have done so without an error, and then says nothing.
      return who_lost + describe_silent(missing, ranks_that(run, [](const RankNote& other) {
                                          return other.kind == NoteKind::peer_lost &&
                                                 other.rank.value != trace::kNone;
                                        }));
    }
    case Weight::mismatch:
      return describe_mismatch(note);
    case Weight::did_not_join:
      return describe_analysis(run, note);
    case Weight::gone:
      return fmt::format("{} is gone or hangs, by NCCL's RAS: {}", describe_subject(note),
                         shown(note));
    case Weight::behind:
      return fmt::format("{} was {} behind when NCCL's RAS asked: {}", describe_subject(note),
                         plural(note.calls_behind, "call"), shown(note));
    case Weight::stack:
      return describe_stacks(run);
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

// "ssh node4 ", before a command that must run where the process was; empty: on this machine, or
// nobody knows where.
std::string at_host(const RankNote& note) {
  const std::string host = peer_in(fmt::format("from peer {}", note.host));
  return host.empty() ? "" : fmt::format("ssh {} ", host);
}

Advice advice_for(const trace::Run& run, const RankNote& note, Weight weight) {
  switch (weight) {
    case Weight::killed:
      if (contains_text(note.text, " CANCELLED AT "))
        return {"ask the scheduler: time limit, preemption, or somebody's scancel", ""};
      return {"look at the logs of the scheduler and of the kernel: memory, time limit, preemption",
              fmt::format("{}dmesg -T | grep -i 'killed process'", at_host(note))};
    case Weight::nccl_fails:
      return {"NCCL says why with NCCL_DEBUG=INFO in the job's environment",
              "export NCCL_DEBUG=INFO"};
    case Weight::waits_for:
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
    case Weight::store_lost:
      return {"read the output of the rank that did not come; if it is alive, see where it is", ""};
    case Weight::mismatch:
      return {
          "find why their code or their data took different ways: the call's place in the "
          "program is in the traceback",
          ""};
    case Weight::did_not_join:
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
    case Weight::gone:
      return {"read the output of that process, and see whether its node is up", ""};
    case Weight::behind:
      return {
          "ask again in a minute: if the numbers are the same, see where that rank is",
          note.pid == trace::kNone ? "ncclras -v" : fmt::format("py-spy dump --pid {}", note.pid)};
    case Weight::stack:
      return {"take the stacks again in a minute: who has not moved is stuck, or waits", ""};
    case Weight::lost: {
      const PeerFailure failure = trace::peer_failure_in(note.text);
      if (failure == PeerFailure::told_to_end)
        return {"ask the scheduler (time limit, preemption), and look for a failure on other nodes",
                ""};
      if (failure == PeerFailure::connection_lost)
        if (const Places waited = places_of_timeouts(run); !waited.places.empty())
          return advice_for_places(waited);
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
    case Weight::timeout: {
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

std::string describe_subject(const RankNote& note) {
  if (note.rank.value != trace::kNone) return describe_ranks({note.rank});
  const std::string on = note.host.empty() ? "" : fmt::format(" on {}", printable(note.host));
  if (note.pid != trace::kNone) return fmt::format("process {}{}", note.pid, on);
  return fmt::format("a rank{} that the log does not name", on);
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
  const Advice advice = advice_for(run, *best, *weight);
  finding->headline = headline_for(run, report.ranks_missing, *best, *weight);
  if (!advice.fix.empty()) finding->fix = advice.fix;
  finding->next = advice.next;
}

}  // namespace lockstep::verify
