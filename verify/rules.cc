#include "verify/rules.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::verify {

namespace {

// By the analyses: what the recorded run shows is seen; what a wait in all schedules, or recorded
// values show is proven; what only another schedule would show is possible.
constexpr Certainties kProven{.proven = true};
constexpr Certainties kSeen{.observed = true};
constexpr Certainties kSeenOrProven{.proven = true, .observed = true};
constexpr Certainties kAnyCertainty{.proven = true, .observed = true, .possible = true};

constexpr std::array kRules = {
    Rule{RuleId::op_mismatch, "op-mismatch", "matching", Severity::error, kSeenOrProven,
         "ranks meet in different operations",
         "At the same place of a process group's sequence some ranks issued one operation and "
         "others "
         "another (all_reduce against broadcast, say). Collectives of a group are paired by their "
         "order, not by what they are, so these two were paired. Usually a branch on the rank, on "
         "the data, or on an exception that only some ranks took. Not said where the ranks agree "
         "again after leaving out a call: that is a missing or an extra collective.",
         "make every rank take the same branch, or agree on the branch first (all_reduce a flag)"},
    Rule{RuleId::missing_collective, "missing-collective", "matching", Severity::error,
         kSeenOrProven, "a rank left out a collective that its peers issued",
         "Aligned with its peers, the rank's sequence lacks one or more calls and then goes on as "
         "theirs does. Everything that it issued afterwards is paired with the wrong call. Found "
         "from the calls' operation, size, type, parameters and step, whichever were recorded. Or "
         "the rank already is in the call of another group, before which its peers, or the ranks "
         "of groups of the same kind, made that one.",
         "issue the call on every rank, with zeros where a rank has nothing to give"},
    Rule{RuleId::extra_collective, "extra-collective", "matching", Severity::error, kSeenOrProven,
         "a rank issued a collective that its peers did not",
         "Aligned with its peers, the rank's sequence has one or more calls more and then goes on "
         "as "
         "theirs does: logging, saving or evaluating on one rank with a collective inside, or one "
         "more iteration of a loop.",
         "move the call out of the rank-only branch, or let every rank take part in it"},
    Rule{
        RuleId::size_mismatch, "size-mismatch", "matching", Severity::error, kSeenOrProven,
        "ranks meet with tensors of different sizes",
        "The same operation at the same place of the sequence, with element counts that do not fit "
        "together. NCCL then hangs or reads garbage; Gloo aborts the process of the smaller side. "
        "Shapes may differ; only the counts of elements must fit.",
        "pad to a common size, or exchange the sizes first"},
    Rule{RuleId::dtype_mismatch, "dtype-mismatch", "matching", Severity::error, kSeenOrProven,
         "ranks meet with tensors of different types",
         "The same call with different element types: bytes of one type are read as the other. "
         "Often autocast, or a checkpoint that was loaded in another precision on some ranks.",
         "cast to one type before the call on every rank"},
    Rule{RuleId::redop_mismatch, "redop-mismatch", "matching", Severity::error, kSeenOrProven,
         "ranks meet with different reduce operations",
         "The same call, but one rank asks for the sum and another for the maximum, say. Nothing "
         "hangs; the result depends on which rank computed which part.",
         "use the same reduce operation on every rank"},
    Rule{
        RuleId::root_mismatch, "root-mismatch", "matching", Severity::error, kSeenOrProven,
        "ranks disagree on the root of a rooted collective",
        "Two ranks believe to be, or to listen to, different roots: both send, or both wait. Roots "
        "are global ranks; passing a group rank is the usual mistake.",
        "compute the root from the group on every rank alike (dist.get_global_rank)"},
    Rule{RuleId::splits_mismatch, "splits-mismatch", "matching", Severity::error, kSeenOrProven,
         "an all-to-all's split sizes do not fit together",
         "What one rank sends to another is not what that one expects from it. Each total may be "
         "right, so that a comparison of sizes sees nothing.",
         "exchange the split sizes first (all_to_all of the counts), then the data"},
    Rule{
        RuleId::group_divergence, "group-divergence", "matching", Severity::error, kAnyCertainty,
        "ranks disagree on a process group, or on the order in which groups were created",
        "Under one name the ranks made groups with different members, so that calls wait for ranks "
        "that never come. Or they created groups in different orders: creating one may wait for "
        "its members (Gloo, NCCL and MPI), so that ranks that share two groups wait in one each; "
        "and where names are counted, as new_group does, different groups get one name (their "
        "descriptions are then exchanged). Without a hang it is a warning: possible. Not said of "
        "groups that have an order which suits every rank, however few each rank is in; of ranks "
        "whose traces do not tell the order; of groups that have a name but no member in common.",
        "create every group on all ranks, in the same order, with the same sorted list"},
    Rule{RuleId::order_swap, "order-swap", "matching", Severity::error, kSeenOrProven,
         "a rank issued calls of one group in another order",
         "The same calls, but in a different order than its peers: iteration over a set or a dict, "
         "or gradients that become ready in another order.",
         "sort by name (or by registration order) before issuing"},
    Rule{RuleId::identity_mismatch, "identity-mismatch", "matching", Severity::error, kSeenOrProven,
         "the same call carries different parameters on different ranks",
         "Operation, size and type agree, so that nothing hangs, but the ranks put different "
         "parameters in: unlike tensors are summed and training goes on with garbage. Seen only "
         "where the trace records what a call carries.",
         "order the calls by parameter name; give every parameter a gradient on every rank"},
    Rule{RuleId::step_mismatch, "step-mismatch", "matching", Severity::warning, kSeen,
         "ranks meet in calls of different training steps",
         "Form and number of the calls agree, so that nothing hangs, but for a step or more a rank "
         "is ahead or behind: it left out a whole step, and its gradients are combined with those "
         "of another one, until it leaves out one less or the run ends. An error where the calls "
         "name the same parameters. Seen only where the trace records steps. A label that is late "
         "by a few calls is not reported.",
         "skip a step on all ranks or on none: all_reduce the decision"},
    Rule{
        RuleId::deadlock, "deadlock", "blocking", Severity::error, kAnyCertainty,
        "ranks wait for each other and none can go on",
        "Each of the ranks named is blocked in a call that can only complete when another of them "
        "goes on. Matching without wildcards is unique and what can complete stays able to, so "
        "that every schedule ends here: the deadlock is proven, not guessed from a time-out. Under "
        "MPI it is possible where only an MPI that lets collectives synchronise comes to it.",
        "look at the first call at which the ranks part"},
    Rule{RuleId::cross_group_deadlock, "cross-group-deadlock", "blocking", Severity::error,
         kAnyCertainty, "ranks entered two process groups in opposite orders",
         "One rank waits in group A for a peer that waits in group B for the first. Within each "
         "group everything matches, so checks per communicator see nothing. Where it shows that a "
         "rank left out its call in A, that is a missing-collective. With NCCL it is possible (a "
         "warning) where asynchronous calls of two communicators are under way at once in opposite "
         "orders: their kernels may keep each other from running.",
         "issue the calls of the two groups in one order on all ranks"},
    Rule{RuleId::p2p_unmatched, "p2p-unmatched", "blocking", Severity::error, kAnyCertainty,
         "a send without its receive, or the reverse",
         "The other side finished, or went on, without the matching call (source, destination, tag "
         "and group must agree).",
         "pair every send with a receive of the same tag; mind uneven micro-batch counts"},
    Rule{RuleId::p2p_cycle, "p2p-cycle", "blocking", Severity::error, kAnyCertainty,
         "sends and receives wait for each other in a circle",
         "Each rank of the circle blocks in a point-to-point call whose partner blocks in its own: "
         "everybody sends first, or everybody receives first. Gloo and NCCL sends are rendezvous: "
         "they wait for the receive. MPI may buffer them: a circle that closes only where it does "
         "not is possible, and still an error.",
         "let even ranks send first and odd ranks receive first, or issue both as one batch"},
    Rule{RuleId::p2p_size, "p2p-size", "blocking", Severity::error, kSeenOrProven,
         "a send and its receive differ in size or type",
         "The send and the receive pair by order and tag, but their element counts or types do not "
         "agree: the receiver hangs, fails, or gets only part of the message.",
         "send the shape first, or fix it on both sides"},
    Rule{RuleId::host_stall, "host-stall", "blocking", Severity::error, kSeenOrProven,
         "a rank stopped issuing calls while its peers wait for it",
         "The rank's program did not reach the call at which the others wait, and it waits for "
         "nobody: it died, was killed, is stuck in data loading, or holds a lock.",
         "look at that rank's log and stack; the ranks that wait are victims"},
    Rule{RuleId::device_stall, "device-stall", "blocking", Severity::error, kSeenOrProven,
         "a call that everybody issued does not complete on some rank",
         "All members (of a message: both sides) issued matching calls, and still it did not "
         "finish: a hung kernel, a failed link or a stalled GPU, not a defect of the program.",
         "check the ranks' devices and the network between them (Xid errors, link state)"},
    Rule{
        RuleId::rank_exception, "rank-exception", "blocking", Severity::error, kSeenOrProven,
        "a rank raised an exception while its peers went on",
        "The exception is the cause; the ranks that wait for this one, or lost their connection to "
        "it, are victims.",
        "mend the exception; to end such jobs at once, run with an error-propagating launcher"},
    Rule{RuleId::unequal_iterations, "unequal-iterations", "blocking", Severity::error,
         kSeenOrProven, "ranks ran different numbers of iterations",
         "A rank finished its loop while others still had steps to do: uneven shards without "
         "padding or drop_last, or a data loader that ran dry.",
         "give all ranks the same number of batches (drop_last, padding, or the join context)"},
    Rule{RuleId::never_waited, "never-waited", "lifecycle", Severity::warning, kSeen,
         "an asynchronous operation was never waited for",
         "The rank issued it, never waited, and ended: its result may have been used before it was "
         "there. Said only for ranks whose trace records waits at all, and for calls that their "
         "peers did wait for.",
         "call wait() on the work handle before using the tensor"},
    Rule{RuleId::buffer_race, "buffer-race", "lifecycle", Severity::error, kSeen,
         "a buffer was used while an operation on it was under way",
         "Between an asynchronous call and its wait the buffer belongs to the call. A write into "
         "what "
         "is sent, or any use of what is received, may come before or after the transfer: the "
         "values "
         "are right or wrong by chance. Seen only where the trace records such accesses; reading a "
         "buffer that is only sent is no race.",
         "wait for the operation before touching its buffer, or give it a copy"},
    Rule{
        RuleId::wildcard_race, "wildcard-race", "lifecycle", Severity::error, kAnyCertainty,
        "a receive from any source may take another message, and then it goes wrong",
        "The receive takes whichever message comes first. In another order of the same messages "
        "ranks wait for ever, or a message meets a receive that it does not fit; the order is "
        "given "
        "as evidence. Found by trying the orders that matter; receives that cope with every order "
        "are not named. Also said where a rank raised an exception right behind such receives.",
        "name the source or use a tag of its own for each kind of message; or let one receive cope "
        "with every sender"},
    Rule{
        RuleId::modality_divergence, "modality-divergence", "modality", Severity::error,
        kSeenOrProven,
        "ranks' batches hold different modalities, and their calls part because of it",
        "A rank whose batch lacks a modality skips that branch of the model; its parameters get no "
        "gradient there and their all-reduce is never called, while the other ranks wait in it. "
        "Said when the calls part and the recorded modalities of that step differ in the same way.",
        "feed the branch a dummy input joined to the loss with weight 0 (remedy: dummy-image), use "
        "find_unused_parameters, or balance the modalities over the ranks"},
    Rule{
        RuleId::unused_parameter, "unused-parameter", "modality", Severity::error, kSeenOrProven,
        "parameters without gradient on some ranks stop DDP",
        "DistributedDataParallel found in a later step that parameters got no gradient in the step "
        "before, so that their bucket was never reduced. The rank that raises is the one that "
        "skipped; its peers are blocked inside backward.",
        "find_unused_parameters=True, or give every parameter a gradient in every step"},
    Rule{RuleId::dead_remedy, "dead-remedy", "modality", Severity::error, kSeenOrProven,
         "a dummy input that is not connected to the loss",
         "The branch was computed for the dummy, but its output does not take part in the loss, so "
         "that its parameters still get no gradient.",
         "add 0 * output.sum() to the loss"},
    Rule{
        RuleId::dummy_dilution, "dummy-dilution", "modality", Severity::error, kProven,
        "a gradient is averaged over ranks that had none",
        "Only some ranks' batches held the modality; the others put in zeros, or nothing, and the "
        "sum was still divided by all ranks: the branch trains at a fraction of its learning rate. "
        "An error where the program declares that contributors count (tag average=contributors), "
        "a warning where it declares nothing, and not said where it declares the mean over the "
        "world (average=world). Needs sketches of gradients before and after the synchronisation.",
        "divide by the number of ranks that had a gradient, or declare the mean over the world"},
    Rule{RuleId::decayed_unused, "decayed-unused", "modality", Severity::warning, kSeen,
         "a parameter changed although it had no gradient",
         "Its synchronised gradient was zero, or not there, and the optimiser moved it all the "
         "same: weight decay shrinks it and momentum carries it on, in each step whose batches "
         "lack its modality. Needs parameters and gradients of consecutive steps.",
         "set the gradient to None (zero_grad(set_to_none=True)), so that the optimiser skips it"},
    Rule{
        RuleId::param_divergence, "param-divergence", "numbers", Severity::error, kSeenOrProven,
        "ranks hold different parameters",
        "Replicas must hold the same parameters after every step. The finding names the first step "
        "and tensors that differ, which ranks agree with each other, and how far it spread. A note "
        "where they differ at first and agree after the first synchronisation, or part and agree "
        "again and again (parameters averaged every few steps). Parts of sharded tensors are not "
        "compared.",
        "look at what that step did differently on those ranks; broadcast the parameters at start"},
    Rule{RuleId::grad_divergence, "grad-divergence", "numbers", Severity::error, kSeenOrProven,
         "ranks hold different gradients after synchronising them",
         "A collective gives every rank the same result to the bit. What differs afterwards was "
         "changed on one side, or was synchronised with somebody else's.",
         "look for writes to gradients between the all-reduce and the optimiser, and for hardware "
         "faults on the rank named"},
    Rule{RuleId::buffer_divergence, "buffer-divergence", "numbers", Severity::warning,
         kSeenOrProven, "ranks hold different buffers",
         "BatchNorm's running statistics are made from each rank's own batches: they differ, and "
         "evaluation depends on the rank that saves the checkpoint. A note where broadcasts "
         "overwrite them again and again, as DDP's do.",
         "use SyncBatchNorm, or DDP's broadcast_buffers=True"},
    Rule{RuleId::reduction_wrong, "reduction-wrong", "numbers", Severity::error, kProven,
         "synchronised gradients are not the mean of the ranks' own",
         "Sketches are linear, so that the sketch of the mean must be the mean of the sketches, up "
         "to rounding. Where it is not they tell why: another divisor (a sum that was not divided, "
         "say), a rank left out or counted twice, another tensor in a rank's place, or values that "
         "changed on the way. Without sketches, norms show what is too large to be a mean. The "
         "bound follows from the type, the ranks and the norms, so that another order of summation "
         "is no finding. A program that means the sum says so in the tag (average=sum).",
         "divide once by the number of ranks that take part; let every rank take part once"},
    Rule{RuleId::unsynchronised_step, "unsynchronised-step", "numbers", Severity::error,
         kSeenOrProven, "an update was made from gradients that were not synchronised",
         "The gradient that the optimiser got is the rank's own; or parameters part in a step in "
         "whose interval the trace holds no reduction of their gradient, though it does hold "
         "calls.",
         "synchronise before optimizer.step(): look at no_sync(), at lost hooks, at skipped calls"},
    Rule{RuleId::rank_local_decision, "rank-local-decision", "numbers", Severity::error,
         kSeenOrProven, "a rank decided alone what all must decide alike",
         "Learning rate, loss scale, clipping factor or whether to step differ between ranks; or "
         "parameters part although the synchronised gradients are equal, so that the update itself "
         "differed. Each rank decided from its own numbers.",
         "decide from numbers that were all-reduced (found_inf, the norm), or on one rank that "
         "tells the others"},
    Rule{RuleId::stale_gradient, "stale-gradient", "numbers", Severity::error, kProven,
         "backward added to the gradients of the step before",
         "The gradient that backward found is the last step's synchronised one, or a multiple of "
         "it: zero_grad was left out, and every update contains all the ones before.",
         "call optimizer.zero_grad() once per update, before backward"},
    Rule{
        RuleId::no_sharding, "no-sharding", "data", Severity::error, kSeen,
        "all ranks train on the same samples",
        "Every rank reads the whole data set in the same order, so that the work of all but one is "
        "repeated and the batch is one rank's. Said of ranks whose gradients are averaged, not of "
        "parts of one model (ranks that send each other messages).",
        "give the loader a DistributedSampler with this rank and world size"},
    Rule{RuleId::no_reshuffle, "no-reshuffle", "data", Severity::warning, kSeen,
         "every epoch has the same order",
         "A rank's samples come in one and the same order in each epoch, longer than chance would "
         "have it: set_epoch was not called. A note where the order is that of the data set, which "
         "is not shuffled at all then.",
         "call sampler.set_epoch(epoch) at the start of every epoch"},
    Rule{RuleId::index_misaligned, "index-misaligned", "data", Severity::error, kSeen,
         "images and texts of a batch are not of the same samples",
         "Two loaders of one rank, or two ranks that hold parts of one model, read different "
         "samples for one batch, so that texts are paired with other texts' images. Also said of "
         "ranks whose index maps differ.",
         "read both modalities through one index map and one sampler"},
    Rule{RuleId::overlap, "overlap", "data", Severity::error, kSeen,
         "ranks' shards have samples in common",
         "Samples repeat over the ranks before the epoch is over, beyond what pads the last batch: "
         "samplers with different seeds, data sets or rank numbers. Others are then never seen.",
         "give every rank's sampler the same seed, data set and world size, and its own rank"},
    Rule{
        RuleId::broadcast_as_sync, "broadcast-as-sync", "data", Severity::warning, kSeen,
        "one rank's batch is broadcast to all",
        "All ranks train on the same samples because one rank reads and broadcasts them. The ranks "
        "agree, and the work of all but one is wasted.",
        "shard the data (DistributedSampler) rather than sending one batch to everybody"},
    Rule{
        RuleId::missing_rank, "missing-rank", "input", Severity::note, kSeen,
        "a rank's trace is not there",
        "The headers or groups name a rank of which no file was given. What it did is unknown; the "
        "others are judged without it.",
        "collect that rank's trace as well"},
    Rule{RuleId::damaged_trace, "damaged-trace", "input", Severity::note, kSeen,
         "parts of a trace could not be read",
         "The file was cut off or holds records that make no sense. Everything else in it counts.",
         "collect the file again if it still exists; a killed rank's trace ends like this"},
    Rule{RuleId::rank_killed, "rank-killed", "input", Severity::note, kSeen,
         "ranks were killed, and nothing in the traces says why",
         "A signal ended them: from the scheduler, from somebody, from the kernel when memory ran "
         "out. No rank is left that waits for them, and up to there the calls fit together. What "
         "they would have called next is unknown, so that the verdict is inconclusive. A killed "
         "rank that others wait for is a host-stall; one that died of a mismatch is told with it.",
         "look at the logs of the job, of the scheduler and of the kernel: time limit, preemption, "
         "out of memory"},
    Rule{RuleId::inconsistent_header, "inconsistent-header", "input", Severity::warning, kSeen,
         "traces of one run contradict each other",
         "World sizes differ, or two files claim the same rank: files of different runs, perhaps.",
         "give the files of one run only"},
    Rule{RuleId::job_evidence, "job-evidence", "input", Severity::note, kSeen,
         "what logs, stacks or RAS say of ranks that no finding is about",
         "What lies beside the recorded calls is put with the finding about its rank. What is left "
         "stands here: a warning of NCCL, a stack, a rank that RAS does not reach, a log that "
         "contradicts its rank's trace. It is for people to weigh, and changes no verdict.",
         "read the places that it names"},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRules.size(); ++i) {
    if (static_cast<std::size_t>(kRules[i].id) != i) return false;
  }
  return true;
}
static_assert(in_order(), "rule(id) indexes the table by id");

}  // namespace

