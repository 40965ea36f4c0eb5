// Any bytes as a JSONL manifest.
#include "tests/fuzz/targets.h"
#include "tests/fuzz/trainer/fuzz_manifest.h"

namespace lockstep {

void fuzz_jsonl(std::string_view bytes) { fuzz_manifest(fuzz_data_file("m.jsonl", bytes)); }

}  // namespace lockstep
