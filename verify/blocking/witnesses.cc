#include "verify/blocking/witnesses.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "trace/groups.h"
#include "verify/replay/semantics.h"
#include "verify/streams/past.h"

namespace lockstep::verify {

namespace {

constexpr std::uint32_t kLate = 64;  // calls by which a host goes on after an omission

// How the calls from `call` on differ from the past, in which `usual` came at this point. What came
// between the two is taken to repeat: it is the round.
//
//   r: … s r e | s r e | s e | s r e      `call` is the e of the third round, where its past has r:
//                                         r is left out, although the next round has it
EditKind edit_of_break(const Context& context, std::uint32_t rank, std::uint32_t call,
                       std::uint32_t usual) {
  constexpr std::size_t kMaxCallsCompared = 64;  // calls of each side; a round or more
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  const std::uint32_t period = call - usual;
  // Steps since the call before the difference. The same call of a later step is another call.
  const auto steps_since = [&](std::size_t to, std::size_t from) -> std::optional<std::int32_t> {
    if (calls[to].step == trace::kNone || calls[from].step == trace::kNone) return std::nullopt;
    return calls[to].step - calls[from].step;
  };
  EditProblem problem;
  problem.reference = problem.seen = kMaxCallsCompared;
  problem.deviant = std::min(kMaxCallsCompared, calls.size() - call);
  const auto same = [&](std::size_t i, std::size_t j) {
    const std::size_t then = usual + i % period;
    if (!is_same_of_program(context.agreement, calls[then], calls[call + j])) return false;
    const auto mine = steps_since(call + j, call - 1);
    const auto predicted = steps_since(then, usual - 1);
    const auto round = steps_since(call - 1, usual - 1);
    // In a step that holds several rounds, it is not known which of them this one is.
    if (!mine || !predicted || !round || *round == 0) return true;
    return *mine == *predicted + static_cast<std::int32_t>(i / period) * *round;
  };
  // Replacing is never cheaper than to leave out one call and to add the other.
  problem.compare_all(
      [&](std::size_t i, std::size_t j) { return same(i, j) ? std::uint8_t{0} : std::uint8_t{2}; });
  const FirstEdit first = first_edit(problem);
  switch (first.kind) {
    case FirstEdit::Kind::missing:
      return EditKind::missing;
    case FirstEdit::Kind::extra: {
      if (first.agreement > 0) return EditKind::extra;
      // Nothing after it shows that it was added. A call that comes later in the round may have
      // come early, because all before it were left out. Or, if it is made twice in a row, it may
      // be one too many.
      bool comes_later = false;
      for (std::size_t i = 1; i < period && !comes_later; ++i) comes_later = same(i, 0);
      if (!comes_later) return EditKind::extra;
      const bool repeats = is_same_of_program(context.agreement, calls[call - 1], calls[call]);
      return repeats ? EditKind::replaced : EditKind::missing;
    }
    case FirstEdit::Kind::swapped:
      return EditKind::swapped;
    case FirstEdit::Kind::replaced:
      break;
  }
  return EditKind::replaced;
}

// Whether the rank seems to have left out a message of an exchange, and yet its messages to that
// peer and from it are equally many since the group's last collective. So does a pipeline's first
// stage, which has sent all its micro-batches and waits for the gradients of the last ones:
//
//   s s | s r | s r | r r
bool ends_even_exchange(const Context& context, const Break& broke, std::uint32_t newest) {
  const std::vector<trace::Call>& calls = context.run.ranks[broke.rank].calls;
  const trace::Call& usual = calls[broke.usual];
  if (broke.kind != EditKind::missing || !context.run.tables.is_message(usual)) return false;
  const auto op = [&](const trace::Call& call) { return context.run.tables.op(call); };
  const trace::Call& instead = calls[broke.call];
  if (!context.run.tables.is_message(instead) || instead.peer != usual.peer ||
      op(instead) == op(usual)) {
    return false;
  }
  std::size_t like_usual = 0, like_instead = 0;
  for (std::uint32_t c = newest + 1; c-- > 0;) {
    if (calls[c].group != usual.group) continue;
    if (!context.run.tables.is_message(calls[c])) break;
    // Shapes and the like come before, and are as even.
    if (calls[c].peer == usual.peer) ++(op(calls[c]) == op(usual) ? like_usual : like_instead);
  }
  return like_usual == like_instead;
}

// Whether later rounds make the same calls as this rank did since its last call like this one, this
// one included. Over NCCL, where hosts go on, a second round has come to its end by then:
//
//   i | a b a b c | a b a b c | a b a b c      the second a after b comes with a past that has c
//                   ^
bool round_comes_again(const Context& context, CallRef call) {
  const std::vector<trace::Call>& calls = context.run.ranks[call.rank].calls;
  const auto same = [&](std::uint32_t a, std::uint32_t b) {
    return is_same_of_program(context.agreement, calls[a], calls[b]);
  };
  const std::uint32_t oldest = call.call > kLate ? call.call - kLate : 0;
  std::uint32_t start = call.call;
  while (start > oldest && same(start - 1, call.call)) --start;  // a row of equal calls is no round
  while (start > oldest && !same(start - 1, call.call)) --start;
  if (start == oldest) return false;  // the first of its kind: no round ends here
  const std::uint32_t round = call.call - start + 1;
  const auto newest = static_cast<std::uint32_t>(calls.size() - 1);
  for (std::uint32_t later = call.call + 1; later <= newest && later - call.call <= kLate;
       ++later) {
    std::uint32_t alike = 0;
    while (alike <= round && same(later - alike, call.call - alike)) ++alike;
    if (alike > round) return true;
  }
  return false;
}

// Whether the calls of the rank's current round are usual, and the first one that is not. The round
// goes back to the previous call like the newest one, at most kLate calls. Equal calls in a row
// count as one: the last receives of a pipeline's step end one round. Over NCCL the host may be
// rounds past the call in which its device waits: all of them are looked at.
//
// What most of `ranks` did, too, is the program's doing, and so is what the rank does again in
// later rounds. In a second round, the past is too short to show what is usual.
std::pair<Usual, Break> usual_of_late(const Context& context, std::uint32_t rank,
                                      const std::vector<std::uint32_t>& ranks) {
  const std::uint32_t newest = newest_call(context, rank);
  if (newest == kNoCall || !knows_its_past(context, rank)) return {Usual::unknown, {}};
  if (mixes_threads(context.run.ranks[rank], newest)) return {Usual::unknown, {}};
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  const auto like_newest = [&](std::uint32_t c) {
    return is_same_of_program(context.agreement, calls[c], calls[newest]);
  };
  std::uint32_t first = newest;
  first = std::min(first, context.where.positions[rank].waiting_in());
  if (newest - first > kLate) first = newest - kLate;
  while (first > 0 && newest - first < kLate && like_newest(first - 1)) --first;
  while (first > 0 && newest - first < kLate && !like_newest(first - 1)) --first;
  const auto did_most_too = [&](std::uint32_t c) {
    constexpr std::size_t kMaxAsked = 8;  // each costs a comparison of two programs
    const std::size_t asked = std::min(ranks.size(), kMaxAsked);
    const auto alike = std::count_if(
        ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(asked), [&](std::uint32_t r) {
          return r != rank && common_start(context.run, context.agreement, rank, r).value_or(0) > c;
        });
    return 2 * static_cast<std::size_t>(alike) >= asked;
  };
  Usual out = Usual::yes;
  for (std::uint32_t c = first; c <= newest; ++c) {
    const Usual usual = is_usual(context.run, context.agreement, {rank, c});
    if (usual == Usual::no && !round_comes_again(context, {rank, c}) && !did_most_too(c)) {
      // The first call of its kind may begin a new part of the program (an evaluation), which the
      // past cannot predict.
      const bool made_before =
          std::any_of(calls.begin(), calls.begin() + c, [&](const trace::Call& earlier) {
            return is_same_of_program(context.agreement, earlier, calls[c]);
          });
      const std::uint32_t then = usual_calls(context.run, context.agreement, {rank, c})[0];
      // But not where the same line posts a message to another peer.
      const bool is_message = context.run.tables.is_message(calls[c]) &&
                              context.run.tables.is_message(calls[then]) &&
                              calls[c].at.value != 0 && calls[c].at == calls[then].at &&
                              context.run.tables.op(calls[c]) == context.run.tables.op(calls[then]);
      if (!made_before && !is_message && c == newest) return {Usual::unknown, {}};
      if (!made_before && !is_message) continue;
      const Break broke{rank, c, then, edit_of_break(context, rank, c, then)};
      if (ends_even_exchange(context, broke, newest)) return {Usual::unknown, {}};
      return {usual, broke};
    }
    if (c == newest) out = usual;
  }
  return {out, {}};
}

}  // namespace

bool is_snapshot(const trace::Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const trace::RankTrace& t) { return t.snapshot; });
}

