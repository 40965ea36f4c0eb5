// Reads the text form, one JSON object per line (docs/trace-format.md). A line that cannot be used
// is counted as damage, and the next one is read.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trace/formats/text/lines.h"
#include "trace/formats/text/text_trace.h"
#include "trace/gpus.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

// 2: the members of groups may be given as ranges.
constexpr std::int64_t kTextVersion = 2;

class TextReader {
 public:
  TextReader(std::string_view text, const std::string& file, Tables& tables)
      : lines_(text), file_(file), tables_(tables), fields_(tables) {}

  Result<RankTrace> read() {
    if (Status status = read_header(); !status) return status.error();
    bool ends_in_damage = false;
    while (lines_.next()) {
      simdjson::dom::object object;
      std::string problem;
      if (lines_.parse(object, problem)) problem = read_line(object);
      ends_in_damage = !problem.empty();
      if (ends_in_damage) trace_.add_damage(std::move(problem), lines_.number());
    }
    if (ends_in_damage && !ended_) trace_.damaged_at_end = true;
    if (trace_.converted_from.empty()) builder_.finish();
    if (unrecorded_) {  // pairs of a call's index and its count
      trace_.unrecorded.resize(trace_.calls.size());
      for (std::size_t i = 0; i + 1 < unrecorded_->size(); i += 2) {
        const auto call = static_cast<std::size_t>((*unrecorded_)[i]);
        if (call < trace_.unrecorded.size())
          trace_.unrecorded[call] = static_cast<std::uint32_t>((*unrecorded_)[i + 1]);
      }
    }
    if (created_) {
      const auto most = static_cast<std::uint32_t>(trace_.groups.size());
      trace_.created_in_order = std::min(*created_, most);
    }
    // Until here the size in the header bounds the ranks that lines name.
    if (!sized_) trace_.world_size = kNone;
    return std::move(trace_);
  }

 private:
  using Problem = std::string;

  Error header_error(std::string message, std::string fix = {}) const {
    return {std::move(message), {file_, lines_.number()}, std::move(fix)};
  }

  Status read_header();
  Problem read_line(simdjson::dom::object object);
  void read_converted();
  void read_progress();
  Problem read_group();
  RankList read_ranks();
  // Nothing: too many (RankLists::kMaxExpanded).
  std::optional<RankList> read_ranges();
  Problem read_end();
  Problem read_event();
  Problem read_issue(Nanos time);
  Problem read_call_event(EventKind kind, Nanos time);
  Problem read_exception(Nanos time);
  Problem read_step(Nanos time);
  Problem read_state(Nanos time);
  Problem read_data(Nanos time);
  Problem read_modality(Nanos time);
  Problem read_span(Nanos time);

  SignatureId read_signature(Op op, std::string_view name);
  // The call's CallValues, made when it has none.
  CallValues& values_of(Call& call);

  LineParser lines_;
  const std::string& file_;
  Tables& tables_;
  TextFields fields_;
  RankTrace trace_;
  TraceBuilder builder_{trace_};
  bool ended_ = false;
  bool has_ranges_ = false;  // version 2
  // What a copy says of the format that it was converted from.
  bool sized_ = true;                                    // that the header's size is the job's
  std::optional<std::uint32_t> created_;                 // RankTrace::created_in_order
  std::optional<std::vector<std::int64_t>> unrecorded_;  // RankTrace::unrecorded, by pairs
};

