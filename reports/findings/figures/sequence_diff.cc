// The calls of a culprit beside those of its peers, aligned as a diff. The alignment is the longest
// common subsequence of two streams, within a window around the finding.
#include <algorithm>

#include <fmt/format.h>

#include "base/tables.h"
#include "reports/findings/figures/figures.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "verify/streams/agreement.h"
#include "verify/streams/edits.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kCallsBefore = 8;     // calls before the finding that are compared
constexpr std::size_t kComparedCalls = 48;  // calls of each side that are compared
constexpr std::size_t kContext = 3;         // equal calls shown around a difference
constexpr std::size_t kMaxDiffRows = 40;

using Lengths = std::vector<std::vector<std::uint32_t>>;

struct Window {
  const trace::RankTrace* trace = nullptr;
  const verify::Stream* stream = nullptr;
  std::uint64_t first_seq = 0;  // of the group
  std::size_t begin = 0, count = 0;

  std::uint32_t call(std::size_t i) const { return stream->calls[begin + i]; }
  std::uint64_t seq(std::size_t i) const { return first_seq + begin + i; }
  verify::Token token(std::size_t i) const {
    const trace::Call& call = trace->calls[this->call(i)];
    return {call.signature, call.what, call.step};
  }
  trace::StringId location(std::size_t i) const { return trace->calls[call(i)].at; }
  bool reaches_the_end() const { return begin + count == stream->calls.size(); }
};

// The class that a stream is in.
const verify::StreamClass& class_of(const verify::GroupStreams& group, std::uint32_t stream) {
  return *std::find_if(group.classes.begin(), group.classes.end(),
                       [&](const verify::StreamClass& one) {
                         return std::binary_search(one.streams.begin(), one.streams.end(), stream);
                       });
}

std::vector<trace::Rank> ranks_in(const verify::StreamClass& one, const verify::GroupStreams& group,
                                  const trace::Run& run) {
  std::vector<trace::Rank> out;
  for (const std::uint32_t s : one.streams)
    out.push_back(run.ranks[group.streams[s].rank_index].rank);
  std::sort(out.begin(), out.end());
  return out;
}

struct Pair {
  std::uint32_t usual, deviant;  // into GroupStreams::streams
};

// The two streams to compare: the first culprit's, and one of the largest class without culprits.
std::optional<Pair> choose_pair(const verify::Finding& finding, const verify::GroupStreams& group,
                                const trace::Run& run) {
  const auto is_culprit = [&](std::uint32_t s) {
    return std::binary_search(finding.culprits.begin(), finding.culprits.end(),
                              run.ranks[group.streams[s].rank_index].rank);
  };
  const verify::StreamClass* usual = nullptr;
  std::optional<std::uint32_t> deviant;
  for (const verify::StreamClass& one : group.classes) {
    const auto culprit = std::find_if(one.streams.begin(), one.streams.end(), is_culprit);
    if (culprit != one.streams.end()) {
      if (!deviant) deviant = *culprit;
    } else if (usual == nullptr || one.streams.size() > usual->streams.size()) {
      usual = &one;
    }
  }
  if (!deviant || usual == nullptr) return std::nullopt;
  return Pair{usual->streams.front(), *deviant};
}

Window window_of(const verify::Stream& stream, const verify::GroupStreams& group,
                 const trace::Run& run, std::size_t position) {
  Window out{&run.ranks[stream.rank_index], &stream, group.first_seq, 0, 0};
  out.begin = std::min(stream.calls.size(), position - std::min(position, kCallsBefore));
  out.count = std::min(kComparedCalls, stream.calls.size() - out.begin);
  return out;
}

// lengths[i][j]: length of the longest common subsequence of usual[i…] and deviant[j…].
Lengths common_lengths(const Window& usual, const Window& deviant,
                       const std::vector<std::vector<bool>>& same) {
  Lengths out(usual.count + 1, std::vector<std::uint32_t>(deviant.count + 1));
  for (std::size_t i = usual.count; i-- > 0;)
    for (std::size_t j = deviant.count; j-- > 0;)
      out[i][j] = same[i][j] ? out[i + 1][j + 1] + 1 : std::max(out[i + 1][j], out[i][j + 1]);
  return out;
}

