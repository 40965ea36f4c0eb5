// The recorders are loaded into strange programs: they show them nothing but NCCL's names, and need
// nothing but the C library (with the compiler's own part of it).
#include <stdio.h>

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/sanitized.h"

namespace lockstep::runtime {
namespace {

std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> out;
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> line{};
  while (pipe != nullptr && std::fgets(line.data(), line.size(), pipe) != nullptr) {
    out.emplace_back(line.data());
    out.back().erase(out.back().find_last_not_of('\n') + 1);
  }
  if (pipe == nullptr || ::pclose(pipe) != 0) out = {"failed: " + command};
  return out;
}

std::vector<std::string> exported(const std::string& library) {
  return lines_of("nm -D --defined-only --format=just-symbols " LOCKSTEP_BINARY_DIR "/" + library +
                  " | LC_ALL=C sort");
}

TEST(Exports, OfTheProfilerAreItsVersions) {
  EXPECT_THAT(exported("liblockstep_nccl_profiler.so"),
              testing::ElementsAre("ncclProfiler_v4", "ncclProfiler_v5", "ncclProfiler_v7"));
}

TEST(Exports, OfThePreloadedLibraryAreNcclsFunctionsAndTheWaysToLeaveAProcess) {
  EXPECT_THAT(exported("liblockstep_nccl.so"),
              testing::ElementsAre(
                  "_Exit", "_exit", "ncclAllGather", "ncclAllReduce", "ncclAlltoAll", "ncclBcast",
                  "ncclBroadcast", "ncclCommAbort", "ncclCommDestroy", "ncclCommInitAll",
                  "ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable",
                  "ncclCommShrink", "ncclCommSplit", "ncclGather", "ncclGroupEnd", "ncclGroupStart",
                  "ncclRecv", "ncclReduce", "ncclReduceScatter", "ncclScatter", "ncclSend"));
}

TEST(Exports, NeitherNeedsMoreThanTheCLibrary) {
  if (kSanitized) GTEST_SKIP() << "the sanitizers' libraries come in addition";
  for (const char* const library : {"liblockstep_nccl_profiler.so", "liblockstep_nccl.so"}) {
    EXPECT_THAT(lines_of("readelf -d " LOCKSTEP_BINARY_DIR "/" + std::string(library) +
                         " | sed -n 's/.*NEEDED.*\\[\\(.*\\)\\]/\\1/p'"),
                testing::Each(testing::AnyOf("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2",
                                             "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2")))
        << library;
  }
}

TEST(Exports, NeitherNeedsANewCLibrary) {
  if (kSanitized) GTEST_SKIP() << "nobody ships those";
  for (const char* const library : {"liblockstep_nccl_profiler.so", "liblockstep_nccl.so"}) {
    EXPECT_THAT(lines_of("objdump -T " LOCKSTEP_BINARY_DIR "/" + std::string(library) +
                         " | grep -oE 'GLIBC_2[.](19|[2-9][0-9])' | sort -u; true"),
                testing::IsEmpty())
        << library;
  }
}

}  // namespace
}  // namespace lockstep::runtime