Status TextReader::read_header() {
  const char* const fix =
      "the first line of a trace says whose it is: "
      "{\"header\":1,\"rank\":0,\"world_size\":4}";
  trace_.source = file_;
  if (!lines_.next()) return header_error("the trace is empty", fix);
  simdjson::dom::object object;
  std::string problem;
  if (!lines_.parse(object, problem))
    return header_error(fmt::format("no header: {}", problem), fix);
  fields_.load(object);
  if (fields_.line_kind() != Key::header)
    return header_error("the first line is not a header", fix);
  const std::optional<std::int64_t> version = fields_.integer(Key::header);
  if (version && (*version < 1 || *version > kTextVersion)) {
    return header_error(fmt::format("trace format {} is not known", *version),
                        "this lockstep reads versions 1 and 2");
  }
  has_ranges_ = version == kTextVersion;
  fields_.require(Key::rank);
  fields_.require(Key::world_size);
  trace_.world_size = fields_.int32(Key::world_size, kNone, 1, kMaxWorldSize);
  trace_.rank = Rank(fields_.int32(Key::rank, kNone, 0));
  trace_.backend = fields_.text(Key::backend).value_or("");
  trace_.host = fields_.text(Key::host).value_or("");
  trace_.gpu = gpu_index(fields_.integer(Key::gpu, kNone).value_or(kNone));
  trace_.program = fields_.text(Key::program).value_or("");
  trace_.pid = fields_.integer(Key::pid, kNone).value_or(kNone);
  trace_.dropped = static_cast<std::uint64_t>(fields_.integer(Key::dropped, 0).value_or(0));
  const std::string_view semantics = fields_.text(Key::semantics).value_or("c10d");
  if (semantics != "c10d" && semantics != "mpi") fields_.complain(Key::semantics, "is not known");
  trace_.semantics = semantics == "mpi" ? Semantics::mpi : Semantics::c10d;
  if (fields_.has(Key::converted)) read_converted();
  if (!fields_.problem().empty())
    return header_error(fmt::format("bad header: {}", fields_.problem()), fix);
  if (!is_possible_rank(trace_.rank.value, trace_.world_size)) {
    return header_error(fmt::format("bad header: rank {} is not below world_size {}",
                                    trace_.rank.value, trace_.world_size),
                        fix);
  }
  return Status::ok();
}

TextReader::Problem TextReader::read_line(simdjson::dom::object object) {
  fields_.load(object);
  const std::optional<Key> kind = fields_.line_kind();
  if (!kind) return {};  // a kind of line that a later version may bring
  if (ended_) return "a line after the end mark";
  switch (*kind) {
    case Key::group:
      return read_group();
    case Key::end:
      return read_end();
    case Key::ev:
      return read_event();
    default:
      return "a second header";
  }
}

void TextReader::read_converted() {
  const auto number = [&](Key key) {
    return static_cast<std::uint32_t>(fields_.integer(key, 0, UINT32_MAX).value_or(0));
  };
  trace_.converted_from = fields_.text(Key::converted).value_or("");
  trace_.snapshot = fields_.boolean(Key::snapshot);
  trace_.ends_of_waits = fields_.boolean(Key::ends_of_waits);
  trace_.longest_open = fields_.integer(Key::longest_open, 0).value_or(kNoTime);
  trace_.longest_completed = fields_.integer(Key::longest_completed, 0).value_or(kNoTime);
  trace_.open_ended = fields_.boolean(Key::open_ended);
  trace_.first_number = number(Key::first_number);
  trace_.damaged_at_end = fields_.boolean(Key::damaged_at_end);
  trace_.inconclusive = fields_.text(Key::inconclusive).value_or("");
  sized_ = fields_.boolean(Key::sized, true);
  if (fields_.has(Key::created)) created_ = number(Key::created);
  if (fields_.has(Key::unrecorded)) unrecorded_ = fields_.integers(Key::unrecorded, 0, UINT32_MAX);
  trace_.conflicts = tables_.names(fields_.names(Key::conflicts));
  const std::uint32_t damaged = number(Key::damaged);
  for (std::string& what : tables_.names(fields_.names(Key::damage)))
    trace_.add_damage(std::move(what));
  trace_.damaged_count = std::max<std::uint64_t>(trace_.damaged_count, damaged);
  read_progress();
}

