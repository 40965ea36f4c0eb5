// Scenario: the contents of a scenario file: the job, its limits and the expected result.
//
// The format is defined once, in scenarios/scenario.schema.json (JSON Schema, `lockstep scenario
// --schema`); docs/scenarios.md explains it. Loading checks the file against the schema. Errors
// give file:line:column, what was expected, and the nearest valid key.
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

enum class Modality : std::uint8_t { image, text, video };
std::string to_string(Modality m);

struct Scenario {
  std::string file;  // the file it was read from
  std::string name;
  std::string description;
  int ranks = 2;
  enum class Backend { gloo, nccl } backend = Backend::gloo;  // nccl needs GPUs
  bool share_gpus = false;  // nccl: ranks may share a GPU, for tests; times are meaningless then

  // Names of encoders and heads that the worker implements; the schema lists them.
  struct Model {
    std::string image = "resnet-small";
    std::string text = "bert-small";
    std::string head = "contrastive";
    int embed_dim = 32;               // width of the shared embedding
    bool image_experts = false;       // a layer for pictures and one for frames, after the encoder
    std::vector<std::string> freeze;  // name prefixes of parameters that are not trained
    enum class Negatives {
      local,   // the rank's own batch only
      global,  // the batches of all ranks, gathered with their gradients
    } negatives = Negatives::local;
    // What keeps no activations, and runs again in backward.
    enum class Checkpointing {
      none,
      blocks,    // each block of the encoders by itself
      encoders,  // each encoder as a whole
    } activation_checkpointing = Checkpointing::none;
    struct Fusion {  // for the head "fusion"
      int width = 768;
      int layers = 1;
      std::optional<int> image_width;  // absent: the image encoder's

      friend bool operator==(const Fusion&, const Fusion&) = default;
    } fusion;
    struct Weights {  // safetensors files; empty: random weights
      std::string image, text;

      friend bool operator==(const Weights&, const Weights&) = default;
    } weights;

    friend bool operator==(const Model&, const Model&) = default;
  } model;

  struct Data {
    std::string source = "shapes";      // or "manifest"
    std::vector<std::string> manifest;  // files or folders, for "manifest"
    std::string vocab;                  // a WordPiece vocabulary; empty: that of "shapes"
    int items = 512;
    std::optional<int> image_side;  // pixels; absent: the image encoder's
    std::optional<int> max_length;  // tokens; absent: the text encoder's
    int held_out = 128;             // items kept for the evaluation
    struct Loader {
      int workers = 2;
      int prefetch = 2;         // batches
      bool skip_broken = true;  // false: a broken item ends training

      friend bool operator==(const Loader&, const Loader&) = default;
    } loader;
    double text_only = 0.0;  // share of items without an image
    // Which modalities a rank's batch has in a step: the first rule that applies decides. If none
    // does, the batch is what the sampler drew.
    struct Rule {
      std::vector<int> ranks;           // empty: every rank
      std::vector<std::int64_t> steps;  // empty: every step
      std::vector<Modality> has;        // sorted, never empty

      bool shows(Modality modality) const;
      bool shows_pictures() const { return shows(Modality::image) || shows(Modality::video); }

