// Every command of README.md and docs is run in a folder with what it names, or stands in a table
// here that says why it is not. Its options are held to the help texts either way.
//
// With LOCKSTEP_WITH_WORKER also those that need lockstep-worker.
#include "tests/docs/commands.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/docs/sandbox.h"

namespace lockstep::docs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const bool kWithWorker = std::getenv("LOCKSTEP_WITH_WORKER") != nullptr;

// Not run, and why. A page stands for all that it shows.
const std::map<std::string, std::string> kNotRun = {
    {"docs/reference/cli.md", "examples of --help: their files are the reader's"},
    {"docs/tutorial.md", "run in order, with its files, by tutorial_test"},
    {"lockstep sweep sweep.yaml -o sweep", "its file follows it on the page; cli_test reads one"},
    {"docs/simulate-validation.md", "takes minutes; simulator_validation runs it --quick"},
    {"docs/replay.md", "run in order, with its files, by tutorial_test"},
    {"scripts/demo", "installs packages, and builds for minutes"},
    {"scripts/test", "this test is a part of it"},
    {"scripts/setup core", "installs packages: CI's first step"},
    {"scripts/package", "builds packages for minutes: scripts/release does"},
    {"scripts/package --check", "needs root and a network"},
    {"scripts/package --recorder 2.11.0 --recorder 2.15.0", "builds packages and two recorders"},
    {"scripts/release 0.1.0", "makes a release: release_test does, elsewhere"},
    {"scripts/fetch-torch --cuda run", "downloads 3 GB"},
    {"scripts/offline-bundle",
     "packs for two minutes; what it packs is built elsewhere, without a network"},
    {"lockstep-worker model step minilm --weights \"$(scripts/fetch-minilm)/model.safetensors\"",
     "downloads 87 MB"},
    {"scripts/setup-python-torch", "downloads 4 GB"},
    {"lockstep sweep scenarios/remedies/study.yaml -o study",
     "takes ten minutes; study_run_test runs a short one"},
    {"lockstep calibrate --ranks 4 -o here.yaml",
     "measures for a minute, and nothing else may run"},
    {"lockstep watch /tmp/job --output json=/tmp/why.json --exec 'curl -s -d @/tmp/why.json "
     "https://hooks.example.org/hangs'",
     "posts to a service that is not there"},
    {"lockstep record -- torchrun --nproc-per-node 8 train.py",
     "needs a Python with torch; record_library_command runs one"},
    {"lockstep record --values -- torchrun --nproc-per-node 8 train.py",
     "needs a Python with torch; record_library_command runs one"},
    {"lockstep run --check scenarios/modality/", "each of them is a test, scenario_NAME"},
    {"lockstep sweep job.yaml --machine dgx-h100 -o sweep --vary strategy=ddp,fsdp "
     "--vary ranks=2..64*2 --vary train.batch_size=8,16,32 --steps 4",
     "derives 36 jobs; sweep_run_test runs sweeps of six"},
    {"lockstep-worker batch-size job.yaml",
     "trains with ever larger batches until the memory is "
     "full; worker_process_test does with small ones"},
    {"lockstep-worker batch-size job.yaml --limit-mb 2000", "the same, of 2 GB"},
    {"lockstep-worker model step bert-base --batch 4",
     "steps of 110 million parameters; worker_process_test steps small ones"},
    {"lockstep-worker train job.yaml --rank 0 --world-size 2 --store /tmp/store --trace out",
     "one rank of a job of two, which waits for the other"},
    {"lockstep-worker train job.yaml --trace out", "one rank of a job on two machines"},
};

// What ends otherwise than with 0: findings in what the sandbox holds.
const std::map<std::string, int> kStatus = {
    {"lockstep run scenarios/numbers/sum_not_divided_bad.yaml", 1},
    {"lockstep run scenarios/modality/manual_hang_bad.yaml", 1},
    {"lockstep derive scenarios/modality/manual_hang_bad.yaml", 1},
    {"lockstep derive scenarios/modality/manual_hang_bad.yaml --output "
     "timeline=counterexample.json",
     1},
    {"lockstep verify derived", 1},
    {"lockstep verify a", 1},
    {"lockstep verify examples/hung-job/", 1},
    {"lockstep verify /tmp/job-4711/ --quiet -o report.html -o timeline=run.json", 1},
    {"lockstep watch /tmp/job-4711/", 1},
    {"lockstep verify /shared/4711/*.digest", 1},
    {"lockstep verify dumps.tar.gz --rank-pattern 'node\\d+_rank(\\d+)'", 1},
    {"lockstep verify /shared/4711/", 1},
    {"lockstep verify /shared/logs/", 1},
    {"lockstep verify job.log", 1},
    {"lockstep simulate plan vlm-75b --set encoders.0.on=first_stage "
     "--set encoders.0.zero=3 --set 'data.image.per_sample={poisson: 0.2}' "
     "--set data.arrange=drawn",
     1},
};

