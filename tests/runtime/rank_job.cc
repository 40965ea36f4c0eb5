#include "runtime/rank_job.h"

#include <ATen/Parallel.h>

namespace lockstep {

std::vector<ExitStatus> run_ranks(
    int ranks, const TempDir& folder,
    const std::function<ExitStatus(ProcessGroups& groups, Recorder& recorder)>& body) {
  return spawn(ranks, [&](int rank) {
    at::set_num_threads(1);
    RingWriter::Options options;
    options.path = folder.file("rank_" + std::to_string(rank) + ".ring");
    options.rank = Rank(rank);
    options.world_size = ranks;
    options.capacity = 1 << 12;
    auto ring = RingWriter::create(options);
    Recorder recorder(**ring);
    ProcessGroups groups(folder.file("store"), {rank, ranks}, std::chrono::seconds(20), recorder);
    const ExitStatus status = body(groups, recorder);
    if (status == 0) recorder.ring().finish(End::clean);
    groups.announce_done();
    groups.wait_until_all_are_done(std::chrono::seconds(20));
    return status;
  });
}

}  // namespace lockstep
