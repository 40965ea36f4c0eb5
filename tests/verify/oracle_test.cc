// The replay against a slow obvious oracle, on all small programs.
//
// The oracle explores every interleaving: a rank may take its next event whenever that event is not
// blocked; an operation is complete once all of its members issued it. It collects every state in
// which nobody can move. The replay claims that there is exactly one such state and that it finds
// it.
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/sanitized.h"
#include "tests/verify/program.h"
#include "tests/verify/words.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

// What a rank's program may hold. Letters keep the enumeration and the messages short:
//   A, B: blocking all-reduce in group a, b;   a, b: the same, asynchronous;
//   w: the n-th one waits for the n-th asynchronous call, if that was issued before;
//   s, r: send to, receive from the next rank;   S, R: … the previous rank.
using Programs = std::vector<std::string>;

class Oracle {
 public:
  explicit Oracle(const Programs& programs) : programs_(programs) {
    explore(State(programs.size()));
  }

  // The stuck states: each rank's position, and whether it is at its end.
  const std::set<std::vector<std::size_t>>& ends() const { return ends_; }

 private:
  // How many letters each rank has issued; the last one may still block it.
  using State = std::vector<std::size_t>;

  int size() const { return static_cast<int>(programs_.size()); }
  int partner(int rank, char letter) const {
    const bool next = letter == 's' || letter == 'r';
    return (rank + (next ? 1 : size() - 1)) % size();
  }
  static bool sends(char letter) { return letter == 's' || letter == 'S'; }
  static bool collective(char letter) {
    return letter == 'A' || letter == 'B' || letter == 'a' || letter == 'b';
  }
  static char group(char letter) { return static_cast<char>(letter | 0x20); }

  int count_collectives(const State& state, int rank, char g) const {
    int n = 0;
    for (std::size_t i = 0; i < state[static_cast<std::size_t>(rank)]; ++i) {
      const char c = programs_[static_cast<std::size_t>(rank)][i];
      n += collective(c) && group(c) == g;
    }
    return n;
  }

  // Sends (or receives) that `rank` issued towards `other`.
  int count_messages(const State& state, int rank, int other, bool send) const {
    int n = 0;
    for (std::size_t i = 0; i < state[static_cast<std::size_t>(rank)]; ++i) {
      const char c = programs_[static_cast<std::size_t>(rank)][i];
      n += !collective(c) && c != 'w' && sends(c) == send && partner(rank, c) == other;
    }
    return n;
  }

  bool call_complete(const State& state, int rank, std::size_t index) const {
    const std::string& program = programs_[static_cast<std::size_t>(rank)];
    State before = state;
    before[static_cast<std::size_t>(rank)] = index + 1;
    const char c = program[index];
    if (collective(c)) {
      const int count = count_collectives(before, rank, group(c));
      for (int r = 0; r < size(); ++r) {
        if (count_collectives(state, r, group(c)) < count) return false;
      }
      return true;
    }
    const int other = partner(rank, c);
    return count_messages(state, other, rank, !sends(c)) >=
           count_messages(before, rank, other, sends(c));
  }

  // Whether the last letter that the rank issued lets it go on.
  bool through(const State& state, int rank) const {
    const std::size_t issued = state[static_cast<std::size_t>(rank)];
    if (issued == 0) return true;
    const std::string& program = programs_[static_cast<std::size_t>(rank)];
    const char c = program[issued - 1];
    if (c == 'a' || c == 'b') return true;
    if (c != 'w') return call_complete(state, rank, issued - 1);
    std::size_t waits = 0;
    for (std::size_t i = 0; i < issued; ++i) waits += program[i] == 'w';
    for (std::size_t i = 0; i < issued; ++i) {
      if ((program[i] == 'a' || program[i] == 'b') && --waits == 0)
        return call_complete(state, rank, i);
    }
    return true;
  }

