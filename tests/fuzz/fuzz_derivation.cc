#include "tests/fuzz/fuzz_derivation.h"

#include <algorithm>
#include <utility>

#include "trace/formats/text/text_trace.h"
#include "trace/load.h"

namespace lockstep {

std::vector<std::string_view> sections_of(std::string_view bytes) {
  std::vector<std::string_view> out;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find("\n\n"), bytes.size());
    out.push_back(bytes.substr(0, std::min(end + 1, bytes.size())));
    bytes.remove_prefix(std::min(end + 2, bytes.size()));
  }
  return out;
}

trace::Run run_of_sections(const std::vector<std::string_view>& sections) {
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  for (const std::string_view section : sections) {
    Result<trace::RankTrace> trace = trace::read_text_trace(section, "fuzz", tables);
    if (trace) traces.push_back(std::move(*trace));
  }
  return trace::assemble_run(std::move(tables), std::move(traces));
}

Result<trace::Derivation> small_derivation(const std::vector<std::string_view>& sections) {
  constexpr std::int32_t kMaxRanks = 4;
  constexpr std::size_t kMaxConditions = 8;
  constexpr std::size_t kMaxSteps = 64;
  if (sections.empty()) return Error{"nothing there", {"fuzz"}, ""};
  Result<trace::ProductSpec> spec = trace::parse_product(sections.front(), "fuzz");
  if (!spec) return spec.error();
  if (spec->world_size > kMaxRanks || spec->conditions.size() > kMaxConditions ||
      spec->steps.size() > kMaxSteps || spec->allowed.size() > kMaxSteps)
    return Error{"too large", {"fuzz"}, ""};
  const auto ranks = static_cast<std::size_t>(spec->world_size);
  std::vector<trace::Run> runs;
  for (std::size_t h = 0; h < spec->histories.size(); ++h) {
    std::vector<std::string_view> mine;
    for (std::size_t i = 1 + h * ranks; i < std::min(sections.size(), 1 + (h + 1) * ranks); ++i)
      mine.push_back(sections[i]);
    runs.push_back(run_of_sections(mine));
  }
  return trace::make_derivation(std::move(*spec), std::move(runs), "fuzz");
}

}  // namespace lockstep
