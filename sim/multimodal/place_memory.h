// What a GPU of each place holds at its fullest moment, over the steps that are simulated.
#pragma once

#include <vector>

#include "sim/multimodal/multimodal_forecast.h"
#include "sim/multimodal/places.h"
#include "sim/pipeline/run_pipeline.h"

namespace lockstep::sim {

// Refers to its arguments.
class MemoryOfPlaces {
 public:
  MemoryOfPlaces(const TowerTimes& towers, const std::vector<Place>& places,
                 const PipelineProgram& program)
      : towers_(towers), places_(places), program_(program), peaks_(places.size()) {}

  // One pipeline of a step. `tasks`: by piece x micro-batch.
  void keep(const DealtStep& step, const std::vector<TaskTime>& tasks, const PipelineRun& run);

  std::vector<PlaceMemory> finish() const;

 private:
  struct Peak {
    double bytes = 0, llm = 0;
    std::vector<double> encoders;
    double working_tokens = 0;        // most that an encoder on the place computes at once
    std::vector<double> most_tokens;  // by encoder
  };

  TowerMemory states(std::string name, double trained, double frozen, const TrainingPlan& layout,
                     double layer) const;

  const TowerTimes& towers_;
  const std::vector<Place>& places_;
  const PipelineProgram& program_;
  std::vector<Peak> peaks_;
};

}  // namespace lockstep::sim
