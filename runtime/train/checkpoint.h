// Checkpoints: everything that the next step depends on, so that training continues as if it had
// never stopped (on the CPU, bit for bit).
//
//   FOLDER/step_000040/rank_0.safetensors, rank_1.safetensors, ...
//   FOLDER/step_000040/whole.safetensors                       (gathered)
//
// Every rank writes its own state (its shards, BatchNorm statistics, random numbers) to its own
// file, atomically. A step counts when the files of all ranks exist. The order of the data follows
// from the step number and needs no state.
//
// A gathered checkpoint holds whole parameters under their own names, the buffers and random
// numbers of rank 0, and the optimizer's state of each parameter
// ("optimizer.image.conv.weight.exp_avg"). It does not depend on the number of ranks or on the
// sharding, so every strategy except the pipeline can resume from it on any number of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/api/include/torch/optim.h>

#include "base/result.h"
#include "runtime/groups/process_groups.h"
#include "runtime/models/parameters.h"
#include "runtime/strategies/strategy.h"
#include "runtime/train/precision.h"

namespace lockstep::runtime {

// What is saved, and loaded in place. The CPU's random number generator is saved as well.
struct TrainingState {
  NamedTensors optimised;  // what the optimizer updates
  NamedTensors buffers;
  torch::optim::Optimizer& optimizer;
  LossScaler& scaler;
};

class Checkpoints {
 public:
  // Whether files are written. A rank that is run alone makes the calls of saving, but neither
  // writes nor finds files: it trains nothing that is worth keeping.
  enum class Files : std::uint8_t { kept, none };

  // `digest`: of the data set's index map. A checkpoint is only loaded with the same data.
  Checkpoints(std::string folder, RankOf who, std::uint64_t digest, Files files = Files::kept)
      : folder_(std::move(folder)), who_(who), digest_(digest), files_(files) {}

  // Writes this rank's file for a job that has finished `steps` steps, and removes this rank's
  // files of all other steps, except the last complete one before. Files of later steps are from an
  // earlier job in this folder; a resume would mistake them for this job's. Errors: those of the
  // system.
  Status save(const TrainingState& state, std::int64_t steps) const;

  // Writes one file with whole parameters, on rank 0, and removes others as save() does. Collective
  // if the strategy shards. Errors: those of save(), on rank 0.
  Status save_gathered(const TrainingState& state, Strategy& strategy, std::int64_t steps) const;

  // The largest number of steps for which the files of all ranks, or a gathered one, exist; nothing
  // if there are none.
  std::optional<std::int64_t> latest() const;

  // Loads the gathered file of `steps`, or else this rank's file. Errors: the file cannot be read,
  // is damaged (checksum mismatch), or belongs to another job: other parameters, number of ranks or
  // data.
  Status load(TrainingState& state, Strategy& strategy, std::int64_t steps) const;

 private:
  std::string whole_file_of(std::int64_t steps) const;
  std::string file_of(std::int64_t steps, int rank) const;
  // latest(), limited to at most `most` steps.
  std::optional<std::int64_t> latest_up_to(std::int64_t most) const;
  // Removes the files that save() no longer needs: this rank's and, on rank 0, gathered ones.
  void remove_others(std::int64_t saved) const;

  std::string folder_;
  RankOf who_;
  std::uint64_t digest_;
  Files files_;
};

}  // namespace lockstep::runtime
