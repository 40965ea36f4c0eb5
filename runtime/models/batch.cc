#include "runtime/models/batch.h"

namespace lockstep::runtime {

int Batch::tower_runs() const {
  if (!has_image()) return 0;
  return videos > 0 && videos < images.size(0) ? 2 : 1;
}

std::vector<std::string> Batch::modalities() const {
  std::vector<std::string> out;
  if (has_image() && videos < images.size(0)) out.emplace_back("image");
  out.emplace_back("text");
  if (videos > 0) out.emplace_back("video");
  return out;
}

}  // namespace lockstep::runtime
