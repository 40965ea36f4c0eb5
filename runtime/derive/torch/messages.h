// Messages: what the ranks of a team send each other, where a few ranks are played together in one
// process, each on a thread of its own. A stage of a pipeline cannot be played without the others:
// a message says how large the next one is.
//
// A send does not wait for its receive; whether that would do harm is asked of the calls that come
// out, not here. A receive waits for its message. Where every rank of the team waits, or has ended,
// no message can come any more: those that wait get an exception that says so.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

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

}  // namespace lockstep
