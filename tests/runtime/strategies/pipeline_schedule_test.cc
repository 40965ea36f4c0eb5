#include "runtime/strategies/pipeline_schedule.h"

#include <algorithm>
#include <array>
#include <set>

#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

using OpKind = PipelineOp::Kind;
using Schedule = Scenario::Strategy::Schedule;
using Ops = std::vector<PipelineOp>;

constexpr int kMax = 40;
constexpr std::array kSchedules = {Schedule::gpipe, Schedule::one_f_one_b};
constexpr std::array kCounts = {2, 4};

const PipelineStage& image() { return pipeline_stages(2)[0]; }
const PipelineStage& text() { return pipeline_stages(2)[1]; }

// "F0 s0 R0 B0 w0": forward, send, receive the answer, backward, wait for the send. Capitals: the
// answers.
std::string text(const Ops& ops) {
  std::string out;
  for (const PipelineOp& op : ops) {
    out += out.empty() ? "" : " ";
    out +=
        std::string("FBrswRSW")[static_cast<std::size_t>(op.kind)] + std::to_string(op.micro_batch);
  }
  return out;
}

std::vector<int> micro_batches_of(const Ops& ops, OpKind kind) {
  std::vector<int> found;
  for (const PipelineOp& op : ops) {
    if (op.kind == kind) found.push_back(op.micro_batch);
  }
  return found;
}

TEST(PipelineSchedule, GPipe) {
  EXPECT_EQ(text(pipeline_schedule(image(), 3, Schedule::gpipe)),
            "F0 s0 F1 s1 F2 s2 R0 B0 w0 R1 B1 w1 R2 B2 w2");
  EXPECT_EQ(text(pipeline_schedule(text(), 3, Schedule::gpipe)),
            "r0 F0 r1 F1 r2 F2 B0 S0 B1 S1 B2 S2 W0 W1 W2");
}

TEST(PipelineSchedule, OneForwardOneBackward) {
  EXPECT_EQ(text(pipeline_schedule(image(), 3, Schedule::one_f_one_b)),
            "F0 s0 F1 s1 R0 B0 w0 F2 s2 R1 B1 w1 R2 B2 w2");
  EXPECT_EQ(text(pipeline_schedule(text(), 3, Schedule::one_f_one_b)),
            "r0 F0 B0 S0 r1 F1 B1 S1 r2 F2 W0 B2 S2 W1 W2");
}

TEST(PipelineSchedule, AStageBetweenOthersReceivesAndAnswers) {
  const PipelineStage& image_back = pipeline_stages(4)[1];
  EXPECT_EQ(text(pipeline_schedule(image_back, 2, Schedule::gpipe)),
            "r0 F0 s0 r1 F1 s1 R0 B0 w0 S0 R1 B1 w1 S1 W0 W1");
  EXPECT_EQ(text(pipeline_schedule(image_back, 3, Schedule::one_f_one_b)),
            "r0 F0 s0 r1 F1 s1 R0 B0 w0 S0 r2 F2 s2 R1 B1 w1 S1 R2 B2 w2 S2 W0 W1 W2");
}

