// verify() against all schedules of small programs: a deadlock in every schedule is proven, one in
// some schedule is said to be possible (or the bound is said to be met), and where there is none
// nothing is said.

#include <algorithm>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/sanitized.h"
#include "tests/verify/program.h"
#include "tests/verify/words.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

// All schedules of a small program, the slow and obvious way.
//
// A program is a word per rank:
//   A, B   a blocking all-reduce in group a (all ranks), b (ranks 0 and 1);   a, b: asynchronous
//   s, S   a blocking send to the next, the previous rank;                    i, I: asynchronous
//   t      a blocking send to the next rank with tag 1 instead of 0
//   r, R   a blocking receive from the next, the previous rank;               j: asynchronous, next
//   *, ?   a blocking receive from any source with tag 0, with any tag;       +: asynchronous *
//   w      the n-th one waits for the n-th asynchronous call, if there is one before it

using Words = std::vector<std::string>;

struct Ends {
  bool some_hang = false;
  bool some_end = false;
};

bool one_of(char letter, std::string_view letters) {
  return letters.find(letter) != std::string_view::npos;
}
bool is_collective(char c) { return one_of(c, "ABab"); }
bool is_send(char c) { return one_of(c, "sSiIt"); }
bool is_receive(char c) { return one_of(c, "rRj*?+"); }
bool is_async(char c) { return one_of(c, "abiIj+"); }
bool takes_any(char c) { return one_of(c, "*?+"); }
char group_of(char c) { return c == 'B' || c == 'b' ? 'b' : 'a'; }

int partner_of(int rank, int size, char c) {
  return (rank + (one_of(c, "SIR") ? size - 1 : 1)) % size;
}
int tag_of(char send) { return send == 't' ? 1 : 0; }

// Where the n-th w's asynchronous call is; -1 where there is none before it.
int waited_call(const std::string& word, std::size_t w) {
  int nth = 0;
  for (std::size_t i = 0; i < w; ++i) nth += word[i] == 'w';
  for (std::size_t i = 0; i < w; ++i) {
    if (is_async(word[i]) && nth-- == 0) return static_cast<int>(i);
  }
  return -1;
}

class Explorer {
 public:
  Explorer(const Words& words, bool buffered)
      : words_(words), size_(static_cast<int>(words.size())), buffered_(buffered) {}

  Ends ends() {
    explore(start());
    return ends_;
  }

  using Letter = std::pair<int, int>;  // rank and index of the letter
  struct State {
    std::vector<int> issued;   // letters; the last one may still block
    std::set<Letter> matched;  // messages and receives that found each other
    friend auto operator<=>(const State&, const State&) = default;
  };

  State start() const {
    State out;
    out.issued.assign(words_.size(), 0);
    return out;
  }

  // The states that one move of a rank, or of a message, leads to.
  std::vector<State> moves(const State& s) const {
    std::vector<State> out;
    for (int r = 0; r < size_; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (issued(s, r) == static_cast<int>(words_[i].size()) || !through(s, r)) continue;
      out.push_back(s);
      ++out.back().issued[i];
    }
    for (int from = 0; from < size_; ++from) {
      for (const Letter& send : waiting(s, from, true)) {
        for (int to = 0; to < size_; ++to) {
          for (const Letter& receive : waiting(s, to, false)) {
            if (!may_match(s, receive, send)) continue;
            out.push_back(s);
            out.back().matched.insert(send);
            out.back().matched.insert(receive);
          }
        }
      }
    }
    return out;
  }

  // Whether the rank came to its end.
  bool ended(const State& s, int rank) const {
    return through(s, rank) &&
           issued(s, rank) == static_cast<int>(words_[static_cast<std::size_t>(rank)].size());
  }

  char letter(Letter p) const {
    return words_[static_cast<std::size_t>(p.first)][static_cast<std::size_t>(p.second)];
  }
  int issued(const State& s, int rank) const { return s.issued[static_cast<std::size_t>(rank)]; }

