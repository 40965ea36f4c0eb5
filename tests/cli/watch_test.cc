// `lockstep watch` on the ring files of real processes.
#include "runtime/launch/watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cli/run_lockstep.h"
#include "tests/cli/terminal.h"
#include "tests/runtime/launch/launch_testing.h"
#include "tests/support/temp_dir.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::cli {
namespace {

// One rank of a job, in a process of its own.
class Recorder {
 public:
  Recorder(const std::string& folder, int rank, int ranks) {
    trace::RingWriter::Options options;
    options.path = folder + "/rank_" + std::to_string(rank) + ".ring";
    options.rank = trace::Rank(rank);
    options.world_size = ranks;
    options.capacity = 1024;
    ring_ = std::move(*trace::RingWriter::create(options));
    std::vector<std::int32_t> all;
    for (int r = 0; r < ranks; ++r) all.push_back(r);
    world_ = ring_->make_group("world", all);
    trace::RingWriter::SignatureFields fields;
    fields.op = trace::Op::all_reduce;
    fields.in = fields.out = {{16}};
    fields.has_in = fields.has_out = true;
    signature_ = ring_->make_signature(fields);
    weight_ = ring_->intern_names({"head.weight"});
  }
  std::uint32_t begin() {
    trace::RingWriter::Issue issue;
    issue.group = world_;
    issue.signature = signature_;
    issue.what = weight_;
    issue.seq = calls_++;
    issue.is_async = true;
    issue.step = step_;
    const std::uint32_t call = ring_->issue(issue);
    ring_->wait(call);
    return call;
  }
  void step(std::int64_t n) {
    const std::uint32_t call = begin();
    ring_->complete(call);
    ring_->waited(call);
    ring_->step(n, 1.5, 8);
    step_ = static_cast<std::int32_t>(n) + 1;
  }
  trace::RingWriter& ring() { return *ring_; }

