#include "sim/multimodal/training_data.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <queue>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/documents/repeated_keys.h"
#include "base/splitmix.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

std::int64_t poisson(double mean, RandomStream& random) {
  // Beyond 30 the normal approximation, whose error is below a tenth of a standard deviation.
  if (mean > 30)
    return std::max<std::int64_t>(0, std::llround(mean + std::sqrt(mean) * random.normal()));
  // Knuth: uniform numbers are multiplied until their product is below e^-mean.
  const double limit = std::exp(-mean);
  std::int64_t count = 0;
  double product = random.unit();
  while (product > limit) {
    product *= random.unit();
    ++count;
  }
  return count;
}

// `Sample`: DataSample or SampleView.
template <class Sample>
std::int64_t sample_tokens(const Sample& sample, const SequenceShape& shape) {
  std::int64_t out = sample.text;
  for (std::size_t kind = 0; kind < kItemKindCount; ++kind)
    for (const std::int32_t size : sample.items[kind])
      if (shape.merge[kind] > 0) out += (size + shape.merge[kind] - 1) / shape.merge[kind];
  return out;
}

// Draws a sample into `out`, whose memory is reused.
void draw_sample(const TrainingData& data, RandomStream& random, DataSample& out) {
  if (!data.manifest.empty()) {
    out = data.manifest[random.bits() % data.manifest.size()];
    return;
  }
  out.text = data.text.draw(random);
  for (std::size_t kind = 0; kind < kItemKindCount; ++kind) {
    out.items[kind].clear();
    const std::int64_t count = data.items[kind].per_sample.draw(random);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t size = data.items[kind].size.draw(random);
      if (size > 0) out.items[kind].push_back(static_cast<std::int32_t>(size));
    }
  }
}

template <class Sample>
void append(TrainingSequence& sequence, const Sample& sample) {
  ++sequence.samples;
  for (std::size_t kind = 0; kind < kItemKindCount; ++kind)
    sequence.items[kind].insert(sequence.items[kind].end(), sample.items[kind].begin(),
                                sample.items[kind].end());
}

template <class Sample>
SamplePart part_of(const Sample& sample) {
  SamplePart out;
  out.text = sample.text;
  for (std::size_t kind = 0; kind < kItemKindCount; ++kind)
    out.items[kind] = static_cast<std::uint32_t>(sample.items[kind].size());
  return out;
}

std::int64_t items_of(const DataSample& sample) {
  std::int64_t out = 0;
  for (const auto& sizes : sample.items) out += static_cast<std::int64_t>(sizes.size());
  return out;
}

Error manifest_error(const std::string& file, std::size_t line, std::string message) {
  return Error{std::move(message),
               {file, static_cast<int>(line), 1},
               R"(write lines like {"text": 312, "image": [1024, 256]})"};
}

// Bins by how full they are: the least loaded one, of several the first, is on top. A heap whose
// top is replaced in one pass, which a queue would pop and push in two.
class LeastLoaded {
 public:
  explicit LeastLoaded(std::size_t bins) {
    heap_.reserve(bins);
    for (std::size_t bin = 0; bin < bins; ++bin) heap_.emplace_back(0, bin);
  }
  std::size_t top() const { return heap_[0].second; }
  void load_top(double more) {
    heap_[0].first += more;
    sink();
  }
  void remove_top() {
    heap_[0] = heap_.back();
    heap_.pop_back();
    sink();
  }

 private:
  void sink() {
    std::size_t at = 0;
    for (std::size_t child = 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (!(heap_[child] < heap_[at])) break;
      std::swap(heap_[child], heap_[at]);
      at = child;
    }
  }
  std::vector<std::pair<double, std::size_t>> heap_;
};

// Distributes `items` over bins, the largest first, each to the least loaded bin with room (the
// first of several). A bin takes at most `most` items. Calls place(item, bin).
template <class Place>
void fill_bins(std::vector<std::size_t> items, const std::vector<double>& loads, std::size_t bins,
               std::size_t most, const Place& place) {
  std::stable_sort(items.begin(), items.end(),
                   [&](std::size_t a, std::size_t b) { return loads[a] > loads[b]; });
  LeastLoaded least(bins);
  std::vector<std::size_t> counts(bins, 0);
  for (const std::size_t item : items) {
    const std::size_t bin = least.top();
    place(item, bin);
    if (++counts[bin] < most)
      least.load_top(loads[item]);
    else
      least.remove_top();
  }
}

