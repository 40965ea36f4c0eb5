// The commands as users call them: files in, text and exit status out.
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/program.h"
#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Two ranks; the second one sums what the first one takes the maximum of.
struct TwoRanks {
  explicit TwoRanks(const std::string& redop_of_rank_1) {
    for (int rank = 0; rank < 2; ++rank)
      folder.write(fmt::format("rank_{}.trace.jsonl", rank),
                   header_line(rank, 2) + world_line(2) +
                       issue_line(0, "world", "all_reduce",
                                  {{"in", {{8}}},
                                   {"dtype", "float32"},
                                   {"what", {"w"}},
                                   {"redop", rank == 1 ? redop_of_rank_1 : "max"},
                                   {"step", 0}}) +
                       event_line("complete", 0) + end_line("clean"));
  }
  TempDir folder;
};

TEST(Verify, ACleanRunExitsWithZero) {
  const TwoRanks run("max");
  const Outcome outcome = run_lockstep({"verify", run.folder.path()});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "CLEAN: nothing wrong in 2 ranks, 4 events\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(Verify, FindingsExitWithOneAndAreExplained) {
  const TwoRanks run("sum");
  const Outcome outcome = run_lockstep({"verify", run.folder.path()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, StartsWith("FINDINGS: 1 error in 2 ranks, 4 events\n\n"
                                      "ERROR redop-mismatch"));
}

TEST(Verify, NamesRankStepAndParametersOfAModalityHang) {
  const TempDir folder;
  for (int rank = 0; rank < 3; ++rank) {
    const bool text_only = rank == 1;
    const auto issue = [](int id, const std::string& name) {
      return issue_line(id, "world", "all_reduce",
                        {{"in", {{64}}},
                         {"dtype", "float32"},
                         {"what", {name}},
                         {"at", "sync.cc:41"},
                         {"step", 0}});
    };
    std::vector<std::string> has = {"text"};
    if (!text_only) has.insert(has.begin(), "image");
    folder.write(fmt::format("rank_{}.trace.jsonl", rank),
                 header_line(rank, 3) + world_line(3) +
                     json_line({{"ev", "modality"}, {"n", 0}, {"has", has}}) +
                     issue(0, "text.weight") + event_line("complete", 0) +
                     issue(1, text_only ? "temperature" : "image.weight") + end_line("hung"));
  }
  const Outcome outcome = run_lockstep({"verify", folder.path()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, StartsWith("FINDINGS: 1 error in 3 ranks, 12 events\n\n"
                                      "ERROR modality-divergence ("));
  EXPECT_THAT(outcome.out, HasSubstr("  group world   seq 0         seq 1\n"
                                     "  ranks 0,2     all_reduce    all_reduce\n"
                                     "                text.weight   image.weight\n"
                                     "                              WAITS\n"
                                     "  rank 1        all_reduce  ! all_reduce\n"
                                     "                text.weight   temperature\n"
                                     "                              WAITS\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  who    rank 1; concerns ranks 0,2 too\n"
                                     "  what   image.weight\n"
                                     "  where  step 0; group world, seq 1; sync.cc:41\n"));
}

TEST(Verify, WritesJsonAsWellAsText) {
  const TwoRanks run("sum");
  const std::string path = run.folder.file("report.json");
  const Outcome outcome = run_lockstep({"verify", run.folder.path(), "--output", "json=" + path});
  EXPECT_THAT(outcome.out, StartsWith("FINDINGS"));
  const auto json = nlohmann::json::parse(TempDir::read(path));
  EXPECT_EQ(json["findings"][0]["rule"], "redop-mismatch");
}

TEST(Verify, JsonOnStandardOutputIsAlone) {
  const TwoRanks run("sum");
  const Outcome outcome = run_lockstep({"verify", run.folder.path(), "--output", "json=-"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["verdict"], "findings");
}

TEST(Verify, QuietPrintsNothing) {
  const TwoRanks run("sum");
  const Outcome outcome =
      run_lockstep({"verify", run.folder.path(), "--quiet", "--fail-on", "never"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out + outcome.err, "");
}

TEST(Verify, AMissingRankIsInconclusive) {
  const TwoRanks run("max");
  const Outcome outcome = run_lockstep({"verify", run.folder.file("rank_0.trace.jsonl")});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.out, HasSubstr("no trace of rank 1: 1 of 2 ranks were read"));
}

TEST(Verify, APathThatIsNotThereIsBadUsage) {
  const Outcome outcome = run_lockstep({"verify", "/no/such/folder"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("lockstep: "));
  EXPECT_THAT(outcome.err, HasSubstr("/no/such/folder"));
}

// What goes to a terminal: UTF-8 without control characters, and a "fix:" after each "error:".
void expect_safe_and_helpful(const std::string& text) {
  EXPECT_EQ(text, to_utf8(text));
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_THAT(text, StartsWith("lockstep: "));
  EXPECT_THAT(text, HasSubstr("error: "));
  EXPECT_THAT(text, HasSubstr("\n  fix: "));
}

TEST(AllCommands, NamesOfAnyBytesAreSafeToPrintAndErrorsSayWhatToDo) {
  const TempDir folder;
  const std::string odd = "\xff\xfe\x1b[2J\nodd";
  const std::string file = folder.write(odd + ".yaml", "");
  const std::string trace = folder.write(odd, "no trace");
  for (const std::string& path : {odd, folder.file("no\xff/" + odd), file, trace}) {
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"verify", path},
                                               {"verify", path, "--format", odd},
                                               {"verify", path, "--rank-pattern", odd},
                                               {"verify", path, "--rank-pattern", "(" + odd},
                                               {"verify", path, "--suppressions", path},
                                               {"verify", path, "--baseline", path},
                                               {"verify", path, "--only", odd},
                                               {"verify", path, "--output", odd},
                                               {"verify", path, "--output", odd + "=x"},
                                               {"convert", path, "-o", folder.file("out")},
                                               {"scenario", path},
                                               {"run", path},
                                               {"explain", odd}}) {
      SCOPED_TRACE(testing::PrintToString(arguments));
      const Outcome outcome = run_lockstep(arguments);
      EXPECT_NE(outcome.status, 0);
      expect_safe_and_helpful(outcome.err);
    }
  }
}

TEST(AllCommands, WhatCannotBeWrittenIsNamedSafely) {
  const TwoRanks two("max");
  const std::string nowhere = two.folder.file("no\xff\x1b[2J/x");
  expect_safe_and_helpful(
      run_lockstep({"verify", two.folder.path(), "-q", "--output", "json=" + nowhere}).err);
  const std::string taken = two.folder.write("\xff\x1b[2J", "");
  expect_safe_and_helpful(run_lockstep({"convert", two.folder.path(), "-o", taken + "/x"}).err);
}

TEST(Verify, AReportIsUtf8WhateverItsFilesAreCalled) {
  const TempDir folder;
  folder.write("rank_0\xff\x1b[2J\n", "{\"header\":1,\"rank\":0,\"world_size\":2}\n");
  folder.write("rank_1\xff\x1b[2J\n", "");
  for (const std::string kind :
       {"json", "text", "sarif", "junit", "github", "gitlab", "markdown"}) {
    SCOPED_TRACE(kind);
    const Outcome outcome = run_lockstep({"verify", folder.path(), "--output", kind + "=-"});
    EXPECT_EQ(outcome.out, to_utf8(outcome.out));
    EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
    EXPECT_EQ(outcome.err, "");
    if (kind == "json") {
      const auto json = nlohmann::json::parse(outcome.out);
      EXPECT_THAT(json["unknown"].dump(), HasSubstr("the file is empty"));
      EXPECT_THAT(json["unknown"].dump(), testing::Not(HasSubstr("fix:")));
    }
  }
}

TEST(Verify, BadOutputsAreRefusedBeforeAnyWork) {
  const Outcome kind = run_lockstep({"verify", "/no/such/folder", "--output", "xml=x"});
  EXPECT_EQ(kind.status, 2);
  EXPECT_THAT(kind.err, HasSubstr("no such kind of report"));
  for (const char* option : {"--output", "--write-baseline"}) {
    const Outcome place =
        run_lockstep({"verify", "/no/such/trace", option, "/no/such/folder/x.json"});
    EXPECT_EQ(place.status, 2);
    EXPECT_THAT(place.err, HasSubstr("/no/such/folder/x.json: error: cannot write"));
  }
}

TEST(Verify, AnOutputThatCannotBeWrittenIsAFailureOfTheTool) {
  const TwoRanks run("max");
  const Outcome outcome = run_lockstep({"verify", run.folder.path(), "-q", "-o", "json=/dev/full"});
  EXPECT_EQ(outcome.status, 4);
  EXPECT_THAT(outcome.err, HasSubstr("/dev/full: error: cannot write"));
}

TEST(Calibrate, AMissingFolderIsReportedBeforeMeasuring) {
  const Outcome outcome = run_lockstep({"calibrate", "-o", "/no/such/folder/machine.yaml"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("the folder of this file does not exist"));
}

TEST(Convert, WritesTextThatReadsBackTheSame) {
  const TwoRanks run("sum");
  const TempDir out;
  for (const std::string flag : {"--gzip", "--force"}) {
    const std::string target = out.file(flag.substr(2));
    const Outcome converted = run_lockstep({"convert", run.folder.path(), "-o", target, flag});
    EXPECT_EQ(converted.status, 0) << converted.err;
    EXPECT_THAT(converted.out, StartsWith("wrote 2 ranks, 4 events to "));
    EXPECT_EQ(run_lockstep({"verify", target}).out,
              run_lockstep({"verify", run.folder.path()}).out);
  }
}

TEST(Convert, NeverReplacesAFileUnasked) {
  const TwoRanks run("sum");
  const Outcome outcome = run_lockstep({"convert", run.folder.path(), "-o", run.folder.path()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("file exists already"));
}

TEST(Convert, RefusesOptionsOfAnotherForm) {
  const TwoRanks run("sum");
  const TempDir out;
  const auto error_with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"convert", run.folder.path(), "-o", out.file("x")});
    const Outcome outcome = run_lockstep(more);
    EXPECT_EQ(outcome.status, 2);
    return outcome.err;
  };
  EXPECT_THAT(error_with({"--last", "3"}), HasSubstr("--last has no effect with --to text"));
  EXPECT_THAT(error_with({"--to", "digest", "--gzip"}), HasSubstr("write --to text"));
  EXPECT_THAT(error_with({"--to", "yaml"}), HasSubstr("--to"));
}