// Lists of equal length: the groups, and how many calls of each; -1 where nothing tells.
void TextReader::read_progress() {
  const std::vector<std::string> groups = tables_.names(fields_.names(Key::progress));
  const auto counts = [&](Key key) {
    std::vector<std::int64_t> out = fields_.integers(key, -1);
    out.resize(groups.size(), -1);
    return out;
  };
  const std::vector<std::int64_t> enqueued = counts(Key::enqueued);
  const std::vector<std::int64_t> started = counts(Key::started);
  const std::vector<std::int64_t> completed = counts(Key::completed);
  const auto known = [](std::int64_t count) {
    return count < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(count));
  };
  for (std::size_t i = 0; i < groups.size(); ++i) {
    trace_.progress.push_back({tables_.groups.intern(groups[i]), known(enqueued[i]),
                               known(started[i]), known(completed[i])});
  }
}

TextReader::Problem TextReader::read_group() {
  fields_.require(Key::ranks);
  const GroupId group = fields_.group_name(Key::group);
  const StringId desc = fields_.name(Key::desc);
  const std::optional<RankList> ranks = has_ranges_ ? read_ranges() : read_ranks();
  if (!fields_.problem().empty()) return fields_.problem();
  if (!ranks) return "the groups of the traces have too many members";
  const Problem refused(builder_.add_group(group, *ranks, desc));
  // Later ones may have been written at their first use.
  if (trace_.calls.empty()) {
    trace_.created_in_order = static_cast<std::uint32_t>(trace_.groups.size());
  }
  return refused;
}

RankList TextReader::read_ranks() {
  std::vector<Rank> ranks;
  for (const std::int64_t rank : fields_.integers(Key::ranks, INT32_MIN, INT32_MAX)) {
    ranks.emplace_back(static_cast<std::int32_t>(rank));
  }
  return tables_.rank_lists.intern(ranks);
}

std::optional<RankList> TextReader::read_ranges() {
  const auto ranges = fields_.rank_ranges(Key::ranks, trace_.world_size - 1);
  return ranges ? tables_.rank_lists.intern(*ranges) : RankList();
}

TextReader::Problem TextReader::read_end() {
  const std::string_view mark = fields_.text(Key::end).value_or("");
  if (mark == "clean") {
    trace_.end = End::clean;
  } else if (mark == "hung") {
    trace_.end = End::hung;
  } else if (mark == "exception") {
    trace_.end = End::exception;
  } else if (mark == "killed") {
    trace_.end = End::killed;
  } else if (mark == "interrupted") {
    trace_.end = End::interrupted;
  } else {
    return "an end mark that is not known";
  }
  ended_ = true;
  return {};
}

TextReader::Problem TextReader::read_event() {
  const std::string_view ev = fields_.text(Key::ev).value_or("");
  if (!fields_.problem().empty()) return fields_.problem();
  const std::int64_t recorded_time = fields_.integer(Key::t).value_or(kNoTime);
  const Nanos time = recorded_time < 0 ? kNoTime : recorded_time;
  if (ev == "issue") return read_issue(time);
  if (ev == "start") return read_call_event(EventKind::start, time);
  if (ev == "complete") return read_call_event(EventKind::complete, time);
  if (ev == "wait") return read_call_event(EventKind::wait, time);
  if (ev == "waited") return read_call_event(EventKind::waited, time);
  if (ev == "use") return read_call_event(EventKind::use, time);
  if (ev == "write") return read_call_event(EventKind::write, time);
  if (ev == "exception") return read_exception(time);
  if (ev == "step") return read_step(time);
  if (ev == "state") return read_state(time);
  if (ev == "data") return read_data(time);
  if (ev == "modality") return read_modality(time);
  if (ev == "span") return read_span(time);
  return {};  // a kind of event that a later version may bring
}

