#include "trace/formats/digest/digest.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/sha256.h"
#include "base/text.h"
#include "trace/formats/digest/form.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kDigestMagic = "LKSDIG01";
constexpr std::string_view kAnyVersion = "LKSDIG";
constexpr std::size_t kSumBytes = 64;  // SHA-256 in hexadecimal digits

bool looks_like_digest(std::string_view first_bytes) {
  return !first_bytes.empty() &&
         first_bytes.substr(0, kAnyVersion.size()) == kAnyVersion.substr(0, first_bytes.size());
}

// How much memory the traces of a digest of `bytes` bytes may take. One that says that it expands
// to more is damaged or hostile. Ranks of a class are stored once, so that an honest digest may be
// thousands of times smaller than its traces.
std::size_t most_expanded(std::size_t bytes) {
  constexpr std::size_t kMin = std::size_t{256} << 20U;
  constexpr std::size_t kMax = std::size_t{64} << 30U;
  constexpr std::size_t kTimes = 8192;
  return bytes > kMax / kTimes ? kMax : std::max(kMin, bytes * kTimes);
}

// Columns of one kind, each once; in the end numbered in their order.
using Columns = std::map<std::string, std::uint64_t>;

struct Row {
  const RankTrace* trace;
  std::array<const Columns::value_type*, kDigestColumns> columns;

  auto key() const {
    std::array<std::uint64_t, kDigestColumns> numbers{};
    for (std::size_t i = 0; i < kDigestColumns; ++i) numbers[i] = columns[i]->second;
    return std::tuple(trace->rank, trace->world_size, trace->pid, numbers);
  }
};

void write_unreadable(DigestWriter& out, const Run::Unreadable& file) {
  out.text(file.error.message);
  out.text(file.error.location.file);
  out.number(static_cast<std::uint64_t>(std::max(file.error.location.line, 0)));
  out.number(static_cast<std::uint64_t>(std::max(file.error.location.column, 0)));
  out.text(file.error.fix);
  out.integer(file.rank ? file.rank->value : kNone);
}

Run::Unreadable read_unreadable(DigestReader& in) {
  Run::Unreadable out;
  out.error.message = in.text();
  out.error.location.file = in.text();
  out.error.location.line = static_cast<int>(in.below(INT32_MAX));
  out.error.location.column = static_cast<int>(in.below(INT32_MAX));
  out.error.fix = in.text();
  const std::int32_t rank = in.small();
  if (rank != kNone && !is_possible_rank(rank, kMaxWorldSize)) in.fail();
  if (rank != kNone) out.rank = Rank(rank);
  return out;
}

// Sorted, so that the order of files does not show.
void write_all_unreadable(DigestWriter& out, const std::vector<Run::Unreadable>& files) {
  std::vector<std::string> coded;
  for (const Run::Unreadable& file : files) {
    DigestWriter one;
    write_unreadable(one, file);
    coded.push_back(one.take());
  }
  std::sort(coded.begin(), coded.end());
  out.number(coded.size());
  for (const std::string& bytes : coded) out.text(bytes);
}

class DigestFileReader {
 public:
  DigestFileReader(std::string_view body, const std::string& file, Tables& tables)
      : in_(body), file_(file), tables_(tables), room_{most_expanded(body.size())} {}

  Result<ReadDigest> read() {
    out_.origin.format = in_.text();
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) {
      DigestReader one(in_.text());
      out_.origin.unreadable.push_back(read_unreadable(one));
      if (!one.done()) in_.fail();
    }
    if (!read_digest_tables(in_, tables_, room_, values_)) return damaged();
    for (auto& column : columns_) {
      for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) column.push_back(in_.text());
    }
    if (!read_forms() || !read_rows()) return damaged();
    return std::move(out_);
  }

 private:
  Error damaged() const {
    if (room_.exceeded) {
      return {fmt::format("the traces of this digest take more than {}", bytes_text(room_.most)),
              {file_},
              "record fewer steps (smaller rings), or verify some of the ranks at a time"};
    }
    return {"the digest is damaged", {file_}, "make it again with `lockstep convert --to digest`"};
  }

  bool read_forms() {
    const auto& coded = columns_[static_cast<std::size_t>(DigestColumn::form)];
    forms_.resize(coded.size());
    for (std::size_t i = 0; i < coded.size() && in_.ok(); ++i) {
      if (!read_form(coded[i], values_, forms_[i])) return false;
    }
    return in_.ok();
  }

  bool read_rows() {
    std::int64_t rank = 0;
    for (std::uint64_t n = in_.count(); n > 0; --n) {
      rank += in_.small();
      RankTrace trace;
      trace.world_size = in_.small();
      trace.pid = in_.integer();
      // Logs may not know the size.
      const std::int32_t size = trace.world_size == kNone ? kMaxWorldSize : trace.world_size;
      if (!is_possible_rank(rank, size)) return false;
      trace.rank = Rank(static_cast<std::int32_t>(rank));
      trace.source = file_;
      ColumnViews columns;
      std::size_t form = 0;
      for (std::size_t i = 0; i < kDigestColumns; ++i) {
        const std::uint64_t which = in_.below(columns_[i].size());
        if (!in_.ok()) return false;
        columns[i] = columns_[i][which];
        if (i == static_cast<std::size_t>(DigestColumn::form)) form = which;
      }
      if (!expand_form(forms_[form], columns, values_, tables_, rank_indices_, room_, trace))
        return false;
      out_.traces.push_back(std::move(trace));
    }
    return in_.done();
  }

  DigestReader in_;
  const std::string& file_;
  Tables& tables_;
  DigestRoom room_;
  DigestTables values_;
  std::array<std::vector<std::string_view>, kDigestColumns> columns_;
  std::vector<DigestForm> forms_;
  RankIndices rank_indices_;
  ReadDigest out_;
};

}  // namespace