 private:
  std::unique_ptr<trace::RingWriter> ring_;
  trace::RingWriter::GroupRef world_;
  trace::RingWriter::SignatureRef signature_;
  trace::RingWriter::NamesRef weight_;
  std::uint32_t calls_ = 0;
  std::int32_t step_ = 0;
};

[[noreturn]] void stay() {
  while (true) pause();
}

// Processes that end with the test.
class WatchTest : public ::testing::Test {
 protected:
  ~WatchTest() override {
    for (const pid_t pid : processes_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  // Starts rank `rank` of `ranks`, and returns once it has come to the end of `part` or has ended.
  pid_t start(int rank, int ranks, const std::function<void(Recorder&)>& part, bool stays = true) {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      Recorder recorder(dir_.path(), rank, ranks);
      part(recorder);
      close(ready[1]);
      if (stays) stay();
      _exit(0);
    }
    close(ready[1]);
    char unused;
    while (read(ready[0], &unused, 1) > 0) {
    }
    close(ready[0]);
    processes_.push_back(pid);
    return pid;
  }

  Outcome watch(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"watch", dir_.path(), "--interval", "0.05"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_lockstep(arguments);
  }

  TempDir dir_;
  std::vector<pid_t> processes_;
};

void end_cleanly(Recorder& r) {
  for (int n = 0; n < 3; ++n) r.step(n);
  r.ring().finish(trace::End::clean);
}
void wait_for_ever(Recorder& r) {
  r.step(0);
  r.begin();
}

TEST_F(WatchTest, AJobThatEndedGivesItsReport) {
  start(0, 2, end_cleanly, false);
  start(1, 2, end_cleanly, false);
  const Outcome outcome = watch();
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("ranks 0,1 ended"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("CLEAN"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "no terminal reads this";
  expect_fits_a_terminal(outcome.out);
}

TEST_F(WatchTest, ProvesThatAWaitForOneWhoEndedIsADeadlock) {
  start(0, 2, wait_for_ever);
  start(1, 2, [](Recorder& r) {
    r.step(0);
    r.ring().finish(trace::End::clean);
  });
  const Outcome outcome = watch({"--output", "json=" + dir_.file("r.json")});
  EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("proven "), std::string::npos) << outcome.out;
  EXPECT_NE(TempDir::read(dir_.file("r.json")).find("\"culprits\":[1]"), std::string::npos)
      << TempDir::read(dir_.file("r.json"));
}

TEST_F(WatchTest, ARankWhoseProcessIsGoneCountsAsKilled) {
  start(0, 2, wait_for_ever);
  const pid_t gone = start(1, 2, [](Recorder& r) { r.step(0); });
  kill(gone, SIGKILL);
  ASSERT_TRUE(runtime::launch_testing::eventually([&] { return runtime::has_ended(gone); }));
  const Outcome outcome = watch();
  EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("rank 1 gone: killed"), std::string::npos) << outcome.out;
  EXPECT_EQ(watch({"--once"}).status, 1);
  const Outcome elsewhere = watch({"--once", "--ignore-processes"});
  EXPECT_EQ(elsewhere.status, 0) << elsewhere.out << "it may live in another container";
}

TEST_F(WatchTest, AJobOfWhichAllWereKilledIsNotClean) {
  for (int r = 0; r < 2; ++r) {
    const pid_t gone = start(r, 2, [](Recorder& recorder) { recorder.step(0); });
    kill(gone, SIGKILL);
    ASSERT_TRUE(runtime::launch_testing::eventually([&] { return runtime::has_ended(gone); }));
  }
  const Outcome outcome = watch();
  EXPECT_EQ(outcome.status, 3) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("ranks 0,1 gone: killed"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("ranks 0, 1 were killed in step 0"), std::string::npos) << outcome.out;
}

TEST_F(WatchTest, OnceShowsARunningJobAndEndsCleanly) {
  start(0, 2, wait_for_ever);
  start(1, 2, [](Recorder& r) { r.step(0); });
  const Outcome outcome = watch({"--once"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("2 of 2 ranks, step 1"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("waits  all_reduce(head.weight)"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("behind the median"), std::string::npos) << outcome.out;
  EXPECT_EQ(watch({"--once", "--quiet"}).out, "");
  expect_fits_a_terminal(outcome.out);
}

TEST_F(WatchTest, ARankThatHasNotBegunIsInconclusive) {
  start(0, 2, wait_for_ever);
  const Outcome outcome = watch({"--once"});
  EXPECT_EQ(outcome.status, 3) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("1 of 2 ranks"), std::string::npos) << outcome.out;
}

TEST_F(WatchTest, RunsTheCommandOnceWithWhatWasFound) {
  start(0, 2, wait_for_ever);
  start(1, 2, [](Recorder& r) {
    r.step(0);
    r.ring().finish(trace::End::clean);
  });
  const std::string told = dir_.file("told");
  const Outcome outcome =
      watch({"--exec",
             "echo $LOCKSTEP_RULE $LOCKSTEP_CERTAINTY $LOCKSTEP_CULPRITS $(cat " +
                 dir_.file("r.txt") + " | wc -l) >> " + told,
             "--output", "text=" + dir_.file("r.txt")});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  const std::string text = TempDir::read(told);
  EXPECT_NE(text.find(" proven 1 "), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_EQ(text.find(" proven 1 0"), std::string::npos) << "the report stands there before";
  const Outcome failing = watch({"--once", "--exec", "exit 3"});
  EXPECT_EQ(failing.status, 1) << "the job's, not the command's";
  EXPECT_NE(failing.err.find("--exec exited with status 3"), std::string::npos) << failing.err;
}

TEST_F(WatchTest, NothingFoundRunsNothing) {
  start(0, 1, end_cleanly, false);
  EXPECT_EQ(watch({"--exec", "touch " + dir_.file("told")}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(dir_.file("told")));
}

TEST_F(WatchTest, EndsOnCtrlC) {
  start(0, 1, [](Recorder& r) { r.step(0); });
  int output[2];
  ASSERT_EQ(pipe2(output, O_CLOEXEC), 0);
  const pid_t watcher = fork();
  if (watcher == 0) {
    dup2(output[1], STDOUT_FILENO);
    const std::string folder = dir_.path();
    const std::vector<const char*> argv = {"lockstep", "watch", folder.c_str()};
    _exit(run_program(static_cast<int>(argv.size()), argv.data()));
  }
  close(output[1]);
  char said;
  ASSERT_EQ(read(output[0], &said, 1), 1) << "it has begun to watch";
  kill(watcher, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(watcher, &status, 0), watcher);
  close(output[0]);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

// Who starts a job and watches it at once is faster than its first rank.
TEST_F(WatchTest, WaitsForAFolderThatIsNotThereYet) {
  const std::string later = dir_.file("later");
  int output[2];
  ASSERT_EQ(pipe2(output, O_CLOEXEC), 0);
  const pid_t watcher = fork();
  if (watcher == 0) {
    dup2(output[1], STDOUT_FILENO);
    const std::vector<const char*> argv = {"lockstep", "watch", later.c_str(), "--interval",
                                           "0.05"};
    _exit(run_program(static_cast<int>(argv.size()), argv.data()));
  }
  close(output[1]);
  std::string said(512, '\0');
  const ssize_t length = read(output[0], said.data(), said.size());
  ASSERT_GT(length, 0);
  said.resize(static_cast<std::size_t>(length));
  EXPECT_NE(said.find("no such folder yet"), std::string::npos) << said;
  // The whole folder appears at once, with the traces of a job that ended.
  start(0, 1, end_cleanly, false);
  const std::string made = dir_.file("made");
  std::filesystem::create_directory(made);
  std::filesystem::copy(dir_.file("rank_0.ring"), made + "/rank_0.ring");
  std::filesystem::rename(made, later);
  int status = 0;
  ASSERT_EQ(waitpid(watcher, &status, 0), watcher);
  close(output[0]);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(WatchTest, SaysWhatIsWrongWithTheFolder) {
  const Outcome missing = run_lockstep({"watch", dir_.file("nowhere"), "--once"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("no such folder"), std::string::npos) << missing.err;
  const Outcome file = run_lockstep({"watch", dir_.write("file", "no folder")});
  EXPECT_EQ(file.status, 2);
  EXPECT_NE(file.err.find("not a folder"), std::string::npos) << file.err;
  const Outcome empty = watch({"--once"});
  EXPECT_EQ(empty.status, 2);
  EXPECT_NE(empty.err.find("no ring files"), std::string::npos) << empty.err;
  dir_.write("rank_0.ring", "not a ring file");
  EXPECT_EQ(watch({"--once"}).status, 2);
  EXPECT_EQ(run_lockstep({"watch", dir_.path(), "--interval", "0"}).status, 2);
  EXPECT_EQ(run_lockstep({"watch"}).status, 2);
}

TEST_F(WatchTest, ADamagedRingAmongGoodOnesDoesNotStopIt) {
  start(0, 2, end_cleanly, false);
  dir_.write("rank_1.ring", "LKSRING1 and then nothing");
  const Outcome outcome = watch({"--once"});
  EXPECT_EQ(outcome.status, 3) << outcome.out << outcome.err;
}

// The process that a ring names may be one of another container: then it seems gone, and records.
TEST_F(WatchTest, WhoRecordsIsNotGoneWhateverItsNumber) {
  int go[2], done[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(done, O_CLOEXEC), 0);
  const pid_t named = fork();
  if (named == 0) {
    Recorder recorder(dir_.path(), 0, 1);
    recorder.step(0);
    if (fork() != 0) _exit(0);  // whose number stands in the ring
    close(go[1]);
    char any;
    for (int n = 1; read(go[0], &any, 1) == 1; ++n) {
      recorder.step(n);
      if (write(done[1], "x", 1) != 1) break;
    }
    _exit(0);
  }
  waitpid(named, nullptr, 0);
  const auto end_seen = [](runtime::WatchSource& source) {
    const auto poll = source.poll();
    return poll && *poll ? (*poll)->run.ranks[0].end : trace::End::hung;
  };
  runtime::WatchSource source({dir_.path()});
  EXPECT_EQ(end_seen(source), trace::End::cut);
  for (int poll = 0; poll < 2; ++poll) {
    char any;
    ASSERT_EQ(write(go[1], "x", 1), 1);
    ASSERT_EQ(read(done[0], &any, 1), 1);
    EXPECT_EQ(end_seen(source), trace::End::cut);
  }
  for (int poll = 0; poll < 3; ++poll) EXPECT_EQ(end_seen(source), trace::End::cut) << "for good";
  runtime::WatchSource silent({dir_.path()});
  EXPECT_EQ(end_seen(silent), trace::End::cut);
  EXPECT_EQ(end_seen(silent), trace::End::killed) << "gone, and nothing recorded since";
  for (const int descriptor : {go[0], go[1], done[0], done[1]}) close(descriptor);
}

TEST_F(WatchTest, AbsentRanksAreWaitedForAWhile) {
  start(0, 2, end_cleanly, false);
  runtime::WatchSource source({dir_.path()});
  for (int poll = 1; poll <= runtime::WatchSource::kPollsForAbsent; ++poll) {
    const auto seen = source.poll();
    ASSERT_TRUE(seen && *seen);
    EXPECT_EQ((*seen)->over, poll == runtime::WatchSource::kPollsForAbsent) << poll;
  }
}

TEST_F(WatchTest, OnATerminalKeysShowMoreAndNothingRemainsOnTheScreen) {
  start(0, 2, wait_for_ever);
  start(1, 2, [](Recorder& r) { r.step(0); });
  Terminal terminal({"watch", dir_.path(), "--interval", "0.05"});
  EXPECT_TRUE(terminal.shows("? help")) << terminal.shown();
  terminal.press("?");
  EXPECT_TRUE(terminal.shows("Keys")) << terminal.shown();
  terminal.press("x");
  EXPECT_TRUE(terminal.shows("s sort (rank)")) << terminal.shown();
  terminal.press("s");
  EXPECT_TRUE(terminal.shows("s sort (attention)")) << terminal.shown();
  terminal.press("s");
  terminal.press("s");
  terminal.press("s");
  EXPECT_TRUE(terminal.shows("s sort (rank)")) << terminal.shown();
  terminal.press("\x1b[B");
  EXPECT_TRUE(terminal.shows("\x1b[7mrank 0 ")) << terminal.shown();
  terminal.press("\x1b[B");
  EXPECT_TRUE(terminal.shows("\x1b[7mrank 1 ")) << terminal.shown();
  terminal.press("\r");
  EXPECT_TRUE(terminal.shows("py-spy dump --pid")) << terminal.shown();
  EXPECT_TRUE(terminal.shows("waited for by")) << terminal.shown();
  terminal.press("\x1b[D");
  EXPECT_TRUE(terminal.shows("Enter detail")) << terminal.shown();
  terminal.press("q");
  EXPECT_EQ(terminal.ends(), 0);
  EXPECT_TRUE(terminal.shown().ends_with("\x1b[?25h\x1b[?1049l")) << terminal.shown();
}

TEST_F(WatchTest, CtrlCGivesTheTerminalBack) {
  start(0, 2, wait_for_ever);
  start(1, 2, [](Recorder& r) { r.step(0); });
  Terminal terminal({"watch", dir_.path(), "--interval", "0.05"});
  EXPECT_TRUE(terminal.shows("? help")) << terminal.shown();
  terminal.press("\x03");
  EXPECT_EQ(terminal.ends(), 130);
  EXPECT_NE(terminal.shown().find("\x1b[?1049l"), std::string::npos) << terminal.shown();
}

TEST(HasEnded, KnowsZombiesAndTheLiving) {
  EXPECT_FALSE(runtime::has_ended(getpid()));
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  EXPECT_TRUE(runtime::launch_testing::eventually([&] { return runtime::has_ended(pid); }))
      << "a zombie";
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(runtime::has_ended(0));
  EXPECT_FALSE(runtime::has_ended(-1));
}

}  // namespace
}  // namespace lockstep::cli
