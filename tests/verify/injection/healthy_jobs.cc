#include "tests/verify/injection/healthy_jobs.h"

#include <iterator>
#include <numeric>

#include "tests/verify/injection/program_writer.h"

namespace lockstep::verify::injection {

namespace {

const std::vector<std::string> kParameters = {
    "head.weight",       "text.layer1.weight", "text.layer0.weight", "text.embedding.weight",
    "image.proj.weight", "image.proj.bias",    "image.conv1.weight", "image.conv0.weight"};

struct Parameter {
  std::vector<std::string> names;
  std::int64_t size = 0;
};

std::vector<Parameter> parameters(Random& random, int low, int high) {
  const int n = pick(random, low, high);
  const bool equal = chance(random, 0.3);
  std::vector<Parameter> out;
  for (int i = 0; i < n; ++i) {
    // From both ends of the list, so that text and image take part.
    const std::size_t at = static_cast<std::size_t>(i % 2 == 0 ? i / 2 : 7 - i / 2);
    const std::int64_t size = equal ? 256 : pick(random, 1, 6) * 100;
    out.push_back({{kParameters[at]}, size});
  }
  return out;
}

void ddp_step(Writer& w, const std::vector<Parameter>& buckets, bool async,
              const std::string& group) {
  std::vector<int> handles;
  for (const Parameter& p : buckets) {
    CallSpec c = all_reduce(group, p.size, p.names);
    c.async = async;
    handles.push_back(w.issue(std::move(c)));
  }
  if (!async) return;
  for (const int h : handles) w.wait(h);
}

void sharded_step(Writer& w, const std::vector<Parameter>& blocks, int world) {
  const auto gather = [&](const Parameter& b) {
    CallSpec c = collective("all_gather_into_tensor", "world", b.size, b.size * world);
    c.what = b.names;
    w.issue(std::move(c));
  };
  for (const Parameter& b : blocks) gather(b);
  for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
    gather(*b);
    CallSpec c = collective("reduce_scatter_tensor", "world", b->size * world, b->size);
    c.redop = "sum";
    c.what = b->names;
    w.issue(std::move(c));
  }
}

void pipeline_step(Writer& w, int stage, int stages, int micro_batches, bool tags,
                   bool async_send) {
  std::vector<int> sends;
  const auto send = [&](int to, int m) {
    CallSpec c = transfer("send", "world", to, tags ? m : kUnset, 64);
    c.async = async_send;
    const int h = w.issue(std::move(c));
    if (async_send) sends.push_back(h);
  };
  const auto receive = [&](int from, int m) {
    w.issue(transfer("recv", "world", from, tags ? m : kUnset, 64));
  };
  for (int m = 0; m < micro_batches; ++m) {
    if (stage > 0) receive(stage - 1, m);
    if (stage + 1 < stages) send(stage + 1, m);
  }
  for (int m = 0; m < micro_batches; ++m) {
    if (stage + 1 < stages) receive(stage + 1, m);
    if (stage > 0) send(stage - 1, m);
  }
  for (const int h : sends) w.wait(h);
}

void ring_step(Writer& w, int rank, int world) {
  const int next = (rank + 1) % world;
  const int previous = (rank + world - 1) % world;
  if (rank % 2 == 0) {
    w.issue(transfer("send", "world", next, kUnset, 32));
    w.issue(transfer("recv", "world", previous, kUnset, 32));
  } else {
    w.issue(transfer("recv", "world", previous, kUnset, 32));
    w.issue(transfer("send", "world", next, kUnset, 32));
  }
}

void expert_step(Writer& w, int rank, const std::vector<std::vector<std::int64_t>>& sent) {
  CallSpec c = collective("all_to_all_single", "world", 0, 0);
  const auto self = static_cast<std::size_t>(rank);
  for (std::size_t r = 0; r < sent.size(); ++r) {
    c.splits_in.push_back(sent[self][r]);
    c.splits_out.push_back(sent[r][self]);
  }
  c.in = {std::accumulate(c.splits_in.begin(), c.splits_in.end(), std::int64_t{0}), 4};
  c.out = {std::accumulate(c.splits_out.begin(), c.splits_out.end(), std::int64_t{0}), 4};
  w.issue(c);
}

std::vector<std::string> any_modalities(Random& random) {
  static const std::vector<std::vector<std::string>> kSets = {
      {"text"}, {"image", "text"}, {"image"}, {"image", "text"}};
  return kSets[static_cast<std::size_t>(pick(random, 0, 3))];
}

// Everything about a program that its ranks share.
struct Plan {
  Shape shape{};
  int world = 2, tp = 1, steps = 4;
  std::vector<Parameter> parameters;
  std::vector<std::vector<std::vector<std::int64_t>>> splits;  // by step, sender, receiver
  bool async = true, tags = false, async_send = false, dummies = false, prologue = false;
  int micro_batches = 2, every = 3;
};

Plan make_plan(Shape shape, Random& random) {
  Plan p;
  p.shape = shape;
  p.world = pick(random, 2, 9);
  if (shape == Shape::dp_by_tp) {
    p.tp = pick(random, 2, 3);
    p.world = p.tp * pick(random, 2, 3);
  }
  if (shape == Shape::ring) p.world = 2 * pick(random, 1, 4);
  if (shape == Shape::pipeline) p.world = pick(random, 2, 5);
  p.steps = pick(random, 4, 10);
  p.parameters = parameters(random, 2, shape == Shape::per_parameter ? 7 : 4);
  p.async = shape != Shape::per_parameter && chance(random, 0.8);
  p.tags = chance(random, 0.5);
  p.async_send = chance(random, 0.4);
  p.dummies = chance(random, 0.4);
  p.prologue = chance(random, 0.3);
  p.micro_batches = pick(random, 1, 4);
  p.every = pick(random, 2, 4);
  const auto n = static_cast<std::size_t>(p.world);
  if (shape == Shape::experts) {
    for (int s = 0; s < p.steps; ++s) {
      std::vector<std::vector<std::int64_t>> sent(n, std::vector<std::int64_t>(n));
      for (auto& row : sent) {
        for (auto& cell : row) cell = pick(random, 0, 9);
      }
      p.splits.push_back(std::move(sent));
    }
  }
  return p;
}

std::string tp_group(const Plan& p, int rank) { return "tp" + std::to_string(rank / p.tp); }
std::string dp_group(const Plan& p, int rank) { return "dp" + std::to_string(rank % p.tp); }

void write_step(Writer& w, const Plan& p, int rank, int step) {
  switch (p.shape) {
    case Shape::ddp_buckets:
    case Shape::per_parameter:
      ddp_step(w, p.parameters, p.async, "world");
      break;
    case Shape::fully_sharded:
      sharded_step(w, p.parameters, p.world);
      break;
    case Shape::dp_by_tp:
      for (int layer = 0; layer < 2; ++layer) {
        w.issue(all_reduce(tp_group(p, rank), 48, {"layer" + std::to_string(layer)}));
      }
      ddp_step(w, p.parameters, p.async, dp_group(p, rank));
      break;
    case Shape::two_groups:
      w.issue(all_reduce("data", 90, {"head.weight"}));
      w.issue(all_reduce("model", 90, {"layer0"}));
      break;
    case Shape::pipeline:
      pipeline_step(w, rank, p.world, p.micro_batches, p.tags, p.async_send);
      if (p.prologue) w.issue(all_reduce("world", 1, {"grad_norm"}));
      break;
    case Shape::ring:
      ring_step(w, rank, p.world);
      w.issue(all_reduce("world", 128, {"head.weight"}));
      break;
    case Shape::experts:
      expert_step(w, rank, p.splits[static_cast<std::size_t>(step)]);
      w.issue(all_reduce("world", 128, {"head.weight"}));
      break;
    case Shape::mixed:
      ddp_step(w, p.parameters, p.async, "world");
      w.issue(all_reduce("world", 1, {"loss"}));
      if (step % p.every == p.every - 1) {
        CallSpec c = collective("broadcast", "world", 16, 16);
        c.root = 0;
        w.issue(std::move(c));
        w.issue(collective("barrier", "world", 0, 0));
      }
      break;
  }
}

}  // namespace

