#include "runtime/data/shapes.h"

#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

std::vector<float> pixels(const Picture& picture) {
  std::vector<float> values(kImageFloats);
  paint(picture, std::span(values).first<kImageFloats>());
  return values;
}

TEST(Shapes, AnItemIsAFunctionOfSeedAndIndex) {
  const ShapesDataset a(64, 0.0, 1);
  const ShapesDataset again(64, 0.0, 1);
  const ShapesDataset other(64, 0.0, 2);
  int differ = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(pixels(a.item(i).picture), pixels(again.item(i).picture));
    differ += pixels(a.item(i).picture) != pixels(other.item(i).picture) ? 1 : 0;
  }
  EXPECT_EQ(differ, 64);
}

TEST(Shapes, TheCaptionSaysWhatIsInThePicture) {
  EXPECT_EQ(caption({.size = 2, .colour = 0, .shape = 0, .ground = 2}),
            "a large red circle on a blue ground");
  EXPECT_EQ(caption({.size = 1, .colour = 5, .shape = 4, .ground = 7}),
            "an orange ring on a black ground");
}

TEST(Shapes, EveryCaptionIsMadeOfTheWordsAndFitsIntoTheTokens) {
  const auto known = caption_words();
  const std::set<std::string> words(known.begin(), known.end());
  EXPECT_EQ(words.size(), known.size());
  const ShapesDataset data(200, 0.0, 1);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    std::istringstream sentence(caption(data.item(i).picture));
    int count = 0;
    for (std::string word; sentence >> word; ++count) EXPECT_TRUE(words.contains(word)) << word;
    EXPECT_LE(count + 2, kMaxTokens);
  }
}

TEST(Shapes, TheGroundIsSeenWhereTheShapeIsNot) {
  const Picture picture{
      .size = 0, .colour = 0, .shape = 0, .ground = 2, .x = 16, .y = 16, .noise_seed = 1};
  const auto values = pixels(picture);
  const auto red = [&](int row, int column) {
    return values[static_cast<std::size_t>(row * kImageSide + column)];
  };
  EXPECT_GT(red(16, 16), 0.5F);  // the red circle's middle
  EXPECT_LT(red(0, 0), -0.5F);   // the blue ground's corner
}

TEST(Shapes, TheShareOfTextOnlyItemsIsExactAndHeldOutItemsHaveImages) {
  const ShapesDataset data(40, 0.25, 3);
  int bare = 0;
  for (std::int64_t i = 0; i < 40; ++i) bare += data.item(i).has_image ? 0 : 1;
  EXPECT_EQ(bare, 10);
  EXPECT_TRUE(data.item(40).has_image);
}

TEST(Shapes, ManyCaptionsOccur) {
  const ShapesDataset data(500, 0.0, 1);
  std::set<std::string> captions;
  for (std::int64_t i = 0; i < 500; ++i) captions.insert(caption(data.item(i).picture));
  EXPECT_GT(captions.size(), 300U);
}

}  // namespace
}  // namespace lockstep::runtime