TEST(Program, VersionAndHelpExitWithZero) {
  EXPECT_EQ(run_lockstep({"--version"}).out, "lockstep 0.1.0\n");
  const Outcome help = run_lockstep({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"run", "verify", "compare", "convert", "scenario", "explain"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    const std::string own = run_lockstep({command, "--help"}).out;
    EXPECT_THAT(own, HasSubstr("Examples:")) << command;
    expect_fits_a_terminal(own);
  }
  expect_fits_a_terminal(help.out);
}

// Footers are written for 80 columns; only commands, which are copied, may be wider than the
// terminal.
TEST(Program, HelpIsWrappedForANarrowTerminal) {
  CLI::App app("", "lockstep");
  app.footer(
      "Examples:\n"
      "  What is told of the example that follows, in more columns than there are:\n"
      "    lockstep verify a-folder-whose-name-is-longer-than-the-terminal-is-wide/\n"
      "\n"
      "A paragraph whose lines are as long as eighty columns allow, and that ends on a\n"
      "second line with what it lists:\n"
      "  name      what it means, in a column of its own, which it keeps\n");
  use_help_layout(app, 60);
  EXPECT_THAT(app.help(), HasSubstr("Examples:\n"
                                    "  What is told of the example that follows, in more columns\n"
                                    "  than there are:\n"
                                    "    lockstep verify a-folder-whose-name-is-longer-than-the-"
                                    "terminal-is-wide/\n"
                                    "\n"
                                    "A paragraph whose lines are as long as eighty columns allow,\n"
                                    "and that ends on a second line with what it lists:\n"
                                    "  name      what it means, in a column of its own, which it\n"
                                    "            keeps\n"));
}

TEST(Program, HelpOfCommandsAndOptionsFitsANarrowTerminal) {
  CLI::App app("Does what it is told, as well as anybody can who has sixty columns to say so.",
               "lockstep");
  app.add_subcommand("look", "Looks at what is in a folder that may hold many files");
  app.add_option("--machine", "A file, or the name of one that is shipped")->type_name("NAME|FILE");
  app.add_option_group("One of these")
      ->add_flag("--new")
      ->description("Something to start from, of which each key is explained");
  app.footer(
      "Examples:\n"
      "  Where does the time go, and what would help? Also as an HTML page, and with\n"
      "  random variation:\n"
      "    lockstep look\n");
  use_help_layout(app, 60);
  const std::string help = app.help();
  for (std::size_t begin = 0; begin < help.size(); begin = help.find('\n', begin) + 1)
    EXPECT_LE(help.find('\n', begin) - begin, 60U) << help.substr(begin);
  EXPECT_THAT(help, StartsWith("Does what it is told, as well as anybody can who has sixty\n"
                               "columns to say so.\n"));
  EXPECT_THAT(help, HasSubstr("  look                    Looks at what is in a folder that\n"
                              "                          may hold many files\n"));
  EXPECT_THAT(help, HasSubstr("      --machine NAME|FILE\n"
                              "                          A file, or the name of one that is\n"
                              "                          shipped\n"));
  EXPECT_THAT(help, HasSubstr("\nOne of these:\n"
                              "      --new               Something to start from, of which\n"
                              "                          each key is explained\n"));
  EXPECT_THAT(help, HasSubstr("  Where does the time go, and what would help? Also as an\n"
                              "  HTML page, and with random variation:\n"
                              "    lockstep look\n"));
}

TEST(Program, SuggestsTheNearestCommand) {
  const Outcome outcome = run_lockstep({"verfy", "x"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err,
            "lockstep: error: no command \"verfy\"\n"
            "  fix: did you mean `lockstep verify`?\n");
}

TEST(Program, SaysWhyACommandLineWasRefused) {
  const auto problem = [](const std::vector<std::string>& arguments) {
    const std::string err = run_lockstep(arguments).err;
    return err.substr(0, err.find('\n'));
  };
  EXPECT_EQ(problem({"verify", "x", "--outpt"}), "lockstep: error: unknown option --outpt");
  EXPECT_EQ(problem({"explain", "host-stall", "x"}), "lockstep: error: unexpected argument x");
  EXPECT_EQ(problem({"explain", "host-stall", "x", "y"}),
            "lockstep: error: unexpected argument x y");
  EXPECT_EQ(problem({"explain", "host-stall", "--machine", "dgx-h100"}),
            "lockstep: error: unknown option --machine");
  EXPECT_EQ(problem({"verify", "x", "--format"}), "lockstep: error: --format needs a value");
  EXPECT_EQ(problem({"scenario", "x"}),
            "lockstep: error: one of --list, --check, --json, --schema and --new is required");
}

TEST(Program, SuggestsWhatWasMeant) {
  const auto fix = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = run_lockstep(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    const std::size_t begin = outcome.err.find("  fix: ");
    return begin == std::string::npos ? "none: " + outcome.err : outcome.err.substr(begin + 7);
  };
  EXPECT_THAT(fix({"verify", "x", "--fail-onn", "error"}), StartsWith("did you mean --fail-on?"));
  EXPECT_THAT(fix({"verify", "x", "--out=r.html"}), StartsWith("did you mean --output?"));
  EXPECT_THAT(fix({"verify", "x", "--fail-on", "eror"}), StartsWith("did you mean error?"));
  EXPECT_THAT(fix({"scenario", "--new", "--strategy", "fspd"}), HasSubstr("fsdp"));
  EXPECT_THAT(fix({"simulate", "colective"}), HasSubstr("collective"));
  EXPECT_THAT(fix({"explain", "host-stal"}), HasSubstr("host-stall"));
  EXPECT_THAT(fix({"verify", "x", "-o", "jsno=x"}), StartsWith("did you mean json?"));
  EXPECT_THAT(fix({"verify", "x", "--sarif"}), StartsWith("write --output sarif=FILE"));
  EXPECT_THAT(fix({"verify", "x", "--format", "kinto"}), StartsWith("did you mean \"kineto\"?"));
  EXPECT_THAT(fix({"verify", "x", "--format", "json"}), HasSubstr("--output chooses the form"));
  EXPECT_THAT(fix({"help", "verfy"}), StartsWith("did you mean `lockstep verify`?"));
  EXPECT_THAT(fix({"verfy", "--help"}), StartsWith("did you mean `lockstep verify`?"));
  const TempDir folder;
  EXPECT_EQ(fix({folder.path()}),
            "to find out what is wrong with it: lockstep verify " + folder.path() + "\n");
}

TEST(Program, HelpHasNoResidueOfTheParser) {
  for (const std::string command :
       {"run", "verify", "watch", "derive", "compare", "convert", "scenario", "explain", "simulate",
        "sweep", "calibrate", "demo", "completion", "check-certificate"}) {
    const std::string help = run_lockstep({command, "--help"}).out;
    EXPECT_EQ(help, run_lockstep({"help", command}).out);
    for (const char* residue : {"TEXT", "INT", "FLOAT", "REQUIRED", "Excludes:", "Needs:", " ...",
                                ":{", "Positionals", "Option Group", "of the following"})
      EXPECT_EQ(help.find(residue), std::string::npos) << command << ": " << residue << "\n"
                                                       << help;
    EXPECT_EQ(help.find('\x1b'), std::string::npos) << "not a terminal";
  }
}

TEST(Program, BadUsageExitsWithTwo) {
  EXPECT_EQ(run_lockstep({}).status, 2);
  EXPECT_EQ(run_lockstep({"verify"}).status, 2);
  EXPECT_EQ(run_lockstep({"verify", "x", "--no-such-option"}).status, 2);
  const Outcome value = run_lockstep({"verify", "x", "--fail-on", "sometimes"});
  EXPECT_EQ(value.status, 2);
  EXPECT_THAT(value.err,
              HasSubstr("--fail-on: sometimes is none of error, warning, note and never"));
  const Outcome range = run_lockstep({"watch", "x", "--interval", "0"});
  EXPECT_EQ(range.status, 2);
  EXPECT_THAT(range.err, HasSubstr("--interval: 0 is not between 0.05 and 3600"));
  // CLI11's "Could not convert: --stages = 4.5".
  for (const auto& [given, why] : {std::pair("4.5", "--stages: 4.5 is not a whole number"),
                                   {"many", "--stages: many is not a number"},
                                   {"99999999999", "--stages: 99999999999 is out of range"}})
    EXPECT_THAT(run_lockstep({"simulate", "pipeline", "--stages", given}).err, HasSubstr(why));
  EXPECT_THAT(run_lockstep({"simulate", "job.yaml", "--ranks", "4.5"}).err,
              HasSubstr("--ranks: 4.5 is not a whole number"));
}

TEST(Commands, AFullDiskIsAnErrorWhateverIsPrinted) {
  for (const std::string command :
       {"--help", "--version", "help verify", "explain", "explain host-stall", "completion bash"}) {
    const std::string line =
        "'" LOCKSTEP_BINARY_DIR "/lockstep' " + command + " > /dev/full 2> /dev/null";
    const int status = std::system(line.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 4) << command;
  }
}

}  // namespace
}  // namespace lockstep::cli
