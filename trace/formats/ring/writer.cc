#include "trace/formats/ring/writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "trace/formats/ring/ring_file.h"

namespace lockstep::trace {

namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLargestCapacity = std::uint64_t{1} << 32U;  // 256 GiB of records
constexpr std::uint64_t kLargestTable = std::uint64_t{1} << 32U;     // ids stay within 32 bits
constexpr std::size_t kLongestException = 16384;                     // bytes kept of a message

template <std::size_t N>
void copy_padded(char (&to)[N], std::string_view from) {
  std::memcpy(to, from.data(), std::min(from.size(), N - 1));
}

// Makes a file of `bytes` zeros under `path`. Its blocks are reserved now, so that a full disk is
// an error here and not a SIGBUS at some later store.
Result<void*> make_mapped_file(const std::string& path, std::uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    return system_error("cannot create the ring file", errno, path);
  }
  if (const int failed = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)); failed != 0) {
    ::close(fd);
    ::unlink(path.c_str());
    return Error{std::string("cannot reserve the ring file: ") + std::strerror(failed),
                 {path},
                 "free some space, or record into a smaller ring"};
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  const int failed = errno;
  ::close(fd);
  if (data == MAP_FAILED) {
    ::unlink(path.c_str());
    return system_error("cannot map the ring file", failed, path);
  }
  return data;
}

using Words = std::array<std::uint64_t, 8>;  // a record, word by word; word 0 is the stamp

// The words of a record of `kind` whose payload is `fields`.
template <class Fields>
Words record_words(ring::RecordKind kind, std::uint32_t id, Nanos time, const Fields& fields,
                   std::uint16_t part = 0) {
  static_assert(sizeof(Fields) <= 40);
  Words words{};
  words[1] = static_cast<std::uint64_t>(time);
  words[2] =
      id | std::uint64_t{static_cast<std::uint16_t>(kind)} << 32U | std::uint64_t{part} << 48U;
  std::memcpy(&words[3], &fields, sizeof fields);
  return words;
}

struct NoFields {};

