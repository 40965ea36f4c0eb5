// The overview of the page: a cell for every rank, in rows of process groups or hosts, and a table
// with a row for every rank behind the cells.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/figures/figures.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "reports/table.h"
#include "trace/groups.h"

namespace lockstep::reports::html {
namespace {

// How a rank's cell looks, what matters most first.
enum class Look : std::uint8_t { culprit, direct, waits, no_trace, other };

struct Appearance {
  std::string_view css, label;
};

Appearance appearance_of(Look look) {
  switch (look) {
    case Look::culprit:
      return {"bad", "culprit"};
    case Look::direct:
      return {"direct", "waits for a culprit"};
    case Look::waits:
      return {"waits", "waits for others"};
    case Look::no_trace:
      return {"gone", "no trace"};
    case Look::other:
      break;
  }
  return {"", "waits for nobody"};
}

// Ranks that stand together.
struct Team {
  std::string name;
  std::vector<trace::Rank> ranks;
};

struct Teams {
  std::string kind;  // "TENSOR_PARALLEL", "host"; empty: all ranks are one team
  std::vector<Team> teams;
};

std::set<trace::Rank> all_ranks(const verify::Report& report, const trace::Run& run) {
  std::set<trace::Rank> out(report.ranks_missing.begin(), report.ranks_missing.end());
  for (const trace::RankTrace& trace : run.ranks) out.insert(trace.rank);
  return out;
}

// The groups that share the description of the finding's group. They are teams only if no rank is
// in two of them: otherwise a rank would have two cells.
std::optional<Teams> by_group(const verify::Report& report, const trace::Run& run) {
  if (report.findings.empty() || report.findings.front().group.empty()) return std::nullopt;
  const std::string& name = report.findings.front().group;
  std::optional<trace::StringId> desc;
  for (const trace::RankTrace& trace : run.ranks)
    for (const trace::RankTrace::Membership& group : trace.groups)
      if (!desc && run.tables.groups[group.group] == name) desc = group.desc;
  if (!desc || desc->value == 0) return std::nullopt;
  std::map<std::uint32_t, std::vector<trace::Rank>> groups;
  for (const trace::RankTrace& trace : run.ranks)
    for (const trace::RankTrace::Membership& group : trace.groups)
      if (group.desc == *desc && !groups.contains(group.group.value))
        groups.emplace(group.group.value,
                       std::vector<trace::Rank>(group.ranks.begin(), group.ranks.end()));
  Teams out{run.tables.str(*desc), {}};
  std::set<trace::Rank> placed;
  for (auto& [id, ranks] : groups) {
    std::sort(ranks.begin(), ranks.end());
    for (const trace::Rank rank : ranks)
      if (!placed.insert(rank).second) return std::nullopt;
    out.teams.push_back({rank_label(ranks), std::move(ranks)});
  }
  if (out.teams.size() < 2) return std::nullopt;
  return out;
}

std::optional<Teams> by_host(const trace::Run& run) {
  std::map<std::string, std::vector<trace::Rank>> hosts;
  for (const trace::RankTrace& trace : run.ranks)
    if (!trace.host.empty()) hosts[trace.host].push_back(trace.rank);
  // A host per rank, as of single processes in containers, groups nothing.
  if (hosts.size() < 2 || 2 * hosts.size() > run.ranks.size()) return std::nullopt;
  Teams out{"host", {}};
  for (auto& [host, ranks] : hosts) out.teams.push_back({host, std::move(ranks)});
  return out;
}

Teams teams_of(const verify::Report& report, const trace::Run& run) {
  // The groups of the finding show who is missing where; hosts, whether a machine is the reason.
  std::optional<Teams> found = by_group(report, run);
  if (!found) found = by_host(run);
  Teams out = found.value_or(Teams{});
  std::set<trace::Rank> left = all_ranks(report, run);
  for (const Team& team : out.teams)
    for (const trace::Rank rank : team.ranks) left.erase(rank);
  if (!left.empty())
    out.teams.push_back({out.kind.empty() ? "" : "in none", {left.begin(), left.end()}});
  std::sort(out.teams.begin(), out.teams.end(),
            [](const Team& a, const Team& b) { return a.ranks < b.ranks; });
  return out;
}

class Overview {
 public:
  Overview(const verify::Report& report, const trace::Run& run, const WaitPicture& waits)
      : run_(run), waits_(waits), teams_(teams_of(report, run)) {
    for (std::size_t n = 0; n < waits.nodes.size(); ++n)
      for (const trace::Rank rank : waits.nodes[n].ranks) node_of_.emplace(rank, n);
    for (const verify::Finding& finding : report.findings)
      if (finding.severity != verify::Severity::note)
        culprits_.insert(finding.culprits.begin(), finding.culprits.end());
    // A rank without a trace for which all wait is the culprit of a note.
    for (const WaitNode& node : waits.nodes)
      if (node.culprit) culprits_.insert(node.ranks.begin(), node.ranks.end());
    for (const WaitEdge& edge : waits.edges)
      if (waits.nodes[edge.to].culprit) direct_.insert(edge.from);
  }

