// Judges many mesh cases and counts, for each form and fault, how the answers stand.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/verify/injection/mesh_judging.h"

namespace lockstep::verify::injection {

struct MeshScore {
  int cases = 0;
  std::array<int, kMarks> marks{};
  int rule = 0, place = 0;  // right, of the exact ones
  int told = 0;             // cases of which something had to be said

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
