#include "reports/findings/finding_words.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/folded_ranges.h"
#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "trace/signature.h"

namespace lockstep::reports {
namespace {

constexpr std::string_view kCut = "..";

// A list that folds as a whole, shortened: "5,13,...,1021 (every 8th)" is "5,13,.. every 8th".
// Empty for other lists.
std::string shortened_folding(std::string_view list) {
  const std::size_t every = list.find("(every ");
  if (every == kNpos || !list.ends_with(')')) return {};
  // Up to the end, or to the ranks that are left out: "every 8th but 501".
  const std::size_t end = list.find_first_of(")b", every);
  return fmt::format("{}{} {}", list.substr(0, list.find("...")), kCut,
                     trimmed(list.substr(every + 1, end - every - 1)));
}

}  // namespace

std::string rank_label(std::span<const trace::Rank> sorted, std::size_t width) {
  LOCKSTEP_CHECK(!sorted.empty(), "a label needs a rank");
  std::vector<std::int32_t> numbers;
  for (const trace::Rank rank : sorted) numbers.push_back(rank.value);
  const std::string list = folded_ranges(numbers);
  std::string label = fmt::format("{} {}", sorted.size() == 1 ? "rank" : "ranks", list);
  if (width == 0 || label.size() <= width) return label;
  label = fmt::format("{} ranks: ", grouped(sorted.size()));
  if (label.size() + kCut.size() + 1 > width) return shorten_middle(label, width);
  // "127 ranks: 5,13,.. every 8th".
  const std::string folding = shortened_folding(list);
  if (!folding.empty() && label.size() + folding.size() <= width) return label + folding;
  std::string_view shown = std::string_view(list).substr(0, width - label.size() - kCut.size());
  // Cut after a separator: half a number would be another rank.
  shown = shown.substr(0, std::min(shown.size(), shown.find_last_of(",-") + 1));
  shown = shown.substr(0, shown.find("..."));
  return label.append(shown).append(kCut);
}

std::string group_in_words(const verify::Finding& finding) {
  if (!finding.group_label.empty()) return finding.group_label;
  return finding.group.empty() ? "" : fmt::format("group {}", finding.group);
}

std::uint64_t number_of(const verify::Finding& finding) {
  return finding.number.value_or(finding.seq.value_or(0));
}

std::vector<std::string> also_in_words(const verify::Finding& finding) {
  std::vector<std::string> out;
  for (const verify::Elsewhere& other : finding.also) {
    // If no culprit can be singled out, name all ranks that it concerns.
    const std::vector<trace::Rank>& who = other.culprits.empty() ? other.ranks : other.culprits;
    const std::string group =
        other.group_label.empty() ? fmt::format("group {}", other.group) : other.group_label;
    out.push_back(who.empty() ? group : fmt::format("{}: {}", group, rank_label(who)));
  }
  return out;
}

const std::string& summary_of(const verify::Finding& finding) {
  return finding.headline.empty() ? finding.message : finding.headline;
}

std::vector<std::string> lines_of(const verify::Finding& finding) {
  std::vector<std::string> out = {summary_of(finding)};
  if (finding.message != out.front() && !finding.message.empty()) out.push_back(finding.message);
  const auto add = [&](std::string_view key, const std::string& words) {
    if (!words.empty()) out.push_back(fmt::format("{}: {}", key, words));
  };
  add("who", who_in_words(finding));
  add("where", where_in_words(finding));
  for (const std::string& other : also_in_words(finding)) add("also", other);
  add("next", finding.next);
  add("what to do", finding.fix);
  return out;
}

bool is_about_calls(const verify::Finding& finding) {
  return finding.severity != verify::Severity::note || finding.rule == verify::RuleId::host_stall;
}

const std::vector<trace::Rank>& named_ranks(const verify::Finding& finding) {
  const bool note = finding.severity == verify::Severity::note;
  return note && finding.culprits.empty() && !finding.headline.empty() ? finding.ranks
                                                                       : finding.culprits;
}

const verify::Finding* headline_of(const verify::Report& report) {
  // Findings are sorted, worst first. If the first one has no headline, a later one's would explain
  // less than its message.
  if (report.findings.empty()) return nullptr;
  const verify::Finding& first = report.findings.front();
  return first.headline.empty() ? nullptr : &first;
}

std::string where_in_words(const verify::Finding& finding) {
  std::vector<std::string> parts;
  if (!finding.group.empty()) parts.push_back(group_in_words(finding));
  if (finding.seq) parts.push_back(fmt::format("seq {}", number_of(finding)));
  if (finding.step) parts.push_back(fmt::format("step {}", *finding.step));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string who_in_words(const verify::Finding& finding) {
  // Keeps a list of a thousand ranks that do not fold to one line.
  constexpr std::size_t kWidth = 60;
  if (finding.ranks.empty() && finding.culprits.empty()) return {};
  const std::vector<trace::Rank>& named = named_ranks(finding);
  if (named.empty())
    return fmt::format("{}; none can be singled out", rank_label(finding.ranks, kWidth));
  std::string out = rank_label(named, kWidth);
  std::vector<trace::Rank> others;
  std::set_difference(finding.ranks.begin(), finding.ranks.end(), named.begin(), named.end(),
                      std::back_inserter(others));
  if (!finding.waiting.empty())
    out += fmt::format("; {} {} directly", rank_label(finding.waiting, kWidth),
                       finding.waiting.size() == 1 ? "waits" : "wait");
  if (!others.empty()) out += fmt::format("; concerns {} too", rank_label(others, kWidth));
  return out;
}

std::string counts_in_words(const verify::Report& report) {
  std::vector<std::string> parts;
  for (const verify::Severity severity :
       {verify::Severity::error, verify::Severity::warning, verify::Severity::note}) {
    const auto n = std::count_if(report.findings.begin(), report.findings.end(),
                                 [&](const verify::Finding& f) { return f.severity == severity; });
    if (n > 0) parts.push_back(plural(n, verify::to_string(severity)));
  }
  return join_and(parts);
}

std::string verdict_in_words(const verify::Report& report) {
  const std::string size = fmt::format("{}, {} events", plural(report.ranks_read.size(), "rank"),
                                       grouped(report.events));
  std::string out;
  switch (report.verdict) {
    case verify::Verdict::clean:
      out = fmt::format("nothing wrong in {}", size);
      break;
    case verify::Verdict::findings:
      out = fmt::format("{} in {}", counts_in_words(report), size);
      break;
    case verify::Verdict::inconclusive:
      out = fmt::format("no error seen in {}, but not all is known", size);
      break;
  }
  if (!report.ranks_missing.empty())
    out += fmt::format("; no trace of {}", rank_label(report.ranks_missing, 40));
  if (!report.ranks_damaged.empty())
    out += fmt::format("; damaged trace of {}", rank_label(report.ranks_damaged, 40));
  return out;
}

std::vector<FoldedEvidence> fold_evidence(const std::vector<verify::Evidence>& all) {
  std::vector<FoldedEvidence> out;
  // By source line and text, but not by id: ids differ between ranks that did the same.
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> locations;
  for (const verify::Evidence& evidence : all) {
    const auto [location, fresh] = locations.try_emplace({evidence.at, evidence.text}, out.size());
    if (fresh) out.push_back({{}, &evidence});
    out[location->second].ranks.push_back(evidence.rank);
  }
  for (FoldedEvidence& folded : out) std::sort(folded.ranks.begin(), folded.ranks.end());
  return out;
}

const trace::Call* call_of(const verify::Evidence& evidence, const trace::Run& run) {
  const trace::RankTrace* const trace = run.find(evidence.rank);
  if (trace == nullptr || !evidence.id) return nullptr;
  const auto call = std::find_if(trace->calls.begin(), trace->calls.end(),
                                 [&](const trace::Call& one) { return one.id == *evidence.id; });
  return call == trace->calls.end() ? nullptr : &*call;
}

std::string group_and_shapes(const trace::Call& call, const trace::Tables& tables) {
  const auto shapes = [&](trace::IntListId flat) {
    std::vector<std::string> out;
    for (const std::vector<std::int64_t>& shape : trace::unflatten_shapes(tables.int_lists[flat]))
      out.push_back(fmt::format("[{}]", fmt::join(shape, ",")));
    return fmt::format("{}", fmt::join(out, " "));
  };
  const trace::Signature& signature = tables.signatures[call.signature];
  std::string out = fmt::format("group {}", tables.str(call.group));
  const std::string in = shapes(signature.in);
  const std::string filled = shapes(signature.out);
  if (!in.empty()) out += fmt::format(", {}", in);
  if (!filled.empty()) out += fmt::format("{}{}", in.empty() ? ", to " : " to ", filled);
  if (call.has(trace::kStarted) && !call.has(trace::kCompleted)) out += ", runs on its device";
  return out;
}

std::vector<std::string> stack_of(const trace::Call& call, const trace::Tables& tables) {
  std::vector<std::string> out;
  std::istringstream frames(tables.str(call.stack));
  for (std::string frame; std::getline(frames, frame);) out.push_back(frame);
  return out;
}

std::string common_folder(const std::vector<std::string>& locations, std::size_t worth_naming) {
  std::optional<std::string> common;
  for (const std::string& at : locations) {
    if (at.empty()) continue;
    if (!common) common = at;
    const auto differs = std::mismatch(common->begin(), common->end(), at.begin(), at.end());
    common->erase(differs.first, common->end());
    common->erase(common->rfind('/') + 1);  // without a "/": everything (npos + 1 is 0)
  }
  return common && common->starts_with('/') && common->size() >= worth_naming ? *common : "";
}

std::string UniqueFingerprints::next(const verify::Finding& finding) {
  const std::size_t count = ++seen_[finding.fingerprint];
  return count == 1 ? finding.fingerprint : fmt::format("{}-{}", finding.fingerprint, count);
}

}  // namespace lockstep::reports
