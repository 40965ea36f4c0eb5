#include "verify/context.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace lockstep {

std::vector<Rank> Context::ranks(const std::vector<std::uint32_t>& indices) const {
  std::vector<Rank> out;
  out.reserve(indices.size());
  for (const std::uint32_t i : indices) out.push_back(run.ranks[i].rank);
  std::sort(out.begin(), out.end());
  return out;
}

std::string rank_words(const std::vector<Rank>& sorted) {
  std::vector<std::int32_t> numbers;
  numbers.reserve(sorted.size());
  for (const Rank r : sorted) numbers.push_back(r.value);
  std::string list = ranges(numbers);
  std::string out;
  for (const char c : list) out += c == ',' ? std::string(", ") : std::string(1, c);
  return (sorted.size() == 1 ? "rank " : "ranks ") + out;
}

std::string Context::rank_words(const std::vector<std::uint32_t>& indices) const {
  return lockstep::rank_words(ranks(indices));
}

std::string Context::call_words(CallRef ref) const { return describe(run.tables, call(ref)); }

std::string Context::place_words(CallRef ref, std::uint64_t seq) const {
  const Call& c = call(ref);
  std::string out =
      "call " + std::to_string(seq) + " of group " + printable(run.tables.str(c.group));
  if (c.step != kNone) out += ", step " + std::to_string(c.step);
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
  out.fix = rule(id).fix;
  return out;
}

void set_fingerprint(Finding& finding, const std::string& operation) {
  // FNV-1a, 64 bit: stable over versions and machines.
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

}  // namespace lockstep
