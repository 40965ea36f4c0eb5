#include "verify/matching/splits.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::verify {

namespace {

struct Totals {
  std::int64_t given = 0, taken = 0;
};

// Of one meeting; nothing where it is no all-to-all, some member did not come, or sizes or splits
// are such that nothing can or need be said here.
std::optional<Totals> totals_of(const Context& context, const GroupStreams& group, std::size_t m) {
  Totals out;
  for (const Stream& stream : group.streams) {
    if (m >= stream.calls.size()) return std::nullopt;
    const trace::Call& call = context.run.ranks[stream.rank_index].calls[stream.calls[m]];
    const trace::Signature& s = context.run.tables.signatures[call.signature];
    if (s.op != trace::Op::all_to_all_single && s.op != trace::Op::all_to_all) return std::nullopt;
    if (s.splits_in.value != 0 || s.in_elements == trace::kNone || s.out_elements == trace::kNone) {
      return std::nullopt;
    }
    out.given += s.in_elements;
    out.taken += s.out_elements;
  }
  return out;
}

}  // namespace

std::vector<Cause> check_exchange_totals(const Context& context) {
  std::vector<Cause> out;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const GroupStreams& group = context.groups[g];
    if (!group.absent.empty() || !group.comparable || group.streams.empty()) continue;
    for (std::size_t m = 0; m < group.streams[0].calls.size(); ++m) {
      const std::optional<Totals> totals = totals_of(context, group, m);
      if (!totals || totals->given == totals->taken) continue;
      const CallRef call{group.streams[0].rank_index, group.streams[0].calls[m]};
      const std::uint64_t seq = group.first_seq + m;
      Cause cause;
      cause.finding = make_finding(RuleId::splits_mismatch);
      Finding& f = cause.finding;
      f.message = "in " + context.call_words(call) + " (" + context.place_words(call, seq) +
                  ") the members give " + std::to_string(totals->given) + " elements and take " +
                  std::to_string(totals->taken);
      f.why =
          "Splits are not recorded, so which ranks disagree cannot be told; the totals show that "
          "some do.";
      for (const Stream& stream : group.streams) cause.deviants.push_back(stream.rank_index);
      cause.group = g;
      cause.seq = seq;
      f.group = group.name;
      f.seq = seq;
      f.ranks = context.ranks(cause.deviants);
      f.evidence.push_back(context.evidence(call, "its totals differ"));
      set_fingerprint(f, "");
      out.push_back(std::move(cause));
      break;
    }
  }
  return out;
}

}  // namespace lockstep::verify
