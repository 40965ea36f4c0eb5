// lockstep demo, and the files that come with the program.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/text.h"
#include "cli/input_files.h"
#include "tests/cli/run_lockstep.h"
#include "tests/cli/terminal.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

// The program, as it is called from anywhere.
int run_program_at(const std::string& program, const std::string& arguments,
                   const std::string& output) {
  const int status =
      std::system(("cd / && '" + program + "' " + arguments + " > '" + output + "' 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Demo, ExplainsAHang) {
  const TempDir folder;
  const std::string out = folder.file("out");
  EXPECT_EQ(run_program_at(LOCKSTEP_BINARY_DIR "/lockstep", "demo", out), 0) << TempDir::read(out);
  const std::string said = TempDir::read(out);
  EXPECT_THAT(said, HasSubstr("$ lockstep verify "));
  EXPECT_THAT(said, HasSubstr("examples/hung-job"));
  EXPECT_THAT(said, HasSubstr("rank 5"));
  EXPECT_THAT(said, HasSubstr("train.py"));
  EXPECT_EQ(said.find('\x1b'), std::string::npos);
}

// The widest line of what a terminal shows, without colours and line ends.
std::size_t widest_line(const std::string& shown) {
  std::size_t widest = 0;
  std::string line;
  bool in_color = false;
  for (const char c : shown) {
    if (c == '\n') {
      widest = std::max(widest, columns_of(line));
      line.clear();
    } else if (c == '\x1b') {
      in_color = true;
    } else if (in_color) {
      in_color = c != 'm';
    } else if (c != '\r') {
      line += c;
    }
  }
  return widest;
}

TEST(Demo, FillsTheTerminal) {
  const std::vector<std::string> verify = {"verify", LOCKSTEP_SOURCE_DIR "/examples/hung-job"};
  for (const auto& [columns, least, most] :
       {std::tuple(40, 50U, 60U), {60, 50U, 60U}, {120, 100U, 120U}, {200, 121U, 200U}}) {
    Terminal terminal(verify, static_cast<unsigned short>(columns));
    EXPECT_EQ(terminal.ends(), 1);
    EXPECT_GE(widest_line(terminal.shown()), least) << columns;
    EXPECT_LE(widest_line(terminal.shown()), most) << columns << terminal.shown();
  }
  expect_fits_a_terminal(run_lockstep(verify).out);  // no terminal: 80, wherever it runs
}

TEST(Demo, WritesAPage) {
  const TempDir folder;
  const std::string page = folder.file("report.html");
  EXPECT_EQ(run_program_at(LOCKSTEP_BINARY_DIR "/lockstep", "demo -q -o '" + page + "'",
                           folder.file("out")),
            0);
  EXPECT_EQ(TempDir::read(folder.file("out")), "");
  EXPECT_THAT(TempDir::read(page), HasSubstr("</html>"));
}

// A prefix, and the wheel's folder, have bin/ and share/ side by side.
TEST(Demo, WorksWhereItIsInstalled) {
  const TempDir prefix;
  fs::create_directories(prefix.file("bin"));
  fs::create_directories(prefix.file("share/lockstep/examples"));
  fs::copy_file(LOCKSTEP_BINARY_DIR "/lockstep", prefix.file("bin/lockstep"));
  EXPECT_EQ(run_program_at(prefix.file("bin/lockstep"), "demo", prefix.file("out")), 4);
  fs::copy(LOCKSTEP_SOURCE_DIR "/examples/hung-job",
           prefix.file("share/lockstep/examples/hung-job"), fs::copy_options::recursive);
  EXPECT_EQ(run_program_at(prefix.file("bin/lockstep"), "demo", prefix.file("out")), 0)
      << TempDir::read(prefix.file("out"));
}

TEST(Demo, SaysWhereItsFilesShouldBe) {
  const TempDir prefix;
  fs::create_directories(prefix.file("bin"));
  fs::copy_file(LOCKSTEP_BINARY_DIR "/lockstep", prefix.file("bin/lockstep"));
  EXPECT_EQ(run_program_at(prefix.file("bin/lockstep"), "demo", prefix.file("out")), 4);
  EXPECT_THAT(TempDir::read(prefix.file("out")), HasSubstr("not next to this program"));
}

TEST(Shipped, FoldersAreNextToTheProgram) {
  const std::string built = LOCKSTEP_BINARY_DIR "/lockstep";
  EXPECT_EQ(fs::path(*shipped_folder("machines", built)).filename(), "machines");
  EXPECT_TRUE(fs::exists(*shipped_folder("plans", built) + "/llama3-70b.yaml"));
  EXPECT_FALSE(shipped_folder("examples", "/usr/lib/nowhere/lockstep"));
}

// What people read fits their terminal. Only a path may be longer, for a broken one opens nothing.
TEST(Columns, OutputFitsTheTerminal) {
  const std::string hung = LOCKSTEP_SOURCE_DIR "/examples/hung-job";
  const std::vector<std::vector<std::string>> commands = {
      {"demo"},
      {"verify", hung},
      {"verify", hung, "--format", "none"},
      {"verify", hung, "-o", "r.foo"},
      {"explain"},
      {"scenario", "--list", LOCKSTEP_SOURCE_DIR "/scenarios"},
      {"simulate", "plan", "none"},
      {"simulate", "collective", "--op", "all_reduce", "--algorithm", "ring", "--ranks", "64",
       "--bytes", "1MiB", "--alpha", "1us", "--beta", "50GB/s"},
      {"simulate", "collective", "--op", "all_reduce", "--ranks", "64", "--bytes", "1MiB",
       "--machine", "dgx-h100"},
      {"simulate", "pipeline", "--stages", "8", "--micro-batches", "32"},
      {"simulate", "trace", LOCKSTEP_SOURCE_DIR "/examples/hung-job", "--machine", "dgx-h100"},
      {"calibrate", "check", LOCKSTEP_SOURCE_DIR "/sim/tables/mlperf_training_5.1_h200.json"}};
  for (const unsigned short columns : std::array<unsigned short, 5>{60, 72, 80, 120, 200}) {
    for (const std::vector<std::string>& command : commands) {
      Terminal terminal(command, columns);
      terminal.ends();
      EXPECT_THAT(terminal.shown(), Not(testing::IsEmpty()));
      const std::regex colours("\x1b\\[[0-9;]*m");
      std::istringstream lines(std::regex_replace(terminal.shown(), colours, ""));
      for (std::string line; std::getline(lines, line);) {
        while (line.ends_with('\r')) line.pop_back();
        const bool has_path = line.find('/') < 20;
        EXPECT_TRUE(has_path || columns_of(line) <= columns) << columns << ": " << line;
      }
    }
  }
}

// They are called in / (run_program_at), where the repository's folders are not.
TEST(Shipped, IsFoundByNameFromAnywhere) {
  const TempDir folder;
  for (const std::string& command :
       {std::string(
            "simulate collective --op all_reduce --ranks 64 --bytes 1MiB --machine dgx-h100"),
        std::string("simulate plan llama3-70b"),
        fmt::format("sweep llama3-70b --vary tensor=4,8 -o '{}'", folder.file("sweep")),
        std::string("scenario --list")}) {
    EXPECT_EQ(run_program_at(LOCKSTEP_BINARY_DIR "/lockstep", command, folder.file("out")), 0)
        << command << "\n"
        << TempDir::read(folder.file("out"));
  }
  EXPECT_THAT(TempDir::read(folder.file("out")), HasSubstr("\nmodality/manual_hang_bad.yaml "))
      << "their folder is named once";
  EXPECT_THAT(TempDir::read(folder.file("out")), testing::StartsWith("in /"));
}

TEST(Shipped, AnUnknownNameIsAnErrorThatNamesTheNearest) {
  const TempDir folder;
  const std::string out = folder.file("out");
  const std::string machine = " --machine dgx-h10";
  for (const std::string& command :
       {fmt::format("simulate '{}/scenarios/modality/manual_hang_ok.yaml'", LOCKSTEP_SOURCE_DIR),
        std::string("simulate collective --op all_reduce --ranks 64 --bytes 1MiB"),
        fmt::format("simulate trace '{}/examples/hung-job'", LOCKSTEP_SOURCE_DIR)}) {
    EXPECT_EQ(run_program_at(LOCKSTEP_BINARY_DIR "/lockstep", command + machine, out), 2)
        << command;
    EXPECT_THAT(TempDir::read(out), HasSubstr("did you mean \"dgx-h100\"?")) << command;
  }
  EXPECT_EQ(run_program_at(LOCKSTEP_BINARY_DIR "/lockstep",
                           "sweep llama3-70 --vary tensor=4,8 -o " + folder.file("sweep"), out),
            2);
  EXPECT_THAT(TempDir::read(out), HasSubstr("did you mean \"llama3-70b\"?"));
}

}  // namespace
}  // namespace lockstep::cli
