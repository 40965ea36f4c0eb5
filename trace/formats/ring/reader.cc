#include "trace/formats/ring/reader.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "trace/formats/ring/contents.h"
#include "trace/gpus.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

// How often to start again when a writer overtakes the reader.
constexpr int kAttempts = 3;

// This many records at the end may be reserved but not written: one for each thread that is
// recording, or was when the process died. They are not damage: what they would say has not
// happened.
constexpr std::uint64_t kInFlight = 64;

// The text of a NUL-padded field.
template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return {field, ::strnlen(field, N)};
}

// Reads the records of one ring, from the oldest to the newest.
class RingReader {
 public:
  RingReader(const RingLayout& layout, const std::string& file, Tables& tables)
      : layout_(layout), tables_(tables) {
    read_header(file);
  }

  // False if a writer overtook the reader, which leaves a hole in the stream. With `accept_holes`,
  // such records count as damaged instead.
  bool read(bool accept_holes);

  RankTrace take() { return std::move(trace_); }

 private:
  // Why a record cannot be used; empty: it was taken.
  using Problem = std::string_view;

  void read_header(const std::string& file);
  std::string_view used_table();
  void add_damage(std::uint64_t number, Problem problem);
  void count_unwritten(std::uint64_t count, std::uint64_t end);
  Problem read_record(const RingRecord& record, std::uint64_t number);
  Problem read_issue(const RingRecord& record, std::uint64_t number);
  Problem read_exception(const RingRecord& record, std::uint64_t number);
  Problem read_step(const RingRecord& record);
  Problem read_span(const RingRecord& record);
  Problem read_state(const RingRecord& record);
  Problem read_sketch(const RingRecord& record);
  Problem read_modality(const RingRecord& record);
  Problem read_data(const RingRecord& record);

  // Records keep the low 32 bits of a call's id, which is the number of the record that issued it.
  static std::int64_t call_id(std::uint32_t low, std::uint64_t number) {
    return static_cast<std::int64_t>(number - static_cast<std::uint32_t>(number - low));
  }

  const RingLayout& layout_;
  Tables& tables_;
  RankTrace trace_;
  TraceBuilder builder_{trace_};
  RingTableReader* table_ = nullptr;
  DataMark open_data_;  // the pieces of a data mark so far
  bool data_is_open_ = false;
  StateMark open_state_;           // a state whose sketch is not yet whole
  std::uint32_t sketch_left_ = 0;  // values of it that are missing
};

void RingReader::read_header(const std::string& file) {
  const ring::Header& header = *layout_.header;
  trace_.source = file;
  trace_.ends_of_waits = true;
  trace_.rank = Rank(layout_.rank);
  trace_.world_size = layout_.world_size;
  trace_.backend = text_of(header.backend);
  trace_.host = text_of(header.host);
  trace_.program = text_of(header.program);
  trace_.pid = header.pid;
  trace_.gpu = gpu_index(std::int64_t{header.gpu.load(std::memory_order_relaxed)} - 1);
  trace_.semantics = header.semantics == 1 ? Semantics::mpi : Semantics::c10d;
  static_assert(static_cast<int>(End::interrupted) == static_cast<int>(ring::EndMark::interrupted));
  const std::uint32_t mark = header.end_mark.load(std::memory_order_acquire);
  if (mark <= static_cast<std::uint32_t>(End::interrupted)) {
    trace_.end = static_cast<End>(mark);
  } else {
    trace_.add_damage("an end mark that is not known");
  }
}

std::string_view RingReader::used_table() {
  const std::uint64_t used = layout_.header->table_used.load(std::memory_order_acquire);
  if (used > layout_.table.size()) trace_.add_damage("the table is longer than its room");
  return layout_.table.substr(0, std::min<std::uint64_t>(used, layout_.table.size()));
}

