#include "tests/verify/schedule_oracle.h"

#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace lockstep::verify {

namespace {

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

  using Place = std::pair<int, int>;  // rank and index of the letter
  struct State {
    std::vector<int> issued;  // letters; the last one may still block
    std::set<Place> met;      // messages and receives that found each other
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
      for (const Place& send : waiting(s, from, true)) {
        for (int to = 0; to < size_; ++to) {
          for (const Place& receive : waiting(s, to, false)) {
            if (!may_meet(s, receive, send)) continue;
            out.push_back(s);
            out.back().met.insert(send);
            out.back().met.insert(receive);
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

  char letter(Place p) const {
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

  bool done(const State& s, Place p) const {
    const char c = letter(p);
    if (is_collective(c)) {
      const int place = collectives(s, p.first, group_of(c), p.second + 1);
      const int members = group_of(c) == 'b' ? 2 : size_;
      for (int r = 0; r < members; ++r) {
        if (collectives(s, r, group_of(c), INT32_MAX) < place) return false;
      }
      return true;
    }
    return (is_send(c) && buffered_) || s.met.contains(p);
  }

  bool through(const State& s, int rank) const {
    const int last = issued(s, rank) - 1;
    if (last < 0 || is_async(letter({rank, last}))) return true;
    if (letter({rank, last}) != 'w') return done(s, {rank, last});
    const int call =
        waited_call(words_[static_cast<std::size_t>(rank)], static_cast<std::size_t>(last));
    return call < 0 || done(s, {rank, call});
  }

  bool accepts(Place receive, Place send) const {
    const char c = letter(receive);
    if (partner_of(send.first, size_, letter(send)) != receive.first) return false;
    if (!takes_any(c) && partner_of(receive.first, size_, c) != send.first) return false;
    return c == '?' || tag_of(letter(send)) == 0;
  }

 private:
  std::vector<Place> waiting(const State& s, int rank, bool sends) const {
    std::vector<Place> out;
    for (int i = 0; i < issued(s, rank); ++i) {
      const bool right = sends ? is_send(letter({rank, i})) : is_receive(letter({rank, i}));
      if (right && !s.met.contains({rank, i})) out.emplace_back(rank, i);
    }
    return out;
  }

  // A message may meet a receive where neither has one before it that would do as well.
  bool may_meet(const State& s, Place receive, Place send) const {
    if (!accepts(receive, send)) return false;
    for (const Place& other : waiting(s, receive.first, false)) {
      if (other < receive && accepts(other, send)) return false;
    }
    for (const Place& other : waiting(s, send.first, true)) {
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

}  // namespace

Ends explore_all(const Words& words, bool buffered) { return Explorer(words, buffered).ends(); }

namespace {

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

}  // namespace

std::string word_as_program(const std::string& word, int rank, int size, bool mpi) {
  return as_program(word, rank, size, mpi, nullptr, nullptr);
}

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

}  // namespace lockstep::verify
