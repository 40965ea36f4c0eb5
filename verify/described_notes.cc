#include "verify/described_notes.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
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

namespace lockstep::verify {

using trace::PeerFailure;
using trace::RankNote;
using NoteKind = RankNote::Kind;
using Says = RankNote::Says;

namespace {

std::string quote_at(std::string_view text, const Location& location) {
  constexpr std::size_t kShown = 200;
  return fmt::format("{}{} ({})", printable(text.substr(0, kShown)),
                     text.size() > kShown ? " …" : "", printable(location.str()));
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
  const bool at_one_line = !waited.line.empty();
  std::string out = at_one_line ? fmt::format("at {}, ", printable(waited.line)) : "";
  const std::string_view between = at_one_line ? "; " : ", ";
  for (std::size_t i = 0; i < std::min(waited.places.size(), kShown); ++i) {
    const auto& [place, ranks] = waited.places[i];
    out +=
        fmt::format("{}{}{} {} {}", i == 0 ? "" : between, describe_ranks(ranks),
                    i == 0 ? " waited in vain" : "", at_one_line ? "in" : "at", printable(place));
  }
  if (waited.places.size() > kShown)
    out += fmt::format(", and others at {}",
                       plural(waited.places.size() - kShown, "other place", "other places"));
  return out + describe_silent(missing, waited.ranks);
}

std::string describe_lost_peer(const RankNote& note, PeerFailure failure) {
  const std::string who = describe_subject(note);
  if (failure == PeerFailure::barrier_lost)
    return fmt::format(
        "{} was in monitored_barrier() when rank 0 ended or gave up; its output says why ({})", who,
        printable(note.location.str()));
  if (failure == PeerFailure::told_to_end) {
    const bool is_launcher =
        note.rank.value == trace::kNone && contains_text(note.text, "SignalException");
    return fmt::format("{} was told to end{}: {}", is_launcher ? "the launcher" : who,
                       is_interrupt(note) ? ", as by Ctrl-C" : "", quote(note));
  }
  const std::string peer = peer_in(note.text);
  if (peer.empty()) return fmt::format("{} lost a peer: {}", who, quote(note));
  if (failure == PeerFailure::peer_unreachable)
    return fmt::format("{} cannot reach {}: {}", who, peer, quote(note));
  return fmt::format(
      "{} lost the connection to {}: a process there ended first, or the network failed ({})", who,
      peer, printable(note.location.str()));
}

}  // namespace

std::string describe_subject(const RankNote& note) {
  if (note.rank.value != trace::kNone) return describe_ranks({note.rank});
  const std::string on = note.host.empty() ? "" : fmt::format(" on {}", printable(note.host));
  if (note.pid != trace::kNone) return fmt::format("process {}{}", note.pid, on);
  return fmt::format("a rank{} that the log does not name", on);
}

bool is_interrupt(const RankNote& note) { return note.text.ends_with(" got signal: 2"); }

std::string quote(const RankNote& note) {
  if (note.raised_at.empty()) return quote_at(note.text, note.location);
  return quote_at(note.text,
                  {fmt::format("{}; {}", note.raised_at, note.location.file), note.location.line});
}

std::string describe_timeout(const trace::Run& run, const std::vector<trace::Rank>& missing,
                             const RankNote& note) {
  const trace::TimedOutCall call = trace::timed_out_call_in(note.text);
  const std::vector<trace::Rank> ranks = ranks_that(run, [&](const RankNote& other) {
    if (other.kind != NoteKind::watchdog) return false;
    const trace::TimedOutCall its = trace::timed_out_call_in(other.text);
    return its.seq == call.seq && its.operation == call.operation;
  });
  if (call.operation.empty()) return fmt::format("{}: {}", describe_subject(note), quote(note));
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
    return other.kind == NoteKind::stack && other.says == Says::where_it_called &&
           std::find(ranks.begin(), ranks.end(), other.rank) != ranks.end();
  });
  return fmt::format(
      "{} gave up waiting in {}{}{}; {}",
      note.rank.value == trace::kNone ? describe_subject(note) : describe_ranks(ranks),
      printable(call.operation), call.seq ? fmt::format(" (call {})", *call.seq) : "",
      made == run.notes.end() ? "" : fmt::format(", made in {}", printable(made->content)),
      who_is_not);
}

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

