// Critical paths of programs whose paths are known by hand, and of drawn ones, whose parts must add
// up.
#include "sim/engine/critical_path.h"

#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine/shared_cores.h"

namespace lockstep::sim {

void PrintTo(const PathPart& p, std::ostream* out) {
  *out << "kind " << int(p.kind) << " class " << p.rank_class << " step " << p.step << " "
       << p.begin.value << "-" << p.end.value;
}

namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = PathPart::Kind;

ProgramStep work(std::int64_t picos, std::uint8_t stream = ProgramStep::kHost) {
  ProgramStep step;
  step.duration = Picos{picos};
  step.stream = stream;
  return step;
}
ProgramStep issue_on_stream(bool blocks, std::uint32_t call = 0, std::uint8_t stream = 0) {
  ProgramStep step;
  step.kind = StepKind::call;
  step.index = call;
  step.stream = stream;
  step.blocks = blocks;
  return step;
}
ProgramStep wait(std::uint32_t awaited) {
  ProgramStep step;
  step.kind = StepKind::wait;
  step.index = awaited;
  return step;
}

ProgramStep follow(std::uint32_t awaited, std::uint8_t stream) {
  ProgramStep step;
  step.kind = StepKind::follow;
  step.index = awaited;
  step.stream = stream;
  return step;
}

// A rank for each list of steps, in one group of all; a call takes what `costs` says of it.
struct Job {
  ProgramJob job;
  std::vector<std::int64_t> costs;

  Job(std::vector<std::vector<ProgramStep>> ranks, std::vector<std::int64_t> call_costs)
      : costs(std::move(call_costs)) {
    job.groups.emplace_back();
    for (std::size_t c = 0; c < costs.size(); ++c) {
      ProgramCall call;
      call.elements = static_cast<std::int64_t>(c);
      call.bytes = Bytes{costs[c]};
      job.calls.push_back(call);
    }
    for (std::uint32_t r = 0; r < ranks.size(); ++r) {
      job.programs.push_back({std::move(ranks[r]), 3, 1});
      job.groups[0].members.push_back(static_cast<std::int32_t>(r));
      job.ranks.push_back({r, {0}});
    }
  }

