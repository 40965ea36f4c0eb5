#include "verify/matching/deviation_words.h"

#include <cstddef>
#include <set>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/modality.h"

namespace lockstep::verify {

namespace {

// As describe_location(), but without the call's step if that is not the deviation's: a message
// with two step numbers reads like two faults.
std::string location_words(const Context& context, const Deviation& d, CallRef ref) {
  const trace::Call& call = context.call(ref);
  if (d.step == trace::kNone || call.step == d.step) return context.describe_location(ref, d.seq);
  const std::string at = printable(context.run.tables.str(call.at));
  return at.empty() ? context.describe_numbered(ref, d.seq)
                    : fmt::format("{}, {}", context.describe_numbered(ref, d.seq), at);
}

// "rank 1 issued broadcast (root 1), rank 2 issued broadcast (root 2)".
std::string describe_replacements(const Context& context, const Deviation& d) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> parts;
  for (const Deviation::Replacement& one : d.replacements) {
    parts.push_back(
        fmt::format("{} issued {}", context.describe_ranks(one.ranks),
                    trace::describe(context.run.tables, context.call(one.got).signature)));
  }
  return join_and(parts, kShown);
}

}  // namespace

bool is_tie(const Deviation& d) {
  return !d.singled_out && d.deviants.size() == d.reference.size();
}

std::string difference_sentence(const Context& context, const Deviation& d) {
  const trace::Tables& tables = context.run.tables;
  const std::string who = context.describe_ranks(d.deviants);
  const std::string others = context.describe_ranks(d.reference);
  const bool has_got = d.got.call != kNoCall;
  const bool has_expected = d.expected.call != kNoCall;
  const std::string location = location_words(context, d, has_expected ? d.expected : d.got);
  switch (d.kind) {
    case Deviation::Kind::missing: {
      const std::string more =
          d.count > 2    ? fmt::format(" and the {} after it", plural(d.count - 1, "call"))
          : d.count == 2 ? " and the call after it"
                         : "";
      if (is_tie(d)) {
        return fmt::format(
            "{} issued {}{} as {}, and {} did not: either {} left {} out, or {} made {} too many",
            others, context.describe_call(d.expected), more, location, who, who,
            d.count > 1 ? "them" : "it", others, d.count > 1 ? "them" : "one");
      }
      return fmt::format("{} never issued {}{}, which {} issued as {}", who,
                         context.describe_call(d.expected), more, others, location);
    }
    case Deviation::Kind::extra: {
      const std::string more =
          d.count > 1 ? fmt::format(" and {}", plural(d.count - 1, "more call")) : "";
      if (is_tie(d)) {
        return fmt::format(
            "{} issued {}{} as {}, and {} did not: either {} made {} too many, or {} left {} out",
            who, context.describe_call(d.got), more, context.describe_location(d.got, d.seq),
            others, who, d.count > 1 ? "them" : "one", others, d.count > 1 ? "them" : "it");
      }
      return fmt::format("{} issued {}{} as {}, which {} did not issue", who,
                         context.describe_call(d.got), more,
                         context.describe_location(d.got, d.seq), others);
    }
    case Deviation::Kind::swapped:
      if (d.count > 2) {
        return fmt::format(
            "{} issued {} calls in another order than {}: first {}, in place of {} ({})", who,
            d.count, others, context.describe_call(d.got), context.describe_call(d.expected),
            location);
      }
      return fmt::format("{} issued {} before {}; {} issued them the other way round ({})", who,
                         context.describe_call(d.got), context.describe_call(d.expected), others,
                         location);
    case Deviation::Kind::identity:
    case Deviation::Kind::replaced:
      break;
  }
  const auto words = [&](CallRef ref, bool known) {
    if (!known) return std::string("nothing");
    return d.kind == Deviation::Kind::identity
               ? context.describe_call(ref)
               : trace::describe(tables, context.call(ref).signature);
  };
  std::string issued = fmt::format("{} issued {}", who, words(d.got, has_got));
  if (!d.replacements.empty()) issued = describe_replacements(context, d);
  return fmt::format("{} where {} issued {} ({})", issued, others, words(d.expected, has_expected),
                     location);
}

std::string repeat_sentence(const Deviation& d) {
  return d.repeats == 0 ? "" : fmt::format(" The same happens {}.", plural(d.repeats, "more time"));
}

std::vector<std::string> names_carried(const Context& context, const Deviation& d) {
  const CallRef ref = d.expected.call != kNoCall ? d.expected : d.got;
  std::vector<std::string> names = context.run.tables.names(context.call(ref).what);
  if (d.kind == Deviation::Kind::missing) {
    const auto skipped =
        left_out(context.run, context.modalities, d.got.rank, d.expected.rank, d.batch());
    if (!skipped.empty()) names = skipped;
  }
  // Several calls may carry the same parameter: name it once.
  std::set<std::string> seen;
  std::erase_if(names, [&](const std::string& name) { return !seen.insert(name).second; });
  return names;
}

}  // namespace lockstep::verify