  int collectives(const State& s, int rank, char group, int below) const {
    int n = 0;
    for (int i = 0; i < issued(s, rank) && i < below; ++i) {
      n += is_collective(letter({rank, i})) && group_of(letter({rank, i})) == group;
    }
    return n;
  }

  bool done(const State& s, Letter p) const {
    const char c = letter(p);
    if (is_collective(c)) {
      const int count = collectives(s, p.first, group_of(c), p.second + 1);
      const int members = group_of(c) == 'b' ? 2 : size_;
      for (int r = 0; r < members; ++r) {
        if (collectives(s, r, group_of(c), INT32_MAX) < count) return false;
      }
      return true;
    }
    return (is_send(c) && buffered_) || s.matched.contains(p);
  }

  bool through(const State& s, int rank) const {
    const int last = issued(s, rank) - 1;
    if (last < 0 || is_async(letter({rank, last}))) return true;
    if (letter({rank, last}) != 'w') return done(s, {rank, last});
    const int call =
        waited_call(words_[static_cast<std::size_t>(rank)], static_cast<std::size_t>(last));
    return call < 0 || done(s, {rank, call});
  }

  bool accepts(Letter receive, Letter send) const {
    const char c = letter(receive);
    if (partner_of(send.first, size_, letter(send)) != receive.first) return false;
    if (!takes_any(c) && partner_of(receive.first, size_, c) != send.first) return false;
    return c == '?' || tag_of(letter(send)) == 0;
  }

 private:
  std::vector<Letter> waiting(const State& s, int rank, bool sends) const {
    std::vector<Letter> out;
    for (int i = 0; i < issued(s, rank); ++i) {
      const bool right = sends ? is_send(letter({rank, i})) : is_receive(letter({rank, i}));
      if (right && !s.matched.contains({rank, i})) out.emplace_back(rank, i);
    }
    return out;
  }

  // A message may meet a receive where neither has one before it that would do as well.
  bool may_match(const State& s, Letter receive, Letter send) const {
    if (!accepts(receive, send)) return false;
    for (const Letter& other : waiting(s, receive.first, false)) {
      if (other < receive && accepts(other, send)) return false;
    }
    for (const Letter& other : waiting(s, send.first, true)) {
      if (other < send && accepts(receive, other)) return false;
    }
    return true;
  }

  void explore(const State& s) {
    if (!seen_.insert(s).second) return;
    const std::vector<State> next = moves(s);
    for (const State& n : next) explore(n);
    if (!next.empty()) return;
    bool all = true;
    for (int r = 0; r < size_; ++r) all = all && ended(s, r);
    (all ? ends_.some_end : ends_.some_hang) = true;
  }

  const Words words_;
  const int size_;
  const bool buffered_;
  std::set<State> seen_;
  Ends ends_;
};

// Explores every interleaving and every match that MPI's rules allow. `buffered`: sends return at
// once.
Ends explore_all(const Words& words, bool buffered) { return Explorer(words, buffered).ends(); }

// The program as far as the rank came; a complete line for what was done.
std::string as_program(const std::string& word, int rank, int size, bool mpi,
                       const Explorer* explorer, const Explorer::State* end) {
  std::ostringstream out;
  out << (mpi ? "mpi; " : "") << "group a 0";
  for (int r = 1; r < size; ++r) out << "," << r;
  if (rank < 2) out << "; group b 0,1";
  std::vector<int> ids(word.size(), -1);
  int id = 0;
  const std::size_t length =
      end == nullptr ? word.size() : static_cast<std::size_t>(explorer->issued(*end, rank));
  const bool hung = end != nullptr && !explorer->ended(*end, rank);
  for (std::size_t i = 0; i < length; ++i) {
    const char c = word[i];
    const bool at_end = i + 1 == length;
    if (c == 'w') {
      const int call = waited_call(word, i);
      if (call < 0) continue;
      const bool open = end == nullptr || (at_end && hung);
      out << "; wait " << ids[static_cast<std::size_t>(call)] << (open ? " open" : "");
      continue;
    }
    if (is_collective(c)) {
      out << "; all_reduce n=4 g=" << group_of(c);
    } else if (is_send(c)) {
      out << "; send n=4 ptag=" << tag_of(c) << " peer=" << partner_of(rank, size, c);
    } else if (takes_any(c)) {
      out << (mpi ? "; recv peer=-1" : "; recv_any") << " n=4 ptag=" << (c == '?' ? -1 : 0);
    } else {
      out << "; recv n=4 ptag=0 peer=" << partner_of(rank, size, c);
    }
    if (is_async(c)) out << " async";
    // An MPI program only learns of what it waits for.
    const bool seen = end == nullptr ||
                      (explorer->done(*end, {rank, static_cast<int>(i)}) && !(mpi && is_async(c)));
    if (!seen) out << " open";
    ids[i] = id++;
  }
  out << (hung ? "; hung" : "; clean");
  return out.str();
}

