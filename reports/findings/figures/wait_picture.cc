#include "reports/findings/figures/wait_picture.h"

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "reports/findings/finding_words.h"
#include "trace/groups.h"
#include "verify/blocking/stopped.h"
#include "verify/replay/replay.h"
#include "verify/schedules/search.h"
#include "verify/schedules/wildcards.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep::reports {
namespace {

std::string_view describe_state(verify::Position::State state, trace::End end) {
  switch (state) {
    case verify::Position::State::finished:
      return "finished";
    case verify::Position::State::running:
      return "still running";
    case verify::Position::State::cut:
      return "trace ends here";
    case verify::Position::State::killed:
      return end == trace::End::interrupted ? "interrupted" : "killed";
    case verify::Position::State::raised:
      return "raised an exception";
    case verify::Position::State::hung:
      return "hung outside of a recorded call";
  }
  return "";
}

std::set<trace::Rank> culprits_of(const verify::Report& report) {
  std::set<trace::Rank> out;
  for (const verify::Finding& finding : report.findings) {
    // Only notes with a headline count: all ranks wait for the rank of such a note.
    if (finding.severity == verify::Severity::note && finding.headline.empty()) continue;
    const std::vector<trace::Rank>& named = named_ranks(finding);
    out.insert(named.begin(), named.end());
  }
  return out;
}

class WaitPictureBuilder {
 public:
  WaitPictureBuilder(const verify::Report& report, const trace::Run& run,
                     std::optional<verify::CallSemantics> semantics)
      : run_(run),
        groups_(verify::group_streams(run)),
        agreement_(run.tables),
        where_(replayed(run, groups_, agreement_, semantics, report.hung)),
        culprits_(culprits_of(report)) {}

  WaitPicture build() {
    std::vector<std::vector<std::size_t>> missed_at(run_.ranks.size());
    for (std::size_t p = 0; p < where_.wait_points.size(); ++p)
      for (const std::uint32_t r : verify::lacked_by(where_.wait_points[p]))
        missed_at[r].push_back(p);
    // Waiting ranks become the first nodes, so that layouts begin with the victims. Other ranks are
    // shown only if somebody waits for them.
    for (const bool waiting : {true, false}) {
      for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
        if ((where_.point_of[r] != SIZE_MAX) != waiting) continue;
        if (waiting || !missed_at[r].empty()) add_rank(r, std::move(missed_at[r]));
      }
    }
    add_absent();
    for (std::size_t p = 0; p < where_.wait_points.size(); ++p) add_edges(p);
    return std::move(out_);
  }

 private:
  static constexpr int kNoTrace = -1;

  // Equal for ranks that share a node. The call is part of it because members of a mismatched
  // collective wait at one point with different calls.
  struct Key {
    std::size_t wait_point = SIZE_MAX;      // SIZE_MAX: it does not wait
    std::uint32_t signature = 0, what = 0;  // of the call in which it waits
    int state = kNoTrace;                   // verify::Position::State, or kNoTrace
    bool culprit = false;
    std::vector<std::size_t> missed_at;  // wait points whose ranks wait for it

    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // The index of the key's node, which is added if it is new.
  std::size_t node_of(const Key& key) {
    const auto [found, fresh] = nodes_.try_emplace(key, out_.nodes.size());
    if (fresh) {
      out_.nodes.emplace_back();
      for (const std::size_t p : key.missed_at) targets_[p].push_back(found->second);
    }
    return found->second;
  }

  void add_rank(std::uint32_t r, std::vector<std::size_t> missed_at) {
    const verify::Position& position = where_.positions[r];
    const std::size_t point = where_.point_of[r];
    const std::uint32_t call = point == SIZE_MAX ? verify::kNoCall : position.waiting_in();
    const bool culprit = culprits_.contains(run_.ranks[r].rank);
    Key key{point, 0, 0, static_cast<int>(position.state), culprit, std::move(missed_at)};
    if (call != verify::kNoCall) {
      key.signature = run_.ranks[r].calls[call].signature.value;
      key.what = run_.ranks[r].calls[call].what.value;
    }
    const std::size_t at = node_of(key);
    WaitNode& node = out_.nodes[at];
    if (node.ranks.empty()) {
      node.culprit = culprit;
      // The rank is only assumed to hang there (ReplayOptions::hung); nothing else is known.
      const bool presumed =
          position.state == verify::Position::State::hung && run_.ranks[r].end == trace::End::cut;
      const auto state = presumed ? verify::Position::State::cut : position.state;
      node.state =
          call == verify::kNoCall ? std::string(describe_state(state, run_.ranks[r].end)) : "waits";
      if (call != verify::kNoCall) describe_call(node, r, call, where_.wait_points[point]);
      if (point != SIZE_MAX) sources_[point].push_back(at);
    }
    node.ranks.push_back(run_.ranks[r].rank);
  }

