// Any bytes as a JPEG file.
#include <string>

#include "tests/fuzz/targets.h"
#include "tests/fuzz/trainer/fuzz_picture.h"

namespace lockstep {

void fuzz_jpeg(std::string_view bytes) {
  const std::string copy(bytes);  // of that size: reading behind its end is seen
  check_picture(runtime::decode_jpeg(copy, "fuzz.jpeg"));
}

}  // namespace lockstep