SignatureId TextReader::read_signature(Op op, std::string_view name) {
  Signature signature;
  signature.op = op;
  if (op == Op::other) signature.other_op = tables_.strings.intern(std::string(name));
  signature.in = fields_.shapes(Key::in);
  signature.out = fields_.shapes(Key::out);
  signature.dtypes = fields_.names(Key::dtype);
  signature.redop = fields_.name(Key::redop);
  signature.root = fields_.int32(Key::root, kNone, kNone, trace_.world_size - 1);
  signature.splits_in = fields_.sizes(Key::splits_in);
  signature.splits_out = fields_.sizes(Key::splits_out);
  signature.count = fields_.integer(Key::count, 0).value_or(kNone);
  signature.mode = fields_.name(Key::mode);
  return tables_.make_signature(signature);
}

TextReader::Problem TextReader::read_issue(Nanos time) {
  fields_.require(Key::id);
  fields_.require(Key::g);
  fields_.require(Key::op);
  const std::string_view op_text = fields_.text(Key::op).value_or("");
  const Op op = op_from_name(op_text).value_or(Op::other);
  Call call;
  call.id = fields_.integer(Key::id, 0).value_or(0);
  call.group = fields_.group_name(Key::g);
  call.signature = read_signature(op, op_text);
  call.what = fields_.names(Key::what);
  call.at = fields_.name(Key::at);
  call.tag = fields_.name(Key::tag);
  call.stream = fields_.name_or_number(Key::stream);
  call.step = fields_.int32(Key::step, kNone, INT32_MIN);
  call.peer = Rank(fields_.int32(Key::peer, kNone, kNone, trace_.world_size - 1));
  call.ptag = fields_.int32(Key::ptag, kNoPeerTag, kNoPeerTag + 1);
  call.coalesced = fields_.int32(Key::coalesced, kNone, 0);
  call.thread = static_cast<std::uint16_t>(fields_.int32(Key::thread, 0, 0, UINT16_MAX));
  call.flags = fields_.boolean(Key::async) ? kAsync : 0;
  const auto seq = fields_.integer(Key::seq, 0, UINT32_MAX);
  call.seq = static_cast<std::uint32_t>(seq.value_or(0));
  CallValues values{fields_.hex64(Key::hash), fields_.numbers(Key::sketch), kNone, kNoPeerTag};
  if (!fields_.problem().empty()) return fields_.problem();
  const auto numbering = seq ? TraceBuilder::Numbering::recorded : TraceBuilder::Numbering::count;
  const std::string_view refused = builder_.add_issue(call, is_point_to_point(op), time, numbering);
  if (!refused.empty()) return Problem(refused);
  if (values.hash || !values.sketch.empty())
    values_of(trace_.calls.own().back()) = std::move(values);
  return {};
}

CallValues& TextReader::values_of(Call& call) {
  if (call.values == 0) {
    trace_.values.emplace_back();
    call.values = static_cast<std::uint32_t>(trace_.values.size());
  }
  return trace_.values[call.values - 1];
}

TextReader::Problem TextReader::read_call_event(EventKind kind, Nanos time) {
  fields_.require(Key::id);
  const std::int64_t id = fields_.integer(Key::id).value_or(0);
  const std::int32_t from = fields_.int32(Key::from, kNone, 0, trace_.world_size - 1);
  const std::int32_t fromtag = fields_.int32(Key::fromtag, kNoPeerTag, 0);
  if (!fields_.problem().empty()) return fields_.problem();
  const std::string_view refused = builder_.add_call_event(kind, id, time);
  if (!refused.empty()) return Problem(refused);
  Call* call = kind == EventKind::complete ? builder_.find_call(id) : nullptr;
  if (call != nullptr && (from != kNone || fromtag != kNoPeerTag)) {
    CallValues& values = values_of(*call);
    values.from = from;
    values.fromtag = fromtag;
  }
  return {};
}

