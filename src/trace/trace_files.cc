#include "trace/trace_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/archive.h"
#include "base/gzip.h"
#include "base/mapped_file.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

Result<std::vector<std::string>> list_folder(const std::string& folder) {
  std::error_code failed;
  std::vector<std::string> files;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code unknown;
    const bool hidden = it->path().filename().native().starts_with('.');
    if (!hidden && it->is_regular_file(unknown)) files.push_back(it->path().string());
  }
  if (failed) return Error{"cannot read the folder: " + failed.message(), {folder}, ""};
  return files;
}

void unpack(std::string_view bytes, const std::string& name, bool truncated,
            const std::function<void(const Content&)>& use, Status& status) {
  if (!looks_like_tar(bytes)) {
    use({bytes, name, truncated});
    return;
  }
  const Result<Archive> archive = read_tar(bytes, name);
  if (!archive) {
    status = archive.error();
    return;
  }
  for (const ArchiveMember& member : archive->members) {
    const bool cut = (truncated || archive->truncated) && &member == &archive->members.back();
    use({member.bytes, name + ":" + member.name, cut});
  }
}

}  // namespace

Result<std::vector<FoundFile>> find_files(const std::vector<std::string>& paths) {
  std::map<fs::path, FoundFile> files;  // by canonical path
  for (const std::string& path : paths) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (failed && status.type() != fs::file_type::not_found) {
      return Error{"cannot look at it: " + failed.message(), {path}, ""};
    }
    if (!fs::exists(status)) return Error{"no such file or folder", {path}, ""};
    const bool named = !fs::is_directory(status);
    std::vector<std::string> found = {path};
    if (!named) {
      Result<std::vector<std::string>> listed = list_folder(path);
      if (!listed) return listed.error();
      found = std::move(*listed);
    }
    for (std::string& file : found) {
      fs::path canonical = fs::canonical(file, failed);
      auto [known, is_new] =
          files.try_emplace(failed ? fs::path(file) : canonical, FoundFile{file, named});
      known->second.named |= named;
      if (!is_new) known->second.path = std::min(known->second.path, file);
    }
  }
  std::vector<FoundFile> out;
  for (auto& [canonical, file] : files) out.push_back(std::move(file));
  std::sort(out.begin(), out.end(),
            [](const FoundFile& a, const FoundFile& b) { return a.path < b.path; });
  return out;
}

Status for_each_content(const std::string& path, const std::function<void(const Content&)>& use) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  Status status = Status::ok();
  if (!looks_like_gzip(file->bytes())) {
    unpack(file->bytes(), path, false, use, status);
    return status;
  }
  const std::size_t limit = std::min(kLargestInflated, kMostInflation * file->bytes().size());
  const Result<Inflated> inflated = gunzip(file->bytes(), path, limit);
  if (!inflated) return inflated.error();
  unpack(inflated->text, path, inflated->truncated, use, status);
  return status;
}

}  // namespace lockstep
