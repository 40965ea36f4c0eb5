#include "runtime/data/loader.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "runtime/data/data_check.h"
#include "runtime/data/distributed_sampler.h"
#include "runtime/data/shapes.h"
#include "tests/runtime/data/shared_data.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kLength = 12;

// The built-in data set as files, opened.
struct Shapes {
  explicit Shapes(ShapesFiles options = {.items = 20, .side = 8, .seed = 3, .text_only = 0.25}) {
    const std::string folder = (temporary.path() / "shapes").string();
    const Status written = write_shapes(folder, options);
    EXPECT_TRUE(written) << written.error().str();
    Result<Manifest> opened = Manifest::open({folder});
    EXPECT_TRUE(opened) << opened.error().str();
    data.emplace(std::move(*opened));
    Result<Vocabulary> vocabulary = Vocabulary::open(folder + "/vocab.txt");
    EXPECT_TRUE(vocabulary) << vocabulary.error().str();
    tokenizer.emplace(std::move(*vocabulary));
    recipe = {&*data, &*tokenizer, {}, kLength};
    recipe.image.side = 4;
  }
  fs::path image(int index) const {
    return temporary.path() / "shapes" / data->item(index).image->name;
  }

  TemporaryFolder temporary;
  std::optional<Manifest> data;
  std::optional<WordPiece> tokenizer;
  ItemRecipe recipe;
};

LoadedBatch next(Loader& loader) {
  Result<std::optional<LoadedBatch>> batch = loader.next();
  EXPECT_TRUE(batch && *batch);
  return std::move(**batch);
}

TEST(Loader, GivesThePlanInOrderWhateverTheThreads) {
  const Shapes shapes;
  const Loader::Plan plan = {{5, 3}, {1}, {}, {0, 2, 4, 6, 19}};
  Loader one(shapes.recipe, {.workers = 1, .prefetch = 1}, plan);
  Loader many(shapes.recipe, {.workers = 4, .prefetch = 3}, plan);
  for (std::size_t b = 0; b < plan.size(); ++b) {
    const LoadedBatch left = next(one);
    const LoadedBatch right = next(many);
    ASSERT_THAT(left.keys, SizeIs(plan[b].size()));
    for (std::size_t row = 0; row < plan[b].size(); ++row) {
      EXPECT_EQ(left.keys[row], shapes.data->key(plan[b][row]));
    }
    EXPECT_EQ(left.keys, right.keys);
    EXPECT_EQ(left.pixels, right.pixels);
    EXPECT_EQ(left.image_rows, right.image_rows);
    EXPECT_EQ(left.tokens, right.tokens);
  }
  const auto end = one.next();
  ASSERT_TRUE(end);
  EXPECT_FALSE(*end);
  EXPECT_EQ(one.counts().loaded, 8);
}

TEST(Loader, ABatchHoldsWhatItsItemsAre) {
  const Shapes shapes;
  std::int64_t picture = 0;
  std::int64_t text_only = 0;
  while (!shapes.data->item(picture).image) ++picture;
  while (shapes.data->item(text_only).image) ++text_only;
  Loader loader(shapes.recipe, {}, {{text_only, picture, text_only}});
  const LoadedBatch batch = next(loader);
  EXPECT_THAT(batch.image_rows, ElementsAre(1));
  std::vector<float> pixels(shapes.recipe.image.floats());
  const Result<LoadedItem> alone = load_item(shapes.recipe, picture, pixels);
  ASSERT_TRUE(alone);
  EXPECT_EQ(batch.pixels, pixels);
  ASSERT_THAT(batch.tokens, SizeIs(3 * kLength));
  ASSERT_EQ(batch.lengths[1], static_cast<std::int64_t>(alone->tokens.size()));
  for (std::size_t i = 0; i < kLength; ++i) {
    EXPECT_EQ(batch.tokens[kLength + i], i < alone->tokens.size() ? alone->tokens[i] : 0);
  }
}

