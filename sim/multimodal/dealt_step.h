// A step's data as the plan deals them out: the sequences of each replica's micro-batches, and what
// each rank of each encoder encodes. Counts alone, no times: the forecast prices them
// (multimodal_forecast.h), the check for hangs compares them (modality_check.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/multimodal/multimodal_plan.h"

namespace lockstep::sim {

// What a rank encodes in one micro-batch.
struct EncoderLoad {
  double tokens = 0, squares = 0;  // sums over its items of their sizes, and of the squares
  std::int64_t items = 0;
};

struct DealtStep {
  std::vector<TrainingSequence> sequences;
  // By replica of the LLM and micro-batch: indices of sequences.
  std::vector<std::vector<std::vector<std::size_t>>> micro_batches;
  // By encoder, unit, micro-batch and rank. A unit is a replica of the LLM; of an encoder on its
  // own GPUs a group of replicas that shares its ranks (coupled_groups()). On every GPU all items
  // of a step are encoded at once: there is one micro-batch.
  std::vector<std::vector<std::vector<std::vector<EncoderLoad>>>> encoders;
};

// Groups of the LLM's replicas that share replicas of encoders on their own GPUs; without such
// encoders as many as replicas.
std::int32_t coupled_groups(const MultimodalPlan& plan);

// Floating-point operations of the forward pass of one item of `size` input tokens, the projector
// included.
double encoder_flops(const EncoderTower& tower, std::int64_t llm_hidden, double size);

// Errors: draw_sequences()'s.
Result<DealtStep> deal_step(const MultimodalPlan& plan, std::uint64_t step);

// deal_step() in parts, for many steps of several plans: most changes of a plan leave its data as
// they are, and drawing and arranging them takes longer than anything else of a large step.

// Whether two plans draw the same samples and deal them to the same replicas and micro-batches; and
// whether two that do also deal their items to the same ranks of encoders.
bool deals_alike(const MultimodalPlan& a, const MultimodalPlan& b);
bool encodes_alike(const MultimodalPlan& a, const MultimodalPlan& b);

Result<std::vector<TrainingSequence>> draw_step(const MultimodalPlan& plan, std::uint64_t step);

// Fills DealtStep::encoders of a step of arrange_each(), of a plan that deals alike.
void deal_encoders(const MultimodalPlan& plan, DealtStep& step);

// Plans that draw the same samples, and those of them that deal them alike: indices.
struct DrawnTogether {
  std::vector<std::vector<std::size_t>> dealt;
  std::size_t drawn_by = 0;  // one that is balanced, if there is any: it needs the samples' parts
};
std::vector<DrawnTogether> drawn_together(const std::vector<const MultimodalPlan*>& plans);

// Draws a step once for all plans that draw alike, and arranges it once for all that deal alike:
// `use` gets these, and the step without encoders, or the error of drawing it. `together`:
// drawn_together(plans).
void arrange_each(
    const std::vector<const MultimodalPlan*>& plans, const std::vector<DrawnTogether>& together,
    std::uint64_t step,
    const std::function<void(const std::vector<std::size_t>& alike, Result<DealtStep>)>& use);

// How many items of each kind the sequences of a dealt step have: by replica of the LLM and
// micro-batch, at replica x micro_batches + m.
struct DealtItems {
  std::size_t replicas = 0, micro_batches = 0;
  std::vector<std::array<std::uint32_t, kItemKindCount>> counts;
};
// `drawn`: as draw_step() returns them, of a plan that draws the same samples; with parts, if this
// one is balanced. Nothing is copied.
DealtItems deal_items(const MultimodalPlan& plan, const std::vector<TrainingSequence>& drawn);

// The items of ranks that encode together, by micro-batch. They are dealt one each before any rank
// gets a second one, so that rank i has none exactly where there are at most i.
struct ItemsOfUnit {
  std::size_t ranks = 0;
  std::vector<std::int64_t> items;
};
std::vector<ItemsOfUnit> count_items(const MultimodalPlan& plan, const EncoderTower& tower,
                                     const DealtItems& step);

}  // namespace lockstep::sim
