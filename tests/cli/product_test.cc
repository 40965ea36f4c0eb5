// `lockstep verify` and `lockstep check-certificate`, as a shell would call them.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "tests/support/two_towers.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Two ranks; under "text" the gradient of the image branch is left out, or is not.
struct TwoConditions {
  explicit TwoConditions(bool text_reduces_all) { write_two_towers(folder, ".", text_reduces_all); }
  TempDir folder;
};

TEST(Product, ADivergenceIsShownWithThePathToIt) {
  const TwoConditions program(false);
  const Outcome outcome = run_lockstep({"verify", program.folder.path()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, StartsWith("DIVERGES: two towers, 2 ranks, 2 conditions, any number"));
  EXPECT_THAT(outcome.out, HasSubstr("assumed: one library"));
  EXPECT_THAT(outcome.out, HasSubstr("parameters concerned: image.weight"));
  EXPECT_THAT(outcome.out, HasSubstr("modality-divergence"));
  EXPECT_THAT(outcome.out, HasSubstr("> rank "));
  expect_fits_a_terminal(outcome.out);
}

TEST(Product, ASafeProgramGetsACertificateThatIsAccepted) {
  const TwoConditions program(true);
  const std::string file = program.folder.file("safe.txt");
  const Outcome outcome = run_lockstep({"verify", program.folder.path(), "--certificate", file});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("SAFE: two towers"));
  expect_fits_a_terminal(outcome.out);
  const Outcome checked = run_lockstep({"check-certificate", file, program.folder.path()});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_THAT(checked.out, StartsWith("accepted: "));
}

TEST(Product, ACertificateOfAnotherProgramIsRefused) {
  const TwoConditions safe(true);
  const TwoConditions other(false);
  const std::string file = safe.folder.file("safe.txt");
  run_lockstep({"verify", safe.folder.path(), "--certificate", file});
  const Outcome checked = run_lockstep({"check-certificate", file, other.folder.path()});
  EXPECT_EQ(checked.status, 1);
  EXPECT_THAT(checked.err, HasSubstr("refused: "));
  EXPECT_THAT(checked.err, HasSubstr("it says sequences "));
}

// The verdict is about every mix, and no run ever was.
TEST(Product, ReportsHoldTheVerdictAboutEveryMix) {
  for (const bool safe : {true, false}) {
    const TwoConditions program(safe);
    const std::string json = program.folder.file("r.json"), page = program.folder.file("r.html");
    const Outcome ran =
        run_lockstep({"verify", program.folder.path(), "-o", json, "-o", page, "--quiet"});
    EXPECT_EQ(ran.status, safe ? 0 : 1) << ran.err;
    const nlohmann::json all = nlohmann::json::parse(TempDir::read(json))["all_mixes"];
    EXPECT_EQ(all["verdict"], safe ? "safe" : "diverges");
    EXPECT_EQ(all["assumptions"].size(), 1U);
    EXPECT_EQ(all.contains("counterexample"), !safe);
    const std::string html = TempDir::read(page);
    EXPECT_THAT(html, HasSubstr(safe ? "SAFE: two towers" : "DIVERGES: two towers"));
    EXPECT_EQ(html.find("nothing wrong"), std::string::npos);
  }
}

TEST(Product, ADivergentProgramGetsNoCertificate) {
  const TwoConditions program(false);
  const std::string file = program.folder.file("safe.txt");
  const Outcome outcome = run_lockstep({"verify", program.folder.path(), "--certificate", file});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no certificate"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Product, TheCounterexampleGoesToEveryOutput) {
  const TwoConditions program(false);
  const std::string file = program.folder.file("report.json");
  const Outcome outcome =
      run_lockstep({"verify", program.folder.path(), "--quiet", "--output", "json=" + file});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(TempDir::read(file), HasSubstr("modality-divergence"));
}

// The report of a run in which every rank meets what most may meet, and nothing else beside it.
TEST(Product, EveryOutputSaysThatAProgramIsSafe) {
  const TwoConditions program(true);
  const std::string page = program.folder.file("safe.html");
  const std::string timeline = program.folder.file("safe.json");
  const Outcome outcome = run_lockstep({"verify", program.folder.path(), "-o", "json=-", "-o",
                                        "html=" + page, "-o", "timeline=" + timeline});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report["verdict"], "clean");
  EXPECT_EQ(report["ranks"]["expected"], 2);
  EXPECT_EQ(report["ranks"]["read"], 2);
  EXPECT_THAT(TempDir::read(page), HasSubstr("SAFE: two towers"));
  const auto events = nlohmann::json::parse(TempDir::read(timeline))["traceEvents"];
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const auto& event) { return event["ph"] == "X"; }),
            2 * 2 * 2)
      << "two ranks, two steps, two calls";
}

