// Any bytes as a PNG file.
#include <string>

#include "tests/fuzz/targets.h"
#include "tests/fuzz/trainer/fuzz_picture.h"

namespace lockstep {

void fuzz_png(std::string_view bytes) {
  const std::string copy(bytes);  // of that size: reading behind its end is seen
  check_picture(runtime::decode_png(copy, "fuzz.png"));
}

}  // namespace lockstep
