// InstantBackend: a c10d backend without any other rank. Every call completes at once, so one
// process shows what a rank of any world calls, in which order and with which sizes.
//
// The other ranks are assumed to hold what this one holds: a sum is the rank's own contribution
// times the group's size, a gathered list repeats its own tensor. Decisions that programs make by
// asking all ranks (a vote, an overflow) follow `dissent`; in a job of which the other ranks are
// known, votes and gathered whole numbers are theirs (Answers). Integers that a root broadcasts are
// those that it sent when it was recorded. A received message is zeros; or, if ranks run together
// (Messages), it comes from the sender, and the receiver waits for it.
//
// Similar to LibTorch's FakeProcessGroup, which in 2.11 does not compute sums, and whose futures
// the Reducer of 2.11 does not accept.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/derive/torch/answers.h"
#include "runtime/derive/torch/broadcasts.h"
#include "runtime/groups/forwarding_backend.h"

namespace lockstep::runtime {

// Messages: point-to-point messages between a few ranks that run together in one process, each on
// its own thread. A stage of a pipeline cannot run without the others, because a message says how
// large the next one is.
//
// A send does not wait for its receive; whether that would deadlock is decided later, from the
// recorded calls. A receive waits for its message. If every rank of the team waits or has ended, no
// message can arrive any more, and the waiting ranks get an exception.
class Messages {
 public:
  // For `ranks` ranks, each on its own thread.
  explicit Messages(std::size_t ranks) : running_(ranks) {}

  struct Key {
    std::string group;
    int from = 0, to = 0;  // group ranks
    int tag = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // Keeps a copy of `tensor`.
  void send(const Key& key, const at::Tensor& tensor);
  // Waits for the next message of `key`, and copies it into `tensor`. Throws std::runtime_error if
  // it cannot arrive any more, or has another size.
  void receive(const Key& key, const at::Tensor& tensor);
  // A rank's program has ended.
  void end();

 private:
  bool has_arrived(const Key& key) const;
  // With the lock held: sets stuck_ if no awaited message can arrive any more.
  void end_if_stuck();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::deque<at::Tensor>> sent_;
  std::size_t running_;       // ranks whose program has not ended
  std::vector<Key> awaited_;  // by ranks inside receive()
  bool stuck_ = false;        // none of these can arrive
};

// How the other ranks behave.
struct Others {
  // Whether another rank dissents now. If so, a minimum over the ranks is 0 and a maximum is 1;
  // otherwise both are this rank's own value.
  std::function<bool()> dissent;
  // Whether gradients overflow now, where that is known: the answer to every maximum. Null: it is
  // not known.
  std::function<bool()> overflow;
  Broadcasts* broadcasts = nullptr;  // read by receivers, filled by a root; outlives the backend
  Messages* messages = nullptr;      // between ranks that run together; null: this rank is alone
  Answers* answers = nullptr;        // of the other ranks of this very job; null: not known
};

class InstantBackend : public ForwardingBackend {
 public:
  InstantBackend(std::string group, int rank, int size, Others others)
      : ForwardingBackend(rank, size), group_(std::move(group)), others_(std::move(others)) {}

  const std::string getBackendName() const override { return "instant"; }
  void setTimeout(std::chrono::milliseconds) override {}

 private:
  WorkPtr make(const BackendCall& call, const Forward& forward) override;
  WorkPtr receive(const BackendCall& call);
  // Whether the job's other ranks are known to answer this tensor's calls: in the world's group,
  // with whole numbers, which are few and on which programs branch.
  bool has_answers(const at::Tensor& tensor) const;
  // Gives the other ranks this rank's part of what is gathered, and puts theirs where they are
  // known.
  void answer_gather(const at::Tensor& own,
                     const std::function<void(int, const std::string&)>& put);
  // Every rank's part into one tensor: this rank's, where no other is known.
  void gather_into(const at::Tensor& out, const at::Tensor& own);
  // The least number that any rank gave.
  void vote(const at::Tensor& tensor);
  // Applies the others' contributions to this rank's.
  void combine(const BackendCall& call);
  // Whether gradients overflowed is the maximum of one number. Rank 0's own answer is every rank's:
  // it keeps it, and the others take what it kept.
  void follow_root(const at::Tensor& tensor);
  // A broadcast of whole numbers: the root keeps them, the others get what it kept. Values of other
  // types decide nothing about calls, and each rank keeps its own.
  void share(const at::Tensor& tensor, bool is_root);

  std::string group_;
  Others others_;
  std::uint64_t broadcasts_ = 0, maxima_ = 0, gathers_ = 0, votes_ = 0;  // so far
};

}  // namespace lockstep::runtime