TEST(Product, BadInputIsRefusedWithLocationAndFix) {
  const TwoConditions program(true);
  const std::string whole = TempDir::read(program.folder.file("product.json"));
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& message) {
    std::string text = whole;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    program.folder.write("product.json", text);
    const Outcome outcome = run_lockstep({"verify", program.folder.path()});
    EXPECT_EQ(outcome.status, 2) << to;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_THAT(outcome.err, HasSubstr("fix: "));
  };
  refused("\"product\":1", "\"product\":2", "\"product\"");
  refused("{\"product\"", "{{\"product\"", "JSON");
  refused("\"world_size\":2", "\"world_size\":3", "world of 2 ranks");
  refused("\"world_size\":2", "\"world_size\":99999999999", "world_size");
  refused("\"free\"", "\"any\"", "choice");
  refused("\"first-1\"", "\"../x\"", "inside");
  refused("\"first-1\"", "\"first-9\"", "first-9");
  refused("\"first\":\"text\"", "\"first\":\"sound\"", "sound");
  refused("\"name\":\"text\"", "\"name\":\"image+text\"", "two conditions");
  refused("\"histories\":[", "\"histories\":5,\"x\":[", "list");
  EXPECT_EQ(run_lockstep({"verify", "--certificate", "x", program.folder.path()}).status, 2);
}

// Two ranks that reduce two gradients in each of two steps; `other`: rank 1 names one otherwise.
struct RecordedRun {
  explicit RecordedRun(const std::string& other = "b") {
    for (int rank = 0; rank < 2; ++rank) {
      std::string text = header_line(rank, 2, {{"backend", "gloo"}}) + world_line(2);
      for (int id = 0; id < 4; ++id) {
        const std::string second = rank == 0 ? "b" : other;
        text += issue_line(id, "world", "all_reduce",
                           {{"in", {{8}}},
                            {"dtype", "float32"},
                            {"redop", "sum"},
                            {"what", {id % 2 == 0 ? "a" : second}},
                            {"step", id / 2}}) +
                event_line("complete", id);
      }
      traces.write(fmt::format("rank_{}.trace.jsonl", rank), text + end_line("clean"));
    }
  }
  TempDir traces;
};

TEST(RunCertificateCommand, ACleanRunGetsOneThatIsAccepted) {
  const RecordedRun run;
  const TempDir work;
  const std::string file = work.file("run.txt");
  const Outcome outcome = run_lockstep({"verify", run.traces.path(), "--certificate", file});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(TempDir::read(file), StartsWith("{\"lockstep_certificate\": 2"));
  const Outcome checked = run_lockstep({"check-certificate", file, run.traces.path()});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_THAT(checked.out, StartsWith("accepted: "));
  const Outcome by_file =
      run_lockstep({"check-certificate", file, run.traces.file("rank_0.trace.jsonl"),
                    run.traces.file("rank_1.trace.jsonl"), "--format", "text"});
  EXPECT_EQ(by_file.status, 0) << by_file.err;
}

TEST(RunCertificateCommand, AnotherRunIsRefusedWithTheClaim) {
  const RecordedRun run;
  const RecordedRun other("c");
  const TempDir work;
  const std::string file = work.file("run.txt");
  ASSERT_EQ(run_lockstep({"verify", run.traces.path(), "--certificate", file}).status, 0);
  const Outcome checked = run_lockstep({"check-certificate", file, other.traces.path()});
  EXPECT_EQ(checked.status, 1);
  EXPECT_THAT(checked.err, HasSubstr("refused: "));
  EXPECT_THAT(checked.err, HasSubstr("it says sequences "));
}

TEST(RunCertificateCommand, WithoutProofTheStatusIsThatOfTheReport) {
  const RecordedRun faulty("c");
  const TempDir work;
  const std::string file = work.file("run.txt");
  const Outcome outcome = run_lockstep({"verify", faulty.traces.path(), "--certificate", file});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("there is no certificate: the verdict is \"findings\""));
  EXPECT_FALSE(std::filesystem::exists(file));
  // Clean, but what blocks is left open.
  const RecordedRun run;
  const Outcome open =
      run_lockstep({"verify", run.traces.path(), "--semantics", "mpi", "--certificate", file});
  EXPECT_EQ(open.status, 3) << open.out;
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(RunCertificateCommand, WhatIsNoCertificateIsUnreadable) {
  const RecordedRun run;
  const TempDir work;
  work.write("x.txt", "not one\n");
  const Outcome outcome =
      run_lockstep({"check-certificate", work.file("x.txt"), run.traces.path()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("unreadable: "));
  EXPECT_EQ(run_lockstep({"check-certificate", work.file("no.txt"), run.traces.path()}).status, 2);
}

}  // namespace
}  // namespace lockstep::cli
