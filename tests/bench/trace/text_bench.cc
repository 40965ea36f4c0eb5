// How fast the text form is read and written.
#include <simdjson.h>

#include <sstream>
#include <string>

#include <benchmark/benchmark.h>

#include "tests/bench/trace/synthetic_trace.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep {
namespace {

std::string synthetic_text(std::int64_t events) {
  trace::Tables tables;
  std::ostringstream out;
  trace::write_text_trace(out, synthetic_trace(static_cast<std::uint64_t>(events), tables), tables);
  return out.str();
}

void count(benchmark::State& state, std::size_t bytes) {
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void text_read(benchmark::State& state) {
  const std::string text = synthetic_text(state.range(0));
  for (auto _ : state) {
    trace::Tables tables;
    const Result<trace::RankTrace> trace = trace::read_text_trace(text, "bench", tables);
    if (!trace || trace->damaged_count > 0) return state.SkipWithError("the trace is damaged");
    benchmark::DoNotOptimize(trace->events.size());
  }
  count(state, text.size());
}
BENCHMARK(text_read)->Arg(10'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

// Baseline: simdjson parses the same lines in bulk, and nobody looks at what they say.
void baseline_simdjson_bulk(benchmark::State& state) {
  const simdjson::padded_string text(synthetic_text(state.range(0)));
  simdjson::dom::parser parser;
  for (auto _ : state) {
    simdjson::dom::document_stream lines;
    if (parser.parse_many(text).get(lines) != simdjson::SUCCESS) {
      return state.SkipWithError("simdjson does not parse");
    }
    std::size_t objects = 0;
    for (auto line : lines) objects += line.error() == simdjson::SUCCESS ? 1U : 0U;
    benchmark::DoNotOptimize(objects);
  }
  count(state, text.size());
}
BENCHMARK(baseline_simdjson_bulk)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void text_write(benchmark::State& state) {
  trace::Tables tables;
  const trace::RankTrace trace =
      synthetic_trace(static_cast<std::uint64_t>(state.range(0)), tables);
  std::size_t bytes = 0;
  for (auto _ : state) {
    std::ostringstream out;
    trace::write_text_trace(out, trace, tables);
    bytes = out.view().size();
  }
  count(state, bytes);
}
BENCHMARK(text_write)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
