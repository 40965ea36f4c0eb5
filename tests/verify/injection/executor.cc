#include "tests/verify/injection/executor.h"

#include <algorithm>
#include <deque>
#include <tuple>

#include "tests/verify/injection/trace_lines.h"

namespace lockstep::verify::injection {

namespace {

struct Issued {
  const CallSpec* call = nullptr;
  int id = 0;
  bool completed = false;  // by the transport
  bool logged = false;     // its complete line is written
};

struct RankState {
  enum class Status { running, finished, dead, raised, stalled } status = Status::running;
  std::size_t next = 0;         // the action to perform
  int blocked_on = kUnset;      // handle
  bool waiting = false;         // blocked in a wait rather than in the call itself
  std::map<int, Issued> calls;  // by handle
  std::map<std::string, std::vector<int>> by_group;  // handles of collectives, in order
  int next_id = 0;
};

using Channel = std::tuple<int, int, int, std::string>;  // source, destination, tag, group
struct Side {
  int rank, handle;
};

class Executor {
 public:
  Executor(const Job& job, const Recording& recording, const Behaviour& behaviour, Random& random)
      : job_(job), behaviour_(behaviour), random_(random), ranks_(job.ranks.size()) {
    for (int r = 0; r < job.world(); ++r) lines_.emplace_back(job, r, recording, random);
  }

  Outcome run() {
    int left = behaviour_.stop_after;
    while (left != 0) {
      std::vector<int> able;
      for (int r = 0; r < job_.world(); ++r) {
        if (can_move(r)) able.push_back(r);
      }
      if (able.empty()) break;
      perform(able[static_cast<std::size_t>(pick(random_, 0, static_cast<int>(able.size()) - 1))]);
      if (left > 0) --left;
    }
    return finish(left == 0);
  }

 private:
  using Status = RankState::Status;

