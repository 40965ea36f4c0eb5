// Any bytes as what a user's file unpacks to: gzip, xz, zstd, tar, zip, or a trace of any format.
// Everything that comes out is read as what it is recognised as, one file at a time.
#include <algorithm>
#include <cstddef>
#include <string>

#include "base/check.h"
#include "base/files/archive.h"
#include "base/files/gzip.h"
#include "tests/fuzz/targets.h"
#include "tests/support/trace_dump.h"
#include "trace/formats/format.h"

namespace lockstep {

namespace {

constexpr std::size_t kMaxUnpacked = std::size_t{1} << 20U;
constexpr std::size_t kMaxRepacked = std::size_t{1} << 14U;  // packing is slow

void read_content(std::string_view bytes, const std::string& name) {
  const trace::Format* const format = trace::recognise(bytes);
  if (format == nullptr) return;
  trace::Tables tables;
  const auto traces = format->read({bytes, name, trace::rank_in_name(name)}, tables);
  if (!traces) return;
  for (const trace::RankTrace& trace : *traces) dump(trace, tables);
}

void unpack(std::string_view bytes) {
  if (!looks_like_archive(bytes)) return read_content(bytes, "fuzz_rank_0");
  std::size_t total = 0;
  const Status opened =
      for_each_member(bytes, "fuzz.tar", false, kMaxUnpacked, [&](const ArchiveMember& member) {
        total += member.bytes.size();
        read_content(member.bytes, member.name);
      });
  LOCKSTEP_CHECK(opened || !opened.error().fix.empty(), "an error says what to do");
  LOCKSTEP_CHECK(total <= std::max(bytes.size(), kMaxUnpacked), "the limit holds");
}

}  // namespace

void fuzz_archive(std::string_view bytes) {
  const std::string copy(bytes);
  if (!looks_like_packed(copy)) return unpack(copy);
  const Result<Inflated> inflated = unpack_stream(copy, "fuzz.gz", kMaxUnpacked);
  if (!inflated) return;
  LOCKSTEP_CHECK(inflated->text.size() <= kMaxUnpacked, "the limit holds");
  if (inflated->text.size() <= kMaxRepacked) {
    LOCKSTEP_CHECK(gunzip(gzip(inflated->text), "fuzz.gz", kMaxUnpacked)->text == inflated->text,
                   "what was packed unpacks");
  }
  unpack(inflated->text);
}

}  // namespace lockstep
