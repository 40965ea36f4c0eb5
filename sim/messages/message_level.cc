// The message level: an event simulation with one lane per sender and at most one message under way
// in each lane.

#include "sim/messages/message_level.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/collectives/closed_form.h"
#include "sim/messages/clock.h"
#include "sim/messages/links.h"
#include "sim/messages/schedules.h"

namespace lockstep::sim {
namespace {

// Sharing makes a collective take longer than its formula says. Up to this many times longer, it
// still gets a tick without rounding.
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
    // In the worst case the collectives run one after the other.
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
  if (messages > kMaxMessages) {
    return Error{fmt::format("{} messages are too many to follow one by one", messages),
                 {},
                 "take the closed form, fewer ranks or fewer segments"};
  }
  return run_messages(fabric, std::move(jobs), horizon);
}

enum class Phase : std::uint8_t {
  idle,     // its next message needs others first, or none is left
  alone,    // under way, nobody else on its links; one event: the arrival
  latency,  // alpha passes; an event for the begin of the flow
  flowing,  // at a rate that may change; an event for the end of the flow
  tail,     // the receiver reduces
};
enum class EventKind : std::uint8_t { prepare, arrive, flow_begins, flow_ends };

// The cost of a message of one size on one level, in ticks, alone on its links.
struct Cost {
  std::int64_t alpha = 0, flow = 0, reduce = 0;
  Int128 work = 0;
};

struct Lane {
  std::uint32_t arrived = 0;  // messages that have arrived; the next has this index
  std::uint32_t total = 0;
  std::uint32_t job = 0;
  std::uint32_t first_waiter = 0;  // 1 + index into waiters_; 0: no lane waits for this one
  std::uint32_t generation = 0;    // events of older generations are void
  std::uint8_t unmet = 0;          // needs of the next message that are not met
  Phase phase = Phase::idle;
  bool shares = false;     // the message under way has shared a link
  bool reduces = false;    // its receiver reduces
  std::uint32_t cost = 0;  // index into costs_
  Route route;
};

// A lane that waits until `count` messages of another one have arrived. Its index in waiters_ is
// 2·(waiting lane) + (which of its two needs). Waiters for one lane form a linked list.
struct Waiter {
  std::uint32_t count = 0;
  std::uint32_t next = 0;  // as Lane::first_waiter
};

struct Flow {
  std::int64_t started = 0;  // when the message was sent
  std::int64_t updated = 0;  // the time at which `left` held
  Int128 left = 0;
  Int128 rate = 0;
  std::uint64_t round = 0;  // of sharing, in which it was last visited
};

struct Job {
  std::unique_ptr<Schedule> schedule;
  std::vector<std::int64_t> ranks;
  std::uint32_t first_lane = 0;
  std::uint32_t first_cost = 0;
  std::int64_t finished = 0;

  std::int64_t rank(std::uint32_t i) const {
    return ranks.empty() ? static_cast<std::int64_t>(i) : ranks[i];
  }
};

namespace {

Rational duration_of(const Rational& bytes, Bandwidth bandwidth) {
  constexpr Int128 kPicosPerSecond = 1'000'000'000'000;
  return bytes * Rational(8 * kPicosPerSecond, bandwidth.bits_per_second);
}

class Engine {
 public:
  Engine(const Fabric& fabric, std::vector<MessageJob> jobs, Picos horizon)
      : fabric_(fabric), links_(fabric), ticks_(choose_ticks(fabric, jobs, horizon)) {
    for (MessageJob& job : jobs) add(std::move(job));
    waiters_.resize(2 * lanes_.size());
    flows_.resize(fabric.dedicated ? 0 : lanes_.size());
    link_round_.resize(links_.size());
    link_index_.resize(links_.size());
  }

