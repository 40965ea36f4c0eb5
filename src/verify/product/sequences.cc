#include "verify/product/sequences.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "verify/agreement.h"
#include "verify/product/call_keys.h"
#include "verify/semantics.h"

namespace lockstep {

namespace {

struct ListHash {
  std::size_t operator()(const std::vector<std::uint32_t>& list) const noexcept {
    std::uint64_t h = list.size();
    for (const std::uint32_t x : list) {
      h ^= x + 0x9E3779B97F4A7C15ULL + (h << 6U) + (h >> 2U);
      h = (h ^ (h >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    }
    return static_cast<std::size_t>(h ^ (h >> 27U));
  }
};

template <class T, class Hash = std::hash<T>>
class Ids {
 public:
  // The id, and whether the value is new.
  std::pair<std::uint32_t, bool> intern(const T& value) {
    const auto [found, fresh] = ids_.emplace(value, static_cast<std::uint32_t>(ids_.size()));
    return {found->second, fresh};
  }

 private:
  std::unordered_map<T, std::uint32_t, Hash> ids_;
};

}  // namespace

class SequenceCutter {
 public:
  explicit SequenceCutter(const Derivation& derivation) : d_(derivation) {
    out_.ranks_ = static_cast<std::size_t>(d_.spec.world_size);
    out_.width_ = ProductSequences::kFirstCondition + d_.spec.conditions.size();
    out_.parts_.resize(d_.runs.size() * out_.ranks_ * out_.width_);
    out_.raises_.resize(d_.runs.size() * out_.ranks_);
    out_.exchanges.emplace_back();
  }

  ProductSequences cut() {
    for (std::uint32_t h = 0; h < d_.runs.size() && out_.inconclusive.empty(); ++h) {
      run_ = &d_.runs[h];
      history_ = h;
      known_calls_.clear();
      if (recorded_semantics(*run_) == CallSemantics::mpi) {
        say("MPI programs are not judged as a product: what blocks them is left open by MPI");
        break;
      }
      collect_members();
      for (const RankTrace& trace : run_->ranks) {
        if (out_.inconclusive.size() < kMostReasons) cut_trace(trace);
      }
    }
    if (out_.inconclusive.empty()) compare_histories();
    return std::move(out_);
  }

 private:
  static constexpr std::size_t kMostReasons = 8;

  struct KnownCall {
    std::uint32_t channel, shared, own;
  };

  void say(std::string reason) {
    if (out_.inconclusive.size() < kMostReasons) out_.inconclusive.push_back(std::move(reason));
  }
  void say(const RankTrace& trace, const std::string& reason) {
    say("rank " + std::to_string(trace.rank.value) + " in " +
        printable(d_.spec.histories[history_].folder) + ": " + reason);
  }

  // What most would call the members of a group; who contradicts makes it disputed.
  void collect_members() {
    for (const RankTrace& trace : run_->ranks) {
      for (const RankTrace::Membership& membership : trace.groups) {
        const std::string& name = run_->tables.str(membership.group);
        const auto [known, fresh] = members_.emplace(name, membership.ranks);
        if (fresh || known->second == membership.ranks) continue;
        auto& disputed = out_.disputed_groups;
        if (std::find(disputed.begin(), disputed.end(), name) == disputed.end())
          disputed.push_back(name);
      }
    }
  }

  RankList members_of(const std::string& name) {
    if (const auto known = members_.find(name); known != members_.end()) return known->second;
    std::vector<Rank> all;
    for (std::int32_t r = 0; r < d_.spec.world_size; ++r) all.emplace_back(r);
    if (name != "world" && !name.empty())
      say("group \"" + printable(name) + "\" was never declared, so its members are not known");
    return members_.emplace(name, RankList(std::move(all))).first->second;
  }

  std::uint32_t channel_of(const RankTrace& trace, const Call& call, const Signature& signature) {
    ProductChannel channel;
    channel.name = run_->tables.str(call.group);
    std::int32_t from = kNone;
    std::int32_t to = kNone;
    if (is_point_to_point(signature.op)) {
      channel.message = true;
      const bool sends = signature.op == Op::send;
      if (!sends && signature.op != Op::recv)
        say(trace, "it receives from any source, which leaves a choice that is not judged here");
      if (call.peer.value < 0 || call.peer.value >= d_.spec.world_size)
        say(trace, "the other side of a message was not recorded");
      if (call.peer == trace.rank) say(trace, "it sends messages to itself");
      from = sends ? trace.rank.value : call.peer.value;
      to = sends ? call.peer.value : trace.rank.value;
      channel.members = RankList({Rank(from), Rank(to)});
      channel.tag = call.ptag;
    } else {
      channel.members = members_of(channel.name);
      if (!channel.members.contains(trace.rank))
        say(trace, "it calls group \"" + printable(channel.name) + "\", of which it is no member");
    }
    const std::string key = channel.name + "\n" + std::to_string(from) + "\n" + std::to_string(to) +
                            "\n" + std::to_string(channel.tag);
    const auto [id, fresh] = channel_ids_.intern(key);
    if (fresh) out_.channels.push_back(std::move(channel));
    return id;
  }

