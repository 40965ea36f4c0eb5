// How fast a folder of Flight Recorder dumps is judged: files on disk to a report, by ranks,
// entries of each and process groups. The baseline is what no reader can avoid: bringing the bytes
// of all files into memory.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <benchmark/benchmark.h>

#include "tests/bench/flight_recorder/dumps.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  explicit Folder(const benchmark::State& state)
      : path_(fs::temp_directory_path() / ("lockstep_bench_" + std::to_string(::getpid()))) {
    DumpJob job;
    job.ranks = static_cast<int>(state.range(0));
    job.entries = static_cast<int>(state.range(1));
    job.groups = static_cast<int>(state.range(2));
    job.fault = state.range(3) != 0 ? DumpFault::host_stall : DumpFault::none;
    const Status written = write_dumps(job, path_.string());
    if (written) return;
    std::fprintf(stderr, "%s\n", written.error().str().c_str());
    std::exit(1);
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Arguments: ranks, entries, groups, hung.
void read_bytes(benchmark::State& state) {
  const Folder folder(state);
  std::int64_t bytes = 0;
  std::string content;
  for (auto _ : state) {
    for (const auto& file : fs::directory_iterator(folder.path())) {
      content.resize(file.file_size());
      std::ifstream(file.path(), std::ios::binary)
          .read(content.data(), static_cast<std::streamsize>(content.size()));
      benchmark::DoNotOptimize(content.data());
      bytes += static_cast<std::int64_t>(content.size());
    }
  }
  state.SetBytesProcessed(bytes);
}

void load_and_judge(benchmark::State& state) {
  const Folder folder(state);
  const bool hung = state.range(3) != 0;
  std::int64_t calls = 0;
  for (auto _ : state) {
    const auto run = trace::load_run({folder.path().string()});
    if (!run || (verify::verify(*run).verdict == verify::Verdict::findings) != hung) {
      std::fprintf(stderr, "the benchmark's dumps were judged wrongly\n");
      std::exit(1);
    }
    for (const trace::RankTrace& rank : run->ranks)
      calls += static_cast<std::int64_t>(rank.calls.size());
  }
  state.SetItemsProcessed(calls);
}

void jobs(benchmark::internal::Benchmark* b) {
  b->Args({64, 2000, 1, 0})->Args({64, 2000, 3, 0})->Args({64, 2000, 3, 1});
  b->Args({1024, 2000, 1, 1})->Args({1024, 2000, 3, 1});
  b->ArgNames({"ranks", "entries", "groups", "hung"})->Unit(benchmark::kMillisecond);
  b->UseRealTime();
}

BENCHMARK(read_bytes)->Apply(jobs);
BENCHMARK(load_and_judge)->Apply(jobs);

}  // namespace
}  // namespace lockstep
