// A worker without LibTorch: called like lockstep-worker, it plays the rank's part in the piece
// that the scenario's name says, and writes a real ring file.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "job/scenario.h"
#include "trace/ring_writer.h"

namespace {

using lockstep::End;
using lockstep::RingWriter;

struct Arguments {
  std::string scenario, trace;
  int rank = 0, world_size = 1;
};

// train SCENARIO --rank R --world-size N --store FILE --trace DIR
Arguments parse(int argc, char** argv) {
  Arguments out;
  out.scenario = argv[2];
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    if (key == "--rank") out.rank = std::atoi(argv[i + 1]);
    if (key == "--world-size") out.world_size = std::atoi(argv[i + 1]);
    if (key == "--trace") out.trace = argv[i + 1];
  }
  return out;
}

[[noreturn]] void sleep_for_ever() {
  while (true) pause();
}

class FakeRank {
 public:
  explicit FakeRank(const Arguments& arguments) : rank_(arguments.rank) {
    RingWriter::Options options;
    options.path = arguments.trace + "/rank_" + std::to_string(rank_) + ".ring";
    options.rank = lockstep::Rank(rank_);
    options.world_size = arguments.world_size;
    options.capacity = 1024;
    ring_ = std::move(*RingWriter::create(options));
    std::vector<std::int32_t> all(static_cast<std::size_t>(arguments.world_size));
    std::iota(all.begin(), all.end(), 0);
    world_ = ring_->make_group("world", all);
    RingWriter::SignatureFields fields;
    fields.op = lockstep::Op::all_reduce;
    fields.in = fields.out = {{16}};
    fields.has_in = fields.has_out = true;
    fields.dtypes = {"float32"};
    fields.redop = "sum";
    signature_ = ring_->make_signature(fields);
  }

  // Issues an all_reduce and begins to wait for it.
  std::uint32_t begin_reduce(int step) {
    RingWriter::Issue issue;
    issue.group = world_;
    issue.signature = signature_;
    issue.step = step;
    issue.seq = calls_++;
    issue.is_async = true;
    const std::uint32_t call = ring_->issue(issue);
    ring_->wait(call);
    return call;
  }

  void step(int number) {
    const std::uint32_t call = begin_reduce(number);
    ring_->complete(call);
    ring_->waited(call);
    ring_->step(number, loss_ / (number + 1), 8);
  }

  void lose(double loss) { loss_ = loss; }
  void finish(End end) { ring_->finish(end); }

 private:
  int rank_;
  std::unique_ptr<RingWriter> ring_;
  RingWriter::GroupRef world_;
  RingWriter::SignatureRef signature_;
  std::uint32_t calls_ = 0;
  double loss_ = 1;
};

int play(const std::string& piece, FakeRank& rank, bool deviant) {
  rank.step(0);
  if (piece == "finish") {
    rank.step(1);
  } else if (piece == "one rank stops early") {
    if (!deviant) {
      rank.begin_reduce(1);
      sleep_for_ever();
    }
  } else if (piece == "one rank aborts") {
    if (deviant) std::abort();
    rank.begin_reduce(1);
    sleep_for_ever();
  } else if (piece == "long computation") {
    sleep_for_ever();
  } else if (piece == "deaf to SIGTERM") {
    signal(SIGTERM, SIG_IGN);
    sleep_for_ever();
  } else if (piece == "one rank fails") {
    if (deviant) {
      rank.finish(End::exception);
      return 1;
    }
  }
  rank.finish(End::clean);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const auto scenario = lockstep::load_scenario(arguments.scenario);
  if (!scenario || scenario->name == "no trace") {
    std::fprintf(stderr, "cannot find the data\n");
    return 3;
  }
  std::printf("rank %d of %d plays \"%s\"\n", arguments.rank, arguments.world_size,
              scenario->name.c_str());
  std::fflush(stdout);
  FakeRank rank(arguments);
  if (scenario->name == "finish, alone with another loss") {
    if (arguments.world_size == 1) rank.lose(1.001);
    return play("finish", rank, false);
  }
  return play(scenario->name, rank, arguments.rank == 1);
}
