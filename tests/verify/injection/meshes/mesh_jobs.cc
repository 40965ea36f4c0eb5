#include "tests/verify/injection/meshes/mesh_jobs.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/verify/injection/program_writer.h"

namespace lockstep::verify::injection {

namespace {

enum class Sync {
  buckets,        // DDP: asynchronous all-reduces in the order of the backward pass
  per_parameter,  // blocking ones
  per_modality,   // blocking ones, in a group per modality
  sharded,        // all-gather before the forward pass, reduce-scatter after the backward pass
};

// Everything that the ranks share.
struct MeshPlan {
  int tp = 1, dp = 1, pp = 1, ep = 1;  // ep divides dp
  int steps = 3, layers = 1, micro_batches = 1;
  Sync sync = Sync::buckets;
  bool batched = true;  // messages posted as batches; else asynchronous sends, blocking receives
  bool ties_embedding = false;  // the first and the last stage share it
  bool grad_norm = true, loss = false;
  bool uneven = false;              // what experts are sent differs from step to step
  int checkpoint_every = 0;         // steps; 0: never
  std::vector<std::int64_t> sizes;  // of buckets

  int world() const { return tp * dp * pp; }
};

// A rank's coordinates in the mesh; tensor parallelism is innermost, the pipeline outermost.
struct MeshPosition {
  int rank = 0, t = 0, d = 0, p = 0;
};
MeshPosition mesh_position(const MeshPlan& plan, int rank) {
  return {rank, rank % plan.tp, rank / plan.tp % plan.dp, rank / plan.tp / plan.dp};
}
int rank_at(const MeshPlan& plan, int t, int d, int p) { return t + plan.tp * (d + plan.dp * p); }

std::string numbered(const char* dimension, int n) { return fmt::format("{}_{}", dimension, n); }
std::string tp_group(const MeshPlan& plan, const MeshPosition& at) {
  return numbered("tp", at.d + plan.dp * at.p);
}
std::string dp_group(const MeshPlan& plan, const MeshPosition& at, const char* name = "dp") {
  return numbered(name, at.t + plan.tp * at.p);
}
std::string pp_group(const MeshPlan& plan, const MeshPosition& at) {
  return numbered("pp", at.t + plan.tp * at.d);
}
std::string ep_group(const MeshPlan& plan, const MeshPosition& at) {
  return numbered("ep", at.t + plan.tp * (at.d / plan.ep + plan.dp / plan.ep * at.p));
}
std::string tie_group(const MeshPlan& plan, const MeshPosition& at) {
  return numbered("embedding", at.t + plan.tp * at.d);
}

MeshPlan make_plan(int largest, Random& random) {
  MeshPlan plan;
  int doublings = 1;
  while ((2 << doublings) <= largest && chance(random, 0.62)) ++doublings;
  const bool pipeline = chance(random, 0.35);
  const bool tensor = chance(random, 0.5);
  for (int i = 0; i < doublings; ++i) {
    const int way = pick(random, 0, 3);
    if (way == 0 && tensor && plan.tp < 8) {
      plan.tp *= 2;
    } else if (way == 1 && pipeline && plan.pp < 8) {
      plan.pp *= 2;
    } else {
      plan.dp *= 2;
    }
  }
  if (chance(random, 0.3)) plan.ep = chance(random, 0.5) ? plan.dp : std::max(1, plan.dp / 2);
  plan.steps = plan.world() > 16 ? 3 : pick(random, 3, 6);
  plan.layers = plan.world() > 16 ? 1 : pick(random, 1, 2);
  plan.micro_batches = plan.pp > 1 ? pick(random, 1, plan.world() > 16 ? 2 : 3) : 1;
  plan.sync = static_cast<Sync>(pick(random, 0, 3));
  plan.batched = chance(random, 0.6);
  plan.ties_embedding = plan.pp > 1 && chance(random, 0.4);
  plan.grad_norm = chance(random, 0.6);
  plan.loss = chance(random, 0.4);
  plan.uneven = chance(random, 0.5);
  plan.checkpoint_every = chance(random, 0.3) ? 2 : 0;
  const bool equal = chance(random, 0.3);
  const int buckets = pick(random, 2, 4);
  for (int i = 0; i < buckets; ++i) plan.sizes.push_back(equal ? 256 : 128 * (i + 1));
  return plan;
}

class RankProgram {
 public:
  RankProgram(const MeshPlan& plan, int rank, Actions& out)
      : plan_(plan), at_(mesh_position(plan, rank)), w_(out) {}

