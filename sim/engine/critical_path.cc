#include "sim/engine/critical_path.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/check.h"

namespace lockstep::sim {
namespace {

constexpr std::uint32_t kNone32 = std::numeric_limits<std::uint32_t>::max();

struct PathPlace {
  std::uint32_t rank_class = 0;
  std::uint32_t step = 0;
};

// Where the search stands: everything behind it is on the path.
struct Cursor {
  bool ended = true;  // the step ended; else: the host came to it
  std::uint32_t rank_class = 0;
  std::uint32_t step = 0;  // the program's size: the host is through
};

class PathSearch {
 public:
  PathSearch(const ProgramJob& job, const Folding& folding, const ExecutionResult& result,
             Picos launch)
      : job_(job), folding_(folding), result_(result), launch_(launch) {
    meetings_.resize(folding.group_representatives.size());
    for (std::uint32_t c = 0; c < folding.representatives.size(); ++c) add(c);
  }

  std::vector<PathPart> run() {
    Cursor at = last();
    while (at.ended || at.step > 0) at = at.ended ? before_end(at) : before_coming(at);
    std::reverse(path_.begin(), path_.end());
    return std::move(path_);
  }

 private:
  const ProgramJob::Member& member(std::uint32_t c) const {
    return job_.ranks[folding_.representatives[c]];
  }
  const ProgramStep& step(std::uint32_t c, std::uint32_t s) const {
    return job_.programs[member(c).program].steps[s];
  }
  Picos issued(std::uint32_t c, std::uint32_t s) const { return result_.classes[c].issued[s]; }
  Picos ended(std::uint32_t c, std::uint32_t s) const { return result_.classes[c].ended[s]; }

  // What comes before what in a stream, and who meets whom.
  void add(std::uint32_t c) {
    const Program& program = job_.programs[member(c).program];
    std::vector<std::uint32_t> last_of_stream(program.streams, kNone32);
    std::vector<std::uint32_t> calls_of_slot(member(c).groups.size(), 0);
    std::vector<std::uint32_t> before(program.steps.size(), kNone32);
    std::vector<std::uint32_t> number(program.steps.size(), 0);
    for (std::uint32_t s = 0; s < program.steps.size(); ++s) {
      const ProgramStep& one = program.steps[s];
      if (one.kind != StepKind::wait && one.stream != ProgramStep::kHost) {
        before[s] = last_of_stream[one.stream];
        last_of_stream[one.stream] = s;
      }
      if (one.kind != StepKind::meet) continue;
      number[s] = calls_of_slot[one.slot]++;
      auto& meetings = meetings_[group_class(c, one)];
      if (meetings.size() <= number[s]) meetings.resize(number[s] + 1);
      meetings[number[s]].push_back({c, s});
    }
    before_.push_back(std::move(before));
    number_.push_back(std::move(number));
  }

  std::uint32_t group_class(std::uint32_t c, const ProgramStep& meet) const {
    return folding_.group_class_of[member(c).groups[meet.slot]];
  }

  // Some step that ended when the job did.
  Cursor last() const {
    for (std::uint32_t c = 0; c < result_.classes.size(); ++c) {
      const std::vector<Picos>& ends = result_.classes[c].ended;
      const auto found = std::find(ends.rbegin(), ends.rend(), result_.end);
      if (found != ends.rend())
        return {true, c, static_cast<std::uint32_t>(ends.rend() - found - 1)};
    }
    LOCKSTEP_CHECK(result_.end == Picos{}, "a job ends with a step");
    return {false, 0, 0};
  }

  Cursor before_end(const Cursor& at) {
    const ProgramStep& one = step(at.rank_class, at.step);
    if (one.kind == StepKind::wait) return {false, at.rank_class, at.step + 1};
    const Picos end = ended(at.rank_class, at.step);
    if (one.kind == StepKind::compute) {
      put(PathPart::Kind::work, at.rank_class, at.step, ready({at.rank_class, at.step}), end);
      return before_begin({at.rank_class, at.step});
    }
    const PathPlace latest = latest_of(at);
    put(PathPart::Kind::call, latest.rank_class, latest.step, ready(latest), end);
    return before_begin(latest);
  }

  // Who came last to the meeting; where several did, the rank that is looked at.
  PathPlace latest_of(const Cursor& at) const {
    PathPlace latest{at.rank_class, at.step};
    const ProgramStep& one = step(at.rank_class, at.step);
    for (const PathPlace& other :
         meetings_[group_class(at.rank_class, one)][number_[at.rank_class][at.step]])
      if (ready(other) > ready(latest)) latest = other;
    return latest;
  }

  Picos put_at(const PathPlace& a) const {
    const bool host = step(a.rank_class, a.step).stream == ProgramStep::kHost;
    return issued(a.rank_class, a.step) + (host ? Picos{} : launch_);
  }
  // When the stream came to it; not for steps that are waits.
  Picos ready(const PathPlace& a) const {
    const std::uint32_t before = before_[a.rank_class][a.step];
    const Picos put = put_at(a);
    return before == kNone32 ? put : std::max(put, ended(a.rank_class, before));
  }
  Cursor before_begin(const PathPlace& a) {
    if (ready(a) > put_at(a)) return {true, a.rank_class, before_[a.rank_class][a.step]};
    put(PathPart::Kind::launch, a.rank_class, a.step, issued(a.rank_class, a.step), put_at(a));
    return {false, a.rank_class, a.step};
  }

  // The host came to a step from the one before it, for whose end it may have waited.
  Cursor before_coming(const Cursor& at) {
    const std::uint32_t s = at.step - 1;
    const ProgramStep& one = step(at.rank_class, s);
    const bool waits = one.kind == StepKind::wait;
    const Picos free = waits ? issued(at.rank_class, s) : put_at({at.rank_class, s});
    if (waits || one.blocks || one.stream == ProgramStep::kHost) {
      const std::uint32_t awaited = waits ? one.index : s;
      if (ended(at.rank_class, awaited) > free) return {true, at.rank_class, awaited};
    }
    put(PathPart::Kind::launch, at.rank_class, s, issued(at.rank_class, s), free);
    return {false, at.rank_class, s};
  }

  void put(PathPart::Kind kind, std::uint32_t c, std::uint32_t s, Picos begin, Picos end) {
    LOCKSTEP_CHECK(end == (path_.empty() ? result_.end : path_.back().begin),
                   "a critical path has no gaps");
    if (begin < end) path_.push_back({kind, c, s, begin, end});
  }

  const ProgramJob& job_;
  const Folding& folding_;
  const ExecutionResult& result_;
  Picos launch_;
  std::vector<std::vector<std::uint32_t>> before_;  // by class and step: the one in its stream
  std::vector<std::vector<std::uint32_t>> number_;  // of a call in its group
  std::vector<std::vector<std::vector<PathPlace>>> meetings_;  // by class of groups and number
  std::vector<PathPart> path_;                                 // backwards
};

}  // namespace

std::vector<PathPart> critical_path(const ProgramJob& job, const Folding& folding,
                                    const ExecutionResult& result, Picos launch) {
  LOCKSTEP_CHECK(!result.stuck && !result.end.is_forever(), "a job that ends");
  return PathSearch(job, folding, result, launch).run();
}

std::vector<PathPart> clipped(const std::vector<PathPart>& path, Picos begin, Picos end) {
  std::vector<PathPart> out;
  for (PathPart part : path) {
    part.begin = std::max(part.begin, begin);
    part.end = std::min(part.end, end);
    if (part.begin < part.end) out.push_back(part);
  }
  return out;
}

}  // namespace lockstep::sim
