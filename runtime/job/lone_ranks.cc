#include "runtime/job/lone_ranks.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kListBytes = std::size_t{1} << 28U;
constexpr std::array<const char*, 3> kCosts = {"none", "counts", "times"};  // as LoneRanks::Costs

// An absent or unknown name means none.
LoneRanks::Costs costs_named(const std::string& name) {
  if (name == "counts") return LoneRanks::Costs::counts;
  return name == "times" ? LoneRanks::Costs::times : LoneRanks::Costs::none;
}

}  // namespace

std::string lone_ranks_text(const std::vector<LoneRanks>& list) {
  nlohmann::json out = nlohmann::json::array();
  for (const LoneRanks& one : list) {
    out.push_back({{"scenario", one.scenario},
                   {"ranks", one.ranks},
                   {"trace", one.folder},
                   {"broadcasts", one.broadcasts},
                   {"dissent", one.dissent},
                   {"unless_same_as", one.unless_same_as},
                   {"costs", kCosts[static_cast<std::size_t>(one.costs)]},
                   {"answered", one.answered}});
    if (one.overflows) out.back()["overflows"] = *one.overflows;
  }
  return out.dump();
}

Result<std::vector<LoneRanks>> read_lone_ranks(const std::string& file) {
  const Result<std::string> text = read_file(file, kListBytes);
  if (!text) return text.error();
  std::vector<LoneRanks> out;
  try {
    for (const nlohmann::json& entry : nlohmann::json::parse(*text)) {
      out.push_back({.scenario = entry.at("scenario"),
                     .ranks = entry.at("ranks"),
                     .folder = entry.at("trace"),
                     .broadcasts = entry.at("broadcasts"),
                     .dissent = entry.value("dissent", std::vector<std::int64_t>()),
                     .unless_same_as = entry.value("unless_same_as", std::string()),
                     .costs = costs_named(entry.value("costs", std::string())),
                     .answered = entry.value("answered", false)});
      if (entry.contains("overflows")) out.back().overflows.emplace(entry["overflows"]);
      if (out.back().ranks.empty())
        return Error{"a run without a rank", {file}, "`lockstep derive` writes such lists"};
    }
  } catch (const nlohmann::json::exception& error) {
    return Error{fmt::format("this is not a list of ranks to derive: {}", error.what()),
                 {file},
                 "`lockstep derive` writes one"};
  }
  return out;
}

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
  const Error refusal{"this does not say which ranks draw equal batches",
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