  Result<MessageResult> run() {
    while (!too_long_ && (!queue_.empty() || !dirty_.empty())) {
      // Rates are computed once per moment, after all its events: many flows begin together.
      if (!dirty_.empty() && (queue_.empty() || queue_.first().time > now_)) {
        share_dirty_links();
        continue;
      }
      const QueuedEvent event = queue_.pop();
      const auto lane = static_cast<std::uint32_t>(event.order >> 32U);
      // An event that was superseded, for example the arrival of a message that shares its link
      // since. Removing it from the heap would cost more than skipping it here.
      if (static_cast<std::uint32_t>(event.order) >> 2U != (lanes_[lane].generation & kGenerations))
        continue;
      now_ = event.time;
      handle(static_cast<EventKind>(event.order & 3U), lane);
    }
    if (too_long_) {
      return Error{"the messages take longer, or are larger, than the message level can count",
                   {},
                   "check the units, or take the closed form"};
    }
    for (const Lane& lane : lanes_)
      // No events left, but messages: the schedule has a cycle of needs.
      LOCKSTEP_CHECK(lane.arrived == lane.total, "a schedule whose messages wait for each other");
    for (const Job& job : jobs_) result_.finished.push_back(ticks_.picos(job.finished));
    return std::move(result_);
  }

 private:
  static constexpr std::uint32_t kGenerations =
      (std::uint32_t{1} << 30U) - 1;  // 30 bits of an event's order

  static Ticks choose_ticks(const Fabric& fabric, const std::vector<MessageJob>& jobs,
                            Picos horizon) {
    std::vector<Rational> durations;
    for (const MessageJob& job : jobs) {
      for (const Rational& size : job.schedule->sizes()) {
        for (const LinkCost& link : fabric.levels) {
          durations.push_back(duration_of(size, link.beta));
          if (link.gamma) durations.push_back(duration_of(size, *link.gamma));
        }
      }
    }
    return Ticks::for_durations(durations, horizon);
  }

  void add(MessageJob job) {
    const auto index = static_cast<std::uint32_t>(jobs_.size());
    const auto first_lane = static_cast<std::uint32_t>(lanes_.size());
    const auto first_cost = static_cast<std::uint32_t>(costs_.size());
    for (const Rational& size : job.schedule->sizes())
      for (const LinkCost& link : fabric_.levels) costs_.push_back(cost(size, link));
    const std::optional<std::int64_t> start = ticks_.of(job.start.value);
    too_long_ |= !start;
    for (std::uint32_t i = 0; i < job.schedule->lanes(); ++i) {
      Lane lane;
      lane.total = job.schedule->messages(i);
      lane.job = index;
      lanes_.push_back(lane);
      if (lane.total > 0) push(start.value_or(0), EventKind::prepare, first_lane + i);
    }
    jobs_.push_back(
        {std::move(job.schedule), std::move(job.ranks), first_lane, first_cost, start.value_or(0)});
  }

  Cost cost(const Rational& size, const LinkCost& link) {
    const auto alpha = ticks_.of(link.alpha.value);
    const auto flow = ticks_.of(duration_of(size, link.beta));
    const auto reduce = ticks_.of(link.gamma ? duration_of(size, *link.gamma) : Rational());
    const auto work = work_of(size, ticks_);
    if (alpha && flow && reduce && work) return {*alpha, *flow, *reduce, *work};
    too_long_ = true;
    return {};
  }

  // An event's order holds lane (32 bits), generation (30) and kind (2): unique at one time, and
  // the same in every run.
  void push(std::int64_t time, EventKind kind, std::uint32_t lane) {
    too_long_ |= time > kMaxTicks;
    const std::uint64_t low =
        ((lanes_[lane].generation & kGenerations) << 2U) | static_cast<std::uint32_t>(kind);
    queue_.push({time, (std::uint64_t{lane} << 32U) | low});
  }

  void handle(EventKind kind, std::uint32_t lane) {
    switch (kind) {
      case EventKind::prepare:
        return prepare(lane);
      case EventKind::arrive:
        return arrive(lane);
      case EventKind::flow_begins:
        return begin_flow(lane);
      case EventKind::flow_ends:
        return end_flow(lane);
    }
  }

  // Prepares the lane's next message: sends it if all that it needs has arrived, else registers the
  // lane with those that it waits for.
  void prepare(std::uint32_t number) {
    Lane& lane = lanes_[number];
    lane.phase = Phase::idle;
    if (lane.arrived == lane.total) return;
    const Job& job = jobs_[lane.job];
    const Message message = job.schedule->message(number - job.first_lane, lane.arrived);
    lane.route = links_.route(job.rank(message.from), job.rank(message.to));
    lane.cost = job.first_cost + message.size * static_cast<std::uint32_t>(fabric_.levels.size()) +
                lane.route.level;
    lane.reduces = message.reduces;
    lane.unmet = 0;
    for (std::uint32_t i = 0; i < 2; ++i) {
      const Need& need = message.needs[i];
      Lane& needed = lanes_[job.first_lane + need.lane];
      if (need.count <= needed.arrived) continue;
      ++lane.unmet;
      waiters_[2 * number + i] = {need.count, needed.first_waiter};
      needed.first_waiter = 2 * number + i + 1;
    }
    if (lane.unmet == 0) send(number);
  }