  void write() {
    CallSpec first = collective("broadcast", "world", 1000, 1000);
    first.root = 0;
    call(first, "train.py:31");
    for (int s = 0; s < plan_.steps; ++s) write_step(s);
  }

 private:
  void call(CallSpec c, const std::string& location) {
    c.at = location;
    w_.issue(std::move(c));
  }

  void write_step(int step) {
    w_.begin_step(step, {"image", "text"});
    if (plan_.sync == Sync::sharded && plan_.dp > 1) gather_parameters();
    plan_.pp > 1 ? run_pipeline() : run_micro_batch();
    if (plan_.dp > 1) sync_gradients();
    if (plan_.ties_embedding && (at_.p == 0 || at_.p == plan_.pp - 1)) {
      call(all_reduce(tie_group(plan_, at_), 640, {"embedding.weight"}), "train.py:77");
    }
    if (plan_.grad_norm) call(all_reduce("world", 1, {"grad_norm"}), "train.py:80");
    if (plan_.loss) call(all_reduce("world", 2, {"loss"}), "train.py:84");
    if (plan_.checkpoint_every > 0 && step % plan_.checkpoint_every == 1) {
      call(collective("barrier", "world", 0, 0), "checkpoint.py:12");
    }
    w_.end_step();
  }

  // Both passes, where there is no pipeline.
  void run_micro_batch() {
    layers(true);
    layers(false);
  }

  void layers(bool forward) {
    for (int i = 0; i < plan_.layers; ++i) {
      const int layer = forward ? i : plan_.layers - 1 - i;
      if (plan_.tp > 1) {
        call(all_reduce(tp_group(plan_, at_), 96, {fmt::format("layer{}", layer)}),
             forward ? "model.py:40" : "model.py:61");
      }
      if (plan_.ep > 1) {
        exchange(forward, layer);
        exchange(!forward, layer);
      }
    }
  }

  // Tokens to the experts, or back: what went one way comes the other.
  void exchange(bool forth, int layer) {
    CallSpec c = collective("all_to_all_single", ep_group(plan_, at_), 0, 0);
    const auto sent = [&](int from, int to) {
      return 4 + (plan_.uneven ? (from * 3 + to * 5 + w_.step * 7) % 6 : 0);
    };
    const int self = at_.d % plan_.ep;
    std::int64_t in = 0;
    std::int64_t out = 0;
    for (int other = 0; other < plan_.ep; ++other) {
      const int a = sent(self, other);
      const int b = sent(other, self);
      c.splits_in.push_back(forth ? a : b);
      c.splits_out.push_back(forth ? b : a);
      in += c.splits_in.back();
      out += c.splits_out.back();
    }
    c.in = {in, 4};
    c.out = {out, 4};
    c.what = {fmt::format("expert{}", layer)};
    call(std::move(c), forth ? "moe.py:20" : "moe.py:33");
  }

  // One forward, one backward, as Megatron has it: a send and the receive that answers it are
  // posted together.
  void run_pipeline() {
    const int after = plan_.pp - 1 - at_.p;
    const int warm_up = std::min(after, plan_.micro_batches);
    const int steady = plan_.micro_batches - warm_up;
    for (int m = 0; m < warm_up; ++m) {
      messages({Message::from_previous});
      layers(true);
      messages({Message::to_next});
    }
    if (steady > 0) messages({Message::from_previous});
    for (int m = 0; m < steady; ++m) {
      layers(true);
      messages({Message::to_next, Message::from_next});
      layers(false);
      if (m + 1 < steady) {
        // One by one they go through one stream of the pair: in the order of the other side.
        messages({Message::from_previous, Message::to_previous});
      } else {
        messages({Message::to_previous});
      }
    }
    for (int m = 0; m < warm_up; ++m) {
      messages({Message::from_next});
      layers(false);
      messages({Message::to_previous});
    }
    for (const int h : unfinished_) w_.wait(h);
    unfinished_.clear();
  }

  enum class Message { to_next, from_next, to_previous, from_previous };

