#include "tests/support/random_trace.h"

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "trace/trace_builder.h"

namespace lockstep {

namespace {

class Generator {
 public:
  Generator(std::uint32_t seed, trace::Tables& tables) : random_(seed), tables_(tables) {}

  trace::RankTrace make() {
    trace_.world_size = below(9) + 1;
    trace_.rank = trace::Rank(below(trace_.world_size));
    trace_.backend = text();
    trace_.host = text();
    trace_.program = text();
    if (sometimes()) trace_.pid = below(1 << 20);
    if (sometimes()) trace_.gpu = 1 + below(16);
    if (sometimes()) trace_.semantics = trace::Semantics::mpi;
    trace_.end = static_cast<trace::End>(below(5));
    trace::TraceBuilder builder(trace_);
    make_groups(builder);
    trace_.created_in_order = static_cast<std::uint32_t>(trace_.groups.size());
    const int events = below(60);
    for (int i = 0; i < events; ++i) make_event(builder);
    builder.finish();
    return std::move(trace_);
  }

 private:
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }
  bool sometimes() { return below(3) == 0; }
  std::int64_t any_integer() { return std::uniform_int_distribution<std::int64_t>()(random_); }
  double any_double() {
    return std::uniform_real_distribution<double>(-1, 1)(random_) * std::pow(10.0, below(40) - 20);
  }
  trace::Nanos time() { return sometimes() ? trace::kNoTime : below(1 << 30); }

  // Empty, plain, or with what JSON must escape.
  std::string text() {
    static const char* const kPieces[] = {"world", "a.weight", "\"", "\\", "\n", "\x01",
                                          "é",     "漢",       "😀",  "/",  " ",  "x"};
    std::string out;
    for (int i = below(4); i > 0; --i) out += kPieces[below(12)];
    return out;
  }
  trace::StringId name() { return tables_.strings.intern(text()); }
  trace::NameListId names() {
    std::vector<std::string> list;
    for (int i = below(4); i > 0; --i) list.push_back(text() + std::to_string(i));
    return tables_.make_names(list);
  }
  trace::IntListId shapes() {
    std::vector<std::vector<std::int64_t>> list(static_cast<std::size_t>(below(3)));
    for (auto& shape : list) {
      for (int i = below(4); i > 0; --i) shape.push_back(below(2000));
    }
    return tables_.int_lists.intern(trace::flatten_shapes(list));
  }
  trace::IntListId sizes() {
    trace::IntList list;
    for (int i = below(4); i > 0; --i) list.push_back(any_integer());
    return tables_.int_lists.intern(list);
  }
  std::vector<double> sketch() {
    std::vector<double> list;
    for (int i = sometimes() ? below(4) : 0; i > 0; --i) list.push_back(any_double());
    return list;
  }

  void make_groups(trace::TraceBuilder& builder) {
    for (int i = below(4); i > 0; --i) {
      std::set<trace::Rank> ranks = {trace_.rank};
      for (int j = below(4); j > 0; --j) ranks.insert(trace::Rank(below(trace_.world_size)));
      builder.add_group(group(), std::vector<trace::Rank>(ranks.begin(), ranks.end()), name());
    }
  }
  trace::GroupId group() { return tables_.groups.intern("group " + std::to_string(below(3))); }

  void make_event(trace::TraceBuilder& builder) {
    if (trace_.calls.empty() || sometimes()) return make_issue(builder);
    const auto kind = static_cast<trace::EventKind>(1 + below(12));
    if (kind <= trace::EventKind::write) {
      trace::Call& call =
          trace_.calls
              .own()[static_cast<std::size_t>(below(static_cast<int>(trace_.calls.size())))];
      builder.add_call_event(kind, call.id, time());
      if (kind == trace::EventKind::complete && call.values == 0 && sometimes()) {
        trace_.values.push_back({std::nullopt, {}, below(trace_.world_size), below(100)});
        call.values = static_cast<std::uint32_t>(trace_.values.size());
      }
      return;
    }
    make_mark(builder, kind);
  }

