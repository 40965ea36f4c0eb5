// What rank 0 sent, kept for the ranks that are looked at after it.
#include "runtime/derive/torch/broadcasts.h"

#include <fstream>

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

Broadcasts two() {
  Broadcasts out;
  out.keep({"world", 0}, std::string("\0\1\n 7", 5));
  out.keep({"image ranks", 12}, "");
  return out;
}

TEST(Broadcasts, AreReadAsTheyWereWritten) {
  const TempDir folder;
  ASSERT_TRUE(two().write(folder.file("b")));
  const auto read = Broadcasts::read(folder.file("b"));
  ASSERT_TRUE(read) << read.error().str();
  ASSERT_NE(read->find({"world", 0}), nullptr);
  EXPECT_EQ(*read->find({"world", 0}), std::string("\0\1\n 7", 5));
  ASSERT_NE(read->find({"image ranks", 12}), nullptr);
  EXPECT_EQ(read->find({"world", 1}), nullptr);
}

TEST(Broadcasts, ATruncatedFileIsRefused) {
  const TempDir folder;
  ASSERT_TRUE(two().write(folder.file("b")));
  const std::string whole = TempDir::read(folder.file("b"));
  std::size_t refused = 0;
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    std::ofstream(folder.file("part"), std::ios::binary) << whole.substr(0, bytes);
    refused += Broadcasts::read(folder.file("part")) ? 0U : 1U;
  }
  // Two cuts are between entries, and leave a whole file of fewer.
  EXPECT_EQ(refused, whole.size() - 2);
}

TEST(Broadcasts, SizesThatAreNotThereAreRefused) {
  const TempDir folder;
  for (const char* entry : {"99999999999999999999 0 1\nx", "1 0 18446744073709551615\nx",
                            "-1 0 1\n", "1 0\n", "1 0 1"}) {
    std::ofstream(folder.file("b")) << "lockstep broadcasts 1\n" << entry;
    EXPECT_FALSE(Broadcasts::read(folder.file("b"))) << entry;
  }
  EXPECT_FALSE(Broadcasts::read(folder.file("none")));
}

}  // namespace
}  // namespace lockstep::runtime