bool RingReader::read(bool accept_holes) {
  // Reads the number of records before the table, which then holds everything that they refer to.
  const std::uint64_t written = layout_.written();
  const std::uint64_t first = layout_.oldest(written);
  trace_.dropped = first;
  RingTableReader table(used_table(), trace_, builder_, tables_);
  table_ = &table;
  RingRecord record;
  std::uint64_t unwritten = 0;  // in a row, up to the current record
  for (std::uint64_t number = first; number != written; ++number) {
    const RecordState state = load_record(layout_, number, record);
    if (state == RecordState::overtaken && !accept_holes) return false;
    if (state == RecordState::unwritten) {
      ++unwritten;
      continue;
    }
    count_unwritten(std::exchange(unwritten, 0), number);
    const Problem problem =
        state == RecordState::whole ? read_record(record, number) : "the record is torn";
    if (!problem.empty()) add_damage(number, problem);
  }
  if (unwritten > std::min(kInFlight, layout_.capacity / 2)) count_unwritten(unwritten, written);
  // A data mark that is open at the end was being recorded: it is dropped without damage.
  const std::uint64_t lost = layout_.header->table_lost.load(std::memory_order_relaxed);
  if (lost > 0) {
    trace_.add_damage(fmt::format("{} values had no room in the ring file's table", lost));
  }
  builder_.finish();
  return true;
}

void RingReader::add_damage(std::uint64_t number, Problem problem) {
  trace_.add_damage(fmt::format("record {}: {}", number, problem));
  data_is_open_ = false;  // a mark with a hole is dropped
  sketch_left_ = 0;
}

// The `count` records before number `end` are missing from the middle of the stream.
void RingReader::count_unwritten(std::uint64_t count, std::uint64_t end) {
  for (std::uint64_t i = count; i > 0; --i) {
    add_damage(end - i, "the record was not completely written");
  }
}

RingReader::Problem RingReader::read_record(const RingRecord& record, std::uint64_t number) {
  if (data_is_open_ && (record.kind != ring::RecordKind::data || record.part == 0)) {
    add_damage(number, "it interrupts a data mark");
  }
  if (sketch_left_ > 0 && (record.kind != ring::RecordKind::state || record.part == 0)) {
    add_damage(number, "it interrupts a state");
  }
  const auto call_event = [&](EventKind kind) {
    return builder_.add_call_event(kind, call_id(record.id, number), record.time);
  };
  switch (record.kind) {
    case ring::RecordKind::issue:
      return read_issue(record, number);
    case ring::RecordKind::start:
      return call_event(EventKind::start);
    case ring::RecordKind::complete:
      return call_event(EventKind::complete);
    case ring::RecordKind::wait:
      return call_event(EventKind::wait);
    case ring::RecordKind::waited:
      return call_event(EventKind::waited);
    case ring::RecordKind::exception:
      return read_exception(record, number);
    case ring::RecordKind::step:
      return read_step(record);
    case ring::RecordKind::modality:
      return read_modality(record);
    case ring::RecordKind::data:
      return read_data(record);
    case ring::RecordKind::state:
      return read_state(record);
    case ring::RecordKind::span:
      return read_span(record);
    case ring::RecordKind::none:
      break;
  }
  return "a kind of record that is not known";
}

RingReader::Problem RingReader::read_issue(const RingRecord& record, std::uint64_t number) {
  const auto fields = record.as<ring::CallFields>();
  bool ok = fields.group != 0;
  Call call;
  call.id = static_cast<std::int64_t>(number);
  call.group = table_->group(fields.group, ok);
  call.signature = table_->signature(fields.signature, ok);
  call.what = table_->names(fields.what, ok);
  call.at = table_->string(fields.at, ok);
  call.tag = table_->string(fields.tag, ok);
  call.step = fields.step;
  call.peer = Rank(fields.peer);
  call.ptag = fields.ptag;
  call.seq = fields.seq;
  call.flags = fields.is_async != 0 ? kAsync : 0;
  call.thread = record.part;
  const bool peer_ok = fields.peer == kNone || is_possible_rank(fields.peer, trace_.world_size);
  if (!ok || !peer_ok || record.id != static_cast<std::uint32_t>(number)) {
    return "it refers to something that is not there";
  }
  const bool point_to_point = tables_.is_message(call);
  return builder_.add_issue(call, point_to_point, record.time, TraceBuilder::Numbering::recorded);
}

