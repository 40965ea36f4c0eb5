#include "verify/replay/mailbox.h"

#include <algorithm>

namespace lockstep {

void Mailbox::remove_first(ByTag& queues, ByTag::iterator queue) {
  queue->second.pop_front();
  if (queue->second.empty()) queues.erase(queue);
}

std::optional<Mailbox::Posted> Mailbox::post_send(const Posted& send) {
  const auto exact = receives_.find(send.tag);
  const auto any = receives_.find(kAnyTag);
  auto first = exact;
  if (any != receives_.end() &&
      (exact == receives_.end() || any->second.front().order < exact->second.front().order)) {
    first = any;
  }
  if (first == receives_.end()) {
    sent_[next_] = send.tag;
    sends_[send.tag].push_back({next_++, send});
    return std::nullopt;
  }
  const Posted met = first->second.front().posted;
  remove_first(receives_, first);
  return met;
}

std::optional<Mailbox::Posted> Mailbox::post_receive(const Posted& receive) {
  auto queue = sends_.find(receive.tag);
  if (receive.tag == kAnyTag && !sent_.empty()) queue = sends_.find(sent_.begin()->second);
  if (queue == sends_.end()) {
    receives_[receive.tag].push_back({next_++, receive});
    return std::nullopt;
  }
  const Queued met = queue->second.front();
  sent_.erase(met.order);
  remove_first(sends_, queue);
  return met.posted;
}

bool Mailbox::holds(std::int32_t tag) const {
  return tag == kAnyTag ? !sends_.empty() : sends_.contains(tag);
}

std::vector<Mailbox::Posted> Mailbox::unmet() const {
  std::vector<Posted> out;
  for (const ByTag* queues : {&sends_, &receives_}) {
    std::vector<Queued> side;
    for (const auto& [tag, queue] : *queues) side.insert(side.end(), queue.begin(), queue.end());
    std::sort(side.begin(), side.end(),
              [](const Queued& a, const Queued& b) { return a.order < b.order; });
    for (const Queued& q : side) out.push_back(q.posted);
  }
  return out;
}

}  // namespace lockstep
