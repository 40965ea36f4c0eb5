// Keys of a scenario that are each valid and contradict each other, such as an option of another
// strategy. The schema cannot say these rules; each has its message and fix here.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/documents/document_reader.h"
#include "base/text.h"
#include "runtime/job/scenario_decode.h"

namespace lockstep::runtime {

namespace {

using Json = nlohmann::json;

class Contradictions {
 public:
  Contradictions(const YamlDocument& document, const Scenario& scenario)
      : read_(document), scenario_(scenario) {}

  // The order of the checks is the order of importance: the first contradiction is reported.
  std::optional<Error> find() {
    check_replay();
    check_gpus();
    check_modality();
    check_data();
    check_strategy();
    check_pipeline();
    check_balance();
    check_fsdp();
    check_ddp_and_groups();
    check_remedy();
    check_fault();
    check_train();
    check_generate();
    check_expect();
    return read_.problem();
  }

 private:
  void require_rank(std::int64_t rank, const std::string& pointer) {
    if (rank >= scenario_.ranks) read_.refuse(pointer, no_rank(rank), ranks_fix());
  }

  void require_step(std::int64_t step, const std::string& pointer) {
    if (step >= scenario_.train.steps)
      read_.refuse(pointer,
                   fmt::format("there is no step {}: the job has {}", step,
                               plural(scenario_.train.steps, "step")),
                   "steps count from 0");
  }

  std::string no_rank(std::int64_t rank) const {
    return fmt::format("there is no rank {}: the job has {}", rank,
                       plural(scenario_.ranks, "rank"));
  }

  std::string ranks_fix() const {
    return scenario_.ranks == 1
               ? "rank 0 is the only one, or raise \"ranks\""
               : fmt::format("ranks are 0 to {}, or raise \"ranks\"", scenario_.ranks - 1);
  }

  // Calls `require` with every number of the list at `pointer`, if there is one.
  template <class Require>
  void each(const std::string& pointer, Require require) {
    if (!read_.has(pointer)) return;
    const Json& list = read_.at(pointer);
    for (std::size_t i = 0; i < list.size(); ++i)
      require(list[i].get<std::int64_t>(), fmt::format("{}/{}", pointer, i));
  }

  // A replay takes none of the keys of training.
  void check_replay() {
    if (!scenario_.replays()) return;
    for (const std::string key :
         {"model", "data", "strategy", "remedy", "fault", "train", "watch", "study"}) {
      if (read_.has("/" + key))
        read_.refuse_key(
            "/" + key,
            fmt::format("a replay only makes the calls of a recorded run: it has no \"{}\"", key),
            "remove it, or remove \"replay\"");
    }
  }

  void check_gpus() {
    // NCCL refuses two ranks on one GPU unless they pretend to be on different hosts. This key asks
    // for that.
    if (scenario_.share_gpus && scenario_.backend != Scenario::Backend::nccl)
      read_.refuse_key(
          "/gpus", "\"gpus: shared\" is an option of nccl: ranks on gloo may share a GPU anyway",
          "remove it, or write \"backend: nccl\"");
  }

  void check_modality() {
    const std::string pointer = "/data/modality";
    const auto rank = [&](std::int64_t r, const std::string& at) { require_rank(r, at); };
    const auto step = [&](std::int64_t s, const std::string& at) { require_step(s, at); };
    const std::vector<Scenario::Data::Rule>& rules = scenario_.data.modality;
    // Two forms: {rank 1: [text]}, decoded to one rule per rank, or a list of rules.
    const bool mapping = read_.has(pointer) && read_.at(pointer).is_object();
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const std::string item = fmt::format("{}/{}", pointer, i);
      const std::string entry =
          mapping ? fmt::format("{}/rank {}", pointer, rules[i].ranks[0]) : item;
      if (mapping && rules[i].ranks[0] >= scenario_.ranks)
        read_.refuse_key(entry, no_rank(rules[i].ranks[0]), ranks_fix());
      each(item + "/ranks", rank);
      each(item + "/steps", step);
      if (rules[i].shows(Modality::video)) check_video(mapping ? entry : item + "/has");
      // The losses are defined on text, and on text with images.
      if (!rules[i].shows(Modality::text))
        read_.refuse_key(mapping ? entry : item + "/has",
                         "a batch of images alone has no loss here",
                         "write [image, text] or [text]");
    }
  }

