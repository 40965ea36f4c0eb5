
#include "runtime/models/batch.h"

namespace lockstep {

std::vector<std::string> Batch::modalities() const {
  if (has_image()) return {"image", "text"};
  return {"text"};
}

}  // namespace lockstep