  void make_issue(trace::TraceBuilder& builder) {
    trace::Signature signature;
    signature.op = static_cast<trace::Op>(below(20));
    if (signature.op == trace::Op::other)
      signature.other_op = tables_.strings.intern("other " + text());
    signature.in = shapes();
    signature.out = shapes();
    signature.dtypes = names();
    signature.redop = name();
    if (sometimes()) signature.root = below(trace_.world_size);
    signature.splits_in = sizes();
    signature.splits_out = sizes();
    if (sometimes()) signature.count = any_integer();
    signature.mode = name();
    trace::Call call;
    call.id = trace_.calls.empty() ? below(5) : trace_.calls.back().id + 1 + below(2);
    call.signature = tables_.make_signature(signature);
    call.group = group();
    call.what = names();
    call.at = name();
    call.tag = name();
    call.stream = name();
    if (sometimes()) call.step = below(1000);
    if (sometimes()) call.peer = trace::Rank(below(trace_.world_size));
    if (sometimes()) call.ptag = below(1000) - 1;
    if (sometimes()) call.coalesced = below(1000);
    call.thread = static_cast<std::uint16_t>(call.coalesced > 500 ? 2 : 0);
    call.flags = sometimes() ? trace::kAsync : 0;
    if (sometimes()) {
      trace_.values.push_back(
          {static_cast<std::uint64_t>(any_integer()), sketch(), trace::kNone, trace::kNoPeerTag});
      call.values = static_cast<std::uint32_t>(trace_.values.size());
    }
    builder.add_issue(call, trace::is_point_to_point(signature.op), time(),
                      trace::TraceBuilder::Numbering::count);
  }

  void make_mark(trace::TraceBuilder& builder, trace::EventKind kind) {
    const std::int64_t n = below(100);
    if (kind == trace::EventKind::exception) {
      trace::ExceptionMark mark{text(), std::nullopt};
      if (sometimes()) {
        mark.call = static_cast<std::uint32_t>(below(static_cast<int>(trace_.calls.size())));
        trace_.calls.own()[*mark.call].flags |= trace::kFailed;
      }
      builder.add_mark(kind, trace_.exceptions, mark, time());
    } else if (kind == trace::EventKind::step) {
      trace::StepMark mark{n, std::nullopt, std::nullopt};
      if (sometimes()) mark.loss = any_double();
      if (sometimes()) mark.samples = below(100);
      builder.add_mark(kind, trace_.steps, mark, time());
    } else if (kind == trace::EventKind::state) {
      trace::StateMark mark{n,
                            name(),
                            std::nullopt,
                            std::nullopt,
                            sizes(),
                            name(),
                            static_cast<trace::StateMark::Kind>(below(4)),
                            static_cast<trace::StateMark::When>(below(3)),
                            sometimes(),
                            sketch()};
      if (sometimes()) mark.hash = static_cast<std::uint64_t>(any_integer());
      if (sometimes()) mark.norm = any_double();
      builder.add_mark(kind, trace_.states, std::move(mark), time());
    } else if (kind == trace::EventKind::data) {
      builder.add_mark(kind, trace_.data, trace::DataMark{n, {any_integer(), -any_integer()}, {}},
                       time());
    } else if (kind == trace::EventKind::modality) {
      builder.add_mark(kind, trace_.modalities,
                       trace::ModalityMark{n, tables_.make_names({"image", "text"})}, time());
    } else {
      builder.add_mark(kind, trace_.spans, trace::SpanMark{name(), name(), below(1000)}, time());
    }
  }

  std::mt19937 random_;
  trace::Tables& tables_;
  trace::RankTrace trace_;
};

}  // namespace

trace::RankTrace random_trace(std::uint32_t seed, trace::Tables& tables) {
  return Generator(seed, tables).make();
}

}  // namespace lockstep
