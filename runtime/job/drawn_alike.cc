#include "runtime/job/drawn_alike.h"

#include <algorithm>
#include <cstddef>

#include <nlohmann/json.hpp>

#include "base/files/read_file.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kDrawnBytes = std::size_t{1} << 24U;

}  // namespace

std::string drawn_alike_text(const DrawnAlike& drawn) {
  const nlohmann::json out = {{"images", drawn.by_images},
                              {"micro_batches", drawn.by_micro_batches},
                              {"steps", drawn.by_steps}};
  return out.dump();
}

Result<DrawnAlike> read_drawn_alike(const std::string& file, int ranks) {
  const Result<std::string> text = read_file(file, kDrawnBytes);
  if (!text) return text.error();
  const Error refusal{"this does not say which ranks draw alike batches",
                      {file},
                      "`lockstep-worker draws` writes it"};
  DrawnAlike out;
  try {
    const nlohmann::json read = nlohmann::json::parse(*text);
    out = {read.at("images"), read.at("micro_batches"), read.at("steps")};
  } catch (const nlohmann::json::exception&) {
    return refusal;
  }
  for (const auto* const list : {&out.by_images, &out.by_micro_batches, &out.by_steps}) {
    const bool known = std::ranges::all_of(*list, [&](int r) { return r >= 0 && r < ranks; });
    if (list->size() != static_cast<std::size_t>(ranks) || !known) return refusal;
  }
  return out;
}

}  // namespace lockstep::runtime
