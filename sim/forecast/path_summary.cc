#include "sim/forecast/path_summary.h"

#include <algorithm>
#include <compare>
#include <map>
#include <utility>

#include "base/text.h"

namespace lockstep::sim {
namespace {

// What a part of the path is, apart from its times: parts with equal keys are merged.
struct Key {
  PathPart::Kind kind;
  std::uint32_t rank_class = 0;  // 0 for calls: members of several classes make them
  bool has_call = false;         // it is a call, or work before one
  trace::SignatureId signature = {};
  trace::GroupId group = {};
  trace::NameListId parameters = {};

  friend auto operator<=>(const Key&, const Key&) = default;
};

template <class T>
void longest_first(std::vector<T>& items) {
  std::stable_sort(items.begin(), items.end(),
                   [](const T& a, const T& b) { return a.time > b.time; });
}

class Summarizer {
 public:
  Summarizer(const trace::Run& run, const RunProgram& program, const Folding& folding,
             const std::vector<GroupLayout>& layouts)
      : run_(run), program_(program), folding_(folding), layouts_(layouts) {
    out_.work.resize(folding.representatives.size());
  }

  PathSummary make(const std::vector<PathPart>& path, Picos begin, Picos end) {
    out_.begin = begin;
    out_.end = end;
    for (const PathPart& part : clipped(path, begin, end)) add(part);
    longest_first(out_.calls);
    longest_first(out_.items);
    return std::move(out_);
  }

 private:
  // The call that a program step of a class makes; of other steps the next call that is issued or
  // waited for in the same training step. An index in the trace of the class's first rank.
  std::optional<std::uint32_t> call_at(std::uint32_t rank_class, std::uint32_t step) const {
    const std::uint32_t rank = folding_.representatives[rank_class];
    const trace::RankTrace& trace = run_.ranks[rank];
    std::size_t e = program_.events[program_.job.ranks[rank].program][step];
    for (; e < trace.events.size(); ++e) {
      const trace::Event& event = trace.events[e];
      if (event.kind == trace::EventKind::issue || event.kind == trace::EventKind::wait)
        return event.index;
      if (event.kind == trace::EventKind::step) break;
    }
    return std::nullopt;
  }

  bool between_nodes(const PathPart& part) const {
    const ProgramJob::Member& member =
        program_.job.ranks[folding_.representatives[part.rank_class]];
    const ProgramStep& step = program_.job.programs[member.program].steps[part.step];
    return layouts_[member.groups[step.slot]].nodes > 1;
  }

  const trace::Call* call_of(const PathItem& item) const {
    if (!item.call) return nullptr;
    return &run_.ranks[folding_.representatives[item.rank_class]].calls[*item.call];
  }

  void add(const PathPart& part) {
    PathItem item{part.kind, part.rank_class, call_at(part.rank_class, part.step), false, {}, 0};
    if (part.kind == PathPart::Kind::call) item.between_nodes = between_nodes(part);
    const Picos time = part.end - part.begin;
    add_to_items(item, time);
    add_to_sums(item, time);
  }

  void add_to_items(const PathItem& item, Picos time) {
    Key key{.kind = item.kind,
            .rank_class = item.kind == PathPart::Kind::call ? 0 : item.rank_class};
    if (const trace::Call* call = call_of(item)) {
      key.has_call = true;
      key.signature = call->signature;
      key.group = call->group;
      key.parameters = call->what;
    }
    // Items keep the order of their first part; equal times stay in that order (stable sort).
    const auto [found, is_new] = items_.try_emplace(key, out_.items.size());
    if (is_new) out_.items.push_back(item);
    out_.items[found->second].time += time;
    ++out_.items[found->second].count;
  }

  void add_to_sums(const PathItem& item, Picos time) {
    switch (item.kind) {
      case PathPart::Kind::call: {
        const trace::Call* call = call_of(item);
        calls_of(call == nullptr ? trace::GroupId() : call->group, item.between_nodes).time += time;
        return;
      }
      case PathPart::Kind::work:
        out_.work[item.rank_class] += time;
        return;
      case PathPart::Kind::launch:
        out_.launches += time;
    }
  }

  PathSummary::Calls& calls_of(trace::GroupId group, bool between) {
    const auto [found, is_new] = calls_.try_emplace({group, between}, out_.calls.size());
    if (is_new) out_.calls.push_back({group, between, {}});
    return out_.calls[found->second];
  }

  const trace::Run& run_;
  const RunProgram& program_;
  const Folding& folding_;
  const std::vector<GroupLayout>& layouts_;
  std::map<Key, std::size_t> items_;
  std::map<std::pair<trace::GroupId, bool>, std::size_t> calls_;
  PathSummary out_;
};

}  // namespace

PathSummary path_summary(const std::vector<PathPart>& path, const trace::Run& run,
                         const RunProgram& program, const Folding& folding,
                         const std::vector<GroupLayout>& layouts, Picos begin, Picos end) {
  return Summarizer(run, program, folding, layouts).make(path, begin, end);
}

double ForecastPath::share(Picos time) const {
  const double all = (end - begin).seconds();
  return all > 0 ? time.seconds() / all : 0;
}

std::string ForecastPath::covers() const {
  return plural(steps, "step") + (checkpoints ? " and the checkpoints between them" : "");
}

ForecastPath forecast_path(const trace::Run& run, const SimulatedProgram& simulated,
                           const std::vector<GroupLayout>& layouts, const MeasuredSteps& measured) {
  const RunProgram& program = simulated.program;
  const PathSummary summary =
      path_summary(critical_path(program.job, simulated.folding, simulated.result), run, program,
                   simulated.folding, layouts, measured.begin, measured.end);
  const bool checkpoints = measured.in_steps < measured.end - measured.begin;
  ForecastPath out{measured.begin, measured.end, measured.count, checkpoints, {}, {}};
  for (std::uint32_t c = 0; c < summary.work.size(); ++c)
    if (summary.work[c].value > 0) out.sums.push_back({c, {}, false, summary.work[c]});
  for (const PathSummary::Calls& calls : summary.calls)
    out.sums.push_back(
        {std::nullopt, run.tables.str(calls.group), calls.between_nodes, calls.time});
  longest_first(out.sums);
  for (const PathItem& item : summary.items) {
    ForecastPath::Item named{item.kind == PathPart::Kind::call,
                             item.rank_class,
                             {},
                             {},
                             item.between_nodes,
                             item.time,
                             item.count};
    if (item.call) {
      const std::uint32_t rank = simulated.folding.representatives[item.rank_class];
      const trace::Call& call = run.ranks[rank].calls[*item.call];
      named.call = trace::describe(run.tables, call);
      named.group = run.tables.str(call.group);
    }
    out.items.push_back(std::move(named));
  }
  return out;
}

}  // namespace lockstep::sim
