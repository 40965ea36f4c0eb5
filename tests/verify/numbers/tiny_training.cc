#include "tests/verify/numbers/tiny_training.h"

#include <numeric>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/support/trace_text.h"
#include "trace/values/fingerprint.h"

namespace lockstep::verify {

namespace {

using OrderedJson = nlohmann::ordered_json;

}  // namespace

TinyTraining::TinyTraining(std::uint32_t world, std::vector<std::size_t> sizes, std::uint64_t seed)
    : world_(world), ranks_(world), random_(seed) {
  std::normal_distribution<float> normal;
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    names_.push_back("p" + std::to_string(t));
    Tensor values(sizes[t]);
    for (float& x : values) x = normal(random_);
    for (RankState& rank : ranks_) {
      rank.params.push_back(values);
      rank.grads.emplace_back(sizes[t]);
    }
  }
  std::vector<std::uint32_t> all(world);
  std::iota(all.begin(), all.end(), 0U);
  for (std::uint32_t r = 0; r < world; ++r) {
    line(r, OrderedJson{{"header", 1}, {"rank", r}, {"world_size", world}}.dump());
    line(r, OrderedJson{{"group", "world"}, {"ranks", all}}.dump());
  }
}

void TinyTraining::backward() {
  std::normal_distribution<float> normal;
  for (RankState& rank : ranks_) {
    for (Tensor& grad : rank.grads) {
      for (float& x : grad) x = normal(random_);
    }
  }
}

void TinyTraining::record(RankState& rank, const std::string& name, const Tensor& values,
                          const std::string& kind) {
  trace::Fingerprinter fingerprinter;
  fingerprinter.add(values, 0);
  const trace::Fingerprint print = fingerprinter.finish();
  OrderedJson json = {{"ev", "state"},
                      {"n", step_},
                      {"name", name},
                      {"hash", hex(print.hash)},
                      {"shape", {values.size()}},
                      {"dtype", "float32"}};
  if (kind != "param") {
    json["kind"] = "grad";
    json["when"] = kind;
  }
  const bool finite = print.non_finite == 0;  // recorders leave both out otherwise
  if (finite && detail != Detail::hash) json["norm"] = print.norm;
  if (finite && detail == Detail::sketch) json["sketch"] = print.sketch;
  rank.text += json.dump() + "\n";
}

void TinyTraining::record_local() {
  for (RankState& rank : ranks_) {
    for (std::size_t t = 0; t < names_.size(); ++t) record(rank, names_[t], rank.grads[t], "local");
  }
}

void TinyTraining::average(std::size_t t, const std::vector<std::uint32_t>& order, float divisor) {
  Tensor sum(ranks_[order.front()].grads[t].size());
  for (const std::uint32_t r : order) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += ranks_[r].grads[t][i];
  }
  for (float& x : sum) x /= divisor;
  for (const std::uint32_t r : order) ranks_[r].grads[t] = sum;
  if (!calls) return;
  for (RankState& rank : ranks_) {
    OrderedJson json = {{"ev", "issue"},      {"id", rank.calls},     {"g", "world"},
                        {"op", "all_reduce"}, {"in", {{sum.size()}}}, {"dtype", "float32"},
                        {"redop", "sum"},     {"step", step_}};
    if (name_calls) json["what"] = {names_[t]};
    if (!tag.empty()) json["tag"] = tag;
    rank.text +=
        json.dump() + "\n" + OrderedJson{{"ev", "complete"}, {"id", rank.calls}}.dump() + "\n";
    ++rank.calls;
  }
}

void TinyTraining::average_all() {
  std::vector<std::uint32_t> order(world_);
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t t = 0; t < names_.size(); ++t) average(t, order, static_cast<float>(world_));
}

void TinyTraining::record_synced() {
  for (RankState& rank : ranks_) {
    for (std::size_t t = 0; t < names_.size(); ++t)
      record(rank, names_[t], rank.grads[t], "synced");
  }
}

void TinyTraining::update(std::uint32_t rank, float rate) {
  for (std::size_t t = 0; t < names_.size(); ++t) {
    for (std::size_t i = 0; i < ranks_[rank].params[t].size(); ++i) {
      ranks_[rank].params[t][i] -= rate * ranks_[rank].grads[t][i];
    }
  }
}

void TinyTraining::update_all() {
  for (std::uint32_t r = 0; r < world_; ++r) update(r);
}

void TinyTraining::record_params() {
  for (RankState& rank : ranks_) {
    for (std::size_t t = 0; t < names_.size(); ++t)
      record(rank, names_[t], rank.params[t], "param");
  }
}

void TinyTraining::record_scalar(std::uint32_t rank, const std::string& name, double value) {
  trace::Fingerprinter fingerprinter(0);
  fingerprinter.add(std::span<const double>(&value, 1), 0);
  line(rank, OrderedJson{{"ev", "state"},
                         {"n", step_},
                         {"name", name},
                         {"kind", "optim"},
                         {"hash", hex(fingerprinter.finish().hash)},
                         {"norm", value}}
                 .dump());
}

void TinyTraining::finish() {
  record_synced();
  update_all();
  record_params();
}

void TinyTraining::good_step() {
  backward();
  record_local();
  average_all();
  finish();
  end_step();
}

trace::Run TinyTraining::run() const {
  std::vector<std::string> texts;
  for (const RankState& rank : ranks_) texts.push_back(rank.text + R"({"end":"clean"})" + "\n");
  return run_from_text(texts);
}

}  // namespace lockstep::verify