// The items of each bin, in the order in which they came to it.
std::vector<std::vector<std::size_t>> filled_bins(std::vector<std::size_t> items,
                                                  const std::vector<double>& loads,
                                                  std::size_t bins, std::size_t most) {
  std::vector<std::vector<std::size_t>> out(bins);
  fill_bins(std::move(items), loads, bins, most,
            [&](std::size_t item, std::size_t bin) { out[bin].push_back(item); });
  return out;
}

std::vector<std::size_t> indices_of(const std::vector<double>& loads) {
  std::vector<std::size_t> out(loads.size());
  std::iota(out.begin(), out.end(), std::size_t{0});
  return out;
}

std::vector<std::vector<std::size_t>> round_robin(std::size_t items, std::size_t bins) {
  std::vector<std::vector<std::size_t>> out(bins);
  for (std::size_t i = 0; i < items; ++i) out[i % bins].push_back(i);
  return out;
}

}  // namespace

RandomStream::RandomStream(std::uint64_t seed, std::uint64_t step)
    : state_(splitmix64(splitmix64(seed + kSplitMixStep) + step + kSplitMixStep)) {}

std::uint64_t RandomStream::bits() { return splitmix64(state_ += kSplitMixStep); }

double RandomStream::unit() { return (static_cast<double>(bits() >> 11U) + 1) * 0x1p-53; }

double RandomStream::normal() {
  const double radius = std::sqrt(-2 * std::log(unit()));
  return radius * std::cos(2 * std::numbers::pi * unit());
}

std::int64_t Distribution::draw(RandomStream& random) const {
  double value = first;
  switch (kind) {
    case Kind::constant:
      break;
    case Kind::uniform:
      value = first + std::floor((1 - random.unit()) * (second - first + 1));
      break;
    case Kind::poisson:
      value = static_cast<double>(poisson(first, random));
      break;
    case Kind::lognormal:
      value = std::round(first * std::exp(second * random.normal()));
      break;
    case Kind::choice: {
      double all = 0;
      for (const Choice& choice : choices) all += choice.weight;
      double at = random.unit() * all;
      std::size_t chosen = 0;
      while (chosen + 1 < choices.size() && at > choices[chosen].weight)
        at -= choices[chosen++].weight;
      value = static_cast<double>(choices[chosen].value);
      break;
    }
  }
  return static_cast<std::int64_t>(std::clamp(value, 0.0, static_cast<double>(most)));
}

Result<std::vector<DataSample>> parse_manifest(std::string_view text, const std::string& file) {
  std::vector<DataSample> out;
  std::int64_t items = 0;
  std::size_t number = 0;
  const auto is_size = [](const nlohmann::json& value) {
    return value.is_number_integer() && value >= 0 && value <= Distribution::kMaxDrawn;
  };
  // Other keys are the user's own; one that is nearly a known one is a slip, by which all its items
  // would be missed.
  std::vector<std::string> known = {"text"};
  for (const std::string_view kind : kItemKinds) known.emplace_back(kind);
  std::set<std::string> seen(known.begin(), known.end());
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    RepeatedKeys keys;
    const nlohmann::json object = nlohmann::json::parse(line, keys.callback(), false);
    if (keys.first())
      return manifest_error(file, number,
                            fmt::format("\"{}\" is given twice", printable(*keys.first())));
    if (!object.is_object()) return manifest_error(file, number, "this line is not a JSON object");
    for (const auto& [key, value] : object.items()) {
      if (!seen.insert(key).second) continue;
      if (const std::string meant = did_you_mean(key, known); !meant.empty())
        return manifest_error(file, number,
                              fmt::format(R"(unknown key "{}"; {})", printable(key), meant));
    }
    if (std::none_of(known.begin(), known.end(),
                     [&](const std::string& key) { return object.contains(key); }))
      return manifest_error(file, number,
                            fmt::format("this sample has none of {}", join_and(known)));
    DataSample sample;
    if (object.contains("text")) {
      if (!is_size(object["text"]))
        return manifest_error(file, number,
                              fmt::format(R"("text" is not a whole number of tokens, 0 to {})",
                                          Distribution::kMaxDrawn));
      sample.text = object["text"];
    }
    for (std::size_t kind = 0; kind < kItemKindCount; ++kind) {
      const std::string key(kItemKinds[kind]);
      if (!object.contains(key)) continue;
      const nlohmann::json& sizes = object[key];
      if (!sizes.is_array() || !std::all_of(sizes.begin(), sizes.end(), is_size))
        return manifest_error(
            file, number,
            fmt::format(R"("{}" is not a list of sizes in input tokens, each 0 to {})", key,
                        Distribution::kMaxDrawn));
      for (const nlohmann::json& size : sizes)
        if (size > 0) sample.items[kind].push_back(size);
    }
    items += 1 + items_of(sample);
    if (items > kMaxItems)
      return manifest_error(file, number, "the manifest is too long: more than 4 million items");
    out.push_back(std::move(sample));
  }
  if (out.empty()) return manifest_error(file, 1, "the manifest has no samples");
  return out;
}

