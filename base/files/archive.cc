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

// Reads the data of the member whose header was just read; false where it is cut off or damaged.
// `left`: how much all members that are still to come may hold.
bool read_data(archive* reader, std::size_t& left, std::string& out) {
  const void* block = nullptr;
  std::size_t size = 0;
  la_int64_t offset = 0;
  int got = ARCHIVE_OK;
  while ((got = archive_read_data_block(reader, &block, &size, &offset)) == ARCHIVE_OK) {
    // A block elsewhere than behind the last one means a hole: not what a recorder writes.
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
  // Used when it is known what comes behind it.
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
    if (member->truncated) break;
  }
  if (!member) return Status::ok();
  member->truncated |= truncated || status < ARCHIVE_WARN;
  use(*member);
  return Status::ok();
}

}  // namespace lockstep
