#include "tests/fuzz/trainer/fuzz_manifest.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "runtime/data/loader.h"
#include "tests/fuzz/targets.h"
#include "tests/support/temp_dir.h"

namespace lockstep {

namespace {

constexpr std::int64_t kMaxItemsLoaded = 64;  // items; a picture may take a while

void look_at(const runtime::Manifest& data, std::int64_t index) {
  const runtime::ManifestItem& item = data.item(index);
  LOCKSTEP_CHECK(to_utf8(item.problem) == item.problem, "problems are for people");
  LOCKSTEP_CHECK(!item.problem.empty() || item.image || item.text, "an item shows something");
  LOCKSTEP_CHECK(
      item.problem.empty() == false || !item.text || item.text->size() <= runtime::kLongestText,
      "texts are bounded");
  LOCKSTEP_CHECK(data.key(index).index == index, "the map has every item in its place");
}

void load(const runtime::Manifest& data, std::int64_t index) {
  runtime::ItemRecipe recipe{&data, nullptr, {}, runtime::kDefaultMaxLength};
  recipe.image.side = 2;
  std::vector<float> pixels(recipe.image.floats());
  const Result<runtime::LoadedItem> item = runtime::load_item(recipe, index, pixels);
  LOCKSTEP_CHECK(item || !item.error().message.empty(), "an error says what is wrong");
  LOCKSTEP_CHECK(!item || item->key == data.key(index), "a sample shows its own item");
}

}  // namespace

const std::string& fuzz_data_folder() {
  static const TempDir folder;
  static const std::string path = [] {
    std::filesystem::create_directory(folder.file("sub"));
    const runtime::RgbImage picture{2, 1, {1, 2, 3, 250, 251, 252}, {}};
    const Result<std::string> png = runtime::encode_png(picture);
    folder.write("a.png", *png);
    folder.write("sub/b.png", *png);
    return folder.path();
  }();
  return path;
}

std::string fuzz_data_file(std::string_view name, std::string_view bytes) {
  const std::string path = fuzz_data_folder() + "/" + std::string(name);
  // A new file: some file systems write one to the disk at once that was cut to nothing.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

void fuzz_manifest(const std::string& source) {
  const Result<runtime::Manifest> data = runtime::Manifest::open({source});
  if (!data) {
    LOCKSTEP_CHECK(!data.error().message.empty(), "an error says what is wrong");
    return;
  }
  LOCKSTEP_CHECK(data->size() > 0, "a data set has items");
  for (std::int64_t index = 0; index < data->size(); ++index) look_at(*data, index);
  (void)data->misalignment();
  for (std::int64_t index = 0; index < std::min(data->size(), kMaxItemsLoaded); ++index) {
    load(*data, index);
  }
}

// Any bytes as a folder's captions.csv.
void fuzz_captions(std::string_view bytes) {
  fuzz_data_file("captions.csv", bytes);
  fuzz_manifest(fuzz_data_folder());
}

// Any bytes as a JSONL manifest.
void fuzz_jsonl(std::string_view bytes) { fuzz_manifest(fuzz_data_file("m.jsonl", bytes)); }

// Any bytes as a shard of a WebDataset.
void fuzz_webdataset(std::string_view bytes) { fuzz_manifest(fuzz_data_file("s.tar", bytes)); }

}  // namespace lockstep
