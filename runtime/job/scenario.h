// Scenario: what a scenario file says: the job, its limits and what is expected of it.
//
// The format is defined once, in scenarios/scenario.schema.json (JSON Schema, `lockstep scenario
// --schema`); docs/scenarios.md explains it. Loading checks the file against that schema and
// refuses what it does not allow, with file:line:column, what was expected, and the nearest valid
// key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/job/fault.h"

namespace lockstep::runtime {

enum class Modality : std::uint8_t { image, text };
std::string to_string(Modality m);

struct Scenario {
  std::string file;  // where it was read from
  std::string name;
  std::string description;
  int ranks = 2;
  enum class Backend { gloo, nccl } backend = Backend::gloo;  // nccl: on GPUs
  bool share_gpus = false;  // nccl: ranks may share one, for testing; times mean nothing then

  // The names are those that the worker implements; the schema lists them.
  struct Model {
    std::string image = "resnet-small";
    std::string text = "bert-small";
    std::string head = "contrastive";
    int embed_dim = 32;               // width of the shared embedding
    std::vector<std::string> freeze;  // name prefixes of parameters that are not trained
    enum class Negatives {
      local,   // of the rank's own batch
      global,  // of all ranks' batches, gathered with their gradient
    } negatives = Negatives::local;
    struct Fusion {  // of the head "fusion"
      int width = 768;
      int layers = 1;
      std::optional<int> image_width;  // left out: the image encoder's

      friend bool operator==(const Fusion&, const Fusion&) = default;
    } fusion;
    struct Weights {  // safetensors files; empty: fresh weights
      std::string image, text;

      friend bool operator==(const Weights&, const Weights&) = default;
    } weights;

    friend bool operator==(const Model&, const Model&) = default;
  } model;

  struct Data {
    std::string source = "shapes";      // or "manifest"
    std::vector<std::string> manifest;  // files or folders, for "manifest"
    std::string vocab;                  // WordPiece's; empty: that of "shapes"
    int items = 512;
    std::optional<int> image_side;  // pixels; left out: what the image encoder was made for
    std::optional<int> max_length;  // tokens; left out: what the text encoder was made for
    int held_out = 128;             // items kept for the evaluation
    struct Loader {
      int workers = 2;
      int prefetch = 2;         // batches
      bool skip_broken = true;  // false: a broken item ends the training

      friend bool operator==(const Loader&, const Loader&) = default;
    } loader;
    double text_only = 0.0;  // share of the items that have no image
    // Who gets what: the first rule that fits a (rank, step) decides the modalities of that rank's
    // batch. Where none fits, the batch is what the sampler drew.
    struct Rule {
      std::vector<int> ranks;           // empty: every rank
      std::vector<std::int64_t> steps;  // empty: every step
      std::vector<Modality> has;        // sorted, never empty

      friend bool operator==(const Rule&, const Rule&) = default;
    };
    std::vector<Rule> modality;
    enum class Sampler {
      random,    // DistributedSampler's order: a batch may mix items with and without image
      balanced,  // the same share of items with an image in every rank's batch of a step
      grouped,   // every batch is all image+text or all text-only, whichever the rank's shard says
    } sampler = Sampler::random;
    enum class Balance {
      none,  // each rank trains on the batch that the sampler deals to it
      cost,  // the ranks' batches are shared out anew, by what images and texts were seen to cost
    } balance = Balance::none;
    int balance_every = 8;              // steps that are shared out at a time
    bool broadcast = false;             // every rank trains on rank 0's batch, sent to it each step
    struct Outlier {                    // images whose values are far from what they should be
      std::vector<int> ranks;           // empty: every rank
      std::vector<std::int64_t> steps;  // empty: every step
      double factor = 1;                // on the pixels, after normalisation

      friend bool operator==(const Outlier&, const Outlier&) = default;
    };
    std::vector<Outlier> outliers;

    friend bool operator==(const Data&, const Data&) = default;
  } data;

  struct Strategy {
    enum class Kind { manual, ddp, pipeline, fsdp } kind = Kind::ddp;
    bool find_unused_parameters = false;   // ddp
    double bucket_cap_mb = 25.0;           // ddp
    double first_bucket_mb = 1.0;          // ddp
    bool broadcast_buffers = true;         // ddp
    bool gradient_as_bucket_view = false;  // ddp
    bool no_sync = true;        // ddp: while gradients accumulate, only the last backward reduces
    bool static_graph = false;  // ddp: the first step's graph is every step's
    bool skip_all_reduce_unused_params = false;  // ddp: unused buckets are not reduced at all
    enum class Compression { none, float16, bfloat16 } compression = Compression::none;  // ddp
    enum class Groups {
      one,
      per_modality,  // two groups of all ranks: the image path's gradients, and the others'
      image_ranks,   // the image path's gradients among the ranks that ever have images
    } process_groups = Groups::one;                                         // manual
    int stages = 2;                                                         // pipeline: ranks
    int micro_batches = 4;                                                  // pipeline
    enum class Schedule { gpipe, one_f_one_b } schedule = Schedule::gpipe;  // pipeline
    int shard_ranks = 0;   // fsdp: ranks that share one copy of the parameters; 0: all
    bool prefetch = true;  // fsdp: the next block is gathered while one computes

    friend bool operator==(const Strategy&, const Strategy&) = default;
  } strategy;

