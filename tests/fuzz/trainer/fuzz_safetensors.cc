// Any bytes as a safetensors file: where it opens, its tensors are its data, without a hole.
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "runtime/models/safetensors.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/trainer/fuzz_manifest.h"

namespace lockstep {

void fuzz_safetensors(std::string_view bytes) {
  const std::string path = fuzz_data_file("fuzz.safetensors", bytes);
  const Result<runtime::SafetensorsFile> file = runtime::SafetensorsFile::open(path);
  if (!file) {
    LOCKSTEP_CHECK(!file.error().message.empty() && !file.error().fix.empty(),
                   "an error says what is wrong and what to do");
    return;
  }
  std::uint64_t total = 0;
  for (const runtime::StoredTensor& tensor : file->header().tensors) {
    LOCKSTEP_CHECK(tensor.begin == total, "tensors follow each other");
    total = tensor.end;
    LOCKSTEP_CHECK(total <= bytes.size(), "tensors are in the file");
    std::vector<std::byte> values(tensor.bytes());
    LOCKSTEP_CHECK(file->read(tensor, values), "a tensor that is in the file can be read");
  }
}

}  // namespace lockstep
