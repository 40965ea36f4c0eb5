// Studies: one scenario, varied.
#include "runtime/job/study.h"

#include <fstream>

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kStudy = R"(
lockstep: 1
name: a study
ranks: 4
data: {text_only: 0.5, sampler: grouped, modality: [{ranks: [1], has: [text]}]}
strategy: {kind: ddp, bucket_cap_mb: 2}
train: {steps: 6, seed: 5}
expect: {verdict: clean}
study:
  strategies:
    manual: {strategy: {kind: manual, bucket_cap_mb: null}}
    DDP: {}
  remedies:
    none: {}
    dummies: {remedy: dummy-image}
    balanced: {data: {sampler: balanced, modality: null}}
    find unused: {strategy: {find_unused_parameters: true}}
)";

class StudyTest : public ::testing::Test {
 protected:
  Result<std::optional<Study>> load(const std::string& text) {
    std::ofstream(folder_.file("study.yaml")) << text;
    return load_study(folder_.file("study.yaml"));
  }
  Scenario varied(const StudyRun& run) {
    const Study study = load(kStudy).value().value();
    return parse_scenario(scenario_text(study, run, "varied").value(), "varied").value();
  }
  TempDir folder_;
};

TEST_F(StudyTest, VariationsComeInTheOrderOfTheFile) {
  const Study study = load(kStudy).value().value();
  EXPECT_EQ(study.name, "a study");
  EXPECT_EQ(study.repeats, 3);
  ASSERT_EQ(study.remedies.size(), 4U);
  EXPECT_EQ(study.remedies[0].name, "none");
  EXPECT_EQ(study.remedies[2].name, "balanced");
  EXPECT_EQ(study.strategies[0].name, "manual");
}

TEST_F(StudyTest, AVariationReplacesWhatItNamesAndLeavesTheRest) {
  const Scenario s = varied({.strategy = "DDP", .remedy = "dummies", .repeat = 2});
  EXPECT_EQ(s.strategy.kind, Scenario::Strategy::Kind::ddp);
  EXPECT_EQ(s.strategy.bucket_cap_mb, 2);
  EXPECT_EQ(s.remedy.kind, Scenario::Remedy::Kind::dummy_image);
  EXPECT_EQ(s.train.seed, 7U);
  EXPECT_EQ(s.train.steps, 6);
  EXPECT_TRUE(s.train.evaluate);
  EXPECT_EQ(s.watch.every, 0);
  EXPECT_FALSE(s.expect);
  EXPECT_EQ(s.data.modality.size(), 1U);
}

TEST_F(StudyTest, NullTakesAKeyAway) {
  const Scenario s = varied({.strategy = "manual", .remedy = "balanced", .watched = true});
  EXPECT_EQ(s.strategy.kind, Scenario::Strategy::Kind::manual);
  EXPECT_EQ(s.data.sampler, Scenario::Data::Sampler::balanced);
  EXPECT_TRUE(s.data.modality.empty());
  EXPECT_EQ(s.watch.every, 1);
  EXPECT_TRUE(s.watch.buffers);
}

TEST_F(StudyTest, AJobMayTrainByDefaults) {
  const Study study =
      load("{lockstep: 1, name: a job, study: {strategies: {DDP: {}}, remedies: {none: {}}}}")
          .value()
          .value();
  const auto text = scenario_text(study, {.strategy = "DDP", .remedy = "none", .repeat = 1}, "v");
  ASSERT_TRUE(text) << text.error().str();
  EXPECT_EQ(parse_scenario(*text, "v").value().train.seed, 2U);
}

TEST_F(StudyTest, WithoutMissingImages) {
  const Scenario s = varied({.strategy = "manual", .remedy = {}, .complete = true});
  EXPECT_EQ(s.data.text_only, 0);
  EXPECT_TRUE(s.data.modality.empty());
  EXPECT_EQ(s.remedy.kind, Scenario::Remedy::Kind::none);
}

TEST_F(StudyTest, ACombinationThatContradictsItselfIsRefused) {
  const Study study = load(kStudy).value().value();
  const auto text = scenario_text(study, {.strategy = "manual", .remedy = "find unused"}, "varied");
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("is an option of ddp"));
}

