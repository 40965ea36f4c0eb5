// Writes the text form, one JSON object per line (docs/trace-format.md).
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "base/text.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep::trace {

namespace {

constexpr std::size_t kFlushAt = std::size_t{1} << 16U;

// One JSON object per line, key by key. Knows JSON, and nothing of traces.
class LineWriter {
 public:
  explicit LineWriter(std::ostream& out) : out_(out) {}
  ~LineWriter() { flush(); }
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  LineWriter& open() { return raw("{"); }
  void close() {
    raw("}\n");
    if (buffer_.size() >= kFlushAt) flush();
  }

  LineWriter& key(std::string_view name) {
    if (buffer_.back() != '{') buffer_ += ',';
    buffer_ += '"';
    buffer_.append(name).append("\":");
    return *this;
  }
  LineWriter& raw(std::string_view json) {
    buffer_.append(json);
    return *this;
  }
  template <class Number>
  LineWriter& number(Number value) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    buffer_.append(digits.data(), end);
    return *this;
  }
  LineWriter& string(std::string_view text);
  LineWriter& hex(std::uint64_t value) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    buffer_ += '"';
    for (int shift = 60; shift >= 0; shift -= 4) buffer_ += kDigits[value >> shift & 15U];
    buffer_ += '"';
    return *this;
  }
  // Writes [a,b,…], each element by write(element).
  template <class List, class Write>
  LineWriter& list(const List& items, Write write) {
    buffer_ += '[';
    bool first = true;
    for (const auto& item : items) {
      if (!first) buffer_ += ',';
      first = false;
      write(item);
    }
    buffer_ += ']';
    return *this;
  }
  template <class List>
  LineWriter& numbers(const List& items) {
    return list(items, [&](auto value) { number(value); });
  }

 private:
  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }

  std::ostream& out_;
  std::string buffer_;
};

// Escapes what JSON demands. Bytes that are not UTF-8 become U+FFFD: a trace stays readable.
LineWriter& LineWriter::string(std::string_view text) {
  const std::string valid = to_utf8(text);
  buffer_ += '"';
  for (const char c : valid) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      buffer_ += '\\';
      buffer_ += c;
    } else if (code < 0x20) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      buffer_ += "\\u00";
      buffer_ += kDigits[code >> 4U];
      buffer_ += kDigits[code & 15U];
    } else {
      buffer_ += c;
    }
  }
  buffer_ += '"';
  return *this;
}

