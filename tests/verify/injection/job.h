// A distributed program as plain lists of actions, one list per rank: what the generator makes, the
// fault injectors change and the executor runs. Deliberately shares nothing with the verifier.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace lockstep::verify::injection {

inline constexpr int kUnset = -1;

// What a device does with a call instead of running it to its end.
enum class Stall {
  none,
  never_starts,     // its kernel waits for other work for ever
  never_completes,  // it starts, and its peers get through; the device does not
  link,             // all members start it, nobody gets through
};

// One collective or point-to-point call, with everything that a trace may record of it.
struct CallSpec {
  std::string op, group;
  std::vector<std::int64_t> in, out;  // shapes of one tensor each; empty: none
  std::string dtype = "float32";
  std::string redop;
  int root = kUnset, peer = kUnset, ptag = kUnset;  // global ranks
  std::vector<std::int64_t> splits_in, splits_out;
  bool async = false;
  std::vector<std::string> what;
  std::string at;
  int step = kUnset;
  std::string mode;        // MPI: how a send waits
  int coalesced = kUnset;  // of calls in a row that are posted together: unique in the rank
  Stall stall = Stall::none;
};

struct Action {
  enum class Kind {
    issue,     // `call`; blocks unless asynchronous
    wait,      // blocks on the call with `handle`
    modality,  // the batch of `n` holds `names`
    step,      // finished step `n`
    raise,     // an exception with `text` ends the rank
    late,      // the host does something else for `n` milliseconds
    stall,     // the host never moves again
    die,       // the process vanishes
  } kind = Kind::issue;
  CallSpec call;
  int handle = kUnset;  // of issue: unique in the rank; of wait: the call waited for
  int n = 0;
  std::vector<std::string> names;
  std::string text;
};

using Actions = std::vector<Action>;

// Removes the waits for the call with this handle.
void erase_waits(Actions& actions, int handle);

using Members = std::vector<int>;  // global ranks in group order

struct Job {
  std::string shape;  // which kind of program, for messages
  int steps = 0;
  std::map<std::string, Members> groups;
  // What single ranks believe instead, by rank and group.
  std::map<std::pair<int, std::string>, Members> beliefs;
  std::vector<Actions> ranks;
  bool mpi = false;  // recorded with the semantics of MPI: counts in place of shapes

  int world() const { return static_cast<int>(ranks.size()); }
  const Members& members(int rank, const std::string& group) const;
};

// What the traces of one run hold: real recorders differ in this, never within a run.
struct Recording {
  std::string backend = "gloo";
  bool what = true, step = true, at = true, modality = true, times = true;
  bool dtype = true, redop = true, step_marks = false;
  bool root = true, splits = true;
  bool world_steps = true;  // where steps are: so do the calls of the group of all ranks
  bool snapshot = false;    // a Flight Recorder's dump: the newest calls and how far each got
};

bool is_point_to_point(const CallSpec& call);
std::int64_t elements(const std::vector<std::int64_t>& shape);

// Whether the members' calls of one collective can do what they should together.
bool all_fit(const std::vector<const CallSpec*>& calls);
// Whether a send and a receive can.
bool messages_fit(const CallSpec& a, const CallSpec& b);

// The calls of a rank that are collectives of `group`, as positions in its actions.
std::vector<std::size_t> collectives(const Actions& actions, const std::string& group);

// The call's training step, where it is recorded.
int step_of(const CallSpec& call, const Recording& recording);

// As much of a call as such a recording shows and a comparison of ranks may use.
std::string visible(const CallSpec& call, const Recording& recording);

using Random = std::mt19937;
inline int pick(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}
inline bool chance(Random& random, double probability) {
  return std::bernoulli_distribution(probability)(random);
}

}  // namespace lockstep::verify::injection
