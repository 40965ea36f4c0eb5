// BatchSource: the batches of one rank, from the scenario's data set, through the loader.
//
// "shapes" is a data set like any other: it is written once, as pictures and captions, to the cache
// folder (${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-~/.cache}/lockstep}), and read back.
//
// An item without a text trains the image path as one more image from which sentences are told
// apart. A batch needs one item with a text, at least.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/data/loader.h"
#include "runtime/data/manifest.h"
#include "runtime/data/wordpiece.h"
#include "runtime/job/scenario.h"
#include "runtime/models/batch.h"
#include "runtime/train/cost_model.h"
#include "runtime/train/sampler.h"

namespace lockstep::runtime {

// What the scenario's data set gives to a model.
InputSpec input_of(const Scenario& scenario, const Vocabulary& vocabulary);

class BatchSource {
 public:
  // Opens the data set; `shard`: this rank's part of it. Errors: those of manifest and vocabulary,
  // a cache that cannot be written, fewer items than the evaluation holds out.
  static Result<std::unique_ptr<BatchSource>> open(const Scenario& scenario, int rank,
                                                   int world_size);

  const InputSpec& input() const { return input_; }
  std::int64_t items() const {
    return static_cast<std::int64_t>(has_image_.size());
  }                                                                  // to train on
  std::uint64_t digest() const { return manifest_.map().digest(); }  // of the index map

  // The micro-batches of a step, which are asked for in ascending order of steps.
  // Throws std::runtime_error with the cause where an item is broken and on_error is stop, and
  // where nothing of a batch could be read.
  std::vector<Batch> step(std::int64_t step);

  // With data.balance: the split of the steps that are not planned yet (plans are made
  // data.balance_every steps at a time) is by these costs, the same on all ranks. Until then each
  // rank has the batch that the sampler dealt to it.
  void use_costs(const ItemCosts& costs) { costs_ = costs; }
  // Whether the last step() was split by costs.
  bool balanced() const { return planned_by_costs_; }

  // These items, read at once. Indices from items() on are held out. Throws as step().
  Batch read(const std::vector<std::int64_t>& indices) const;

  // Of step() so far.
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
  std::vector<Sampler> samplers_;  // this rank's own; those of all ranks where they are balanced
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

// ShapeBatches: a rank's batches as meta tensors, of the shapes that the scenario's data set would
// give, without reading any of it.

class ShapeBatches {
 public:
  // Reads the vocabulary of a manifest, for its size. Keeps a reference to `scenario`, whose
  // modality rules say for every step of the rank what its batch holds; where none fits, it has
  // images. Errors: those of the vocabulary.
  static Result<ShapeBatches> open(const Scenario& scenario, int rank);

  const InputSpec& input() const { return input_; }

  // The micro-batches of a step; without indices: they are of no items.
  std::vector<Batch> step(std::int64_t step) const;

 private:
  ShapeBatches(const Scenario& scenario, int rank, InputSpec input)
      : scenario_(scenario), rank_(rank), input_(input) {}

  const Scenario& scenario_;
  int rank_;
  InputSpec input_;
};

}  // namespace lockstep::runtime
