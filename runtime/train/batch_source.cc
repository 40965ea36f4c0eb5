#include "runtime/train/batch_source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>

#include <ATen/ATen.h>

#include "base/environment.h"
#include "base/text.h"
#include "runtime/data/shapes.h"
#include "runtime/data/wordpiece.h"
#include "runtime/models/encoders.h"
#include "runtime/train/cost_model.h"

namespace lockstep::runtime {
namespace {

constexpr int kStepsAPlan = 256;  // steps per loader plan: one plan for all steps could be large

// How many of a batch's pictures are frames of videos.
std::int64_t videos_of(const Scenario::Data::Rule* rule, std::int64_t pictures) {
  if (rule == nullptr || !rule->shows(Modality::video)) return 0;
  return rule->shows(Modality::image) ? pictures / 2 : pictures;
}

bool balances(const Scenario& scenario) {
  return scenario.data.balance == Scenario::Data::Balance::cost;
}

int image_side(const Scenario& scenario) {
  return scenario.data.image_side.value_or(picture_side(scenario.model.image));
}

int max_length(const Scenario& scenario) {
  return scenario.data.max_length.value_or(
      text_length(scenario.model.text, scenario.data.source == "shapes"));
}

struct Files {
  std::vector<std::string> manifest;
  std::string vocab;
};

// The files of the scenario's data set. That of "shapes" is generated into the cache first, if it
// is not there yet; its folder name holds every parameter that changes its contents.
Result<Files> files_of(const Scenario& scenario) {
  const Scenario::Data& data = scenario.data;
  if (data.source != "shapes") return Files{data.manifest, data.vocab};
  ShapesFiles shapes;
  shapes.items = data.items + data.held_out;
  shapes.side = image_side(scenario);
  shapes.seed = scenario.train.seed;
  const std::string folder =
      c10::str(cache_folder(), "/shapes-", shapes.items, "x", shapes.side, "-seed", shapes.seed);
  std::error_code ignored;  // write_shapes says what is wrong with the folder
  std::filesystem::create_directories(cache_folder(), ignored);
  if (const Status written = write_shapes(folder, shapes); !written) return written.error();
  return Files{{folder}, folder + "/vocab.txt"};
}

// For each item to train on: whether it has an image. All pictures of "shapes" exist as files, so
// that a rule can show any of them; which items are text only is drawn from the seed.
std::vector<bool> images_of_shapes(const Scenario& scenario) {
  const Scenario::Data& data = scenario.data;
  return ShapesDataset(data.items, data.text_only, scenario.train.seed).has_images();
}

Result<std::vector<bool>> images_of(const Scenario& scenario, const Manifest& manifest) {
  const Scenario::Data& data = scenario.data;
  if (data.source == "shapes") return images_of_shapes(scenario);
  const std::int64_t held_out = scenario.train.evaluate ? data.held_out : 0;
  const std::int64_t items = manifest.size() - held_out;
  if (items < 1) {
    return Error{c10::str("the manifest has ", plural(manifest.size(), "item"),
                          ", and the evaluation holds out ", held_out),
                 {data.manifest.front()},
                 "lower \"held_out\", or turn \"evaluate\" off"};
  }
  std::vector<bool> has_image;
  for (std::int64_t i = 0; i < items; ++i) has_image.push_back(manifest.item(i).image.has_value());
  return has_image;
}

Sampler sampler_of(const Scenario& scenario, const std::vector<bool>& has_image,
                   Sampler::Shard shard) {
  return {has_image,
          scenario.data.sampler,
          scenario.train.batch_size,
          scenario.train.seed,
          shard,
          scenario.fault != Fault::no_reshuffle};
}

// Data is sharded over replicas: with 2 stages and 8 ranks, ranks 4 and 5 both read shard 2 of 4.
// Under the fault "unsharded data" every rank samples as if it were alone.
Sampler::Shard shard_of(const Scenario& scenario, int rank, int world_size) {
  const int ranks = scenario.ranks_of_replica();
  return scenario.fault == Fault::unsharded_data ? Sampler::Shard{}
                                                 : Sampler::Shard{rank / ranks, world_size / ranks};
}

// Batches are numbered by the number of micro-batches that ranks have in common. If a fault gives a
// rank more of them, its extra batches overlap with those of its next step.
std::int64_t first_batch(const Scenario& scenario, int rank, std::int64_t step) {
  const bool pipeline = scenario.strategy.kind == Scenario::Strategy::Kind::pipeline;
  return step * (pipeline ? scenario.micro_batches(rank) : scenario.train.accumulation.steps);
}

// The sizes that the model takes from the data set: image side, vocabulary, text length.
InputSpec input_of(const Scenario& scenario, const Vocabulary& vocabulary) {
  return {image_side(scenario),     static_cast<std::int64_t>(vocabulary.size()),
          max_length(scenario),     vocabulary.special().pad,
          vocabulary.special().end, vocabulary.special().mask};
}

}  // namespace

Result<std::unique_ptr<BatchSource>> BatchSource::open(const Scenario& scenario, int rank,
                                                       int world_size) {
  const Result<Files> files = files_of(scenario);
  if (!files) return files.error();
  Result<Manifest> manifest = Manifest::open(files->manifest);
  if (!manifest) return manifest.error();
  Result<Vocabulary> vocabulary = Vocabulary::open(files->vocab);
  if (!vocabulary) return vocabulary.error();
  const Result<std::vector<bool>> has_image = images_of(scenario, *manifest);
  if (!has_image) return has_image.error();
  // Balancing deals out the batches of all ranks, so each rank needs all ranks' samplers.
  std::vector<Sampler> samplers;
  if (balances(scenario)) {
    for (int r = 0; r < world_size; ++r)
      samplers.push_back(sampler_of(scenario, *has_image, {r, world_size}));
  } else {
    samplers.push_back(sampler_of(scenario, *has_image, shard_of(scenario, rank, world_size)));
  }
  return std::unique_ptr<BatchSource>(
      new BatchSource(scenario, rank, std::move(samplers), std::move(*manifest),
                      WordPiece(std::move(*vocabulary)), *has_image));
}

BatchSource::BatchSource(const Scenario& scenario, int rank, std::vector<Sampler> samplers,
                         Manifest manifest, WordPiece tokenizer, std::vector<bool> has_image)
    : scenario_(scenario),
      rank_(rank),
      samplers_(std::move(samplers)),
      manifest_(std::move(manifest)),
      tokenizer_(std::move(tokenizer)),
      has_image_(std::move(has_image)) {
  input_ = input_of(scenario, tokenizer_.vocabulary());
  recipe_.data = &manifest_;
  recipe_.tokenizer = &tokenizer_;
  recipe_.image.side = static_cast<int>(input_.side);
  recipe_.max_length = static_cast<std::size_t>(input_.max_tokens);
}

// Plans the loader's reads for the next steps.
void BatchSource::plan_from(std::int64_t step) {
  const std::int64_t length = balances(scenario_) ? scenario_.data.balance_every : kStepsAPlan;
  planned_to_ = std::min<std::int64_t>(step + length, scenario_.train.steps);
  planned_by_costs_ = costs_.has_value();
  const int own = scenario_.micro_batches(rank_);
  Loader::Plan plan;
  for (std::int64_t s = step; s < planned_to_; ++s) {
    for (int i = 0; i < own; ++i) plan.push_back(items_of(s, first_batch(scenario_, rank_, s) + i));
  }
  LoaderOptions options;
  options.workers = scenario_.data.loader.workers;
  options.prefetch = static_cast<std::size_t>(scenario_.data.loader.prefetch);
  options.on_error = scenario_.data.loader.skip_broken ? LoaderOptions::OnError::skip
                                                       : LoaderOptions::OnError::stop;
  loader_ = std::make_unique<Loader>(recipe_, options, std::move(plan));
}

// This rank's items of batch number `batch`. With known costs: merge the batches that the samplers
// of all ranks drew, and deal their items out again so that costs are even. Every rank computes
// this from the same numbers and takes its own part.
std::vector<std::int64_t> BatchSource::items_of(std::int64_t step, std::int64_t batch) {
  if (!balances(scenario_)) return samplers_.front().batch(batch);
  const auto own = static_cast<std::size_t>(rank_);
  if (!costs_) return samplers_[own].batch(batch);
  const Scenario::Data::Rule* rule = scenario_.rule_for(rank_, step);
  std::vector<std::int64_t> all;
  std::vector<double> costs;
  for (Sampler& sampler : samplers_) {
    for (const std::int64_t item : sampler.batch(batch)) {
      all.push_back(item);
      costs.push_back(costs_->text + (shows_image(rule, item) ? costs_->image : 0));
    }
  }
  const auto split = longest_first(costs, static_cast<int>(samplers_.size()));
  std::vector<std::int64_t> mine;
  for (const std::size_t batch_row : split[own]) mine.push_back(all[batch_row]);
  return mine;
}

// Whether training uses the item's image, provided that it can be read.
bool BatchSource::shows_image(const Scenario::Data::Rule* rule, std::int64_t item) const {
  const bool known = item < items() && has_image_[static_cast<std::size_t>(item)];
  if (rule == nullptr) return known;
  // Every item of "shapes" has a picture that a rule can show.
  return (known || scenario_.data.source == "shapes") && rule->shows_pictures();
}

std::vector<Batch> BatchSource::step(std::int64_t step) {
  if (step >= planned_to_) plan_from(step);
  std::vector<Batch> batches;
  for (int i = 0; i < scenario_.micro_batches(rank_); ++i) batches.push_back(next(step));
  return batches;
}

Batch BatchSource::next(std::int64_t step) {
  Result<std::optional<LoadedBatch>> loaded = loader_->next();
  if (!loaded) throw std::runtime_error(loaded.error().str());
  LOCKSTEP_CHECK(loaded->has_value(), "more batches than were planned");
  LoadedBatch& batch = **loaded;
  skipped_ += batch.skipped;
  wait_ns_ += batch.wait_ns;
  if (std::none_of(batch.has_text.begin(), batch.has_text.end(), [](bool b) { return b; })) {
    const auto& reasons = loader_->counts().reasons;
    if (!batch.keys.empty()) {
      throw std::runtime_error(
          "a batch holds only images, which have no loss: every batch needs a text; raise "
          "\"batch_size\", or write more texts");
    }
    throw std::runtime_error(c10::str("no item of a batch could be read",
                                      reasons.empty() ? "" : ": ",
                                      reasons.empty() ? "" : reasons.back().str()));
  }
  // The first rank of the replica decides which rules apply, so that all its stages see one batch.
  const int first = rank_ - rank_ % scenario_.ranks_of_replica();
  return batch_of(std::move(batch), scenario_.rule_for(first, step),
                  scenario_.outlier_factor(first, step));
}

Batch BatchSource::read(const std::vector<std::int64_t>& indices) const {
  LoaderOptions options;
  options.workers = 1;
  Loader loader(recipe_, options, {indices});
  Result<std::optional<LoadedBatch>> loaded = loader.next();
  if (!loaded) throw std::runtime_error(loaded.error().str());
  static const Scenario::Data::Rule kAll{{}, {}, {Modality::image, Modality::text}};
  return batch_of(std::move(**loaded), &kAll, 1);
}

Batch BatchSource::batch_of(LoadedBatch loaded, const Scenario::Data::Rule* rule,
                            double outlier) const {
  const auto rows = static_cast<std::int64_t>(loaded.keys.size());
  const auto shown = [&](std::int64_t row) {
    const std::int64_t item = loaded.keys[static_cast<std::size_t>(row)].index;
    return item >= items() || shows_image(rule, item);  // held-out items are always shown in full
  };
  // Rows: items with a text come first, in order; `batch_row` maps a loaded row to its row in the
  // batch, or -1 if it has no text.
  Batch batch;
  std::vector<std::int64_t> kept;   // rows that have a text
  std::vector<std::int64_t> alone;  // indices in loaded.pixels of shown images without a text
  std::vector<std::int64_t> batch_row(loaded.keys.size(), -1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    if (!loaded.has_text[r]) continue;
    batch_row[r] = static_cast<std::int64_t>(kept.size());
    kept.push_back(row);
    batch.indices.push_back(loaded.keys[r].index);
  }
  std::vector<std::int64_t> images;  // indices in loaded.pixels of shown images
  std::vector<std::int64_t> image_rows;
  for (std::size_t i = 0; i < loaded.image_rows.size(); ++i) {
    const std::int64_t row = loaded.image_rows[i];
    if (!shown(row)) continue;
    if (batch_row[static_cast<std::size_t>(row)] < 0) {
      alone.push_back(static_cast<std::int64_t>(i));
      batch.indices.push_back(loaded.keys[static_cast<std::size_t>(row)].index);
      continue;
    }
    images.push_back(static_cast<std::int64_t>(i));
    image_rows.push_back(batch_row[static_cast<std::size_t>(row)]);
  }
  // Images without a text come last: image_rows names the text of the others only.
  batch.tokens = at::tensor(loaded.tokens, at::kLong)
                     .view({rows, input_.max_tokens})
                     .index_select(0, at::tensor(kept, at::kLong));
  images.insert(images.end(), alone.begin(), alone.end());
  if (images.empty()) return batch;
  const auto all = static_cast<std::int64_t>(loaded.image_rows.size());
  batch.images = at::from_blob(loaded.pixels.data(), {all, 3, input_.side, input_.side}, at::kFloat)
                     .index_select(0, at::tensor(images, at::kLong));
  batch.image_rows = at::tensor(image_rows, at::kLong);
  batch.videos = videos_of(rule, batch.images.size(0));
  // A scenario's outlier scales the pixels, which makes this rank's gradients large.
  if (outlier != 1) batch.images.mul_(outlier);
  return batch;
}

Result<ShapeBatches> ShapeBatches::open(const Scenario& scenario, int rank) {
  const Result<Vocabulary> vocabulary = scenario.data.source == "shapes"
                                            ? Vocabulary::parse(shapes_pieces(), "shapes")
                                            : Vocabulary::open(scenario.data.vocab);
  if (!vocabulary) return vocabulary.error();
  // What every rule decides, and a data set that has images only, need no sampler.
  bool draws = false;
  for (std::int64_t step = 0; step < scenario.train.steps; ++step)
    draws = draws || scenario.rule_for(rank, step) == nullptr;
  std::optional<Draws> drawn;
  if (draws && (scenario.data.source != "shapes" || scenario.data.text_only > 0)) {
    Result<Draws> opened = Draws::open(scenario);
    if (!opened) return opened.error();
    drawn = std::move(*opened);
  }
  return ShapeBatches(scenario, rank, input_of(scenario, *vocabulary), std::move(drawn));
}

std::vector<Batch> ShapeBatches::step(std::int64_t step) {
  const Scenario::Data::Rule* rule = scenario_.rule_for(rank_, step);
  const std::int64_t items = scenario_.train.batch_size;
  const auto count = static_cast<std::size_t>(scenario_.micro_batches(rank_));
  const bool shows = rule == nullptr || rule->shows_pictures();
  const std::vector<std::int64_t> pictures =
      rule == nullptr && draws_ ? draws_->images(rank_, step)
                                : std::vector<std::int64_t>(count, shows ? items : 0);
  const auto numbers = at::TensorOptions().device(at::kMeta).dtype(at::kLong);
  const auto one = [&](std::int64_t images) {
    Batch batch;
    batch.tokens = at::empty({items, input_.max_tokens}, numbers);
    if (images > 0) {
      batch.images = at::empty({images, 3, input_.side, input_.side}, at::device(at::kMeta));
      batch.image_rows = at::empty({images}, numbers);
      batch.videos = videos_of(rule, images);
    }
    return batch;
  };
  // Separate tensors for each micro-batch, because memory is counted by storage.
  std::vector<Batch> out;
  for (const std::int64_t images : pictures) out.push_back(one(images));
  return out;
}

Result<Draws> Draws::open(const Scenario& scenario) {
  if (scenario.data.source == "shapes") return Draws(scenario, images_of_shapes(scenario));
  const Result<Manifest> manifest = Manifest::open(scenario.data.manifest);
  if (!manifest) return manifest.error();
  Result<std::vector<bool>> has_image = images_of(scenario, *manifest);
  if (!has_image) return has_image.error();
  return Draws(scenario, std::move(*has_image));
}

std::vector<std::int64_t> Draws::images(int rank, std::int64_t step) {
  if (rank_ != rank) {
    rank_ = rank;
    sampler_ = sampler_of(*scenario_, has_image_, shard_of(*scenario_, rank, scenario_->ranks));
  }
  std::vector<std::int64_t> out;
  for (int i = 0; i < scenario_->micro_batches(rank); ++i) {
    const auto& batch = sampler_->batch(first_batch(*scenario_, rank, step) + i);
    out.push_back(std::count_if(batch.begin(), batch.end(), [&](std::int64_t item) {
      return has_image_[static_cast<std::size_t>(item)];
    }));
  }
  return out;
}

Result<DrawnAlike> ranks_that_draw_alike(const Scenario& scenario) {
  Result<Draws> draws = Draws::open(scenario);
  if (!draws) return draws.error();
  // Every epoch of every rank has an order of all items.
  constexpr double kMaxDrawn = 4e9;
  const double drawn = static_cast<double>(scenario.ranks) * static_cast<double>(draws->items()) *
                       static_cast<double>(scenario.train.steps);
  if (drawn > kMaxDrawn)
    return Error{"to draw the batches of this many ranks, from this many items, takes minutes",
                 {scenario.file},
                 "take fewer steps or ranks, or write rules: data: {modality: [{has: [text]}]}"};
  using Numbers = std::vector<std::int64_t>;
  struct Like {
    std::map<Numbers, std::int32_t> first;
    std::int32_t of(const Numbers& numbers, int rank) {
      return first.emplace(numbers, rank).first->second;
    }
  };
  Like images, micro_batches, steps;
  DrawnAlike out;
  const int replica = scenario.ranks_of_replica();
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    if (rank % replica != 0) {  // as the replica's first rank
      for (auto* const list : {&out.by_images, &out.by_micro_batches, &out.by_steps})
        list->push_back(list->back());
      continue;
    }
    Numbers counts, present, by_step;
    for (std::int64_t step = 0; step < scenario.train.steps; ++step) {
      const Scenario::Data::Rule* rule = scenario.rule_for(rank, step);
      Numbers held = rule == nullptr ? draws->images(rank, step) : Numbers{};
      if (rule != nullptr) held.assign(1, 0);  // nothing is drawn
      counts.insert(counts.end(), held.begin(), held.end());
      for (const std::int64_t n : held) present.push_back(std::min<std::int64_t>(n, 1));
      by_step.push_back(std::min<std::int64_t>(*std::max_element(held.begin(), held.end()), 1));
    }
    out.by_images.push_back(images.of(counts, rank));
    out.by_micro_batches.push_back(micro_batches.of(present, rank));
    out.by_steps.push_back(steps.of(by_step, rank));
  }
  return out;
}

}  // namespace lockstep::runtime
