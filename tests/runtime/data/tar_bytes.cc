#include "tests/runtime/data/tar_bytes.h"

#include <archive.h>
#include <archive_entry.h>

#include <gtest/gtest.h>

namespace lockstep::runtime {

std::string tar_bytes(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string bytes(std::size_t{1} << 20U, '\0');
  std::size_t used = 0;
  archive* const writer = archive_write_new();
  archive_write_set_format_pax_restricted(writer);
  archive_write_set_bytes_in_last_block(writer, 1);
  EXPECT_EQ(archive_write_open_memory(writer, bytes.data(), bytes.size(), &used), ARCHIVE_OK);
  for (const auto& [name, content] : members) {
    archive_entry* const entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    EXPECT_EQ(archive_write_header(writer, entry), ARCHIVE_OK);
    archive_write_data(writer, content.data(), content.size());
    archive_entry_free(entry);
  }
  archive_write_close(writer);
  archive_write_free(writer);
  bytes.resize(used);
  return bytes;
}

}  // namespace lockstep::runtime