bool all_finite(const std::vector<double>& values) {
  for (const double value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

std::string_view event_name(EventKind kind) {
  switch (kind) {
    case EventKind::issue:
      return "issue";
    case EventKind::start:
      return "start";
    case EventKind::complete:
      return "complete";
    case EventKind::wait:
      return "wait";
    case EventKind::waited:
      return "waited";
    case EventKind::use:
      return "use";
    case EventKind::write:
      return "write";
    case EventKind::exception:
      return "exception";
    case EventKind::step:
      return "step";
    case EventKind::state:
      return "state";
    case EventKind::data:
      return "data";
    case EventKind::modality:
      return "modality";
    case EventKind::span:
      return "span";
  }
  return "";
}

std::string_view end_name(End end) {
  switch (end) {
    case End::cut:
      return "";
    case End::clean:
      return "clean";
    case End::hung:
      return "hung";
    case End::exception:
      return "exception";
    case End::killed:
      return "killed";
    case End::interrupted:
      return "interrupted";
  }
  return "";
}

std::string_view kind_name(StateMark::Kind kind) {
  switch (kind) {
    case StateMark::Kind::param:
      return "param";
    case StateMark::Kind::grad:
      return "grad";
    case StateMark::Kind::buffer:
      return "buffer";
    case StateMark::Kind::optim:
      return "optim";
  }
  return "";
}

// The ranges as which a group is written; empty: its ranks one by one. Readers of version 1 refuse
// ranges, so that they are used only where a line would be long.
std::vector<RankRange> ranges_of(const RankList& ranks) {
  constexpr std::size_t kFewRanks = 1024;  // a line of some 5 KiB
  if (ranks.size() <= kFewRanks) return {};
  std::vector<RankRange> out = as_ranges(ranks);
  return 4 * out.size() < ranks.size() ? out : std::vector<RankRange>();
}

class TextWriter {
 public:
  TextWriter(std::ostream& out, const RankTrace& trace, const Tables& tables)
      : line_(out), trace_(trace), tables_(tables) {
    for (const RankTrace::Membership& group : trace.groups) {
      ranges_.push_back(ranges_of(group.ranks));
      has_ranges_ = has_ranges_ || !ranges_.back().empty();
    }
    is_copy_ = !trace.converted_from.empty() && (trace.converted_from != "text" || !is_plain());
  }

  void write() {
    write_header();
    // What stands ahead of the first call is read as the order of creation; the others follow it.
    written_.resize(trace_.groups.size());
    write_groups(trace_.calls.empty() ? trace_.groups.size() : trace_.created_in_order);
    bool all = trace_.calls.empty();
    for (const Event& event : trace_.events) {
      const bool first_call = !all && event.kind == EventKind::issue;
      if (first_call) write_group_of(trace_.calls[event.index]);
      write_event(event);
      if (first_call) write_groups(trace_.groups.size());
      all |= first_call;
    }
    if (trace_.end == End::cut) return;
    line_.open().key("end").string(end_name(trace_.end)).close();
  }

 private:
  std::int32_t least_world_size() const;
  void write_header();
  void add_converted();
  void add_progress();
  std::size_t created_as_read() const;
  bool is_plain() const;
  bool is_next(const Call& call);
  void write_group(std::size_t index);  // unless it was written already
  void write_groups(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) write_group(i);
  }
  void write_group_of(const Call& call) {
    for (std::size_t i = 0; i < trace_.groups.size(); ++i) {
      if (trace_.groups[i].group == call.group) write_group(i);
    }
  }
  void write_event(const Event& event);
  void write_issue(const Event& event);
  void write_signature(const Signature& signature);
  void write_call_event(const Event& event);
  void write_exception(const ExceptionMark& mark);
  void write_step(const StepMark& mark);
  void write_state(const StateMark& mark);
  void write_span(const SpanMark& mark);

  // Each writes nothing where there is nothing recorded.
  void optional_text(std::string_view key, std::string_view text) {
    if (!text.empty()) line_.key(key).string(text);
  }
  void optional_name(std::string_view key, StringId id) { optional_text(key, tables_.str(id)); }
  void optional_integer(std::string_view key, std::int64_t value, std::int64_t absent) {
    if (value != absent) line_.key(key).number(value);
  }
  void optional_number(std::string_view key, const std::optional<double>& value) {
    // JSON has no word for infinity and NaN.
    if (value && std::isfinite(*value)) line_.key(key).number(*value);
  }
  void optional_sketch(const std::vector<double>& sketch) {
    if (!sketch.empty() && all_finite(sketch)) line_.key("sketch").numbers(sketch);
  }
  void optional_sizes(std::string_view key, IntListId id) {
    if (id != IntListId{}) line_.key(key).numbers(tables_.int_lists[id]);
  }
  void optional_shapes(std::string_view key, IntListId id) {
    if (id == IntListId{}) return;
    line_.key(key).list(unflatten_shapes(tables_.int_lists[id]),
                        [&](const auto& shape) { line_.numbers(shape); });
  }
  void names(std::string_view key, NameListId id) {
    line_.key(key).list(tables_.name_lists[id],
                        [&](StringId name) { line_.string(tables_.str(name)); });
  }

  LineWriter line_;
  const RankTrace& trace_;
  const Tables& tables_;
  std::vector<bool> written_;                   // by group of the trace
  std::vector<std::vector<RankRange>> ranges_;  // by group: ranges_of()
  bool has_ranges_ = false;                     // some group is written as ranges: version 2
  bool is_copy_ = false;                        // of what other lines do not tell all of
  // By group: the numbers that a reader expects of its next collective and message.
  std::map<GroupId, std::array<std::uint64_t, 2>> next_;
};

// The size of the job, which a header needs; where the source does not know it, at least that of
// the ranks that the trace names.
std::int32_t TextWriter::least_world_size() const {
  if (trace_.world_size != kNone) return trace_.world_size;
  std::int32_t out = trace_.rank.value + 1;
  for (const RankTrace::Membership& group : trace_.groups)
    if (group.ranks.size() > 0) out = std::max(out, group.ranks.highest().value + 1);
  return out;
}

void TextWriter::write_header() {
  line_.open().key("header").number(has_ranges_ ? 2 : 1);
  line_.key("rank").number(trace_.rank.value);
  line_.key("world_size").number(least_world_size());
  optional_text("backend", trace_.backend);
  line_.key("clock").string("ns");
  optional_text("host", trace_.host);
  optional_integer("gpu", trace_.gpu, kNone);
  optional_integer("pid", trace_.pid, kNone);
  optional_text("program", trace_.program);
  if (trace_.dropped > 0) line_.key("dropped").number(trace_.dropped);
  if (trace_.semantics == Semantics::mpi) line_.key("semantics").string("mpi");
  if (is_copy_) add_converted();
  line_.close();
}

// How many groups a reader takes to stand in the order in which the rank created them: those ahead
// of the first call.
std::size_t TextWriter::created_as_read() const {
  const std::size_t all = trace_.groups.size();
  if (trace_.calls.empty()) return all;
  std::size_t out = trace_.created_in_order;
  for (std::size_t i = out; i < all; ++i)
    if (trace_.groups[i].group == trace_.calls.front().group) ++out;
  return out;
}

// Whether the other lines say all.
bool TextWriter::is_plain() const {
  return !trace_.snapshot && trace_.world_size != kNone && trace_.first_number == 0 &&
         trace_.created_in_order == created_as_read() && !trace_.ends_of_waits &&
         !trace_.open_ended && trace_.inconclusive.empty() && trace_.conflicts.empty() &&
         trace_.damaged_count == 0 && trace_.progress.empty() && trace_.dropped == 0;
}

// What a copy of another format keeps of it: without these keys, verifying the copy would say more
// than the original allows, or something else. Other readers pass over keys that they do not know.
void TextWriter::add_converted() {
  line_.key("converted").string(trace_.converted_from);
  const auto flag = [&](std::string_view key, bool value, bool absent = false) {
    if (value != absent) line_.key(key).raw(value ? "true" : "false");
  };
  flag("snapshot", trace_.snapshot);
  flag("sized", trace_.world_size != kNone, true);
  if (trace_.first_number != 0) line_.key("first_number").number(trace_.first_number);
  if (trace_.created_in_order != created_as_read())
    line_.key("created").number(trace_.created_in_order);
  flag("ends_of_waits", trace_.ends_of_waits);
  if (trace_.longest_open != kNoTime) {
    line_.key("longest_open").number(trace_.longest_open);
    line_.key("longest_completed").number(trace_.longest_completed);
  }
  if (!trace_.unrecorded.empty()) {
    std::vector<std::int64_t> pairs;  // of a call's index and its count
    for (std::size_t c = 0; c < trace_.unrecorded.size(); ++c)
      if (trace_.unrecorded[c] > 0)
        pairs.insert(pairs.end(), {static_cast<std::int64_t>(c), trace_.unrecorded[c]});
    line_.key("unrecorded").numbers(pairs);
  }
  flag("open_ended", trace_.open_ended);
  flag("damaged_at_end", trace_.damaged_at_end);
  optional_text("inconclusive", trace_.inconclusive);
  if (!trace_.conflicts.empty())
    line_.key("conflicts").list(trace_.conflicts, [&](const auto& text) { line_.string(text); });
  if (trace_.damaged_count > 0) {
    line_.key("damaged").number(std::min<std::uint64_t>(trace_.damaged_count, UINT32_MAX));
    line_.key("damage").list(trace_.damaged,
                             [&](const DamagedRecord& record) { line_.string(record.message); });
  }
  if (!trace_.progress.empty()) add_progress();
}

void TextWriter::add_progress() {
  line_.key("progress").list(trace_.progress, [&](const RankTrace::Progress& progress) {
    line_.string(tables_.str(progress.group));
  });
  const auto counts = [&](std::string_view key,
                          std::optional<std::uint64_t> RankTrace::Progress::*count) {
    line_.key(key).list(trace_.progress, [&](const RankTrace::Progress& progress) {
      const std::optional<std::uint64_t>& number = progress.*count;
      if (number) {
        line_.number(std::min<std::uint64_t>(*number, INT64_MAX));
      } else {
        line_.raw("-1");
      }
    });
  };
  counts("enqueued", &RankTrace::Progress::enqueued);
  counts("started", &RankTrace::Progress::started);
  counts("completed", &RankTrace::Progress::completed);
}

void TextWriter::write_group(std::size_t index) {
  if (written_[index]) return;
  written_[index] = true;
  const RankTrace::Membership& group = trace_.groups[index];
  line_.open().key("group").string(tables_.str(group.group));
  line_.key("ranks");
  if (!ranges_[index].empty()) {
    line_.list(ranges_[index], [&](const RankRange& range) {
      line_.raw("[").number(range.first).raw(",").number(range.last);
      if (range.step > 1) line_.raw(",").number(range.step);
      line_.raw("]");
    });
  } else {
    line_.list(group.ranks, [&](Rank rank) { line_.number(rank.value); });
  }
  optional_name("desc", group.desc);
  line_.close();
}

void TextWriter::write_event(const Event& event) {
  line_.open().key("ev").string(event_name(event.kind));
  switch (event.kind) {
    case EventKind::issue:
      write_issue(event);
      break;
    case EventKind::exception:
      write_exception(trace_.exceptions[event.index]);
      break;
    case EventKind::step:
      write_step(trace_.steps[event.index]);
      break;
    case EventKind::state:
      write_state(trace_.states[event.index]);
      break;
    case EventKind::data:
      line_.key("n").number(trace_.data[event.index].n);
      line_.key("indices").numbers(trace_.data[event.index].indices);
      optional_name("modality", trace_.data[event.index].modality);
      break;
    case EventKind::modality:
      line_.key("n").number(trace_.modalities[event.index].n);
      names("has", trace_.modalities[event.index].has);
      break;
    case EventKind::span:
      write_span(trace_.spans[event.index]);
      break;
    default:
      write_call_event(event);
  }
  // An issue and what follows it carry the time after their id.
  if (event.kind > EventKind::write) optional_integer("t", event.time, kNoTime);
  line_.close();
}

void TextWriter::write_signature(const Signature& signature) {
  optional_shapes("in", signature.in);
  optional_shapes("out", signature.out);
  optional_integer("count", signature.count, kNone);
  const std::vector<StringId>& dtypes = tables_.name_lists[signature.dtypes];
  if (dtypes.size() == 1) {
    line_.key("dtype").string(tables_.str(dtypes.front()));
  } else if (!dtypes.empty()) {
    names("dtype", signature.dtypes);
  }
  optional_name("redop", signature.redop);
  optional_integer("root", signature.root, kNone);
}

// Whether a reader counts the call as it is numbered, as it does most.
bool TextWriter::is_next(const Call& call) {
  std::uint64_t& next = next_[call.group][tables_.is_message(call) ? 1 : 0];
  const bool begins = next == 0 && trace_.first_seq.contains(call.group);
  const bool expected = call.seq == next && !begins;
  next = call.seq + std::uint64_t{1};
  return expected;
}

void TextWriter::write_issue(const Event& event) {
  const Call& call = trace_.calls[event.index];
  const Signature& signature = tables_.signatures[call.signature];
  line_.key("id").number(call.id);
  line_.key("g").string(tables_.str(call.group));
  line_.key("op").string(signature.op == Op::other ? tables_.str(signature.other_op)
                                                   : op_name(signature.op));
  optional_integer("t", event.time, kNoTime);
  if (is_copy_ && !is_next(call)) line_.key("seq").number(call.seq);
  write_signature(signature);
  optional_integer("peer", call.peer.value, kNone);
  optional_integer("ptag", call.ptag, kNoPeerTag);
  optional_name("mode", signature.mode);
  optional_sizes("splits_in", signature.splits_in);
  optional_sizes("splits_out", signature.splits_out);
  if (call.has(kAsync)) line_.key("async").raw("true");
  optional_integer("coalesced", call.coalesced, kNone);
  optional_name("stream", call.stream);
  optional_integer("thread", call.thread, 0);
  if (call.what != NameListId{}) names("what", call.what);
  optional_name("at", call.at);
  optional_integer("step", call.step, kNone);
  optional_name("tag", call.tag);
  if (call.values == 0) return;
  const CallValues& values = trace_.values[call.values - 1];
  if (values.hash) line_.key("hash").hex(*values.hash);
  optional_sketch(values.sketch);
}

void TextWriter::write_call_event(const Event& event) {
  const Call& call = trace_.calls[event.index];
  line_.key("id").number(call.id);
  optional_integer("t", event.time, kNoTime);
  if (event.kind != EventKind::complete || call.values == 0) return;
  const CallValues& values = trace_.values[call.values - 1];
  optional_integer("from", values.from, kNone);
  optional_integer("fromtag", values.fromtag, kNoPeerTag);
}

void TextWriter::write_exception(const ExceptionMark& mark) {
  optional_text("what", mark.what);
  if (mark.call) line_.key("id").number(trace_.calls[*mark.call].id);
}

void TextWriter::write_step(const StepMark& mark) {
  line_.key("n").number(mark.n);
  optional_number("loss", mark.loss);
  if (mark.samples) line_.key("samples").number(*mark.samples);
}

void TextWriter::write_state(const StateMark& mark) {
  line_.key("n").number(mark.n);
  line_.key("name").string(tables_.str(mark.name));
  if (mark.hash) line_.key("hash").hex(*mark.hash);
  optional_number("norm", mark.norm);
  optional_sizes("shape", mark.shape);
  optional_name("dtype", mark.dtype);
  if (mark.kind != StateMark::Kind::param) line_.key("kind").string(kind_name(mark.kind));
  if (mark.when == StateMark::When::local) line_.key("when").string("local");
  if (mark.when == StateMark::When::synced) line_.key("when").string("synced");
  if (mark.sharded) line_.key("sharded").raw("true");
  optional_sketch(mark.sketch);
}

void TextWriter::write_span(const SpanMark& mark) {
  line_.key("name").string(tables_.str(mark.name));
  if (mark.after == kNone) line_.key("dur").number(mark.duration);
  optional_name("stream", mark.stream);
  if (mark.id != kNone) line_.key("id").number(mark.id);
  if (mark.after != kNone) line_.key("after").number(mark.after);
}

}  // namespace

void write_text_trace(std::ostream& out, const RankTrace& trace, const Tables& tables) {
  TextWriter(out, trace, tables).write();
}

}  // namespace lockstep::trace
