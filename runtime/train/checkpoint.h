// Checkpoints: everything that the next step depends on, so that training goes on as if it had
// never stopped (on the CPU to the last bit).
//
//   FOLDER/step_000040/rank_0.safetensors, rank_1.safetensors, ...
//
//   FOLDER/step_000040/whole.safetensors                       (gathered)
//
// Every rank keeps its own state (its shards, its BatchNorm statistics, its random numbers) in a
// file of its own, which is there whole or not at all. A step counts when all ranks' files of it
// are there. The order of the data follows from the step's number and needs no state.
//
// A gathered one holds whole parameters under their own names, the buffers and random numbers of
// rank 0, and what the optimizer keeps of each parameter ("optimizer.image.conv.weight.exp_avg").
// It does not know how many ranks made it or how they shared the parameters, so any strategy but
// the pipeline can go on from it on any number of ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <torch/csrc/api/include/torch/optim.h>

#include "base/result.h"
#include "runtime/groups/process_groups.h"
#include "runtime/models/parameters.h"
#include "runtime/strategies/strategy.h"
#include "runtime/train/precision.h"

// Everything that the next step depends on, as tensors with names, and back.

namespace lockstep::runtime {

// What is saved, and loaded in place. Beside it: the CPU's random numbers.
struct TrainingState {
  NamedTensors optimised;  // what the optimizer updates
  NamedTensors buffers;
  torch::optim::Optimizer& optimizer;
  LossScaler& scaler;
};

// This rank's own, contiguous: "parameter.", "optimizer." and "buffer." before the names,
// ".exp_avg", ".exp_avg_sq" and ".step" (one number) behind the optimizer's.
NamedTensors tensors_of_rank(const TrainingState& state);

// The same with whole parameters and buffers under their own names. Collective where the strategy
// shards; where `keep` is false, this rank only takes part, and gets nothing.
NamedTensors whole_tensors(const TrainingState& state, Strategy& strategy, bool keep);

using TensorsByName = std::map<std::string, at::Tensor>;

// Copies what one of the two gave into the state. Returns the first name that is missing or has
// another shape, and then the state is spoilt; empty: all is there.
std::string restore(TrainingState& state, Strategy& strategy, const TensorsByName& stored,
                    bool is_whole);

class Checkpoints {
 public:
  // Whether there are files. A rank that is looked at alone calls what saving calls, and neither
  // writes nor finds any: it trains nothing that is worth keeping.
  enum class Files : std::uint8_t { kept, none };

  // `digest`: of the data set's index map; training goes on with the same data only.
  Checkpoints(std::string folder, RankOf who, std::uint64_t digest, Files files = Files::kept)
      : folder_(std::move(folder)), who_(who), digest_(digest), files_(files) {}

  // Writes this rank's file for a job that has finished `steps` steps, and removes its files of all
  // other steps but the last whole one before. Later ones are an earlier job's that began anew in
  // this folder: a resume would take them for this one's. Errors: whatever the system refuses.
  Status save(const TrainingState& state, std::int64_t steps) const;

  // Writes one file with whole parameters, on rank 0, and removes others as save() does.
  // Collective where the strategy shards. Errors: those of save(), on rank 0.
  Status save_gathered(const TrainingState& state, Strategy& strategy, std::int64_t steps) const;

  // The most steps of which all ranks' files, or a gathered one, are there; nothing where there are
  // none.
  std::optional<std::int64_t> latest() const;

  // Loads the gathered file of that many steps, or this rank's. Errors: a file that cannot be read,
  // is damaged (its checksum says so), or belongs to another job: other parameters, number of ranks
  // or data.
  Status load(TrainingState& state, Strategy& strategy, std::int64_t steps) const;

 private:
  std::string whole_file_of(std::int64_t steps) const;
  std::string file_of(std::int64_t steps, int rank) const;
  // The same among those of at most so many steps.
  std::optional<std::int64_t> latest_up_to(std::int64_t most) const;
  // What save() removes, of this rank and (on rank 0) of gathered ones.
  void remove_others(std::int64_t saved) const;

  std::string folder_;
  RankOf who_;
  std::uint64_t digest_;
  Files files_;
};

}  // namespace lockstep::runtime