  KnownCall keys_of(const RankTrace& trace, const Call& call) {
    const Signature& signature = run_->tables.signatures[call.signature];
    const bool message = is_point_to_point(signature.op);
    const std::string key =
        std::to_string(call.signature.value) + " " + std::to_string(call.group.value) + " " +
        std::to_string(call.what.value) +
        (message ? " " + std::to_string(call.peer.value) + " " + std::to_string(call.ptag) + " " +
                       std::to_string(trace.rank.value)
                 : "");
    const auto known = known_calls_.find(key);
    if (known != known_calls_.end()) return known->second;
    KnownCall out{};
    out.channel = channel_of(trace, call, signature);
    const std::string words = shared_key(run_->tables, call);
    const auto [shared, fresh] = shared_ids_.intern(words);
    out.shared = shared;
    if (fresh) {
      out_.shared_keys.push_back(words);
      out_.shown.push_back(describe(run_->tables, call));
      out_.carried.push_back(run_->tables.names(call.what));
    }
    const ExchangeSplits splits = exchange_splits(run_->tables, call);
    if (!splits.in.empty() || !splits.out.empty()) {
      const auto next = static_cast<std::uint32_t>(out_.exchanges.size());
      const auto [same, unseen] = exchange_ids_.emplace(std::pair(splits.in, splits.out), next);
      out.own = same->second;
      if (unseen) out_.exchanges.push_back(splits);
    }
    known_calls_.emplace(key, out);
    return out;
  }

  // What comes before step 0 cannot depend on its condition, and what comes after the last step is
  // taken not to.
  void compare_histories() {
    for (const std::uint32_t part : {ProductSequences::kStart, ProductSequences::kEnd}) {
      for (std::int32_t r = 0; r < d_.spec.world_size; ++r) {
        std::uint32_t known = kNothing;
        for (std::uint32_t h = 0; h < d_.runs.size(); ++h) {
          const std::uint32_t sequence = out_.part(h, r, part).sequence;
          if (sequence == kNothing) continue;  // it ended with an exception
          if (known != kNothing && known != sequence) {
            say("rank " + std::to_string(r) + ": what it does " +
                (part == ProductSequences::kStart ? "before step 0" : "after the last step") +
                " differs between the histories");
            break;
          }
          known = sequence;
        }
      }
    }
  }

  // The trace's events in parts. A part ends where the next call is of another step.
  struct Cut {
    std::int64_t step = kBefore;
    std::uint32_t begin = 0, end = 0;
  };
  static constexpr std::int64_t kBefore = -1;
  std::int64_t last_step() const { return static_cast<std::int64_t>(d_.spec.steps.size()); }

  void cut_trace(const RankTrace& trace) {
    std::vector<Cut> cuts = {Cut{}};
    std::int64_t seen = kBefore;  // the step that marks or calls say the rank is in
    for (std::uint32_t e = 0; e < trace.events.size(); ++e) {
      const Event& event = trace.events[e];
      if (event.kind == EventKind::step) seen = std::max(seen, trace.steps[event.index].n + 1);
      if (event.kind == EventKind::modality) seen = std::max(seen, trace.modalities[event.index].n);
      if (event.kind != EventKind::issue) continue;
      const std::int64_t step = trace.calls[event.index].step;
      std::int64_t part = step;
      if (step == kNone) part = cuts.back().step == kBefore ? kBefore : last_step() + 1;
      if (step > last_step())
        return say(trace, "step " + std::to_string(step) + " is not in \"steps\"");
      if (part < cuts.back().step)
        return say(trace, step == kNone ? "a call between the steps has no step"
                                        : "the steps do not grow, or a call between two of them "
                                          "says no step (" +
                                              std::to_string(step) + ")");
      seen = std::max(seen, part);
      if (part == cuts.back().step) continue;
      cuts.back().end = e;
      cuts.push_back({part, e, e});
    }
    cuts.back().end = static_cast<std::uint32_t>(trace.events.size());
    if (trace.end == End::exception) {
      if (seen > last_step()) return say(trace, "it raised an exception after the last step");
      note_raise(trace, seen, cuts);
    }
    store(trace, cuts);
  }

  void note_raise(const RankTrace& trace, std::int64_t seen, std::vector<Cut>& cuts) {
    RecordedRaise raise;
    raise.step = std::max<std::int64_t>(seen, 0);
    raise.what = trace.exceptions.empty() ? "" : trace.exceptions.back().what;
    raise.begin = raise.end = static_cast<std::uint32_t>(trace.events.size());
    if (cuts.back().step == raise.step) {
      raise.begin = cuts.back().begin;
      cuts.pop_back();
    }
    out_.raises_[index_of(trace)] = std::move(raise);
  }

  std::size_t index_of(const RankTrace& trace) const {
    return std::size_t{history_} * out_.ranks_ + static_cast<std::size_t>(trace.rank.value);
  }