std::string_view to_string(Severity s) {
  switch (s) {
    case Severity::note:
      return "note";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "";
}

std::string_view to_string(Certainty c) {
  switch (c) {
    case Certainty::proven:
      return "proven";
    case Certainty::observed:
      return "observed";
    case Certainty::possible:
      return "possible";
  }
  return "";
}

bool Certainties::has(Certainty c) const {
  switch (c) {
    case Certainty::proven:
      return proven;
    case Certainty::observed:
      return observed;
    case Certainty::possible:
      return possible;
  }
  return false;
}

const Rule& rule(RuleId id) {
  const auto index = static_cast<std::size_t>(id);
  LOCKSTEP_CHECK(index < kRules.size(), "a rule without a row in the table");
  return kRules[index];
}

std::optional<RuleId> rule_from_name(std::string_view name) {
  const auto found =
      std::find_if(kRules.begin(), kRules.end(), [&](const Rule& r) { return r.name == name; });
  if (found == kRules.end()) return std::nullopt;
  return found->id;
}

std::span<const Rule> all_rules() { return kRules; }

namespace {

constexpr std::size_t kSuggested = 4;
constexpr std::size_t kLongest = 100;  // no rule's id is so long; bounds the search

// The nearest id first; then those that hold the word, or are of a family of that name.
std::vector<std::string> suggestions(std::string_view word) {
  std::vector<std::string> names;
  for (const Rule& rule : all_rules()) names.emplace_back(rule.name);
  std::vector<std::string> out;
  if (const std::string near = nearest(word, names); !near.empty()) out.push_back(near);
  if (word.size() < 3) return out;
  for (const Rule& rule : all_rules()) {
    const bool related = rule.name.find(word) != std::string_view::npos || rule.family == word;
    const std::string name(rule.name);
    if (related && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

}  // namespace

Result<RuleId> rule_named(std::string_view name) {
  if (const std::optional<RuleId> id = rule_from_name(name)) return *id;
  std::vector<std::string> near = suggestions(name.substr(0, kLongest));
  std::string fix = "`lockstep rules` lists them";
  if (!near.empty()) {
    if (near.size() > kSuggested) near.resize(kSuggested);
    std::string list;
    for (std::size_t i = 0; i < near.size(); ++i)
      list += (i == 0 ? "" : i + 1 == near.size() ? " or " : ", ") + near[i];
    fix = "did you mean " + list + "? " + fix;
  }
  return Error{"no rule \"" + printable(name.substr(0, kLongest)) + "\"", {}, fix};
}

}  // namespace lockstep::verify
