// Which ranks of a job draw alike batches: `lockstep-worker draws` writes it, `lockstep simulate`
// reads it for jobs of so many ranks that not each can be derived.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

// By rank: the first rank whose drawn batches are like its own, as far as three questions tell.
struct DrawnAlike {
  std::vector<std::int32_t> by_images;         // how many images each micro-batch holds
  std::vector<std::int32_t> by_micro_batches;  // which micro-batches hold images
  std::vector<std::int32_t> by_steps;          // in which steps some micro-batch does

  friend bool operator==(const DrawnAlike&, const DrawnAlike&) = default;
};

// In JSON: {"images": [0, 1, 0, …], "micro_batches": [0, 0, 0, …], "steps": [0, 0, 0, …]}.
std::string drawn_alike_text(const DrawnAlike& drawn);

// Reads it from a file. Errors: the file cannot be read; it is not such a list for `ranks` ranks.
Result<DrawnAlike> read_drawn_alike(const std::string& file, int ranks);

}  // namespace lockstep::runtime