  static CallCost cost(std::uint32_t /*group*/, const ProgramCall& call) {
    return {Picos{call.bytes.value}};
  }
  ExecutionResult executed(const Folding& folding, std::int64_t launch = 0) const {
    return execute(job, folding, cost, {Picos{launch}, /*record_issues=*/true});
  }
  std::vector<PathPart> path(std::int64_t launch = 0) const {
    const Folding folding = unfolded(job);
    return critical_path(job, folding, executed(folding, launch), Picos{launch});
  }
};

PathPart part(Kind kind, std::uint32_t c, std::uint32_t step, std::int64_t begin,
              std::int64_t end) {
  return {kind, c, step, Picos{begin}, Picos{end}};
}

TEST(CriticalPath, GoesThroughTheRankThatComesLast) {
  // rank 0: 2, then the call; rank 1: 7. Then 1 and 4 until the end.
  const Job job(
      {{work(2), issue_on_stream(true), work(1)}, {work(7), issue_on_stream(true), work(4)}}, {5});
  EXPECT_THAT(job.path(), ElementsAre(part(Kind::work, 1, 0, 0, 7), part(Kind::call, 1, 1, 7, 12),
                                      part(Kind::work, 1, 2, 12, 16)));
}

TEST(CriticalPath, ChangesTheRankAtACall) {
  const Job job(
      {{work(2), issue_on_stream(true), work(9)}, {work(7), issue_on_stream(true), work(4)}}, {5});
  EXPECT_THAT(job.path(), ElementsAre(part(Kind::work, 1, 0, 0, 7), part(Kind::call, 1, 1, 7, 12),
                                      part(Kind::work, 0, 2, 12, 21)));
}

TEST(CriticalPath, LeavesOutACallThatWorkHides) {
  const std::vector<ProgramStep> steps = {work(3), issue_on_stream(false), work(8), wait(1)};
  EXPECT_THAT(Job({steps, steps}, {5}).path(),
              ElementsAre(part(Kind::work, 0, 0, 0, 3), part(Kind::work, 0, 2, 3, 11)));
  EXPECT_THAT(Job({steps, steps}, {10}).path(),
              ElementsAre(part(Kind::work, 0, 0, 0, 3), part(Kind::call, 0, 1, 3, 13)));
}

TEST(CriticalPath, FollowsCallsThatFollowEachOtherInAStream) {
  const std::vector<ProgramStep> steps = {work(1), issue_on_stream(false, 0),
                                          issue_on_stream(false, 1), work(2), wait(2)};
  EXPECT_THAT(Job({steps, steps}, {5, 6}).path(),
              ElementsAre(part(Kind::work, 0, 0, 0, 1), part(Kind::call, 0, 1, 1, 6),
                          part(Kind::call, 0, 2, 6, 12)));
}

TEST(CriticalPath, GoesThroughWhatAStreamFollows) {
  const std::vector<ProgramStep> steps = {work(2, 1), follow(0, 0), issue_on_stream(false),
                                          work(3, 1), follow(2, 1), work(1, 1)};
  EXPECT_THAT(Job({steps, steps}, {9}).path(),
              ElementsAre(part(Kind::work, 0, 0, 0, 2), part(Kind::call, 0, 2, 2, 11),
                          part(Kind::work, 0, 5, 11, 12)));
  EXPECT_THAT(Job({steps, steps}, {1}).path(),
              ElementsAre(part(Kind::work, 0, 0, 0, 2), part(Kind::work, 0, 3, 2, 5),
                          part(Kind::work, 0, 5, 5, 6)));
}

TEST(CriticalPath, CountsLaunches) {
  const std::vector<ProgramStep> steps = {work(4, 1), issue_on_stream(true)};
  EXPECT_THAT(Job({steps, steps}, {5}).path(2),
              ElementsAre(part(Kind::launch, 0, 0, 0, 2), part(Kind::launch, 0, 1, 2, 4),
                          part(Kind::call, 0, 1, 4, 9)));
  const std::vector<ProgramStep> queued = {work(4, 1), work(3, 1)};
  EXPECT_THAT(Job({queued}, {}).path(2),
              ElementsAre(part(Kind::launch, 0, 0, 0, 2), part(Kind::work, 0, 0, 2, 6),
                          part(Kind::work, 0, 1, 6, 9)));
}

TEST(CriticalPath, OfNothingIsEmpty) {
  EXPECT_THAT(Job({{}, {}}, {}).path(), IsEmpty());
  EXPECT_THAT(Job({{work(0)}, {}}, {}).path(), IsEmpty());
}

TEST(CriticalPath, IsCutToTheRequestedTimes) {
  const Job job(
      {{work(2), issue_on_stream(true), work(1)}, {work(7), issue_on_stream(true), work(4)}}, {5});
  EXPECT_THAT(clipped(job.path(), Picos{7}, Picos{13}),
              ElementsAre(part(Kind::call, 1, 1, 7, 12), part(Kind::work, 1, 2, 12, 13)));
}

void expect_no_gaps(const std::vector<PathPart>& path, Picos end) {
  Picos at;
  for (const PathPart& p : path) {
    EXPECT_EQ(p.begin, at);
    EXPECT_LT(p.begin, p.end);
    at = p.end;
  }
  EXPECT_EQ(at, end);
}

// Whatever ranks do: the parts have no gaps and sum up to the makespan; folded or not.
TEST(CriticalPath, AddsUpToTheMakespanOfDrawnPrograms) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
    const std::size_t ranks = 1 + random() % 4;
    std::vector<std::vector<ProgramStep>> programs(ranks);
    std::vector<std::int64_t> costs;
    const bool follows = seed % 2 == 1;
    for (int rounds = 0; rounds < 12; ++rounds) {
      const auto call = static_cast<std::uint32_t>(costs.size());
      const bool has_call = draw(3) > 0;
      const bool blocks = draw(2) == 0;
      if (has_call) costs.push_back(draw(20));
      for (std::vector<ProgramStep>& steps : programs) {
        // Now and then all do the same, so that there are ties.
        for (std::int64_t n = draw(3); n > 0; --n)
          steps.push_back(work(draw(6), draw(2) == 0 ? ProgramStep::kHost : 1));
        if (has_call) steps.push_back(issue_on_stream(blocks, call));
        if (draw(3) == 0 && !steps.empty())
          steps.push_back(wait(static_cast<std::uint32_t>(draw(unsigned(steps.size())))));
        if (follows && draw(2) == 0 && !steps.empty())
          steps.push_back(follow(static_cast<std::uint32_t>(draw(unsigned(steps.size()))),
                                 static_cast<std::uint8_t>(draw(2))));
      }
    }
    const std::int64_t launch = draw(3);
    const Job job(std::move(programs), costs);
    for (const Folding& folding : {fold(job.job), unfolded(job.job)}) {
      const ExecutionResult result = job.executed(folding, launch);
      ASSERT_FALSE(result.stuck);
      expect_no_gaps(critical_path(job.job, folding, result, Picos{launch}), result.end);
    }
    if (follows) continue;
    // On cores that they share, too.
    SharedCores shared;
    shared.speeds = {1 + static_cast<std::int64_t>(random() % 3), 1.5, Picos{7}};
    shared.wake = Picos{2};
    for (std::size_t r = 0; r < ranks; ++r)
      shared.node_of.push_back(static_cast<std::uint32_t>(r / 2));
    const ExecutionResult result = execute_on_cores(job.job, Job::cost, shared);
    ASSERT_FALSE(result.stuck);
    expect_no_gaps(critical_path(job.job, unfolded(job.job), result), result.end);
  }
}

}  // namespace
}  // namespace lockstep::sim
