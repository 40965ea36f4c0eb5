// What recording costs per event, and how fast a ring file is read.
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include "trace/formats/ring/reader.h"
#include "trace/formats/ring/writer.h"

namespace lockstep {
namespace {

std::string temp_file(std::string_view name) {
  return (std::filesystem::temp_directory_path() /
          ("lockstep_bench_" + std::to_string(::getpid()) + "_" + std::string(name)))
      .string();
}

std::unique_ptr<trace::RingWriter> create(const std::string& path, std::uint64_t capacity) {
  trace::RingWriter::Options options;
  options.path = path;
  options.rank = trace::Rank(0);
  options.world_size = 2;
  options.capacity = capacity;
  auto writer = trace::RingWriter::create(options);
  if (!writer) {
    std::fprintf(stderr, "%s\n", writer.error().str().c_str());
    std::exit(1);
  }
  return std::move(*writer);
}

trace::RingWriter::Issue all_reduce(trace::RingWriter& writer) {
  trace::RingWriter::SignatureFields fields;
  fields.op = trace::Op::all_reduce;
  fields.in = fields.out = {{256, 16}};
  fields.has_in = fields.has_out = true;
  fields.dtypes = {"float32"};
  fields.redop = "sum";
  trace::RingWriter::Issue issue;
  const std::array<std::int32_t, 2> ranks = {0, 1};
  issue.group = writer.make_group("world", ranks);
  issue.signature = writer.make_signature(fields);
  issue.what = writer.intern_names({"encoder.layer.0.attention.weight"});
  issue.at = writer.intern("trainer.cc:100");
  return issue;
}

void count_events(benchmark::State& state, std::int64_t events) {
  state.SetItemsProcessed(events);
  // Seconds of CPU, printed with a prefix: "38n".
  state.counters["per_event"] = benchmark::Counter(
      static_cast<double>(events), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// One issue and its completion: two events. The ring wraps many times.
void ring_write(benchmark::State& state) {
  static std::unique_ptr<trace::RingWriter> writer;
  const std::string path = temp_file("write.ring");
  if (state.thread_index() == 0) writer = create(path, 1 << 16);
  trace::RingWriter::Issue issue;
  for (auto _ : state) {
    if (issue.group.id == 0) issue = all_reduce(*writer);
    writer->complete(writer->issue(issue));
    ++issue.seq;
  }
  count_events(state, 2 * state.iterations());
  if (state.thread_index() == 0) {
    writer.reset();
    std::filesystem::remove(path);
  }
}
BENCHMARK(ring_write)->ThreadRange(1, 2);

// The same with every name and shape looked up again, as a recorder without caches would.
void ring_write_with_lookups(benchmark::State& state) {
  const std::string path = temp_file("lookup.ring");
  const auto writer = create(path, 1 << 16);
  std::uint32_t seq = 0;
  for (auto _ : state) {
    trace::RingWriter::Issue issue = all_reduce(*writer);
    issue.seq = seq++;
    writer->complete(writer->issue(issue));
  }
  count_events(state, 2 * state.iterations());
  std::filesystem::remove(path);
}
BENCHMARK(ring_write_with_lookups);

// Baseline: the same 64 bytes through fwrite under a mutex, with the same clock.
void baseline_fwrite(benchmark::State& state) {
  const std::string path = temp_file("fwrite");
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return state.SkipWithError("cannot write a temporary file");
  std::mutex mutex;
  std::array<char, 64> record{};
  for (auto _ : state) {
    for (int event = 0; event < 2; ++event) {
      timespec now{};
      ::clock_gettime(CLOCK_MONOTONIC, &now);
      record[0] = static_cast<char>(now.tv_nsec);
      const std::lock_guard lock(mutex);
      benchmark::DoNotOptimize(std::fwrite(record.data(), record.size(), 1, file));
      if (std::ftell(file) > (4 << 20)) std::rewind(file);
    }
  }
  std::fclose(file);
  count_events(state, 2 * state.iterations());
  std::filesystem::remove(path);
}
BENCHMARK(baseline_fwrite);

// Baseline: reading the clock, which every event does.
void baseline_clock(benchmark::State& state) {
  for (auto _ : state) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    benchmark::DoNotOptimize(now);
  }
  count_events(state, state.iterations());
}
BENCHMARK(baseline_clock);

// A full ring: calls with four events each.
void ring_read(benchmark::State& state) {
  const std::string path = temp_file("read.ring");
  const std::uint64_t capacity = static_cast<std::uint64_t>(state.range(0));
  {
    const auto writer = create(path, capacity);
    trace::RingWriter::Issue issue = all_reduce(*writer);
    while (writer->written() < capacity) {
      const std::uint32_t call = writer->issue(issue);
      writer->complete(call);
      writer->wait(call);
      writer->waited(call);
      ++issue.seq;
    }
  }
  for (auto _ : state) {
    trace::Tables tables;
    const Result<trace::RankTrace> trace = trace::read_ring_file(path, tables);
    if (!trace || trace->damaged_count > 0) return state.SkipWithError("the ring is damaged");
    benchmark::DoNotOptimize(trace->events.size());
  }
  count_events(state, state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 64);
  std::filesystem::remove(path);
}
BENCHMARK(ring_read)->Arg(1 << 16)->Arg(1 << 20)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
