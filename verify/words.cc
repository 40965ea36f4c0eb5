#include "verify/words.h"

#include "base/text.h"

namespace lockstep {

std::string names_words(const Context& context, const std::vector<StringId>& names) {
  constexpr std::size_t kNamesShown = 3;
  std::vector<std::string> words;
  for (const StringId name : names) words.push_back(printable(context.run.tables.str(name)));
  return join_and(words, kNamesShown);
}

Cause value_cause(const Context& context, RuleId rule, std::int64_t n,
                  const std::vector<StringId>& names, const std::vector<std::uint32_t>& culprits) {
  Cause out;
  out.can_block = false;
  out.deviants = culprits;
  out.step = static_cast<std::int32_t>(n);
  out.finding = make_finding(rule);
  Finding& f = out.finding;
  f.step = n;
  f.culprits = context.ranks(culprits);
  for (const RankTrace& trace : context.run.ranks) f.ranks.push_back(trace.rank);
  for (const StringId name : names) f.what.push_back(context.run.tables.str(name));
  set_fingerprint(f, "");
  return out;
}

}  // namespace lockstep
