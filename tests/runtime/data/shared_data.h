// The reference data beside the source tree, and small files that tests make for themselves.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/data/image.h"

namespace lockstep::runtime {

// Where the reference data is, whether or not it is there.
std::filesystem::path shared_data(std::string_view part);

// An array of a .npy file of float16, as floats; empty where it is not one.
std::vector<float> read_half_npy(const std::filesystem::path& path);

// The whole file; a missing one fails the test and is empty.
std::string file_bytes(const std::filesystem::path& path);
std::vector<std::string> file_lines(const std::filesystem::path& path);

// A folder that is empty, and deleted with this object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Writes a file, and the folders that it is in. Returns its path.
  std::string write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

// A picture in which every pixel differs from its neighbours.
RgbImage gradient(int width, int height);
std::string png_of(const RgbImage& image);

}  // namespace lockstep::runtime

#define SKIP_WITHOUT(path)            \
  if (!std::filesystem::exists(path)) \
  GTEST_SKIP() << "the reference data is not there: " << (path) << "; this checks nothing"