// The word as a test program (tests/verify/program.h), in the form of MPI traces or of c10d's.
std::string word_as_program(const std::string& word, int rank, int size, bool mpi) {
  return as_program(word, rank, size, mpi, nullptr, nullptr);
}

// One run of the program, in an order that `random` decides, as its recorder would write it: test
// programs with what completed, cut off where a rank hung.
struct RecordedRun {
  std::vector<std::string> programs;
  bool hung = false;
};

RecordedRun run_once(const Words& words, bool buffered, bool mpi, std::mt19937& random) {
  const Explorer explorer(words, buffered);
  Explorer::State state = explorer.start();
  for (auto next = explorer.moves(state); !next.empty(); next = explorer.moves(state)) {
    state = next[random() % next.size()];
  }
  RecordedRun out;
  const int size = static_cast<int>(words.size());
  for (int r = 0; r < size; ++r) {
    out.hung = out.hung || !explorer.ended(state, r);
    out.programs.push_back(
        as_program(words[static_cast<std::size_t>(r)], r, size, mpi, &explorer, &state));
  }
  return out;
}

std::string show_words(const Words& words, bool mpi) {
  std::string out = mpi ? "mpi: " : "c10d: ";
  for (const std::string& word : words) out += "\"" + word + "\" ";
  return out;
}

// Requests that are never waited for may be beside the question, but keep nobody waiting.
bool says_with(const Report& report, Certainty certainty) {
  return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& f) {
    return f.certainty == certainty && f.rule != RuleId::never_waited;
  });
}

// What all schedules come to. Elsewhere than in MPI a send waits for its receive.
Ends ends_of(const Words& words, bool mpi) {
  Ends ends = explore_all(words, /*buffered=*/false);
  if (mpi) {
    const Ends buffered = explore_all(words, /*buffered=*/true);
    ends.some_hang |= buffered.some_hang;
    ends.some_end |= buffered.some_end;
  }
  return ends;
}

// How many programs of each kind a test saw: one that saw none of a kind shows nothing of it.
struct Seen {
  int always = 0, sometimes = 0, never = 0, bounded = 0;
};

void compare_words(const Words& words, bool mpi, Seen& seen) {
  const Ends ends = ends_of(words, mpi);
  ++(!ends.some_hang ? seen.never : ends.some_end ? seen.sometimes : seen.always);
  std::vector<std::string> programs;
  for (std::size_t r = 0; r < words.size(); ++r) {
    programs.push_back(
        word_as_program(words[r], static_cast<int>(r), static_cast<int>(words.size()), mpi));
  }
  const Report report = verify(program(programs, /*timed=*/false));
  EXPECT_EQ(proves_stuck(report), ends.some_hang && !ends.some_end)
      << show_words(words, mpi) << "\n"
      << summary(report);
  if (ends.some_hang) {
    const bool said =
        says_with(report, Certainty::possible) || says_with(report, Certainty::proven) ||
        says_with(report, Certainty::observed) || report.verdict == Verdict::inconclusive;
    seen.bounded += report.verdict == Verdict::inconclusive;
    EXPECT_TRUE(said) << show_words(words, mpi) << "\n" << summary(report);
  } else {
    EXPECT_FALSE(says_with(report, Certainty::possible)) << show_words(words, mpi) << "\n"
                                                         << summary(report);
  }
}

