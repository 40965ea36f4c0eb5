// What may stand for a file, and where output goes: standard input, archives, folders, closed
// pipes.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kExample = LOCKSTEP_SOURCE_DIR "/examples/hung-job";

// Standard input is that file while this lives.
class InputFrom {
 public:
  explicit InputFrom(const std::string& file) : before_(::dup(STDIN_FILENO)) {
    const int opened = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_GE(opened, 0) << file;
    ::dup2(opened, STDIN_FILENO);
    ::close(opened);
  }
  ~InputFrom() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }
  InputFrom(const InputFrom&) = delete;
  InputFrom& operator=(const InputFrom&) = delete;

 private:
  int before_;
};

class Inputs : public ::testing::Test {
 protected:
  // Runs a shell's command in the test's folder, with `lockstep` in its path.
  int shell(const std::string& command) {
    const std::string line = "cd '" + folder_.path() +
                             "' && PATH='" LOCKSTEP_BINARY_DIR "':$PATH && { " + command +
                             "; } > said 2>&1";
    const int status = std::system(line.c_str());
    said_ = TempDir::read(folder_.file("said"));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string archive(const std::string& name, const std::string& tar_options) {
    EXPECT_EQ(shell("tar " + tar_options + " -cf " + name + " -C " + kExample + " ."), 0) << said_;
    return folder_.file(name);
  }

  TempDir folder_;
  std::string said_;
};

TEST_F(Inputs, VerifyReadsStandardInput) {
  const std::string packed = archive("dumps.tar.gz", "-z");
  const InputFrom input(packed);
  const Outcome ran = run_lockstep({"verify", "-"});
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("rank 5"));
}

TEST_F(Inputs, ConvertReadsStandardInput) {
  const InputFrom input(archive("dumps.tar", ""));
  const Outcome ran = run_lockstep({"convert", "-", "-o", folder_.file("out")});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("wrote 8 ranks"));
}

TEST_F(Inputs, AScenarioMayComeOnStandardInput) {
  const InputFrom input(LOCKSTEP_SOURCE_DIR "/scenarios/modality/manual_hang_bad.yaml");
  const Outcome ran = run_lockstep({"scenario", "--check", "-"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("standard input: valid: 4 ranks"));
  const InputFrom again(LOCKSTEP_SOURCE_DIR "/scenarios/modality/manual_hang_bad.yaml");
  EXPECT_THAT(run_lockstep({"scenario", "--list", "-"}).out, StartsWith("standard input  "));
}

TEST_F(Inputs, ErrorsInStandardInputNameNoFile) {
  const InputFrom input(folder_.write("job.yaml", "lockstep: 1\nname: x\nranks: two\n"));
  const Outcome ran = run_lockstep({"scenario", "--check", "-"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, StartsWith("lockstep: standard input:3:8: error: \"ranks\" should be"));
}

// "did you mean llama3-70b?", of which it differs by one figure.
TEST_F(Inputs, AModelIsNoPlan) {
  for (const char* command : {"simulate plan llama3-8b", "sweep llama3-8b -o out"}) {
    EXPECT_EQ(shell(fmt::format("lockstep {}", command)), 2);
    EXPECT_THAT(said_, AllOf(HasSubstr("llama3-8b is a model, and no plan"),
                             HasSubstr("llama3-70b --set model=llama3-8b")));
  }
  EXPECT_EQ(shell("lockstep simulate plan llama3-70b --set model=llama3-8b"), 0) << said_;
  EXPECT_EQ(shell("lockstep simulate plan llama3-80b"), 2);
  EXPECT_THAT(said_, HasSubstr("did you mean \"llama3-70b\"?"));
}

// Nor do those that say what it should have been, by any command that takes it.
TEST_F(Inputs, EveryCommandCallsStandardInputThat) {
  const std::string plan = LOCKSTEP_SOURCE_DIR "/sim/plans/llama3-70b.yaml";
  const std::string scenario = folder_.write("job.yaml", "lockstep: 1\nname: x\nranks: two\n");
  const std::string out = folder_.file("out");
  const std::pair<std::string, std::vector<std::string>> runs[] = {
      {plan, {"simulate", "-", "--machine", "dgx-h100"}},
      {plan, {"simulate", "plan", "-", "--set", "tensor=3"}},
      {plan, {"sweep", "-", "-o", out, "--machine", "dgx-h100"}},
      {scenario, {"simulate", "-", "--machine", "dgx-h100"}},
      {scenario, {"simulate", "plan", "-"}},
      {scenario, {"sweep", "-", "-o", out, "--machine", "dgx-h100"}},
      {scenario, {"derive", "-"}},
      {scenario, {"run", "-"}}};
  for (const auto& [file, arguments] : runs) {
    const InputFrom input(file);
    const Outcome ran = run_lockstep(arguments);
    EXPECT_EQ(ran.status, 2) << arguments[0];
    EXPECT_THAT(ran.err, StartsWith("lockstep: standard input:")) << arguments[0];
    EXPECT_EQ(ran.err.find("/tmp"), std::string::npos) << ran.err;
  }
}

TEST_F(Inputs, ReportsEmptyStandardInput) {
  const InputFrom input("/dev/null");
  const Outcome scenario = run_lockstep({"scenario", "--check", "-"});
  EXPECT_EQ(scenario.status, 2);
  EXPECT_THAT(scenario.err, HasSubstr("standard input is empty"));
  const Outcome traces = run_lockstep({"verify", "-"});
  EXPECT_EQ(traces.status, 2);
  EXPECT_THAT(traces.err, HasSubstr("standard input: error: the file is empty"));
}

TEST_F(Inputs, StandardInputIsOneRun) {
  const Outcome ran = run_lockstep({"compare", "-", "-"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("two are compared"));
}

TEST_F(Inputs, FoldersOfNodesAndZipFiles) {
  ASSERT_EQ(shell(std::string("mkdir -p job/node0 job/node1 && cp ") + kExample +
                  "/nccl_trace_rank_[0-3] job/node0 && cp " + kExample +
                  "/nccl_trace_rank_[4-7] job/node1 && python3 -m zipfile -c job.zip job"),
            0)
      << said_;
  for (const char* input : {"job", "job.zip"}) {
    const Outcome ran = run_lockstep({"verify", folder_.file(input)});
    EXPECT_EQ(ran.status, 1) << input << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("8 ranks"));
  }
}

// `| head -1` ends before the report does.
TEST_F(Inputs, AClosedPipeLosesNoFile) {
  ASSERT_EQ(shell(std::string("lockstep verify ") + kExample +
                  " -o report.html -o json=r.json --write-baseline known.json | head -1"),
            0)
      << said_;
  for (const char* file : {"report.html", "r.json", "known.json"})
    EXPECT_GT(std::filesystem::file_size(folder_.file(file)), 100U) << file;
}

// A script alone starts nothing; a name that is neither a file nor a program is another mistake.
TEST_F(Inputs, ARecordedCommandThatIsAScriptAlone) {
  const Outcome alone = run_lockstep({"record", folder_.write("train.py", "import torch\n")});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("no program that can be started"));
  EXPECT_THAT(alone.err, HasSubstr("lockstep record -- torchrun"));
  EXPECT_THAT(run_lockstep({"record", "nosuchprogram"}).err, HasSubstr("no such program"));
}

}  // namespace
}  // namespace lockstep::cli
