#include "verify/context.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "verify/rules/page.h"

namespace lockstep::verify {

std::vector<trace::Rank> Context::ranks(const std::vector<std::uint32_t>& indices) const {
  std::vector<trace::Rank> out;
  out.reserve(indices.size());
  for (const std::uint32_t i : indices) out.push_back(run.ranks[i].rank);
  std::sort(out.begin(), out.end());
  return out;
}

std::string rank_words(const std::vector<trace::Rank>& sorted) {
  std::vector<std::int32_t> numbers;
  numbers.reserve(sorted.size());
  for (const trace::Rank r : sorted) numbers.push_back(r.value);
  std::string list = ranges(numbers);
  std::string out;
  for (const char c : list) out += c == ',' ? std::string(", ") : std::string(1, c);
  return (sorted.size() == 1 ? "rank " : "ranks ") + out;
}

std::string Context::rank_words(const std::vector<std::uint32_t>& indices) const {
  return verify::rank_words(ranks(indices));
}

std::string Context::call_words(CallRef ref) const {
  return trace::describe(run.tables, call(ref));
}

std::string Context::place_words(CallRef ref, std::uint64_t seq) const {
  const trace::Call& c = call(ref);
  std::string out =
      "call " + std::to_string(seq) + " of group " + printable(run.tables.str(c.group));
  if (c.step != trace::kNone) out += ", step " + std::to_string(c.step);
  if (c.at.value != 0) out += ", " + printable(run.tables.str(c.at));
  return out;
}

Evidence Context::evidence(CallRef ref, std::string text) const {
  Evidence out;
  out.rank = run.ranks[ref.rank].rank;
  if (ref.call != kNoCall) {
    out.id = call(ref).id;
    out.at = printable(run.tables.str(call(ref).at));
  }
  out.text = std::move(text);
  return out;
}

std::uint64_t Context::seq_of(const WaitPoint& point) const {
  LOCKSTEP_CHECK(point.group < groups.size(), "a wait for a message has no place in a group");
  return groups[point.group].first_seq + point.meeting;
}

Finding make_finding(RuleId id) {
  Finding out;
  out.rule = id;
  out.severity = rule(id).severity;
  out.fix = rule_page(id).fix;
  return out;
}

void set_fingerprint(Finding& finding, const std::string& operation) {
  // FNV-1a, 64 bit: the same in all versions and on all machines. The byte 0xFF separates fields,
  // so that "ab" + "c" and "a" + "bc" differ.
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    hash = (hash ^ 0xFFU) * 0x100000001B3ULL;
  };
  add(rule(finding.rule).name);
  add(finding.group);
  add(operation);
  for (const std::string& name : finding.what) add(name);
  finding.fingerprint = hex(hash);
}

namespace {

constexpr std::size_t kExceptionShown = 200;  // characters of an exception's text in a message

// The last exception's text, shortened.
std::string exception_text(const Context& context, std::uint32_t rank) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  if (trace.exceptions.empty()) return "";
  std::string text = printable(trace.exceptions.back().what);
  if (text.size() > kExceptionShown) {
    // Not within a UTF-8 sequence: continuation bytes are 10xxxxxx.
    std::size_t cut = kExceptionShown;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
    text = text.substr(0, cut) + " …";
  }
  return text;
}

}  // namespace

CallRef waiting_call(const Context& context, std::uint32_t rank) {
  return {rank, context.where.positions[rank].waiting_in()};
}

std::uint64_t seq_at(const Context& context, const WaitPoint& point) {
  if (point.group != WaitPoint::kPointToPoint) return context.seq_of(point);
  return context.call(waiting_call(context, point.waiting[0])).seq;
}

std::string waiting_words(const Context& context, const WaitPoint& point) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  if (point.mismatched) {
    return context.rank_words(point.waiting) + " met in calls that do not fit together (" +
           context.place_words(call, seq_at(context, point)) + ")";
  }
  const bool one = point.waiting.size() == 1;
  std::string out = context.rank_words(point.waiting) + (one ? " waits in " : " wait in ") +
                    context.call_words(call);
  if (point.group == WaitPoint::kPointToPoint) {
    const trace::Call& c = context.call(call);
    const bool sends = context.run.tables.signatures[c.signature].op == trace::Op::send;
    out += (sends ? " to rank " : " from rank ") + std::to_string(c.peer.value);
  }
  return out + " (" + context.place_words(call, seq_at(context, point)) + ")";
}

std::string waiting_for_words(const Context& context, const WaitPoint& point) {
  std::string out = waiting_words(context, point);
  if (!point.missing.empty()) out += " for " + context.rank_words(point.missing);
  return out;
}

void place_at(const Context& context, const WaitPoint& point, Cause& cause) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  Finding& f = cause.finding;
  cause.step = context.call(call).step;
  cause.seq = seq_at(context, point);
  f.seq = cause.seq;
  if (cause.step != trace::kNone) f.step = cause.step;
  f.group = printable(context.run.tables.str(context.call(call).group));
  if (point.group != WaitPoint::kPointToPoint) cause.group = point.group;
  for (const std::string& name : context.run.tables.names(context.call(call).what)) {
    f.what.push_back(name);
  }
}

std::string state_words(const Context& context, std::uint32_t rank) {
  using State = Position::State;
  switch (context.where.positions[rank].state) {
    case State::finished:
      return "finished its program";
    case State::running:
      return "is still running";
    case State::cut:
      return "stopped without an end mark: its process died, or its trace was cut off";
    case State::killed:
      return "was killed";
    case State::raised: {
      const std::string text = exception_text(context, rank);
      return "raised an exception" + (text.empty() ? "" : ": " + text);
    }
    case State::hung:
      return "hung outside of any collective";
  }
  return "";
}

std::string last_seen(const Context& context, std::uint32_t rank) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  if (trace.calls.empty()) return "it issued no call at all";
  const CallRef last{rank, static_cast<std::uint32_t>(trace.calls.size() - 1)};
  return "its last call was " + context.call_words(last) + " (" +
         context.place_words(last, context.call(last).seq) + ")";
}

std::string names_words(const Context& context, const std::vector<trace::StringId>& names) {
  constexpr std::size_t kNamesShown = 3;
  std::vector<std::string> words;
  for (const trace::StringId name : names) words.push_back(printable(context.run.tables.str(name)));
  return join_and(words, kNamesShown);
}

Cause value_cause(const Context& context, RuleId rule, std::int64_t n,
                  const std::vector<trace::StringId>& names,
                  const std::vector<std::uint32_t>& culprits) {
  Cause out;
  out.can_block = false;
  out.deviants = culprits;
  out.step = static_cast<std::int32_t>(n);
  out.finding = make_finding(rule);
  Finding& f = out.finding;
  f.step = n;
  f.culprits = context.ranks(culprits);
  for (const trace::RankTrace& trace : context.run.ranks) f.ranks.push_back(trace.rank);
  for (const trace::StringId name : names) f.what.push_back(context.run.tables.str(name));
  set_fingerprint(f, "");
  return out;
}

}  // namespace lockstep::verify