// Writes the calls that only one side has: those of both sides next to each other, row by row.
void flush(std::vector<DiffRow>& left, std::vector<DiffRow>& right, std::vector<DiffRow>& rows) {
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    DiffRow row = i < left.size() ? left[i] : DiffRow{};
    if (i < right.size()) {
      row.deviant = right[i].deviant;
      row.deviant_seq = right[i].deviant_seq;
    }
    rows.push_back(row);
  }
  left.clear();
  right.clear();
}

// `seq`: of the finding.
std::vector<DiffRow> align(const Window& usual, const Window& deviant, std::uint64_t seq,
                           const trace::Tables& tables) {
  verify::Agreement agreement(tables);
  std::vector<std::vector<bool>> same(usual.count, std::vector<bool>(deviant.count));
  for (std::size_t i = 0; i < usual.count; ++i)
    for (std::size_t j = 0; j < deviant.count; ++j)
      same[i][j] =
          verify::same_call(agreement, usual.token(i), deviant.token(j), /*with_step=*/true);
  // Where the calls of the finding look the same, their source locations tell them apart.
  const std::size_t at = seq - usual.seq(0);
  if (at < usual.count && at < deviant.count && same[at][at] &&
      usual.location(at) != deviant.location(at)) {
    for (std::size_t i = 0; i < usual.count; ++i)
      for (std::size_t j = 0; j < deviant.count; ++j)
        same[i][j] = same[i][j] && usual.location(i) == deviant.location(j);
  }
  const Lengths lengths = common_lengths(usual, deviant, same);
  std::vector<DiffRow> rows, left, right;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < usual.count || j < deviant.count) {
    if (i < usual.count && j < deviant.count && same[i][j]) {
      flush(left, right, rows);
      rows.push_back({usual.call(i), deviant.call(j), usual.seq(i), deviant.seq(j), true});
      ++i, ++j;
      // Skip the call whose removal keeps the longer common rest; on a tie the usual side's, so
      // that what was left out comes before what was added.
    } else if (j == deviant.count || (i < usual.count && lengths[i + 1][j] >= lengths[i][j + 1])) {
      left.push_back({usual.call(i), std::nullopt, usual.seq(i), 0, false});
      ++i;
    } else {
      right.push_back({std::nullopt, deviant.call(j), 0, deviant.seq(j), false});
      ++j;
    }
  }
  flush(left, right, rows);
  return rows;
}

// Keeps the differences with a little context. Returns true if the last row is still there.
bool trim(std::vector<DiffRow>& rows) {
  const auto differs = [](const DiffRow& row) { return !row.same; };
  const auto first = std::find_if(rows.begin(), rows.end(), differs);
  const auto last = std::find_if(rows.rbegin(), rows.rend(), differs).base();
  const auto before = std::min<std::ptrdiff_t>(kContext, first - rows.begin());
  const auto after = std::min<std::ptrdiff_t>(kContext, rows.end() - last);
  const bool whole = last + after == rows.end();
  rows = std::vector<DiffRow>(first - before, last + after);
  if (rows.size() <= kMaxDiffRows) return whole;
  rows.resize(kMaxDiffRows);
  return false;
}

}  // namespace

std::optional<SequenceDiff> sequence_diff(const verify::Finding& finding, const trace::Run& run,
                                          const std::vector<verify::GroupStreams>& groups) {
  if (!finding.seq || finding.culprits.empty()) return std::nullopt;
  const auto group = std::find_if(
      groups.begin(), groups.end(),
      [&](const verify::GroupStreams& one) { return one.name == finding.group && one.comparable; });
  if (group == groups.end() || *finding.seq < group->first_seq) return std::nullopt;
  const std::optional<Pair> pair = choose_pair(finding, *group, run);
  if (!pair) return std::nullopt;
  const auto position = static_cast<std::size_t>(*finding.seq - group->first_seq);
  const Window usual = window_of(group->streams[pair->usual], *group, run, position);
  const Window deviant = window_of(group->streams[pair->deviant], *group, run, position);
  SequenceDiff out;
  out.usual = {usual.stream->rank_index, ranks_in(class_of(*group, pair->usual), *group, run)};
  out.deviant = {deviant.stream->rank_index,
                 ranks_in(class_of(*group, pair->deviant), *group, run)};
  out.rows = align(usual, deviant, *finding.seq, run.tables);
  if (std::all_of(out.rows.begin(), out.rows.end(), [](const DiffRow& row) { return row.same; }))
    return std::nullopt;
  const bool whole = trim(out.rows);
  out.usual.ends = whole && usual.reaches_the_end();
  out.deviant.ends = whole && deviant.reaches_the_end();
  return out;
}

}  // namespace lockstep::reports

