#include "runtime/replay/torch/player.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "base/check.h"
#include "base/clock.h"
#include "runtime/replay/disputes.h"
#include "runtime/replay/tensors.h"
#include "runtime/replay/torch/transport.h"

// Torch 2.15 has new names for the operations on whole tensors; 2.11 has only these.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep::runtime {
namespace {

// Ranks that wait for each other without a call. The others are at most a few calls behind.
constexpr std::chrono::seconds kTimeoutWithOthers{10};
// A queue that is not empty after this time is not just a little late: record a wait.
constexpr std::chrono::milliseconds kShort{20};
// How long completions may take to be recorded after the device has reached them.
constexpr std::chrono::milliseconds kSeen{100};
constexpr std::uint64_t kRecordsPerCall = 5;   // issue, start, complete, wait, waited
constexpr std::uint64_t kRecordsOfOne = 1024;  // at least, however little it calls

at::ScalarType scalar_type(const std::string& name) {
  static const std::map<std::string, at::ScalarType> kTypes = {{"float32", at::kFloat},
                                                               {"float64", at::kDouble},
                                                               {"float16", at::kHalf},
                                                               {"uint8", at::kByte},
                                                               {"bfloat16", at::kBFloat16},
                                                               {"int8", at::kChar},
                                                               {"int16", at::kShort},
                                                               {"int32", at::kInt},
                                                               {"int64", at::kLong},
                                                               {"bool", at::kBool},
                                                               {"complex64", at::kComplexFloat}};
  const auto found = kTypes.find(name);
  if (found != kTypes.end()) return found->second;
  // Types that torch does not know here: one of the same width.
  if (name == "uint16") return at::kShort;
  if (name == "uint32") return at::kInt;
  if (name == "uint64") return at::kLong;
  return at::kByte;
}

c10d::ReduceOp reduce_op(const std::string& name) {
  static const std::map<std::string, c10d::ReduceOp::RedOpType> kOps = {
      {"sum", c10d::ReduceOp::SUM},         {"avg", c10d::ReduceOp::AVG},
      {"product", c10d::ReduceOp::PRODUCT}, {"min", c10d::ReduceOp::MIN},
      {"max", c10d::ReduceOp::MAX},         {"band", c10d::ReduceOp::BAND},
      {"bor", c10d::ReduceOp::BOR},         {"bxor", c10d::ReduceOp::BXOR}};
  const auto found = kOps.find(name);
  return found == kOps.end() ? c10d::ReduceOp::SUM : found->second;
}

at::Tensor zeros(const CallTensors::Shape& shape, at::ScalarType type, c10::Device torch_device) {
  if (!torch_device.is_cpu()) return at::zeros(shape, at::device(torch_device).dtype(type));
  at::Tensor tensor = at::empty(shape, type);
  std::memset(tensor.data_ptr(), 0, tensor.nbytes());
  return tensor;
}

class Player {
 public:
  Player(const trace::Run& program, trace::Rank rank, ProcessGroups& groups, Recorder& recorder)
      : program_(program), trace_(*program.find(rank)), groups_(groups), recorder_(recorder) {
    const auto disputes = find_disputes(program);
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const bool any = std::find(disputes[r].begin(), disputes[r].end(), true) != disputes[r].end();
      if (any) disputing_.push_back(program.ranks[r].rank.value);
      everybody_.push_back(program.ranks[r].rank.value);
      if (program.ranks[r].rank == rank) disputed_ = disputes[r];
    }
    works_.resize(trace_.calls.size());
  }

  trace::End run() {
    find_messages();
    make_groups();
    std::size_t last_issue = 0;
    for (std::size_t e = 0; e < trace_.events.size(); ++e) {
      if (trace_.events[e].kind == trace::EventKind::issue) last_issue = e + 1;
    }
    if (last_issue == 0) groups_.announce("issued");
    for (std::size_t e = 0; e < trace_.events.size(); ++e) {
      play(trace_.events[e], e + 1 == last_issue);
    }
    release();
    return end();
  }