  void check_video(const std::string& pointer) {
    const Scenario::Data& data = scenario_.data;
    if (scenario_.strategy.kind == Scenario::Strategy::Kind::pipeline || data.broadcast ||
        data.balance != Scenario::Data::Balance::none)
      read_.refuse_key(pointer, "videos are neither sent to other ranks nor distributed by cost",
                       "write [image, text], or remove the pipeline, \"broadcast\" or \"balance\"");
    using Remedy = Scenario::Remedy::Kind;
    if (scenario_.remedy.kind == Remedy::gradient_mask)
      read_.refuse_key(pointer, "a mask drops the gradients of a whole batch, not those of one run",
                       "write \"remedy: dummy-image\"");
  }

  void check_data() {
    const bool manifest = scenario_.data.source == "manifest";
    if (manifest && scenario_.data.manifest.empty())
      read_.refuse_key("/data/source", "the source is a manifest, but \"manifest\" names none",
                       "write \"manifest: FILE or FOLDER\" beside it");
    if (manifest && scenario_.data.vocab.empty())
      read_.refuse_key("/data/source",
                       "a manifest's texts need a vocabulary, but \"vocab\" names none",
                       "write \"vocab: vocab.txt\"; `scripts/fetch-minilm` fetches one");
    for (const std::string key : {"manifest", "vocab"}) {
      if (!manifest && read_.has("/data/" + key))
        read_.refuse_key("/data/" + key,
                         fmt::format("\"{}\" belongs to the source \"manifest\"", key),
                         "write \"source: manifest\" beside it");
    }
    for (const std::string key : {"items", "text_only"}) {
      if (manifest && read_.has("/data/" + key))
        read_.refuse_key("/data/" + key,
                         fmt::format("\"{}\" belongs to the source \"shapes\"", key),
                         "remove it: a manifest says what it holds");
    }
    if (scenario_.model.head != "fusion" && read_.has("/model/fusion"))
      read_.refuse_key("/model/fusion", "\"fusion\" belongs to the head \"fusion\"",
                       "write \"head: fusion\" beside it");
  }

  void check_strategy() {
    static const std::vector<std::pair<std::string, std::vector<std::string>>> kOptions = {
        {"manual", {"process_groups"}},
        {"ddp",
         {"find_unused_parameters", "bucket_cap_mb", "first_bucket_mb", "broadcast_buffers",
          "gradient_as_bucket_view", "no_sync", "static_graph", "skip_all_reduce_unused_params",
          "compression"}},
        {"pipeline", {"stages", "micro_batches", "schedule", "exchange_lengths"}},
        {"fsdp", {"shard_ranks", "prefetch", "units", "shard_by", "reduce_scatter_unused_params"}}};
    // Reads the document, because in the struct an option that was not given has its default.
    const Json& strategy = read_.root().value("strategy", Json());
    const std::string kind = strategy.is_object() ? strategy["kind"].get<std::string>() : "";
    for (const auto& [owner, keys] : kOptions) {
      for (const std::string& key : keys) {
        if (owner == kind || !read_.has("/strategy/" + key)) continue;
        read_.refuse_key(
            "/strategy/" + key,
            fmt::format("\"{}\" is an option of {}, but the strategy is {}", key, owner, kind),
            fmt::format("remove it, or write \"kind: {}\"", owner));
      }
    }
  }

  void check_ddp_and_groups() {
    const Scenario::Strategy& strategy = scenario_.strategy;
    if (strategy.skip_all_reduce_unused_params && !strategy.find_unused_parameters)
      read_.refuse_key("/strategy/skip_all_reduce_unused_params",
                       "DDP knows unused parameters only if it searches for them",
                       "write \"find_unused_parameters: true\" beside it");
    if (strategy.static_graph && strategy.find_unused_parameters)
      read_.refuse_key("/strategy/static_graph",
                       "a static graph does not search: its first step decides which are unused",
                       "remove \"find_unused_parameters\"");
    const bool image_ranks = strategy.process_groups == Scenario::Strategy::Groups::image_ranks;
    if (image_ranks && scenario_.ranks_with_images(scenario_.ranks).empty())
      read_.refuse_key("/strategy/process_groups", "no rank ever has images",
                       "write \"process_groups: one\", or let a rank have images");
    if (image_ranks && scenario_.data.balance != Scenario::Data::Balance::none)
      read_.refuse_key("/strategy/process_groups", "distributing by cost gives every rank images",
                       "write \"process_groups: one\"");
    if (!scenario_.train.checkpoint.gathered) return;
    if (strategy.kind == Scenario::Strategy::Kind::pipeline || image_ranks)
      read_.refuse_key("/train/checkpoint/layout",
                       "no rank has all parameters as they are trained, and none gathers them",
                       "write \"layout: per-rank\"");
  }

