// What a GPU of each place holds at its fullest moment, over the steps that are simulated.
#pragma once

#include <vector>

#include "sim/multimodal/multimodal_forecast.h"
#include "sim/multimodal/places.h"
#include "sim/pipeline/schedule.h"

namespace lockstep::sim {

// Refers to its arguments.
class MemoryOfPlaces {
 public:
  MemoryOfPlaces(const TowerTimes& towers, const std::vector<Place>& places,
                 const PipelineProgram& program)
      : towers_(towers),
        places_(places),
        program_(program),
        peaks_(places.size(), {0, 0, std::vector<double>(towers.plan.encoders.size(), 0)}),
        most_tokens_(towers.plan.encoders.size(), 0) {}

  // What towers hold of a step's items and sequences.
  void keep_items(const DealtStep& step);
  // One pipeline of a step. `tasks`: by piece x micro-batch.
  void keep_tasks(const std::vector<TaskTime>& tasks);

  std::vector<PlaceMemory> finish() const;

 private:
  struct Peak {
    double bytes = 0, llm = 0;
    std::vector<double> encoders;
  };

  const TaskTime& time_of(const std::vector<TaskTime>& tasks, std::size_t place,
                          const PipelineTask& task) const;

  TowerMemory states(std::string name, const RankParameters& trained, const RankParameters& frozen,
                     const TrainingPlan& layout) const;
  // The LLM's layout, with sequences no longer than they are where none is filled up.
  TrainingPlan llm_layout() const;
  // What a GPU has gathered of the LLM, and the pipeline's buffers.
  StageMemory held_of_llm(std::size_t place) const;

  const TowerTimes& towers_;
  const std::vector<Place>& places_;
  const PipelineProgram& program_;
  std::vector<Peak> peaks_;
  std::vector<double> most_tokens_;  // by encoder: that a rank computes at once
  std::int64_t longest_ = 0;         // of the LLM's micro-batches, in tokens
};

}  // namespace lockstep::sim
