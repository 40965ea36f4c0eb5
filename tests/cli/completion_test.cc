// Completion, asked of the real shells: what they offer after what was typed so far.
#include <stdlib.h>

#include <cstdlib>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class Completion : public ::testing::Test {
 protected:
  // The scripts ask the program that was called.
  Completion() {
    const char* const path = std::getenv("PATH");
    ::setenv("PATH", (LOCKSTEP_BINARY_DIR ":" + std::string(path == nullptr ? "" : path)).c_str(),
             1);
  }
  // The script of `shell`, in a file.
  std::string script(const std::string& shell) {
    const Outcome ran = run_lockstep({"completion", shell});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return folder_.write(shell, ran.out);
  }
  static bool has(const std::string& shell) {
    return std::system(("command -v " + shell + " >/dev/null").c_str()) == 0;
  }
  // What the command prints, by lines.
  static std::vector<std::string> lines_of(const std::string& command) {
    std::vector<std::string> out;
    FILE* pipe = ::popen(command.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    std::string text;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
    EXPECT_EQ(::pclose(pipe), 0) << command;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) out.push_back(line);
    return out;
  }
  // What bash offers for the last of the words.
  std::vector<std::string> bash_offers(const std::string& words) {
    return lines_of("bash -c 'source " + script("bash") + "; COMP_WORDS=(" + words +
                    "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lockstep; "
                    "printf \"%s\\n\" ${COMPREPLY[@]+\"${COMPREPLY[@]}\"}' | sed '/^$/d'");
  }
  TempDir folder_;
};

TEST_F(Completion, BashOffersCommands) {
  EXPECT_THAT(bash_offers("lockstep \"\""),
              AllOf(Contains("run"), Contains("verify"), Contains("simulate"), Contains("derive")));
  EXPECT_THAT(bash_offers("lockstep ver"), ElementsAre("verify"));
  EXPECT_THAT(bash_offers("lockstep simulate coll"), ElementsAre("collective"));
}

TEST_F(Completion, BashOffersTheOptionsOfTheCommand) {
  EXPECT_THAT(bash_offers("lockstep verify --fail"), ElementsAre("--fail-on"));
  EXPECT_THAT(bash_offers("lockstep simulate collective --alp"), ElementsAre("--alpha"));
  EXPECT_THAT(bash_offers("lockstep verify --alp"), IsEmpty());
  EXPECT_THAT(bash_offers("lockstep scenario --"), Contains("--schema"));  // of an option group
}

TEST_F(Completion, BashOffersTheValuesThatAnOptionLists) {
  EXPECT_THAT(bash_offers("lockstep verify traces --fail-on \"\""),
              ElementsAre("error", "warning", "note", "never"));
  EXPECT_THAT(bash_offers("lockstep verify --semantics n"), ElementsAre("nccl"));
}

TEST_F(Completion, BashOffersWhatTheProgramKnows) {
  EXPECT_THAT(bash_offers("lockstep explain host"), ElementsAre("host-stall"));
  EXPECT_THAT(bash_offers("lockstep verify --only modality-d"), ElementsAre("modality-divergence"));
  EXPECT_THAT(bash_offers("lockstep verify --only = modality-d"),
              ElementsAre("modality-divergence"));
  EXPECT_THAT(bash_offers("lockstep verify --format flight"), ElementsAre("flight-recorder"));
  EXPECT_THAT(bash_offers("lockstep verify -o \"\""), AllOf(Contains("html="), Contains("sarif=")));
  EXPECT_THAT(bash_offers("lockstep simulate job.yaml --machine dgx-h"), Contains("dgx-h100"));
  EXPECT_THAT(bash_offers("lockstep completion \"\""), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(bash_offers("lockstep simulate plan llama3-7"), ElementsAre("llama3-70b"));
  EXPECT_THAT(bash_offers("lockstep sweep vlm"), ElementsAre("vlm-75b"));
  EXPECT_THAT(bash_offers("lockstep simulate plan my"), IsEmpty()) << "files";
  EXPECT_THAT(bash_offers("lockstep simulate plan x --calibration dgx-h1"), Contains("dgx-h100"));
  EXPECT_THAT(bash_offers("lockstep simulate collective --op all_r"), ElementsAre("all_reduce"));
  EXPECT_THAT(bash_offers("lockstep simulate collective --algorithm \"\""), Contains("ring"));
  EXPECT_THAT(bash_offers("lockstep simulate pipeline --schedule z"), Contains("zb-h2"));
  EXPECT_THAT(bash_offers("lockstep scenario --new --strategy \"\""), Contains("fsdp"));
  EXPECT_THAT(bash_offers("lockstep scenario --new --remedy d"), ElementsAre("dummy-image"));
  EXPECT_THAT(bash_offers("lockstep simulate job.yaml -o \"\""),
              AllOf(Contains("html="), Contains("timeline="), Not(Contains("sarif="))));
  EXPECT_THAT(bash_offers("lockstep compare a b -o \"\""),
              UnorderedElementsAre("text=", "json=", "html=", "markdown="));
}

TEST_F(Completion, HostileWordsAreWordsOnly) {
  EXPECT_THAT(bash_offers("lockstep \"--\\$(echo x)=\" \"\\`\" \"\""), Contains("verify"));
  EXPECT_THAT(bash_offers("lockstep nonsense --nonsense \"\""), Contains("verify"));
}

// Nothing is offered, so that bash falls back to files.
TEST_F(Completion, BashOffersFilesElsewhere) {
  EXPECT_THAT(bash_offers("lockstep verify \"\""), IsEmpty());
  EXPECT_THAT(bash_offers("lockstep verify --baseline \"\""), IsEmpty());
}

TEST_F(Completion, ZshTakesTheScript) {
  if (!has("zsh")) GTEST_SKIP() << "there is no zsh";
  EXPECT_THAT(lines_of("zsh -n " + script("zsh")), IsEmpty());
  EXPECT_THAT(lines_of("zsh -fc 'autoload -U compinit; compinit -D; source " + script("zsh") +
                       "; print ${_comps[lockstep]}'"),
              ElementsAre("_lockstep"));
}

TEST_F(Completion, FishOffersCommandsOptionsAndValues) {
  if (!has("fish")) GTEST_SKIP() << "there is no fish";
  const auto offers = [&](const std::string& line) {
    std::vector<std::string> out;
    for (const std::string& offer : lines_of("fish --no-config -c 'source " + script("fish") +
                                             "; complete -C \"" + line + "\"'"))
      out.push_back(offer.substr(0, offer.find('\t')));
    return out;
  };
  EXPECT_THAT(offers("lockstep ver"), ElementsAre("verify"));
  EXPECT_THAT(offers("lockstep simulate coll"), ElementsAre("collective"));
  EXPECT_THAT(offers("lockstep verify --fail"), ElementsAre("--fail-on"));
  EXPECT_THAT(offers("lockstep verify --fail-on n"), UnorderedElementsAre("note", "never"));
  EXPECT_THAT(offers("lockstep simulate collective --al"),
              AllOf(Contains("--alpha"), Not(Contains("--fail-on"))));
}

TEST_F(Completion, RefusesOtherShells) {
  EXPECT_EQ(run_lockstep({"completion", "csh"}).status, 2);
  EXPECT_EQ(run_lockstep({"completion"}).status, 2);
}

}  // namespace
}  // namespace lockstep::cli
