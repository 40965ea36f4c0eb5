#include "verify/context.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/check.h"
#include "base/folded_ranges.h"
#include "base/text.h"
#include "trace/groups.h"
#include "verify/rules/page.h"

namespace lockstep::verify {

std::vector<trace::Rank> Context::ranks(const std::vector<std::uint32_t>& indices) const {
  std::vector<trace::Rank> out;
  out.reserve(indices.size());
  for (const std::uint32_t i : indices) out.push_back(run.ranks[i].rank);
  std::sort(out.begin(), out.end());
  return out;
}

std::string describe_ranks(const std::vector<trace::Rank>& sorted) {
  std::vector<std::int32_t> numbers;
  numbers.reserve(sorted.size());
  for (const trace::Rank r : sorted) numbers.push_back(r.value);
  const std::string list = folded_ranges(numbers);
  std::string out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    out += list[i];
    // "5, 13, ..., 61": a list in a sentence has room for blanks.
    if (list[i] == ',') out += ' ';
  }
  return (sorted.size() == 1 ? "rank " : "ranks ") + out;
}

std::string Context::describe_ranks(const std::vector<std::uint32_t>& indices) const {
  return verify::describe_ranks(ranks(indices));
}

std::string Context::describe_call(CallRef ref) const {
  return trace::describe(run.tables, call(ref));
}

std::string Context::describe_group(std::uint32_t rank, trace::GroupId group) const {
  return trace::group_label(run.ranks[rank], run.tables, group);
}

std::string Context::describe_numbered(CallRef ref, std::uint64_t seq) const {
  return fmt::format("call {} of {}", seq + run.ranks[ref.rank].first_number,
                     describe_group(ref.rank, call(ref).group));
}

std::string Context::describe_location(CallRef ref, std::uint64_t seq) const {
  const trace::Call& c = call(ref);
  std::string out = describe_numbered(ref, seq);
  if (c.step != trace::kNone) out += fmt::format(", step {}", c.step);
  if (c.at.value != 0) out += fmt::format(", {}", printable(run.tables.str(c.at)));
  return out;
}

Evidence Context::evidence(CallRef ref, std::string text) const {
  Evidence out;
  out.rank = run.ranks[ref.rank].rank;
  if (ref.call != kNoCall) {
    out.id = call(ref).id;
    out.at = printable(run.tables.str(call(ref).at));
    if (call(ref).step != trace::kNone) out.step = call(ref).step;
  }
  out.text = std::move(text);
  return out;
}

