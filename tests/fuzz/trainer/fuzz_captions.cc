// Any bytes as a folder's captions.csv.
#include "tests/fuzz/targets.h"
#include "tests/fuzz/trainer/fuzz_manifest.h"

namespace lockstep {

void fuzz_captions(std::string_view bytes) {
  fuzz_data_file("captions.csv", bytes);
  fuzz_manifest(fuzz_data_folder());
}

}  // namespace lockstep