RingReader::Problem RingReader::read_exception(const RingRecord& record, std::uint64_t number) {
  const auto fields = record.as<ring::ExceptionFields>();
  bool ok = true;
  ExceptionMark mark;
  mark.what = tables_.str(table_->string(fields.what, ok));
  if (!ok) return "it refers to something that is not there";
  const bool has_call = fields.has_call != 0;
  if (Call* call = has_call ? builder_.find_call(call_id(record.id, number)) : nullptr) {
    call->flags |= kFailed;
    mark.call = builder_.index_of(*call);
  }
  builder_.add_mark(EventKind::exception, trace_.exceptions, std::move(mark), record.time);
  return {};
}

RingReader::Problem RingReader::read_step(const RingRecord& record) {
  const auto fields = record.as<ring::StepFields>();
  StepMark mark{record.id, std::nullopt, std::nullopt};
  if (!std::isnan(fields.loss)) mark.loss = fields.loss;
  if (fields.samples >= 0) mark.samples = fields.samples;
  builder_.add_mark(EventKind::step, trace_.steps, mark, record.time);
  return {};
}

RingReader::Problem RingReader::read_span(const RingRecord& record) {
  const auto fields = record.as<ring::SpanFields>();
  bool ok = fields.duration >= 0;
  SpanMark mark;
  mark.name = table_->string(fields.name, ok);
  mark.duration = fields.duration;
  if (!ok) return "it refers to something that is not there";
  builder_.add_mark(EventKind::span, trace_.spans, mark, record.time);
  return {};
}

RingReader::Problem RingReader::read_modality(const RingRecord& record) {
  bool ok = true;
  const NameListId has = table_->names(record.as<ring::ModalityFields>().has, ok);
  if (!ok) return "it refers to something that is not there";
  std::vector<std::string> names = tables_.names(has);
  std::sort(names.begin(), names.end());
  builder_.add_mark(EventKind::modality, trace_.modalities,
                    ModalityMark{record.id, tables_.make_names(names)}, record.time);
  return {};
}

RingReader::Problem RingReader::read_data(const RingRecord& record) {
  const auto fields = record.as<ring::DataFields>();
  if (fields.count > ring::kDataPerRecord) return "it counts more than it holds";
  if (record.part == 0) {
    bool ok = true;
    open_data_ = {record.id, {}, table_->string(fields.modality, ok)};
    data_is_open_ = ok;
    if (!ok) return "it refers to something that is not there";
  } else if (!data_is_open_) {
    // The rest of a mark whose beginning was dropped, or lost.
    return trace_.events.empty() && trace_.dropped > 0 ? "" : "a data mark without its beginning";
  }
  open_data_.indices.insert(open_data_.indices.end(), fields.indices,
                            fields.indices + fields.count);
  if (fields.more != 0) return {};
  data_is_open_ = false;
  builder_.add_mark(EventKind::data, trace_.data, std::exchange(open_data_, {}), record.time);
  return {};
}

RingReader::Problem RingReader::read_state(const RingRecord& record) {
  if (record.part != 0) return read_sketch(record);
  const auto fields = record.as<ring::StateFields>();
  bool ok = fields.sketch <= ring::kMaxSketch &&
            fields.kind <= static_cast<int>(StateMark::Kind::optim) &&
            fields.when <= static_cast<int>(StateMark::When::synced);
  StateMark mark;
  mark.n = record.id;
  mark.name = table_->string(fields.name, ok);
  mark.shape = table_->ints(fields.shape, ok);
  mark.dtype = table_->string(fields.dtype, ok);
  if (!ok) return "it refers to something that is not there";
  if (fields.has_hash != 0) mark.hash = fields.hash;
  if (!std::isnan(fields.norm)) mark.norm = fields.norm;
  mark.kind = static_cast<StateMark::Kind>(fields.kind);
  mark.when = static_cast<StateMark::When>(fields.when);
  mark.sharded = fields.sharded != 0;
  sketch_left_ = fields.sketch;
  if (sketch_left_ > 0) {
    open_state_ = std::move(mark);
    return {};
  }
  builder_.add_mark(EventKind::state, trace_.states, std::move(mark), record.time);
  return {};
}