  std::string str() const {
    std::string cells;
    for (const Team& team : teams_.teams) {
      std::string row;
      for (const trace::Rank rank : team.ranks) row += cell(rank);
      cells += fmt::format("<div class=\"team\" role=\"group\" aria-label=\"{}\">{}</div>\n",
                           text(team.name.empty() ? "ranks" : team.name), row);
    }
    const std::string title =
        teams_.kind.empty() ? "Every rank" : fmt::format("Every rank, by {}", teams_.kind);
    return fmt::format(
        "<section class=\"card\" id=\"ranks\"><h2>{}</h2>{}<div class=\"ranks\">\n{}</div>\n{}"
        "</section>\n",
        text(title), legend(), cells, details("Table of every rank", table()));
  }

 private:
  const WaitNode* node(trace::Rank rank) const {
    const auto found = node_of_.find(rank);
    return found == node_of_.end() ? nullptr : &waits_.nodes[found->second];
  }

  Look look(trace::Rank rank) const {
    // A culprit may wait as well (a mismatch), and a rank without a trace may be one: it comes
    // first.
    if (culprits_.contains(rank)) return Look::culprit;
    if (run_.find(rank) == nullptr) return Look::no_trace;
    const WaitNode* const at = node(rank);
    if (at == nullptr || at->call.empty()) return Look::other;
    return direct_.contains(node_of_.at(rank)) ? Look::direct : Look::waits;
  }

  // "waits", "killed", "finished": as the wait-for graph says it, or how the trace ends.
  std::string state(trace::Rank rank) const {
    if (const WaitNode* const at = node(rank); at != nullptr) return at->state;
    const trace::RankTrace* const trace = run_.find(rank);
    if (trace == nullptr) return "no trace";
    switch (trace->end) {
      case trace::End::clean:
        return "finished";
      case trace::End::hung:
        return "hung";
      case trace::End::exception:
        return "raised an exception";
      case trace::End::killed:
        return "killed";
      case trace::End::interrupted:
        return "interrupted";
      case trace::End::cut:
        break;
    }
    return "trace ends here";
  }

  struct LastCall {
    std::string call, location, at;
  };

  // The call in which the rank waits, else its last one.
  LastCall last_call(trace::Rank rank) const {
    const trace::RankTrace* const trace = run_.find(rank);
    if (trace == nullptr || trace->calls.empty()) return {};
    const WaitNode* const wait = node(rank);
    const trace::Call& last = trace->calls.back();
    LastCall out{trace::describe(run_.tables, last), {}, run_.tables.str(last.at)};
    out.location = trace::group_label(*trace, run_.tables, last.group);
    if (!run_.tables.is_message(last))
      out.location += fmt::format(", seq {}", last.seq + trace->first_number);
    if (wait == nullptr || wait->call.empty() || wait->call == out.call) return out;
    // It went on after an asynchronous call and waits for that: the line is not the last call's.
    return {wait->call, wait->location, {}};
  }

  std::string cell(trace::Rank rank) const {
    const Appearance how = appearance_of(look(rank));
    return fmt::format("<a{} href=\"#rank-{}\" title=\"{}\">{}</a>",
                       how.css.empty() ? "" : fmt::format(" class=\"{}\"", how.css), rank.value,
                       text(state(rank)), rank.value);
  }

