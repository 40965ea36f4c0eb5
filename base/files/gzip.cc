#include "base/files/gzip.h"

#include <zlib.h>

#include <algorithm>

#include "base/check.h"
#include "base/files/read_file.h"
#include "base/quantities.h"
#include "base/text.h"

namespace lockstep {

namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib: largest window, gzip framing
constexpr std::size_t kChunk = std::size_t{1} << 18;

// zlib takes a non-const pointer that it never writes to.
Bytef* input_pointer(std::string_view bytes) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
}

// The length of the last member as the file states it (RFC 1952, ISIZE: modulo 2^32). Only a hint
// for reserve(): there may be several members, and the end may be missing or wrong.
std::size_t stated_length(std::string_view bytes) {
  constexpr std::size_t kSize = 4;
  constexpr std::size_t kMaxExpansion = 1032;  // deflate cannot do more
  if (bytes.size() < kSize) return 0;
  std::size_t out = 0;
  for (std::size_t i = bytes.size(); i-- > bytes.size() - kSize;) {
    out = out << 8U | static_cast<unsigned char>(bytes[i]);
  }
  // A length that deflate cannot reach is not believed, so that a few bytes cannot reserve 4 GiB.
  return out / kMaxExpansion <= bytes.size() ? out : 0;
}

}  // namespace

std::size_t inflation_limit(std::size_t packed) {
  constexpr std::size_t kAlways = std::size_t{256} << 20U;
  constexpr std::size_t kTimes = 200;
  return std::min(std::max(kAlways, kTimes * std::min(packed, SIZE_MAX / kTimes)), kLargestFile);
}

bool looks_like_gzip(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

Result<Inflated> gunzip(std::string_view bytes, const std::string& file, std::size_t limit) {
  if (!looks_like_gzip(bytes))
    return Error{"not a gzip file", {file}, "give the file as it is, without unpacking"};
  Inflated out;
  out.text.reserve(std::min(stated_length(bytes), limit));
  z_stream stream{};
  LOCKSTEP_CHECK(inflateInit2(&stream, kGzipWindow) == Z_OK, "zlib does not start");
  std::string chunk(kChunk, '\0');
  while (true) {
    // zlib counts in 32 bits: feed at most 1 GiB at a time.
    stream.next_in = input_pointer(bytes);
    stream.avail_in = static_cast<uInt>(std::min<std::size_t>(bytes.size(), 1U << 30));
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    const auto fed = stream.avail_in;
    const int status = inflate(&stream, Z_NO_FLUSH);
    const std::size_t produced = chunk.size() - stream.avail_out;
    bytes.remove_prefix(fed - stream.avail_in);
    if (out.text.size() + produced > limit) {
      inflateEnd(&stream);
      return Error{"unpacks to more than " + bytes_text(limit),
                   {file},
                   "unpack it yourself if that is what you want, and give the plain file"};
    }
    // Grow by doubling, but never beyond the limit, as append() by itself might.
    if (out.text.size() + produced > out.text.capacity()) {
      out.text.reserve(std::min(limit, std::max(2 * out.text.capacity(), kChunk)));
    }
    out.text.append(chunk, 0, produced);
    if (status == Z_STREAM_END) {
      if (!looks_like_gzip(bytes)) break;  // what follows the last member is padding
      if (inflateReset(&stream) != Z_OK) break;
      continue;
    }
    // Damaged, or the input ended before the member did.
    if (status != Z_OK || (bytes.empty() && produced == 0)) {
      out.truncated = true;
      break;
    }
  }
  inflateEnd(&stream);
  return out;
}

std::string gzip(std::string_view text) {
  z_stream stream{};
  LOCKSTEP_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                              Z_DEFAULT_STRATEGY) == Z_OK,
                 "zlib does not start");
  std::string out;
  std::string chunk(kChunk, '\0');
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    stream.next_in = input_pointer(text);
    stream.avail_in = static_cast<uInt>(std::min<std::size_t>(text.size(), 1U << 30));
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    const auto fed = stream.avail_in;
    status = deflate(&stream, fed == text.size() ? Z_FINISH : Z_NO_FLUSH);
    LOCKSTEP_CHECK(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR,
                   "zlib fails to compress");
    text.remove_prefix(fed - stream.avail_in);
    out.append(chunk, 0, chunk.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

}  // namespace lockstep
