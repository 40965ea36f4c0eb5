// The orders of the schedules, and what no schedule can be made of.
#include "sim/pipeline/schedule.h"

#include <ctime>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "F0 F1 B0 …"; "F0.1" is of chunk 1.
std::string words(const std::vector<PipelineTask>& tasks) {
  std::string out;
  for (const PipelineTask& task : tasks) {
    out += out.empty() ? "" : " ";
    out += task.work == Work::forward ? "F" : task.work == Work::backward ? "B" : "W";
    out += std::to_string(task.micro_batch);
    if (task.chunk != 0) out += "." + std::to_string(task.chunk);
  }
  return out;
}

std::string order(PipelineSchedule schedule, PipelineShape shape, std::size_t stage) {
  const Result<PipelineProgram> program = make_pipeline(schedule, shape);
  return program ? words(program->tasks[stage]) : program.error().str();
}

TEST(PipelineSchedule, GpipeRunsAllForwardsFirst) {
  EXPECT_EQ(order(PipelineSchedule::gpipe, {2, 3, 1}, 0), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(order(PipelineSchedule::gpipe, {2, 3, 1}, 1), "F0 F1 F2 B0 B1 B2");
}

TEST(PipelineSchedule, OneForwardOneBackward) {
  EXPECT_EQ(order(PipelineSchedule::one_f_one_b, {3, 4, 1}, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(order(PipelineSchedule::one_f_one_b, {3, 4, 1}, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(order(PipelineSchedule::one_f_one_b, {3, 4, 1}, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
}

// The schedules as their papers state them, decided task by task. GPipe: a backward once no forward
// is left. 1F1B: a backward also as soon as the stage holds as many micro-batches as there are
// stages from it on.
std::vector<PipelineTask> stated(PipelineSchedule schedule, std::int32_t stages_after,
                                 std::int32_t micro_batches) {
  const std::int32_t holds = schedule == PipelineSchedule::gpipe ? micro_batches : stages_after + 1;
  std::vector<PipelineTask> out;
  std::int32_t forwards = 0, backwards = 0;
  while (backwards < micro_batches) {
    if (forwards == micro_batches || forwards - backwards == holds)
      out.push_back({Work::backward, backwards++, 0});
    else
      out.push_back({Work::forward, forwards++, 0});
  }
  return out;
}

TEST(PipelineSchedule, IsWhatThePapersState) {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b})
    for (std::int32_t p = 1; p <= 7; ++p)
      for (std::int32_t m = 1; m <= 17; ++m) {
        const PipelineProgram program = *make_pipeline(schedule, {p, m, 1});
        for (std::int32_t stage = 0; stage < p; ++stage) {
          const std::vector<PipelineTask> tasks = stated(schedule, p - 1 - stage, m);
          ASSERT_EQ(words(stage_order(schedule, p - 1 - stage, m)), words(tasks)) << p << " " << m;
          ASSERT_EQ(program.tasks[static_cast<std::size_t>(stage)], tasks) << p << " " << m;
        }
      }
}

TEST(PipelineSchedule, InterleavedAlternatesChunksAndRunsBackwardsInReverse) {
  EXPECT_EQ(order(PipelineSchedule::interleaved, {2, 2, 2}, 1), "F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1");
}

TEST(PipelineSchedule, ZeroBubblePutsWeightPartsOff) {
  EXPECT_EQ(order(PipelineSchedule::zb_h1, {2, 3, 1}, 0), "F0 F1 B0 W0 F2 B1 W1 B2 W2");
  EXPECT_EQ(order(PipelineSchedule::zb_h1, {2, 3, 1}, 1), "F0 B0 F1 B1 W0 F2 B2 W1 W2");
  EXPECT_EQ(order(PipelineSchedule::zb_h2, {2, 3, 1}, 0), "F0 F1 F2 B0 W0 B1 W1 B2 W2");
}

TEST(PipelineSchedule, EveryTaskOfEveryScheduleIsThereOnce) {
  for (const std::string& name : pipeline_schedule_names())
    for (std::int32_t p = 1; p <= 5; ++p)
      for (std::int32_t m = 1; m <= 11; ++m)
        for (std::int32_t v = 1; v <= 3; ++v) {
          const Result<PipelineProgram> program =
              make_pipeline(*parse_pipeline_schedule(name), {p, m, v});
          if (!program) continue;
          const std::size_t passes = program->split ? 3 : 2;
          for (const std::vector<PipelineTask>& tasks : program->tasks) {
            std::map<std::tuple<Work, int, int>, int> seen;
            for (const PipelineTask& t : tasks) ++seen[{t.work, t.micro_batch, t.chunk}];
            ASSERT_EQ(tasks.size(), passes * static_cast<std::size_t>(m * v)) << name;
            ASSERT_EQ(seen.size(), tasks.size()) << name << " " << p << " " << m << " " << v;
          }
        }
}

// What the pattern says of micro-batches that are not there is left out, and nothing else is.
TEST(PipelineSchedule, AShortVeeIsALongOneWithoutTheRest) {
  for (std::int32_t p = 1; p <= 9; ++p) {
    const PipelineProgram whole = *make_pipeline(PipelineSchedule::zbv, {p, 2 * p - 1, 2});
    for (std::int32_t m = 1; m < 2 * p - 1; ++m) {
      const PipelineProgram few = *make_pipeline(PipelineSchedule::zbv, {p, m, 2});
      for (std::size_t stage = 0; stage < whole.tasks.size(); ++stage) {
        std::vector<PipelineTask> expected = whole.tasks[stage];
        std::erase_if(expected, [&](const PipelineTask& task) { return task.micro_batch >= m; });
        ASSERT_EQ(words(few.tasks[stage]), words(expected)) << p << " " << m << " " << stage;
      }
    }
  }
}

// Rounds of the pattern without a task cost nothing: with them, these stages take some 10^10 steps,
// ten seconds and more.
TEST(PipelineSchedule, AVeeOfManyStagesAndOneMicroBatchIsMadeAtOnce) {
  const std::clock_t before = std::clock();
  EXPECT_TRUE(make_pipeline(PipelineSchedule::zbv, {65'536, 1, 2}));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 3);
}

// A million stages took seconds, for a question that nobody has.
TEST(PipelineSchedule, StagesAreNoMoreThanAModelCouldHave) {
  const Result<PipelineProgram> program =
      make_pipeline(PipelineSchedule::one_f_one_b, {kMaxPipelineStages + 1, 1, 1});
  ASSERT_FALSE(program);
  EXPECT_THAT(program.error().message, HasSubstr("--stages is 65537; at most 65536"));
}

TEST(PipelineSchedule, PiecesAndStagesAreEachOthersInverse) {
  const PipelineProgram vee = *make_pipeline(PipelineSchedule::zbv, {3, 5, 2});
  EXPECT_EQ(vee.piece(0, 1), 5);  // the model ends where it begins
  EXPECT_EQ(vee.piece(2, 1), 3);
  const PipelineProgram round = *make_pipeline(PipelineSchedule::interleaved, {3, 6, 2});
  EXPECT_EQ(round.piece(0, 1), 3);
  for (const PipelineProgram& program : {vee, round})
    for (std::int32_t piece = 0; piece < 6; ++piece)
      EXPECT_EQ(program.piece(program.stage_of(piece), program.chunk_of(piece)), piece);
}

TEST(PipelineSchedule, NamesAreReadBack) {
  for (const std::string& name : pipeline_schedule_names())
    EXPECT_EQ(pipeline_schedule_name(*parse_pipeline_schedule(name)), name);
  const Error unknown = parse_pipeline_schedule("1f1").error();
  EXPECT_THAT(unknown.message, HasSubstr("--schedule \"1f1\" is not known"));
  EXPECT_THAT(unknown.fix, HasSubstr("did you mean \"1f1b\"?"));
}

struct RefusedSchedule {
  PipelineSchedule schedule;
  PipelineShape shape;
  std::string message, fix;
};

TEST(PipelineSchedule, RefusesWhatCannotBe) {
  const std::vector<RefusedSchedule> refusals = {
      {PipelineSchedule::one_f_one_b, {0, 8, 1}, "--stages is 0", "positive"},
      {PipelineSchedule::one_f_one_b, {4, 0, 1}, "--micro-batches is 0", "positive"},
      {PipelineSchedule::one_f_one_b, {4, -3, 1}, "--micro-batches is -3", "positive"},
      {PipelineSchedule::interleaved, {4, 8, 0}, "--chunks is 0", "positive"},
      {PipelineSchedule::gpipe, {4, 8, 2}, "--chunks is 2", "--schedule interleaved"},
      {PipelineSchedule::zbv, {4, 8, 3}, "--chunks is 3", "give 2"},
      {PipelineSchedule::interleaved,
       {4, 6, 2},
       "not a multiple of --stages 4",
       "--micro-batches 8"},
      {PipelineSchedule::gpipe, {65536, 2147483647, 1}, "more than 8388608 tasks", "fewer"},
      {PipelineSchedule::gpipe, {2147483647, 2147483647, 1}, "--stages is 2147483647", "GPUs"},
      {PipelineSchedule::interleaved, {1, 1, 2147483647}, "more than 8388608 tasks", "fewer"},
  };
  for (const RefusedSchedule& refusal : refusals) {
    const Result<PipelineProgram> made = make_pipeline(refusal.schedule, refusal.shape);
    ASSERT_FALSE(made) << refusal.message;
    EXPECT_THAT(made.error().message, HasSubstr(refusal.message));
    EXPECT_THAT(made.error().fix, HasSubstr(refusal.fix));
  }
}

TEST(PipelineSchedule, ActivationsAreHeldFromForwardToTheLastPartThatNeedsThem) {
  const auto peaks = [](PipelineSchedule schedule, KeptBytes each) {
    return peak_bytes(*make_pipeline(schedule, {4, 8, 1}), std::vector<KeptBytes>(4, each));
  };
  EXPECT_THAT(peaks(PipelineSchedule::one_f_one_b, {Bytes{100}, Bytes{100}}),
              ElementsAre(Bytes{400}, Bytes{300}, Bytes{200}, Bytes{100}));
  // (p - r) M_B + r M_W, arXiv 2401.10241, section 2.2.
  EXPECT_THAT(peaks(PipelineSchedule::zb_h1, {Bytes{100}, Bytes{30}}),
              ElementsAre(Bytes{400}, Bytes{330}, Bytes{260}, Bytes{190}));
}

}  // namespace
}  // namespace lockstep::sim