std::uint64_t Context::seq_of(const WaitPoint& point) const {
  LOCKSTEP_CHECK(point.group < groups.size(), "a wait for a message has no sequence number");
  return groups[point.group].first_seq + point.instance;
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

bool is_same_in_sister_group(const Context& context, const Cause& a, const Cause& b) {
  return a.call.value != 0 && a.group != SIZE_MAX && b.group != SIZE_MAX && a.group != b.group &&
         a.finding.rule == b.finding.rule && a.call == b.call && a.seq == b.seq &&
         a.step == b.step && a.finding.what == b.finding.what &&
         a.finding.culprits.empty() == b.finding.culprits.empty() &&
         context.groups[a.group].members.size() == context.groups[b.group].members.size();
}

void merge_sister(const Context& context, Cause& into, Cause&& same) {
  constexpr std::size_t kMaxEvidence = 8;  // what a reader looks at
  const auto label = [&](const Cause& cause) {
    if (cause.group == SIZE_MAX) return fmt::format("group {}", cause.finding.group);
    return context.describe_group(cause.deviants.empty() ? 0 : cause.deviants[0],
                                  context.groups[cause.group].group);
  };
  Finding& f = into.finding;
  f.group_label = label(into);
  f.also.push_back({same.finding.group, label(same), same.finding.seq, same.finding.culprits,
                    same.finding.ranks});
  for (Elsewhere& other : same.finding.also) f.also.push_back(std::move(other));
  unite(into.deviants, same.deviants);
  unite(into.held_up, same.held_up);
  unite(f.culprits, same.finding.culprits);
  unite(f.ranks, same.finding.ranks);
  f.evidence.insert(f.evidence.end(), same.finding.evidence.begin(), same.finding.evidence.end());
  f.evidence.resize(std::min(f.evidence.size(), kMaxEvidence));
  for (Finding& below : same.finding.consequences) f.consequences.push_back(std::move(below));
  // The stronger certainty holds for both: proven is the smallest value.
  f.certainty = std::min(f.certainty, same.finding.certainty);
}

namespace {

constexpr std::size_t kExceptionShown = 200;  // characters of an exception's text in a message

// The last exception's text, shortened.
std::string exception_text(const Context& context, std::uint32_t rank) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  if (trace.exceptions.empty()) return "";
  std::string text = printable(one_line(trace.exceptions.back().what));
  if (text.ends_with('.')) text.pop_back();  // a sentence goes on after it
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

CallRef shown_call(const Context& context, const WaitPoint& point) {
  for (const std::uint32_t rank : point.waiting) {
    const CallRef call = waiting_call(context, rank);
    if (context.call(call).signature != trace::SignatureId{}) return call;
  }
  return waiting_call(context, point.waiting[0]);
}

std::uint64_t seq_at(const Context& context, const WaitPoint& point) {
  if (point.group != WaitPoint::kPointToPoint) return context.seq_of(point);
  return context.call(waiting_call(context, point.waiting[0])).seq;
}

std::string describe_wait(const Context& context, const WaitPoint& point) {
  const CallRef call = shown_call(context, point);
  if (point.mismatched) {
    return fmt::format("{} issued calls that do not fit together ({})",
                       context.describe_ranks(point.waiting),
                       context.describe_location(call, seq_at(context, point)));
  }
  std::string peer;
  if (point.group == WaitPoint::kPointToPoint) {
    const trace::Call& c = context.call(call);
    const bool sends = context.run.tables.op(c) == trace::Op::send;
    // A receive from any rank names none.
    if (c.peer.value >= 0) peer = fmt::format(" {} rank {}", sends ? "to" : "from", c.peer.value);
  }
  return fmt::format("{} {} in {}{} ({})", context.describe_ranks(point.waiting),
                     point.waiting.size() == 1 ? "waits" : "wait", context.describe_call(call),
                     peer, context.describe_location(call, seq_at(context, point)));
}

std::string describe_awaited(const Context& context, const WaitPoint& point) {
  std::string out = describe_wait(context, point);
  const bool unlisted = point.any_source && point.group != WaitPoint::kPointToPoint;
  if (unlisted) {
    out += fmt::format(" for another member of the group, which the dumps do not list: {}{}",
                       point.missing.size() == 1 ? "" : "one of ",
                       context.describe_ranks(point.missing));
  } else if (!point.missing.empty()) {
    out += fmt::format(" for {}", context.describe_ranks(point.missing));
  } else if (!point.behind.empty()) {
    out += fmt::format(" for {}, whose {} not come to it", context.describe_ranks(point.behind),
                       point.behind.size() == 1 ? "device has" : "devices have");
  }
  return out;
}

Evidence wait_evidence(const Context& context, const WaitPoint& point, std::string words) {
  Evidence out = context.evidence(waiting_call(context, point.waiting[0]), std::move(words));
  out.sentence = true;
  return out;
}

void locate_cause(const Context& context, const WaitPoint& point, Cause& cause) {
  locate_cause(context, point, waiting_call(context, point.waiting[0]), seq_at(context, point),
               cause);
}

void locate_cause(const Context& context, const WaitPoint& point, CallRef call, std::uint64_t seq,
                  Cause& cause) {
  Finding& f = cause.finding;
  cause.step = context.call(call).step;
  cause.seq = seq;
  f.seq = cause.seq;
  if (cause.step != trace::kNone) f.step = cause.step;
  f.group = printable(context.run.tables.str(context.call(call).group));
  if (point.group != WaitPoint::kPointToPoint) cause.group = point.group;
  for (const std::string& name : context.run.tables.names(context.call(call).what)) {
    f.what.push_back(name);
  }
}

std::string describe_state(const Context& context, std::uint32_t rank, std::size_t ranks) {
  using State = Position::State;
  const bool one = ranks == 1;
  switch (context.where.positions[rank].state) {
    case State::finished:
      return one ? "finished its program" : "finished their programs";
    case State::running:
      return one ? "is still running" : "are still running";
    case State::cut:
      return one ? "stopped without an end mark: its process died, or its trace was cut off"
                 : "stopped without an end mark: their processes died, or their traces were cut "
                   "off";
    case State::killed: {
      if (context.run.ranks[rank].end != trace::End::interrupted)
        return one ? "was killed" : "were killed";
      const std::string text = exception_text(context, rank);  // where it was
      return fmt::format("{} interrupted{}", one ? "was" : "were",
                         text.empty() ? "" : fmt::format(": {}", text));
    }
    case State::raised: {
      const std::string text = exception_text(context, rank);
      return fmt::format("raised an exception{}", text.empty() ? "" : fmt::format(": {}", text));
    }
    case State::hung:
      return "hung outside of any collective";
  }
  return "";
}

std::string describe_states(const Context& context, const std::vector<std::uint32_t>& ranks,
                            std::size_t most) {
  // In the order of their first ranks.
  std::vector<std::vector<std::uint32_t>> alike;
  std::unordered_map<std::string, std::size_t> index;
  for (const std::uint32_t r : ranks) {
    const auto [at, is_new] = index.try_emplace(describe_state(context, r), alike.size());
    if (is_new) alike.emplace_back();
    alike[at->second].push_back(r);
  }
  std::string out;
  for (std::size_t i = 0; i < std::min(most, alike.size()); ++i) {
    const std::vector<std::uint32_t>& same = alike[i];
    out += fmt::format("{}{} {}", out.empty() ? "" : "; ", context.describe_ranks(same),
                       describe_state(context, same[0], same.size()));
  }
  if (alike.size() > most) out += fmt::format("; and {} more ends", alike.size() - most);
  return out;
}

std::string last_seen(const Context& context, std::uint32_t rank) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  // A dump of open calls alone does not hold those that completed.
  if (trace.calls.empty())
    return trace.snapshot ? "its dump holds no open call" : "no call of it was recorded";
  const CallRef last{rank, static_cast<std::uint32_t>(trace.calls.size() - 1)};
  std::string out = fmt::format("its last call was {} ({})", context.describe_call(last),
                                context.describe_location(last, context.call(last).seq));
  // The line in which it was.
  if (trace.end == trace::End::interrupted && !trace.exceptions.empty())
    out += fmt::format("; it {}", describe_state(context, rank));
  return out;
}

std::string describe_names(const Context& context, const std::vector<trace::StringId>& names) {
  constexpr std::size_t kNamesShown = 3;
  std::vector<std::string> words;
  words.reserve(names.size());
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
