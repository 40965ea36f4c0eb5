#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "verify/call_sites.h"
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
  CallSite calls;
  bool writes = false;
};
using Site = std::tuple<GroupId, SignatureId, StringId, NameListId>;

void collect_races(const Context& context, std::uint32_t rank, std::map<Site, Race>& races) {
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
        race.writes |= writes;
        if (race.calls.add(ref)) {
          race.calls.evidence.push_back(
              context.evidence(ref, context.call_words(ref) + ": its buffer was " +
                                        (writes ? "written" : "read") + " before the wait"));
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
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) collect_races(context, r, races);
  std::vector<Cause> out;
  for (auto& [site, race] : races) {
    const CallSite& calls = race.calls;
    std::string message = context.rank_words(calls.ranks) + (race.writes ? " wrote" : " read") +
                          " the buffer of " + context.call_words(calls.first) + " (" +
                          context.place_words(calls.first, context.call(calls.first).seq) +
                          ") before waiting for it";
    if (calls.count > calls.ranks.size()) {
      message += " (" + plural(calls.count, "such access", "such accesses") + " in all)";
    }
    out.push_back(cause_at(context, RuleId::buffer_race, std::move(race.calls)));
    out.back().finding.message = std::move(message);
  }
  sort_by_place(out);
  return out;
}

}  // namespace lockstep
