#include "runtime/record/job_ring.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::runtime {
namespace {

// A rank may write about this many records in a step (manual sync: four for each parameter).
constexpr std::uint64_t kRecordsPerStep = 256;
// … and in each of its micro-batches (pipeline: four messages, each up to four records).
constexpr std::uint64_t kRecordsPerMicroBatch = 16;
// … and where values are watched (three records for each of four values of some hundred tensors).
constexpr std::uint64_t kRecordsPerLook = 2048;
// … and for each token that it generates (an all-gather of each block, and the ranks' agreement).
constexpr std::uint64_t kRecordsPerToken = 16;
constexpr std::uint64_t kMinRecords = std::uint64_t{1} << 14U;  // 1 MiB; the ring is allocated
// A replay is recorded from its first call to its last.
constexpr std::uint64_t kMaxReplayed = std::uint64_t{1} << 21U;  // 128 MiB
constexpr std::uint64_t kMaxRecords = std::uint64_t{1} << 18U;   // 16 MiB  at its full size

}  // namespace

std::string file_of_rank(const std::string& folder, int rank, const char* suffix) {
  return fmt::format("{}/rank_{}{}", folder, rank, suffix);
}

std::uint64_t records_of(const Scenario& scenario, int rank) {
  const auto steps = static_cast<std::uint64_t>(scenario.train.steps);
  const auto parts = static_cast<std::uint64_t>(scenario.micro_batches(rank));
  const std::uint64_t each = kRecordsPerStep + parts * kRecordsPerMicroBatch;
  std::uint64_t records = (steps + 1) * each;
  const Scenario::Train::Generate& generate = scenario.train.generate;
  if (generate.every > 0) {
    int tokens = generate.tokens;
    for (const auto& end : generate.ends) tokens = std::max(tokens, end.after);
    records += steps / static_cast<std::uint64_t>(generate.every) *
               static_cast<std::uint64_t>(tokens + 1) * kRecordsPerToken;
  }
  if (scenario.watch.every > 0) {
    const auto every = static_cast<std::uint64_t>(scenario.watch.every);
    records += (steps + every) / every * kRecordsPerLook;
  }
  return records;
}

Result<std::unique_ptr<trace::RingWriter>> make_job_ring(const Scenario& scenario,
                                                         const JobRing& options) {
  trace::RingWriter::Options ring;
  ring.path = file_of_rank(options.folder, options.rank, ".ring");
  ring.rank = trace::Rank(options.rank);
  ring.world_size = options.world_size;
  ring.backend = scenario.backend == Scenario::Backend::nccl ? "nccl"
                 : options.queued                            ? "gloo-as-nccl"
                                                             : "gloo";
  ring.program = fmt::format("lockstep-worker: {}", scenario.name);
  ring.capacity =
      std::clamp(options.records, kMinRecords, scenario.replays() ? kMaxReplayed : kMaxRecords);
  return trace::RingWriter::create(ring);
}

}  // namespace lockstep::runtime