bool knows_its_past(const Context& context, std::uint32_t rank) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  if (trace.dropped > 0) return false;
  return !trace.snapshot ||
         std::any_of(trace.calls.begin(), trace.calls.end(),
                     [&](const trace::Call& c) { return is_over(c, context.semantics); });
}

std::uint32_t newest_call(const Context& context, std::uint32_t rank) {
  const std::uint32_t waits = context.where.positions[rank].waiting_in();
  const auto issued = static_cast<std::uint32_t>(context.run.ranks[rank].calls.size());
  if (context.semantics == CallSemantics::nccl && waits != kNoCall) return issued - 1;
  return waits;
}

std::vector<Break> breaks_with_the_past(const Context& context,
                                        const std::vector<std::uint32_t>& ranks) {
  constexpr std::size_t kMaxRanks = 64;  // bounds the cost; larger cycles are rare
  if (ranks.size() > kMaxRanks) return {};
  std::vector<Break> out;
  for (const std::uint32_t r : ranks) {
    const auto [usual, where] = usual_of_late(context, r, ranks);
    if (usual == Usual::unknown) return {};
    if (usual == Usual::no) out.push_back(where);
  }
  // If all broke with their past, the program went on to something new.
  if (out.size() == ranks.size()) return {};
  return out;
}

