// Judges many mesh cases and counts, for each form and fault, how the answers stand.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/verify/injection/meshes/mesh_trial.h"
#include "verify/report.h"

namespace lockstep::verify::injection {

// How a report stands beside what the data of its view can tell.
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
  bool rule = false;      // of an exact one: a rule that the data allow
  bool location = false;  // … and group, number and step
};
MeshJudgement judge(const Report& report, MeshFault fault, const MeshView& view);

// Whether neither answer of two views of one case is wrong beside the other.
bool agree(const Report& a, const Report& b);

// What a case with this mark, rule and place is to be done about; empty: nothing.
std::string complaint(const MeshJudgement& judgement, MeshFault fault, const MeshView& view);

struct MeshScore {
  int cases = 0;
  std::array<int, kMarks> marks{};
  int rule = 0, location = 0;  // right, of the exact ones
  int decided = 0;             // cases of which something had to be said

  int count(Mark mark) const { return marks[static_cast<std::size_t>(mark)]; }
};

// One wrong answer, for a list.
struct MeshFailure {
  MeshForm form{};
  MeshFault fault{};
  std::string complaint;
  std::uint32_t seed = 0;
  std::size_t bytes = 0;  // of its files: the smallest is read first
  std::string text;       // what was made, wanted and got
};

struct MeshTally {
  std::array<std::array<MeshScore, kMeshFaults>, kMeshForms> scores{};
  int programs = 0;
  int differing = 0;  // programs of which the answers to two forms name different ranks
  std::vector<MeshFailure> failures;

  MeshScore total(MeshForm form, bool healthy) const;
  void merge(const MeshTally& other);
};

// Which cases: `programs` of them, all faults in turn, from `first` on.
struct MeshRange {
  int programs = 0;
  std::uint32_t first = 0;
  std::string only = {};  // the name of one fault; empty: all
};
// On as many threads as the machine has. The order of threads changes nothing.
MeshTally judge_meshes(const MeshRange& range);

// A table by fault for each form, in Markdown.
std::string mesh_tables(const MeshTally& tally);
// The classes of wrong answers (form, fault, complaint), the largest first, with the seeds of their
// smallest cases and, if wished, all about the smallest.
std::string mesh_failures(const MeshTally& tally, bool with_text = false);

}  // namespace lockstep::verify::injection
