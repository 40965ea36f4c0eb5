#include <sys/stat.h>

#include <filesystem>

#include "base/text.h"
#include "runtime/data/manifest_readers.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

bool is_below(const fs::path& path, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

}  // namespace

ImageFolder::ImageFolder(std::string folder) : folder_(std::move(folder)) {
  std::error_code failed;
  real_folder_ = fs::canonical(folder_.empty() ? "." : folder_, failed).string();
}

bool ImageFolder::is_inside(const std::string& path) {
  std::error_code failed;
  const bool link = fs::is_symlink(fs::symlink_status(path, failed));
  if (link) return is_below(fs::canonical(path, failed), real_folder_) && !failed;
  // The folders above are the same for many files.
  const std::string parent = fs::path(path).parent_path().string();
  const auto [known, is_new] = inside_.emplace(parent, false);
  if (is_new) {
    const fs::path real = fs::canonical(parent.empty() ? "." : parent, failed);
    known->second = !failed && is_below(real, real_folder_);
  }
  return known->second;
}

void ImageFolder::locate(const std::string& name, ManifestItem& item) {
  if (name.find('\0') != std::string::npos) {
    item.problem = "the name of the image holds a zero byte";
    return;
  }
  const std::string path = (fs::path(folder_) / name).string();
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    item.problem = "the image \"" + printable(name) + "\" is not there";
  } else if (!S_ISREG(info.st_mode)) {
    item.problem = "the image \"" + printable(name) + "\" is no file";
  } else if (!is_inside(path)) {
    item.problem = "the image \"" + printable(name) + "\" is outside the data set's folder";
  } else {
    item.image = ImageSource{name, path, 0, -1};
  }
}

}  // namespace lockstep