TextReader::Problem TextReader::read_exception(Nanos time) {
  ExceptionMark mark;
  mark.what = fields_.text(Key::what).value_or("");
  const std::optional<std::int64_t> id = fields_.integer(Key::id);
  if (!fields_.problem().empty()) return fields_.problem();
  // An exception counts even if the call that it names was lost.
  if (Call* call = id ? builder_.find_call(*id) : nullptr) {
    call->flags |= kFailed;
    mark.call = builder_.index_of(*call);
  }
  builder_.add_mark(EventKind::exception, trace_.exceptions, std::move(mark), time);
  return {};
}

TextReader::Problem TextReader::read_step(Nanos time) {
  fields_.require(Key::n);
  const StepMark mark{fields_.integer(Key::n).value_or(0), fields_.number(Key::loss),
                      fields_.integer(Key::samples)};
  if (!fields_.problem().empty()) return fields_.problem();
  builder_.add_mark(EventKind::step, trace_.steps, mark, time);
  return {};
}

TextReader::Problem TextReader::read_state(Nanos time) {
  fields_.require(Key::n);
  fields_.require(Key::name);
  StateMark mark;
  mark.n = fields_.integer(Key::n).value_or(0);
  mark.name = fields_.name(Key::name);
  mark.hash = fields_.hex64(Key::hash);
  mark.norm = fields_.number(Key::norm);
  mark.shape = fields_.sizes(Key::shape);
  mark.dtype = fields_.name(Key::dtype);
  mark.sharded = fields_.boolean(Key::sharded);
  mark.sketch = fields_.numbers(Key::sketch);
  const std::string_view kind = fields_.text(Key::kind).value_or("param");
  if (kind == "grad") {
    mark.kind = StateMark::Kind::grad;
  } else if (kind == "buffer") {
    mark.kind = StateMark::Kind::buffer;
  } else if (kind == "optim") {
    mark.kind = StateMark::Kind::optim;
  } else if (kind != "param") {
    fields_.complain(Key::kind, "is not known");
  }
  const std::string_view when = fields_.text(Key::when).value_or("");
  if (when == "local") {
    mark.when = StateMark::When::local;
  } else if (when == "synced") {
    mark.when = StateMark::When::synced;
  } else if (!when.empty()) {
    fields_.complain(Key::when, "is not known");
  }
  if (!fields_.problem().empty()) return fields_.problem();
  builder_.add_mark(EventKind::state, trace_.states, std::move(mark), time);
  return {};
}

TextReader::Problem TextReader::read_data(Nanos time) {
  fields_.require(Key::n);
  fields_.require(Key::indices);
  DataMark mark{fields_.integer(Key::n).value_or(0), fields_.integers(Key::indices, INT64_MIN),
                fields_.name(Key::modality)};
  if (!fields_.problem().empty()) return fields_.problem();
  builder_.add_mark(EventKind::data, trace_.data, std::move(mark), time);
  return {};
}

TextReader::Problem TextReader::read_modality(Nanos time) {
  fields_.require(Key::n);
  fields_.require(Key::has);
  const ModalityMark mark{fields_.integer(Key::n).value_or(0), fields_.names(Key::has, true)};
  if (!fields_.problem().empty()) return fields_.problem();
  builder_.add_mark(EventKind::modality, trace_.modalities, mark, time);
  return {};
}

TextReader::Problem TextReader::read_span(Nanos time) {
  fields_.require(Key::name);
  const SpanMark mark{fields_.name(Key::name), fields_.name_or_number(Key::stream),
                      fields_.integer(Key::dur, 0).value_or(0),
                      fields_.integer(Key::id, 0).value_or(kNone),
                      fields_.integer(Key::after, 0).value_or(kNone)};
  if (mark.after != kNone && mark.duration > 0)
    fields_.complain(Key::dur, "is above 0, but a span that waits does no work");
  if (!fields_.problem().empty()) return fields_.problem();
  builder_.add_mark(EventKind::span, trace_.spans, mark, time);
  return {};
}

}  // namespace

Result<RankTrace> read_text_trace(std::string_view text, const std::string& file, Tables& tables) {
  return TextReader(text, file, tables).read();
}

}  // namespace lockstep::trace
