// Every committed input of the fuzz targets, through the target it belongs to: what was once fixed
// stays so, whatever the compiler. Finding new inputs is scripts/fuzz's work.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fuzz/targets.h"
#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string corpus() { return std::string(LOCKSTEP_SOURCE_DIR) + "/tests/fuzz/corpus"; }

class Corpus : public testing::TestWithParam<FuzzTarget> {
 protected:
  static std::vector<std::string> files() {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(corpus() + "/" + std::string(GetParam().name)))
      out.push_back(entry.path().string());
    std::sort(out.begin(), out.end());
    return out;
  }
};

TEST_P(Corpus, RunsToItsEnd) {
  EXPECT_FALSE(files().empty());
  for (const std::string& file : files()) {
    SCOPED_TRACE(file);
    GetParam().run(TempDir::read(file));
  }
}

// The beginnings of every input and the input with a bit changed here and there (everywhere, in
// small files of what is cheap to read): the kind of thing that a crashed job leaves behind.
TEST_P(Corpus, SoDoItsBeginningsAndWhatIsDamaged) {
  constexpr std::size_t kPositions = LOCKSTEP_FUZZ_PLACES;
  GetParam().run("");
  for (const std::string& file : files()) {
    SCOPED_TRACE(file);
    const std::string bytes = TempDir::read(file);
    for (std::size_t i = 0; i < kPositions && i < bytes.size(); ++i) {
      const std::size_t at = bytes.size() <= kPositions ? i : bytes.size() * i / kPositions;
      GetParam().run(std::string_view(bytes).substr(0, at));
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (i % 8)));
      GetParam().run(damaged);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Corpus,
                         testing::ValuesIn(fuzz_targets().begin(), fuzz_targets().end()),
                         [](const auto& of) { return std::string(of.param.name); });

// The names in a list with blanks between them, in order.
std::vector<std::string> sorted_names(const std::string& list) {
  std::istringstream in(list);
  std::vector<std::string> out;
  for (std::string name; in >> name;) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

// A folder that no target reads is a forgotten one, and so is a target outside of the table.
TEST(Targets, EveryFolderOfTheCorpusHasOne) {
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(corpus())) {
    folders.push_back(entry.path().filename().string());
  }
  std::sort(folders.begin(), folders.end());
  EXPECT_EQ(folders, sorted_names(LOCKSTEP_FUZZ_FOLDERS));
  std::vector<std::string> names;
  for (const FuzzTarget& target : fuzz_targets()) names.emplace_back(target.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, sorted_names(LOCKSTEP_FUZZ_TARGETS));
}

}  // namespace
}  // namespace lockstep
