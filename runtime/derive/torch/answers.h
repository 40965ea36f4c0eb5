// Answers: what the ranks of one job tell each other in small calls whose results a program
// branches on: votes, and whole numbers that are gathered, such as how many rows each rank has.
//
// Ranks run one after the other, so the first round answers each with what it gave itself. If they
// gave different things, they run once more, and each is answered with what all gave before. What a
// rank gives depends on its batch, not on such answers, so the second round is as the job goes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::runtime {

class Answers {
 public:
  // The kind of call and its index among them.
  using Key = std::pair<std::string, std::uint64_t>;
  using Given = std::map<Key, std::string>;  // by call: bytes

  // For one rank of a job with `world` ranks. `before`: what each rank that runs gave in the round
  // before, by rank; empty in the first. Must outlive this.
  Answers(int world, const std::map<int, Given>& before);

  int world() const { return world_; }
  void give(Key key, std::string bytes) { given_[std::move(key)] = std::move(bytes); }
  // What that rank gave. In a large job not every rank runs: the others gave, in turn, what those
  // gave that did. Null: not known.
  const std::string* of(int rank, const Key& key) const;
  // What all gave, each thing once.
  std::vector<const std::string*> all(const Key& key) const;
  Given take() { return std::move(given_); }

 private:
  int world_;
  const std::map<int, Given>& before_;
  std::vector<const Given*> turns_;  // the values of `before_`
  Given given_;
};

// Whether all gave the same, so that what each gave itself was the right answer.
bool gave_alike(const std::map<int, Answers::Given>& given);

}  // namespace lockstep::runtime