  struct Remedy {
    enum class Kind {
      none,
      dummy_image,    // a blank image through the encoder, joined to the loss with weight 0
      alternating,    // all ranks train the image path in one step, the text path in the next
      presence_vote,  // where one rank has no image, all go without for this step
      gradient_mask,  // dummies' gradients are dropped, those that nobody has are not used
    } kind = Kind::none;
    enum class Average {
      world,         // the image path's gradient is the mean over all ranks, dummies included
      contributors,  // … over the ranks that had images
    } average = Average::world;

    friend bool operator==(const Remedy&, const Remedy&) = default;
  } remedy;

  Fault fault = Fault::none;  // what goes wrong on purpose

  std::string
      replay;  // the folder of recorded calls, from the folder of the file; empty: it trains

  struct Train {
    int steps = 6;
    int batch_size = 8;
    enum class Optimizer { sgd, adamw } optimizer = Optimizer::adamw;
    double lr = 1e-3;
    double weight_decay = 0.01;
    std::uint64_t seed = 1;
    struct Accumulation {
      int steps = 1;                             // micro-batches to an optimiser step
      std::vector<std::pair<int, int>> by_rank;  // ranks with a number of their own: a mistake

      friend bool operator==(const Accumulation&, const Accumulation&) = default;
      int of(int rank) const;
    } accumulation;
    struct Schedule {
      int warmup_steps = 0;  // the learning rate grows linearly over so many steps
      enum class Decay { constant, cosine } decay = Decay::constant;

      friend bool operator==(const Schedule&, const Schedule&) = default;
    } schedule;
    struct Clip {
      std::optional<double> image, text, fusion;  // largest norm of the gradients of each group

      friend bool operator==(const Clip&, const Clip&) = default;
      bool any() const { return image || text || fusion; }
    } clip;
    enum class Precision { float32, bfloat16, float16 } precision = Precision::float32;
    struct LossScale {  // of float16
      double initial = 65536;
      int growth_interval = 2000;  // steps without overflow after which the scale doubles

      friend bool operator==(const LossScale&, const LossScale&) = default;
    } loss_scale;
    struct Checkpoint {
      std::string folder;     // empty: none
      int every = 0;          // steps; 0: never saved
      bool gathered = false;  // one file with whole parameters; else one for each rank
      bool resume = false;    // go on from the last one in the folder, where there is one
      bool barrier = false;   // all ranks wait for each other after each

      friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
    } checkpoint;
    bool evaluate = false;  // after training: caption retrieval on held-out items, on rank 0

    friend bool operator==(const Train&, const Train&) = default;
  } train;

  // Which tensors' values the ranks record, as fingerprints (docs/trace-format.md): none without
  // the key, and those of every tenth step where it does not say.
  struct Watch {
    int every = 0;  // steps; 0: never
    bool gradients = true, parameters = true, buffers = false, optimizer = false;
    int sketch = 8;  // values of a sketch; 0: none

    friend bool operator==(const Watch&, const Watch&) = default;
  } watch;

  struct Limits {
    double hang_after_s = 20;  // no rank recorded anything for so long: the workers give up
    double total_s = 300;      // the whole run

    friend bool operator==(const Limits&, const Limits&) = default;
  } limits;

  struct Expect {
    std::string verdict;             // "clean", "findings", "inconclusive"
    std::vector<std::string> rules;  // any of these is the leading finding's rule
    std::optional<std::vector<int>> culprits;
    std::optional<std::int64_t> step;
    enum class Ends {
      completed,  // every worker finished its steps
      stopped,    // proven stuck, and ended
      failed,     // a worker died or gave up by itself
    };
    std::optional<Ends> ends;

    friend bool operator==(const Expect&, const Expect&) = default;
  };
  std::optional<Expect> expect;

  friend bool operator==(const Scenario&, const Scenario&) = default;

  // The first rule that fits this rank's batch at this step; null where none does. The alternating
  // remedies make the rules themselves: images in every second step.
  const Data::Rule* rule_for(int rank, std::int64_t step) const;
  // What this rank's images are multiplied with at this step; 1 where no outlier was asked for.
  double outlier_factor(int rank, std::int64_t step) const;
  // Which of 0 … ranks - 1 the modality rules ever let have images, ascending.
  std::vector<std::int32_t> ranks_with_images(int ranks) const;
  // Ranks that hold one copy of the model together and train on one batch: the pipeline's stages,
  // else 1.
  int ranks_of_replica() const;
  // This rank's micro-batches to an optimiser step: of the pipeline, or of accumulation.
  int micro_batches(int rank) const;
  // Makes the calls of a recorded run again: there is no model, no data and no training.
  bool replays() const { return !replay.empty(); }
};

// Reads and checks a scenario file. Errors: unreadable file, YAML that does not parse, anything
// that the schema does not allow, and contradictions between keys (a culprit that is no rank, say).
Result<Scenario> load_scenario(const std::string& path);
// The same from memory; `file` names it in errors.
Result<Scenario> parse_scenario(const std::string& text, const std::string& file);

// The JSON Schema of the format, as text.
std::string_view scenario_schema();

// Several ranks of NCCL on one GPU, for testing.
//
// NCCL refuses two ranks on one device because it takes them for processes of one host. With a
// host's identity each, it takes them for ranks of different hosts and connects them over sockets:
// slow, so that times mean nothing, but with NCCL's own semantics.

// What a rank's environment needs for it, as names and values. LOCKSTEP_SHARE_GPUS is the worker's
// own: it takes the device of its local rank modulo the devices that there are.
std::vector<std::pair<std::string, std::string>> sharing_environment(int rank);

}  // namespace lockstep::runtime
