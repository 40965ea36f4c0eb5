#include "trace/trace_files.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/files/archive.h"
#include "base/files/gzip.h"
#include "base/files/read_file.h"
#include "base/result.h"
#include "trace/formats/ring/reader.h"

namespace lockstep::trace {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStandardInput = "-";

Result<std::vector<std::string>> list_folder(const std::string& folder) {
  std::error_code failed;
  std::vector<std::string> files;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code unknown;
    const bool hidden = it->path().filename().native().starts_with('.');
    if (!hidden && it->is_regular_file(unknown)) files.push_back(it->path().string());
  }
  if (failed) return system_error("cannot read the folder", failed.value(), folder);
  return files;
}

bool all_digits(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

// The folders in a folder; none where it cannot be read.
std::vector<fs::path> folders_in(const fs::path& folder) {
  std::error_code failed;
  std::vector<fs::path> out;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code unknown;
    const bool hidden = it->path().filename().native().starts_with('.');
    if (!hidden && it->is_directory(unknown)) out.push_back(it->path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

constexpr std::string_view kAttempt = "attempt_";  // torchrun's folder of one attempt

// Adds the files of the folders below, `levels` deep. Links to folders are not followed, and
// folders that cannot be read are skipped. Only the last of torchrun's attempts counts.
void add_files_below(const fs::path& folder, int levels, std::vector<std::string>& out) {
  if (levels == 0) return;
  for (const fs::path& inner : folders_in(folder)) {
    std::error_code unknown;
    if (fs::is_symlink(inner, unknown) || inner.filename().string().starts_with(kAttempt)) continue;
    if (const Result<std::vector<std::string>> listed = list_folder(inner.string()))
      out.insert(out.end(), listed->begin(), listed->end());
    add_files_below(inner, levels - 1, out);
  }
}

// Adds torchrun's logs below a folder: 3/stdout.log, attempt_1/3/stdout.log (the last attempt), or
// <run id>/attempt_1/3/stdout.log.
void add_torchrun_logs(const fs::path& folder, bool may_hold_runs, std::vector<std::string>& out) {
  std::optional<std::pair<int, fs::path>> last;
  for (const fs::path& inner : folders_in(folder)) {
    const std::string name = inner.filename().string();
    if (all_digits(name)) {
      for (const std::string_view log : {"stdout.log", "stderr.log"}) {
        std::error_code unknown;
        const fs::path file = inner / log;
        if (fs::is_regular_file(file, unknown)) out.push_back(file.string());
      }
    } else if (name.starts_with(kAttempt) && all_digits(name.substr(kAttempt.size())) &&
               name.size() < kAttempt.size() + 9) {
      const int attempt = std::stoi(name.substr(kAttempt.size()));
      if (!last || attempt > last->first) last = {attempt, inner};
    } else if (may_hold_runs) {
      std::error_code unknown;
      if (fs::is_directory(inner / "attempt_0", unknown)) add_torchrun_logs(inner, false, out);
    }
  }
  if (last) add_torchrun_logs(last->second, false, out);
}

// A time of a file, which may be any number. kNoTime: none that a recording can have.
Nanos since_1970(std::int64_t seconds) {
  constexpr Nanos kNanosPerSecond = 1'000'000'000;
  constexpr std::int64_t kLatest = INT64_MAX / kNanosPerSecond;  // 2262
  return seconds > 0 && seconds < kLatest ? seconds * kNanosPerSecond : kNoTime;
}

// Unpacks what may be packed in several layers: a zip archive from a CI service that holds a
// .tar.zst of .gz files. All layers and members together unpack to at most `left` bytes, so that a
// small file takes neither much memory nor much time.
class Unpacker {
 public:
  Unpacker(const ContentReader& reader, std::size_t left) : reader_(reader), left_(left) {}

  // What is in `content`, which may be packed in so many layers.
  Status unpack(const Content& content, int layers) {
    if (layers > 0 && looks_like_packed(content.bytes)) {
      const Result<Inflated> inflated = unpack_stream(content.bytes, content.name, left_);
      if (!inflated) return inflated.error();
      left_ -= inflated->text.size();
      Content inner = content;
      inner.bytes = inflated->text;
      inner.truncated |= inflated->truncated;
      return unpack(inner, layers - 1);
    }
    if (layers > 0 && looks_like_archive(content.bytes)) return unpack_archive(content, layers);
    reader_.use(content);
    return Status::ok();
  }

 private:
  // A member that cannot be unpacked does not keep the others from being read; the first failure is
  // reported.
  Status unpack_archive(const Content& archive, int layers) {
    Status failed = Status::ok();
    const Status read = for_each_member(
        archive.bytes, archive.name, archive.truncated, left_, [&](const ArchiveMember& member) {
          left_ -= std::min(left_, member.bytes.size());
          const Status used = unpack({.bytes = member.bytes,
                                      .name = fmt::format("{}:{}", archive.name, member.name),
                                      .truncated = member.truncated,
                                      .member = true,
                                      .written = since_1970(member.written_s)},
                                     layers - 1);
          if (failed && !used) failed = used;
        });
    return read ? failed : read;
  }

  const ContentReader& reader_;
  std::size_t left_;
};

// When the file was last written; kNoTime: that cannot be read.
Nanos time_of(const std::string& path) {
  std::error_code failed;
  const fs::file_time_type time = fs::last_write_time(path, failed);
  if (failed) return kNoTime;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return since_1970(fs::file_time_type::clock::to_sys(seconds).time_since_epoch().count());
}

Status use_mapped(const std::string& path, const ContentReader& reader) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  reader.use({file->bytes(), path, false});
  return Status::ok();
}

}  // namespace

Result<std::vector<FoundFile>> find_files(const std::vector<std::string>& paths,
                                          const FindOptions& options) {
  std::map<fs::path, FoundFile> files;  // by canonical path: a link and its file are one
  for (const std::string& path : paths) {
    if (path == kStandardInput) {
      files.try_emplace(path, FoundFile{path, true});
      continue;
    }
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (failed && status.type() != fs::file_type::not_found) {
      return system_error("cannot look at it", failed.value(), path);
    }
    if (!fs::exists(status))
      return Error{"no such file or folder", {path}, "check how the path is written"};
    const bool named = !fs::is_directory(status);
    std::vector<std::string> found = {path};
    if (!named) {
      Result<std::vector<std::string>> listed = list_folder(path);
      if (!listed) return listed.error();
      found = std::move(*listed);
      if (options.with_logs) add_torchrun_logs(path, true, found);
      add_files_below(path, options.levels, found);
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

Status for_each_content(const std::string& path, FileBuffer& buffer, const ContentReader& reader) {
  // Standard input cannot be mapped, nor read a second time.
  const bool input = path == kStandardInput;
  const Result<std::string_view> bytes =
      buffer.read(path, kLargestFile, [&](std::string_view head) {
        if (input) return true;
        if (looks_like_ring_file(head)) return false;
        return looks_like_packed(head) || looks_like_archive(head) || reader.wants(head);
      });
  if (!bytes) return bytes.error();
  if (!input && looks_like_ring_file(*bytes)) return use_mapped(path, reader);
  constexpr int kMaxLayers = 4;  // a packed archive that holds a packed archive
  return Unpacker(reader, inflation_limit(bytes->size()))
      .unpack({.bytes = *bytes,
               .name = input ? "standard input" : path,
               .written = input ? kNoTime : time_of(path)},
              kMaxLayers);
}

}  // namespace lockstep::trace
