#include "reports/findings/finding_words.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/tables.h"
#include "base/text.h"

namespace lockstep::reports {
namespace {

std::string counts(const verify::Report& report) {
  std::vector<std::string> parts;
  for (const verify::Severity severity :
       {verify::Severity::error, verify::Severity::warning, verify::Severity::note}) {
    const auto n = std::count_if(report.findings.begin(), report.findings.end(),
                                 [&](const verify::Finding& f) { return f.severity == severity; });
    if (n > 0) parts.push_back(plural(static_cast<std::uint64_t>(n), verify::to_string(severity)));
  }
  return join_and(parts);
}

}  // namespace

std::string rank_label(std::span<const trace::Rank> sorted, std::size_t width) {
  LOCKSTEP_CHECK(!sorted.empty(), "a label needs a rank");
  constexpr std::string_view cut = "..";
  std::vector<std::int32_t> numbers;
  for (const trace::Rank rank : sorted) numbers.push_back(rank.value);
  const std::string list = ranges(numbers);
  std::string label = (sorted.size() == 1 ? "rank " : "ranks ") + list;
  if (width == 0 || label.size() <= width) return label;
  label = std::to_string(sorted.size()) + " ranks: ";
  if (label.size() + cut.size() + 1 > width) return shorten_middle(label, width);
  std::string_view shown = std::string_view(list).substr(0, width - label.size() - cut.size());
  // Cut after a separator: half a number would name another rank.
  shown = shown.substr(0, std::min(shown.size(), shown.find_last_of(",-") + 1));
  return label.append(shown).append(cut);
}

std::string group_in_words(const verify::Finding& finding) {
  if (!finding.group_label.empty()) return finding.group_label;
  return finding.group.empty() ? "" : "group " + finding.group;
}

std::uint64_t number_of(const verify::Finding& finding) {
  return finding.number.value_or(finding.seq.value_or(0));
}

std::vector<std::string> also_in_words(const verify::Finding& finding) {
  std::vector<std::string> out;
  for (const verify::Elsewhere& other : finding.also) {
    const std::vector<trace::Rank>& who = other.culprits.empty() ? other.ranks : other.culprits;
    out.push_back((other.group_label.empty() ? "group " + other.group : other.group_label) +
                  (who.empty() ? "" : ": " + rank_label(who)));
  }
  return out;
}

const verify::Finding* headline_of(const verify::Report& report) {
  // Findings are sorted: what comes after an error without a headline explains less than it.
  if (report.findings.empty()) return nullptr;
  const verify::Finding& first = report.findings.front();
  return first.headline.empty() ? nullptr : &first;
}

std::string where_in_words(const verify::Finding& finding) {
  std::vector<std::string> parts;
  if (!finding.group.empty()) parts.push_back(group_in_words(finding));
  if (finding.seq) parts.push_back("seq " + std::to_string(number_of(finding)));
  if (finding.step) parts.push_back("step " + std::to_string(*finding.step));
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

std::string who_in_words(const verify::Finding& finding) {
  constexpr std::size_t kWidth = 60;
  if (finding.ranks.empty() && finding.culprits.empty()) return {};
  if (finding.culprits.empty())
    return rank_label(finding.ranks, kWidth) + "; none can be singled out";
  std::string out = rank_label(finding.culprits, kWidth);
  std::vector<trace::Rank> others;
  std::set_difference(finding.ranks.begin(), finding.ranks.end(), finding.culprits.begin(),
                      finding.culprits.end(), std::back_inserter(others));
  if (!finding.waiting.empty())
    out += "; " + rank_label(finding.waiting, kWidth) +
           (finding.waiting.size() == 1 ? " waits directly" : " wait directly");
  if (!others.empty()) out += "; concerns " + rank_label(others, kWidth) + " too";
  return out;
}

std::string verdict_in_words(const verify::Report& report) {
  const std::string size =
      plural(report.ranks_read.size(), "rank") + ", " + grouped(report.events) + " events";
  std::string out;
  switch (report.verdict) {
    case verify::Verdict::clean:
      out = "nothing wrong in " + size;
      break;
    case verify::Verdict::findings:
      out = counts(report) + " in " + size;
      break;
    case verify::Verdict::inconclusive:
      out = "no error seen in " + size + ", but not all is known";
      break;
  }
  if (!report.ranks_missing.empty()) out += "; no trace of " + rank_label(report.ranks_missing, 40);
  if (!report.ranks_damaged.empty())
    out += "; damaged trace of " + rank_label(report.ranks_damaged, 40);
  return out;
}

std::vector<FoldedEvidence> fold_evidence(const std::vector<verify::Evidence>& all) {
  std::vector<FoldedEvidence> out;
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> locations;  // by at and text
  for (const verify::Evidence& evidence : all) {
    const auto [location, fresh] = locations.try_emplace({evidence.at, evidence.text}, out.size());
    if (fresh) out.push_back({{}, &evidence});
    out[location->second].ranks.push_back(evidence.rank);
  }
  for (FoldedEvidence& folded : out) std::sort(folded.ranks.begin(), folded.ranks.end());
  return out;
}

std::string UniqueFingerprints::next(const verify::Finding& finding) {
  const std::size_t count = ++seen_[finding.fingerprint];
  return count == 1 ? finding.fingerprint : finding.fingerprint + "-" + std::to_string(count);
}

namespace {

// Removes ":<number>" from the end of `text`. Returns the number, from 1; empty if there is none or
// it does not fit, and `text` stays.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == text.size()) return std::nullopt;
  std::int32_t value = 0;  // consumers hold lines as signed 32-bit numbers
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, value);
  if (error != std::errc{} || stop != end || value < 1) return std::nullopt;
  text = text.substr(0, colon);
  return static_cast<std::uint32_t>(value);
}

std::string relative_to(std::string file, std::string_view root) {
  // "/job/src/a.py" in "/job" is "src/a.py"; "/jobs/a.py" is not inside.
  while (root.ends_with('/')) root.remove_suffix(1);
  if (!root.empty() && file.size() > root.size() + 1 && file.starts_with(root) &&
      file[root.size()] == '/')
    return file.substr(root.size() + 1);
  while (file.starts_with("./") && file.size() > 2) file.erase(0, 2);
  return file;
}

}  // namespace

std::optional<SourceLocation> source_location(std::string_view at, std::string_view root) {
  const auto last = take_number(at);
  if (!last) return std::nullopt;
  SourceLocation out;
  // One number is the line; of two, "57:3", the last is the column.
  std::string_view before = at;
  if (const auto line = take_number(before); line && !before.empty()) {
    at = before;
    out.line = *line;
    out.column = last;
  } else {
    out.line = *last;
  }
  if (at.empty()) return std::nullopt;
  std::string file = printable(at);
  // Paths of Windows.
  std::replace(file.begin(), file.end(), '\\', '/');
  out.file = relative_to(std::move(file), root);
  return out;
}

std::optional<SourceLocation> location_of(const verify::Finding& finding, std::string_view root) {
  std::optional<SourceLocation> first;
  for (const verify::Evidence& evidence : finding.evidence) {
    std::optional<SourceLocation> location = source_location(evidence.at, root);
    if (!location) continue;
    if (std::binary_search(finding.culprits.begin(), finding.culprits.end(), evidence.rank))
      return location;
    if (!first) first = std::move(location);
  }
  return first;
}

}  // namespace lockstep::reports
