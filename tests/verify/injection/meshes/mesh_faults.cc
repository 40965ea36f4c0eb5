#include "tests/verify/injection/meshes/mesh_faults.h"

#include <algorithm>
#include <utility>

#include "tests/verify/injection/meshes/mesh_editor.h"
#include "tests/verify/injection/meshes/mesh_jobs.h"

namespace lockstep::verify::injection {

namespace {

using Found = std::optional<Deviation>;

class MeshInjector : private MeshEditor {
 public:
  MeshInjector(Job& job, DeviceBehaviour& behaviour, Random& random)
      : MeshEditor(job, random), behaviour_(behaviour) {}

  Found inject(MeshFault fault) {
    switch (fault) {
      case MeshFault::left_out:
        return leave_out(find([](const CallSpec& c) { return c.splits_in.empty(); }), 1);
      case MeshFault::left_out_by_several:
        return leave_out_by_several();
      case MeshFault::left_out_by_subgroup:
        return leave_out_by_subgroup();
      case MeshFault::left_out_all_to_all:
        return leave_out(find([](const CallSpec& c) { return !c.splits_in.empty(); }), 1);
      case MeshFault::one_too_many:
        return one_too_many();
      case MeshFault::modality_skip:
        return modality_skip();
      case MeshFault::ddp_unused:
        return ddp_unused();
      case MeshFault::swapped:
        return swap(true);
      case MeshFault::groups_swapped:
        return swap(false);
      case MeshFault::wrong_size:
      case MeshFault::wrong_op:
      case MeshFault::wrong_dtype:
      case MeshFault::wrong_root:
      case MeshFault::wrong_redop:
        return change(fault);
      case MeshFault::realigned:
        return realign();
      case MeshFault::host_stall:
        return end_with(Action::Kind::stall);
      case MeshFault::never_starts:
        return stall_device(Stall::never_starts);
      case MeshFault::never_completes:
        return stall_device(Stall::never_completes);
      case MeshFault::link_stall:
        return stall_link();
      case MeshFault::exception:
        return end_with(Action::Kind::raise);
      case MeshFault::killed:
        return end_with(Action::Kind::die);
      case MeshFault::lone_send:
        return lone_send();
      case MeshFault::left_out_message:
        return leave_out_message();
      case MeshFault::lone_barrier:
        return lone_barrier();
      case MeshFault::culprit_missing:
        return stall_without_trace();
      case MeshFault::bystander_missing:
        return leave_out_beside_missing_trace();
      case MeshFault::left_out_by_most:
        return leave_out_by_most();
      case MeshFault::modality_skip_by_most:
        return modality_skip_by_most();
      case MeshFault::healthy:
        return Deviation{};
      case MeshFault::legal_skip:
        return legal_skip();
      case MeshFault::straggler:
      case MeshFault::straggler_came:
        return straggle(fault == MeshFault::straggler_came);
      case MeshFault::preempted:
        return preempt();
      case MeshFault::missing_trace:
        return lose_trace();
      case MeshFault::batches_differ:
        return vary_batches();
    }
    return std::nullopt;
  }

 private:
  Found stall_without_trace() {
    Found found = end_with(Action::Kind::stall);
    if (found) found->not_recorded = found->culprits;
    return found;
  }

  Found leave_out_beside_missing_trace() {
    Found found = leave_out(find([](const CallSpec&) { return true; }), 1);
    if (!found || job_.world() < 5) return std::nullopt;
    found->not_recorded = {(found->culprits[0] + pick(random_, 1, job_.world() - 1)) %
                           job_.world()};
    return found;
  }

  Found lose_trace() {
    Deviation d;
    d.not_recorded = {pick(random_, 0, job_.world() - 1)};
    return d;
  }

  Found vary_batches() {
    for (int r = 0; r < job_.world(); ++r) {
      if (chance(random_, 0.3)) set_batch(r, pick(random_, 0, job_.steps - 1), {"text"});
    }
    return Deviation{};
  }

  Found leave_out(const std::optional<Site>& site, int ranks) {
    if (!site) return std::nullopt;
    const CallSpec gone = call(*site);
    const std::int64_t seq = seq_of(*site);
    Members members = job_.groups.at(gone.group);
    std::erase(members, site->rank);
    std::shuffle(members.begin(), members.end(), random_);
    std::vector<int> culprits = {site->rank};
    culprits.insert(culprits.end(), members.begin(), members.begin() + ranks - 1);
    for (const int r : culprits) {
      const auto all = collectives(actions(r), gone.group);
      remove(r, all[static_cast<std::size_t>(seq)]);
    }
    return at_call(culprits, gone, seq);
  }

