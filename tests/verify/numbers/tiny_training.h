// A data-parallel training in a few lines, with real numbers in float32 and the traces that it
// would leave: what a test changes on the way is the fault that must be found.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

class TinyTraining {
 public:
  using Tensor = std::vector<float>;

  // Parameters "p0", "p1", … of the given sizes, equal on all ranks.
  TinyTraining(std::uint32_t world, std::vector<std::size_t> sizes, std::uint64_t seed);

  std::uint32_t world() const { return world_; }
  std::size_t tensors() const { return names_.size(); }
  std::int64_t step_number() const { return step_; }
  Tensor& param(std::uint32_t rank, std::size_t t) { return ranks_[rank].params[t]; }
  Tensor& grad(std::uint32_t rank, std::size_t t) { return ranks_[rank].grads[t]; }

  // One step: backward() fills the gradients anew and records them; average() and update() compute;
  // record_* write the lines.
  void backward();
  void record_local();
  // The mean over the ranks of a tensor's gradients, added up in that order of the ranks; shorter
  // where `order` leaves ranks out. Every rank in `order` gets the result.
  void average(std::size_t t, const std::vector<std::uint32_t>& order, float divisor);
  void average_all();
  void record_synced();
  // SGD with that learning rate, on one rank.
  void update(std::uint32_t rank, float rate = 0.1F);
  void update_all();
  void record_params();
  void record_scalar(std::uint32_t rank, const std::string& name, double value);
  // What a good step ends with: the synchronised gradients recorded, the update, the parameters.
  void finish();
  void end_step() { ++step_; }

  // A whole step without a fault.
  void good_step();

  // What the lines hold: hashes alone, norms too, or sketches too.
  enum class Detail { hash, norm, sketch };
  Detail detail = Detail::sketch;
  // The all-reduce of a tensor is recorded with this tag; see `calls`.
  std::string tag;
  bool calls = false;      // record an all_reduce for each average()
  bool name_calls = true;  // … that says which gradient it carries

  // Lines of one rank, for what a test wants to add itself.
  void line(std::uint32_t rank, const std::string& json) { ranks_[rank].text += json + "\n"; }
  std::string name(std::size_t t) const { return names_[t]; }

  trace::Run run() const;

 private:
  struct RankState {
    std::vector<Tensor> params, grads;
    std::string text;
    std::uint64_t calls = 0;
  };
  void record(RankState& rank, const std::string& name, const Tensor& values,
              const std::string& kind);

  std::uint32_t world_;
  std::vector<std::string> names_;
  std::vector<RankState> ranks_;
  std::mt19937_64 random_;
  std::int64_t step_ = 0;
};

}  // namespace lockstep::verify
