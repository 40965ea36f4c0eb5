#include "runtime/strategies/pipeline_schedule.h"

#include <algorithm>
#include <array>
#include <set>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Kind = PipelineOp::Kind;
using Schedule = Scenario::Strategy::Schedule;
using Ops = std::vector<PipelineOp>;

constexpr int kMost = 40;
constexpr std::array kSchedules = {Schedule::gpipe, Schedule::one_f_one_b};
constexpr std::array kStages = {PipelineStage::image, PipelineStage::text};

// "F0 s0 r0 B0 w0": forward, send, receive, backward, wait for the send.
std::string text(const Ops& ops) {
  std::string out;
  for (const PipelineOp& op : ops) {
    out += out.empty() ? "" : " ";
    out += std::string("FBrsw")[static_cast<std::size_t>(op.kind)] + std::to_string(op.micro_batch);
  }
  return out;
}

std::vector<int> micro_batches_of(const Ops& ops, Kind kind) {
  std::vector<int> found;
  for (const PipelineOp& op : ops) {
    if (op.kind == kind) found.push_back(op.micro_batch);
  }
  return found;
}

TEST(PipelineSchedule, GPipe) {
  EXPECT_EQ(text(pipeline_schedule(PipelineStage::image, 3, Schedule::gpipe)),
            "F0 s0 F1 s1 F2 s2 r0 B0 w0 r1 B1 w1 r2 B2 w2");
  EXPECT_EQ(text(pipeline_schedule(PipelineStage::text, 3, Schedule::gpipe)),
            "r0 F0 r1 F1 r2 F2 B0 s0 B1 s1 B2 s2 w0 w1 w2");
}

TEST(PipelineSchedule, OneForwardOneBackward) {
  EXPECT_EQ(text(pipeline_schedule(PipelineStage::image, 3, Schedule::one_f_one_b)),
            "F0 s0 F1 s1 r0 B0 w0 F2 s2 r1 B1 w1 r2 B2 w2");
  EXPECT_EQ(text(pipeline_schedule(PipelineStage::text, 3, Schedule::one_f_one_b)),
            "r0 F0 B0 s0 r1 F1 B1 s1 r2 F2 w0 B2 s2 w1 w2");
}

TEST(PipelineSchedule, EveryMicroBatchOnceInOrder) {
  for (const Schedule schedule : kSchedules) {
    for (const PipelineStage stage : kStages) {
      for (int count = 1; count <= kMost; ++count) {
        std::vector<int> all;
        for (int m = 0; m < count; ++m) all.push_back(m);
        const Ops ops = pipeline_schedule(stage, count, schedule);
        for (const Kind kind :
             {Kind::forward, Kind::backward, Kind::receive, Kind::send, Kind::settle}) {
          EXPECT_EQ(micro_batches_of(ops, kind), all) << text(ops);
        }
      }
    }
  }
}

// Micro-batches between their forward and their backward, at most.
int kept(const Ops& ops) {
  int now = 0;
  int most = 0;
  for (const PipelineOp& op : ops) {
    if (op.kind == Kind::forward) most = std::max(most, ++now);
    if (op.kind == Kind::backward) --now;
  }
  return most;
}

TEST(PipelineSchedule, OneForwardOneBackwardKeepsNoMoreThanTheStagesFromHereOn) {
  for (int count = 1; count <= kMost; ++count) {
    const auto of = [&](PipelineStage stage, Schedule schedule) {
      return kept(pipeline_schedule(stage, count, schedule));
    };
    EXPECT_EQ(of(PipelineStage::image, Schedule::one_f_one_b), std::min(2, count));
    EXPECT_EQ(of(PipelineStage::text, Schedule::one_f_one_b), 1);
    EXPECT_EQ(of(PipelineStage::image, Schedule::gpipe), count);
  }
}

// Two ranks whose sends are a rendezvous: a settle waits until the other one received, a receive
// until the other one began to send. Whether both come to their end, one op at a time.
bool finishes(const Ops& image, const Ops& text) {
  struct Rank {
    const Ops& ops;
    std::size_t next = 0;
    std::set<int> sent = {}, received = {};
  };
  std::array<Rank, 2> ranks = {Rank{image}, Rank{text}};
  const auto advance = [](Rank& own, const Rank& other) {
    if (own.next == own.ops.size()) return false;
    const PipelineOp& op = own.ops[own.next];
    if (op.kind == Kind::receive && !other.sent.contains(op.micro_batch)) return false;
    if (op.kind == Kind::settle && !other.received.contains(op.micro_batch)) return false;
    if (op.kind == Kind::receive) own.received.insert(op.micro_batch);
    if (op.kind == Kind::send) own.sent.insert(op.micro_batch);
    ++own.next;
    return true;
  };
  while (advance(ranks[0], ranks[1]) || advance(ranks[1], ranks[0])) {
  }
  return ranks[0].next == image.size() && ranks[1].next == text.size();
}

bool finishes(int count, Schedule schedule, bool crossed) {
  return finishes(pipeline_schedule(PipelineStage::image, count, schedule, crossed),
                  pipeline_schedule(PipelineStage::text, count, schedule, crossed));
}

TEST(PipelineSchedule, NeverGetsStuck) {
  for (const Schedule schedule : kSchedules) {
    for (int count = 1; count <= kMost; ++count) EXPECT_TRUE(finishes(count, schedule, false));
  }
}

TEST(PipelineSchedule, CrossedGetsStuckFromThreeMicroBatchesOn) {
  for (const Schedule schedule : kSchedules) {
    for (int count = 3; count <= kMost; ++count) EXPECT_FALSE(finishes(count, schedule, true));
  }
}

// No wait for a send is needed for progress: it only says that a buffer may go.
TEST(PipelineSchedule, ASendIsSettledOnlyOnceTheOtherStageHasTakenIt) {
  for (const Schedule schedule : kSchedules) {
    for (int count = 1; count <= kMost; ++count) {
      const Ops image = pipeline_schedule(PipelineStage::image, count, schedule);
      for (int m = 0; m < count; ++m) {
        const auto at = [&](Kind kind) {
          return std::find(image.begin(), image.end(), PipelineOp{kind, m}) - image.begin();
        };
        EXPECT_LT(at(Kind::receive), at(Kind::settle));  // the answer to it
        EXPECT_LT(at(Kind::send), at(Kind::receive));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