  Found leave_out_by_several() {
    const auto site = find([&](const CallSpec& c) { return size_of(c.group) >= 5; });
    if (!site) return std::nullopt;
    const auto most = static_cast<int>((size_of(call(*site).group) - 1) / 2);
    return leave_out(site, pick(random_, 2, std::min(most, 5)));
  }

  // Two steps are enough of a past. In the first one nothing tells a call that the few made from
  // one that they should not have made, and in the second one little.
  static bool has_past(const CallSpec& c) { return c.step >= 2; }

  Found leave_out_by_most() {
    const auto site = find([&](const CallSpec& c) { return size_of(c.group) >= 3 && has_past(c); });
    return site ? leave_out(site, pick_most(size_of(call(*site).group))) : std::nullopt;
  }

  static bool syncs_replicas(const CallSpec& c) {
    return std::set<std::string>{"dp", "text", "image"}.contains(dimension(c.group));
  }

  Found leave_out_by_subgroup() {
    const auto site = find(syncs_replicas);
    if (!site) return std::nullopt;
    const std::vector<int> row = row_of(site->rank, {"tp"});
    if (row.size() < 2) return std::nullopt;
    const CallSpec gone = call(*site);
    const std::int64_t seq = seq_of(*site);
    std::set<std::string> groups;
    for (const int r : row) {
      for (const auto& [name, members] : job_.groups) {
        const bool member = std::find(members.begin(), members.end(), r) != members.end();
        if (!member || dimension(name) != dimension(gone.group)) continue;
        remove(r, collectives(actions(r), name)[static_cast<std::size_t>(seq)]);
        groups.insert(name);
      }
    }
    Deviation d = at_call(row, gone, seq);
    d.groups = groups;
    return d;
  }

  Found one_too_many() {
    const auto site = find([](const CallSpec& c) { return c.splits_in.empty(); });
    if (!site) return std::nullopt;
    const std::int64_t seq = seq_of(*site);
    CallSpec extra = call(*site);
    if (chance(random_, 0.5)) {
      extra = CallSpec{};
      extra.op = "all_reduce";
      extra.group = call(*site).group;
      extra.in = extra.out = {7};
      extra.redop = "sum";
      extra.what = {"accuracy"};
      extra.step = call(*site).step;
    }
    extra.async = false;
    extra.at = "log.py:7";
    const CallSpec kept = extra;
    insert(site->rank, site->at + 1, added_call(std::move(extra)));
    return at_call({site->rank}, kept, seq + 1);
  }

  static bool is_image(const CallSpec& c) {
    return !c.what.empty() && c.what[0].starts_with("image.");
  }

  static bool is_image_sync(const CallSpec& c) { return is_image(c) && syncs_replicas(c); }

  Found modality_skip() {
    const auto site = find(is_image_sync);
    return site ? skip_images(*site, row_of(site->rank, {"tp", "pp"})) : std::nullopt;
  }

  // Text-only batches may be most batches.
  Found modality_skip_by_most() {
    const auto site = find([&](const CallSpec& c) {
      return is_image_sync(c) && size_of(c.group) >= 3 && has_past(c);
    });
    if (!site) return std::nullopt;
    Members members = job_.groups.at(call(*site).group);
    std::shuffle(members.begin(), members.end(), random_);
    members.resize(static_cast<std::size_t>(pick_most(members.size())));
    std::set<int> ranks;
    for (const int m : members) {
      const std::vector<int> replica = row_of(m, {"tp", "pp"});
      ranks.insert(replica.begin(), replica.end());
    }
    return skip_images(*site, {ranks.begin(), ranks.end()});
  }

  // `ranks` have no image in the step of a call that syncs images.
  Found skip_images(const Site& site, const std::vector<int>& ranks) {
    const CallSpec gone = call(site);
    Deviation d = at_call(ranks, gone, seq_of(site));
    d.groups.clear();
    for (const int r : ranks) {
      set_batch(r, gone.step, {"text"});
      const First first = remove_all(r, gone.step, is_image);
      if (first.group.empty()) continue;  // a pipeline's stage without images
      d.groups.insert(first.group);
      d.seq = first.seq;
    }
    return d;
  }