 private:
  struct Group {
    c10::intrusive_ptr<c10d::Backend> backend;
    std::vector<trace::Rank> members;
    int group_rank_of(std::int32_t rank) const {
      const auto found = std::find(members.begin(), members.end(), trace::Rank(rank));
      LOCKSTEP_CHECK(found != members.end(), "a program names members alone");
      return static_cast<int>(found - members.begin());
    }
  };

  // All ranks go through all groups in the same order, so no two wait for each other's connections.
  void make_groups() {
    const auto disputed = find_disputed_groups(program_);
    std::set<std::pair<trace::GroupId, std::vector<trace::Rank>>> seen;
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      for (std::size_t g = 0; g < program_.ranks[r].groups.size(); ++g) {
        const trace::RankTrace::Membership& group = program_.ranks[r].groups[g];
        if (!seen.emplace(group.group, group.ranks.ranks()).second) continue;
        if (is_mine(group)) make_group(group, !disputed[r][g]);
      }
    }
  }

  // A rank also makes a group that its own trace does not name, because the members could not
  // connect without it; but not if its own list of members differs.
  bool is_mine(const trace::RankTrace::Membership& group) const {
    const auto own = std::find_if(trace_.groups.begin(), trace_.groups.end(),
                                  [&](const auto& m) { return m.group == group.group; });
    return group.ranks.contains(trace_.rank) &&
           (own == trace_.groups.end() || own->ranks == group.ranks);
  }

  // Which ranks send to which others, by group; the same on all ranks.
  void find_messages() {
    for (const trace::RankTrace& trace : program_.ranks) {
      for (const trace::Call& call : trace.calls) {
        const trace::Op op = program_.tables.op(call);
        if (op == trace::Op::send) messages_[call.group].emplace(trace.rank, call.peer);
        if (op == trace::Op::recv) messages_[call.group].emplace(call.peer, trace.rank);
      }
    }
  }

  void make_group(const trace::RankTrace::Membership& group, bool connected) {
    std::vector<std::int32_t> ranks;
    for (const trace::Rank rank : group.ranks) ranks.push_back(rank.value);
    const Group members{{}, group.ranks.ranks()};
    const auto made =
        groups_.make(program_.tables.str(group.group), program_.tables.str(group.desc), ranks,
                     [&](const ProcessGroups::Connect& connect) {
                       ReplayTransport::Carriers carriers;
                       if (connected) carriers = connect_all(group, members, connect);
                       return c10::make_intrusive<ReplayTransport>(
                           std::move(carriers), members.group_rank_of(trace_.rank.value),
                           static_cast<int>(ranks.size()), held_);
                     });
    by_id_[group.group] = {made->getBackend(torch_device().type()), members.members};
  }

  // NCCL connects ranks in their first call, and its host call blocks until the others make theirs.
  // The recorded run was past that, often in another order than the calls of the program. So
  // everything is connected here, in one order.
  ReplayTransport::Carriers connect_all(const trace::RankTrace::Membership& group,
                                        const Group& members,
                                        const ProcessGroups::Connect& connect) {
    const auto all = connect("");
    if (!groups_.device().queues()) return {all, all, all};
    std::vector<at::Tensor> nothing = {zeros({1}, at::kFloat, torch_device())};
    all->allreduce(nothing, c10d::AllreduceOptions())->wait();
    const auto& messages = messages_[group.group];
    if (messages.empty()) return {all, {}, {}};
    const ReplayTransport::Carriers carriers{all, connect("/up"), connect("/down")};
    for (const auto& [from, to] : messages) {
      if (!group.ranks.contains(from) || !group.ranks.contains(to)) continue;
      const auto& carrier = members.group_rank_of(from.value) < members.group_rank_of(to.value)
                                ? carriers.up
                                : carriers.down;
      if (from == trace_.rank) carrier->send(nothing, members.group_rank_of(to.value), 0)->wait();
      if (to == trace_.rank) carrier->recv(nothing, members.group_rank_of(from.value), 0)->wait();
    }
    return carriers;
  }

  c10::Device torch_device() const { return groups_.device().torch_device(); }

  void play(const trace::Event& event, bool is_last_issue) {
    switch (event.kind) {
      case trace::EventKind::issue:
        issue(event.index, is_last_issue);
        break;
      case trace::EventKind::wait:
        wait(event.index);
        break;
      case trace::EventKind::step: {
        const trace::StepMark& step = trace_.steps[event.index];
        recorder_.step(step.n, std::numeric_limits<double>::quiet_NaN(), step.samples.value_or(0));
        break;
      }
      case trace::EventKind::modality: {
        const trace::ModalityMark& mark = trace_.modalities[event.index];
        recorder_.modality(mark.n, program_.tables.names(mark.has));
        break;
      }
      case trace::EventKind::span:
        recorder_.span(program_.tables.str(trace_.spans[event.index].name), monotonic_nanos());
        break;
      default:
        break;  // exceptions end it
    }
  }

  void issue(std::uint32_t index, bool is_last) {
    const trace::Call& call = trace_.calls[index];
    if (disputed_[index] && torch_device().is_cpu()) held_.hold();
    CallContext& context = recorder_.context();
    context.step = call.step;
    context.at = recorder_.ring().intern(program_.tables.str(call.at));
    context.note = recorder_.note(program_.tables.names(call.what), program_.tables.str(call.tag));
    works_[index] = make_call(call);
    if (is_last) groups_.announce("issued");
    if (!call.has(trace::kAsync)) wait(index);
  }

  void wait(std::uint32_t index) {
    release();
    // There is no Work for a call in the rank's own queue: what is queued next runs after it.
    if (const WorkPtr work = std::exchange(works_[index], nullptr)) work->wait();
  }

  // Held calls go to Gloo once all ranks that hold calls have come as far as they can.
  void release() {
    if (!held_.any()) return;
    groups_.announce("holding");
    groups_.wait_until_announced("holding", disputing_, kTimeoutWithOthers);
    held_.release();
  }

  // On a device that queues calls, waits do not block the host. The recorded host was past its
  // waits, or blocked in the last one. So, as on Gloo, a rank ends only after its waits.
  void wait_for_queue() {
    const auto mark = groups_.device().mark();
    if (!mark) return;
    const auto began = std::chrono::steady_clock::now();
    std::optional<Recorder::HostWait> reading;
    while (!mark->reached()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!reading && std::chrono::steady_clock::now() - began > kShort) reading.emplace(recorder_);
    }
    // The thread that polls for completions may be a little late, and the rank may be about to die.
    const auto reached = std::chrono::steady_clock::now();
    while (recorder_.outstanding() && std::chrono::steady_clock::now() - reached < kSeen) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  trace::End end() {
    wait_for_queue();
    if (trace_.end == trace::End::clean || trace_.end == trace::End::hung) return trace_.end;
    groups_.wait_until_announced("issued", everybody_, kTimeoutWithOthers);
    if (trace_.end == trace::End::killed || trace_.end == trace::End::interrupted) raise(SIGKILL);
    LOCKSTEP_CHECK(!trace_.exceptions.empty(), "a program that raised says what");
    throw std::runtime_error(trace_.exceptions.back().what);
  }

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr make_call(const trace::Call& call) {
    const trace::Signature& s = program_.tables.signatures[call.signature];
    const Group& group = by_id_.at(call.group);
    c10d::Backend& backend = *group.backend;
    const bool is_root = s.root == trace_.rank.value;
    const CallTensors wanted = tensors_of(program_.tables, call, group.members.size(), is_root);
    std::vector<at::Tensor> in, out;
    for (std::size_t i = 0; i < wanted.in.size(); ++i) {
      in.push_back(zeros(wanted.in[i], scalar_type(wanted.type(i)), torch_device()));
    }
    for (std::size_t i = 0; i < wanted.out.size(); ++i) {
      out.push_back(zeros(wanted.out[i], scalar_type(wanted.type(i)), torch_device()));
    }
    const bool async = call.has(trace::kAsync);
    const auto with_root = [&](auto options) {
      options.rootRank = group.group_rank_of(s.root);
      options.asyncOp = async;
      return options;
    };
    const auto plain = [&](auto options) {
      options.asyncOp = async;
      return options;
    };
    const auto reducing = [&](auto options) {
      options.reduceOp = reduce_op(program_.tables.str(s.redop));
      options.asyncOp = async;
      return options;
    };
    const int tag = call.ptag == trace::kNoPeerTag ? 0 : call.ptag;
    switch (s.op) {
      case trace::Op::all_reduce:
        return backend.allreduce(in, reducing(c10d::AllreduceOptions()));
      case trace::Op::reduce:
        return backend.reduce(in, reducing(with_root(c10d::ReduceOptions())));
      case trace::Op::broadcast:
        return backend.broadcast(in, with_root(c10d::BroadcastOptions()));
      case trace::Op::all_gather: {
        std::vector<std::vector<at::Tensor>> lists = {out};
        return backend.allgather(lists, in, plain(c10d::AllgatherOptions()));
      }
      case trace::Op::all_gather_into_tensor:
        return backend._allgather_base(out.front(), in.front(), plain(c10d::AllgatherOptions()));
      case trace::Op::gather: {
        std::vector<std::vector<at::Tensor>> lists;
        if (is_root) lists.push_back(out);
        return backend.gather(lists, in, with_root(c10d::GatherOptions()));
      }
      case trace::Op::scatter: {
        std::vector<std::vector<at::Tensor>> lists;
        if (is_root) lists.push_back(in);
        return backend.scatter(out, lists, with_root(c10d::ScatterOptions()));
      }
      case trace::Op::reduce_scatter: {
        std::vector<std::vector<at::Tensor>> lists = {in};
        return backend.reduce_scatter(out, lists, reducing(c10d::ReduceScatterOptions()));
      }
      case trace::Op::reduce_scatter_tensor:
        return backend._reduce_scatter_base(out.front(), in.front(),
                                            reducing(c10d::ReduceScatterOptions()));
      case trace::Op::all_to_all:
        return backend.alltoall(out, in, plain(c10d::AllToAllOptions()));
      case trace::Op::all_to_all_single: {
        std::vector<std::int64_t> splits_out = program_.tables.int_lists[s.splits_out];
        std::vector<std::int64_t> splits_in = program_.tables.int_lists[s.splits_in];
        return backend.alltoall_base(out.front(), in.front(), splits_out, splits_in,
                                     plain(c10d::AllToAllOptions()));
      }
      case trace::Op::barrier:
        return backend.barrier(plain(c10d::BarrierOptions()));
      case trace::Op::send:
        return backend.send(in, group.group_rank_of(call.peer.value), tag);
      case trace::Op::recv:
        return backend.recv(out, group.group_rank_of(call.peer.value), tag);
      case trace::Op::recv_any:
        return backend.recvAnysource(out, tag);
      default:
        LOCKSTEP_CHECK(false, "an operation that was to be refused (runtime/replay/refusals.h)");
    }
  }

  const trace::Run& program_;
  const trace::RankTrace& trace_;
  ProcessGroups& groups_;
  Recorder& recorder_;
  HeldCalls held_;  // referenced by the groups' transports, which get no more calls when it is gone
  std::vector<std::int32_t> disputing_, everybody_;
  std::vector<bool> disputed_;
  std::map<trace::GroupId, std::set<std::pair<trace::Rank, trace::Rank>>> messages_;  // from, to
  std::map<trace::GroupId, Group> by_id_;
  std::vector<WorkPtr> works_;
};

}  // namespace

std::uint64_t records_of(const trace::RankTrace& trace) {
  return kRecordsOfOne + trace.calls.size() * kRecordsPerCall + trace.events.size();
}

trace::End play(const trace::Run& program, trace::Rank rank, ProcessGroups& groups,
                Recorder& recorder) {
  return Player(program, rank, groups, recorder).run();
}

}  // namespace lockstep::runtime