Digest write_digest(std::span<const RankTrace> traces, const Tables& tables,
                    const DigestOrigin& origin) {
  // Values first: columns refer to them by their numbers, which follow from their order by bytes.
  // So the digest does not depend on the order of the traces.
  DigestValues values(tables);
  for (const RankTrace& trace : traces) values.add(trace);
  values.number();
  std::array<Columns, kDigestColumns> columns;
  std::vector<Row> rows;
  RankIndices rank_indices;
  for (const RankTrace& trace : traces) {
    Row& row = rows.emplace_back();
    row.trace = &trace;
    CodedColumns coded = code_columns(trace, tables, values, rank_indices);
    for (std::size_t i = 0; i < kDigestColumns; ++i)
      row.columns[i] = &*columns[i].try_emplace(std::move(coded[i])).first;
  }
  // Ranks refer to columns by their numbers, too: a column that ranks share is written once.
  DigestWriter out;
  out.text(origin.format);
  write_all_unreadable(out, origin.unreadable);
  values.write(out);
  for (Columns& column : columns) {
    out.number(column.size());
    std::uint64_t next = 0;
    for (auto& [bytes, number] : column) {
      number = next++;
      out.text(bytes);
    }
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.key() < b.key(); });
  out.number(rows.size());
  std::int64_t last = 0;
  for (const Row& row : rows) {
    out.integer(row.trace->rank.value - last);
    last = row.trace->rank.value;
    out.integer(row.trace->world_size);
    out.integer(row.trace->pid);
    for (const auto* column : row.columns) out.number(column->second);
  }
  const std::string body = out.take();
  return {std::string(kDigestMagic) + sha256(body) + body, columns[0].size()};
}

Result<ReadDigest> read_digest(std::string_view bytes, const std::string& file, Tables& tables) {
  if (looks_like_digest(bytes) && bytes.size() >= kDigestMagic.size() &&
      !bytes.starts_with(kDigestMagic)) {
    return Error{"a digest of a version that this lockstep does not know",
                 {file},
                 "read it with the lockstep that made it, or a newer one"};
  }
  if (bytes.size() < kDigestMagic.size() + kSumBytes) {
    return Error{
        "the digest is cut off", {file}, "make it again with `lockstep convert --to digest`"};
  }
  const std::string_view sum = bytes.substr(kDigestMagic.size(), kSumBytes);
  const std::string_view body = bytes.substr(kDigestMagic.size() + kSumBytes);
  if (!bytes.starts_with(kDigestMagic) || sum != sha256(body)) {
    return Error{"the digest is cut off or damaged: its checksum does not match",
                 {file},
                 "copy it again, or make it again with `lockstep convert --to digest`"};
  }
  return DigestFileReader(body, file, tables).read();
}

namespace {

// Whether such a trace can be of that format: those that link traces rely on what their own readers
// make. Profiles are cut by their calls and steps; in NCCL's logs a communicator's group rank
// and size stand where others have ranks.
bool is_of(const Format& format, const RankTrace& trace) {
  if (format.name == "kineto" &&
      std::any_of(trace.events.begin(), trace.events.end(), [](const Event& event) {
        return event.kind > EventKind::write && event.kind != EventKind::step;
      })) {
    return false;
  }
  return format.name == "nccl-log" ||
         std::all_of(trace.groups.begin(), trace.groups.end(),
                     [](const RankTrace::Membership& m) { return m.ranks.distinct(); });
}

Result<Recording> read_recording(const TraceFile& file, Tables& tables) {
  Result<ReadDigest> digest = read_digest(file.bytes, file.name, tables);
  if (!digest) return digest.error();
  Recording out;
  out.format = format_named(digest->origin.format);
  if (out.format == nullptr) {
    return Error{"a digest of traces of an unknown format",
                 {file.name},
                 "read it with the lockstep that made it, or a newer one"};
  }
  for (const RankTrace& trace : digest->traces) {
    if (!is_of(*out.format, trace)) {
      return Error{"the digest is damaged: it holds what its format does not record",
                   {file.name},
                   "make it again with `lockstep convert --to digest`"};
    }
  }
  out.traces = std::move(digest->traces);
  out.unreadable = std::move(digest->origin.unreadable);
  return out;
}

}  // namespace

Format digest_format() {
  return {.name = "digest",
          .summary = "digests of any of these (lockstep convert --to digest)",
          .recognises = looks_like_digest,
          .read = [](const TraceFile& file, Tables& tables) -> Result<std::vector<RankTrace>> {
            Result<Recording> recording = read_recording(file, tables);
            if (!recording) return recording.error();
            return std::move(recording->traces);
          },
          .read_recording = read_recording};
}

}  // namespace lockstep::trace