  // DDP's buckets go out in their order: after one that never fills, none does.
  Found ddp_unused() {
    const auto site = find(
        [](const CallSpec& c) { return is_image(c) && c.async && dimension(c.group) == "dp"; });
    if (!site || call(*site).step + 1 >= job_.steps) return std::nullopt;
    const CallSpec gone = call(*site);
    const std::vector<int> replica = row_of(site->rank, {"tp", "pp"});
    Deviation d = at_call(replica, gone, seq_of(*site));
    d.groups.clear();
    for (const int r : replica) {
      set_batch(r, gone.step, {"text"});
      bool image_came = false;
      std::set<std::vector<std::string>> from_then_on;
      for (const Action& a : actions(r)) {
        const bool bucket = a.kind == Action::Kind::issue && a.call.step == gone.step &&
                            a.call.async && dimension(a.call.group) == "dp";
        if (!bucket) continue;
        image_came |= is_image(a.call);
        if (image_came) from_then_on.insert(a.call.what);
      }
      const First first = remove_all(r, gone.step, [&](const CallSpec& c) {
        return dimension(c.group) == "dp" && from_then_on.contains(c.what);
      });
      d.groups.insert(first.group);
      d.seq = first.seq;
      Actions& list = actions(r);
      const auto next = std::find_if(list.begin(), list.end(), [&](const Action& a) {
        return a.kind == Action::Kind::modality && a.n == gone.step + 1;
      });
      list.erase(next + 1, list.end());
      Action raise;
      raise.kind = Action::Kind::raise;
      raise.text =
          "RuntimeError: Expected to have finished reduction in the prior iteration before "
          "starting a new one. This error indicates that your module has parameters that were not "
          "used in producing loss.";
      list.push_back(std::move(raise));
    }
    return d;
  }

  Found swap(bool same_group) {
    std::vector<Site> sites;
    for (int r = 0; r < job_.world(); ++r) {
      const Actions& list = actions(r);
      for (std::size_t i = 0; i + 1 < list.size(); ++i) {
        const CallSpec& a = list[i].call;
        const CallSpec& b = list[i + 1].call;
        if (list[i].kind != Action::Kind::issue || list[i + 1].kind != Action::Kind::issue)
          continue;
        if (is_point_to_point(a) || is_point_to_point(b)) continue;
        if (a.step < first_ || b.step > last_ || (a.group == b.group) != same_group) continue;
        if (size_of(a.group) < 2 || size_of(b.group) < 2) continue;
        Recording bare;
        bare.what = bare.step = bare.redop = bare.root = false;
        if (same_group ? visible(a, bare) == visible(b, bare) : a.async || b.async) continue;
        sites.push_back({r, i});
      }
    }
    if (sites.empty()) return std::nullopt;
    const Site site = any(sites);
    Actions& list = actions(site.rank);
    const CallSpec first = list[site.at].call;
    const CallSpec second = list[site.at + 1].call;
    const std::int64_t seq = seq_of(site);
    const std::int64_t other = seq_of({site.rank, site.at + 1});
    std::swap(list[site.at], list[site.at + 1]);
    Deviation d = at_call({site.rank}, first, seq);
    if (!same_group) {
      // Who came first to which group is all that differs.
      d.groups.insert(second.group);
      if (seq != other) d.seq = kUnset;
    }
    return d;
  }

  Found change(MeshFault fault) {
    const auto site = find([&](const CallSpec& c) {
      switch (fault) {
        case MeshFault::wrong_size:
          return !c.in.empty() && c.splits_in.empty();
        case MeshFault::wrong_dtype:
          return !c.in.empty();
        case MeshFault::wrong_redop:
          return !c.redop.empty();
        case MeshFault::wrong_root:
          return c.root != kUnset;
        default:
          return c.op == "all_reduce";
      }
    });
    if (!site) return std::nullopt;
    CallSpec& c = call(*site);
    switch (fault) {
      case MeshFault::wrong_size:
        if (!c.in.empty()) c.in[0] = c.in[0] * 2 + 2;
        if (!c.out.empty()) c.out[0] = c.out[0] * 2 + 2;
        break;
      case MeshFault::wrong_dtype:
        c.dtype = "bfloat16";
        break;
      case MeshFault::wrong_redop:
        c.redop = "max";
        break;
      case MeshFault::wrong_root:
        c.root = any(job_.groups.at(c.group));
        if (c.root == 0) c.root = job_.groups.at(c.group).back();
        break;
      default:
        c.op = "broadcast";
        c.redop.clear();
        c.root = job_.groups.at(c.group)[0];
        break;
    }
    return at_call({site->rank}, c, seq_of(*site));
  }

  Found realign() {
    last_ = job_.steps - 2;
    first_ = std::min(first_, last_);
    const auto site =
        find([](const CallSpec& c) { return c.splits_in.empty() && !c.what.empty(); });
    if (!site) return std::nullopt;
    const CallSpec gone = call(*site);
    const std::int64_t seq = seq_of(*site);
    const int later = pick(random_, gone.step + 1, job_.steps - 1);
    remove(site->rank, site->at);
    if (is_image(gone)) set_batch(site->rank, gone.step, {"text"});
    Actions& list = actions(site->rank);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const CallSpec& c = list[i].call;
      if (list[i].kind != Action::Kind::issue || c.group != gone.group || c.what != gone.what ||
          c.op != gone.op || c.step != later) {
        continue;
      }
      CallSpec again = c;
      again.async = false;
      insert(site->rank, i, added_call(std::move(again)));
      return at_call({site->rank}, gone, seq);
    }
    return std::nullopt;
  }

