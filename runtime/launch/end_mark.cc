#include "runtime/launch/end_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/system_error.h"
#include "trace/formats/ring/ring_file.h"

namespace lockstep {

namespace {

constexpr auto kEndMarkOffset = static_cast<off_t>(offsetof(ring::Header, end_mark));
static_assert(sizeof(ring::Header::end_mark) == sizeof(std::uint32_t));

// What stands in the file before and at the mark; false where it is too short.
bool read_header(int file, char (&magic)[sizeof ring::kMagic], std::uint32_t& mark) {
  return pread(file, magic, sizeof magic, 0) == static_cast<ssize_t>(sizeof magic) &&
         pread(file, &mark, sizeof mark, kEndMarkOffset) == static_cast<ssize_t>(sizeof mark);
}

}  // namespace

Status mark_killed(const std::string& ring_file) {
  const int file = open(ring_file.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return system_error("cannot write", errno, ring_file);
  char magic[sizeof ring::kMagic];
  std::uint32_t mark = 0;
  const bool readable = read_header(file, magic, mark) &&
                        std::equal(std::begin(magic), std::end(magic), std::begin(ring::kMagic));
  bool written = readable;
  if (readable && mark == static_cast<std::uint32_t>(ring::EndMark::none)) {
    mark = static_cast<std::uint32_t>(ring::EndMark::killed);
    written = pwrite(file, &mark, sizeof mark, kEndMarkOffset) == static_cast<ssize_t>(sizeof mark);
  }
  close(file);
  if (!readable)
    return Error{"not a ring file", {ring_file}, "name the ring file of a killed rank"};
  if (!written)
    return Error{"the end mark cannot be written", {ring_file}, "check the disk that it is on"};
  return Status::ok();
}

}  // namespace lockstep
