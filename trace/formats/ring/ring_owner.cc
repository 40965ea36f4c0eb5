#include "trace/formats/ring/ring_owner.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstring>
#include <fstream>

#include "trace/formats/ring/ring_file.h"

namespace lockstep {
namespace {

// The pid in the header; nothing where it is none of ours.
std::optional<std::int64_t> named_writer(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[sizeof ring::kMagic];
  std::int64_t pid = 0;
  if (!file.read(magic, sizeof magic) || std::memcmp(magic, ring::kMagic, sizeof magic) != 0)
    return std::nullopt;
  file.seekg(offsetof(ring::Header, pid));
  if (!file.read(reinterpret_cast<char*>(&pid), sizeof pid) || pid <= 0) return std::nullopt;
  return pid;
}

}  // namespace

std::optional<std::int64_t> ring_file_writer(const std::string& path) {
  const std::optional<std::int64_t> pid = named_writer(path);
  struct stat status {};
  if (!pid || ::stat(path.c_str(), &status) != 0) return std::nullopt;
  const std::string inode = " " + std::to_string(status.st_ino) + " ";
  const std::string name = path.substr(path.rfind('/') + 1);
  std::ifstream maps("/proc/" + std::to_string(*pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    // "7f3…-7f4… rw-s 00000000 fe:00 1234567      /folder/rank_0.ring": written, and shared.
    if (line.find(" rw-s ") == std::string::npos || line.find(inode) == std::string::npos) continue;
    if (line.find(name) != std::string::npos) return pid;
  }
  return std::nullopt;
}

}  // namespace lockstep