TEST_F(StudyTest, AScenarioIsNoStudy) {
  const auto none = load("{lockstep: 1, name: a job}");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has_value());
}

TEST_F(StudyTest, MistakesAreRefusedWithTheirLocation) {
  const auto error = [&](const std::string& study) {
    const auto loaded = load("lockstep: 1\nname: a job\nstudy: " + study);
    return loaded ? "accepted" : loaded.error().str();
  };
  EXPECT_THAT(error("{strategies: {a: {}}}"), HasSubstr("remedies"));
  EXPECT_THAT(error("{strategies: {a: ddp}, remedies: {b: {}}}"), HasSubstr("study.yaml:3"));
  EXPECT_THAT(error("{strategies: {a: {}}, remedies: {b: {}}, repeat: 3}"), HasSubstr("repeats"));
  EXPECT_THAT(error("{strategies: {}, remedies: {b: {}}}"), HasSubstr("strategies"));
}

// A slip in a variation would be seen after the hours that the others take. A remedy that
// contradicts all strategies is none: the table has it as a row.
TEST_F(StudyTest, AVariationThatTheFormatDoesNotKnowIsRefused) {
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = kStudy;
    text.replace(text.find(from), from.size(), to);
    const auto loaded = load(text);
    return loaded ? "accepted" : loaded.error().str();
  };
  EXPECT_THAT(
      error("remedy: dummy-image", "remedy: dummy-picture"),
      AllOf(HasSubstr("study.yaml:15:5: error: \"dummies\" is no variation of this scenario"),
            HasSubstr("dummy-picture")));
  EXPECT_THAT(error("kind: manual", "kynd: manual"),
              AllOf(HasSubstr("study.yaml:11:5: error: \"manual\" is no variation of"),
                    HasSubstr("unknown key \"kynd\"")));
  EXPECT_EQ(error("name: a study", "name: another"), "accepted");
  EXPECT_EQ(error("    DDP: {}\n", ""), "accepted") << "find unused is of DDP alone";
}

TEST_F(StudyTest, ResultFoldersAreNamedAfterTheVariations) {
  EXPECT_EQ(result_folder("DDP, find unused"), "DDP-find-unused");
  EXPECT_EQ(result_folder("bucket_cap_mb"), "bucket_cap_mb");
}

TEST_F(StudyTest, VariationsWhoseResultsWouldShareAFolderAreRefused) {
  const auto error = [&](const std::string& strategies, const std::string& remedies) {
    const auto loaded = load("lockstep: 1\nname: a job\nstudy:\n  strategies: {" + strategies +
                             "}\n  remedies: {" + remedies + "}\n");
    return loaded ? "accepted" : loaded.error().str();
  };
  EXPECT_EQ(error("ddp-2: {}, ddp 2+: {}", "none: {}"), "accepted") << "\"ddp-2\", \"ddp-2-\"";
  EXPECT_THAT(error("ddp-2: {}, ddp 2: {}", "none: {}"),
              AllOf(HasSubstr("study.yaml:4:16: error: the results of \"ddp-2\" and \"ddp 2\" "
                              "would lie in the same folder, \"ddp-2\""),
                    HasSubstr("fix: choose names that differ")));
  EXPECT_THAT(error("ddp: {}", "no dummies: {}, no/dummies: {}"),
              AllOf(HasSubstr("study.yaml:5:"), HasSubstr("\"no/dummies\" and \"no dummies\"")));
  EXPECT_THAT(error("'!?': {}", "none: {}"), HasSubstr("nothing of \"!?\" can be the name"));
  // A strategy and a remedy of one name have folders of their own; those of the study's own runs
  // are taken.
  EXPECT_EQ(error("none: {}, complete: {}", "none: {}, alone: {}"), "accepted");
  EXPECT_THAT(error("alone: {}", "none: {}"), HasSubstr("those of one process"));
  EXPECT_THAT(error("alone none: {}", "none: {}"), HasSubstr("\"alone-none\""));
  EXPECT_THAT(error("ddp: {}", "complete!: {}, complete: {}"),
              HasSubstr("those of the job without missing images"));
}

}  // namespace
}  // namespace lockstep::runtime
