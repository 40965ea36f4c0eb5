#include "verify/product/sequence_reader.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lockstep::verify {

std::size_t SequenceReader::ListHash::operator()(
    const std::vector<std::uint32_t>& list) const noexcept {
  // Boost's hash_combine with the mixing of SplitMix64: lists of small, similar ids spread well.
  std::uint64_t h = list.size();
  for (const std::uint32_t x : list) {
    h ^= x + 0x9E3779B97F4A7C15ULL + (h << 6U) + (h >> 2U);
    h = (h ^ (h >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  }
  return static_cast<std::size_t>(h ^ (h >> 27U));
}

SequenceReader::SequenceReader(SequenceTable& out, std::int32_t world_size)
    : out_(out), world_size_(world_size) {
  if (out_.exchanges.empty()) out_.exchanges.emplace_back();
}

void SequenceReader::enter(const trace::Run& run, std::string location) {
  run_ = &run;
  location_ = std::move(location);
  known_calls_.clear();
  collect_members();
}

void SequenceReader::add_reason(std::string reason) {
  auto& reasons = out_.inconclusive;
  const bool known = std::find(reasons.begin(), reasons.end(), reason) != reasons.end();
  if (!known && reasons.size() < kMaxReasons) reasons.push_back(std::move(reason));
}

void SequenceReader::add_reason(const trace::RankTrace& trace, const std::string& reason) {
  const std::string location = location_.empty() ? "" : fmt::format(" in {}", printable(location_));
  add_reason(fmt::format("rank {}{}: {}", trace.rank.value, location, reason));
}

// The first trace that declares a group decides its members. The group is disputed if another trace
// declares other members.
void SequenceReader::collect_members() {
  for (const trace::RankTrace& trace : run_->ranks) {
    for (const trace::RankTrace::Membership& membership : trace.groups) {
      const std::string& name = run_->tables.str(membership.group);
      const auto [known, fresh] = members_.emplace(name, membership.ranks);
      if (fresh || known->second == membership.ranks) continue;
      auto& disputed = out_.disputed_groups;
      if (std::find(disputed.begin(), disputed.end(), name) == disputed.end())
        disputed.push_back(name);
    }
  }
}

bool SequenceReader::is_disputed(const std::string& group) const {
  return std::find(out_.disputed_groups.begin(), out_.disputed_groups.end(), group) !=
         out_.disputed_groups.end();
}

trace::RankList SequenceReader::members_of(const std::string& name) {
  if (const auto known = members_.find(name); known != members_.end()) return known->second;
  std::vector<trace::Rank> all;
  all.reserve(static_cast<std::size_t>(world_size_));
  for (std::int32_t r = 0; r < world_size_; ++r) all.emplace_back(r);
  if (name != "world" && !name.empty())
    add_reason(fmt::format("group \"{}\" was never declared, so its members are not known",
                           printable(name)));
  return members_.emplace(name, trace::RankList(std::move(all))).first->second;
}

ChannelId SequenceReader::channel_of(const trace::RankTrace& trace, const trace::Call& call,
                                     const trace::Signature& signature) {
  ProductChannel channel;
  channel.name = run_->tables.str(call.group);
  std::int32_t from = trace::kNone;
  std::int32_t to = trace::kNone;
  if (trace::is_point_to_point(signature.op)) {
    channel.message = true;
    const bool sends = signature.op == trace::Op::send;
    if (!sends && signature.op != trace::Op::recv)
      add_reason(trace,
                 "it receives from any source, which leaves a choice that is not judged here");
    if (call.peer.value < 0 || call.peer.value >= world_size_)
      add_reason(trace, "the other side of a message was not recorded");
    if (call.peer == trace.rank) add_reason(trace, "it sends messages to itself");
    from = sends ? trace.rank.value : call.peer.value;
    to = sends ? call.peer.value : trace.rank.value;
    channel.members = trace::RankList({trace::Rank(from), trace::Rank(to)});
    channel.tag = call.ptag;
  } else {
    channel.members = members_of(channel.name);
  }
  const std::string key = fmt::format("{}\n{}\n{}\n{}", channel.name, from, to, channel.tag);
  const auto [id, fresh] = channel_ids_.intern(key);
  if (fresh) out_.channels.push_back(std::move(channel));
  return ChannelId(id);
}

SequenceReader::KnownCall SequenceReader::keys_of(const trace::RankTrace& trace,
                                                  const trace::Call& call) {
  const trace::Signature& signature = run_->tables.signatures[call.signature];
  const bool message = trace::is_point_to_point(signature.op);
  std::string key =
      fmt::format("{} {} {}", call.signature.value, call.group.value, call.what.value);
  if (message) key += fmt::format(" {} {} {}", call.peer.value, call.ptag, trace.rank.value);
  const auto known = known_calls_.find(key);
  if (known != known_calls_.end()) return known->second;
  KnownCall out;
  out.channel = channel_of(trace, call, signature);
  const std::string words = shared_key(run_->tables, call);
  const auto [shared, fresh] = shared_ids_.intern(words);
  out.shared = shared;
  if (fresh) {
    out_.shared_keys.push_back(words);
    out_.shown.push_back(trace::describe(run_->tables, call));
    out_.signatures.push_back(trace::describe(run_->tables, call.signature));
    out_.carried.push_back(run_->tables.names(call.what));
  }
  ExchangeSplits splits = exchange_splits(run_->tables, call);
  if (!splits.in.empty() || !splits.out.empty()) {
    const auto next = static_cast<std::uint32_t>(out_.exchanges.size());
    const auto [same, unseen] = exchange_ids_.emplace(std::pair(splits.in, splits.out), next);
    out.own = same->second;
    if (unseen) out_.exchanges.push_back(std::move(splits));
  }
  known_calls_.emplace(std::move(key), out);
  return out;
}

SequenceId SequenceReader::read(const trace::RankTrace& trace, std::uint32_t begin,
                                std::uint32_t end, const ReadOptions& options) {
  ProductSequence sequence;
  std::unordered_map<ChannelId, std::uint32_t> length;       // by channel
  std::unordered_map<std::uint32_t, std::uint32_t> item_of;  // by call
  std::uint32_t previous = kNothing;                         // the call of the last item
  for (std::uint32_t e = begin; e < end; ++e) {
    const trace::Event& event = trace.events[e];
    ProductItem item;
    if (event.kind == trace::EventKind::issue) {
      const trace::Call& call = trace.calls[event.index];
      if (call.step == options.without_step) continue;
      const KnownCall keys = keys_of(trace, call);
      const auto [next, fresh] = length.emplace(keys.channel, 0U);
      const ProductChannel& channel = out_.channels[keys.channel.value];
      if (fresh && !channel.message && !channel.members.contains(trace.rank) &&
          !is_disputed(channel.name))
        add_reason(trace, fmt::format("it calls group \"{}\", but is not a member of it",
                                      printable(channel.name)));
      item = {call.has(trace::kAsync) && !options.all_block ? ProductItem::Kind::issue
                                                            : ProductItem::Kind::blocking,
              keys.channel, next->second++, keys.shared, keys.own};
      // A batch posts together, and blocks after its last call.
      if (previous != kNothing && call.coalesced != trace::kNone &&
          trace.calls[previous].coalesced == call.coalesced &&
          sequence.items.back().kind == ProductItem::Kind::blocking)
        sequence.items.back().kind = ProductItem::Kind::in_batch;
      item_of.emplace(event.index, static_cast<std::uint32_t>(sequence.items.size()));
      previous = event.index;
    } else if (event.kind == trace::EventKind::wait) {
      const auto waited = item_of.find(event.index);
      if (waited == item_of.end()) continue;  // for a call of an earlier segment
      const ProductItem& call = sequence.items[waited->second];
      item = {ProductItem::Kind::wait, call.channel, call.index, 0, 0};
      previous = kNothing;
    } else {
      continue;
    }
    sequence.items.push_back(item);
  }
  return intern(std::move(sequence));
}

SequenceId SequenceReader::intern(ProductSequence sequence) {
  std::vector<std::uint32_t> flat;
  flat.reserve(sequence.items.size() * 5);
  for (const ProductItem& item : sequence.items) {
    flat.insert(flat.end(), {static_cast<std::uint32_t>(item.kind), item.channel.value, item.index,
                             item.shared, item.own});
  }
  const auto [id, fresh] = sequence_ids_.intern(flat);
  if (!fresh) return SequenceId(id);
  std::map<ChannelId, std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>> by;
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
  return SequenceId(id);
}

std::uint32_t SequenceReader::list_id(ListIds& ids, std::vector<std::vector<std::uint32_t>>& lists,
                                      const std::vector<std::uint32_t>& list) {
  const auto [id, fresh] = ids.intern(list);
  if (fresh) lists.push_back(list);
  return id;
}

namespace {

using Json = nlohmann::json;

// null: not recorded.
Json number(std::int64_t n) { return n == trace::kNone ? Json() : Json(n); }

bool cut_unevenly(const trace::Signature& s) {
  return s.op == trace::Op::all_to_all || s.splits_in.value != 0 || s.splits_out.value != 0;
}

// Element counts that must be equal on all ranks.
Json sizes_of(const trace::Signature& s) {
  if (lacks_sizes(s)) return nullptr;
  const Json in = number(s.in_elements);
  const Json out = number(s.out_elements);
  switch (s.op) {
    case trace::Op::all_reduce:
    case trace::Op::reduce:
    case trace::Op::broadcast:
    case trace::Op::send:
      return Json::array({in.is_null() ? out : in});
    case trace::Op::recv:
    case trace::Op::recv_any:
      return Json::array({out.is_null() ? in : out});
    case trace::Op::all_to_all_single:
      return cut_unevenly(s) ? Json::array() : Json::array({in, out});
    case trace::Op::all_gather_into_tensor:
    case trace::Op::reduce_scatter:
    case trace::Op::reduce_scatter_tensor:
      return Json::array({in, out});
    case trace::Op::all_gather:
      return out.is_null() ? Json::array({"in", in}) : Json::array({out});
    case trace::Op::gather:
      return Json::array({in});
    case trace::Op::scatter:
      return Json::array({out});
    default:
      return Json::array();
  }
}

Json names_of(const trace::Tables& tables, trace::NameListId id) {
  Json out = Json::array();
  for (const trace::StringId name : tables.name_lists[id]) out.push_back(tables.str(name));
  return out;
}

std::vector<std::int64_t> tensor_sizes(const trace::Tables& tables, trace::IntListId shapes) {
  std::vector<std::int64_t> out;
  for (const std::vector<std::int64_t>& shape : trace::unflatten_shapes(tables.int_lists[shapes]))
    out.push_back(trace::total_elements(trace::flatten_shapes({shape})));
  return out;
}

}  // namespace

bool lacks_sizes(const trace::Signature& s) {
  switch (s.op) {
    case trace::Op::other:
    case trace::Op::barrier:
    case trace::Op::scan:
    case trace::Op::exscan:
    case trace::Op::probe:
    case trace::Op::finalize:
      return false;
    default:
      return s.in_elements == trace::kNone && s.out_elements == trace::kNone;
  }
}

bool lacks_root(const trace::Signature& s) {
  return s.root < 0 && (s.op == trace::Op::broadcast || s.op == trace::Op::reduce ||
                        s.op == trace::Op::gather || s.op == trace::Op::scatter);
}

std::string shared_key(const trace::Tables& tables, const trace::Call& call) {
  const trace::Signature& s = tables.signatures[call.signature];
  const bool message = trace::is_point_to_point(s.op);
  const bool barrier = s.op == trace::Op::barrier;
  const std::string operation = message                    ? "message"
                                : s.op == trace::Op::other ? tables.str(s.other_op)
                                                           : std::string(trace::op_name(s.op));
  const Json types = barrier               ? Json::array()
                     : s.dtypes.value == 0 ? Json()
                                           : names_of(tables, s.dtypes);
  const Json redop = !trace::is_reduction(s.op) ? Json("")
                     : s.redop.value == 0       ? Json()
                                                : Json(tables.str(s.redop));
  const Json root = lacks_root(s) ? Json() : Json(std::max<std::int32_t>(s.root, -1));
  // What a message carries is known to its sender and its receiver by different names.
  const bool nameless = message || (barrier && call.what.value == 0);
  const Json names = nameless               ? Json::array()
                     : call.what.value == 0 ? Json()
                                            : names_of(tables, call.what);
  return compact_json(Json::array({operation, sizes_of(s), types, redop, root, names}));
}

std::string compact_json(const nlohmann::json& value) {
  constexpr bool kAsciiOnly = true;
  return value.dump(-1, ' ', kAsciiOnly);
}

ExchangeSplits exchange_splits(const trace::Tables& tables, const trace::Call& call) {
  const trace::Signature& s = tables.signatures[call.signature];
  if ((s.op != trace::Op::all_to_all && s.op != trace::Op::all_to_all_single) || !cut_unevenly(s))
    return {};
  if (s.op == trace::Op::all_to_all)
    return {tensor_sizes(tables, s.in), tensor_sizes(tables, s.out)};
  return {tables.int_lists[s.splits_in], tables.int_lists[s.splits_out]};
}

}  // namespace lockstep::verify