  // Sends the prepared message. If one of its links is used already, all its users switch to
  // separate events for the begin and end of their flows.
  void send(std::uint32_t number) {
    Lane& lane = lanes_[number];
    const Cost& cost = costs_[lane.cost];
    ++result_.messages;
    lane.shares = false;
    // Empty messages (a barrier's) use no bandwidth and share nothing.
    const bool uses_links = !fabric_.dedicated && cost.flow > 0;
    if (uses_links) {
      flows_[number].started = now_;
      for (const std::uint32_t link : lane.route.links) {
        // Copied, because make_room() removes a lane from the link if its flow is over by now.
        if (links_.users(link).empty()) continue;
        lane.shares = true;
        for (const std::uint32_t other : std::vector<std::uint32_t>(links_.users(link)))
          make_room(other);
      }
      for (const std::uint32_t link : lane.route.links) links_.enter(link, number);
    }
    if (lane.shares) {
      ++result_.shared;
      lane.phase = Phase::latency;
      push(now_ + cost.alpha, EventKind::flow_begins, number);
    } else {
      lane.phase = uses_links ? Phase::alone : Phase::tail;
      push(now_ + cost.alpha + cost.flow + reduce_time(lane), EventKind::arrive, number);
    }
  }

  std::int64_t reduce_time(const Lane& lane) const {
    return lane.reduces ? costs_[lane.cost].reduce : 0;
  }

  // Another message comes to a link of a message that was alone. From now on the latter has
  // separate events for the begin and the end of its flow, and its arrival event is void.
  void make_room(std::uint32_t number) {
    Lane& lane = lanes_[number];
    if (lane.phase != Phase::alone) return;
    ++lane.generation;
    Flow& flow = flows_[number];
    const Cost& cost = costs_[lane.cost];
    const std::int64_t begin = flow.started + cost.alpha;
    const std::int64_t end = begin + cost.flow;
    // Its bytes are through: only the receiver's reducing is left, which uses no link.
    if (now_ >= end) {
      leave_links(number);
      lane.phase = Phase::tail;
      return push(end + reduce_time(lane), EventKind::arrive, number);
    }
    result_.shared += lane.shares ? 0 : 1;
    lane.shares = true;
    // Alpha still passes: its flow has not begun.
    if (now_ < begin) {
      lane.phase = Phase::latency;
      return push(begin, EventKind::flow_begins, number);
    }
    // In the middle of the flow, which has run since `begin` at the rate of the slower link.
    lane.phase = Phase::flowing;
    flow.rate = static_cast<Int128>(std::min(links_.capacity(lane.route.links[0]),
                                             links_.capacity(lane.route.links[1]))) *
                kRateScale;
    flow.left = cost.work;
    flow.updated = begin;
    push(end, EventKind::flow_ends, number);
    mark_dirty(lane);
  }

  // Rate 0 until share_dirty_links() gives it one, at this same moment.
  void begin_flow(std::uint32_t number) {
    Lane& lane = lanes_[number];
    lane.phase = Phase::flowing;
    flows_[number].left = costs_[lane.cost].work;
    flows_[number].rate = 0;
    flows_[number].updated = now_;
    mark_dirty(lane);
  }

  void end_flow(std::uint32_t number) {
    Lane& lane = lanes_[number];
    leave_links(number);
    lane.phase = Phase::tail;
    mark_dirty(lane);
    if (reduce_time(lane) == 0) return arrive(number);
    push(now_ + reduce_time(lane), EventKind::arrive, number);
  }

  void leave_links(std::uint32_t number) {
    for (const std::uint32_t link : lanes_[number].route.links) links_.leave(link, number);
  }