bool is_like(const Context& context, const trace::Call& a, const trace::Call& b) {
  const bool same_line = a.at == b.at || a.at.value == 0 || b.at.value == 0;
  return a.group == b.group && same_line && context.agreement.agree(a.signature, b.signature);
}

bool goes_on_as_usual(const Context& context, CallRef added) {
  const std::vector<trace::Call>& calls = context.run.ranks[added.rank].calls;
  if (added.call + 1 == calls.size()) return false;
  const std::vector<std::uint32_t> usual = usual_calls(context.run, context.agreement, added);
  return std::any_of(usual.begin(), usual.end(), [&](std::uint32_t u) {
    return is_same_of_program(context.agreement, calls[u], calls[added.call + 1]);
  });
}

bool are_sisters(const trace::Tables& tables, const trace::RankTrace::Membership& a,
                 const trace::RankTrace::Membership& b) {
  if (a.ranks.size() != b.ranks.size() || a.ranks == b.ranks) return false;
  const std::string_view role = role_of(tables, a);
  const std::string_view other = role_of(tables, b);
  return role.empty() || other.empty() || role == other;
}

namespace {

constexpr std::size_t kSistersAsked = 8;  // per rank and group: enough for a majority

// A message in terms that compare over sister groups: with its peer's group rank.
struct SisterMessage {
  trace::Op op = trace::Op::other;
  std::optional<std::size_t> peer;  // nothing: no member
  trace::SignatureId signature;
};

std::vector<SisterMessage> messages_in(const Context& context, std::uint32_t rank,
                                       const trace::RankTrace::Membership& group) {
  std::vector<SisterMessage> out;
  for (const trace::Call& call : context.run.ranks[rank].calls) {
    const trace::Op op = context.run.tables.op(call);
    if (call.group == group.group && trace::is_point_to_point(op))
      out.push_back({op, group.ranks.index_of(call.peer), call.signature});
  }
  return out;
}

// Whether two sequences of messages agree over the length of the shorter one; nothing where one is
// empty.
std::optional<bool> are_alike(const Context& context, const std::vector<SisterMessage>& a,
                              const std::vector<SisterMessage>& b) {
  if (a.empty() || b.empty()) return std::nullopt;
  const std::size_t both = std::min(a.size(), b.size());
  return std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(both), b.begin(),
                    [&](const SisterMessage& x, const SisterMessage& y) {
                      return x.op == y.op && x.peer == y.peer &&
                             context.agreement.agree(x.signature, y.signature);
                    });
}

// Whether most of the rank's sisters issued the same messages, and the same calls between them;
// nothing on a tie, or without sisters.
std::optional<bool> does_as_sisters(const Context& context, std::uint32_t rank,
                                    trace::GroupId group) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  const trace::RankTrace::Membership* mine = trace::membership(trace, group);
  if (mine == nullptr) return std::nullopt;
  const auto position = mine->ranks.index_of(trace.rank);
  const std::vector<SisterMessage> own = messages_in(context, rank, *mine);
  if (own.empty()) return std::nullopt;  // nothing to hold against anyone
  std::size_t alike = 0;
  std::size_t others = 0;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    if (alike + others == kSistersAsked) break;
    for (const trace::RankTrace::Membership& theirs : context.run.ranks[r].groups) {
      if (r == rank || !are_sisters(context.run.tables, theirs, *mine) ||
          theirs.ranks.index_of(context.run.ranks[r].rank) != position) {
        continue;
      }
      const auto same = are_alike(context, own, messages_in(context, r, theirs));
      if (!same) continue;
      // A rank that left out its last message so far issued a part of its sister's, and went on.
      const auto common = common_start(context.run, context.agreement, rank, r);
      const std::size_t both = std::min(trace.calls.size(), context.run.ranks[r].calls.size());
      ++(*same && (!common || *common == both) ? alike : others);
    }
  }
  if (alike == others) return std::nullopt;
  return alike > others;
}

}  // namespace