std::string describe_blocked(const trace::Run& run, const RankNote& note) {
  // By rank, by process where that is unknown.
  std::set<std::tuple<std::string_view, trace::Rank, std::int64_t>> blocked;
  for (const RankNote& other : run.notes) {
    if (other.says != Says::in_the_kernel) continue;
    const bool named = other.rank.value != trace::kNone;
    blocked.emplace(named ? "" : std::string_view(other.host), other.rank,
                    named ? trace::kNone : other.pid);
  }
  const std::size_t others = blocked.size() - 1;
  return fmt::format("{} was {} ({}){}", describe_subject(note), printable(note.text),
                     printable(note.location.str()),
                     others == 0 ? ""
                                 : fmt::format("; {} {} blocked, too",
                                               plural(others, "other process", "other processes"),
                                               others == 1 ? "is" : "are"));
}

std::string describe_mismatch(const RankNote& note) {
  const auto ranks = trace::differing_ranks_in(note.text);
  if (!ranks) return fmt::format("ranks made different calls: {}", quote(note));
  return fmt::format("ranks {} and {} made different calls: {}", ranks->one, ranks->other,
                     quote(note));
}

// The ranks of the same report of PyTorch's analysis, or of the same tensors by Horovod or FSDP.
std::string describe_analysis(const trace::Run& run, const RankNote& note) {
  if (note.rank.value == trace::kNone) return quote(note);
  const std::vector<trace::Rank> ranks = ranks_that(run, [&](const RankNote& other) {
    return other.kind == note.kind && other.text == note.text;
  });
  if (note.says == Says::did_not_submit)
    return fmt::format("{} did not submit, by Horovod, {}", describe_ranks(ranks),
                       quote_at(note.content, note.location));
  if (note.says == Says::missed_by_jax)
    return fmt::format("{}, by JAX's coordination service, {}", describe_ranks(ranks),
                       quote_at(note.content, note.location));
  if (note.says == Says::changed_order)
    return fmt::format(
        "{} ran FSDP units in another order than in the first iteration: {}", describe_ranks(ranks),
        quote_at(note.content.empty() ? "FullyShardedDataParallel warns of it" : note.content,
                 note.location));
  return fmt::format("{}, by torchfrtrace, {}", describe_ranks(ranks),
                     quote_at(note.content, note.location));
}

std::string describe_wait_for(const trace::Run& run, const RankNote& note) {
  const std::string who = describe_subject(note);
  const PeerFailure failure = trace::peer_failure_in(note.text);
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
      return fmt::format("{} waited in vain for the other nodes' launchers: {}", who, quote(note));
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

Places places_of_timeouts(const trace::Run& run) {
  std::map<trace::Rank, std::string> place_of, call_of;  // a rank's first
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
    call_of.try_emplace(note.rank, note.says == Says::where_it_called ? note.content : "");
  }
  Places out;
  if (!timed_out) return out;
  std::map<std::string, std::vector<trace::Rank>> by_place, by_call;
  for (const auto& [rank, place] : place_of) {
    by_place[place].push_back(rank);
    by_call[call_of[rank]].push_back(rank);
    out.ranks.push_back(rank);
  }
  out.are_all = run.world_size > 0 && std::ssize(out.ranks) >= run.world_size;
  if (by_place.size() == 1 && by_call.size() > 1 && !by_call.contains("")) {
    out.line = by_place.begin()->first;
    by_place = std::move(by_call);
  }
  out.places.assign(by_place.begin(), by_place.end());
  std::stable_sort(out.places.begin(), out.places.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return out;
}

std::string describe_loss(const trace::Run& run, const std::vector<trace::Rank>& missing,
                          const RankNote& note, const Places& waited) {
  if (!waited.places.empty()) return describe_places(waited, missing);
  const PeerFailure failure = trace::peer_failure_in(note.text);
  const std::string who_lost = describe_lost_peer(note, failure);
  if (failure != PeerFailure::connection_lost) return who_lost;
  // Whoever ended first may have done so without an error, and then says nothing.
  return who_lost + describe_silent(missing, ranks_that(run, [](const RankNote& other) {
                                      return other.kind == NoteKind::peer_lost &&
                                             other.rank.value != trace::kNone;
                                    }));
}

}  // namespace lockstep::verify
