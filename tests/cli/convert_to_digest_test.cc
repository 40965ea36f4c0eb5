// `lockstep convert --to digest`, and `lockstep verify` of what it wrote.
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/files/gzip.h"
#include "tests/cli/run_lockstep.h"
#include "tests/reports/inline_run.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// Four ranks; rank 2 leaves out the second call, and all others hang in it.
std::string hung_rank(int rank, std::size_t world = 4) {
  const std::string out = header_line(rank, world) + world_line(4) +
                          reports::all_reduce(0, "a", 8) + reports::complete(0);
  if (rank != 2) return out + reports::all_reduce(1, "b", 8) + reports::kHung;
  return out + reports::kClean;
}

class ConvertToDigest : public ::testing::Test {
 protected:
  ConvertToDigest() {
    fs::create_directory(dir_.file("job"));
    for (int r = 0; r < 4; ++r) dir_.write(trace(r), hung_rank(r));
  }
  static std::string trace(int rank) { return "job/rank_" + std::to_string(rank) + ".trace.jsonl"; }
  std::string digest(const std::string& name, std::vector<std::string> inputs) {
    const std::string path = dir_.file(name);
    inputs.insert(inputs.begin(), {"convert", "--to", "digest"});
    inputs.insert(inputs.end(), {"-o", path, "--quiet"});
    const Outcome outcome = run_lockstep(inputs);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out + outcome.err, "");
    return path;
  }
  // What `verify` says of it in JSON.
  std::string verdict(std::vector<std::string> inputs) {
    inputs.insert(inputs.begin(), {"verify", "--output", "json=-"});
    const Outcome outcome = run_lockstep(inputs);
    EXPECT_EQ(outcome.status, 1) << outcome.err;
    return outcome.out;
  }

  TempDir dir_;
};

TEST_F(ConvertToDigest, HasTheVerdictOfTheTraces) {
  const std::string whole = verdict({dir_.file("job")});
  EXPECT_NE(whole.find("unequal-iterations"), std::string::npos) << whole;
  EXPECT_EQ(verdict({digest("all.digest", {dir_.file("job")})}), whole);
  const std::string a = digest("a.digest", {dir_.file(trace(0)), dir_.file(trace(2))});
  const std::string b = digest("b.digest", {dir_.file(trace(3)), dir_.file(trace(1))});
  EXPECT_EQ(verdict({a, b}), whole);
  EXPECT_EQ(verdict({digest("ab.digest", {b, a})}), whole);
  EXPECT_EQ(verdict({dir_.file(trace(1)), a, dir_.file(trace(3))}), whole) << "a mixture";
}

TEST_F(ConvertToDigest, MergingGivesTheSameFileInAnyOrder) {
  const std::string a = digest("a.digest", {dir_.file(trace(0)), dir_.file(trace(2))});
  const std::string b = digest("b.digest", {dir_.file(trace(3)), dir_.file(trace(1))});
  const std::string whole = TempDir::read(digest("all.digest", {dir_.file("job")}));
  EXPECT_EQ(TempDir::read(digest("ab.digest", {a, b})), whole);
  EXPECT_EQ(TempDir::read(digest("ba.digest", {b, a})), whole);
}

TEST_F(ConvertToDigest, WhichOfTheOwnFormsItWasMadeFromDoesNotShow) {
  trace::RingWriter::Options options;
  options.path = dir_.file("rank_3.ring");
  options.rank = trace::Rank(3);
  options.world_size = 4;
  auto ring = trace::RingWriter::create(options);
  ASSERT_TRUE(ring);
  (*ring)->finish(trace::End::hung);
  const std::string a = digest("a.digest", {dir_.file("rank_3.ring")});
  const std::string b = digest("b.digest", {dir_.file(trace(0))});
  EXPECT_EQ(TempDir::read(digest("ab.digest", {a, b})), TempDir::read(digest("ba.digest", {b, a})));
  EXPECT_EQ(TempDir::read(digest("ab.digest", {a, b})),
            TempDir::read(digest("m.digest", {dir_.file("rank_3.ring"), dir_.file(trace(0))})));
}

TEST_F(ConvertToDigest, SaysHowManyClassesThereAre) {
  const Outcome outcome =
      run_lockstep({"convert", "--to", "digest", dir_.file("job"), "-o", dir_.file("d.digest")});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.out.find("wrote 4 ranks in 2 classes, "), std::string::npos) << outcome.out;
}

