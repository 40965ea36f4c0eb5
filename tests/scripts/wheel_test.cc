// scripts/packaging/make_wheel.py: what is in the wheel, whom it is for, and what it refuses.
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class Wheel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (shell("cc --version && objdump --version && python3 --version") != 0)
      GTEST_SKIP() << "NOT TESTED: there is no compiler, objdump or python3";
    // Says what it finds beside itself, as the program does.
    folder_.write(
        "program.c",
        "#include <stdio.h>\nint main(int n, char** v) { return n > 1 && puts(v[1]) < 0; }\n");
    ASSERT_EQ(shell("cc -static program.c -o static && cc program.c -o dynamic"), 0) << said_;
    std::filesystem::create_directories(folder_.file("recorders"));
    folder_.write("recorder.c", "int lockstep_recorder(void) { return 1; }\n");
    ASSERT_EQ(shell("cc -shared recorder.c -o recorders/liblockstep_nccl.so"), 0) << said_;
  }

  int shell(const std::string& command) {
    const std::string out = outside_.file("out");
    const int status = std::system(
        ("cd '" + folder_.path() + "' && { " + command + "; } >'" + out + "' 2>&1").c_str());
    said_ = TempDir::read(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int make(const std::string& program) {
    return shell("python3 " LOCKSTEP_SOURCE_DIR "/scripts/packaging/make_wheel.py " + program +
                 " recorders 0.1.0.dev7+abc dist");
  }

  TempDir folder_, outside_;
  std::string said_;
};

TEST_F(Wheel, IsForEveryLinuxAndHoldsWhatIsShipped) {
  ASSERT_EQ(make("static"), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("lockstep-0.1.0.dev7+abc-py3-none-manylinux2014_x86_64."
                               "manylinux_2_17_x86_64.whl"));
  ASSERT_EQ(shell("python3 -m zipfile -l dist/*.whl"), 0) << said_;
  for (const char* const held :
       {"lockstep/bin/lockstep", "lockstep/recorders/liblockstep_nccl.so",
        "lockstep/share/lockstep/examples/hung-job/nccl_trace_rank_7",
        "lockstep/share/lockstep/machines/dgx-h100.yaml",
        "lockstep/share/lockstep/plans/llama3-70b.yaml",
        "lockstep/share/lockstep/lockstep_record.py",
        "lockstep/share/lockstep/lockstep_record/__init__.py",
        "lockstep/share/lockstep/lockstep_record/wrappers.py",
        "lockstep/share/lockstep/python/lockstep_watch.py",
        "lockstep/share/lockstep/scenarios/modality/manual_hang_bad.yaml",
        "lockstep-0.1.0.dev7+abc.dist-info/LICENSE", "lockstep-0.1.0.dev7+abc.dist-info/RECORD"})
    EXPECT_THAT(said_, HasSubstr(held));
}

TEST_F(Wheel, IsInstalledByPip) {
  if (shell("python3 -m pip --version") != 0) GTEST_SKIP() << "NOT TESTED: there is no pip";
  ASSERT_EQ(make("static"), 0) << said_;
  ASSERT_EQ(shell("python3 -m pip install --quiet --no-index --no-deps --target there dist/*.whl"),
            0)
      << said_;
  EXPECT_EQ(shell("PYTHONPATH=there there/bin/lockstep works"), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("works"));
  // The reader of a pipe may close it: the program ends by the signal, as any other.
  EXPECT_EQ(shell("PYTHONPATH=there python3 -c 'import signal, os, lockstep; os.execv = lambda *a: "
                  "print(signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL); lockstep.main()'"),
            0)
      << said_;
  EXPECT_THAT(said_, HasSubstr("True"));
  EXPECT_EQ(
      shell("PYTHONPATH=there python3 -c 'import lockstep; print(lockstep.recorder(\"nccl\"))'"), 0)
      << said_;
  EXPECT_THAT(said_, HasSubstr("liblockstep_nccl.so"));
}

TEST_F(Wheel, RefusesAProgramThatNeedsThisMachinesLibraries) {
  EXPECT_EQ(make("dynamic"), 1);
  EXPECT_THAT(said_, HasSubstr("is not linked statically"));
}

TEST_F(Wheel, RefusesARecorderThatOnlyNewMachinesLoad) {
  // glibc has pthread_create of this version since 2021.
  folder_.write("recorder.c",
                "#include <pthread.h>\n"
                "__asm__(\".symver pthread_create,pthread_create@GLIBC_2.34\");\n"
                "int start(pthread_t* t) { return pthread_create(t, 0, 0, 0); }\n");
  if (shell("cc -shared -fPIC recorder.c -o recorders/liblockstep_nccl.so") != 0)
    GTEST_SKIP() << "NOT TESTED: this machine's glibc is older than 2.34";
  EXPECT_EQ(make("static"), 1);
  EXPECT_THAT(said_, HasSubstr("liblockstep_nccl.so needs a glibc newer than"));
}

// `lockstep record` looks there for the recorder of the job's torch.
TEST_F(Wheel, OfARecorderPutsItNextToTheProgram) {
  const std::string make_recorder =
      "python3 " LOCKSTEP_SOURCE_DIR
      "/scripts/packaging/make_recorder_wheel.py recorder.so 0.1.0 dist";
  folder_.write("recorder.c", "const char version[] = \"LOCKSTEP_RECORDS_TORCH=2.15.0\";\n");
  ASSERT_EQ(shell("cc -shared -fPIC recorder.c -o recorder.so && " + make_recorder), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("lockstep_recorder_torch_2_15_0-0.1.0-py3-none-linux_"));
  ASSERT_EQ(shell("python3 -m zipfile -l dist/*.whl"), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("lockstep/lib/torch-2.15.0/liblockstep_record.so"));
  folder_.write("recorder.c", "int nothing;\n");
  ASSERT_EQ(shell("cc -shared -fPIC recorder.c -o recorder.so"), 0) << said_;
  EXPECT_EQ(shell(make_recorder), 1);
  EXPECT_THAT(said_, HasSubstr("is not a recorder"));
}

TEST_F(Wheel, SaysWhatIsMissing) {
  EXPECT_EQ(make("nothing"), 1);
  EXPECT_THAT(said_, HasSubstr("make_wheel.py: error: "));
  EXPECT_EQ(said_.find("Traceback"), std::string::npos) << said_;
}

TEST_F(Wheel, RefusesWhatIsTooLarge) {
  // Bytes that do not compress, after the program's last section.
  ASSERT_EQ(shell("head -c 8000000 /dev/urandom > noise && "
                  "cc -static program.c -Wl,--format=binary noise -Wl,--format=default -o large"),
            0)
      << said_;
  EXPECT_EQ(make("large"), 1);
  EXPECT_THAT(said_, HasSubstr("more than 8000000"));
  ASSERT_EQ(shell("ls dist"), 0);
  EXPECT_EQ(said_, "");
}

}  // namespace
}  // namespace lockstep
