// The critical path of a scenario's forecast and its what-ifs, in words: what calls carry, by name.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/forecast/path_summary.h"
#include "sim/forecast/what_if.h"

namespace lockstep::reports {

// "rank 3" of "3", "ranks 0-3,5" of "0-3,5".
std::string named_ranks(const std::string& ranks);

// `names`: of the classes of ranks, "ranks 0-3,5". Those of calls are as in the job.
std::string words_of(const sim::ForecastPath::Sum& sum, const std::vector<std::string>& names);
std::string words_of(const sim::ForecastPath::Item& item, const std::vector<std::string>& names);

// The change of the step time: "-11.2 %".
std::string change_in_words(const sim::WhatIf& what_if);

// Lines of at most `width` columns, with the longest parts only; names are made printable.
std::string path_text(const sim::ForecastPath& path, const std::vector<std::string>& names,
                      std::size_t width);
std::string what_if_text(const std::vector<sim::WhatIf>& what_ifs, std::size_t width);
// `ranks`: of the classes, "0-3,5".
// {"begin_ps", "end_ps", "steps", "sums": [], "items": []}: the first kMaxPathItems of them.
inline constexpr std::size_t kMaxPathItems = 1000;
nlohmann::ordered_json path_json(const sim::ForecastPath& path,
                                 const std::vector<std::string>& ranks);
nlohmann::ordered_json what_if_json(const std::vector<sim::WhatIf>& what_ifs);

}  // namespace lockstep::reports