RingReader::Problem RingReader::read_sketch(const RingRecord& record) {
  if (sketch_left_ == 0) {
    // The rest of a state whose beginning was dropped, or lost.
    return trace_.events.empty() && trace_.dropped > 0 ? "" : "a sketch without its state";
  }
  const auto fields = record.as<ring::SketchFields>();
  const std::uint32_t here = std::min(sketch_left_, ring::kSketchPerRecord);
  open_state_.sketch.insert(open_state_.sketch.end(), fields.values, fields.values + here);
  sketch_left_ -= here;
  if (sketch_left_ > 0) return {};
  builder_.add_mark(EventKind::state, trace_.states, std::exchange(open_state_, {}), record.time);
  return {};
}

}  // namespace

Result<RankTrace> read_ring_trace(std::string_view bytes, const std::string& file, Tables& tables) {
  const Result<RingLayout> layout = RingLayout::of(bytes, file);
  if (!layout) return layout.error();
  for (int attempt = 1;; ++attempt) {
    RingReader reader(*layout, file, tables);
    if (reader.read(attempt == kAttempts)) return reader.take();
  }
}

Result<RankTrace> read_ring_file(const std::string& path, Tables& tables) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  return read_ring_trace(file->bytes(), path, tables);
}

bool looks_like_ring_file(std::string_view first_bytes) {
  return first_bytes.starts_with(std::string_view(ring::kMagic, sizeof ring::kMagic));
}

std::string ring_job(std::string_view bytes) {
  constexpr std::size_t kAt = offsetof(ring::Header, job);
  if (!looks_like_ring_file(bytes) || bytes.size() < ring::kHeaderBytes) return {};
  const std::string_view field = bytes.substr(kAt, sizeof(ring::Header::job));
  return std::string(field.substr(0, field.find('\0')));
}

struct RingTail::Impl {
  MappedFile file;
  RingLayout layout;
  std::uint64_t next = 0;  // the first record that poll() has not looked at
  Progress progress;
};

RingTail::RingTail(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RingTail::RingTail(RingTail&&) noexcept = default;
RingTail& RingTail::operator=(RingTail&&) noexcept = default;
RingTail::~RingTail() = default;

Result<RingTail> RingTail::open(const std::string& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  const Result<RingLayout> layout = RingLayout::of(file->bytes(), path);
  if (!layout) return layout.error();
  auto impl = std::make_unique<Impl>(Impl{std::move(*file), *layout, 0, {}});
  impl->progress.loss = std::numeric_limits<double>::quiet_NaN();
  return RingTail(std::move(impl));
}

std::uint64_t RingTail::written() const { return impl_->layout.written(); }

End RingTail::end() const {
  const std::uint32_t mark = impl_->layout.header->end_mark.load(std::memory_order_acquire);
  return mark <= static_cast<std::uint32_t>(End::interrupted) ? static_cast<End>(mark) : End::cut;
}

std::int64_t RingTail::pid() const { return impl_->layout.header->pid; }

// A record that is not written yet, or torn, is passed over: progress is only shown to people, and
// the next step's record corrects it.
RingTail::Progress RingTail::poll() {
  const RingLayout& layout = impl_->layout;
  const std::uint64_t written = layout.written();
  std::uint64_t number = std::max(impl_->next, layout.oldest(written));
  RingRecord record;
  for (; number < written; ++number) {
    if (load_record(layout, number, record) != RecordState::whole) continue;
    impl_->progress.last_event = record.time;
    if (record.kind != ring::RecordKind::step) continue;
    impl_->progress.steps = std::int64_t{record.id} + 1;
    impl_->progress.loss = record.as<ring::StepFields>().loss;
  }
  impl_->next = written;
  return impl_->progress;
}

}  // namespace lockstep::trace