      friend bool operator==(const Rule&, const Rule&) = default;
    };
    std::vector<Rule> modality;
    enum class Sampler {
      random,    // DistributedSampler's order: a batch may mix items with and without images
      balanced,  // the same share of items with images in every rank's batch of a step
      grouped,   // each batch is all image+text or all text-only; ranks may differ
      dealt,     // the same, and in a step all ranks have the same kind
    } sampler = Sampler::random;
    enum class Balance {
      none,  // each rank trains on the batch that its sampler drew
      cost,  // the items of all ranks' batches are redistributed by measured cost
    } balance = Balance::none;
    int balance_every = 8;     // steps that are redistributed at a time
    bool broadcast = false;    // every rank trains on rank 0's batch, broadcast in each step
    struct Outlier {           // images with values far out of range
      std::vector<int> ranks;  // empty: every rank
      std::vector<std::int64_t> steps;  // empty: every step
      double factor = 1;                // multiplies the pixels, after normalisation

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
    bool static_graph = false;  // ddp: all steps have the graph of the first
    bool skip_all_reduce_unused_params = false;  // ddp: unused buckets are not reduced
    enum class Compression { none, float16, bfloat16 } compression = Compression::none;  // ddp
    enum class Groups {
      one,
      per_modality,  // two groups of all ranks: for the image path's gradients, and for the others
      image_ranks,   // the image path's gradients only among the ranks that ever have images
    } process_groups = Groups::one;                                         // manual
    int stages = 2;                                                         // pipeline: ranks
    int micro_batches = 4;                                                  // pipeline
    enum class Schedule { gpipe, one_f_one_b } schedule = Schedule::gpipe;  // pipeline
    bool exchange_lengths = false;  // pipeline: stages compare their batches before each step
    int shard_ranks = 0;            // fsdp: ranks per copy of the parameters; 0: all
    bool prefetch = true;           // fsdp: gather the next block while one computes
    enum class Units {
      blocks,         // each block is gathered for itself, and freed after it
      image_encoder,  // the image encoder is one unit, whole from its forward to backward's end
    } units = Units::blocks;  // fsdp
    enum class ShardBy {
      unit,       // a unit's parameters are one flat tensor, reduced as a whole
      parameter,  // each parameter by itself; a unit reduces those that got a gradient
    } shard_by = ShardBy::unit;                 // fsdp
    bool reduce_scatter_unused_params = false;  // fsdp: zeros where a unit ran without a gradient

    friend bool operator==(const Strategy&, const Strategy&) = default;
  } strategy;

  struct Remedy {
    enum class Kind {
      none,
      dummy_image,    // a blank image through the encoder, added to the loss with weight 0
      alternating,    // all ranks train the image path in one step, the text path in the next
      presence_vote,  // if one rank has no image, no rank uses images in this step
      gradient_mask,  // gradients of dummies are dropped; gradients that no rank has are not used
      empty_image,    // no picture at all through the encoder, added to the loss with weight 0
    } kind = Kind::none;
    enum class Average {
      world,         // over all ranks, dummies included
      contributors,  // over the ranks that had images
    } average = Average::world;

    friend bool operator==(const Remedy&, const Remedy&) = default;
  } remedy;

  Fault fault = Fault::none;  // a deliberate mistake

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
      int steps = 1;                             // micro-batches per optimizer step
      std::vector<std::pair<int, int>> by_rank;  // ranks with another number: a mistake

      friend bool operator==(const Accumulation&, const Accumulation&) = default;
      int of(int rank) const;
    } accumulation;
    struct Schedule {
      int warmup_steps = 0;  // the learning rate grows linearly over these steps
      enum class Decay { constant, cosine } decay = Decay::constant;

      friend bool operator==(const Schedule&, const Schedule&) = default;
    } schedule;
    struct Clip {
      std::optional<double> image, text, fusion;  // limit of each group's gradient norm

      friend bool operator==(const Clip&, const Clip&) = default;
      bool any() const { return image || text || fusion; }
    } clip;
    enum class Precision { float32, bfloat16, float16 } precision = Precision::float32;
    struct LossScale {  // for float16
      double initial = 65536;
      int growth_interval = 2000;  // steps without overflow after which the scale doubles

      friend bool operator==(const LossScale&, const LossScale&) = default;
    } loss_scale;
    struct Checkpoint {
      std::string folder;     // empty: none
      int every = 0;          // steps; 0: never
      bool gathered = false;  // one file with whole parameters; else a file per rank
      bool resume = false;    // continue from the last one in the folder, if there is one
      bool barrier = false;   // all ranks wait for each other after each checkpoint

      friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
    } checkpoint;
    bool evaluate = false;  // after training: caption retrieval on held-out items, on rank 0
    // Between steps every rank continues the texts of its batch until its own end.
    struct Generate {
      int every = 0;             // steps; 0: never
      int tokens = 8;            // after which a rank's texts end …
      bool synced = false;       // all ranks run the model until the last one's texts have ended
      struct End {               // … unless one of these applies
        std::vector<int> ranks;  // empty: every rank
        std::vector<std::int64_t> steps;  // empty: every step
        int after = 0;                    // tokens

        friend bool operator==(const End&, const End&) = default;
      };
      std::vector<End> ends;

      friend bool operator==(const Generate&, const Generate&) = default;
    } generate;

