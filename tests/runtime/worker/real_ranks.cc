#include "tests/runtime/worker/real_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <sstream>

#include "runtime/launch/run_folder.h"
#include "tests/runtime/launch/launch_testing.h"
#include "trace/formats/ring/reader.h"
#include "trace/load.h"

namespace lockstep::runtime {
namespace {

constexpr int kRanks = 2;

// Everything by which launch_settings.h finds a rank, and what chooses Gloo's interface.
constexpr std::array kLauncherVariables = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TORCHELASTIC_USE_AGENT_STORE",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_LOCALID",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MPI_LOCALRANKID",
                                           "GLOO_SOCKET_IFNAME"};

}  // namespace

std::string JobFile::text() const {
  std::ostringstream out;
  out << "lockstep: 1\nname: job\nranks: " << kRanks
      << "\ndata: {items: 64, held_out: 16, modality: [{has: [image, text]}]}\n"
      << "strategy: " << strategy << "\ntrain: {steps: " << steps << ", batch_size: 2}\n"
      << "limits: {hang_after_s: " << hang_after_s << ", total_s: " << total_s << "}\n";
  return out.str();
}

int free_port() {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_TRUE(s >= 0 && bind(s, any, size) == 0 && getsockname(s, any, &size) == 0);
  close(s);
  return ntohs(address.sin_port);
}

std::string program_named(const std::string& name) {
  const char* path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

RealRanks::RealRanks() {
  for (const char* variable : kLauncherVariables) unsetenv(variable);
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 1);  // the logs are read below
  std::filesystem::create_directory(traces());
}

std::string RealRanks::program() { return LOCKSTEP_WORKER_PROGRAM; }

Process RealRanks::start(const std::string& name, const std::vector<std::string>& before,
                         const std::vector<std::string>& after) {
  std::vector<std::string> words = before;
  words.insert(words.end(), {program(), "train", folder_.file("job.yaml"), "--trace", traces()});
  words.insert(words.end(), after.begin(), after.end());
  Result<Process> process = Process::spawn(words, folder_.file(name + ".log"));
  EXPECT_TRUE(process);
  return std::move(*process);
}

Process RealRanks::start_as_torchrun(int rank, const std::string& host, int port,
                                     const std::vector<std::string>& before) {
  const std::string number = std::to_string(rank);
  std::vector<std::string> words = before;
  words.insert(words.end(), {"/usr/bin/env", "RANK=" + number, "LOCAL_RANK=" + number,
                             "WORLD_SIZE=" + std::to_string(kRanks), "MASTER_ADDR=" + host,
                             "MASTER_PORT=" + std::to_string(port)});
  return start("rank_" + number, words);
}

ProcessEnd RealRanks::end_of(Process& process) {
  const bool ended = launch_testing::eventually([&] { return !process.running(); });
  EXPECT_TRUE(ended) << "it still runs";
  return ended ? *process.poll() : ProcessEnd{};
}

bool RealRanks::both_train(std::int64_t steps) const {
  return launch_testing::eventually([&] {
    for (int rank = 0; rank < kRanks; ++rank) {
      Result<trace::RingTail> tail = trace::RingTail::open(ring_file(traces(), rank));
      if (!tail || tail->poll().steps < steps) return false;
    }
    return true;
  });
}

std::map<int, pid_t> RealRanks::pids() const {
  std::map<int, pid_t> out;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Result<trace::RingTail> tail = trace::RingTail::open(ring_file(traces(), rank));
    EXPECT_TRUE(tail);
    out[rank] = static_cast<pid_t>(tail->pid());
  }
  return out;
}

trace::Run RealRanks::recorded() const {
  Result<trace::Run> run = trace::load_run({traces()});
  EXPECT_TRUE(run);
  return std::move(*run);
}

}  // namespace lockstep::runtime
