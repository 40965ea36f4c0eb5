// How fast a recorded run is judged: ring files on disk to a report, and its parts.
//
// The job: data-parallel ranks, 20 asynchronous all-reduces a step, each issued, completed and
// waited for. `hung`: in the last step the last rank leaves out one call, and everybody hangs. The
// baseline is what no verifier can avoid: reading the files into the event model (load).
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "trace/load.h"
#include "trace/ring_writer.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

constexpr int kBuckets = 20;
constexpr int kEventsPerStep = kBuckets * 4;

struct Folder {
  std::string path =
      (std::filesystem::temp_directory_path() / ("lockstep_bench_" + std::to_string(::getpid())))
          .string();
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

void record_rank(const std::string& folder, std::int32_t rank, std::int32_t ranks, int steps,
                 bool leaves_out) {
  RingWriter::Options options;
  options.path = folder + "/rank_" + std::to_string(rank) + ".ring";
  options.rank = Rank(rank);
  options.world_size = ranks;
  options.capacity = static_cast<std::uint64_t>(steps) * kEventsPerStep + 64;
  options.table_bytes = 256 << 10;  // ranks in thousands would fill a disk with reserves
  auto created = RingWriter::create(options);
  if (!created) {
    std::fprintf(stderr, "%s\n", created.error().str().c_str());
    std::exit(1);
  }
  RingWriter& writer = **created;
  std::vector<std::int32_t> world;
  for (std::int32_t r = 0; r < ranks; ++r) world.push_back(r);
  const auto group = writer.make_group("world", world);
  std::vector<RingWriter::Issue> buckets;
  for (int b = 0; b < kBuckets; ++b) {
    RingWriter::SignatureFields fields;
    fields.op = Op::all_reduce;
    fields.in = fields.out = {{1000 + b}};
    fields.has_in = fields.has_out = true;
    fields.dtypes = {"float32"};
    fields.redop = "sum";
    RingWriter::Issue issue;
    issue.group = group;
    issue.signature = writer.make_signature(fields);
    issue.what = writer.intern_names({"layer." + std::to_string(b) + ".weight"});
    issue.is_async = true;
    buckets.push_back(issue);
  }
  std::uint32_t seq = 0;
  for (int s = 0; s < steps; ++s) {
    const bool hangs = leaves_out && s + 1 == steps;
    std::vector<std::uint32_t> calls;
    for (int b = 0; b < kBuckets; ++b) {
      if (hangs && rank + 1 == ranks && b == kBuckets / 2) continue;
      buckets[static_cast<std::size_t>(b)].step = s;
      buckets[static_cast<std::size_t>(b)].seq = seq++;
      calls.push_back(writer.issue(buckets[static_cast<std::size_t>(b)]));
      if (!hangs || b < kBuckets / 2) writer.complete(calls.back());
    }
    for (std::size_t c = 0; c < calls.size(); ++c) {
      writer.wait(calls[c]);
      if (hangs && c >= kBuckets / 2) break;
      writer.waited(calls[c]);
    }
  }
  writer.finish(leaves_out ? End::hung : End::clean);
}

void record(const Folder& folder, std::int32_t ranks, std::int64_t events, bool hung) {
  const auto steps = static_cast<int>(events / ranks / kEventsPerStep);
  for (std::int32_t r = 0; r < ranks; ++r) record_rank(folder.path, r, ranks, steps, hung);
}

Run load_or_exit(const Folder& folder) {
  auto run = load_run({folder.path});
  if (!run) {
    std::fprintf(stderr, "%s\n", run.error().str().c_str());
    std::exit(1);
  }
  return std::move(*run);
}

void expect_verdict(const Report& report, bool hung) {
  if ((report.verdict == Verdict::findings) == hung) return;
  std::fprintf(stderr, "the benchmark's job was judged wrongly\n");
  std::exit(1);
}

// Arguments: ranks, events, hung.
void load(benchmark::State& state) {
  const Folder folder;
  record(folder, static_cast<std::int32_t>(state.range(0)), state.range(1), state.range(2) != 0);
  std::uint64_t events = 0;
  for (auto _ : state) events += load_or_exit(folder).event_count();
  state.SetItemsProcessed(static_cast<std::int64_t>(events));
}

void judge(benchmark::State& state) {
  const Folder folder;
  record(folder, static_cast<std::int32_t>(state.range(0)), state.range(1), state.range(2) != 0);
  const Run run = load_or_exit(folder);
  for (auto _ : state) expect_verdict(verify(run), state.range(2) != 0);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(run.event_count()));
}

void load_and_judge(benchmark::State& state) {
  const Folder folder;
  record(folder, static_cast<std::int32_t>(state.range(0)), state.range(1), state.range(2) != 0);
  std::uint64_t events = 0;
  for (auto _ : state) {
    const Run run = load_or_exit(folder);
    expect_verdict(verify(run), state.range(2) != 0);
    events += run.event_count();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(events));
}

void jobs(benchmark::internal::Benchmark* b) {
  b->Args({8, 1'000'000, 0})->Args({8, 1'000'000, 1})->Args({1024, 1'000'000, 1});
  b->Args({16384, 16'384'000, 0});
  b->ArgNames({"ranks", "events", "hung"})->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK(load)->Apply(jobs);
BENCHMARK(judge)->Apply(jobs);
BENCHMARK(load_and_judge)->Apply(jobs);

}  // namespace
}  // namespace lockstep
