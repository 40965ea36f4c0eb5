#include "tests/bench/trace/synthetic_trace.h"

#include <string>

#include "trace/trace_builder.h"

namespace lockstep {

namespace {

constexpr int kParameters = 20;

// The call that synchronises one parameter; everything but its id and its step.
trace::Call call_of(int parameter, trace::Tables& tables) {
  const std::string name = "encoder.layer." + std::to_string(parameter) + ".attention.weight";
  trace::Signature signature;
  signature.op = trace::Op::all_reduce;
  signature.in = signature.out = tables.int_lists.intern({256, 16 + parameter, -1});
  signature.dtypes = tables.make_names({"float32"});
  signature.redop = tables.strings.intern("sum");
  trace::Call call;
  call.signature = tables.make_signature(signature);
  call.group = tables.groups.intern("world");
  call.what = tables.make_names({name});
  call.at = tables.strings.intern("trainer.cc:" + std::to_string(100 + parameter));
  call.flags = trace::kAsync;
  return call;
}

}  // namespace

trace::RankTrace synthetic_trace(std::uint64_t events, trace::Tables& tables) {
  std::vector<trace::Call> calls;
  for (int i = 0; i < kParameters; ++i) calls.push_back(call_of(i, tables));
  trace::RankTrace trace;
  trace.rank = trace::Rank(0);
  trace.world_size = 2;
  trace.backend = "gloo";
  trace::TraceBuilder builder(trace);
  builder.add_group(calls[0].group, std::vector<trace::Rank>{trace::Rank(0), trace::Rank(1)}, {});
  const trace::NameListId has = tables.make_names({"image", "text"});
  trace::Nanos time = 1'000'000'000;
  std::int64_t id = 0;
  for (std::int32_t step = 0; trace.events.size() < events; ++step) {
    builder.add_mark(trace::EventKind::modality, trace.modalities, trace::ModalityMark{step, has},
                     ++time);
    for (trace::Call call : calls) {
      call.id = id++;
      call.step = step;
      builder.add_issue(call, false, time += 900, trace::TraceBuilder::Numbering::count);
      builder.add_call_event(trace::EventKind::complete, call.id, time += 700);
      builder.add_call_event(trace::EventKind::wait, call.id, time += 100);
      builder.add_call_event(trace::EventKind::waited, call.id, time += 50);
    }
    builder.add_mark(trace::EventKind::step, trace.steps, trace::StepMark{step, 0.693147, 32},
                     ++time);
  }
  builder.finish();
  trace.end = trace::End::clean;
  return trace;
}

}  // namespace lockstep