  void explore(const State& state) {
    if (!seen_.insert(state).second) return;
    bool moved = false;
    for (int r = 0; r < size(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (state[i] == programs_[i].size() || !through(state, r)) continue;
      State next = state;
      ++next[i];
      explore(next);
      moved = true;
    }
    if (moved) return;
    std::vector<std::size_t> end;
    for (int r = 0; r < size(); ++r)
      end.push_back(through(state, r) ? SIZE_MAX : state[static_cast<std::size_t>(r)]);
    ends_.insert(end);
  }

  Programs programs_;
  std::set<State> seen_;
  std::set<std::vector<std::size_t>> ends_;
};

std::string as_test_program(const std::string& letters, int rank, int size) {
  std::ostringstream out;
  out << "group a 0";
  for (int r = 1; r < size; ++r) out << "," << r;
  out << "; group b 0";
  for (int r = 1; r < size; ++r) out << "," << r;
  std::vector<int> open;
  int id = 0;
  std::size_t waited = 0;
  for (const char c : letters) {
    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    switch (c) {
      case 'A':
        out << "; all_reduce g=a n=4";
        break;
      case 'B':
        out << "; all_reduce g=b n=4";
        break;
      case 'a':
        out << "; all_reduce g=a n=4 async";
        open.push_back(id);
        break;
      case 'b':
        out << "; all_reduce g=b n=4 async";
        open.push_back(id);
        break;
      case 's':
        out << "; send n=4 peer=" << next;
        break;
      case 'r':
        out << "; recv n=4 peer=" << next;
        break;
      case 'S':
        out << "; send n=4 peer=" << previous;
        break;
      case 'R':
        out << "; recv n=4 peer=" << previous;
        break;
      default:
        if (waited < open.size()) out << "; wait " << open[waited] << " open";
        ++waited;
        continue;
    }
    ++id;
  }
  out << "; clean";
  return out.str();
}

std::string show_programs(const Programs& programs) {
  std::string out;
  for (const std::string& p : programs) out += (out.empty() ? "" : " | ") + p;
  return out;
}

// Ranks that the replay leaves blocked, told through verify(): they are in some finding.
void compare_programs(const Programs& programs) {
  const Oracle oracle(programs);
  ASSERT_EQ(oracle.ends().size(), 1U) << "matching is not unique: " << show_programs(programs);
  bool hangs = false;
  for (const std::size_t at : *oracle.ends().begin()) hangs |= at != SIZE_MAX;
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    texts.push_back(
        as_test_program(programs[r], static_cast<int>(r), static_cast<int>(programs.size())));
  }
  const Report report = verify(program(texts, /*timed=*/false));
  EXPECT_EQ(proves_stuck(report), hangs) << show_programs(programs) << "\n" << summary(report);
  // Every rank that is stuck is spoken of.
  std::set<trace::Rank> named;
  for (const Finding& f : report.findings) {
    named.insert(f.ranks.begin(), f.ranks.end());
    for (const Finding& c : f.consequences) named.insert(c.ranks.begin(), c.ranks.end());
  }
  for (std::size_t r = 0; r < programs.size(); ++r) {
    if ((*oracle.ends().begin())[r] == SIZE_MAX) continue;
    EXPECT_TRUE(named.contains(trace::Rank(static_cast<std::int32_t>(r))))
        << "rank " << r << " of " << show_programs(programs);
  }
}

TEST(Oracle, AllProgramsOfTwoRanksWithTwoGroups) {
  const auto all = words_over("ABabw", kSanitized ? 2 : 3);
  for (const std::string& x : all) {
    for (const std::string& y : all) {
      compare_programs({x, y});
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Oracle, AllProgramsOfTwoRanksWithMessages) {
  const auto all = words_over("Asr", kSanitized ? 3 : 4);
  for (const std::string& x : all) {
    for (const std::string& y : all) {
      compare_programs({x, y});
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Oracle, AllProgramsOfThreeRanks) {
  const auto all = words_over("ABsRr", kSanitized ? 1 : 2);
  for (const std::string& x : all) {
    for (const std::string& y : all) {
      for (const std::string& z : all) {
        compare_programs({x, y, z});
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::verify