Result<std::vector<TrainingSequence>> draw_sequences(const TrainingData& data,
                                                     const SequenceShape& shape, std::int64_t count,
                                                     std::uint64_t step) {
  RandomStream random(data.seed, step);
  std::vector<TrainingSequence> out;
  out.reserve(static_cast<std::size_t>(count));
  std::int64_t drawn = 0, empty = 0;
  TrainingSequence open;
  DataSample sample;
  while (static_cast<std::int64_t>(out.size()) < count) {
    draw_sample(data, random, sample);
    const std::int64_t tokens = sample_tokens(sample, shape);
    drawn += 1 + items_of(sample);
    empty += tokens == 0 ? 1 : 0;
    if (drawn > kMaxItems || empty > 100'000)
      return Error{empty > 100'000 ? "100,000 samples without a token were drawn"
                                   : "a step has more than 4 million samples and items",
                   {},
                   "use longer samples, fewer items or a smaller global_batch"};
    // What does not fit a sequence is cut off.
    const std::int64_t kept = std::min(tokens, shape.length);
    // Without packing a sample has a sequence of its own.
    if (data.filling != SequenceFilling::packed) {
      if (tokens == 0) continue;
      TrainingSequence alone{kept, tokens - kept, 0, {}};
      append(alone, sample);
      out.push_back(std::move(alone));
      continue;
    }
    // Packed in the order of drawing: the first sample that does not fit any more begins the next.
    if (open.tokens + kept > shape.length) {
      out.push_back(std::move(open));
      open = {};
      if (static_cast<std::int64_t>(out.size()) == count) break;
    }
    open.tokens += kept;
    open.cut += tokens - kept;
    append(open, sample);
    if (data.arrangement == Arrangement::balanced) open.parts.push_back(part_of(sample));
  }
  return out;
}

std::vector<SampleView> samples_of(const TrainingSequence& sequence) {
  std::vector<SampleView> out;
  out.reserve(sequence.parts.size());
  std::array<std::size_t, kItemKindCount> at = {};
  for (const SamplePart& part : sequence.parts) {
    SampleView& sample = out.emplace_back();
    sample.text = part.text;
    for (std::size_t kind = 0; kind < kItemKindCount; ++kind) {
      sample.items[kind] = std::span(sequence.items[kind]).subspan(at[kind], part.items[kind]);
      at[kind] += part.items[kind];
    }
  }
  return out;
}

namespace {

// A sample on its way into a sequence.
struct Piece {
  std::size_t sample;
  std::int64_t tokens, kept;  // `kept`: of its tokens, those that fit a sequence
  double load;
};

// The longest first.
std::vector<Piece> by_length(const std::vector<SampleView>& samples, const SequenceShape& shape,
                             const SampleLoad& load) {
  std::vector<Piece> out;
  out.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t tokens = sample_tokens(samples[i], shape);
    out.push_back({i, tokens, std::min(tokens, shape.length), load(samples[i])});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Piece& a, const Piece& b) { return a.kept > b.kept; });
  return out;
}

