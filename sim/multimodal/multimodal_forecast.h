// Forecasts the training steps of a plan with several towers.
//
// A few steps are drawn from the data. Each is a program of the engine (sim/engine/step_program.h),
// in which every group of ranks that is one pipeline has the times of its own micro-batches: the
// LLM's by sim/transformer, an encoder's by the sizes of its items. The ranks meet where gradients
// are summed, so the slowest pipeline gives the step. What is lost on the way is found by comparing
// with steps of equal work: see LostTime.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/engine/step_picture.h"
#include "sim/multimodal/dealt_step.h"
#include "sim/multimodal/modality_check.h"
#include "sim/transformer/plan_forecast.h"
#include "sim/transformer/step_reason.h"

namespace lockstep::sim {

// Shares of the job's GPU time of a step; together with what is computed and exchanged they are 1.
struct LostTime {
  double bubble = 0;           // of the schedule itself: with equal stages and micro-batches
  double unequal_stages = 0;   // more, because stages take different times
  double unequal_batches = 0;  // more, because micro-batches do
  double stragglers = 0;       // pipelines wait for the slowest one, where gradients are summed
  double within_group = 0;     // ranks of an encoder wait for the one with the most: uneven items
  double total() const {
    return bubble + unequal_stages + unequal_batches + stragglers + within_group;
  }
};

struct PlaceFigures {
  std::string name;  // "LLM stage 0 with vit", "vit stage 1"
  std::int64_t gpus = 0;
  double layers = 0;              // of the LLM
  double busy = 0, encoding = 0;  // shares of the pipelines' time, mean; `encoding` is part of busy
  double micro_batch = 0;         // seconds, mean over micro-batches: forward and backward
};

// Bytes on a GPU of one place, of one tower.
struct TowerMemory {
  std::string tower;
  double parameters = 0, gradients = 0, optimizer = 0, gathered = 0, activations = 0;
  double total() const { return parameters + gradients + optimizer + gathered + activations; }
};
struct PlaceMemory {
  std::string name;
  std::vector<TowerMemory> towers;
  double working = 0, reserved = 0;
  double total() const;
};

// What an alternative changes.
enum class ChangeKind : std::uint8_t {
  none,  // as planned
  reordered_data,
  balanced_data,
  filling,  // of sequences
  balanced_split,
  overlapped_gradients,
  encoder_place,
  encoder_layout,
  dummy_items,
  kept_activations,  // on the GPU, instead of in the host's memory
  kept_optimizer,
  llm_layout,  // another one, in which what takes the most time may take less
};

// The same job planned in another way, one change each: how sequences are arranged and filled,
// where encoders run, how they are cut.
struct Alternative {
  ChangeKind kind = ChangeKind::none;
  std::string change;   // in words: "data.arrange: balanced"
  std::string refused;  // why it cannot be; empty: it can
  double seconds = 0, mfu = 0, lost = 0, memory_bytes = 0, tokens_per_second = 0;
  bool fits = true;
  double hang_probability = 0;  // per step
};

struct MultimodalForecast {
  MultimodalPlan plan;
  Calibration calibration;  // with the plan's gpus_per_node
  // Seconds; means over the drawn steps, and the shortest and the longest of them.
  double seconds = 0, shortest = 0, longest = 0;
  StepRange range;  // of language models: no measured step had an encoder
  double pipeline_seconds = 0, encode_seconds = 0;  // of the slowest; before and after the pipeline
  double exchange_seconds = 0, update_seconds = 0;
  double samples_per_second = 0, tokens_per_second = 0;  // without padding
  double mfu = 0;
  double samples_per_step = 0;
  double padding = 0;  // share of the LLM's tokens that are none
  double cut = 0;      // share of the samples' tokens that did not fit
  struct ItemFigures {
    std::string kind;
    double per_step = 0, mean_size = 0, largest = 0;
  };
  std::vector<ItemFigures> items;
  LostTime lost;
  std::vector<ForecastPart> time;  // sums up to `seconds`: mean over the GPUs
  std::vector<PlaceFigures> places;
  std::vector<PlaceMemory> memory;               // by place
  std::size_t fullest = 0;                       // index in it
  MemoryNeed need;                               // of the fullest
  std::optional<ModalityDivergence> divergence;  // the plan can hang
  std::shared_ptr<const DealtBefore> dealt;      // to find that out; null: not kept
  std::optional<PlanForecast::Goodput> goodput;  // if the plan says how often GPUs fail

  std::vector<std::string> basis() const;
  // What costs the most beside computing.
  StepLoss largest_loss() const;
  // That, and what would help, in a sentence. A change is advised only if it is among those
  // `tried`, gives more tokens per second, and fits if the plan itself does.
  std::string reason(const std::vector<Alternative>& tried) const;
};

// Errors: predict_step()'s, and draw_sequences()'s.
Result<MultimodalForecast> forecast_towers(const MultimodalPlan& plan,
                                           const Calibration& calibration);

// The same of one of many plans, without remedies for what can hang.
Result<MultimodalForecast> forecast_towers(const MultimodalPlan& plan,
                                           const Calibration& calibration, ModalityChecks& checks);

// The first step, run once more; its slowest pipeline, by place. Errors: forecast_towers()'s.
Result<StepPicture> draw_step(const MultimodalForecast& forecast);

// Best first: by tokens per second, those that fit and cannot hang before others.
std::vector<Alternative> alternatives(const MultimodalForecast& forecast);

}  // namespace lockstep::sim