TEST_F(ConvertToDigest, IsPassedOverNextToItsTraces) {
  const std::string whole = verdict({dir_.file("job")});
  digest("job/node.digest", {dir_.file("job")});
  EXPECT_EQ(verdict({dir_.file("job")}), whole);
  for (int r = 0; r < 4; ++r) fs::remove(dir_.file(trace(r)));
  EXPECT_EQ(verdict({dir_.file("job")}), whole) << "alone in its folder it counts";
}

TEST_F(ConvertToDigest, WhatCouldNotBeReadStaysUnknown) {
  dir_.write("job/rank_1.trace.jsonl", "nothing of use\n");
  const std::string path = dir_.file("d.digest");
  const Outcome made = run_lockstep({"convert", "--to", "digest", dir_.file("job"), "-o", path});
  EXPECT_EQ(made.status, 3) << made.out << made.err;
  EXPECT_NE(made.err.find("rank_1"), std::string::npos) << made.err;
  EXPECT_EQ(verdict({path}), verdict({dir_.file("job")}));
}

TEST_F(ConvertToDigest, DamagedAndMissingInputIsNamed) {
  const std::string good = TempDir::read(digest("good.digest", {dir_.file("job")}));
  const std::string cut = dir_.write("cut.digest", good.substr(0, good.size() / 2));
  const Outcome of_cut = run_lockstep({"verify", cut});
  EXPECT_EQ(of_cut.status, 2);
  EXPECT_NE(of_cut.err.find("cut off"), std::string::npos) << of_cut.err;
  std::string flipped = gunzip(good, "g", 1 << 20)->text;
  char& middle = flipped[flipped.size() / 2];
  middle = static_cast<char>(middle ^ 1);
  EXPECT_EQ(run_lockstep({"verify", dir_.write("flip.digest", flipped)}).status, 2);
  // Beside a good one it is a part that is not known.
  const std::string part = digest("part.digest", {dir_.file(trace(0))});
  const Outcome both = run_lockstep({"verify", part, cut});
  EXPECT_EQ(both.status, 3) << both.out;
  EXPECT_EQ(run_lockstep({"convert", "--to", "digest", dir_.file("nowhere"), "-o", dir_.file("x")})
                .status,
            2);
  EXPECT_EQ(run_lockstep({"convert", "--to", "digest", dir_.file("job")}).status, 2) << "where to?";
  EXPECT_EQ(
      run_lockstep({"convert", "--to", "digest", dir_.file("job"), "-o", dir_.file("no/such/x")})
          .status,
      4);
}

TEST_F(ConvertToDigest, HelpFitsATerminal) {
  for (const char* command : {"convert", "watch"}) {
    const Outcome outcome = run_lockstep({command, "--help"});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.out.find("Examples:"), std::string::npos);
    expect_fits_a_terminal(outcome.out);
  }
}

int shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The page's own line: every process of an MPI job makes the digest of its part.
TEST_F(ConvertToDigest, AnMpiJobMakesItsDigests) {
  if (shell("command -v mpirun >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "NOT TESTED: there is no mpirun (Debian package mpich)";
  fs::create_directory(dir_.file("out"));
  const std::string lockstep = std::string(LOCKSTEP_BINARY_DIR) + "/lockstep";
  // MPICH numbers its processes in PMI_RANK, Open MPI in OMPI_COMM_WORLD_RANK; it does not run as
  // root, nor more processes than cores, unless told to.
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
  // MPICH's mpirun passes its input on to rank 0, and dies of SIGPIPE where that one ended first.
  ASSERT_EQ(shell("mpirun -n 4 sh -c 'r=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; " + lockstep +
                  " digest " + dir_.file("job") + "/rank_$r.trace.jsonl -q -o " + dir_.file("out") +
                  "/$r.digest' </dev/null"),
            0);
  for (int r = 0; r < 4; ++r)
    EXPECT_TRUE(fs::exists(dir_.file("out/" + std::to_string(r) + ".digest")));
  EXPECT_EQ(verdict({dir_.file("out")}), verdict({dir_.file("job")}));
}

}  // namespace
}  // namespace lockstep::cli
