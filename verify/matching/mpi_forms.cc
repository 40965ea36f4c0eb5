// Collectives of MPI in different forms: blocking and nonblocking, with and without counts per
// rank. These never match, although operation, size and type agree.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/matching/matching.h"

namespace lockstep::verify {

namespace {

// What MPI distinguishes besides operation, size and type: MPI_Ibcast from MPI_Bcast, and
// MPI_Allgatherv from MPI_Allgather.
struct Form {
  bool nonblocking = false;
  bool has_counts = false;
  friend auto operator<=>(const Form&, const Form&) = default;
};

Form form_of(const trace::Tables& tables, const trace::Call& call) {
  const trace::Signature& s = tables.signatures[call.signature];
  return {call.has(trace::kAsync), s.splits_in.value != 0 || s.splits_out.value != 0};
}

std::string describe_form(const Context& context, CallRef call, const Form& form,
                          const Form& other) {
  std::string out;
  if (form.nonblocking != other.nonblocking)
    out = form.nonblocking ? "a nonblocking " : "a blocking ";
  out += context.describe_call(call);
  if (form.has_counts != other.has_counts) {
    out += form.has_counts ? " with counts per rank" : " without counts per rank";
  }
  return out;
}

// The ranks by the form in which they issued one instance, and the first call of each form.
struct Forms {
  std::map<Form, std::vector<std::uint32_t>> ranks;
  std::map<Form, CallRef> first;
};

Forms forms_at(const Context& context, const GroupStreams& group, std::size_t instance) {
  Forms out;
  for (const Stream& stream : group.streams) {
    const CallRef ref{stream.rank_index, stream.calls[instance]};
    const Form form = form_of(context.run.tables, context.call(ref));
    out.ranks[form].push_back(stream.rank_index);
    out.first.try_emplace(form, ref);
  }
  return out;
}

// Explains the difference by the most common form and the rarest one.
Cause explain_forms(const Context& context, const Forms& forms, std::size_t g, std::uint64_t seq) {
  const auto most = std::max_element(
      forms.ranks.begin(), forms.ranks.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  // Rarest of the others: the most common form comes last in this order, even on a tie.
  const auto few =
      std::min_element(forms.ranks.begin(), forms.ranks.end(), [&](const auto& a, const auto& b) {
        return std::pair(a.first == most->first, a.second.size()) <
               std::pair(b.first == most->first, b.second.size());
      });
  Cause cause;
  cause.finding = make_finding(RuleId::op_mismatch);
  Finding& f = cause.finding;
  cause.group = g;
  cause.seq = seq;
  cause.deviants = few->second;
  const CallRef got = forms.first.at(few->first);
  const CallRef expected = forms.first.at(most->first);
  f.message = fmt::format(
      "{} issued {} where {} issued {} ({})", context.describe_ranks(few->second),
      describe_form(context, got, few->first, most->first), context.describe_ranks(most->second),
      describe_form(context, expected, most->first, few->first),
      context.describe_location(expected, cause.seq));
  f.why = "MPI does not let the two forms match, even where an implementation happens to.";
  f.fix = "call the same form on every rank";
  f.group = context.groups[g].name;
  f.seq = cause.seq;
  if (few->second.size() < most->second.size()) f.culprits = context.ranks(few->second);
  std::vector<std::uint32_t> concerned;
  for (const auto& [form, members] : forms.ranks) {
    concerned.insert(concerned.end(), members.begin(), members.end());
  }
  f.ranks = context.ranks(concerned);
  f.evidence = {context.evidence(expected, context.describe_call(expected)),
                context.evidence(got, context.describe_call(got))};
  set_fingerprint(f, trace::describe(context.run.tables, context.call(expected).signature));
  return cause;
}

}  // namespace

std::vector<Cause> check_forms(const Context& context, const std::vector<bool>& deviates) {
  std::vector<Cause> out;
  if (context.semantics != CallSemantics::mpi) return out;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const GroupStreams& group = context.groups[g];
    if (deviates[g] || !group.comparable || group.streams.empty()) continue;
    std::size_t shortest = SIZE_MAX;
    for (const Stream& stream : group.streams) {
      shortest = std::min(shortest, stream.calls.size());
    }
    for (std::size_t m = 0; m < shortest; ++m) {
      const Forms forms = forms_at(context, group, m);
      if (forms.ranks.size() < 2) continue;
      out.push_back(explain_forms(context, forms, g, group.first_seq + m));
      break;  // one finding per group: later differences mostly repeat it
    }
  }
  return out;
}

}  // namespace lockstep::verify