  void check_fsdp() {
    const bool fsdp = scenario_.strategy.kind == Scenario::Strategy::Kind::fsdp;
    const int given = scenario_.strategy.shard_ranks;
    // 0: shard over all ranks.
    const int shard = given == 0 ? scenario_.ranks : given;
    if (fsdp && scenario_.ranks % shard != 0)
      read_.refuse_key(
          "/strategy/shard_ranks",
          fmt::format("{} cannot be cut into groups of {}", plural(scenario_.ranks, "rank"), shard),
          "choose a divisor of \"ranks\", or leave it out to shard over all of them");
  }

  // Options that the pipeline does not support are refused rather than ignored.
  void check_pipeline() {
    if (scenario_.strategy.kind != Scenario::Strategy::Kind::pipeline) return;
    const int stages = scenario_.ranks_of_replica();
    if (scenario_.ranks % stages != 0)
      read_.refuse_key(
          "/ranks",
          fmt::format("a pipeline has {} stages, one to a rank, but {} cannot be distributed among "
                      "them",
                      stages, plural(scenario_.ranks, "rank")),
          fmt::format("make \"ranks\" a multiple of {}", stages));
    using Remedy = Scenario::Remedy::Kind;
    const Remedy remedy = scenario_.remedy.kind;
    if (remedy != Remedy::none && remedy != Remedy::alternating)
      read_.refuse_key(
          "/remedy",
          "a micro-batch without images needs no remedy in a pipeline: nothing is sent for "
          "it",
          "remove \"remedy\"");
    if (scenario_.model.negatives != Scenario::Model::Negatives::local)
      read_.refuse_key("/model/negatives", "a pipeline's loss is computed for each micro-batch",
                       "write \"negatives: local\"");
    if (scenario_.model.image_experts)
      read_.refuse_key("/model/image_experts", "a pipeline carries no videos to tell them apart",
                       "remove it, or choose another strategy");
    const Scenario::Train& train = scenario_.train;
    if (train.accumulation != Scenario::Train::Accumulation())
      read_.refuse_key("/train/accumulation", "a pipeline accumulates over its micro-batches",
                       "remove it, and set \"micro_batches\" of the strategy");
    if (train.precision != Scenario::Train::Precision::float32)
      read_.refuse_key("/train/precision", "the stages exchange float32",
                       "write \"precision: float32\"");
    if (scenario_.data.broadcast)
      read_.refuse_key("/data/broadcast", "the ranks of a pipeline read their replica's batch",
                       "remove it, or choose another strategy");
    check_replica_rules(stages);
  }

  // The stages of a replica read the same batch, so rules may only name a replica's first rank.
  void check_replica_rules(int stages) {
    const auto check = [&](const std::string& pointer, const auto& rules) {
      for (const auto& rule : rules) {
        for (const int rank : rule.ranks) {
          if (rank % stages == 0) continue;
          // Of 4 stages, rank 6 is stage 2 of the replica that begins with rank 4.
          const std::string first = std::to_string(rank - rank % stages);
          read_.refuse_key(
              pointer, fmt::format("rank {} reads the batch of its replica's rank {}", rank, first),
              fmt::format("name rank {} instead", first));
        }
      }
    };
    check("/data/modality", scenario_.data.modality);
    check("/data/outliers", scenario_.data.outliers);
  }

  // Balancing redistributes the items of all ranks. So an item must count equally on every rank,
  // and no rule may depend on which rank has it.
  void check_balance() {
    const Scenario::Data& data = scenario_.data;
    if (data.balance == Scenario::Data::Balance::none) {
      if (read_.has("/data/balance_every"))
        read_.refuse_key("/data/balance_every", "\"balance_every\" belongs to \"balance: cost\"",
                         "write \"balance: cost\" beside it");
      return;
    }
    const auto refuse = [&](const std::string& because, const std::string& fix) {
      read_.refuse_key("/data/balance", because, fix);
    };
    if (scenario_.strategy.kind == Scenario::Strategy::Kind::pipeline)
      refuse("the stages of a pipeline train on one batch",
             "remove it, or choose another strategy");
    if (scenario_.fault == Fault::unsharded_data || data.broadcast)
      refuse("ranks that train on the same items have nothing to distribute",
             "remove it, or \"fault: unsharded-data\" and \"broadcast\"");
    for (const Scenario::Data::Rule& rule : data.modality) {
      if (!rule.ranks.empty())
        refuse("an item may go to any rank, but \"modality\" has rules for single ranks",
               "leave \"ranks\" out of its rules, or set \"text_only\" and \"sampler: grouped\"");
    }
    if (!scenario_.train.accumulation.by_rank.empty())
      refuse("the ranks have different numbers of batches", "give all the same \"accumulation\"");
    using Remedy = Scenario::Remedy;
    if (scenario_.fault == Fault::alternating_per_rank)
      refuse("an item may go to any rank, but each rank alternates at its own time",
             "remove \"fault: alternating-per-rank\"");
    if (scenario_.remedy.average != Remedy::Average::world)
      refuse("the losses are already weighted by which ranks have images",
             "write \"average: world\"");
  }