// Whether lockstep-worker, or what it leaves, is needed.
bool needs_worker(const std::string& command) {
  const std::vector<std::string> words = words_of(command);
  if (words[0].ends_with("lockstep-worker")) return true;
  if (command.find("fixed.certificate") != std::string::npos) return true;
  static const std::set<std::string> kCommands = {"run", "derive", "compare", "sweep"};
  // The name of a shipped plan: "llama3-70b".
  const bool of_plan =
      words.size() > 2 && words[1] == "sweep" && words[2].find_first_of("./") == std::string::npos;
  if (words.size() > 1 && kCommands.contains(words[1])) return !of_plan;
  static const std::set<std::string> kDerive = {"simulate", "verify"};
  return words.size() > 2 && kDerive.contains(words[1]) && words[2].ends_with(".yaml");
}

std::vector<Command> documented() {
  const std::filesystem::path root = LOCKSTEP_SOURCE_DIR;
  std::set<std::string> pages = {"README.md", "examples/hung-job/README.md"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md")
      pages.insert(std::filesystem::relative(entry.path(), root).string());
  std::vector<Command> out;
  for (const std::string& page : pages)
    for (Command& command : commands_of(page, TempDir::read((root / page).string())))
      out.push_back(std::move(command));
  return out;
}

// Why it is not run; empty: it is.
std::string not_run(const Command& command) {
  if (command.is_file()) return kNotRun.contains(command.page) ? "as its page" : "";
  if (!command.whole) return "a part of a launcher's line";
  if (command.is_synopsis()) return "it stands for many commands";
  for (const std::string& listed : {command.page, command.text})
    if (const auto row = kNotRun.find(listed); row != kNotRun.end()) return row->second;
  return {};
}

TEST(DocCommands, UseOptionsThatThereAre) {
  const Sandbox sandbox(LOCKSTEP_PROGRAM_FOLDER);
  std::map<std::vector<std::string>, std::string> known;
  const Help help = [&](const std::vector<std::string>& called) {
    const auto [at, fresh] = known.try_emplace(called);
    if (!fresh) return at->second;
    std::string line;
    for (const std::string& word : called) line += word + " ";
    if (sandbox.run(line + "--help", 60, at->second) != 0) at->second.clear();
    return at->second;
  };
  std::size_t checked = 0;
  for (const Command& command : documented()) {
    if (command.is_file()) continue;
    if (!kWithWorker && words_of(command.text)[0].ends_with("lockstep-worker")) continue;
    EXPECT_EQ(unknown_in(command, help), "")
        << command.page << ":" << command.line << ": " << command.text;
    ++checked;
  }
  EXPECT_GT(checked, 150U);
}

TEST(DocCommands, DoWhatTheySay) {
  std::optional<Sandbox> sandbox;  // of a page, whose commands follow one another
  std::string page;
  std::size_t ran = 0;
  for (const Command& command : documented()) {
    if (!not_run(command).empty()) continue;
    if (!kWithWorker && !command.is_file() && needs_worker(command.text)) continue;
    if (command.page != page) sandbox.emplace(LOCKSTEP_PROGRAM_FOLDER);
    page = command.page;
    if (command.is_file()) {
      sandbox->save(command.file, command.text);
      continue;
    }
    const auto listed = kStatus.find(command.text);
    const int expected = listed == kStatus.end() ? command.status : listed->second;
    std::string output;
    EXPECT_EQ(sandbox->run(command.text, 1800, output), expected)
        << command.page << ":" << command.line << ": " << command.text << "\n"
        << output
        << "\nA new command? Give the sandbox what it names, or say in kNotRun why it is not run.";
    ++ran;
  }
  EXPECT_GT(ran, 25U);
}

// The output that README.md shows: the lines of a block without commands stand, in this order, in
// what the command before it prints. Lines in between may be left out.
TEST(DocCommands, PrintWhatTheReadmeShows) {
  const std::string readme = TempDir::read(LOCKSTEP_SOURCE_DIR "/README.md");
  const Sandbox sandbox(LOCKSTEP_PROGRAM_FOLDER);
  std::size_t shown = 0;
  for (const Excerpt& excerpt : excerpts_of("README.md", readme)) {
    std::string output;
    sandbox.run(excerpt.command.text, 1800, output);
    std::size_t from = 0;
    for (const std::string& line : excerpt.lines) {
      const std::size_t at = output.find(line + "\n", from);
      ASSERT_NE(at, std::string::npos)
          << "README.md: `" << excerpt.command.text << "` does not print\n"
          << line << "\nthere, but\n"
          << output.substr(from);
      from = at + line.size();
      ++shown;
    }
  }
  EXPECT_GT(shown, 12U);
}

// A row of a table that nothing needs any more would excuse what comes later.
TEST(DocCommands, TheTablesHaveNoRowTooMany) {
  std::set<std::string> texts;
  for (const Command& command : documented()) {
    texts.insert(command.text);
    texts.insert(command.page);
  }
  for (const auto& [row, why] : kNotRun) {
    EXPECT_TRUE(texts.contains(row)) << row;
    EXPECT_FALSE(why.empty()) << row;
  }
  for (const auto& [row, status] : kStatus) EXPECT_TRUE(texts.contains(row)) << row;
}

std::vector<std::string> texts_of(const std::string& markdown) {
  std::vector<std::string> out;
  for (const Command& command : commands_of("p.md", markdown)) out.push_back(command.text);
  return out;
}

TEST(DocCommands, AreFoundInIndentedAndFencedBlocks) {
  EXPECT_THAT(
      texts_of("prose lockstep verify x\n\n    lockstep verify a   # why\n\n"
               "```\nscripts/docs --renew\n```\n"
               "    lockstep verify b \\\n      --quiet\n"
               "    lockstep: 1\n    name: x\n    the lockstep of ranks\n"),
      ElementsAre("lockstep verify a", "scripts/docs --renew", "lockstep verify b --quiet"));
  EXPECT_THAT(texts_of("    srun sh -c 'lockstep digest d -o f'\n"
                       "    mpirun -n 2 lockstep-worker train j.yaml\n"
                       "    so=$(scripts/build-recorder --python python3)\n"),
              ElementsAre("lockstep digest d -o f", "lockstep-worker train j.yaml",
                          "scripts/build-recorder --python python3"));
  EXPECT_EQ(commands_of("p.md", "    lockstep run x    # exit status 1\n")[0].status, 1);
  const auto saved =
      commands_of("p.md", "Save as `a.yaml`:\n\n    x: 1\n    y: 2\n\n    lockstep run a.yaml\n");
  ASSERT_EQ(saved.size(), 2U);
  EXPECT_EQ(saved[0].file, "a.yaml");
  EXPECT_EQ(saved[0].text, "x: 1\ny: 2\n");
  EXPECT_EQ(saved[1].text, "lockstep run a.yaml");
  EXPECT_TRUE(commands_of("p.md", "    lockstep watch DIR --once\n")[0].is_synopsis());
  EXPECT_TRUE(commands_of("p.md", "    lockstep verify PATH… -q\n")[0].is_synopsis());
  EXPECT_FALSE(commands_of("p.md", "    lockstep run a.yaml -q\n")[0].is_synopsis());
}

TEST(DocCommands, ShowTheOutputInTheBlocksThatFollow) {
  const auto excerpts = excerpts_of(
      "p.md",
      "    lockstep verify a\n    lockstep verify b\n\nprints\n\n    CLEAN\n\n      x\n\nbut\n");
  ASSERT_EQ(excerpts.size(), 1U);
  EXPECT_EQ(excerpts[0].command.text, "lockstep verify b");
  EXPECT_THAT(excerpts[0].lines, ElementsAre("CLEAN", "  x"));
}

TEST(DocCommands, WhatAProgramDoesNotKnowIsSaid) {
  const Help help = [](const std::vector<std::string>& called) -> std::string {
    if (called[0] != "lockstep") return "";
    if (called.size() == 1) return "Options:\n  -h,--help  Help\n\nSubcommands:\n  verify  Judge\n";
    return "Options:\n  -q,--quiet  Be so\n  --fail-on LEVEL\n";
  };
  const auto unknown = [&](const std::string& text) {
    return unknown_in({"p.md", 1, text, "", 0, true}, help);
  };
  EXPECT_EQ(unknown("lockstep verify a -q --fail-on=error"), "");
  EXPECT_EQ(unknown("lockstep verify a --fail"), "--fail: not an option of `lockstep verify`");
  EXPECT_EQ(unknown("lockstep verfy a"), "\"verfy\": no command of `lockstep`");
  EXPECT_THAT(unknown("scripts/none"), HasSubstr("no such program"));
  EXPECT_EQ(unknown("lockstep verify 'a --not-one'"), "");
}

}  // namespace
}  // namespace lockstep::docs
