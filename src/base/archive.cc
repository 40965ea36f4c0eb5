#include "base/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>

#include "base/check.h"

namespace lockstep {

bool looks_like_tar(std::string_view bytes) {
  constexpr std::size_t kMagicAt = 257;
  return bytes.size() > kMagicAt + 5 && bytes.substr(kMagicAt, 5) == "ustar";
}

Result<Archive> read_tar(std::string_view bytes, const std::string& file) {
  if (!looks_like_tar(bytes)) return Error{"not a tar archive", {file}, ""};
  const std::unique_ptr<archive, int (*)(archive*)> reader(archive_read_new(), archive_read_free);
  LOCKSTEP_CHECK(reader != nullptr, "libarchive does not start");
  archive_read_support_format_tar(reader.get());
  if (archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) {
    const char* const why = archive_error_string(reader.get());
    return Error{std::string("not a readable tar archive") + (why == nullptr ? "" : ": ") +
                     (why == nullptr ? "" : why),
                 {file},
                 ""};
  }
  Archive out;
  std::size_t total = 0;
  archive_entry* entry = nullptr;
  while (true) {
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) break;
    if (status < ARCHIVE_WARN) {
      out.truncated = true;
      break;
    }
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    const char* const name = archive_entry_pathname(entry);
    ArchiveMember member{name == nullptr ? "" : name, ""};
    const void* block = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    int got = ARCHIVE_OK;
    while ((got = archive_read_data_block(reader.get(), &block, &size, &offset)) == ARCHIVE_OK) {
      // A block elsewhere than behind the last one means a hole: not what a recorder writes.
      if (offset != static_cast<la_int64_t>(member.bytes.size())) break;
      if ((total += size) > bytes.size()) break;
      member.bytes.append(static_cast<const char*>(block), size);
    }
    out.truncated |= got != ARCHIVE_EOF;
    out.members.push_back(std::move(member));
    if (out.truncated) break;
  }
  return out;
}

}  // namespace lockstep
