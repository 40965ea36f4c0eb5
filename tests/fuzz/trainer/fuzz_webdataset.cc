// Any bytes as a shard of a WebDataset.
#include "tests/fuzz/targets.h"
#include "tests/fuzz/trainer/fuzz_manifest.h"

namespace lockstep {

void fuzz_webdataset(std::string_view bytes) { fuzz_manifest(fuzz_data_file("s.tar", bytes)); }

}  // namespace lockstep