TEST(PipelineSchedule, EveryMicroBatchOnceInOrder) {
  for (const Schedule schedule : kSchedules) {
    for (const int stages : kCounts) {
      for (const PipelineStage& stage : pipeline_stages(stages)) {
        for (int count = 1; count <= kMax; ++count) {
          std::vector<int> all;
          for (int m = 0; m < count; ++m) all.push_back(m);
          const Ops ops = pipeline_schedule(stage, count, schedule);
          std::vector<OpKind> kinds = {OpKind::forward, OpKind::backward};
          if (!stage.inputs.empty()) {
            kinds.insert(kinds.end(), {OpKind::receive, OpKind::answer, OpKind::settle_answer});
          }
          if (stage.output) {
            kinds.insert(kinds.end(), {OpKind::send, OpKind::settle, OpKind::receive_answer});
          }
          for (const OpKind kind : kinds) {
            EXPECT_EQ(micro_batches_of(ops, kind), all) << text(ops);
          }
          EXPECT_EQ(ops.size(), kinds.size() * all.size());
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
    if (op.kind == OpKind::forward) most = std::max(most, ++now);
    if (op.kind == OpKind::backward) --now;
  }
  return most;
}

TEST(PipelineSchedule, OneForwardOneBackwardKeepsNoMoreThanTheStagesFromHereOn) {
  for (int count = 1; count <= kMax; ++count) {
    for (const int stages : kCounts) {
      for (const PipelineStage& stage : pipeline_stages(stages)) {
        EXPECT_EQ(kept(pipeline_schedule(stage, count, Schedule::one_f_one_b)),
                  std::min(stage.stages_after + 1, count));
        EXPECT_EQ(kept(pipeline_schedule(stage, count, Schedule::gpipe)), count);
      }
    }
  }
}

TEST(PipelineSchedule, TheStagesFormATreeThatEndsInTheLast) {
  for (const int count : kCounts) {
    const auto& stages = pipeline_stages(count);
    ASSERT_EQ(stages.size(), static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      const PipelineStage& stage = stages[static_cast<std::size_t>(i)];
      for (const int input : stage.inputs) {
        EXPECT_EQ(stages[static_cast<std::size_t>(input)].output, i);
        EXPECT_EQ(stages[static_cast<std::size_t>(input)].stages_after, stage.stages_after + 1);
      }
      EXPECT_EQ(stage.output.has_value(), i + 1 < count);
    }
  }
}

// Ranks whose sends are a rendezvous: a settle waits until the other one received, a receive until
// the other one began to send. Runs one op after the other, on whichever rank can.
class Simulation {
 public:
  Simulation(int stages, int count, Schedule schedule, bool crossed) {
    for (const PipelineStage& stage : pipeline_stages(stages)) {
      ranks_.push_back({stage, pipeline_schedule(stage, count, schedule, crossed)});
    }
  }

  // Whether all come to their end.
  bool finishes() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (Rank& rank : ranks_) {
        while (advance(rank)) moved = true;
      }
    }
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.next == rank.ops.size(); });
  }

 private:
  struct Rank {
    const PipelineStage& stage;
    Ops ops;
    std::size_t next = 0;
    std::set<int> sent = {}, received = {}, answered = {}, took_answer = {};
  };

  bool advance(Rank& own) {
    if (own.next == own.ops.size()) return false;
    const auto [kind, m] = own.ops[own.next];
    const auto rank = [&](int stage) -> Rank& { return ranks_[static_cast<std::size_t>(stage)]; };
    const auto inputs = [&](const auto& set_of) {
      return std::all_of(own.stage.inputs.begin(), own.stage.inputs.end(),
                         [&, m = m](int input) { return set_of(rank(input)).contains(m); });
    };
    switch (kind) {
      case OpKind::receive:
        if (!inputs([](Rank & r) -> auto& { return r.sent; })) return false;
        own.received.insert(m);
        break;
      case OpKind::settle:
        if (!rank(*own.stage.output).received.contains(m)) return false;
        break;
      case OpKind::receive_answer:
        if (!rank(*own.stage.output).answered.contains(m)) return false;
        own.took_answer.insert(m);
        break;
      case OpKind::settle_answer:
        if (!inputs([](Rank & r) -> auto& { return r.took_answer; })) return false;
        break;
      case OpKind::send:
        own.sent.insert(m);
        break;
      case OpKind::answer:
        own.answered.insert(m);
        break;
      case OpKind::forward:
      case OpKind::backward:
        break;
    }
    ++own.next;
    return true;
  }

  std::vector<Rank> ranks_;
};

bool finishes(int stages, int count, Schedule schedule, bool crossed) {
  return Simulation(stages, count, schedule, crossed).finishes();
}

TEST(PipelineSchedule, NeverGetsStuck) {
  for (const Schedule schedule : kSchedules) {
    for (const int stages : kCounts) {
      for (int count = 1; count <= kMax; ++count) {
        EXPECT_TRUE(finishes(stages, count, schedule, false));
      }
    }
  }
}

TEST(PipelineSchedule, CrossedGetsStuckFromThreeMicroBatchesOn) {
  for (const Schedule schedule : kSchedules) {
    for (const int stages : kCounts) {
      for (int count = 3; count <= kMax; ++count) {
        EXPECT_FALSE(finishes(stages, count, schedule, true));
      }
    }
  }
}

// No wait for a send is needed for progress: it only says that a buffer may go.
TEST(PipelineSchedule, ASendIsSettledOnlyOnceTheOtherStageHasTakenIt) {
  for (const Schedule schedule : kSchedules) {
    for (int count = 1; count <= kMax; ++count) {
      const Ops ops = pipeline_schedule(image(), count, schedule);
      for (int m = 0; m < count; ++m) {
        const auto at = [&](OpKind kind) {
          return std::find(ops.begin(), ops.end(), PipelineOp{kind, m}) - ops.begin();
        };
        EXPECT_LT(at(OpKind::receive_answer), at(OpKind::settle));  // the answer to it
        EXPECT_LT(at(OpKind::send), at(OpKind::receive_answer));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::runtime
