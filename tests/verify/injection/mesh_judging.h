// How a report stands beside what the data of its view can tell.
#pragma once

#include <string>

#include "tests/verify/injection/mesh_trial.h"
#include "verify/report.h"

namespace lockstep::verify::injection {

enum class Mark {
  exact,      // the right ranks, or nobody where no one can be named
  among,      // some of them, or others as well
  nobody,     // found; no rank was named though one could be
  innocents,  // only ranks that did nothing wrong were named; of healthy runs: a finding
  undecided,  // "inconclusive" where the data allow it
  missed,     // "clean" or "inconclusive" where the data tell
};
inline constexpr int kMarks = static_cast<int>(Mark::missed) + 1;
const char* to_string(Mark mark);

struct MeshJudgement {
  Mark mark{};
  bool rule = false;   // of an exact one: a rule that the data allow
  bool place = false;  // … and group, number and step
};
MeshJudgement judge(const Report& report, MeshFault fault, const MeshView& view);

// Of two views of one case: whether neither answer is wrong beside the other.
bool agree(const Report& a, const Report& b);

// What a case with this mark, rule and place is to be done about; empty: nothing.
std::string complaint(const MeshJudgement& judgement, MeshFault fault, const MeshView& view);

}  // namespace lockstep::verify::injection
