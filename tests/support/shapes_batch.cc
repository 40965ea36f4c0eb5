#include "tests/support/shapes_batch.h"

#include <algorithm>
#include <span>
#include <sstream>
#include <string>

#include <ATen/ATen.h>

#include "base/check.h"

namespace lockstep {

std::array<std::int64_t, runtime::kMaxTokens> tokens(const runtime::Picture& picture) {
  std::array<std::int64_t, runtime::kMaxTokens> ids{};  // kPadToken
  std::size_t n = 0;
  ids[n++] = kStartToken;
  const auto all = runtime::caption_words();
  std::istringstream sentence(runtime::caption(picture));
  for (std::string word; sentence >> word;) {
    const auto found = std::find(all.begin(), all.end(), word);
    LOCKSTEP_CHECK(found != all.end() && n + 1 < ids.size(), "a caption of known words, that fits");
    ids[n++] = kFirstWord + (found - all.begin());
  }
  ids[n] = kEndToken;
  return ids;
}

runtime::Batch make_batch(const runtime::ShapesDataset& data,
                          const std::vector<std::int64_t>& indices,
                          const runtime::Scenario::Data::Rule* rule) {
  const auto shows_image = [&](const runtime::Item& item) {
    if (rule == nullptr) return item.has_image;
    return std::find(rule->has.begin(), rule->has.end(), runtime::Modality::image) !=
           rule->has.end();
  };
  runtime::Batch batch;
  batch.indices = indices;
  const auto count = static_cast<std::int64_t>(indices.size());
  batch.tokens = at::empty({count, runtime::kMaxTokens}, at::kLong);
  std::vector<std::int64_t> rows;
  std::vector<float> pixels;
  for (std::int64_t row = 0; row < count; ++row) {
    const runtime::Item item = data.item(indices[static_cast<std::size_t>(row)]);
    const auto ids = tokens(item.picture);
    std::copy(ids.begin(), ids.end(),
              batch.tokens.data_ptr<std::int64_t>() + row * runtime::kMaxTokens);
    if (!shows_image(item)) continue;
    rows.push_back(row);
    pixels.resize(pixels.size() + runtime::kImageFloats);
    runtime::paint(item.picture, std::span(pixels).last<runtime::kImageFloats>());
  }
  if (!rows.empty()) {
    const auto images = static_cast<std::int64_t>(rows.size());
    batch.images =
        at::tensor(pixels, at::kFloat)
            .view({images, runtime::kImageChannels, runtime::kImageSide, runtime::kImageSide});
    batch.image_rows = at::tensor(rows, at::kLong);
  }
  return batch;
}

}  // namespace lockstep