  void arrive(std::uint32_t number) {
    Lane& lane = lanes_[number];
    if (lane.phase == Phase::alone) leave_links(number);
    ++lane.generation;
    ++lane.arrived;
    jobs_[lane.job].finished = now_;
    // Lanes that waited for this message go on; those that wait for a later one stay in the list.
    std::uint32_t waiter = std::exchange(lane.first_waiter, 0);
    while (waiter != 0) {
      const std::uint32_t index = waiter - 1;
      waiter = waiters_[index].next;
      if (waiters_[index].count > lane.arrived) {
        waiters_[index].next = lane.first_waiter;
        lane.first_waiter = index + 1;
      } else if (--lanes_[index / 2].unmet == 0) {
        send(index / 2);
      }
    }
    prepare(number);
  }

  void mark_dirty(const Lane& lane) {
    dirty_.insert(dirty_.end(), lane.route.links.begin(), lane.route.links.end());
  }

  // New rates for all flows that are connected to a dirty link, directly or through other flows.
  // Called after everything that begins or ends at this moment.
  void share_dirty_links();
  void share_component(std::uint32_t first);
  void set_rate(std::uint32_t number, Int128 rate);

  const Fabric& fabric_;
  LinkTable links_;
  Ticks ticks_;
  std::vector<Job> jobs_;
  std::vector<Lane> lanes_;
  std::vector<Waiter> waiters_;
  std::vector<Flow> flows_;  // by lane; empty where nothing is ever shared
  std::vector<Cost> costs_;  // by job, size and level
  EventHeap queue_;
  std::vector<std::uint32_t> dirty_;       // links on which flows began or ended
  std::uint64_t round_ = 0;                // of sharing
  std::vector<std::uint64_t> link_round_;  // by link: the round in which it was last visited …
  std::vector<std::uint32_t> link_index_;  // … and its index in its component
  std::int64_t now_ = 0;
  bool too_long_ = false;
  MessageResult result_;
};

void Engine::share_dirty_links() {
  ++round_;
  for (const std::uint32_t link : std::exchange(dirty_, {}))
    if (link_round_[link] != round_) share_component(link);
}

void Engine::share_component(std::uint32_t first) {
  // Breadth-first search from the link, over the flows on each link and the links of each flow.
  // `links` is both the queue and the result.
  std::vector<std::uint32_t> links = {first};
  std::vector<std::uint32_t> numbers;  // lanes whose messages flow
  link_round_[first] = round_, link_index_[first] = 0;
  for (std::size_t i = 0; i < links.size(); ++i) {
    for (const std::uint32_t number : links_.users(links[i])) {
      if (lanes_[number].phase != Phase::flowing || flows_[number].round == round_) continue;
      flows_[number].round = round_;
      numbers.push_back(number);
      for (const std::uint32_t link : lanes_[number].route.links) {
        if (link_round_[link] == round_) continue;
        link_round_[link] = round_;
        link_index_[link] = static_cast<std::uint32_t>(links.size());
        links.push_back(link);
      }
    }
  }
  std::vector<std::int64_t> capacities;
  capacities.reserve(links.size());
  for (const std::uint32_t link : links) capacities.push_back(links_.capacity(link));
  std::vector<SharedFlow> shared(numbers.size());
  for (std::size_t f = 0; f < numbers.size(); ++f)
    for (std::size_t i = 0; i < 2; ++i)
      shared[f].links[i] = link_index_[lanes_[numbers[f]].route.links[i]];
  share_fairly(capacities, shared);
  for (std::size_t f = 0; f < numbers.size(); ++f) set_rate(numbers[f], shared[f].rate);
}

void Engine::set_rate(std::uint32_t number, Int128 rate) {
  Flow& flow = flows_[number];
  // What has flowed at the old rate until now. Rounded ends may be a fraction of a tick late.
  flow.left = std::max<Int128>(flow.left - flow.rate * (now_ - flow.updated), 0);
  flow.updated = now_;
  // Its end event is still right.
  if (flow.rate == rate) return;
  flow.rate = rate;
  // Rounded to the nearest tick.
  const Int128 ticks = (flow.left + rate / 2) / rate;
  ++lanes_[number].generation;
  too_long_ |= ticks > kMaxTicks;
  push(now_ + static_cast<std::int64_t>(std::min<Int128>(ticks, kMaxTicks)), EventKind::flow_ends,
       number);
}

}  // namespace

Result<MessageResult> run_messages(const Fabric& fabric, std::vector<MessageJob> jobs,
                                   Picos horizon) {
  return Engine(fabric, std::move(jobs), horizon).run();
}

}  // namespace lockstep::sim