  void check_remedy() {
    using Kind = Scenario::Remedy::Kind;
    const Kind kind = scenario_.remedy.kind;
    const bool averages = kind == Kind::dummy_image || kind == Kind::gradient_mask;
    if (!averages && read_.has("/remedy/average"))
      read_.refuse_key("/remedy/average",
                       "\"average\" is an option of dummy-image and gradient-mask only",
                       "remove it, or choose one of these");
    if (kind == Kind::alternating && !scenario_.data.modality.empty())
      read_.refuse_key("/data/modality", "the alternating remedy says which batch holds what",
                       "remove \"modality\", or choose another remedy");
  }

  void require_for_fault(bool holds, const std::string& because, const std::string& fix) {
    if (!holds) read_.refuse_key("/fault", because, fmt::format("{}, or remove \"fault\"", fix));
  }

  void require_remedy(Scenario::Remedy::Kind kind, const std::string& name) {
    require_for_fault(
        scenario_.remedy.kind == kind,
        fmt::format("this is a mistake in the remedy {}, which the job does not have", name),
        fmt::format("write \"remedy: {}\"", name));
  }

  void require_strategy(Scenario::Strategy::Kind kind, const std::string& name) {
    require_for_fault(scenario_.strategy.kind == kind,
                      fmt::format("this mistake can be made only under the strategy {}", name),
                      fmt::format("write \"strategy: {}\"", name));
  }

  void require_clip() {
    require_for_fault(scenario_.train.clip.any(), "this job clips no gradients",
                      "set \"train: {clip: {image: 1.0}}\"");
  }

  // Refuses a fault that would change nothing in this job.
  void check_fault() {
    using Remedy = Scenario::Remedy;
    using Strategy = Scenario::Strategy;
    const Scenario::Train& train = scenario_.train;
    const bool float16 = train.precision == Scenario::Train::Precision::float16;
    constexpr int kMinToCross = 3;  // with fewer micro-batches the two orders are the same
    switch (scenario_.fault) {
      case Fault::none:
      case Fault::unsharded_data:
      case Fault::no_reshuffle:
      case Fault::zero_grad_forgotten:
        return;
      case Fault::detached_negatives:
        return require_for_fault(scenario_.model.negatives == Scenario::Model::Negatives::global,
                                 "this job gathers no negatives",
                                 "write \"negatives: global\" in \"model\"");
      case Fault::gradients_summed:
      case Fault::gradients_not_reduced:
        return require_strategy(Strategy::Kind::manual, "manual");
      case Fault::crossed_stages:
        require_strategy(Strategy::Kind::pipeline, "pipeline");
        return require_for_fault(scenario_.strategy.micro_batches >= kMinToCross,
                                 "with fewer than three micro-batches the orders do not cross",
                                 "make \"micro_batches\" 3 or more");
      case Fault::lengths_sent_first:
        require_strategy(Strategy::Kind::pipeline, "pipeline");
        return require_for_fault(scenario_.strategy.exchange_lengths,
                                 "the stages exchange no lengths",
                                 "write \"exchange_lengths: true\" in \"strategy\"");
      case Fault::dummy_outside_graph:
      case Fault::dummy_in_batchnorm:
        return require_remedy(Remedy::Kind::dummy_image, "dummy-image");
      case Fault::dummy_not_recomputed:
        require_remedy(Remedy::Kind::dummy_image, "dummy-image");
        require_for_fault(
            scenario_.model.activation_checkpointing == Scenario::Model::Checkpointing::encoders,
            "this job's encoders do not run again in backward",
            "write \"activation_checkpointing: encoders\" in \"model\"");
        require_for_fault(scenario_.strategy.units == Strategy::Units::blocks,
                          "the image encoder stays whole until backward is over",
                          "write \"units: blocks\" in \"strategy\"");
        return require_strategy(Strategy::Kind::fsdp, "fsdp");
      case Fault::alternating_per_rank:
        require_remedy(Remedy::Kind::alternating, "alternating");
        return require_for_fault(scenario_.strategy.kind != Strategy::Kind::pipeline,
                                 "the stages of a pipeline train on one batch",
                                 "choose another strategy");
      case Fault::mask_decayed:
        return require_remedy(Remedy::Kind::gradient_mask, "gradient-mask");
      case Fault::diluted_average:
        return require_for_fault(scenario_.remedy.average == Remedy::Average::contributors,
                                 "this is a mistake in an average over contributors",
                                 "write \"average: contributors\" in \"remedy\"");
      case Fault::clip_before_sync:
        require_clip();
        require_strategy(Strategy::Kind::manual, "manual");
        return require_for_fault(
            !float16,
            "before they are synchronised, float16's gradients are still multiplied by the loss "
            "scale, so their norm says nothing",
            "write \"precision: bfloat16\", which needs no scale");
      case Fault::clip_local_norm:
        require_clip();
        return require_strategy(Strategy::Kind::fsdp, "fsdp");
      case Fault::stalled_network:
        require_for_fault(train.steps > 1, "it begins in step 1", "make \"steps\" 2 or more");
        require_for_fault(scenario_.strategy.shard_ranks == 0, "it shards over all ranks",
                          "remove \"shard_ranks\"");
        return require_strategy(Strategy::Kind::fsdp, "fsdp");
      case Fault::local_overflow:
        return require_for_fault(float16, "only float16 scales its loss, and looks for overflows",
                                 "write \"precision: float16\" in \"train\"");
      case Fault::barrier_on_rank_0:
        return require_for_fault(train.checkpoint.barrier && train.checkpoint.every > 0,
                                 "no checkpoint of this job is followed by a barrier",
                                 "write \"checkpoint: {folder: FOLDER, every: 2, barrier: all}\"");
    }
  }

