#include "tests/runtime/rank_job.h"

#include <iterator>
#include <sstream>
#include <thread>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/faults/faults.h"
#include "runtime/train/result.h"
#include "runtime/train/train_loop.h"

namespace lockstep::runtime {

std::vector<ExitStatus> run_ranks(
    int ranks, const TempDir& folder,
    const std::function<ExitStatus(ProcessGroups& groups, Recorder& recorder)>& body,
    QueuedCalls queued) {
  return spawn(ranks, [&](int rank) {
    at::set_num_threads(1);
    trace::RingWriter::Options options;
    options.path = folder.file("rank_" + std::to_string(rank) + ".ring");
    options.rank = trace::Rank(rank);
    options.world_size = ranks;
    // Room for the whole job, also where a device is slow: then the host waits for each call once
    // more, at the values that it reads.
    options.capacity = 1 << 14;
    auto ring = trace::RingWriter::create(options);
    Recorder recorder(**ring);
    auto device = open_device({.queued = queued});
    ProcessGroups groups(folder.file("store"), {rank, ranks}, std::chrono::seconds(20), recorder,
                         std::move(*device));
    const ExitStatus status = body(groups, recorder);
    while (status == 0 && groups.device().queues() && recorder.outstanding()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (status == 0) recorder.ring().finish(trace::End::clean);
    groups.announce_done();
    // A rank that failed waits for nobody: its peers may be gone without a word.
    if (status == 0) groups.wait_until_all_are_done(std::chrono::seconds(20));
    return status;
  });
}

std::vector<double> losses(const Scenario& s, const TempDir& folder, int ranks,
                           QueuedCalls queued) {
  const auto train = [&](ProcessGroups& groups, Recorder& recorder) {
    WorkerResult result;
    make_train_loop(s, groups, recorder, result)->run();
    if (groups.who().rank != 0) return 0;
    std::ostringstream text;
    text.precision(17);
    for (const double loss : result.losses) text << loss << "\n";
    folder.write("losses", text.str());
    return 0;
  };
  const auto statuses = run_ranks(ranks, folder, train, queued);
  EXPECT_THAT(statuses, testing::Each(0));
  std::istringstream in(TempDir::read(folder.file("losses")));
  return {std::istream_iterator<double>(in), {}};
}

}  // namespace lockstep::runtime
