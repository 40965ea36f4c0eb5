#include "base/files/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <optional>

#include "base/check.h"

namespace lockstep {

bool looks_like_tar(std::string_view bytes) {
  constexpr std::size_t kMagicAt = 257;
  return bytes.size() > kMagicAt + 5 && bytes.substr(kMagicAt, 5) == "ustar";
}

namespace {

// Reads the data of the member whose header was just read; false if it is cut off or damaged.
// `left`: how many bytes all members still to come may hold.
bool read_data(archive* reader, std::size_t& left, std::string& out) {
  const void* block = nullptr;
  std::size_t size = 0;
  la_int64_t offset = 0;
  int got = ARCHIVE_OK;
  while ((got = archive_read_data_block(reader, &block, &size, &offset)) == ARCHIVE_OK) {
    // A block that does not follow the last one means a hole, which no recorder writes. Expanding
    // it would let a small archive fill the memory.
    if (offset != static_cast<la_int64_t>(out.size()) || size > left) return false;
    left -= size;
    out.append(static_cast<const char*>(block), size);
  }
  return got == ARCHIVE_EOF;
}

}  // namespace

Status for_each_member(std::string_view bytes, const std::string& file, bool truncated,
                       const std::function<void(const ArchiveMember&)>& use) {
  const auto unreadable = [&](const char* why) {
    return Error{std::string("not a readable tar archive") + (why == nullptr ? "" : ": ") +
                     (why == nullptr ? "" : why),
                 {file},
                 "unpack it yourself, and give the folder"};
  };
  if (!looks_like_tar(bytes)) return unreadable(nullptr);
  const std::unique_ptr<archive, int (*)(archive*)> reader(archive_read_new(), archive_read_free);
  LOCKSTEP_CHECK(reader != nullptr, "libarchive does not start");
  archive_read_support_format_tar(reader.get());
  if (archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) {
    return unreadable(archive_error_string(reader.get()));
  }
  std::size_t left = bytes.size();
  // A member is passed on only when the next header has been read: damage right after a member
  // marks it as truncated.
  std::optional<ArchiveMember> member;
  archive_entry* entry = nullptr;
  int status = ARCHIVE_OK;
  while ((status = archive_read_next_header(reader.get(), &entry)) >= ARCHIVE_WARN &&
         status != ARCHIVE_EOF) {
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    if (member) use(*member);
    const char* const name = archive_entry_pathname(entry);
    member.emplace(ArchiveMember{name == nullptr ? "" : name, "", false});
    member->truncated = !read_data(reader.get(), left, member->bytes);
    // libarchive cannot find the next header after damage.
    if (member->truncated) break;
  }
  if (!member) return Status::ok();
  // The last member: the archive may have ended in the middle of it.
  member->truncated |= truncated || status < ARCHIVE_WARN;
  use(*member);
  return Status::ok();
}

}  // namespace lockstep
