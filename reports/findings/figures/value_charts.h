// Small charts of ValueCurves: a line for each kind of rank, and below it a strip that shows in
// which steps ranks agreed.
#pragma once

#include <string>
#include <vector>

#include "reports/findings/figures/value_curves.h"

namespace lockstep::html {

// Markup; empty for no curves. Long curves are thinned out to what can be seen.
std::string value_charts(const std::vector<ValueCurves>& all);

}  // namespace lockstep::html