std::uint32_t step_number(std::int64_t n) {
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(n, 0, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

struct RingWriter::Impl {
  Impl(void* data, std::uint64_t bytes, const Options& options, std::uint64_t capacity,
       std::uint64_t table_bytes);
  ~Impl() { ::munmap(mapping, mapping_bytes); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Takes the numbers of `count` consecutive records.
  std::uint64_t reserve(std::uint64_t count) {
    return header->written.fetch_add(count, std::memory_order_relaxed);
  }
  void publish(std::uint64_t number, const Words& words);
  void call_event(ring::RecordKind kind, std::uint32_t call) {
    const Nanos time = monotonic_nanos();
    publish(reserve(1), record_words(kind, call, time, NoFields{}));
  }

  void* mapping;
  std::uint64_t mapping_bytes;
  ring::Header* header;
  ring::Record* records;
  std::uint64_t mask;  // capacity - 1
  RingTableWriter table;
};

RingWriter::Impl::Impl(void* data, std::uint64_t bytes, const Options& options,
                       std::uint64_t capacity, std::uint64_t table_bytes)
    : mapping(data),
      mapping_bytes(bytes),
      header(new (data) ring::Header{}),
      records(reinterpret_cast<ring::Record*>(static_cast<char*>(data) + ring::kHeaderBytes +
                                              table_bytes)),
      mask(capacity - 1),
      table(*header, static_cast<char*>(data) + ring::kHeaderBytes) {
  std::memcpy(header->magic, ring::kMagic, sizeof ring::kMagic);
  header->version = ring::kVersion;
  header->header_bytes = ring::kHeaderBytes;
  header->record_bytes = sizeof(ring::Record);
  header->rank = options.rank.value;
  header->world_size = options.world_size;
  header->capacity = capacity;
  header->table_offset = ring::kHeaderBytes;
  header->table_bytes = table_bytes;
  header->ring_offset = ring::kHeaderBytes + table_bytes;
  header->pid = ::getpid();
  copy_padded(header->backend, options.backend);
  copy_padded(header->program, options.program);
  copy_padded(header->job, options.job);
  ::gethostname(header->host, sizeof header->host - 1);
}

// The record's stamp is taken away first and set last. So a reader that finds the right stamp finds
// the whole record, wherever the process was killed, and also when an old record is overwritten.
// Each word is a release store, so that none is seen before the stamp is gone: on x86-64 that is a
// plain store.
void RingWriter::Impl::publish(std::uint64_t number, const Words& words) {
  ring::Record& record = records[number & mask];
  record.stamp.store(0, std::memory_order_relaxed);
  auto* to = reinterpret_cast<std::uint64_t*>(&record);
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::atomic_ref<std::uint64_t>(to[i]).store(words[i], std::memory_order_release);
  }
  record.stamp.store(number + 1, std::memory_order_release);
}

RingWriter::RingWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RingWriter::~RingWriter() = default;

Result<std::unique_ptr<RingWriter>> RingWriter::create(const Options& options) {
  const std::uint64_t capacity =
      std::bit_ceil(std::clamp<std::uint64_t>(options.capacity, 1, kLargestCapacity));
  const std::uint64_t table_bytes =
      (std::clamp(options.table_bytes, kPage, kLargestTable) + kPage - 1) / kPage * kPage;
  const std::uint64_t bytes = ring::kHeaderBytes + table_bytes + capacity * sizeof(ring::Record);
  // Made under another name: whoever finds the ring file finds it with its header.
  const std::string unfinished = options.path + ".new";
  Result<void*> data = make_mapped_file(unfinished, bytes);
  if (!data) return data.error();
  auto impl = std::make_unique<Impl>(*data, bytes, options, capacity, table_bytes);
  if (std::rename(unfinished.c_str(), options.path.c_str()) != 0) {
    const int failed = errno;
    ::unlink(unfinished.c_str());
    return system_error("cannot create the ring file", failed, options.path);
  }
  return std::unique_ptr<RingWriter>(new RingWriter(std::move(impl)));
}

RingWriter::StringRef RingWriter::intern(std::string_view text) {
  return {impl_->table.string(text)};
}

RingWriter::NamesRef RingWriter::intern_names(const std::vector<std::string>& names) {
  return {impl_->table.names(names)};
}

RingWriter::GroupRef RingWriter::make_group(std::string_view name,
                                            std::span<const std::int32_t> ranks,
                                            std::string_view desc, Made made) {
  const ring::EntryKind kind =
      made == Made::created ? ring::EntryKind::group : ring::EntryKind::used_group;
  return {impl_->table.group(kind, name, ranks, desc)};
}

RingWriter::GroupRef RingWriter::make_communicator(std::string_view name, std::int32_t group_rank,
                                                   std::int32_t size, std::string_view desc) {
  return {impl_->table.communicator(name, desc, group_rank, size)};
}

RingWriter::SignatureRef RingWriter::make_signature(const SignatureFields& fields) {
  RingTableWriter& table = impl_->table;
  const std::string_view op = fields.op == Op::other ? fields.other_op : op_name(fields.op);
  ring::SignatureEntry entry{};
  entry.op = table.string(op);
  entry.in = fields.has_in ? table.ints(flatten_shapes(fields.in)) : 0;
  entry.out = fields.has_out ? table.ints(flatten_shapes(fields.out)) : 0;
  entry.dtypes = table.names(fields.dtypes);
  entry.redop = table.string(fields.redop);
  entry.root = fields.root;
  entry.splits_in = table.ints(fields.splits_in);
  entry.splits_out = table.ints(fields.splits_out);
  return {table.signature(entry)};
}

// A call's id is the number of the record that issues it: unique and growing without a second
// counter that could overtake the first.
std::uint32_t RingWriter::issue(const Issue& fields) {
  const Nanos time = monotonic_nanos();
  const ring::CallFields call{fields.group.id, fields.signature.id, fields.what.id, fields.at.id,
                              fields.tag.id,   fields.step,         fields.peer,    fields.ptag,
                              fields.seq,      fields.is_async};
  const std::uint64_t number = impl_->reserve(1);
  const auto id = static_cast<std::uint32_t>(number);
  impl_->publish(number, record_words(ring::RecordKind::issue, id, time, call, fields.thread));
  return id;
}

void RingWriter::start(std::uint32_t call) { impl_->call_event(ring::RecordKind::start, call); }
void RingWriter::complete(std::uint32_t call) {
  impl_->call_event(ring::RecordKind::complete, call);
}
void RingWriter::wait(std::uint32_t call) { impl_->call_event(ring::RecordKind::wait, call); }
void RingWriter::waited(std::uint32_t call) { impl_->call_event(ring::RecordKind::waited, call); }

void RingWriter::exception(std::string_view what, std::int64_t call) {
  const ring::ExceptionFields fields{impl_->table.string(what.substr(0, kLongestException)),
                                     call >= 0};
  const auto id = static_cast<std::uint32_t>(std::max<std::int64_t>(call, 0));
  const Nanos time = monotonic_nanos();
  impl_->publish(impl_->reserve(1), record_words(ring::RecordKind::exception, id, time, fields));
}

void RingWriter::step(std::int64_t n, double loss, std::int64_t samples) {
  const Nanos time = monotonic_nanos();
  impl_->publish(impl_->reserve(1), record_words(ring::RecordKind::step, step_number(n), time,
                                                 ring::StepFields{loss, samples}));
}

void RingWriter::modality(std::int64_t n, NamesRef has) {
  const Nanos time = monotonic_nanos();
  impl_->publish(impl_->reserve(1), record_words(ring::RecordKind::modality, step_number(n), time,
                                                 ring::ModalityFields{has.id}));
}

void RingWriter::span(StringRef name, Nanos began, Nanos duration) {
  impl_->publish(impl_->reserve(1), record_words(ring::RecordKind::span, 0, began,
                                                 ring::SpanFields{duration, name.id, 0}));
}

void RingWriter::data(std::int64_t n, std::span<const std::int64_t> indices, StringRef modality) {
  const Nanos time = monotonic_nanos();
  const std::uint64_t pieces = std::max<std::uint64_t>(
      1, (indices.size() + ring::kDataPerRecord - 1) / ring::kDataPerRecord);
  if (pieces > impl_->mask / 2 + 1) {  // it would push out all else, or itself
    impl_->table.count_lost();
    return;
  }
  const std::uint64_t first = impl_->reserve(pieces);
  for (std::uint64_t piece = 0; piece < pieces; ++piece) {
    const auto part = indices.subspan(
        piece * ring::kDataPerRecord,
        std::min<std::size_t>(ring::kDataPerRecord, indices.size() - piece * ring::kDataPerRecord));
    ring::DataFields fields{
        static_cast<std::uint16_t>(part.size()), piece + 1 < pieces, modality.id, {}};
    std::copy(part.begin(), part.end(), fields.indices);
    impl_->publish(first + piece, record_words(ring::RecordKind::data, step_number(n), time, fields,
                                               piece == 0 ? 0 : 1));
  }
}

void RingWriter::state(const State& state) {
  const ring::StateFields fields{state.hash,
                                 state.norm,
                                 state.name.id,
                                 impl_->table.ints(state.shape),
                                 state.dtype.id,
                                 static_cast<std::uint8_t>(state.kind),
                                 static_cast<std::uint8_t>(state.when),
                                 state.sharded,
                                 state.has_hash,
                                 static_cast<std::uint32_t>(state.sketch.size())};
  LOCKSTEP_CHECK(state.sketch.size() <= ring::kMaxSketch, "a sketch of that many values");
  const Nanos time = monotonic_nanos();
  const std::size_t pieces =
      (state.sketch.size() + ring::kSketchPerRecord - 1) / ring::kSketchPerRecord;
  const std::uint64_t first = impl_->reserve(1 + pieces);
  const std::uint32_t n = step_number(state.n);
  impl_->publish(first, record_words(ring::RecordKind::state, n, time, fields));
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    ring::SketchFields part{};
    const auto values = state.sketch.subspan(piece * ring::kSketchPerRecord);
    std::copy_n(values.begin(), std::min<std::size_t>(values.size(), ring::kSketchPerRecord),
                part.values);
    impl_->publish(first + 1 + piece, record_words(ring::RecordKind::state, n, time, part, 1));
  }
}

void RingWriter::use_gpu(std::int32_t index) {
  impl_->header->gpu.store(static_cast<std::uint32_t>(index + 1), std::memory_order_relaxed);
}

void RingWriter::finish(End end) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "called from signal handlers");
  std::uint32_t none = 0;
  impl_->header->end_mark.compare_exchange_strong(none, static_cast<std::uint32_t>(end),
                                                  std::memory_order_acq_rel);
}

