#include "cli/forecast_csv.h"

#include <vector>

#include "base/text.h"
#include "reports/csv_field.h"

namespace lockstep {

std::string forecast_csv(const ScenarioForecast& f) {
  constexpr int kPicos = 12;  // digits
  const std::vector<std::string> ranks = ranks_by_class(f);
  std::vector<std::size_t> count(ranks.size(), 0);
  for (const std::uint32_t c : f.class_of) ++count[c];
  std::string out = "step,ranks,count,begin_s,end_s,busy_s,exposed_s,idle_s,hidden_s\r\n";
  for (std::size_t s = 0; s < f.figures.times.size(); ++s) {
    for (std::size_t c = 0; c < ranks.size(); ++c) {
      const sim::StepUse& step = f.figures.steps[c][s];
      out += std::to_string(s) + "," + csv_field(ranks[c]) + "," + std::to_string(count[c]);
      for (const double seconds : {step.begin.seconds(), step.end.seconds(), step.use.busy,
                                   step.use.exposed, step.use.idle, step.use.hidden})
        out += "," + fixed(seconds, kPicos);
      out += "\r\n";
    }
  }
  return out;
}

}  // namespace lockstep