  void describe_call(WaitNode& node, std::uint32_t r, std::uint32_t index,
                     const verify::WaitPoint& point) const {
    const trace::Call& call = run_.ranks[r].calls[index];
    node.call = trace::describe(run_.tables, call);
    node.location = trace::group_label(run_.ranks[r], run_.tables, call.group);
    if (point.group != verify::WaitPoint::kPointToPoint)
      node.location += fmt::format(
          ", seq {}", groups_[point.group].first_seq + point.instance + run_.ranks[r].first_number);
    else if (call.peer.value >= 0)
      node.location += fmt::format(", peer {}", call.peer.value);
  }

  // The rank on the other side of a message; negative: any.
  trace::Rank peer_at(const verify::WaitPoint& message) const {
    const std::uint32_t r = message.waiting[0];
    const std::uint32_t call = where_.positions[r].waiting_in();
    return call == verify::kNoCall ? trace::Rank(trace::kNone) : run_.ranks[r].calls[call].peer;
  }

  // Adds ranks without a trace that a waiting rank may wait for. Whether they reached its call is
  // not known.
  void add_absent() {
    std::map<trace::Rank, std::vector<std::size_t>> missed_at;
    for (std::size_t p = 0; p < where_.wait_points.size(); ++p) {
      const verify::WaitPoint& point = where_.wait_points[p];
      if (point.group == verify::WaitPoint::kPointToPoint) {
        const trace::Rank peer = peer_at(point);
        if (peer.value >= 0 && run_.find(peer) == nullptr) missed_at[peer].push_back(p);
      } else if (point.unknown_member) {
        for (const trace::Rank rank : groups_[point.group].absent) missed_at[rank].push_back(p);
      }
    }
    for (auto& [rank, points] : missed_at) {
      const std::size_t at =
          node_of({SIZE_MAX, 0, 0, kNoTrace, culprits_.contains(rank), std::move(points)});
      out_.nodes[at].state = "no trace";
      out_.nodes[at].culprit = culprits_.contains(rank);
      out_.nodes[at].ranks.push_back(rank);
    }
  }

  void add_edge(std::size_t from, std::size_t to, WaitEdge::Kind kind) {
    if (out_.edges.size() < WaitPicture::kMaxEdges)
      out_.edges.push_back({from, to, kind});
    else
      ++out_.edges_left_out;
  }

  void add_edges(std::size_t p) {
    const verify::WaitPoint& point = where_.wait_points[p];
    const std::vector<std::size_t>& waiting = sources_[p];
    for (const std::size_t from : waiting) {
      for (const std::size_t to : targets_[p]) {
        const bool traced = out_.nodes[to].state != "no trace";
        add_edge(from, to,
                 !traced            ? WaitEdge::Kind::unknown
                 : point.any_source ? WaitEdge::Kind::any
                                    : WaitEdge::Kind::missing);
      }
      if (!point.mismatched) continue;
      for (const std::size_t to : waiting)
        // A mismatch has no direction: one edge per pair.
        if (from < to) add_edge(from, to, WaitEdge::Kind::mismatch);
    }
  }

  const trace::Run& run_;
  std::vector<verify::GroupStreams> groups_;
  verify::Agreement agreement_;
  verify::ReplayResult where_;
  std::set<trace::Rank> culprits_;
  std::map<Key, std::size_t> nodes_;
  std::map<std::size_t, std::vector<std::size_t>> sources_, targets_;  // nodes, by wait point
  WaitPicture out_;
};

}  // namespace

WaitPicture wait_picture(const verify::Report& report, const trace::Run& run,
                         std::optional<verify::CallSemantics> semantics) {
  return WaitPictureBuilder(report, run, semantics).build();
}

verify::ReplayResult replayed(const trace::Run& run,
                              const std::vector<verify::GroupStreams>& groups,
                              verify::Agreement& agreement,
                              std::optional<verify::CallSemantics> given, bool hung) {
  const verify::CallSemantics semantics = given.value_or(verify::recorded_semantics(run));
  verify::ReplayOptions options;
  options.semantics = semantics;
  options.hung = hung;
  // If no trace has an end mark, the job may still run: unfinished streams may continue.
  options.live =
      !hung && std::all_of(run.ranks.begin(), run.ranks.end(), [](const trace::RankTrace& trace) {
        return trace.end == trace::End::cut;
      });
  // NCCL's logs record only when calls were issued. verify() assumes that the ranks hang in the
  // last one, and reports what follows.
  if (options.live && semantics == verify::CallSemantics::nccl &&
      !verify::records_completion(run, semantics)) {
    options.live = false;
    options.hung = true;
    return verify::replay(run, groups, agreement, options);
  }
  verify::ScheduleSearch search;
  if (!options.live) {
    verify::SearchOptions bounds;
    bounds.buffered_sends = semantics == verify::CallSemantics::mpi;
    search = verify::search_schedules(run, groups, semantics, bounds);
  }
  return verify::replay_as_recorded(run, groups, agreement, options, search);
}

}  // namespace lockstep::reports
