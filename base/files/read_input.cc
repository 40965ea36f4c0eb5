#include "base/files/read_input.h"

#include "base/files/read_file.h"

namespace lockstep {

Result<std::string> read_input(const std::string& file) {
  return read_file(file, std::size_t{1} << 20U);
}

}  // namespace lockstep
