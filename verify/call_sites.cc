#include "verify/call_sites.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace lockstep {

bool CallSite::add(CallRef call) {
  if (count++ == 0) first = call;
  if (!ranks.empty() && ranks.back() == call.rank) return false;
  ranks.push_back(call.rank);
  return evidence.size() < kEvidenceShown;
}

Cause cause_at(const Context& context, RuleId rule, CallSite site) {
  const Call& call = context.call(site.first);
  Cause cause;
  cause.finding = make_finding(rule);
  Finding& f = cause.finding;
  cause.can_block = false;
  cause.seq = call.seq;
  f.group = printable(context.run.tables.str(call.group));
  f.seq = call.seq;
  f.culprits = f.ranks = context.ranks(site.ranks);
  if (call.step != kNone) f.step = cause.step = call.step;
  f.what = context.run.tables.names(call.what);
  f.evidence = std::move(site.evidence);
  set_fingerprint(f, describe(context.run.tables, call.signature));
  cause.deviants = std::move(site.ranks);
  return cause;
}

void sort_by_place(std::vector<Cause>& causes) {
  std::sort(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) {
    return std::tie(a.finding.group, a.seq, a.finding.message) <
           std::tie(b.finding.group, b.seq, b.finding.message);
  });
}

}  // namespace lockstep
