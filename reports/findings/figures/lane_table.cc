#include "reports/findings/figures/lane_table.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "trace/groups.h"

namespace lockstep::reports {
namespace {

using State = LaneCell::State;

std::string joined(const trace::IntList& list) { return fmt::format("{}", fmt::join(list, ",")); }

std::string what_of(const trace::Call& call, const trace::Tables& tables) {
  const std::vector<trace::StringId>& names = tables.name_lists[call.what];
  if (names.empty()) return {};
  // The first parameter identifies a bucket, because DDP fills its buckets in a fixed order.
  std::string out = printable(tables.str(names.front()));
  // "head.weight +3" for a bucket of four.
  if (names.size() > 1) out += fmt::format(" +{}", names.size() - 1);
  return out;
}

std::string size_of(const trace::Signature& signature, const trace::Tables& tables) {
  // The first of count, input and output that the source recorded. Only the root of a scatter has
  // an input, for all: there the output comes first, which all have.
  const bool scatter = signature.op == trace::Op::scatter;
  std::int64_t elements = signature.count;
  if (elements == trace::kNone && scatter) elements = signature.out_elements;
  if (elements == trace::kNone) elements = signature.in_elements;
  if (elements == trace::kNone) elements = signature.out_elements;
  std::string out = elements == trace::kNone ? "" : fmt::format("{}", elements);
  const std::vector<trace::StringId>& dtypes = tables.name_lists[signature.dtypes];
  if (!dtypes.empty()) out += (out.empty() ? "" : " ") + printable(tables.str(dtypes.front()));
  return out;
}

std::string op_label(const trace::Signature& signature, const trace::Tables& tables) {
  if (signature.op != trace::Op::other) return std::string(trace::op_name(signature.op));
  return printable(tables.str(signature.other_op));
}

std::string peer_label(const trace::Call& call, trace::Op op) {
  const std::string peer =
      call.peer.value < 0 ? "any rank" : fmt::format("rank {}", call.peer.value);
  return (op == trace::Op::send ? " to " : " from ") + peer;
}

// True if the rank never left this call, as far as its trace shows: an asynchronous call blocks
// only once the rank waits for it, a blocking one if it is the last.
bool blocks(const trace::Call& call, const trace::RankTrace& trace) {
  if (trace.end == trace::End::clean || call.has(trace::kCompleted) || call.has(trace::kWaitEnded))
    return false;
  if (call.has(trace::kAsync)) return call.has(trace::kWaitBegan);
  return &call == &trace.calls.back();
}

const trace::Call* blocking_call(const trace::RankTrace& trace) {
  const std::vector<trace::Call>& calls = trace.calls;
  const auto found = std::find_if(calls.rbegin(), calls.rend(),
                                  [&](const trace::Call& call) { return blocks(call, trace); });
  return found == calls.rend() ? nullptr : &*found;
}

bool records_completion(const trace::RankTrace& trace) {
  return std::any_of(trace.calls.begin(), trace.calls.end(),
                     [](const trace::Call& call) { return call.has(trace::kCompleted); });
}

LaneCell cell_of(const trace::Call& call, const trace::RankTrace& trace,
                 const trace::Tables& tables) {
  const trace::Signature& signature = tables.signatures[call.signature];
  LaneCell cell;
  cell.state = State::done;
  cell.call = static_cast<std::uint32_t>(&call - trace.calls.data());
  if (blocks(call, trace))
    cell.state = State::waits;
  else if (!call.has(trace::kCompleted) && trace.end != trace::End::clean &&
           records_completion(trace))
    cell.state = State::pending;
  cell.fields[kOp] = op_label(signature, tables);
  cell.fields[kWhat] = what_of(call, tables);
  cell.fields[kSize] = size_of(signature, tables);
  cell.size_is_own = signature.op == trace::Op::all_to_all || signature.splits_in.value != 0;
  cell.fields[kRedop] = printable(tables.str(signature.redop));
  if (signature.root != trace::kNone) cell.fields[kRoot] = fmt::format("root {}", signature.root);
  const trace::IntList& splits = tables.int_lists[signature.splits_in];
  if (!splits.empty()) cell.fields[kSplits] = fmt::format("splits {}", joined(splits));
  return cell;
}

// "world", "TENSOR_PARALLEL": without the word "group", which the cell has no room for.
std::string group_in_cell(const trace::RankTrace& trace, const trace::Tables& tables,
                          trace::GroupId group) {
  constexpr std::string_view kGroup = "group ";
  const std::string label = trace::group_label(trace, tables, group);
  return label.starts_with(kGroup) ? label.substr(kGroup.size()) : label;
}

// The state of a rank that has no call here: why its stream stopped.
LaneCell stopped(const trace::RankTrace& trace, trace::GroupId group, const trace::Tables& tables) {
  LaneCell cell;
  if (const trace::Call* blocking = blocking_call(trace)) {
    const trace::Op op = tables.op(*blocking);
    // A rank that waits in this group shows it in the cell of that call.
    const bool elsewhere = blocking->group != group || trace::is_point_to_point(op);
    cell.state = elsewhere ? State::waits_elsewhere : State::absent;
    if (elsewhere)
      cell.elsewhere = trace::is_point_to_point(op) ? std::string(trace::op_name(op))
                                                    : group_in_cell(trace, tables, blocking->group);
    return cell;
  }
  switch (trace.end) {
    case trace::End::cut:
      cell.state = State::cut;
      break;
    case trace::End::clean:
      cell.state = State::ended;
      break;
    case trace::End::hung:
      cell.state = State::not_called;
      break;
    case trace::End::exception:
      cell.state = State::raised;
      break;
    case trace::End::killed:
      cell.state = State::killed;
      break;
    case trace::End::interrupted:
      cell.state = State::interrupted;
      break;
  }
  return cell;
}

std::optional<trace::GroupId> group_named(const trace::Tables& tables, const std::string& name) {
  for (std::uint32_t id = 0; id < tables.groups.size(); ++id)
    if (tables.groups[trace::GroupId(id)] == name) return trace::GroupId(id);
  return std::nullopt;
}

bool calls_in(const trace::RankTrace& trace, trace::GroupId group) {
  return std::any_of(trace.calls.begin(), trace.calls.end(),
                     [&](const trace::Call& call) { return call.group == group; });
}

std::set<trace::Rank> concerned(const verify::Finding& finding) {
  std::set<trace::Rank> out(finding.ranks.begin(), finding.ranks.end());
  out.insert(finding.culprits.begin(), finding.culprits.end());
  return out;
}

// The ranks to show: the group's members, and the finding's ranks that take part in the group
// anyway, since ranks may disagree about the members. Not those that only wait elsewhere because of
// the finding.
std::set<trace::Rank> members(const verify::Finding& finding, const trace::Run& run,
                              trace::GroupId group) {
  std::set<trace::Rank> out = concerned(finding);
  const auto declares = [&](const trace::RankTrace& trace) {
    return trace::membership(trace, group) != nullptr;
  };
  const auto first = std::find_if(run.ranks.begin(), run.ranks.end(), declares);
  const auto calls = [&](const trace::RankTrace& trace) { return calls_in(trace, group); };
  if (first == run.ranks.end() && std::none_of(run.ranks.begin(), run.ranks.end(), calls))
    return out;
  std::erase_if(out, [&](trace::Rank rank) {
    // Where nobody lists the members, those who are said to have left a call out may be some.
    const bool blamed =
        first == run.ranks.end() &&
        std::find(finding.culprits.begin(), finding.culprits.end(), rank) != finding.culprits.end();
    const trace::RankTrace* trace = run.find(rank);
    return trace != nullptr && !blamed && !declares(*trace) && !calls(*trace);
  });
  if (first == run.ranks.end()) return out;
  const trace::RankList& listed = trace::membership(*first, group)->ranks;
  out.insert(listed.begin(), listed.end());
  return out;
}

// The number of the first call in the group that the trace may hold. Where it holds none, as a dump
// of active calls of a rank that waits for nothing, its counters tell.
std::uint64_t first_kept(const trace::RankTrace& trace, trace::GroupId group) {
  if (const auto start = trace.first_seq.find(group); start != trace.first_seq.end())
    return start->second;
  const auto progress =
      std::find_if(trace.progress.begin(), trace.progress.end(),
                   [&](const trace::RankTrace::Progress& p) { return p.group == group; });
  const bool holds_none =
      std::none_of(trace.calls.begin(), trace.calls.end(),
                   [&](const trace::Call& call) { return call.group == group; });
  return progress == trace.progress.end() || !holds_none ? 0 : progress->enqueued.value_or(0);
}

// The cells of one rank for the sequence numbers [first, first + count) of a group.
std::vector<LaneCell> cells_in_window(const trace::RankTrace& trace, const trace::Tables& tables,
                                      trace::GroupId group, std::uint64_t first,
                                      std::size_t count) {
  const std::uint64_t offset = first_kept(trace, group);
  std::vector<LaneCell> cells(count);
  std::uint64_t next = offset;  // the number after the rank's last call in this group
  for (const trace::Call& call : trace.calls) {
    if (call.group != group || tables.is_message(call)) continue;
    const std::uint64_t seq = call.seq;  // where the trace starts mid-run, with `offset` in it
    next = seq + 1;
    if (seq < first || seq - first >= count) continue;
    LaneCell& cell = cells[seq - first] = cell_of(call, trace, tables);
    if (call.step != trace::kNone) cell.fields[kStep] = fmt::format("step {}", call.step);
  }
  for (std::size_t i = 0; i < count; ++i)
    // A bounded buffer has dropped the calls before `offset`.
    if (first + i < offset) cells[i].state = State::lost;
  // The first cell after the rank's last call says why it stopped; if that was before the window,
  // the first cell of the window does.
  if (next >= first && next - first < count)
    cells[next - first] = stopped(trace, group, tables);
  else if (next < first)
    cells[0] = stopped(trace, group, tables);
  return cells;
}

// Puts ranks with equal cells into one row. Culprits never share a row with others.
class RowFolder {
 public:
  explicit RowFolder(const verify::Finding& finding)
      : culprits_(finding.culprits.begin(), finding.culprits.end()) {}

