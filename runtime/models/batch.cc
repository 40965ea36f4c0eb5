#include "runtime/models/batch.h"

namespace lockstep::runtime {

std::vector<std::string> Batch::modalities() const {
  if (has_image()) return {"image", "text"};
  return {"text"};
}

}  // namespace lockstep::runtime