  RankState& state(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  TraceLines& lines(int r) { return lines_[static_cast<std::size_t>(r)]; }
  const Actions& actions(int r) const { return job_.ranks[static_cast<std::size_t>(r)]; }

  bool can_move(int r) {
    const RankState& s = state(r);
    if (s.status != Status::running) return false;
    return s.blocked_on == kUnset || s.calls.at(s.blocked_on).completed;
  }

  void perform(int r) {
    RankState& s = state(r);
    if (s.blocked_on != kUnset) {
      log_completion(r, s.blocked_on);
      if (s.waiting) lines(r).call_event("waited", s.calls.at(s.blocked_on).id);
      s.blocked_on = kUnset;
      return;
    }
    if (chance(random_, 0.5)) log_completions(r);
    if (s.next == actions(r).size()) {
      s.status = Status::finished;
      return;
    }
    const Action& a = actions(r)[s.next++];
    switch (a.kind) {
      case Action::Kind::issue:
        issue(r, a);
        break;
      case Action::Kind::wait:
        lines(r).call_event("wait", s.calls.at(a.handle).id);
        s.blocked_on = a.handle;
        s.waiting = true;
        break;
      case Action::Kind::modality:
        lines(r).modality(a);
        break;
      case Action::Kind::step:
        lines(r).step(a.n);
        break;
      case Action::Kind::raise:
        lines(r).exception(a.text, kUnset);
        s.status = Status::raised;
        break;
      case Action::Kind::late:
        break;
      case Action::Kind::stall:
        s.status = Status::stalled;
        break;
      case Action::Kind::die:
        s.status = Status::dead;
        break;
    }
  }

  void issue(int r, const Action& a) {
    RankState& s = state(r);
    const int id = s.next_id++;
    s.calls[a.handle] = {&a.call, id, false, false};
    lines(r).issue(id, a.call);
    if (!a.call.async) {
      s.blocked_on = a.handle;
      s.waiting = false;
    }
    if (is_point_to_point(a.call)) {
      arrive_of_peer(r, a);
    } else {
      s.by_group[a.call.group].push_back(a.handle);
      arrive_of_group(a.call.group, s.by_group[a.call.group].size() - 1);
    }
  }

  const CallSpec* call_at(int r, const std::string& group, std::size_t seq) {
    const auto& handles = state(r).by_group[group];
    return seq < handles.size() ? state(r).calls.at(handles[seq]).call : nullptr;
  }

  // Completes call `seq` of a group for every rank whose members are all there.
  void arrive_of_group(const std::string& group, std::size_t seq) {
    const Members& all = job_.groups.at(group);
    const auto is_there = [&](int m) { return call_at(m, group, seq) != nullptr; };
    // Where all agree on the members, nobody gets through before the last one came.
    if (job_.beliefs.empty() && !std::all_of(all.begin(), all.end(), is_there)) return;
    for (int r = 0; r < job_.world(); ++r) {
      if (call_at(r, group, seq) == nullptr) continue;
      std::vector<const CallSpec*> calls;
      for (const int m : job_.members(r, group)) calls.push_back(call_at(m, group, seq));
      if (std::find(calls.begin(), calls.end(), nullptr) != calls.end()) continue;
      const bool good = all_fit(calls);
      if (good || behaviour_.mismatch == Behaviour::Mismatch::silent) {
        state(r).calls.at(state(r).by_group[group][seq]).completed = true;
      } else {
        abort_one(job_.members(r, group));
      }
    }
  }

  // Gloo's I/O thread throws in one of the processes that met.
  void abort_one(const Members& members) {
    if (behaviour_.mismatch != Behaviour::Mismatch::aborts || !died_.empty()) return;
    const int r =
        members[static_cast<std::size_t>(pick(random_, 0, static_cast<int>(members.size()) - 1))];
    state(r).status = Status::dead;
    died_.push_back(r);
  }

  void arrive_of_peer(int r, const Action& a) {
    const bool sends = a.call.op == "send";
    const Channel channel = sends ? Channel{r, a.call.peer, a.call.ptag, a.call.group}
                                  : Channel{a.call.peer, r, a.call.ptag, a.call.group};
    auto& mine = (sends ? sends_ : receives_)[channel];
    auto& theirs = (sends ? receives_ : sends_)[channel];
    if (sends && behaviour_.buffered_sends) state(r).calls.at(a.handle).completed = true;
    if (theirs.empty()) {
      mine.push_back({r, a.handle});
      return;
    }
    const Side other = theirs.front();
    theirs.pop_front();
    Issued& here = state(r).calls.at(a.handle);
    Issued& there = state(other.rank).calls.at(other.handle);
    const bool good = messages_fit(*here.call, *there.call);
    if (good || behaviour_.mismatch == Behaviour::Mismatch::silent) {
      here.completed = there.completed = true;
    } else {
      abort_one({r, other.rank});
    }
  }

  void log_completion(int r, int handle) {
    Issued& call = state(r).calls.at(handle);
    if (!call.completed || call.logged) return;
    call.logged = true;
    if (behaviour_.records_completion) lines(r).call_event("complete", call.id);
  }

  void log_completions(int r) {
    for (auto& [handle, call] : state(r).calls) log_completion(r, handle);
  }

  Outcome finish(bool stopped) {
    Outcome out;
    out.stopped = stopped;
    const bool somebody_gone = std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& s) {
      return s.status == Status::dead || s.status == Status::raised;
    });
    for (int r = 0; r < job_.world(); ++r) {
      RankState& s = state(r);
      if (s.status != Status::dead && !stopped) log_completions(r);
      const bool stuck = s.status == Status::running;
      out.hung |= stuck && !stopped;
      if (!stopped) end(r, stuck, somebody_gone);
      out.reached.push_back(s.next);
      out.traces.push_back(lines(r).text());
    }
    out.died = died_;
    return out;
  }

  void end(int r, bool stuck, bool somebody_gone) {
    RankState& s = state(r);
    if (s.status == Status::finished) lines(r).end("clean");
    if (s.status == Status::stalled) lines(r).end("hung");
    if (s.status == Status::raised) lines(r).end("exception");
    if (!stuck) return;
    if (somebody_gone && behaviour_.death == Behaviour::Death::peers_raise) {
      lines(r).exception("Connection closed by peer [127.0.0.1]:4711",
                         chance(random_, 0.5) ? s.calls.at(s.blocked_on).id : kUnset);
      lines(r).end("exception");
    } else {
      lines(r).end("hung");
    }
  }

  const Job& job_;
  const Behaviour& behaviour_;
  Random& random_;
  std::vector<RankState> ranks_;
  std::vector<TraceLines> lines_;
  std::map<Channel, std::deque<Side>> sends_, receives_;
  std::vector<int> died_;
};

}  // namespace

Outcome execute(const Job& job, const Recording& recording, const Behaviour& behaviour,
                Random& random) {
  return Executor(job, recording, behaviour, random).run();
}

}  // namespace lockstep::verify::injection
