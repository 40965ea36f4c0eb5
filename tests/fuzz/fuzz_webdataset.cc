// Any bytes as a shard of a WebDataset.
#include "tests/fuzz/fuzz_manifest.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

void fuzz_webdataset(std::string_view bytes) { fuzz_manifest(fuzz_data_file("s.tar", bytes)); }

}  // namespace lockstep
