#include "sim/engine/critical_path.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace lockstep::sim {
namespace {

// No earlier step in the stream.
constexpr std::uint32_t kNone32 = std::numeric_limits<std::uint32_t>::max();

struct PathPoint {
  std::uint32_t rank_class = 0;
  std::uint32_t step = 0;
};

// The position of the backward search: everything after it is on the path already.
struct Cursor {
  bool ended = true;  // at the end of the step; false: where the host reached it
  std::uint32_t rank_class = 0;
  std::uint32_t step = 0;  // the program's size: the host is done
};

class PathSearch {
 public:
  PathSearch(const ProgramJob& job, const Folding& folding, const ExecutionResult& result,
             Picos launch)
      : job_(job), folding_(folding), result_(result), launch_(launch) {
    instances_.resize(folding.group_representatives.size());
    for (std::uint32_t c = 0; c < folding.representatives.size(); ++c) add(c);
  }

  std::vector<PathPart> run() {
    // Ends where a host is at its first step, which it reaches at time 0.
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

  // Indexes one rank class: the step before each in its stream, and the members of each collective.
  // Operations that the host runs itself have no predecessor: the host orders them.
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
      if (one.kind != StepKind::call) continue;
      number[s] = calls_of_slot[one.slot]++;
      auto& instances = instances_[group_class(c, one)];
      if (instances.size() <= number[s]) instances.resize(number[s] + 1);
      instances[number[s]].push_back({c, s});
    }
    before_.push_back(std::move(before));
    number_.push_back(std::move(number));
  }

  std::uint32_t group_class(std::uint32_t c, const ProgramStep& step) const {
    return folding_.group_class_of[member(c).groups[step.slot]];
  }

  // A step that ended when the job did. On a tie, the last step of the first class.
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

  // From the end of a step to what it waited for; adds the step itself to the path.
  Cursor before_end(const Cursor& at) {
    const ProgramStep& one = step(at.rank_class, at.step);
    // A wait takes no time itself. It ended when the host reached the next step, and the search
    // goes on from there: before_coming() decides whether the awaited step or the host was later.
    if (one.kind == StepKind::wait) return {false, at.rank_class, at.step + 1};
    const Picos end = ended(at.rank_class, at.step);
    if (one.kind == StepKind::follow) {
      // It takes no time itself either: it ended with what it follows, or when it had its turn.
      if (end > ready({at.rank_class, at.step})) return {true, at.rank_class, one.index};
      return before_begin({at.rank_class, at.step});
    }
    if (one.kind == StepKind::compute) {
      put(PathPart::Kind::work, at.rank_class, at.step, ready({at.rank_class, at.step}), end);
      return before_begin({at.rank_class, at.step});
    }
    const PathPoint latest = latest_of(at);
    put(PathPart::Kind::call, latest.rank_class, latest.step, ready(latest), end);
    return before_begin(latest);
  }

  // The member that arrived last at the collective. Strictly later only: where several arrived at
  // the same time, the path stays with the rank at hand.
  PathPoint latest_of(const Cursor& at) const {
    PathPoint latest{at.rank_class, at.step};
    const ProgramStep& one = step(at.rank_class, at.step);
    for (const PathPoint& other :
         instances_[group_class(at.rank_class, one)][number_[at.rank_class][at.step]])
      if (ready(other) > ready(latest)) latest = other;
    return latest;
  }

  // When the host had put the step into its stream; the launch overhead applies to streams only.
  Picos put_at(const PathPoint& a) const {
    const bool host = step(a.rank_class, a.step).stream == ProgramStep::kHost;
    return issued(a.rank_class, a.step) + (host ? Picos{} : launch_);
  }
  // When the step could begin: the host has put it, and the stream is done with the one before. For
  // a call, when its rank arrived. Not for waits.
  Picos ready(const PathPoint& a) const {
    const std::uint32_t before = before_[a.rank_class][a.step];
    const Picos put = put_at(a);
    return before == kNone32 ? put : std::max(put, ended(a.rank_class, before));
  }
  // What a step's begin waited for: its stream, or the host. On a tie the host: `>` is strict.
  Cursor before_begin(const PathPoint& a) {
    if (ready(a) > put_at(a)) return {true, a.rank_class, before_[a.rank_class][a.step]};
    put(PathPart::Kind::launch, a.rank_class, a.step, issued(a.rank_class, a.step), put_at(a));
    return {false, a.rank_class, a.step};
  }

  // How the host reached a step: from the one before it, whose end (or whose awaited step's end) it
  // may have waited for.
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

  // Adds a part at the front of the path. The check holds for every path: parts are contiguous.
  // Parts of no length (a launch overhead of 0) are left out.
  void put(PathPart::Kind kind, std::uint32_t c, std::uint32_t s, Picos begin, Picos end) {
    LOCKSTEP_CHECK(end == (path_.empty() ? result_.end : path_.back().begin),
                   "a critical path has no gaps");
    if (begin < end) path_.push_back({kind, c, s, begin, end});
  }

  const ProgramJob& job_;
  const Folding& folding_;
  const ExecutionResult& result_;
  Picos launch_;
  std::vector<std::vector<std::uint32_t>>
      before_;  // by class and step: the one before in its stream
  std::vector<std::vector<std::uint32_t>>
      number_;  // by class and step: sequence number in its group
  std::vector<std::vector<std::vector<PathPoint>>>
      instances_;               // members, by class of groups and number
  std::vector<PathPart> path_;  // from the end of the job backwards
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
