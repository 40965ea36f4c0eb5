#include "trace/evidence/evidence.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace lockstep::trace {

namespace {

const std::array kSources = {ras_source(), stack_source(), cluster_source(), analysis_source(),
                             rank_log_source()};

using NoteKind = RankNote::Kind;

// Ranks by the process that they were; of a pid that several ranks had, on different hosts, none.
std::map<std::int64_t, Rank> ranks_by_pid(const Run& run, const std::vector<RankNote>& notes) {
  std::map<std::int64_t, Rank> out;
  const auto add = [&](std::int64_t pid, Rank rank) {
    if (pid == kNone || rank.value == kNone) return;
    const auto [known, is_new] = out.emplace(pid, rank);
    if (!is_new && known->second != rank) known->second = Rank(kNone);
  };
  for (const RankTrace& trace : run.ranks) add(trace.pid, trace.rank);
  for (const RankNote& note : notes) add(note.pid, note.rank);
  return out;
}

// Ranks by their host, where one alone runs there: a pod, a node that has one process. Nothing
// where the host of some rank is not known, as that rank may run on any of them.
std::map<std::string, Rank> ranks_by_host(const Run& run, const std::vector<RankLocation>& others) {
  std::map<Rank, std::string> hosts;
  for (const RankTrace& trace : run.ranks)
    if (!trace.host.empty()) hosts.emplace(trace.rank, trace.host);
  for (const RankLocation& other : others)
    if (!other.host.empty()) hosts.emplace(other.rank, other.host);
  if (std::ssize(hosts) < run.world_size) return {};
  std::map<std::string, Rank> out;
  for (const auto& [rank, host] : hosts) {
    const auto [known, is_new] = out.emplace(host, rank);
    if (!is_new) known->second = Rank(kNone);
  }
  return out;
}

// The note that says why the rank ended: the last of several, which is the error nobody caught.
const RankNote* ending_of(const std::vector<RankNote>& notes, Rank rank) {
  const RankNote* out = nullptr;
  for (const RankNote& note : notes) {
    if (note.rank == rank && note.ends()) out = &note;
  }
  return out;
}

// A note about another process than the one that the rank's trace is of says nothing about it: an
// earlier attempt of the job left it.
void note_other_process(RankNote& note, const Run& run) {
  const RankTrace* const trace = run.find(note.rank);
  const bool other = trace != nullptr && trace->pid != kNone && note.pid != kNone &&
                     trace->pid != note.pid && note.kind != NoteKind::contradiction;
  if (!other) return;
  note.text = fmt::format(
      "of process {}, and its trace is of process {}, so that it is of another "
      "attempt: {}: {}",
      note.pid, trace->pid, to_string(note.kind), note.text);
  if (note.text.size() > RankNote::kLongest) note.text.resize(RankNote::kLongest);
  note.kind = NoteKind::contradiction;
}

void explain_end(RankTrace& trace, const RankNote& note) {
  const bool by_signal = note.kind == NoteKind::killed;
  if (trace.snapshot || trace.end != End::cut) return;
  trace.end = by_signal ? End::killed : End::exception;
  trace.end_is_told = true;
  if (by_signal) return;
  trace.events.push_back(
      {kNoTime, static_cast<std::uint32_t>(trace.exceptions.size()), EventKind::exception});
  trace.exceptions.push_back({note.text, std::nullopt});
}

}  // namespace

std::string_view to_string(RankNote::Kind kind) {
  switch (kind) {
    case NoteKind::exception:
      return "exception";
    case NoteKind::out_of_memory:
      return "out of memory";
    case NoteKind::killed:
      return "killed";
    case NoteKind::crashed:
      return "crashed";
    case NoteKind::gpu_fault:
      return "GPU fault";
    case NoteKind::caught:
      return "exception that it went on after";
    case NoteKind::peer_lost:
      return "lost a peer";
    case NoteKind::ended:
      return "ended";
    case NoteKind::watchdog:
      return "watchdog";
    case NoteKind::nccl_warning:
      return "NCCL warning";
    case NoteKind::gpu_warning:
      return "GPU warning";
    case NoteKind::stack:
      return "stack";
    case NoteKind::ras:
      return "RAS";
    case NoteKind::analysis:
      return "analysis";
    case NoteKind::calls:
      return "another recording";
    case NoteKind::contradiction:
      return "contradiction";
  }
  return "";
}

void FileEvidence::add(RankNote note) {
  if (notes.size() >= kMaxNotes) return;
  for (std::string* const text : {&note.text, &note.content})
    if (text->size() > RankNote::kLongest) text->resize(RankNote::kLongest);
  notes.push_back(std::move(note));
}

std::span<const EvidenceSource> evidence_sources() { return kSources; }

const EvidenceSource* recognise_evidence(std::string_view bytes, std::string_view name) {
  for (const EvidenceSource& source : kSources) {
    if (source.recognises(bytes, name)) return &source;
  }
  return nullptr;
}

void join_evidence(Run& run, JobEvidence evidence, bool own_form) {
  std::vector<RankNote>& notes = evidence.notes;
  run.world_size = std::max(run.world_size, evidence.world_size);
  run.sources = std::move(evidence.sources);
  const std::map<std::int64_t, Rank> by_pid = ranks_by_pid(run, notes);
  const std::map<std::string, Rank> by_host = ranks_by_host(run, evidence.locations);
  for (RankNote& note : notes) {
    if (const auto known = by_pid.find(note.pid);
        note.rank.value == kNone && note.pid != kNone && known != by_pid.end())
      note.rank = known->second;
    // A process that is known is not any other of its host.
    if (const auto known = by_host.find(note.host);
        note.rank.value == kNone && note.pid == kNone && known != by_host.end())
      note.rank = known->second;
    note_other_process(note, run);
    run.world_size = std::max(run.world_size, note.rank.value + 1);
  }
  std::vector<RankNote> contradictions;
  for (RankTrace& trace : run.ranks) {
    const RankNote* ending = ending_of(notes, trace.rank);
    if (ending == nullptr) continue;
    explain_end(trace, *ending);
    // Only what writes an end mark can be contradicted by a later end.
    if (!own_form || trace.end != End::clean) continue;
    RankNote note = *ending;
    note.kind = NoteKind::contradiction;
    note.text = fmt::format("its trace ends in order, but: {}", note.text);
    contradictions.push_back(std::move(note));
  }
  std::move(contradictions.begin(), contradictions.end(), std::back_inserter(notes));
  std::stable_sort(notes.begin(), notes.end(), [](const RankNote& a, const RankNote& b) {
    return std::tie(a.rank, a.kind, a.location.file, a.location.line) <
           std::tie(b.rank, b.kind, b.location.file, b.location.line);
  });
  run.notes = std::move(notes);
  locate_ranks(run, evidence.locations);
}

}  // namespace lockstep::trace
