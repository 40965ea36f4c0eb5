#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "verify/lifecycle.h"

namespace lockstep {

namespace {

// Whether the operation fills no buffer on this rank, so that reading along is harmless.
bool only_gives(const Signature& s, Rank rank) {
  switch (s.op) {
    case Op::send:
      return true;
    case Op::broadcast:
    case Op::scatter:
      return s.op == Op::broadcast && s.root == rank.value;
    case Op::reduce:
    case Op::gather:
      return s.root != kNone && s.root != rank.value;
    default:
      return false;
  }
}

// Accesses to the buffers of one kind of call, at one place of the program.
struct Race {
  CallRef first;
  std::vector<std::uint32_t> ranks;
  std::vector<Evidence> evidence;
  std::uint64_t accesses = 0;
  bool writes = false;
};
using Site = std::tuple<GroupId, SignatureId, StringId, NameListId>;

void collect(const Context& context, std::uint32_t rank, std::map<Site, Race>& races) {
  const RankTrace& trace = context.run.ranks[rank];
  std::vector<bool> over(trace.calls.size());
  for (const Event& event : trace.events) {
    switch (event.kind) {
      case EventKind::wait:
      case EventKind::waited:
        over[event.index] = true;
        break;
      case EventKind::complete:
        // An MPI program learns of a completion (by a test); elsewhere only the recorder sees it.
        if (context.semantics == CallSemantics::mpi) over[event.index] = true;
        break;
      case EventKind::use:
      case EventKind::write: {
        const Call& call = trace.calls[event.index];
        const bool writes = event.kind == EventKind::write;
        if (!call.has(kAsync) || over[event.index]) break;
        const Signature& s = context.run.tables.signatures[call.signature];
        if (!writes && only_gives(s, trace.rank)) break;
        Race& race = races[{call.group, call.signature, call.at, call.what}];
        const CallRef ref{rank, event.index};
        if (race.accesses++ == 0) race.first = ref;
        race.writes |= writes;
        if (race.ranks.empty() || race.ranks.back() != rank) {
          race.ranks.push_back(rank);
          if (race.evidence.size() < 4) {
            race.evidence.push_back(
                context.evidence(ref, context.call_words(ref) + ": its buffer was " +
                                          (writes ? "written" : "read") + " before the wait"));
          }
        }
        break;
      }
      default:
        break;
    }
  }
}

}  // namespace

std::vector<Cause> check_buffers(const Context& context) {
  std::map<Site, Race> races;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) collect(context, r, races);
  std::vector<Cause> out;
  for (auto& [site, race] : races) {
    const Call& call = context.call(race.first);
    Cause cause;
    cause.finding = make_finding(RuleId::buffer_race);
    Finding& f = cause.finding;
    cause.can_block = false;
    cause.deviants = race.ranks;
    cause.seq = call.seq;
    f.message = context.rank_words(race.ranks) + (race.writes ? " wrote" : " read") +
                " the buffer of " + context.call_words(race.first) + " (" +
                context.place_words(race.first, call.seq) + ") before waiting for it";
    if (race.accesses > race.ranks.size()) {
      f.message += " (" + plural(race.accesses, "such access", "such accesses") + " in all)";
    }
    f.group = printable(context.run.tables.str(call.group));
    f.seq = call.seq;
    f.culprits = f.ranks = context.ranks(race.ranks);
    if (call.step != kNone) f.step = cause.step = call.step;
    f.what = context.run.tables.names(call.what);
    f.evidence = std::move(race.evidence);
    set_fingerprint(f, describe(context.run.tables, call.signature));
    out.push_back(std::move(cause));
  }
  std::sort(out.begin(), out.end(), [](const Cause& a, const Cause& b) {
    return std::tie(a.finding.group, a.seq, a.finding.message) <
           std::tie(b.finding.group, b.seq, b.finding.message);
  });
  return out;
}

}  // namespace lockstep
