// InstantBackend: a c10d backend without any other rank. Every call completes at once, so that one
// process shows what a rank of any world calls, in which order and with what.
//
// The other ranks are taken to hold what this one holds: a sum is the rank's own contribution times
// the group's size, a gathered list its own tensor again and again. What programs decide by asking
// all ranks (a vote, an overflow) comes out as `dissent` says; whole numbers that a root broadcasts
// are those that it broadcast when it was looked at. A message that is received is zeros, or comes
// from a rank that is played beside this one (messages.h): what waits for it waits.
//
// Like FakeProcessGroup of LibTorch, which leaves sums as they are in 2.11 and whose futures the
// Reducer of 2.11 does not take.
#pragma once

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

#include "runtime/derive/torch/broadcasts.h"
#include "runtime/groups/forwarding_backend.h"

namespace lockstep::runtime {

// Messages: what the ranks of a team send each other, where a few ranks are played together in one
// process, each on a thread of its own. A stage of a pipeline cannot be played without the others:
// a message says how large the next one is.
//
// A send does not wait for its receive; whether that would do harm is asked of the calls that come
// out, not here. A receive waits for its message. Where every rank of the team waits, or has ended,
// no message can come any more: those that wait get an exception that says so.
class Messages {
 public:
  // So many ranks, each on its thread.
  explicit Messages(std::size_t ranks) : running_(ranks) {}

  struct Key {
    std::string group;
    int from = 0, to = 0;  // in the group
    int tag = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // Keeps a copy of `tensor`.
  void send(const Key& key, const at::Tensor& tensor);
  // Waits for the next message of `key`, and copies it into `tensor`. Throws std::runtime_error
  // where it cannot come any more, or has another size.
  void receive(const Key& key, const at::Tensor& tensor);
  // A rank's program is over.
  void end();

 private:
  bool is_there(const Key& key) const;
  // With the lock held: whether what is awaited can still come.
  void look();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::deque<at::Tensor>> sent_;
  std::size_t running_;       // ranks whose program is not over
  std::vector<Key> awaited_;  // by those that are in receive()
  bool stuck_ = false;        // none of these can come
};

// The world around a rank that is alone.
struct Others {
  // Whether another rank dissents now: a minimum over the ranks is then 0 and a maximum 1, else
  // this rank's own.
  std::function<bool()> dissent;
  Broadcasts* broadcasts = nullptr;  // read as a receiver, filled as a root; outlives the backend
  Messages* messages = nullptr;      // of the ranks played together; null: this one is alone
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
  // What the others' contributions make of this rank's.
  void combine(const BackendCall& call) const;
  void share(const at::Tensor& tensor, bool is_root);

  std::string group_;
  Others others_;
  std::uint64_t broadcasts_ = 0;  // so far
};

}  // namespace lockstep::runtime
