// Any bytes as a folder's captions.csv.
#include "tests/fuzz/fuzz_manifest.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

void fuzz_captions(std::string_view bytes) {
  fuzz_data_file("captions.csv", bytes);
  fuzz_manifest(fuzz_data_folder());
}

}  // namespace lockstep
