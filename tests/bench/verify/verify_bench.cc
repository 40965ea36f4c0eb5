// How fast a recorded run is judged: ring files on disk to a report, and its parts.
//
// The job: data-parallel ranks, 20 asynchronous all-reduces a step, each issued, completed and
// waited for. `hung`: in the last step the last rank leaves out one call, and everybody hangs. The
// baseline is what no verifier can avoid: reading the files into the event model (load).
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "trace/formats/ring/ring_file.h"
#include "trace/formats/ring/writer.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

constexpr int kBuckets = 20;
constexpr int kEventsPerStep = kBuckets * 4;

struct Job {
  std::int32_t ranks = 0;
  std::int64_t events = 0;  // of all ranks
  bool hung = false;
  friend bool operator==(const Job&, const Job&) = default;
};

// Where TMPDIR says: the largest job takes 2.5 GB.
struct Folder {
  std::string path =
      (std::filesystem::temp_directory_path() / ("lockstep_bench_" + std::to_string(::getpid())))
          .string();
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() {
    std::error_code ignored;  // nobody is left to tell
    std::filesystem::remove_all(path, ignored);
  }
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);  // removes the folder (recorded)
}

std::string ring_of(const std::string& folder, std::int32_t rank) {
  return folder + "/rank_" + std::to_string(rank) + ".ring";
}

void record_rank(const std::string& folder, std::int32_t rank, std::int32_t ranks, int steps,
                 bool leaves_out) {
  trace::RingWriter::Options options;
  options.path = ring_of(folder, rank);
  options.rank = trace::Rank(rank);
  options.world_size = ranks;
  options.capacity = static_cast<std::uint64_t>(steps) * kEventsPerStep + 64;
  // Room for the list of members; ranks in thousands would fill a disk with reserves.
  options.table_bytes = (16 << 10) + static_cast<std::uint64_t>(ranks) * sizeof(std::int32_t);
  auto created = trace::RingWriter::create(options);
  if (!created) give_up(created.error().str());
  trace::RingWriter& writer = **created;
  std::vector<std::int32_t> world;
  for (std::int32_t r = 0; r < ranks; ++r) world.push_back(r);
  const auto group = writer.make_group("world", world);
  std::vector<trace::RingWriter::Issue> buckets;
  for (int b = 0; b < kBuckets; ++b) {
    trace::RingWriter::SignatureFields fields;
    fields.op = trace::Op::all_reduce;
    fields.in = fields.out = {{1000 + b}};
    fields.has_in = fields.has_out = true;
    fields.dtypes = {"float32"};
    fields.redop = "sum";
    trace::RingWriter::Issue issue;
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
  writer.finish(leaves_out ? trace::End::hung : trace::End::clean);
}

// What another rank records is the same except for the rank in the header.
void copy_rank(const std::string& folder, std::string bytes, std::int32_t rank) {
  std::memcpy(bytes.data() + offsetof(trace::ring::Header, rank), &rank, sizeof rank);
  std::ofstream out(ring_of(folder, rank), std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) give_up("cannot write " + folder + ": set TMPDIR to a folder with room");
}

// The recording of the job; of the one asked for last only, because a large one takes long to
// write.
const std::string& recorded(const Job& job) {
  static std::optional<Folder> folder;  // removed at exit, however that comes
  static Job inside;
  if (folder && inside == job) return folder->path;
  folder.reset();
  folder.emplace();
  inside = job;
  const auto steps = static_cast<int>(job.events / job.ranks / kEventsPerStep);
  record_rank(folder->path, 0, job.ranks, steps, job.hung);
  std::ifstream first(ring_of(folder->path, 0), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(first)), {});
  for (std::int32_t r = 1; r + 1 < job.ranks; ++r) copy_rank(folder->path, bytes, r);
  record_rank(folder->path, job.ranks - 1, job.ranks, steps, job.hung);
  return folder->path;
}

trace::Run load_or_exit(const std::string& folder) {
  auto run = trace::load_run({folder});
  if (!run) give_up(run.error().str());
  return std::move(*run);
}

void expect_verdict(const verify::Report& report, bool hung) {
  if ((report.verdict == verify::Verdict::findings) != hung) give_up("the job was judged wrongly");
}

// Arguments: ranks, events, hung.
Job job_of(const benchmark::State& state) {
  return {static_cast<std::int32_t>(state.range(0)), state.range(1), state.range(2) != 0};
}

void load(benchmark::State& state) {
  const std::string& folder = recorded(job_of(state));
  std::uint64_t events = 0;
  for (auto _ : state) events += load_or_exit(folder).event_count();
  state.SetItemsProcessed(static_cast<std::int64_t>(events));
}

void judge(benchmark::State& state) {
  const Job job = job_of(state);
  const trace::Run run = load_or_exit(recorded(job));
  for (auto _ : state) expect_verdict(verify::verify(run), job.hung);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(run.event_count()));
}

void load_and_judge(benchmark::State& state) {
  const Job job = job_of(state);
  const std::string& folder = recorded(job);
  std::uint64_t events = 0;
  for (auto _ : state) {
    const trace::Run run = load_or_exit(folder);
    expect_verdict(verify::verify(run), job.hung);
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