namespace lockstep::reports::html {
namespace {

std::string_view describe_end(trace::End end) {
  switch (end) {
    case trace::End::cut:
      return "the trace ends";
    case trace::End::clean:
      return "the program ends";
    case trace::End::hung:
      return "hangs";
    case trace::End::exception:
      return "an exception ends it";
    case trace::End::killed:
      return "killed";
    case trace::End::interrupted:
      return "interrupted";
  }
  return "";
}

std::string call_cells(const trace::RankTrace& trace, const trace::Tables& tables,
                       std::uint32_t index, std::uint64_t seq, std::string_view look,
                       std::string_view sign) {
  const trace::Call& call = trace.calls[index];
  const std::string at = call.at.value == 0 ? "" : element("span", "at", text(tables.str(call.at)));
  return fmt::format(
      "<td class=\"n {0}\">{1}</td><td class=\"{0}\"><span class=\"sign\">{2}</span>{3}{4}"
      "</td>",
      look, seq + trace.first_number, sign, code(trace::describe(tables, call)), at);
}

class SidesTable {
 public:
  SidesTable(const SequenceDiff& diff, const trace::Run& run) : diff_(diff), run_(run) {}

  std::string str() {
    std::string rows;
    for (const DiffRow& row : diff_.rows)
      rows += fmt::format("<tr>{}{}</tr>\n", usual(row), deviant(row));
    rows += ends();
    const std::string table =
        fmt::format("<table class=\"diff\"><thead><tr>{}{}</tr></thead><tbody>{}</tbody></table>",
                    head(diff_.usual, "in"), head(diff_.deviant, "out"), rows);
    return fmt::format("<section><h3>Call by call</h3>{}</section>\n",
                       scroller("the calls of both sides", table));
  }

 private:
  static std::string head(const DiffSide& side, std::string_view look) {
    return fmt::format("<th class=\"n {0}\">seq</th><th class=\"{0}\">{1}</th>", look,
                       text(rank_label(side.ranks, 40)));
  }

  std::string usual(const DiffRow& row) const {
    if (!row.usual) return "<td class=\"n empty\"></td><td class=\"empty\"></td>";
    return call_cells(run_.ranks[diff_.usual.rank_index], run_.tables, *row.usual, row.usual_seq,
                      row.same ? "" : "in",
                      row.same      ? " "
                      : row.deviant ? "≠"
                                    : "+");
  }

  std::string deviant(const DiffRow& row) const {
    if (!row.deviant) return "<td class=\"n empty\"></td><td class=\"empty\"></td>";
    return call_cells(run_.ranks[diff_.deviant.rank_index], run_.tables, *row.deviant,
                      row.deviant_seq, row.same ? "twin" : "out",
                      row.same    ? " "
                      : row.usual ? "≠"
                                  : "+");
  }

  std::string ends() const {
    if (!diff_.usual.ends && !diff_.deviant.ends) return {};
    return fmt::format("<tr>{}{}</tr>\n", end_of(diff_.usual), end_of(diff_.deviant));
  }

  std::string end_of(const DiffSide& side) const {
    const std::string_view end = side.ends ? describe_end(run_.ranks[side.rank_index].end) : "…";
    return fmt::format(
        "<td class=\"n\"></td><td class=\"soft\"><span class=\"sign\"> </span>{}</td>", text(end));
  }

  const SequenceDiff& diff_;
  const trace::Run& run_;
};

}  // namespace

std::string diff_table(const SequenceDiff& diff, const trace::Run& run) {
  return SidesTable(diff, run).str();
}

}  // namespace lockstep::reports::html