    friend bool operator==(const Train&, const Train&) = default;
  } train;

  // Which tensors' values the ranks record as fingerprints (docs/trace-format.md). Nothing without
  // the key "watch"; every tenth step if the key does not say.
  struct Watch {
    int every = 0;  // steps; 0: never
    bool gradients = true, parameters = true, buffers = false, optimizer = false;
    int sketch = 8;  // values per sketch; 0: no sketches

    friend bool operator==(const Watch&, const Watch&) = default;
  } watch;

  struct Limits {
    double hang_after_s = 20;  // workers give up if no rank recorded anything for this long
    double total_s = 300;      // for the whole run

    friend bool operator==(const Limits&, const Limits&) = default;
  } limits;

  struct Expect {
    std::string verdict;             // "clean", "findings", "inconclusive"
    std::vector<std::string> rules;  // the leading finding must have one of these
    std::optional<std::vector<int>> culprits;
    std::optional<std::int64_t> step;
    enum class Ends {
      completed,  // every worker finished its steps
      stopped,    // a hang was proven, and the job was ended
      failed,     // a worker died or gave up by itself
    };
    std::optional<Ends> ends;

    friend bool operator==(const Expect&, const Expect&) = default;
  };
  std::optional<Expect> expect;

  friend bool operator==(const Scenario&, const Scenario&) = default;

  // The first rule that applies to this rank's batch in this step; null if none does. The
  // alternating remedy makes its own rules: images in every second step.
  const Data::Rule* rule_for(int rank, std::int64_t step) const;
  // The factor of this rank's pixels in this step; 1 without an outlier.
  double outlier_factor(int rank, std::int64_t step) const;
  // Whether texts are generated after this step; and after how many tokens this rank's end, 0
  // where none are.
  bool generates_after(std::int64_t step) const;
  int generated_tokens(int rank, std::int64_t step) const;
  // How often the image encoder runs for a batch that holds all that the rules name: twice where a
  // rule has images and videos.
  int tower_runs() const;
  // The ranks of 0 … ranks - 1 that ever have images by the modality rules, ascending.
  std::vector<std::int32_t> ranks_with_images(int ranks) const;
  // The number of ranks that hold one copy of the model together and train on one batch: the number
  // of stages of a pipeline, else 1.
  int ranks_of_replica() const;
  // How many consecutive ranks are a copy of the model that has groups of its own: the stages of a
  // pipeline, the shards of HSDP. 0: none are, or all together.
  int ranks_of_copy() const;
  // This rank's micro-batches per optimizer step: the pipeline's, or those of accumulation.
  int micro_batches(int rank) const;
  // Whether it replays the calls of a recorded run: then there is no model, no data and no
  // training.
  bool replays() const { return !replay.empty(); }
};

// Reads and checks a scenario file. Errors: the file cannot be read, is not YAML, does not match
// the schema, or has keys that contradict each other (for example a culprit that is not a rank).
Result<Scenario> load_scenario(const std::string& path);
// The same from memory; `file` names it in errors.
Result<Scenario> parse_scenario(const std::string& text, const std::string& file);

// Where the value at a JSON pointer is in the scenario's file, which is read again for it: an error
// that comes after loading names its line, too. Where the file does not have the value, the nearest
// one around it; where it cannot be read any more, the file alone.
Location location_in(const Scenario& scenario, const std::string& pointer);

// Whether the files that it names are there: data, vocabulary, weights. Names with a pattern, such
// as shards/train-{000..007}.tar, are left to the data set, which expands them and looks for each.
Status check_named_files(const Scenario& scenario);

// The JSON Schema of the format, as text.
std::string_view scenario_schema();

// Several NCCL ranks on one GPU, for tests.
//
// NCCL refuses two ranks on one device because it sees two processes of one host. If each rank has
// its own host identity, NCCL takes them for ranks of different hosts and connects them over
// sockets. That is slow, so times are meaningless, but the semantics are NCCL's own.

// The environment variables that a rank needs for this, as names and values. LOCKSTEP_SHARE_GPUS is
// for the worker: it then uses the device local rank modulo number of devices.
std::vector<std::pair<std::string, std::string>> sharing_environment(int rank);

}  // namespace lockstep::runtime