  void check_train() {
    const Scenario::Train::Checkpoint& checkpoint = scenario_.train.checkpoint;
    if ((checkpoint.every > 0 || checkpoint.resume) && checkpoint.folder.empty())
      read_.refuse_key("/train/checkpoint", "\"folder\" does not say where the checkpoints are",
                       "write \"folder: checkpoints\" beside it");
    const std::string pointer = "/train/accumulation";
    for (const auto& [rank, steps] : scenario_.train.accumulation.by_rank)
      require_rank(rank, fmt::format("{}/rank {}", pointer, rank));
    const auto rank = [&](std::int64_t r, const std::string& at) { require_rank(r, at); };
    const auto step = [&](std::int64_t s, const std::string& at) { require_step(s, at); };
    for (std::size_t i = 0; i < scenario_.data.outliers.size(); ++i) {
      each(fmt::format("/data/outliers/{}/ranks", i), rank);
      each(fmt::format("/data/outliers/{}/steps", i), step);
    }
  }

  void check_generate() {
    const Scenario::Train::Generate& generate = scenario_.train.generate;
    const std::string pointer = "/train/generate";
    if (generate.every == 0) {
      if (generate.synced || !generate.ends.empty())
        read_.refuse_key(pointer, "\"every\" does not say after which steps texts are generated",
                         "write \"every: 1\" in it");
      return;
    }
    if (scenario_.strategy.kind == Scenario::Strategy::Kind::pipeline)
      read_.refuse_key(pointer, "no stage of a pipeline has the whole text encoder",
                       "remove it, or choose another strategy");
    if (scenario_.model.text != "bert-small")
      read_.refuse_key(pointer, "only a causal text encoder continues texts",
                       "write \"text: bert-small\" in \"model\"");
    const auto rank = [&](std::int64_t r, const std::string& at) { require_rank(r, at); };
    const auto step = [&](std::int64_t s, const std::string& at) { require_step(s, at); };
    for (std::size_t i = 0; i < generate.ends.size(); ++i) {
      each(fmt::format("{}/ends/{}/ranks", pointer, i), rank);
      each(fmt::format("{}/ends/{}/steps", pointer, i), step);
    }
  }

  void check_expect() {
    if (!scenario_.expect) return;
    each("/expect/culprits",
         [&](std::int64_t rank, const std::string& at) { require_rank(rank, at); });
    if (scenario_.expect->step && !scenario_.replays())
      require_step(*scenario_.expect->step, "/expect/step");
    const bool clean = scenario_.expect->verdict == "clean";
    for (const std::string key : {"rules", "culprits", "step"}) {
      if (clean && read_.has("/expect/" + key))
        read_.refuse_key("/expect/" + key,
                         fmt::format("a clean run has no leading finding, so no \"{}\"", key),
                         "remove it, or write \"verdict: findings\"");
    }
  }

  DocumentReader read_;
  const Scenario& scenario_;
};

}  // namespace

std::optional<Error> find_contradiction(const YamlDocument& document, const Scenario& scenario) {
  return Contradictions(document, scenario).find();
}

}  // namespace lockstep::runtime
