// What digests cost at 65,536 ranks: one from each of 8,192 machines, their merging, and the
// verdict.
//
// The job: tensor parallelism over 8 ranks of a machine, 8 pipeline stages, 1,024 replicas. A step
// of a rank: 4 micro-batches forward and backward (receive, two all-reduces of the tensor group,
// send), then 4 buckets of gradients over the replicas. `hung`: one rank leaves out its last
// bucket. Memory is the peak of the whole process, so run one benchmark at a time
// (--benchmark_filter).
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/files/gzip.h"
#include "trace/formats/digest/digest.h"
#include "trace/load.h"
#include "trace/trace_builder.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

constexpr int kTensor = 8;
constexpr int kStages = 8;
constexpr int kMicroBatches = 4;
constexpr int kBuckets = 4;

struct Shape {
  int ranks = 0;
  int steps = 0;
  int replicas() const { return ranks / kTensor / kStages; }
};

// Ranks count tensor places first, then replicas, then stages, as Megatron-LM's do.
struct Coordinates {
  int tensor, replica, stage;
};
Coordinates coordinates_of(const Shape& shape, int rank) {
  return {rank % kTensor, rank / kTensor % shape.replicas(), rank / kTensor / shape.replicas()};
}
int rank_at(const Shape& shape, const Coordinates& at) {
  return at.tensor + kTensor * (at.replica + shape.replicas() * at.stage);
}

// Records one rank, with times, as a ring file would hold it.
class Recorder {
 public:
  Recorder(const Shape& shape, int rank, bool hung, trace::Tables& tables)
      : shape_(shape),
        at_(coordinates_of(shape, rank)),
        hung_(hung),
        tables_(tables),
        builder_(trace_) {
    trace_.rank = trace::Rank(rank);
    trace_.world_size = shape.ranks;
    trace_.backend = "gloo";
    trace_.host = "node" + std::to_string(rank / kTensor);
    trace_.pid = 4000 + rank % kTensor;
    trace_.end = hung ? trace::End::hung : trace::End::clean;
    time_ = rank * 1000;
  }

  trace::RankTrace record() {
    std::vector<trace::Rank> tensor, replicas, stages;
    for (int t = 0; t < kTensor; ++t)
      tensor.emplace_back(rank_at(shape_, {t, at_.replica, at_.stage}));
    for (int r = 0; r < shape_.replicas(); ++r)
      replicas.emplace_back(rank_at(shape_, {at_.tensor, r, at_.stage}));
    for (int s = 0; s < kStages; ++s)
      stages.emplace_back(rank_at(shape_, {at_.tensor, at_.replica, s}));
    tensor_ = group("tp", tensor);
    replicas_ = group("dp", replicas);
    stages_ = group("pp", stages);
    trace_.created_in_order = 3;
    for (step_ = 0; step_ < shape_.steps; ++step_) record_step();
    return std::move(trace_);
  }

 private:
  // Named by their first member, as device meshes number theirs.
  trace::GroupId group(const std::string& kind, const std::vector<trace::Rank>& ranks) {
    const trace::GroupId id = tables_.groups.intern(kind + std::to_string(ranks.front().value));
    builder_.add_group(id, tables_.rank_lists.intern(ranks), {});
    return id;
  }

