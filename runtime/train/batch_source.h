// BatchSource: reads the batches of one rank from the scenario's data set, through the loader.
//
// "shapes" is a data set like any other. It is generated once, as pictures and captions, in the
// cache folder (${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-~/.cache}/lockstep}), and read from there.
//
// An item without a text trains the image encoder only: its image is one more negative for the
// texts. A batch needs at least one item with a text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/data/loader.h"
#include "runtime/data/manifest.h"
#include "runtime/data/wordpiece.h"
#include "runtime/job/lone_ranks.h"
#include "runtime/job/scenario.h"
#include "runtime/models/batch.h"
#include "runtime/train/cost_model.h"
#include "runtime/train/sampler.h"

namespace lockstep::runtime {

class BatchSource {
 public:
  // Opens the data set for `rank` of `world_size`. Errors: those of manifest and vocabulary, a
  // cache that cannot be written, fewer items than the evaluation holds out.
  static Result<std::unique_ptr<BatchSource>> open(const Scenario& scenario, int rank,
                                                   int world_size);

  const InputSpec& input() const { return input_; }
  std::int64_t items() const {
    return static_cast<std::int64_t>(has_image_.size());
  }                                                                  // to train on
  std::uint64_t digest() const { return manifest_.map().digest(); }  // of the index map

  // The micro-batches of a step; steps must be asked for in ascending order. Throws
  // std::runtime_error with the cause if an item is broken and on_error is stop, or if nothing of a
  // batch could be read.
  std::vector<Batch> step(std::int64_t step);

  // With data.balance: split the steps that are not planned yet by these costs, which must be the
  // same on all ranks. Plans cover data.balance_every steps. Until the first costs, each rank has
  // the batch that its sampler drew.
  void use_costs(const ItemCosts& costs) { costs_ = costs; }
  // Whether the last step() was split by costs.
  bool balanced() const { return planned_by_costs_; }

  // Reads these items now. Indices from items() on are held out. Throws like step().
  Batch read(const std::vector<std::int64_t>& indices) const;

  // Totals over all step() calls: items skipped, nanoseconds waited for the loader.
  std::int64_t skipped() const { return skipped_; }
  std::int64_t wait_ns() const { return wait_ns_; }

 private:
  BatchSource(const Scenario& scenario, int rank, std::vector<Sampler> samplers, Manifest manifest,
              WordPiece tokenizer, std::vector<bool> has_image);
  void plan_from(std::int64_t step);
  std::vector<std::int64_t> items_of(std::int64_t step, std::int64_t batch);
  bool shows_image(const Scenario::Data::Rule* rule, std::int64_t item) const;
  Batch next(std::int64_t step);
  Batch batch_of(LoadedBatch loaded, const Scenario::Data::Rule* rule, double outlier) const;

  const Scenario& scenario_;
  int rank_;
  std::vector<Sampler> samplers_;  // this rank's; those of all ranks with data.balance
  std::optional<ItemCosts> costs_;
  bool planned_by_costs_ = false;
  Manifest manifest_;
  WordPiece tokenizer_;
  std::vector<bool> has_image_;
  InputSpec input_;
  ItemRecipe recipe_;
  std::unique_ptr<Loader> loader_;
  std::int64_t planned_to_ = 0;  // steps that the loader's plan covers
  std::int64_t skipped_ = 0;
  std::int64_t wait_ns_ = 0;
};

// Draws: how many of the items that the sampler draws for a rank have images.

class Draws {
 public:
  // Reads the manifest, if there is one. Keeps a reference to `scenario`. Errors: those of the
  // manifest.
  static Result<Draws> open(const Scenario& scenario);

  // The images in each micro-batch of the rank's step, where no modality rule decides. Ask for one
  // rank after the other.
  std::vector<std::int64_t> images(int rank, std::int64_t step);
  std::int64_t items() const { return static_cast<std::int64_t>(has_image_.size()); }

 private:
  Draws(const Scenario& scenario, std::vector<bool> has_image)
      : scenario_(&scenario), has_image_(std::move(has_image)) {}

  const Scenario* scenario_;
  std::vector<bool> has_image_;
  int rank_ = -1;  // whose sampler it is
  std::optional<Sampler> sampler_;
};

// ShapeBatches: a rank's batches as meta tensors, with the shapes that the scenario's data set
// would give, without reading it.

class ShapeBatches {
 public:
  // Reads the manifest's vocabulary for its size. Keeps a reference to `scenario`, whose modality
  // rules decide what the rank's batch holds in each step; if no rule applies, it has as many
  // images as the sampler draws for it. Errors: those of the vocabulary and, where something is
  // drawn, of the manifest.
  static Result<ShapeBatches> open(const Scenario& scenario, int rank);

  const InputSpec& input() const { return input_; }

  // The micro-batches of a step. They have no indices, because they come from no items.
  std::vector<Batch> step(std::int64_t step);

 private:
  ShapeBatches(const Scenario& scenario, int rank, InputSpec input, std::optional<Draws> draws)
      : scenario_(scenario), rank_(rank), input_(input), draws_(std::move(draws)) {}

  const Scenario& scenario_;
  int rank_;
  InputSpec input_;
  std::optional<Draws> draws_;  // nothing: a batch that no rule decides has images only
};

// Which ranks draw alike where no modality rule decides; ranks of one replica read one batch.
// Errors: those of Draws::open(); more to draw than takes some seconds.
Result<DrawnAlike> ranks_that_draw_alike(const Scenario& scenario);

}  // namespace lockstep::runtime
