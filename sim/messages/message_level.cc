#include "sim/messages/message_level.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/collectives/closed_form.h"
#include "sim/messages/schedules.h"

namespace lockstep::sim {
namespace {

// What shares links takes longer than its formula says; this much longer still gets an exact clock.
constexpr std::int64_t kSlack = 16;

std::uint64_t message_count(const Schedule& schedule) {
  std::uint64_t count = 0;
  for (std::uint32_t lane = 0; lane < schedule.lanes(); ++lane) count += schedule.messages(lane);
  return count;
}

}  // namespace

Result<MessageResult> message_level(std::span<const Collective> collectives, const Links& links,
                                    Wiring wiring) {
  Fabric fabric;
  fabric.levels = links;
  fabric.dedicated = wiring == Wiring::pairs;
  Picos horizon;
  std::uint64_t messages = 0;
  std::vector<MessageJob> jobs;
  for (const Collective& collective : collectives) {
    const Result<Picos> alone = closed_form(collective, links);
    if (!alone) return alone.error();
    horizon += *alone * kSlack;
    if (collective.algorithm == Algorithm::hierarchical)
      fabric.ranks_per_node = collective.ranks_per_node;
    fabric.ranks = std::max(fabric.ranks, collective.ranks);
    std::unique_ptr<Schedule> schedule = make_schedule(collective);
    if (schedule == nullptr) {
      return Error{"nvls has no messages between ranks: the switch does the work",
                   {},
                   "take the closed form"};
    }
    messages += message_count(*schedule);
    jobs.push_back({std::move(schedule), {}, Picos{}});
  }
  if (messages > kMostMessages) {
    return Error{std::to_string(messages) + " messages are too many to follow one by one",
                 {},
                 "take the closed form, fewer ranks or fewer segments"};
  }
  return run_messages(fabric, std::move(jobs), horizon);
}

}  // namespace lockstep::sim