// The sequence of each piece: each into the least loaded of `count` sequences with room for it.
// Empty: one of them finds no room. Two queues avoid a search: `with_room` has sequences with room
// for the current piece, by load; `too_full` the others, by room. Pieces become shorter, so a
// sequence that has room keeps it until it gets a piece, and one that is too full may have room
// again later.
std::vector<std::size_t> sequences_of(const std::vector<Piece>& pieces, std::size_t count,
                                      std::int64_t length) {
  using Loaded = std::pair<double, std::size_t>;
  std::priority_queue<Loaded, std::vector<Loaded>, std::greater<>> with_room;
  struct TooFull {
    std::int64_t room;
    double load;
    std::size_t index;
    bool operator<(const TooFull& other) const { return room < other.room; }
  };
  std::priority_queue<TooFull> too_full;
  for (std::size_t i = 0; i < count; ++i) too_full.push({length, 0, i});
  std::vector<std::int64_t> room(count, length);
  std::vector<std::size_t> out;
  out.reserve(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    for (; !too_full.empty() && too_full.top().room >= piece.kept; too_full.pop())
      with_room.emplace(too_full.top().load, too_full.top().index);
    if (with_room.empty()) return {};
    const auto [least, best] = with_room.top();
    with_room.pop();
    room[best] -= piece.kept;
    out.push_back(best);
    // Most have room for the next piece, too, and need not go through `too_full`.
    if (i + 1 < pieces.size() && room[best] >= pieces[i + 1].kept)
      with_room.emplace(least + piece.load, best);
    else
      too_full.push({room[best], least + piece.load, best});
  }
  return out;
}

TrainingSequence filled(std::span<const Piece* const> pieces,
                        const std::vector<SampleView>& samples) {
  TrainingSequence out;
  out.parts.reserve(pieces.size());
  for (std::size_t kind = 0; kind < kItemKindCount; ++kind) {
    std::size_t items = 0;
    for (const Piece* const piece : pieces) items += samples[piece->sample].items[kind].size();
    out.items[kind].reserve(items);
  }
  for (const Piece* const piece : pieces) {
    out.tokens += piece->kept;
    out.cut += piece->tokens - piece->kept;
    append(out, samples[piece->sample]);
    out.parts.push_back(part_of(samples[piece->sample]));
  }
  return out;
}

}  // namespace

std::vector<TrainingSequence> repack(const std::vector<TrainingSequence>& sequences,
                                     const SequenceShape& shape, const SampleLoad& load) {
  std::vector<SampleView> samples;
  for (const TrainingSequence& sequence : sequences) {
    const std::vector<SampleView> more = samples_of(sequence);
    samples.insert(samples.end(), more.begin(), more.end());
  }
  const std::vector<Piece> pieces = by_length(samples, shape, load);
  const std::vector<std::size_t> sequence_of = sequences_of(pieces, sequences.size(), shape.length);
  if (sequence_of.empty()) return sequences;  // they cannot be packed so: keep them as they were
  // Sequences are filled one after the other, each with memory of its final size: of many that
  // takes longer than deciding what goes where.
  std::vector<std::size_t> ends(sequences.size() + 1, 0);
  for (const std::size_t sequence : sequence_of) ++ends[sequence + 1];
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  std::vector<const Piece*> in_order(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) in_order[ends[sequence_of[i]]++] = &pieces[i];
  std::vector<TrainingSequence> out;
  out.reserve(sequences.size());
  std::size_t begin = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    out.push_back(filled(std::span(in_order).subspan(begin, ends[i] - begin), samples));
    begin = ends[i];
  }
  return out;
}

std::vector<std::size_t> spread_items(const std::vector<double>& loads, std::size_t bins,
                                      bool largest_first) {
  std::vector<std::size_t> out(loads.size());
  if (largest_first)
    fill_bins(indices_of(loads), loads, bins, SIZE_MAX,
              [&](std::size_t item, std::size_t bin) { out[item] = bin; });
  else
    for (std::size_t item = 0; item < loads.size(); ++item) out[item] = item % bins;
  return out;
}

std::vector<std::vector<std::vector<std::size_t>>> arrange(Arrangement arrangement,
                                                           const std::vector<double>& loads,
                                                           std::size_t ranks,
                                                           std::size_t micro_batches) {
  std::vector<std::vector<std::vector<std::size_t>>> out(ranks);
  const std::vector<std::vector<std::size_t>> of_rank =
      arrangement == Arrangement::balanced
          ? filled_bins(indices_of(loads), loads, ranks, loads.size() / ranks)
          : round_robin(loads.size(), ranks);
  const std::size_t each = loads.size() / ranks / micro_batches;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (arrangement != Arrangement::drawn) {
      out[rank] =
          filled_bins(of_rank[rank], loads, micro_batches, of_rank[rank].size() / micro_batches);
      continue;
    }
    for (std::size_t m = 0; m < micro_batches; ++m) {
      const auto from = of_rank[rank].begin() + static_cast<std::ptrdiff_t>(m * each);
      out[rank].emplace_back(from, from + static_cast<std::ptrdiff_t>(each));
    }
  }
  return out;
}

}  // namespace lockstep::sim
