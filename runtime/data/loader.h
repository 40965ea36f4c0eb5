// Loader: threads that read items ahead of the training loop.
//
//   Loader loader(recipe, options, batches_of(sampler.indices(rank), 32, true));
//   while (true) {
//     Result<std::optional<LoadedBatch>> batch = loader.next();
//     …                                    // an error, or nothing at the end
//   }
//
// Batches come in the order of the plan, and samples in the order of their batch, for any number of
// threads. Threads take items, not batches, so the first batch is ready soon. At most `prefetch`
// batches are in memory, plus the one that was handed out.
//
// A bad item does not affect others: it is left out of its batch and counted, or (on_error = stop)
// its batch is an error, after the batches before it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runtime/data/manifest.h"
#include "runtime/data/transform.h"
#include "runtime/data/wordpiece.h"

namespace lockstep::runtime {

// One item, ready for the model: its image decoded and transformed, its text as token ids.

// How to read each item. Everything that it points to must outlive the reader.
struct ItemRecipe {
  const Manifest* data = nullptr;
  const WordPiece* tokenizer = nullptr;  // null: texts are not tokenized
  ImageTransform image;
  std::size_t max_length = kDefaultMaxLength;  // tokens
};

struct LoadedItem {
  SampleKey key;
  bool has_image = false;
  bool has_text = false;
  std::vector<TokenId> tokens;  // without padding; empty without text or tokenizer
  std::string damage;           // damage that the image's decoder tolerated; empty if none
};

// `pixels` receives the image, if the item has one: recipe.image.floats() values. Errors: the item
// has a problem, its image cannot be read or decoded. Any thread may call it.
Result<LoadedItem> load_item(const ItemRecipe& recipe, std::int64_t index, std::span<float> pixels);

struct LoaderOptions {
  enum class OnError { skip, stop };
  int workers = 2;           // threads, >= 1
  std::size_t prefetch = 2;  // batches, >= 1
  OnError on_error = OnError::skip;
  std::size_t keep_reasons = 10;  // reasons of skipped items to keep
};

struct LoadedBatch {
  std::int64_t number = 0;      // index in the plan
  std::vector<SampleKey> keys;  // of its samples, in order, without skipped items
  // float [images, 3, side, side], and the sample of each image.
  std::vector<float> pixels;
  std::vector<std::int64_t> image_rows;
  // int64 [samples, max_length], padded; and the number of tokens in each row (0: no text). Both
  // empty without a tokenizer.
  std::vector<TokenId> tokens;
  std::vector<std::int64_t> lengths;
  std::vector<bool> has_text;
  std::int64_t skipped = 0;  // items of the plan that could not be read
  std::int64_t wait_ns = 0;  // time that next() waited for it
};

struct LoaderCounts {
  std::int64_t loaded = 0;   // items in batches that next() returned
  std::int64_t skipped = 0;  // items
  std::int64_t damaged = 0;  // images that were read although they are damaged
  std::vector<Error> reasons;
  std::int64_t wait_ns = 0;  // of next(), in all
};

class Loader {
 public:
  using Plan = std::vector<std::vector<std::int64_t>>;  // item indices of each batch

  // Starts the threads. What the recipe points to must outlive the loader.
  Loader(const ItemRecipe& recipe, const LoaderOptions& options, Plan plan);
  ~Loader();  // at any time; waits for items that are being read
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch; nothing after the last. A batch has no samples if none of it could be read.
  // Errors (on_error = stop only): the first bad item of the batch; every later call returns it
  // again. For one thread.
  Result<std::optional<LoadedBatch>> next();

  // Counts over the batches returned so far. For the thread that calls next().
  const LoaderCounts& counts() const { return counts_; }

 private:
  // A batch that is being read. Each thread writes its own rows.
  struct Pending {
    std::vector<std::int64_t> indices;
    std::vector<std::size_t> image_slots;  // of each row, where its pixels go
    std::vector<float> pixels;
    std::vector<std::optional<Result<LoadedItem>>> items;
    std::size_t started = 0;   // rows taken by a thread
    std::size_t finished = 0;  // rows that are done
  };

  void work();
  void open_batches();  // starts batches of the plan while there is room; the mutex is held
  Pending* pending_with_work();
  Result<LoadedItem> load_row(Pending& batch, std::size_t row) const;
  Result<std::optional<LoadedBatch>> finish(Pending pending, std::int64_t wait_ns);

  const ItemRecipe recipe_;
  const LoaderOptions options_;
  const Plan plan_;

  std::mutex mutex_;
  std::condition_variable work_there_;
  std::condition_variable row_done_;
  std::deque<Pending> pending_;  // in the plan's order; references stay valid while it grows
  std::size_t opened_ = 0;       // batches of the plan
  bool stopping_ = false;

  std::int64_t given_ = 0;  // batches; of the caller's thread, as the next two
  LoaderCounts counts_;
  std::optional<Error> failed_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::runtime