  // The rank's program ends at a random place; others miss a call of it.
  Found end_with(Action::Kind kind) {
    const auto site = find([](const CallSpec&) { return true; });
    if (!site) return std::nullopt;
    const CallSpec missed = call(*site);
    const std::int64_t seq = seq_of(*site);
    // Before the messages, if there are some directly ahead of it.
    Deviation d = at_call({site->rank}, missed, seq);
    d.has_reference = true;  // it waits for nobody
    Actions& list = actions(site->rank);
    list.resize(site->at);
    Action last;
    last.kind = kind;
    last.text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
    list.push_back(std::move(last));
    return d;
  }

  Found stall_device(Stall stall) {
    const auto site = find([](const CallSpec&) { return true; });
    if (!site) return std::nullopt;
    call(*site).stall = stall;
    Deviation d = at_call({site->rank}, call(*site), seq_of(*site));
    d.has_reference = true;
    return d;
  }

  Found stall_link() {
    const auto site = find([](const CallSpec&) { return true; });
    if (!site) return std::nullopt;
    const std::string group = call(*site).group;
    const std::int64_t seq = seq_of(*site);
    for (const int m : job_.groups.at(group)) {
      const auto all = collectives(actions(m), group);
      actions(m)[all[static_cast<std::size_t>(seq)]].call.stall = Stall::link;
    }
    Deviation d = at_call({}, call(*site), seq);
    return d;
  }

  Found lone_send() {
    behaviour_.eager_sends = false;
    const auto site = find([](const CallSpec&) { return true; });
    if (!site) return std::nullopt;
    CallSpec c;
    c.op = "send";
    c.group = call(*site).group;
    Members others = job_.groups.at(c.group);
    std::erase(others, site->rank);
    c.peer = any(others);
    c.in = {16};
    c.step = call(*site).step;
    c.at = "debug.py:3";
    const CallSpec kept = c;
    insert(site->rank, site->at, added_call(std::move(c)));
    return at_call({site->rank}, kept, kUnset);
  }

  Found leave_out_message() {
    behaviour_.eager_sends = false;
    const auto site = find_call([](const CallSpec& c) { return is_point_to_point(c); });
    if (!site) return std::nullopt;
    const CallSpec gone = call(*site);
    remove(site->rank, site->at);
    return at_call({site->rank}, gone, kUnset);
  }

  Found lone_barrier() {
    const auto site = find([](const CallSpec&) { return true; });
    if (!site || job_.world() < 3) return std::nullopt;
    // As "if rank == 0: save(); barrier()" has it.
    const int rank = chance(random_, 0.7) ? 0 : site->rank;
    const Actions& list = actions(rank);
    std::size_t at = 0;
    while (at < list.size() &&
           !(list[at].kind == Action::Kind::step && list[at].n == call(*site).step)) {
      ++at;
    }
    CallSpec c;
    c.op = "barrier";
    c.group = "world";
    c.step = call(*site).step;
    c.at = "checkpoint.py:30";
    const auto before = collectives(list, "world");
    const auto seq =
        std::count_if(before.begin(), before.end(), [&](std::size_t i) { return i < at; });
    const CallSpec kept = c;
    insert(rank, at, added_call(std::move(c)));
    return at_call({rank}, kept, seq);
  }

  Found legal_skip() {
    const auto site = find([&](const CallSpec& c) { return c.group != "world"; });
    if (!site) return std::nullopt;
    const std::string group = call(*site).group;
    const auto seq = static_cast<std::size_t>(seq_of(*site));
    for (const int m : job_.groups.at(group)) remove(m, collectives(actions(m), group)[seq]);
    return Deviation{};
  }

  Found straggle(bool look) {
    const auto site = find([](const CallSpec& c) { return c.step >= 1; });
    if (!site) return std::nullopt;
    Action late;
    late.kind = Action::Kind::late;
    late.n = pick(random_, 2000, 8000);
    insert(site->rank, site->at, late);
    if (look) behaviour_.stop_after_late = 1;
    return Deviation{};
  }

  Found preempt() {
    std::size_t all = 0;
    for (const Actions& a : job_.ranks) all += a.size();
    behaviour_.stop_after = pick(random_, static_cast<int>(all) / 5, static_cast<int>(all) - 1);
    return Deviation{};
  }

  DeviceBehaviour& behaviour_;
};

}  // namespace

std::optional<Deviation> inject(MeshFault fault, Job& job, DeviceBehaviour& behaviour,
                                Random& random) {
  return MeshInjector(job, behaviour, random).inject(fault);
}

}  // namespace lockstep::verify::injection