  // As one batch, or one by one: then a send is not waited for before the step ends.
  void messages(const std::vector<Message>& wanted) {
    std::vector<CallSpec> calls;
    for (const Message m : wanted) {
      const bool next = m == Message::to_next || m == Message::from_next;
      if (next ? at_.p + 1 == plan_.pp : at_.p == 0) continue;
      const bool sends = m == Message::to_next || m == Message::to_previous;
      calls.push_back(transfer(sends ? "send" : "recv", pp_group(plan_, at_),
                               rank_at(plan_, at_.t, at_.d, at_.p + (next ? 1 : -1)), kUnset, 64));
      calls.back().at = sends ? "pipeline.py:50" : "pipeline.py:58";
    }
    if (calls.empty()) return;
    std::vector<int> handles;
    for (CallSpec& c : calls) {
      c.async = plan_.batched || c.op == "send";
      if (plan_.batched) c.coalesced = batches_;
      const int handle = w_.issue(c);
      if (plan_.batched) {
        handles.push_back(handle);
      } else if (c.async) {
        unfinished_.push_back(handle);
      }
    }
    ++batches_;
    for (const int h : handles) w_.wait(h);
  }

  // Parameters of the text and of the image branch in turn.
  static std::string parameter(std::size_t i) {
    return fmt::format("{}.layer{}.weight", i % 2 == 0 ? "text" : "image", i / 2);
  }

  void gather_parameters() {
    for (std::size_t i = 0; i < plan_.sizes.size(); ++i) {
      CallSpec c = collective("all_gather_into_tensor", dp_group(plan_, at_), plan_.sizes[i],
                              plan_.sizes[i] * plan_.dp);
      c.what = {parameter(i)};
      call(std::move(c), "fsdp.py:100");
    }
  }

  void sync_gradients() {
    std::vector<int> handles;
    for (std::size_t i = plan_.sizes.size(); i-- > 0;) {
      const std::int64_t size = plan_.sizes[i];
      const std::string name = parameter(i);
      if (plan_.sync == Sync::sharded) {
        CallSpec c =
            collective("reduce_scatter_tensor", dp_group(plan_, at_), size * plan_.dp, size);
        c.redop = "sum";
        c.what = {name};
        call(std::move(c), "fsdp.py:140");
        continue;
      }
      const bool apart = plan_.sync == Sync::per_modality;
      const char* const group = !apart ? "dp" : i % 2 == 0 ? "text" : "image";
      CallSpec c = all_reduce(dp_group(plan_, at_, group), size, {name});
      c.async = plan_.sync == Sync::buckets;
      c.at = plan_.sync == Sync::buckets ? "ddp.py:70" : "train.py:66";
      const int handle = w_.issue(std::move(c));
      if (plan_.sync == Sync::buckets) handles.push_back(handle);
    }
    for (const int h : handles) w_.wait(h);
  }

  const MeshPlan& plan_;
  const MeshPosition at_;
  Writer w_;
  int batches_ = 0;
  std::vector<int> unfinished_;
};

void join_groups(const MeshPlan& plan, int rank, Job& job) {
  const MeshPosition at = mesh_position(plan, rank);
  const auto join = [&](const std::string& group) { job.groups[group].push_back(rank); };
  join("world");
  if (plan.tp > 1) join(tp_group(plan, at));
  if (plan.dp > 1 && plan.sync == Sync::per_modality) {
    join(dp_group(plan, at, "text"));
    join(dp_group(plan, at, "image"));
  } else if (plan.dp > 1) {
    join(dp_group(plan, at));
  }
  if (plan.pp > 1) join(pp_group(plan, at));
  if (plan.ep > 1) join(ep_group(plan, at));
  if (plan.ties_embedding && (at.p == 0 || at.p == plan.pp - 1)) join(tie_group(plan, at));
}

std::string words(const MeshPlan& plan) {
  static const char* const kSyncs[] = {"buckets", "per parameter", "per modality", "sharded"};
  const auto part = [](const char* name, int size) {
    return size > 1 ? fmt::format(" {}{}", name, size) : std::string();
  };
  return fmt::format("mesh{}{}{}{} {}{}", part("tp", plan.tp), part("dp", plan.dp),
                     part("pp", plan.pp), part("ep", plan.ep), kSyncs[static_cast<int>(plan.sync)],
                     plan.pp > 1 && plan.batched ? " batched" : "");
}

}  // namespace

std::string dimension(const std::string& group) { return group.substr(0, group.find('_')); }

Job mesh_job(int largest, Random& random) {
  const MeshPlan plan = make_plan(largest, random);
  Job job;
  job.shape = words(plan);
  job.steps = plan.steps;
  job.ranks.resize(static_cast<std::size_t>(plan.world()));
  for (int r = 0; r < plan.world(); ++r) {
    join_groups(plan, r, job);
    RankProgram(plan, r, job.ranks[static_cast<std::size_t>(r)]).write();
  }
  return job;
}

}  // namespace lockstep::verify::injection