void compare_both(const Words& words, Seen& seen) {
  compare_words(words, false, seen);
  compare_words(words, true, seen);
}

void expect_all_kinds(const Seen& seen) {
  constexpr int kEnough = kSanitized ? 25 : 100;
  EXPECT_GT(seen.always, kEnough);
  EXPECT_GT(seen.sometimes, kEnough);
  EXPECT_GT(seen.never, kEnough);
  EXPECT_EQ(seen.bounded, 0) << "programs this small are within the bound";
}

TEST(ScheduleOracle, AllProgramsOfTwoRanks) {
  Seen seen;
  const auto all = words_over("sr*A", kSanitized ? 2 : 3);
  for (const std::string& x : all) {
    for (const std::string& y : all) {
      compare_both({x, y}, seen);
      if (::testing::Test::HasFailure()) return;
    }
  }
  expect_all_kinds(seen);
}

TEST(ScheduleOracle, AllProgramsOfThreeRanksThatSendToOne) {
  Seen seen;
  const auto receiver = words_over("rR*?", kSanitized ? 2 : 3);
  const auto second = words_over("SAt", 2);                  // rank 1's previous one is rank 0
  const auto third = words_over("sAt", kSanitized ? 1 : 2);  // so is rank 2's next one
  for (const std::string& x : receiver) {
    for (const std::string& y : second) {
      for (const std::string& z : third) {
        compare_both({x, y, z}, seen);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  expect_all_kinds(seen);
}

// Programs of three ranks with up to four letters each.
class Sampler {
 public:
  explicit Sampler(unsigned seed) : random_(seed) {}
  Words words() {
    const std::string shared = "AaasSSiItrRj**?++www";
    return {word(shared + "Bb"), word(shared + "Bb"), word(shared)};
  }
  std::mt19937& random() { return random_; }

 private:
  std::string word(const std::string& letters) {
    std::string out;
    const std::size_t length = random_() % 5;
    while (out.size() < length) out += letters[random_() % letters.size()];
    return out;
  }

  std::mt19937 random_;
};

constexpr unsigned kSeed = 20240611;
constexpr int kSamples = kSanitized ? 1000 : 12000;

TEST(ScheduleOracle, SampledProgramsOfThreeRanks) {
  Sampler sampler(kSeed);
  Seen seen;
  for (int i = 0; i < kSamples; ++i) {
    compare_both(sampler.words(), seen);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << kSeed << ", sample " << i;
  }
  expect_all_kinds(seen);
}

// A run shows one schedule only, so that less can be said: but a hang is never passed over, a proof
// always holds, and a program that always ends is never accused.
void compare_recorded(const Words& words, bool mpi, std::mt19937& random, Seen& seen) {
  const Ends ends = ends_of(words, mpi);
  ++(!ends.some_hang ? seen.never : ends.some_end ? seen.sometimes : seen.always);
  const RecordedRun recorded = run_once(words, mpi && random() % 2 == 0, mpi, random);
  const Report report = verify(program(recorded.programs));
  const bool said = says_with(report, Certainty::possible) ||
                    says_with(report, Certainty::proven) || says_with(report, Certainty::observed);
  const auto context = [&] {
    std::string out = show_words(words, mpi) + (recorded.hung ? "hung" : "ended") + "\n";
    for (const std::string& p : recorded.programs) out += p + "\n";
    return out + summary(report);
  };
  EXPECT_TRUE(!recorded.hung || said) << context();
  EXPECT_FALSE(proves_stuck(report) && ends.some_end) << context();
  EXPECT_FALSE(!ends.some_hang && says_with(report, Certainty::possible)) << context();
}

TEST(ScheduleOracle, RecordedRunsOfSampledPrograms) {
  Sampler sampler(kSeed + 1);
  Seen seen;
  for (int i = 0; i < kSamples / 2; ++i) {
    const Words words = sampler.words();
    compare_recorded(words, false, sampler.random(), seen);
    compare_recorded(words, true, sampler.random(), seen);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << kSeed + 1 << ", sample " << i;
  }
  expect_all_kinds(seen);
}

}  // namespace
}  // namespace lockstep::verify
