// What the tasks of a step of several towers take: the layers of the LLM and of the encoders on
// each stage, for the items that a micro-batch holds, priced by the calibration.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/multimodal/dealt_step.h"
#include "sim/multimodal/encoder_time.h"
#include "sim/multimodal/multimodal_plan.h"
#include "sim/pipeline/schedule.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {

// A place: the GPUs that are one stage of every pipeline.
struct Place {
  std::string name;
  std::int64_t gpus = 0;       // of one pipeline
  std::size_t own = SIZE_MAX;  // the encoder whose own stage it is
  std::int32_t stage = 0;      // of the LLM, or of that encoder
  double layers = 0;           // of the LLM, all chunks
  std::vector<double> shares;  // by encoder: of its layers
  std::vector<bool> ends;      // by encoder: its last layer and the projector are here
};

// One encoder, for one micro-batch of one unit, on the ranks of its group.
struct GroupTime {
  double forward = 0, backward = 0;  // of the slowest rank
  double weight = 0;                 // part of `backward` (PieceTime)
  double mean = 0;                   // of all ranks, both directions
  double tokens = 0, most_tokens = 0;
};

// The towers of a plan, and what each takes wherever it is. Refers to `plan` and `cost`.
struct TowerTimes {
  TowerTimes(const MultimodalPlan& of, const CostParameters& by);

  const MultimodalPlan& plan;
  const TrainingPlan& llm;
  const Transformer& model;
  const CostParameters& cost;
  std::vector<TrainingPlan> layouts;  // of encoders, with all their data-parallel ranks
  // What layers exchange, of the LLM and by encoder: the same for every load. Without trained
  // parameters nothing is scattered.
  LayerExchange llm_exchange;
  std::vector<LayerExchange> exchanges;
  std::vector<EncoderTimes> encoders;  // what a rank of each takes for its items
  // By encoder: seconds for each byte that the fullest link needs, while all of its ranks send or
  // gather embeddings. 0 without a network.
  std::vector<double> handover_links;
  std::int32_t groups = 1;     // of replicas that share ranks of encoders, and so move together
  std::int32_t per_group = 1;  // replicas
  std::int32_t micro_batches = 1;

  // The ranks that gather embeddings, of an encoder that is not on its own GPUs.
  Group gathering(std::size_t encoder) const;
  // Whether gradients pass through the LLM for something before it.
  bool trained_before() const;
  // `one` layer of the LLM, `layers` times.
  PieceTime llm_layers(LayerTimes one, double layers) const;
  // Logits and loss; of a frozen LLM without the gradient of their table.
  PieceTime llm_logits() const;
  // `share` of an encoder's layers; `end`: with its projector. `loads`: by rank.
  GroupTime group_time(std::size_t encoder, const std::vector<EncoderLoad>& loads, double share,
                       bool end) const;
  // Bytes that an encoder keeps of a token for the backward pass, on one rank.
  double kept_per_token(std::size_t encoder) const;
  // The transfer of the embeddings of a micro-batch to the ranks of the LLM, one direction.
  double gather_seconds(std::size_t encoder, double tokens) const;
};

// What a piece of the pipeline does in one micro-batch, in seconds; `lost`: ranks of an encoder
// that wait for the slowest one of their group, mean over the ranks.
struct TaskTime {
  double forward = 0, backward = 0;
  double encoder_forward = 0, encoder_backward = 0;  // parts of the above
  double lost = 0;
  double weight = 0;       // the part of `backward` that a schedule may put off (PieceTime)
  double activations = 0;  // bytes
  std::vector<double> encoder_activations;
  StepParts llm;
  double handover = 0, offload = 0;
  std::vector<double> encoders;  // busy, mean over the group's ranks
};

// The tasks of a pipeline. Refers to its arguments.
class TaskTimes {
 public:
  // `own_stages`: places in front that are encoders' own.
  TaskTimes(const TowerTimes& towers, const std::vector<Place>& places, std::int32_t own_stages,
            const PipelineProgram& program);

  // Micro-batch `m` on a piece of the pipeline, both directions; of replicas that move together the
  // slowest.
  TaskTime of(const DealtStep& step, std::size_t group, std::int32_t piece, std::size_t m) const;

  // What a stage hands to the next one of a micro-batch of so many tokens. Sequences that are
  // filled up are handed over whole.
  Handover handed_over(double tokens) const;
  // The same of a message between stages, of the mean over a step's micro-batches.
  double mean_message_bytes(const DealtStep& step) const;
  Handover mean_handover(const DealtStep& step) const { return handed_over(mean_tokens(step)); }

 private:
  double mean_tokens(const DealtStep& step) const;
  // The LLM's layout for a micro-batch of so many tokens.
  TrainingPlan layout_of(double tokens) const;
  double micro_tokens(const DealtStep& step, std::size_t replica, std::size_t m,
                      double* squares) const;
  void add_llm(const DealtStep& step, std::size_t group, const Place& place, std::int32_t piece,
               std::size_t m, TaskTime& task) const;
  TaskTime offloaded(TaskTime task) const;

  const TowerTimes& towers_;
  const MultimodalPlan& plan_;
  const TrainingPlan& llm_;
  const Transformer& model_;
  const CostParameters& cost_;
  const std::vector<Place>& places_;
  std::int32_t own_stages_ = 0;
  const PipelineProgram& program_;
  std::vector<PieceTime> full_;  // by place: a chunk of the LLM's layers, for full sequences
  MixedLayers ragged_;           // a layer, for sequences of other lengths
  PieceTime embedding_, logits_;
  mutable std::map<std::int64_t, Handover> handovers_;  // by tokens
};

}  // namespace lockstep::sim
