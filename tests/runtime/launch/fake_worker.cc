// A worker without LibTorch: called like lockstep-worker, it plays the rank's part in the piece
// that the scenario's name says, and writes a real ring file.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/job/scenario.h"
#include "trace/formats/ring/writer.h"

namespace {

using lockstep::trace::End;
using lockstep::trace::RingWriter;

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

// Maps a segment as NCCL does, and says its name.
void make_segment() {
  std::string path = "/dev/shm/nccl-fake-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0 || ftruncate(file, 4096) != 0) std::abort();
  if (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED) std::abort();
  close(file);
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);
}

// A connection to another rank, as far as it matters here: who dies lets go of its lock.
int open_lock(const Arguments& arguments, int rank) {
  const std::string path = arguments.trace + "/alive_" + std::to_string(rank);
  return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

void print_environment() {
  for (const char* name : {"LOCKSTEP_SHARE_GPUS", "NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_NET",
                           "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "HOME"}) {
    const char* value = std::getenv(name);
    std::printf("%s=%s\n", name, value == nullptr ? "(not set)" : value);
  }
  std::fflush(stdout);
}

class FakeRank {
 public:
  explicit FakeRank(const Arguments& arguments) : rank_(arguments.rank) {
    lockstep::trace::RingWriter::Options options;
    options.path = arguments.trace + "/rank_" + std::to_string(rank_) + ".ring";
    options.rank = lockstep::trace::Rank(rank_);
    options.world_size = arguments.world_size;
    options.capacity = 1024;
    ring_ = std::move(*lockstep::trace::RingWriter::create(options));
    std::vector<std::int32_t> all(static_cast<std::size_t>(arguments.world_size));
    std::iota(all.begin(), all.end(), 0);
    world_ = ring_->make_group("world", all);
    lockstep::trace::RingWriter::SignatureFields fields;
    fields.op = lockstep::trace::Op::all_reduce;
    fields.in = fields.out = {{16}};
    fields.has_in = fields.has_out = true;
    fields.dtypes = {"float32"};
    fields.redop = "sum";
    signature_ = ring_->make_signature(fields);
  }

  // Issues an all_reduce and begins to wait for it.
  std::uint32_t begin_reduce(int step) {
    lockstep::trace::RingWriter::Issue issue;
    issue.group = world_;
    issue.signature = signature_;
    issue.step = step;
    issue.seq = calls_++;
    issue.is_async = true;
    const std::uint32_t call = ring_->issue(issue);
    ring_->wait(call);
    return call;
  }

  void step(int number) { end_reduce(begin_reduce(number), number); }

  void end_reduce(std::uint32_t call, int number) {
    ring_->complete(call);
    ring_->waited(call);
    ring_->step(number, loss_ / (number + 1), 8);
  }

  void lose(double loss) { loss_ = loss; }
  void finish(lockstep::trace::End end) { ring_->finish(end); }

 private:
  int rank_;
  std::unique_ptr<lockstep::trace::RingWriter> ring_;
  lockstep::trace::RingWriter::GroupRef world_;
  lockstep::trace::RingWriter::SignatureRef signature_;
  std::uint32_t calls_ = 0;
  double loss_ = 1;
};

// The steps that the ranks have issued, by rank, in memory that all of them share.
std::atomic<int>* shared_steps(const Arguments& arguments) {
  const std::string path = arguments.trace + "/steps";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, 4096) != 0) std::abort();
  void* const at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) std::abort();
  return static_cast<std::atomic<int>*>(at);
}

// Moves on and on: a step is over when all ranks have issued it, and rank 1 is the slowest. The
// others see its death, and record it.
[[noreturn]] void train_for_ever(FakeRank& rank, const Arguments& arguments) {
  flock(open_lock(arguments, arguments.rank), LOCK_EX);
  std::thread([&rank, &arguments] {
    const int of_rank_1 = open_lock(arguments, 1);
    if (arguments.rank == 1) return;
    while (flock(of_rank_1, LOCK_EX | LOCK_NB) == 0) {  // it has not come yet
      flock(of_rank_1, LOCK_UN);
      usleep(1000);
    }
    flock(of_rank_1, LOCK_EX);
    rank.finish(lockstep::trace::End::exception);
    _exit(1);
  }).detach();
  std::atomic<int>* const issued = shared_steps(arguments);
  for (int step = 1;; ++step) {
    if (arguments.rank == 1) usleep(20'000);
    const std::uint32_t call = rank.begin_reduce(step);
    issued[arguments.rank] = step;
    for (int other = 0; other < arguments.world_size; ++other) {
      while (issued[other] < step) usleep(200);
    }
    rank.end_reduce(call, step);
  }
}

int play(const std::string& piece, FakeRank& rank, const Arguments& arguments) {
  const bool deviant = arguments.rank == 1;
  if (piece == "stuck before it records") {
    signal(SIGTERM, SIG_IGN);
    sleep_for_ever();
  }
  rank.step(0);
  if (piece == "trains for ever") train_for_ever(rank, arguments);
  if (piece == "says its environment") print_environment();
  if (piece == "leaves shared memory") {
    signal(SIGTERM, SIG_IGN);
    make_segment();
    sleep_for_ever();
  }
  if (piece == "leaves a helper" && fork() == 0) sleep_for_ever();
  if (piece == "blocks when all is done") {
    signal(SIGTERM, SIG_IGN);
    rank.finish(lockstep::trace::End::clean);
    sleep_for_ever();
  }
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
  } else if (piece == "one rank aborts in a call") {
    rank.begin_reduce(1);
    if (deviant) std::abort();
    sleep_for_ever();
  } else if (piece == "long computation" || piece == "one rank refuses") {
    sleep_for_ever();
  } else if (piece == "deaf to SIGTERM") {
    signal(SIGTERM, SIG_IGN);
    sleep_for_ever();
  } else if (piece == "one rank fails") {
    if (deviant) {
      rank.finish(lockstep::trace::End::exception);
      return 1;
    }
  }
  rank.finish(lockstep::trace::End::clean);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const auto scenario = lockstep::runtime::load_scenario(arguments.scenario);
  if (!scenario || scenario->name == "no trace") {
    std::fprintf(stderr, "cannot find the data\n");
    return 3;
  }
  if (scenario->name == "one rank refuses" && arguments.rank == 1) {
    std::fprintf(stderr, "error: there is no GPU for it\n  fix: start fewer\n");
    return 2;
  }
  std::printf("rank %d of %d plays \"%s\"\n", arguments.rank, arguments.world_size,
              scenario->name.c_str());
  std::fflush(stdout);
  FakeRank rank(arguments);
  if (scenario->name == "finish, alone with another loss") {
    if (arguments.world_size == 1) rank.lose(1.001);
    return play("finish", rank, arguments);
  }
  return play(scenario->name, rank, arguments);
}
