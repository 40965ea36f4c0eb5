#include "base/files/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <array>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/quantities.h"
#include "base/text.h"

namespace lockstep {

namespace {

using Reader = std::unique_ptr<archive, int (*)(archive*)>;

Reader new_reader() {
  Reader reader(archive_read_new(), archive_read_free);
  LOCKSTEP_CHECK(reader != nullptr, "libarchive does not start");
  return reader;
}

constexpr std::array kXzMagic = {'\xfd', '7', 'z', 'X', 'Z', '\0'};
constexpr std::array kZstdMagic = {'\x28', '\xb5', '\x2f', '\xfd'};
constexpr std::array kZipMagic = {'P', 'K', '\x03', '\x04'};

template <std::size_t N>
bool begins_with(std::string_view bytes, const std::array<char, N>& magic) {
  return bytes.starts_with(std::string_view(magic.data(), N));
}

bool looks_like_tar(std::string_view bytes) {
  constexpr std::size_t kMagicAt = 257;
  return bytes.size() > kMagicAt + 5 && bytes.substr(kMagicAt, 5) == "ustar";
}

// The header of a zip archive's first file: its magic, and at 26 the length of the name, which
// begins at 30 (PKWARE's APPNOTE, 4.3.7).
bool looks_like_zip(std::string_view bytes) {
  constexpr std::size_t kLengthAt = 26;
  constexpr std::size_t kNameAt = 30;
  if (!begins_with(bytes, kZipMagic) || bytes.size() < kNameAt) return false;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const std::string_view name =
      bytes.substr(kNameAt, byte(kLengthAt) + std::size_t{256} * byte(kLengthAt + 1));
  // torch.save ("checkpoint/data.pkl") and numpy.savez ("weights.npy") write zip files of many GB.
  return !name.ends_with("/data.pkl") && !name.ends_with(".npy");
}

Error unpacks_to_more(std::size_t limit, const std::string& file) {
  return {"unpacks to more than " + bytes_text(limit),
          {file},
          "unpack it yourself if that is what you want, and give the plain file"};
}

enum class MemberEnd { whole, damaged, too_large };

// Reads the data of the member whose header was just read. `left`: how many bytes this member and
// all that follow may hold.
MemberEnd read_data(archive* reader, std::size_t& left, std::string& out) {
  const void* block = nullptr;
  std::size_t size = 0;
  la_int64_t offset = 0;
  int got = ARCHIVE_OK;
  while ((got = archive_read_data_block(reader, &block, &size, &offset)) == ARCHIVE_OK) {
    // A block that does not follow the last one means a hole, which no recorder writes. Expanding
    // it would let a small archive fill the memory.
    if (offset != static_cast<la_int64_t>(out.size())) return MemberEnd::damaged;
    if (size > left) return MemberEnd::too_large;
    left -= size;
    out.append(static_cast<const char*>(block), size);
  }
  return got == ARCHIVE_EOF ? MemberEnd::whole : MemberEnd::damaged;
}

}  // namespace

bool looks_like_packed(std::string_view bytes) {
  return looks_like_gzip(bytes) || begins_with(bytes, kXzMagic) || begins_with(bytes, kZstdMagic);
}

Result<Inflated> unpack_stream(std::string_view bytes, const std::string& file, std::size_t limit) {
  if (looks_like_gzip(bytes)) return gunzip(bytes, file, limit);
  const Error unreadable{"not a gzip, xz or zstd file", {file}, "unpack it yourself"};
  if (!looks_like_packed(bytes)) return unreadable;
  const Reader reader = new_reader();
  archive_read_support_filter_xz(reader.get());
  archive_read_support_filter_zstd(reader.get());
  archive_read_support_format_raw(reader.get());
  archive_entry* entry = nullptr;
  Inflated out;
  if (archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) != ARCHIVE_OK ||
      archive_read_next_header(reader.get(), &entry) < ARCHIVE_WARN) {
    out.truncated = true;  // cut off in its own header
    return out;
  }
  std::array<char, std::size_t{1} << 16U> chunk{};
  while (true) {
    const la_ssize_t got = archive_read_data(reader.get(), chunk.data(), chunk.size());
    if (got == 0) return out;
    if (got < 0) {
      out.truncated = true;
      return out;
    }
    const auto size = static_cast<std::size_t>(got);
    if (out.text.size() + size > limit) return unpacks_to_more(limit, file);
    out.text.append(chunk.data(), size);
  }
}

bool looks_like_archive(std::string_view bytes) {
  return looks_like_tar(bytes) || looks_like_zip(bytes);
}

Status for_each_member(std::string_view bytes, const std::string& file, bool truncated,
                       std::size_t limit, const std::function<void(const ArchiveMember&)>& use) {
  const auto unreadable = [&](const char* why) {
    return Error{std::string("not a readable tar or zip archive") +
                     (why == nullptr ? "" : std::string(": ") + why),
                 {file},
                 "unpack it yourself, and give the folder"};
  };
  if (!looks_like_archive(bytes)) return unreadable(nullptr);
  const bool tar = looks_like_tar(bytes);
  const Reader reader = new_reader();
  if (tar)
    archive_read_support_format_tar(reader.get());
  else
    archive_read_support_format_zip(reader.get());
  if (archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) != ARCHIVE_OK)
    return unreadable(archive_error_string(reader.get()));
  // A tar archive packs nothing; what claims to be larger is a sparse file.
  std::size_t left = tar ? bytes.size() : limit;
  // A member is passed on only when the next header has been read: damage right after a member
  // marks it as truncated.
  std::optional<ArchiveMember> member;
  archive_entry* entry = nullptr;
  int status = ARCHIVE_OK;
  while ((status = archive_read_next_header(reader.get(), &entry)) >= ARCHIVE_WARN &&
         status != ARCHIVE_EOF) {
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    if (archive_entry_is_data_encrypted(entry) == 1)
      return Error{"the archive is encrypted", {file}, "unpack it yourself, and give the folder"};
    if (member) use(*member);
    const char* const name = archive_entry_pathname(entry);
    member.emplace(ArchiveMember{name == nullptr ? "" : name, "", false});
    if (tar) member->written_s = archive_entry_mtime(entry);
    const MemberEnd end = read_data(reader.get(), left, member->bytes);
    if (end == MemberEnd::too_large && !tar) return unpacks_to_more(limit, file);
    member->truncated = end != MemberEnd::whole;
    // In a tar archive libarchive cannot find the next header after damage. A zip archive has a
    // directory at its end.
    if (member->truncated && tar) break;
  }
  if (!member) return Status::ok();
  // The last member: the archive may have ended in the middle of it.
  member->truncated |= truncated || status < ARCHIVE_WARN;
  use(*member);
  return Status::ok();
}

}  // namespace lockstep