bool is_made_in_sister_groups(const Context& context, CallRef call) {
  const trace::Call& mine = context.call(call);
  const trace::RankTrace::Membership* group =
      trace::membership(context.run.ranks[call.rank], mine.group);
  if (group == nullptr) return false;
  return std::any_of(
      context.run.ranks.begin(), context.run.ranks.end(), [&](const trace::RankTrace& trace) {
        return std::any_of(trace.calls.begin(), trace.calls.end(), [&](const trace::Call& c) {
          if (c.what != mine.what || !context.agreement.agree(c.signature, mine.signature)) {
            return false;
          }
          const trace::RankTrace::Membership* theirs = trace::membership(trace, c.group);
          return theirs != nullptr && are_sisters(context.run.tables, *theirs, *group);
        });
      });
}

bool leaves_out_message(const Context& context, std::uint32_t rank, trace::GroupId group,
                        std::uint32_t peer, trace::Op op) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  const trace::RankTrace::Membership* mine = trace::membership(trace, group);
  if (mine == nullptr) return false;
  const auto place = mine->ranks.index_of(trace.rank);
  const auto peers_place = mine->ranks.index_of(context.run.ranks[peer].rank);
  const auto is_message = [&](const std::vector<trace::Call>& calls, std::uint32_t index,
                              const trace::RankTrace::Membership& in) {
    return index < calls.size() && calls[index].group == in.group &&
           context.run.tables.op(calls[index]) == op &&
           in.ranks.index_of(calls[index].peer) == peers_place;
  };
  // Whether the sister comes to the rank's call later. Another call may be one that the rank alone
  // makes, before its message.
  const auto comes_later = [&](const trace::RankTrace& sister, std::uint32_t index) {
    if (index >= trace.calls.size()) return false;
    return std::any_of(sister.calls.begin() + index, sister.calls.end(), [&](const trace::Call& c) {
      return context.agreement.agree(c.signature, trace.calls[index].signature);
    });
  };
  std::size_t asked = 0;
  for (std::uint32_t r = 0; r < context.run.ranks.size() && asked < kSistersAsked; ++r) {
    for (const trace::RankTrace::Membership& theirs : context.run.ranks[r].groups) {
      if (r == rank || !are_sisters(context.run.tables, theirs, *mine) ||
          theirs.ranks.index_of(context.run.ranks[r].rank) != place) {
        continue;
      }
      ++asked;
      const auto diverged = common_start(context.run, context.agreement, rank, r);
      if (diverged && is_message(context.run.ranks[r].calls, *diverged, theirs) &&
          !is_message(trace.calls, *diverged, *mine) &&
          comes_later(context.run.ranks[r], *diverged)) {
        return true;
      }
    }
  }
  return false;
}

std::vector<std::uint32_t> ranks_unlike_sisters(const Context& context,
                                                const std::vector<const WaitPoint*>& points) {
  std::vector<std::pair<std::uint32_t, trace::GroupId>> concerned;
  for (const WaitPoint* const point : points) {
    if (point->group != WaitPoint::kPointToPoint) continue;
    const std::uint32_t waiting = point->waiting[0];
    const trace::GroupId group =
        context.call({waiting, context.where.positions[waiting].waiting_in()}).group;
    for (const std::uint32_t r : point->waiting) concerned.emplace_back(r, group);
    // Also those that posted the other side behind an open call: over NCCL a host goes on after a
    // message that it left out.
    for (const std::uint32_t r : united(point->missing, point->behind))
      concerned.emplace_back(r, group);
  }
  std::sort(concerned.begin(), concerned.end());
  concerned.erase(std::unique(concerned.begin(), concerned.end()), concerned.end());
  constexpr std::size_t kMaxRanksInCycle = 64;  // bounds the cost; larger cycles are rare
  if (concerned.size() > kMaxRanksInCycle) return {};
  std::vector<std::uint32_t> deviating;
  for (const auto& [rank, group] : concerned) {
    // Messages are compared from the first one on, so the recorder must have kept it.
    if (!knows_its_past(context, rank)) return {};
    const std::optional<bool> same = does_as_sisters(context, rank, group);
    if (!same) return {};
    if (!*same) deviating.push_back(rank);
  }
  if (deviating.size() == concerned.size()) return {};
  deviating.erase(std::unique(deviating.begin(), deviating.end()), deviating.end());
  return deviating;
}

}  // namespace lockstep::verify