  void store(const RankTrace& trace, const std::vector<Cut>& cuts) {
    const std::optional<RecordedRaise>& raise = out_.raises_[index_of(trace)];
    const std::int64_t past = raise ? raise->step : last_step() + 2;
    std::size_t next = 0;
    for (std::int64_t step = kBefore; step <= last_step() + 1 && (step < past || step < 0);
         ++step) {
      Cut cut{step, 0, 0};  // a step without calls
      if (next < cuts.size() && cuts[next].step == step) cut = cuts[next++];
      RecordedPart recorded{sequence(trace, cut), cut.begin, cut.end};
      RecordedPart& place = out_.parts_[index_of(trace) * out_.width_ + part_of(step)];
      if (place.sequence == kNothing) {
        place = recorded;
      } else if (place.sequence != recorded.sequence) {
        return say(
            trace,
            "step " + std::to_string(step) + " under \"" +
                printable(
                    d_.spec.conditions[part_of(step) - ProductSequences::kFirstCondition].name) +
                "\" is not what an earlier step under it was: what a step does depends on "
                "more than its condition and that of the first step");
      }
    }
  }

  std::uint32_t part_of(std::int64_t step) const {
    if (step == kBefore) return ProductSequences::kStart;
    if (step == 0) return ProductSequences::kFirst;
    if (step > last_step()) return ProductSequences::kEnd;
    return ProductSequences::kFirstCondition + d_.spec.steps[static_cast<std::size_t>(step) - 1];
  }

  std::uint32_t sequence(const RankTrace& trace, const Cut& cut) {
    ProductSequence sequence;
    std::unordered_map<std::uint32_t, std::uint32_t> length;   // by channel
    std::unordered_map<std::uint32_t, std::uint32_t> item_of;  // by call
    std::uint32_t previous = kNothing;                         // the call of the last item
    for (std::uint32_t e = cut.begin; e < cut.end; ++e) {
      const Event& event = trace.events[e];
      ProductItem item;
      if (event.kind == EventKind::issue) {
        const Call& call = trace.calls[event.index];
        const KnownCall keys = keys_of(trace, call);
        item = {call.has(kAsync) ? ProductItem::Kind::issue : ProductItem::Kind::blocking,
                keys.channel, length[keys.channel]++, keys.shared, keys.own};
        // A batch posts together, and blocks behind its last call.
        if (previous != kNothing && call.coalesced != kNone &&
            trace.calls[previous].coalesced == call.coalesced &&
            sequence.items.back().kind == ProductItem::Kind::blocking)
          sequence.items.back().kind = ProductItem::Kind::in_batch;
        item_of.emplace(event.index, static_cast<std::uint32_t>(sequence.items.size()));
        previous = event.index;
      } else if (event.kind == EventKind::wait) {
        const auto waited = item_of.find(event.index);
        if (waited == item_of.end()) continue;  // for a call of an earlier step
        const ProductItem& call = sequence.items[waited->second];
        item = {ProductItem::Kind::wait, call.channel, call.place, 0, 0};
        previous = kNothing;
      } else {
        continue;
      }
      sequence.items.push_back(item);
    }
    return intern(std::move(sequence));
  }

  std::uint32_t intern(ProductSequence sequence) {
    std::vector<std::uint32_t> flat;
    flat.reserve(sequence.items.size() * 5);
    for (const ProductItem& item : sequence.items) {
      flat.insert(flat.end(), {static_cast<std::uint32_t>(item.kind), item.channel, item.place,
                               item.shared, item.own});
    }
    const auto [id, fresh] = sequence_ids_.intern(flat);
    if (!fresh) return id;
    std::map<std::uint32_t, std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>> by;
    for (const ProductItem& item : sequence.items) {
      if (item.kind == ProductItem::Kind::wait) continue;
      by[item.channel].first.push_back(item.shared);
      by[item.channel].second.push_back(item.own);
    }
    for (auto& [channel, lists] : by) {
      Projection projection;
      projection.channel = channel;
      projection.size = static_cast<std::uint32_t>(lists.first.size());
      projection.shared = list_id(shared_list_ids_, out_.shared_lists, lists.first);
      projection.own = list_id(own_list_ids_, out_.own_lists, lists.second);
      sequence.projections.push_back(projection);
    }
    out_.sequences.push_back(std::move(sequence));
    return id;
  }

  using ListIds = Ids<std::vector<std::uint32_t>, ListHash>;
  static std::uint32_t list_id(ListIds& ids, std::vector<std::vector<std::uint32_t>>& lists,
                               const std::vector<std::uint32_t>& list) {
    const auto [id, fresh] = ids.intern(list);
    if (fresh) lists.push_back(list);
    return id;
  }

  const Derivation& d_;
  ProductSequences out_;
  const Run* run_ = nullptr;
  std::uint32_t history_ = 0;
  std::map<std::string, RankList> members_;
  std::unordered_map<std::string, KnownCall> known_calls_;  // of the run at hand
  using Sizes = std::vector<std::int64_t>;
  std::map<std::pair<Sizes, Sizes>, std::uint32_t> exchange_ids_;
  Ids<std::string> channel_ids_, shared_ids_;
  ListIds sequence_ids_, shared_list_ids_, own_list_ids_;
};

ProductSequences cut_sequences(const Derivation& derivation) {
  return SequenceCutter(derivation).cut();
}

}  // namespace lockstep