Shape any_shape(Random& random) {
  return kShapes[static_cast<std::size_t>(
      pick(random, 0, static_cast<int>(std::size(kShapes)) - 1))];
}

Job healthy_job(Shape shape, Random& random) {
  static const std::vector<std::string> kNames = {"ddp",     "per-parameter", "sharded",
                                                  "dp x tp", "two groups",    "pipeline",
                                                  "ring",    "experts",       "mixed"};
  const Plan p = make_plan(shape, random);
  Job job;
  job.shape = kNames[static_cast<std::size_t>(shape)];
  job.steps = p.steps;
  job.ranks.resize(static_cast<std::size_t>(p.world));
  for (int r = 0; r < p.world; ++r) {
    job.groups["world"].push_back(r);
    if (shape == Shape::two_groups) {
      job.groups["data"].push_back(r);
      job.groups["model"].push_back(r);
    }
    if (shape == Shape::dp_by_tp) {
      job.groups[tp_group(p, r)].push_back(r);
      job.groups[dp_group(p, r)].push_back(r);
    }
    Writer w(job.ranks[static_cast<std::size_t>(r)]);
    if (p.prologue) {
      CallSpec c = collective("broadcast", "world", 1000, 1000);
      c.root = 0;
      w.issue(std::move(c));
    }
    for (int s = 0; s < p.steps; ++s) {
      w.begin_step(s,
                   p.dummies ? any_modalities(random) : std::vector<std::string>{"image", "text"});
      write_step(w, p, r, s);
      w.end_step();
    }
  }
  return job;
}

}  // namespace lockstep::verify::injection
