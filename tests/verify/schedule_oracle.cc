#include "verify/schedule_oracle.h"

#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace lockstep {

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
      : words_(words), size_(static_cast<int>(words.size())), buffered_(buffered) {
    State start;
    start.issued.assign(words.size(), 0);
    explore(start);
  }
  Ends ends() const { return ends_; }

 private:
  using Place = std::pair<int, int>;  // rank and index of the letter
  struct State {
    std::vector<int> issued;  // letters; the last one may still block
    std::set<Place> met;      // messages and receives that found each other
    friend auto operator<=>(const State&, const State&) = default;
  };

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
    bool moved = false;
    for (int r = 0; r < size_; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (issued(s, r) == static_cast<int>(words_[i].size()) || !through(s, r)) continue;
      State next = s;
      ++next.issued[i];
      explore(next);
      moved = true;
    }
    for (int from = 0; from < size_; ++from) {
      for (const Place& send : waiting(s, from, true)) {
        for (int to = 0; to < size_; ++to) {
          for (const Place& receive : waiting(s, to, false)) {
            if (!may_meet(s, receive, send)) continue;
            State next = s;
            next.met.insert(send);
            next.met.insert(receive);
            explore(next);
            moved = true;
          }
        }
      }
    }
    if (moved) return;
    bool all = true;
    for (int r = 0; r < size_; ++r) {
      all = all && through(s, r) &&
            issued(s, r) == static_cast<int>(words_[static_cast<std::size_t>(r)].size());
    }
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

std::string word_as_program(const std::string& word, int rank, int size, bool mpi) {
  std::ostringstream out;
  out << (mpi ? "mpi; " : "") << "group a 0";
  for (int r = 1; r < size; ++r) out << "," << r;
  if (rank < 2) out << "; group b 0,1";
  std::vector<int> ids(word.size(), -1);
  int id = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    if (c == 'w') {
      const int call = waited_call(word, i);
      if (call >= 0) out << "; wait " << ids[static_cast<std::size_t>(call)] << " open";
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
    ids[i] = id++;
  }
  out << "; clean";
  return out.str();
}

}  // namespace lockstep