TEST(Loader, ABadItemIsLeftOutAndCounted) {
  const Shapes shapes({.items = 6, .side = 8, .seed = 3});
  fs::resize_file(shapes.image(1), 40);
  fs::remove(shapes.image(4));
  Loader loader(shapes.recipe, {.workers = 2}, {{0, 1, 2}, {4}, {5, 99}});
  const LoadedBatch first = next(loader);
  EXPECT_EQ(first.skipped, 1);
  ASSERT_THAT(first.keys, SizeIs(2));
  EXPECT_EQ(first.keys[1], shapes.data->key(2));
  EXPECT_THAT(first.image_rows, ElementsAre(0, 1));
  std::vector<float> pixels(shapes.recipe.image.floats());
  ASSERT_TRUE(load_item(shapes.recipe, 2, pixels));
  EXPECT_EQ(std::vector(first.pixels.begin() + static_cast<std::ptrdiff_t>(pixels.size()),
                        first.pixels.end()),
            pixels);
  EXPECT_THAT(next(loader).keys, IsEmpty());
  EXPECT_THAT(next(loader).keys, SizeIs(1));
  EXPECT_EQ(loader.counts().skipped, 3);
  ASSERT_THAT(loader.counts().reasons, SizeIs(3));
  EXPECT_THAT(loader.counts().reasons[0].str(), HasSubstr("PNG"));
}

TEST(Loader, OrStopsAfterTheBatchesBeforeIt) {
  const Shapes shapes({.items = 6, .side = 8, .seed = 3});
  fs::resize_file(shapes.image(3), 40);
  Loader loader(shapes.recipe, {.on_error = LoaderOptions::OnError::stop}, {{0, 1}, {2, 3}, {4}});
  EXPECT_THAT(next(loader).keys, SizeIs(2));
  const auto failed = loader.next();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().str(), HasSubstr("PNG"));
  EXPECT_FALSE(loader.next());
}

TEST(Loader, EndsAtAnyMoment) {
  const Shapes shapes;
  const auto sampler = DistributedSampler::make({.items = 20});
  for (int taken = 0; taken < 6; ++taken) {
    Loader loader(shapes.recipe, {.workers = 3, .prefetch = 2},
                  batches_of(sampler->indices(0), 4, true));
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next());
  }
  const Loader empty(shapes.recipe, {}, {});
}

TEST(ShapesFiles, AreWrittenOnceAndEqual) {
  const TemporaryFolder folder;
  const std::string target = (folder.path() / "s").string();
  const ShapesFiles options{.items = 3, .side = 16, .seed = 7};
  ASSERT_TRUE(write_shapes(target, options));
  const auto written = fs::last_write_time(target + "/captions.csv");
  ASSERT_TRUE(write_shapes(target + "/", options));
  EXPECT_EQ(fs::last_write_time(target + "/captions.csv"), written);
  const Status other = write_shapes(target, {.items = 4, .side = 16, .seed = 7});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().str(), HasSubstr("other options"));
  EXPECT_FALSE(write_shapes(folder.path().string(), options));
  EXPECT_FALSE(write_shapes(target, {.items = 0}));
  ASSERT_TRUE(write_shapes(target + "2", options));
  EXPECT_EQ(file_bytes(target + "/images/000002.png"), file_bytes(target + "2/images/000002.png"));
}

TEST(CheckData, CountsWhatIsThere) {
  const Shapes shapes({.items = 20, .side = 8, .seed = 3, .text_only = 0.25});
  int broken = 0;
  while (!shapes.data->item(broken).image) ++broken;
  fs::resize_file(shapes.image(broken), 10);
  const DataCheck check = check_data(*shapes.data, &*shapes.tokenizer, 2, 5);
  EXPECT_EQ(check.items, 20);
  EXPECT_EQ(check.both, 14);
  EXPECT_EQ(check.text_only, 5);
  EXPECT_EQ(check.unreadable, 1);
  EXPECT_FALSE(check.is_fine());
  EXPECT_EQ(check.lengths[0] + check.lengths[1], 19);
  const std::string report = check_report(check);
  EXPECT_THAT(report, HasSubstr("text only       5 (26.3 %)"));
  EXPECT_THAT(report, HasSubstr("digest          " + hex(shapes.data->map().digest())));
}

}  // namespace
}  // namespace lockstep::runtime