  void add(trace::Rank rank, std::vector<LaneCell> cells) {
    const bool culprit = culprits_.contains(rank);
    const auto [found, fresh] = row_of_.try_emplace(key(cells, culprit), rows_.size());
    if (fresh) rows_.push_back({{}, std::move(cells), culprit});
    rows_[found->second].ranks.push_back(rank);
  }
  std::vector<LaneRow> take() { return std::move(rows_); }

 private:
  // Fields end in a zero byte: "ab" and "c" are not "a" and "bc".
  static std::string key(const std::vector<LaneCell>& cells, bool culprit) {
    std::string out(1, culprit ? '!' : ' ');
    for (const LaneCell& cell : cells) {
      out += static_cast<char>(cell.state);
      for (const std::string& field : cell.fields) out.append(field).append(1, '\0');
      out.append(cell.elsewhere).append(1, '\0');
    }
    return out;
  }
  std::set<trace::Rank> culprits_;
  std::map<std::string, std::size_t> row_of_;
  std::vector<LaneRow> rows_;
};

bool any_recorded(const LaneTable& table, LaneField field) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const LaneRow& row) {
    return std::any_of(row.cells.begin(), row.cells.end(),
                       [&](const LaneCell& cell) { return !cell.fields[field].empty(); });
  });
}

