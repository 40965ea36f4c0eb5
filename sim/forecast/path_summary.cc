#include "sim/forecast/path_summary.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace lockstep::sim {
namespace {

// Parts with equal keys are merged: kind, class (0 for calls), whether there is a call, and its
// signature, group and parameters.
using Key = std::tuple<PathPart::Kind, std::uint32_t, bool, trace::SignatureId, trace::GroupId,
                       trace::NameListId>;

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
  // The call that a step of a class makes, or else the next one that is issued or waited for.
  std::optional<std::uint32_t> call_at(std::uint32_t c, std::uint32_t step) const {
    const std::uint32_t rank = folding_.representatives[c];
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

  void add(const PathPart& part) {
    const Picos time = part.end - part.begin;
    PathItem item{part.kind, part.rank_class, call_at(part.rank_class, part.step), false, {}, 0};
    const bool is_call = part.kind == PathPart::Kind::call;
    if (is_call) item.between_nodes = between_nodes(part);
    Key key{part.kind, is_call ? 0 : part.rank_class, item.call.has_value(), {}, {}, {}};
    trace::GroupId group;
    if (item.call) {
      const trace::Call& call =
          run_.ranks[folding_.representatives[part.rank_class]].calls[*item.call];
      group = call.group;
      key = {part.kind, std::get<1>(key), true, call.signature, call.group, call.what};
    }
    // Items keep the order of their first part; equal times stay in that order (stable sort).
    const auto [found, is_new] = items_.try_emplace(key, out_.items.size());
    if (is_new) out_.items.push_back(item);
    out_.items[found->second].time += time;
    ++out_.items[found->second].count;
    if (is_call) {
      calls_of(group, item.between_nodes).time += time;
    } else {
      (part.kind == PathPart::Kind::work ? out_.work[part.rank_class] : out_.launches) += time;
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

std::string ForecastPath::of_what() const {
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
  std::stable_sort(out.sums.begin(), out.sums.end(),
                   [](const auto& a, const auto& b) { return a.time > b.time; });
  for (const PathItem& item : summary.items) {
    ForecastPath::Item words{item.kind == PathPart::Kind::call,
                             item.rank_class,
                             {},
                             {},
                             item.between_nodes,
                             item.time,
                             item.count};
    if (item.call) {
      const std::uint32_t rank = simulated.folding.representatives[item.rank_class];
      const trace::Call& call = run.ranks[rank].calls[*item.call];
      words.call = trace::describe(run.tables, call);
      words.group = run.tables.str(call.group);
    }
    out.items.push_back(std::move(words));
  }
  return out;
}

}  // namespace lockstep::sim