  void call(trace::GroupId group, trace::Op op, std::int64_t elements, const std::string& what,
            std::int32_t peer = trace::kNone) {
    trace::Signature signature;
    signature.op = op;
    signature.in = signature.out = tables_.int_lists.intern({elements, -1});
    signature.dtypes = tables_.make_names({"bfloat16"});
    if (op == trace::Op::all_reduce) signature.redop = tables_.strings.intern("sum");
    trace::Call call;
    call.id = next_id_++;
    call.group = group;
    call.signature = tables_.make_signature(signature);
    call.what = tables_.make_names({what});
    call.at = tables_.strings.intern("train.py:120");
    call.step = step_;
    call.peer = trace::Rank(peer);
    if (peer != trace::kNone) call.ptag = 0;
    call.flags = trace::kAsync;
    const bool left_out =
        hung_ && step_ + 1 == shape_.steps && op == trace::Op::all_reduce && what == "bucket3";
    const bool guilty = left_out && at_.tensor == 0 && at_.replica == 1 && at_.stage == 0;
    if (guilty) return;
    builder_.add_issue(call, peer != trace::kNone, time_ += 3000,
                       trace::TraceBuilder::Numbering::count);
    builder_.add_call_event(trace::EventKind::wait, call.id, time_ += 1000);
    const bool waits = left_out && at_.tensor == 0 && at_.stage == 0;
    if (waits) return;
    builder_.add_call_event(trace::EventKind::complete, call.id, time_ += 20'000);
    builder_.add_call_event(trace::EventKind::waited, call.id, time_ += 1000);
  }

  void record_step() {
    const auto neighbour = [&](int stage) {
      return rank_at(shape_, {at_.tensor, at_.replica, stage});
    };
    for (const int towards : {1, -1}) {  // forward, then backward
      const int from = at_.stage - towards;
      const int to = at_.stage + towards;
      for (int m = 0; m < kMicroBatches; ++m) {
        if (from >= 0 && from < kStages)
          call(stages_, trace::Op::recv, 1 << 20, "activations", neighbour(from));
        call(tensor_, trace::Op::all_reduce, 1 << 20, "attention");
        call(tensor_, trace::Op::all_reduce, 1 << 20, "mlp");
        if (to >= 0 && to < kStages)
          call(stages_, trace::Op::send, 1 << 20, "activations", neighbour(to));
      }
    }
    for (int b = 0; b < kBuckets; ++b)
      call(replicas_, trace::Op::all_reduce, 1 << 22, "bucket" + std::to_string(b));
    builder_.add_mark(trace::EventKind::step, trace_.steps, trace::StepMark{step_, {}, {}},
                      time_ += 1000);
  }

  const Shape shape_;
  const Coordinates at_;
  const bool hung_;
  trace::Tables& tables_;
  trace::RankTrace trace_;
  trace::TraceBuilder builder_;
  trace::GroupId tensor_, replicas_, stages_;
  std::int64_t next_id_ = 0;
  std::int32_t step_ = 0;
  trace::Nanos time_ = 0;
};

// A digest of each machine, packed as `lockstep convert --to digest` writes it.
std::vector<std::string> node_digests(const Shape& shape, bool hung) {
  std::vector<std::string> out;
  for (int first = 0; first < shape.ranks; first += kTensor) {
    trace::Tables tables;
    std::vector<trace::RankTrace> traces;
    for (int r = first; r < first + kTensor; ++r)
      traces.push_back(Recorder(shape, r, hung, tables).record());
    out.push_back(trace::write_digest(traces, tables, {"ring", {}}).bytes);
  }
  return out;
}

struct Merged {
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
};
Merged read_all(const std::vector<std::string>& digests) {
  Merged out;
  for (const std::string& bytes : digests) {
    auto read = trace::read_digest(bytes, "digest", out.tables);
    if (!read) {
      std::fprintf(stderr, "%s\n", read.error().str().c_str());
      std::exit(1);
    }
    for (trace::RankTrace& trace : read->traces) out.traces.push_back(std::move(trace));
  }
  return out;
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// The digest of all machines' digests: what one `lockstep digest *.digest` does.
trace::Digest merge(const std::vector<std::string>& digests) {
  const Merged all = read_all(digests);
  return trace::write_digest(all.traces, all.tables, {"ring", {}});
}

void node_digest(benchmark::State& state) {
  const Shape shape{static_cast<int>(state.range(0)), static_cast<int>(state.range(1))};
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  for (int r = 0; r < kTensor; ++r) traces.push_back(Recorder(shape, r, false, tables).record());
  trace::Digest digest;
  for (auto unused : state) digest = trace::write_digest(traces, tables, {"ring", {}});
  state.counters["packed_bytes"] = static_cast<double>(gzip(digest.bytes).size());
  state.counters["classes"] = static_cast<double>(digest.forms);
  state.counters["calls_per_rank"] = static_cast<double>(traces[0].calls.size());
}

void merge_and_verify(benchmark::State& state) {
  const Shape shape{static_cast<int>(state.range(0)), static_cast<int>(state.range(1))};
  const bool hung = state.range(2) != 0;
  const std::vector<std::string> digests = node_digests(shape, hung);
  trace::Digest whole;
  for (auto unused : state) {
    whole = merge(digests);
    const double merged = peak_mib();
    Merged all = read_all({whole.bytes});
    state.counters["calls"] = static_cast<double>(all.traces[0].calls.size());
    const verify::Report report =
        verify::verify(trace::assemble_run(std::move(all.tables), std::move(all.traces)));
    if ((report.verdict == verify::Verdict::findings) != hung)
      state.SkipWithError("another verdict");
    state.counters["merge_MiB"] = merged;
    state.counters["verify_MiB"] = peak_mib();
  }
  state.counters["packed_KiB"] = static_cast<double>(gzip(whole.bytes).size()) / 1024;
  state.counters["classes"] = static_cast<double>(whole.forms);
}

void merge_only(benchmark::State& state) {
  const Shape shape{static_cast<int>(state.range(0)), static_cast<int>(state.range(1))};
  const std::vector<std::string> digests = node_digests(shape, false);
  for (auto unused : state) benchmark::DoNotOptimize(merge(digests).bytes.size());
  state.counters["merge_MiB"] = peak_mib();
}

BENCHMARK(node_digest)->ArgNames({"ranks", "steps"})->Args({65536, 2});
BENCHMARK(merge_only)
    ->ArgNames({"ranks", "steps"})
    ->Args({65536, 2})
    ->Unit(benchmark::kSecond)
    ->Iterations(1);
BENCHMARK(merge_and_verify)
    ->ArgNames({"ranks", "steps", "hung"})
    ->Args({4096, 2, 1})
    ->Args({65536, 2, 0})
    ->Args({65536, 2, 1})
    ->Unit(benchmark::kSecond)
    ->Iterations(1);

}  // namespace
}  // namespace lockstep