  std::string legend() const {
    std::map<Look, std::size_t> counts;
    for (const Team& team : teams_.teams)
      for (const trace::Rank rank : team.ranks) ++counts[look(rank)];
    std::string items;
    for (const auto& [look, count] : counts) {
      const Appearance how = appearance_of(look);
      items += fmt::format("<span><span class=\"key {}\"></span>{}: {}</span>", how.css, how.label,
                           grouped(count));
    }
    return element("p", "legend", items);
  }

  std::string table() const {
    const auto any_rank = [&](bool (*has)(const trace::RankTrace&)) {
      return std::any_of(run_.ranks.begin(), run_.ranks.end(), has);
    };
    const bool hosts = any_rank([](const trace::RankTrace& trace) { return !trace.host.empty(); });
    const bool gpus =
        any_rank([](const trace::RankTrace& trace) { return trace.gpu != trace::kNone; });
    const bool teams = !teams_.kind.empty() && teams_.kind != "host";
    std::vector<Column> columns = {{"rank", Column::number}};
    if (hosts) columns.push_back({"host", Column::mark, true});
    if (gpus) columns.push_back({"GPU", Column::number, true});
    if (teams) columns.push_back({printable(teams_.kind), Column::mark, true});
    columns.insert(columns.end(), {{"state", Column::words, true},
                                   {"last call", Column::code},
                                   {"where"},
                                   {"source", Column::code}});
    std::map<trace::Rank, const Team*> team_of;
    for (const Team& team : teams_.teams)
      for (const trace::Rank rank : team.ranks) team_of[rank] = &team;
    std::map<trace::Rank, LastCall> last_calls;
    std::vector<std::string> locations;
    for (const auto& [rank, team] : team_of)
      locations.push_back((last_calls[rank] = last_call(rank)).at);
    const std::string folder = common_folder(locations);
    Table out(std::move(columns));
    for (const auto& [rank, team] : team_of) {
      const trace::RankTrace* const trace = run_.find(rank);
      const LastCall& last = last_calls[rank];
      std::vector<std::string> cells = {fmt::format("{}", rank.value)};
      if (hosts) cells.push_back(trace == nullptr ? "" : trace->host);
      if (gpus) {
        const bool known = trace != nullptr && trace->gpu != trace::kNone;
        cells.push_back(known ? fmt::format("{}", trace->gpu) : "");
      }
      if (teams) cells.push_back(team->name);
      cells.insert(
          cells.end(),
          {culprits_.contains(rank) ? fmt::format("culprit: {}", state(rank)) : state(rank),
           last.call, last.location, last.at.empty() ? "" : last.at.substr(folder.size())});
      out.add(std::move(cells),
              {fmt::format("rank-{}", rank.value), culprits_.contains(rank) ? "error" : ""});
    }
    const std::string files =
        folder.empty()
            ? ""
            : element("p", "caption", fmt::format("Source files are in {}", code(folder)));
    return out.html("every rank", "explore") + files;
  }

  const trace::Run& run_;
  const WaitPicture& waits_;
  Teams teams_;
  std::map<trace::Rank, std::size_t> node_of_;
  std::set<trace::Rank> culprits_;
  std::set<std::size_t> direct_;  // nodes that wait for a culprit's
};

}  // namespace

namespace {

// Whether nothing sets a rank apart: all ended in order, and nobody waits or is named.
bool all_are_alike(const verify::Report& report, const trace::Run& run, const WaitPicture& waits) {
  return waits.nodes.empty() && report.ranks_missing.empty() &&
         std::all_of(run.ranks.begin(), run.ranks.end(),
                     [](const trace::RankTrace& one) { return one.end == trace::End::clean; }) &&
         std::all_of(report.findings.begin(), report.findings.end(),
                     [](const verify::Finding& one) { return one.culprits.empty(); });
}

}  // namespace

std::string rank_overview(const verify::Report& report, const trace::Run& run,
                          const WaitPicture& waits) {
  const std::size_t ranks = all_ranks(report, run).size();
  if (ranks == 0 || ranks > kMaxRanksShown || report.verdict == verify::Verdict::clean) return {};
  if (all_are_alike(report, run, waits)) return {};
  return Overview(report, run, waits).str();
}

}  // namespace lockstep::reports::html
