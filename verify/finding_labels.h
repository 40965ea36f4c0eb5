// What people are shown of a finding's groups and calls: the name that they gave a group rather
// than c10d's counter, and the number that the recording gives a call.
#pragma once

#include <vector>

#include "verify/context.h"
#include "verify/report.h"

namespace lockstep::verify {

// Sets Finding::group_label and Finding::number, and those of consequences; evidence that is equal
// except for the step gets it into its text. O(groups · log), plus the members of groups whose
// description other groups have, too, and O(evidence · log).
void label_findings(const Context& context, std::vector<Finding>& findings);

}  // namespace lockstep::verify