void RingWriter::resume() {
  auto hung = static_cast<std::uint32_t>(End::hung);
  impl_->header->end_mark.compare_exchange_strong(hung, 0, std::memory_order_acq_rel);
}

std::uint64_t RingWriter::written() const {
  return impl_->header->written.load(std::memory_order_relaxed);
}

namespace {

// The pid in the header; nothing where it is none of ours.
std::optional<std::int64_t> named_writer(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[sizeof ring::kMagic];
  std::int64_t pid = 0;
  if (!file.read(magic, sizeof magic) || std::memcmp(magic, ring::kMagic, sizeof magic) != 0)
    return std::nullopt;
  file.seekg(offsetof(ring::Header, pid));
  if (!file.read(reinterpret_cast<char*>(&pid), sizeof pid) || pid <= 0) return std::nullopt;
  return pid;
}

}  // namespace

std::optional<std::int64_t> ring_file_writer(const std::string& path) {
  const std::optional<std::int64_t> pid = named_writer(path);
  struct stat status {};
  if (!pid || ::stat(path.c_str(), &status) != 0) return std::nullopt;
  const std::string inode = " " + std::to_string(status.st_ino) + " ";
  const std::string name = path.substr(path.rfind('/') + 1);
  std::ifstream maps("/proc/" + std::to_string(*pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    // "7f3…-7f4… rw-s 00000000 fe:00 1234567      /folder/rank_0.ring": written, and shared.
    if (line.find(" rw-s ") == std::string::npos || line.find(inode) == std::string::npos) continue;
    if (line.find(name) != std::string::npos) return pid;
  }
  return std::nullopt;
}

namespace {

template <class T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

std::uint32_t RingTableWriter::append(ring::EntryKind kind, std::string_view payload) {
  const std::uint64_t used = header_.table_used.load(std::memory_order_relaxed);
  const std::uint64_t room = header_.table_bytes - used;
  const std::uint64_t padded = (payload.size() + 7) / 8 * 8;
  if (room < sizeof(ring::TableEntry) || padded > room - sizeof(ring::TableEntry)) {
    count_lost();
    return 0;
  }
  const ring::TableEntry entry{static_cast<std::uint32_t>(kind),
                               static_cast<std::uint32_t>(payload.size())};
  std::memcpy(table_ + used, &entry, sizeof entry);
  std::memcpy(table_ + used + sizeof entry, payload.data(), payload.size());
  header_.table_used.store(used + sizeof entry + padded, std::memory_order_release);
  return static_cast<std::uint32_t>(used / 8 + 1);
}

std::uint32_t RingTableWriter::find_or_append(ring::EntryKind kind, std::string_view payload) {
  Index& index = index_[static_cast<std::size_t>(kind)];
  if (const auto found = index.find(payload); found != index.end()) return found->second;
  const std::uint32_t id = append(kind, payload);
  if (id != 0) index.emplace(payload, id);
  return id;
}

std::uint32_t RingTableWriter::string_locked(std::string_view text) {
  return text.empty() ? 0 : find_or_append(ring::EntryKind::string, text);
}

std::uint32_t RingTableWriter::string(std::string_view text) {
  const std::lock_guard lock(mutex_);
  return string_locked(text);
}

std::uint32_t RingTableWriter::names(std::span<const std::string> names) {
  if (names.empty()) return 0;
  const std::lock_guard lock(mutex_);
  scratch_.clear();
  for (const std::string& name : names) {
    scratch_.push_back(string_locked(name));
    // Half a list of parameters would be taken for another list.
    if (scratch_.back() == 0 && !name.empty()) return 0;
  }
  return find_or_append(ring::EntryKind::names, bytes_of(std::span<const std::uint32_t>(scratch_)));
}

std::uint32_t RingTableWriter::ints(std::span<const std::int64_t> values) {
  if (values.empty()) return 0;
  const std::lock_guard lock(mutex_);
  return find_or_append(ring::EntryKind::ints, bytes_of(values));
}

std::uint32_t RingTableWriter::group(ring::EntryKind kind, std::string_view name,
                                     std::span<const std::int32_t> ranks, std::string_view desc) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t name_id = string_locked(name);
  if (name_id == 0 && !name.empty()) return 0;
  scratch_.assign({name_id, string_locked(desc)});
  for (const std::int32_t rank : ranks) scratch_.push_back(static_cast<std::uint32_t>(rank));
  return find_or_append(kind, bytes_of(std::span<const std::uint32_t>(scratch_)));
}

std::uint32_t RingTableWriter::communicator(std::string_view name, std::string_view desc,
                                            std::int32_t group_rank, std::int32_t size) {
  const std::lock_guard lock(mutex_);
  const ring::CommunicatorEntry entry{string_locked(name), string_locked(desc), group_rank, size};
  if (entry.name == 0) return 0;
  return find_or_append(ring::EntryKind::communicator,
                        bytes_of(std::span<const ring::CommunicatorEntry>(&entry, 1)));
}

std::uint32_t RingTableWriter::signature(const ring::SignatureEntry& entry) {
  const std::lock_guard lock(mutex_);
  return find_or_append(ring::EntryKind::signature,
                        bytes_of(std::span<const ring::SignatureEntry>(&entry, 1)));
}

}  // namespace lockstep::trace
