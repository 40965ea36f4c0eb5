// A data-parallel training in a few lines, with real numbers in float32 and the traces that it
// would leave: what a test changes on the way is the fault that must be found.
#pragma once

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/verify.h"

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

  // One step: backward() computes new gradients and records them; average() and update() compute;
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

// The training of most tests: four ranks, four parameters, two of them of one size.
inline constexpr std::uint32_t kWorld = 4;
inline TinyTraining training(std::uint32_t world = kWorld, std::uint64_t seed = 1) {
  return TinyTraining(world, {64, 256, 64, 1}, seed);
}

inline std::vector<std::uint32_t> all_of(const TinyTraining& t) {
  std::vector<std::uint32_t> out(t.world());
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

// Good steps, then one that `fault` makes, then good ones.
template <class Fault>
Report with_fault(TinyTraining& t, Fault fault, int good = 2) {
  for (int i = 0; i < good; ++i) t.good_step();
  fault(t);
  t.end_step();
  for (int i = 0; i < good; ++i) t.good_step();
  return verify(t.run());
}

// A clean report whose one finding is a note of that rule.
inline bool is_note(const Report& report, RuleId rule) {
  return report.verdict == Verdict::clean && report.findings.size() == 1 &&
         report.findings[0].rule == rule && report.findings[0].severity == Severity::note;
}

}  // namespace lockstep::verify