// True if two ranks recorded this field differently in one column.
bool differs(const LaneTable& table, LaneField field) {
  for (std::size_t column = 0; column < table.heads.size(); ++column) {
    std::set<std::string> values;
    for (const LaneRow& row : table.rows)
      if (!row.cells[column].fields[field].empty()) values.insert(row.cells[column].fields[field]);
    if (values.size() > 1) return true;
  }
  return false;
}

// Fills in the calls' source locations, those of each row's first rank, if the rows' calls in the
// finding's column differ in nothing else: "mappings.py:226" beside "mappings.py:241".
void tell_apart_by_location(LaneTable& table, const trace::Run& run) {
  const auto location = [&](const LaneRow& row, const LaneCell& cell) {
    const trace::RankTrace* const trace = run.find(row.ranks[0]);
    const std::string at = cell.call == kNoLaneCall || trace == nullptr
                               ? ""
                               : std::string(run.tables.str(trace->calls[cell.call].at));
    return printable(at.substr(at.find_last_of('/') + 1));
  };
  std::set<std::string> locations;
  for (const LaneRow& row : table.rows) {
    const LaneCell& cell = row.cells[table.focus];
    if (!cell.has_call() || cell.fields != table.rows[0].cells[table.focus].fields) return;
    locations.insert(location(row, cell));
  }
  if (locations.size() < 2 || locations.contains("")) return;
  for (LaneRow& row : table.rows)
    for (LaneCell& cell : row.cells) cell.fields[kLocation] = location(row, cell);
}

// Removes columns after the last call of all ranks, except the finding's own.
void trim_empty_columns(LaneTable& table) {
  const auto empty = [&](std::size_t column) {
    return std::none_of(table.rows.begin(), table.rows.end(),
                        [&](const LaneRow& row) { return row.cells[column].has_call(); });
  };
  while (table.heads.size() > table.focus + 1 && empty(table.heads.size() - 1)) {
    table.heads.pop_back();
    for (LaneRow& row : table.rows) row.cells.pop_back();
  }
}

}  // namespace

