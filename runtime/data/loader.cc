#include "runtime/data/loader.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"

namespace lockstep::runtime {

Loader::Loader(const ItemRecipe& recipe, const LoaderOptions& options, Plan plan)
    : recipe_(recipe), options_(options), plan_(std::move(plan)) {
  LOCKSTEP_CHECK(options.workers > 0 && options.prefetch > 0, "a loader reads ahead");
  LOCKSTEP_CHECK(recipe.data != nullptr && recipe.image.side > 0 && recipe.image.side <= kMaxSide,
                 "a recipe says what to read");
  {
    const std::lock_guard lock(mutex_);
    open_batches();
  }
  threads_.reserve(static_cast<std::size_t>(options.workers));
  for (int i = 0; i < options.workers; ++i) threads_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_there_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Loader::open_batches() {
  while (opened_ < plan_.size() && pending_.size() < options_.prefetch) {
    Pending batch;
    batch.indices = plan_[opened_++];
    std::size_t images = 0;
    for (const std::int64_t index : batch.indices) {
      batch.image_slots.push_back(images);
      const bool known = index >= 0 && index < recipe_.data->size();
      if (known && recipe_.data->item(index).image) ++images;
    }
    batch.pixels.resize(images * recipe_.image.floats());
    batch.items.resize(batch.indices.size());
    pending_.push_back(std::move(batch));
  }
}

Loader::Pending* Loader::pending_with_work() {
  for (Pending& batch : pending_) {
    if (batch.started < batch.indices.size()) return &batch;
  }
  return nullptr;
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    Pending* batch = nullptr;
    work_there_.wait(lock, [&] { return stopping_ || (batch = pending_with_work()) != nullptr; });
    if (stopping_) return;
    const std::size_t row = batch->started++;
    lock.unlock();
    // The batch stays where it is until all its rows are finished.
    Result<LoadedItem> item = load_row(*batch, row);
    lock.lock();
    batch->items[row].emplace(std::move(item));
    if (++batch->finished == batch->indices.size()) row_done_.notify_all();
  }
}

Result<LoadedItem> Loader::load_row(Pending& batch, std::size_t row) const {
  const std::size_t floats = recipe_.image.floats();
  const std::size_t from = batch.image_slots[row] * floats;
  // A row without an image has no slot; the last such may point past the end.
  const std::size_t room = std::min(floats, batch.pixels.size() - from);
  try {
    return load_item(recipe_, batch.indices[row], std::span(batch.pixels).subspan(from, room));
  } catch (const std::exception& error) {  // no memory, above all
    return Error{
        fmt::format("item {} could not be loaded: {}", batch.indices[row], printable(error.what())),
        {},
        "use fewer workers, or smaller batches"};
  }
}

Result<std::optional<LoadedBatch>> Loader::next() {
  if (failed_) return *failed_;
  Pending batch;
  const std::int64_t start = monotonic_nanos();
  {
    std::unique_lock lock(mutex_);
    if (pending_.empty()) return std::optional<LoadedBatch>();
    row_done_.wait(lock,
                   [&] { return pending_.front().finished == pending_.front().indices.size(); });
    batch = std::move(pending_.front());
    pending_.pop_front();
    open_batches();
  }
  work_there_.notify_all();
  return finish(std::move(batch), monotonic_nanos() - start);
}

// Closes the gaps that skipped items leave.
Result<std::optional<LoadedBatch>> Loader::finish(Pending pending, std::int64_t wait_ns) {
  LoadedBatch out;
  out.number = given_++;
  out.wait_ns = wait_ns;
  counts_.wait_ns += wait_ns;
  const std::size_t floats = recipe_.image.floats();
  const TokenId pad = recipe_.tokenizer ? recipe_.tokenizer->vocabulary().special().pad : 0;
  for (std::size_t row = 0; row < pending.items.size(); ++row) {
    const Result<LoadedItem>& item = *pending.items[row];
    if (!item) {
      if (options_.on_error == LoaderOptions::OnError::stop) {
        failed_ = item.error();
        return *failed_;
      }
      ++out.skipped;
      if (counts_.reasons.size() < options_.keep_reasons) counts_.reasons.push_back(item.error());
      continue;
    }
    if (item->has_image) {
      // Each image was decoded into the slot of its item. Moved to the front where items before it
      // were skipped or have no image.
      const auto from =
          pending.pixels.begin() + static_cast<std::ptrdiff_t>(pending.image_slots[row] * floats);
      const auto to =
          pending.pixels.begin() + static_cast<std::ptrdiff_t>(out.image_rows.size() * floats);
      if (from != to) std::copy(from, from + static_cast<std::ptrdiff_t>(floats), to);
      out.image_rows.push_back(static_cast<std::int64_t>(out.keys.size()));
    }
    if (recipe_.tokenizer != nullptr) {
      out.lengths.push_back(static_cast<std::int64_t>(item->tokens.size()));
      out.tokens.insert(out.tokens.end(), item->tokens.begin(), item->tokens.end());
      out.tokens.resize(out.lengths.size() * recipe_.max_length, pad);
    }
    out.has_text.push_back(item->has_text);
    out.keys.push_back(item->key);
    if (!item->damage.empty()) ++counts_.damaged;
  }
  pending.pixels.resize(out.image_rows.size() * floats);
  out.pixels = std::move(pending.pixels);
  counts_.loaded += static_cast<std::int64_t>(out.keys.size());
  counts_.skipped += out.skipped;
  return std::optional(std::move(out));
}

namespace {

// Errors say where in the manifest the image stands.
Result<RgbImage> read_picture(const Manifest& data, std::int64_t index) {
  const ManifestItem& item = data.item(index);
  const auto of_item = [&](const Error& error) {
    return Error{fmt::format("image \"{}\": {}", printable(item.image->name), error.message),
                 item.location, error.fix};
  };
  const Result<std::string> bytes = data.read_image(index);
  if (!bytes) return of_item(bytes.error());
  Result<RgbImage> image = decode_image(*bytes, item.image->name);
  if (!image) return of_item(image.error());
  return image;
}

}  // namespace

Result<LoadedItem> load_item(const ItemRecipe& recipe, std::int64_t index,
                             std::span<float> pixels) {
  const Manifest& data = *recipe.data;
  if (index < 0 || index >= data.size()) {
    return Error{fmt::format("the data set has no item {}", index), {}, ""};
  }
  const ManifestItem& item = data.item(index);
  if (!item.problem.empty()) return Error{item.problem, item.location, ""};
  LoadedItem out;
  if (item.image) {
    Result<RgbImage> image = read_picture(data, index);
    if (!image) return image.error();
    transform_image(*image, recipe.image, pixels);
    out.damage = std::move(image->damage);
    out.has_image = true;
  }
  if (item.text) {
    out.has_text = true;
    if (recipe.tokenizer != nullptr) {
      out.tokens = recipe.tokenizer->encode(*item.text, recipe.max_length);
    }
  }
  out.key = data.key(index);
  return out;
}

}  // namespace lockstep::runtime
