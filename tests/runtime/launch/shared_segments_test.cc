#include "runtime/launch/shared_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Files of a folder that stands for /dev/shm, mapped by this process.
class Segments : public ::testing::Test {
 protected:
  void map(const std::string& name) {
    const int file = open(folder_.file(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(ftruncate(file, 4096), 0);
    void* const at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    ASSERT_NE(at, MAP_FAILED);
    mapped_.push_back(at);
  }
  ~Segments() override {
    for (void* at : mapped_) munmap(at, 4096);
  }

  TempDir folder_;
  std::vector<void*> mapped_;
};

TEST_F(Segments, ThatARankMadeAreRemoved) {
  SharedSegments segments(folder_.path());
  map("nccl-a1");
  map("cuda.shm.0.1f.1");
  segments.look({getpid()});
  EXPECT_THAT(segments.remove(), ElementsAre("cuda.shm.0.1f.1", "nccl-a1"));
  EXPECT_NE(access(folder_.file("nccl-a1").c_str(), F_OK), 0);
}

TEST_F(Segments, ThatAreOpenAndNotMappedCountAsWell) {
  SharedSegments segments(folder_.path());
  const int file = open(folder_.file("torch_1_2").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  segments.look({getpid()});
  EXPECT_THAT(segments.remove(), ElementsAre("torch_1_2"));
  close(file);
}

TEST_F(Segments, OfOthersStay) {
  map("nccl-before");
  SharedSegments segments(folder_.path());
  folder_.write("nccl-another", "");  // no rank has it
  map("database");                    // no library of a rank names one so
  segments.look({getpid()}, /*closely=*/true);
  EXPECT_THAT(segments.remove(), IsEmpty());
  EXPECT_EQ(access(folder_.file("nccl-another").c_str(), F_OK), 0);
}

TEST_F(Segments, WhoseNameWasGivenToAnotherFileStay) {
  SharedSegments segments(folder_.path());
  map("nccl-a1");
  segments.look({getpid()});
  folder_.write("new", "");
  ASSERT_EQ(rename(folder_.file("new").c_str(), folder_.file("nccl-a1").c_str()), 0);
  EXPECT_THAT(segments.remove(), IsEmpty());
}

TEST_F(Segments, ThatNobodyHasAreNotLookedForForEverButCloselyAtTheEnd) {
  SharedSegments segments(folder_.path());
  folder_.write("nccl-late", "");
  for (int i = 0; i < 100; ++i) segments.look({getpid()});
  map("nccl-late");
  segments.look({getpid()});
  EXPECT_THAT(segments.remove(), IsEmpty());
  segments.look({getpid()}, /*closely=*/true);
  EXPECT_THAT(segments.remove(), ElementsAre("nccl-late"));
}

}  // namespace
}  // namespace lockstep::runtime