void choose_fields(LaneTable& table) {
  table.shown.fill(false);
  table.shown[kOp] = true;
  table.shown[kWhere] = any_recorded(table, kWhere);
  table.shown[kWhat] = any_recorded(table, kWhat);
  // Sizes follow from the parameters' names: they are worth a line only if there are none, or if
  // they differ. The fields below are rare, and shown only if they differ.
  table.shown[kSize] = !table.shown[kWhat] || differs(table, kSize);
  for (const LaneField field : {kRedop, kRoot, kSplits, kStep, kLocation})
    table.shown[field] = differs(table, field);
}

LaneTable by_sequence(const verify::Finding& finding, const trace::Run& run, std::uint64_t before,
                      std::uint64_t after) {
  LaneTable table;
  table.shown.fill(false);
  const auto group = group_named(run.tables, finding.group);
  if (finding.group.empty() || !finding.seq || !group) return table;
  const std::uint64_t first = *finding.seq - std::min(before, *finding.seq);
  table.focus = static_cast<std::size_t>(*finding.seq - first);
  const std::size_t count = table.focus + 1 + static_cast<std::size_t>(after);
  // A column is called by the source's own number.
  std::uint64_t first_number = first;
  table.title = fmt::format("group {}", printable(finding.group));
  for (const trace::RankTrace& trace : run.ranks) {
    if (trace::membership(trace, *group) == nullptr && !calls_in(trace, *group)) continue;
    table.title = trace::group_label(trace, run.tables, *group);
    first_number = first + trace.first_number;
    break;
  }
  for (std::size_t i = 0; i < count; ++i)
    table.heads.push_back(fmt::format("seq {}", first_number + i));

  RowFolder rows(finding);
  for (const trace::Rank rank : members(finding, run, *group)) {
    const trace::RankTrace* trace = run.find(rank);
    std::vector<LaneCell> cells(count);
    if (trace != nullptr)
      cells = cells_in_window(*trace, run.tables, *group, first, count);
    else
      cells[0].state = State::no_trace;
    rows.add(rank, std::move(cells));
  }
  table.rows = rows.take();
  trim_empty_columns(table);
  tell_apart_by_location(table, run);
  choose_fields(table);
  return table;
}

LaneTable by_program_order(const verify::Finding& finding, const trace::Run& run,
                           std::size_t count) {
  LaneTable table;
  table.shown.fill(false);
  std::size_t longest = 1;
  for (const trace::Rank rank : concerned(finding))
    if (const trace::RankTrace* trace = run.find(rank); trace != nullptr)
      longest = std::max(longest, trace->calls.size());
  count = std::min(count, longest);
  table.title = "last calls";
  table.compared = false;
  table.focus = count - 1;
  for (std::size_t i = count - 1; i > 0; --i) table.heads.push_back(fmt::format("{} before", i));
  table.heads.push_back("last");

  bool any_blocked = false;
  RowFolder rows(finding);
  for (const trace::Rank rank : concerned(finding)) {
    const trace::RankTrace* trace = run.find(rank);
    if (trace == nullptr) continue;
    // A dump of a running process has no wait events: there an unfinished call is what blocks.
    any_blocked =
        any_blocked || blocking_call(*trace) != nullptr ||
        (trace->snapshot && !trace->calls.empty() && !trace->calls.back().has(trace::kCompleted));
    std::vector<LaneCell> cells(count);
    const std::size_t shown = std::min(count, trace->calls.size());
    // Right-aligned: the last call of every rank is in the last column.
    for (std::size_t i = 0; i < shown; ++i) {
      const trace::Call& call = trace->calls[trace->calls.size() - shown + i];
      LaneCell cell = cell_of(call, *trace, run.tables);
      const trace::Op op = run.tables.op(call);
      if (trace::is_point_to_point(op))
        cell.fields[kOp] += peer_label(call, op);
      else
        cell.fields[kWhere] = fmt::format("in {}", group_in_cell(*trace, run.tables, call.group));
      cells[count - shown + i] = std::move(cell);
    }
    rows.add(rank, std::move(cells));
  }
  // Without a blocked rank program order explains nothing; the caller takes the other view.
  if (!any_blocked) return table;
  table.rows = rows.take();
  choose_fields(table);
  return table;
}

}  // namespace lockstep::reports
