// What files come packed in, by libarchive and zlib: gzip, xz and zstd streams; tar and zip
// archives, whose regular files are given one at a time. Bounded: a small hostile file can fill
// neither the memory nor the disk, and nothing is ever written under a name from an archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/files/gzip.h"
#include "base/result.h"

namespace lockstep {

// A gzip, xz or zstd stream, by its magic.
bool looks_like_packed(std::string_view bytes);

// Unpacks such a stream to at most `limit` bytes; damage is not an error, as in gunzip(). Memory:
// as gunzip(), and at most 1 GiB that an xz stream asks for, 128 MiB for zstd. Errors: none of the
// three, more than `limit` bytes.
Result<Inflated> unpack_stream(std::string_view bytes, const std::string& file, std::size_t limit);

// A tar archive (the magic of POSIX and GNU), or a zip archive. Zip files that hold a PyTorch
// checkpoint or NumPy arrays do not count: they hold no files for people.
bool looks_like_archive(std::string_view bytes);

struct ArchiveMember {
  std::string name;  // as in the archive; never used as a path
  std::string bytes;
  bool truncated = false;  // the archive is cut off or damaged in this member, or right after it
  // When the file was last written, in seconds since 1970; 0: not known, as in zip archives, whose
  // times are local ones of an unknown zone.
  std::int64_t written_s = 0;
};

// Calls `use` for each regular file in the archive, in its order, with one member in memory at a
// time. `truncated`: the end of the archive is known to be missing, so its last member is
// truncated, too. All members of a tar archive together take no more memory than the archive
// (sparse files are not expanded), and those of a zip archive no more than `limit`. Damage is not
// an error: what came before it is used. Errors: not an archive, an encrypted one, a zip archive
// whose members unpack to more than `limit` bytes.
Status for_each_member(std::string_view bytes, const std::string& file, bool truncated,
                       std::size_t limit, const std::function<void(const ArchiveMember&)>& use);

}  // namespace lockstep
