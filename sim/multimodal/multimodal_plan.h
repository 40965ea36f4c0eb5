// A plan of a model with several towers: encoders of images, video or audio, their projectors, and
// an LLM, each with its own size, precision, layout and place, and the data that they train on.
// docs/simulate-multimodal.md explains the file, which begins like that of a transformer:
//
//   plan: 1
//   name: …
//   calibration: h100-cluster
//   gpus: 512
//   global_batch: 512
//   llm: {model: llama3-70b, sequence: 8192, tensor: 8, pipeline: {stages: 4}, zero: 1}
//   encoders:
//     - {name: vit, input: image, model: vit-5b, merge: 4, on: first_stage, tensor: 8}
//   data: {text: 2000, image: {per_sample: {poisson: 3}, size: {lognormal: [1024, 0.8]}}}
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/documents/yaml_document.h"
#include "base/quantities.h"
#include "base/result.h"
#include "sim/multimodal/training_data.h"
#include "sim/transformer/plan_file.h"

namespace lockstep::sim {

// Where an encoder runs.
enum class EncoderPlace : std::uint8_t {
  first_stage,  // on the GPUs of the LLM's first stages, before its layers
  every_gpu,    // on every GPU, for all micro-batches before the LLM's pipeline begins
  own_gpus,     // on GPUs of its own, as stages in front of the LLM's
};

// How the data-parallel ranks of an encoder sum its gradients.
enum class GradientCalls : std::uint8_t {
  buffer,  // one call after the backward pass, whatever came (Megatron's DDP)
  hooks,   // a call as a gradient comes, none without one (PyTorch's DDP)
};

struct EncoderTower {
  std::string name;
  std::size_t input = 0;  // index in kItemKinds
  std::string model_name;
  Transformer model;  // without vocabulary
  std::int64_t merge = 1;
  bool frozen = false;
  EncoderPlace place = EncoderPlace::first_stage;
  // tensor; own_gpus: pipeline and data, too; otherwise `data` says over how many ranks of one
  // replica of the LLM the items of a micro-batch are spread. sequence and batches are not used.
  TrainingPlan layout;
  Location dtype_at;      // where the file says what it multiplies in
  std::int64_t gpus = 0;  // of own_gpus
  GradientCalls gradients = GradientCalls::buffer;
  bool dummy = false;  // a rank without items encodes a small one, so that it makes the same calls
  std::int64_t projector_hidden = 0;  // of two products, from merge x hidden to the LLM's hidden
  bool projector_frozen = false;

  bool trained() const { return !frozen || !projector_frozen; }
};

// What is kept in the host's memory.
struct Offload {
  bool optimizer = false, activations = false;
  double bandwidth = 25e9;  // bytes/s of a GPU to and from it, and of the host's update
};

struct MultimodalPlan {
  PlanFile llm;  // its GPUs: all but those of encoders on their own
  bool llm_frozen = false;
  bool balanced_split = false;  // the chain of layers is cut into stages of equal mean work
  std::vector<EncoderTower> encoders;
  TrainingData data;
  bool overlapped_gradients = false;
  Offload offload;
  std::int64_t gpus = 0;   // all
  std::int64_t steps = 4;  // drawn and simulated

  std::int64_t replica_gpus() const {
    return std::int64_t{llm.plan.tensor} * llm.plan.context * llm.plan.pipeline;
  }
};

// A plan of several towers has the key "llm".
bool is_multimodal(const nlohmann::json& document);

// The JSON Schema: multimodal_plan.schema.json (towers_schema()), with the keys that it shares with
// a transformer's plan. multimodal_plan.cc checks how the values fit together.
const nlohmann::json& multimodal_plan_schema();
std::string_view towers_schema();

// The manifest that the plan names; empty: none, or no such document.
std::string manifest_of(const nlohmann::json& document);

// `manifest`: the text of the file that manifest_of() names. Errors, with the location: what the
// schema does not allow; those of a transformer's plan (plan_file.h), for the LLM; an unknown
// encoder, or one whose heads, GPUs or ranks do not divide; data without what an encoder takes in;
// a distribution that is none; nothing that is trained; a manifest with a damaged line.
Result<MultimodalPlan> read_multimodal_plan(const YamlDocument& document,
                                            const std::string& manifest);

// Sets what the layout of an encoder derives from the places of all towers: EncoderTower::layout's
// data, and the LLM's data-parallel ranks. Errors: numbers that do not divide, and the index of the
// encoder.
struct PlaceProblem {
  std::size_t encoder = 0;
  std::string_view key;
  Error error;  // without a location
};
std::optional<PlaceProblem> place_encoders(MultimodalPlan& plan);

// Encoders whose shapes are published: "vit-huge", "internvit-6b", …
std::optional<Transformer> published_encoder(std::string_view name);

std::string_view place_name(EncoderPlace place);
std::string_view filling_name(SequenceFilling filling);
std::string_view arrangement_name(Arrangement arrangement);

}  // namespace lockstep::sim
