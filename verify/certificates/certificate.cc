#include "verify/certificates/certificate.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/sha256.h"
#include "verify/product/order_graph.h"
#include "verify/product/sequence_reader.h"

namespace lockstep::verify {

namespace {

using ItemKind = ProductItem::Kind;

// An object has a line for each member, and so has a list of lists or objects; a list of plain
// values is one line. `indent`: blanks before each line but the first.
std::string json_lines(const nlohmann::ordered_json& value, std::size_t indent) {
  const auto is_plain = [](const auto& item) { return item.is_primitive(); };
  if (value.is_primitive() ||
      (value.is_array() && std::all_of(value.begin(), value.end(), is_plain)))
    return compact_json(value);
  std::vector<std::string> lines;
  for (const auto& [key, item] : value.items())
    lines.push_back(fmt::format("{}{}", value.is_object() ? compact_json(key) + ": " : "",
                                json_lines(item, indent + 1)));
  const std::string between = fmt::format(",\n{:{}}", "", indent + 1);
  const std::string joined = fmt::format("{}", fmt::join(lines, between));
  return value.is_object() ? fmt::format("{{{}}}", joined) : fmt::format("[{}]", joined);
}

std::string situation_name(const Situation& s, const Situations& all) {
  switch (s.kind) {
    case Situation::Kind::start:
      return "start";
    case Situation::Kind::end:
      return "end";
    case Situation::Kind::first:
      return fmt::format("step 0 meet {}", s.condition_set);
    case Situation::Kind::later:
      break;
  }
  return fmt::format("step {}{} meet {} after {}{}", s.step, s.any_other ? " and-others" : "",
                     s.condition_set, s.past_set,
                     all.other_past(s.step) ? fmt::format(" and {}", s.other_past_set) : "");
}

std::string part_name(const trace::ProductSpec& spec, std::uint32_t part) {
  switch (part) {
    case ProductSequences::kStart:
      return "start";
    case ProductSequences::kFirst:
      return "step 0";
    case ProductSequences::kSecond:
      return "step 1";
    case ProductSequences::kEnd:
      return "end";
    default:
      break;
  }
  const std::size_t under = part - ProductSequences::kFirstCondition;
  const std::size_t conditions = spec.conditions.size();
  std::string out = fmt::format("under {}", spec.conditions[under % conditions].name);
  if (spec.looks_back) out += fmt::format(" after {}", spec.conditions[under / conditions].name);
  return out;
}

std::string program_text(const ProductModel& model, const std::string& product) {
  const trace::ProductSpec& spec = model.spec();
  const std::vector<trace::Run>& runs = model.derivation().runs;
  CertificateText out(model.sequences(), runs);
  out.claim("kind", "program");
  out.claim("ranks", spec.world_size);
  out.claim("order", model.nccl() ? "device" : "host");
  out.claim("product",
            nlohmann::ordered_json::parse(product.empty() ? trace::product_text(spec) : product));
  out.claim_unrecorded(runs, {});
  const std::vector<std::int32_t> traced = trace::traced_ranks(spec);
  for (std::uint32_t h = 0; h < runs.size(); ++h) {
    for (std::uint32_t part = 0; part < model.sequences().parts(); ++part) {
      for (std::int32_t r = 0; r < model.ranks(); ++r) {
        const SequenceId s = model.sequences().part(HistoryId(h), r, part).sequence;
        // Nothing: no step of the recording was under it.
        if (s == kNoSequence || traced[static_cast<std::size_t>(r)] != r) continue;
        out.sequence(fmt::format("history {} {}", h, part_name(spec, part)), r, s);
      }
    }
  }
  for (const Situation& situation : model.situations().all())
    out.order(situation_name(situation, model.situations()), model.evaluate(situation),
              model.nccl());
  return out.text();
}

}  // namespace

Result<std::string> write_certificate(const ProductModel& model, const ProductDecision& decision,
                                      const std::string& product) {
  if (decision.verdict != ProductVerdict::safe) {
    return Error{fmt::format("there is no certificate for a program whose verdict is \"{}\"",
                             to_string(decision.verdict)),
                 {model.derivation().folder},
                 "fix the program first; the report says how it goes wrong"};
  }
  if (model.spec().copy_ranks > 0) {
    return Error{
        "the program is safe, but certificates do not cover copies of a model (copy_ranks) yet",
        {model.derivation().folder},
        "the verdict is valid without one; a job of at most 64 ranks has one"};
  }
  if (model.spec().has_seconds()) {
    return Error{
        "the program is safe, but it is settled only after its second step, which certificates do "
        "not cover yet",
        {model.derivation().folder},
        "the verdict is valid without one"};
  }
  if (decision.varying) {
    return Error{
        "the program is safe, but what ranks that share a batch send each other depends on "
        "the batch, which certificates do not cover yet",
        {model.derivation().folder},
        "the verdict is valid without one; a program whose ranks share one batch has one"};
  }
  if (!decision.one_order) {
    return Error{
        "the program is safe, but no single order of its collectives suits all assignments",
        {model.derivation().folder},
        "make every rank call its groups in the same order under all conditions"};
  }
  for (const trace::Run& run : model.derivation().runs) {
    for (const trace::RankTrace& trace : run.ranks) {
      if (trace.end == trace::End::clean && trace.exceptions.empty()) continue;
      return Error{"a rank raised an exception, in a history that no rank may follow",
                   {trace.source},
                   "leave that history out of product.json"};
    }
  }
  return program_text(model, product);
}

CertificateText::CertificateText(const SequenceTable& table, std::span<const trace::Run> runs)
    : table_(table) {
  for (const trace::Run& run : runs) {
    world_size_ = std::max(world_size_, run.world_size);
    for (const trace::RankTrace& trace : run.ranks) {
      for (const trace::RankTrace::Membership& group : trace.groups)
        groups_.emplace(run.tables.str(group.group), group.ranks);
    }
  }
  for (const ProductChannel& channel : table.channels) channels_.push_back(channel_name(channel));
  for (const std::string& key : table.shared_keys)
    shared_keys_.push_back(nlohmann::json::parse(key));
}

// Several groups may have one name (separate_namesakes()), so it does not identify them: its first
// members do.
std::string CertificateText::channel_name(const ProductChannel& channel) const {
  constexpr std::int32_t kShown = 4;
  std::vector<std::int32_t> members;  // one more than is shown
  if (const auto known = groups_.find(channel.name); known != groups_.end()) {
    for (std::size_t i = 0; i < known->second.size() && i <= kShown; ++i)
      members.push_back(known->second[i].value);
  } else if (channel.name == "world" || channel.name.empty()) {
    for (std::int32_t r = 0; r < world_size_ && r <= kShown; ++r) members.push_back(r);
  }
  std::string list;
  for (std::size_t i = 0; i < members.size(); ++i) {
    list += i == 0 ? "" : ", ";
    list += i == kShown ? "…" : std::to_string(members[i]);
  }
  const std::string shown = fmt::format(" [{}]", list);
  std::string name = channel.name;
  if (name.ends_with(shown)) name.resize(name.size() - shown.size());
  if (!channel.message) return fmt::format("group {}{}", name, shown);
  return fmt::format(
      "message {}>{} tag {} in {}{}", channel.members[0].value, channel.members[1].value,
      channel.tag == trace::kNoPeerTag ? "-" : std::to_string(channel.tag), name, shown);
}

void CertificateText::claim(const std::string& name, nlohmann::ordered_json value) {
  claims_[name] = std::move(value);
}

void CertificateText::claim_unrecorded(std::span<const trace::Run> runs,
                                       const std::vector<std::int32_t>& waits) {
  std::map<std::string, std::uint64_t> lacks;
  std::vector<std::string> assumed;
  for (const trace::Run& run : runs) {
    for (const std::string& text : run.unknown) {
      if (std::find(assumed.begin(), assumed.end(), text) == assumed.end()) assumed.push_back(text);
    }
    for (const trace::RankTrace& trace : run.ranks) {
      for (const trace::Call& call : trace.calls) {
        const trace::Signature& s = run.tables.signatures[call.signature];
        const bool barrier = s.op == trace::Op::barrier;
        if (lacks_sizes(s)) ++lacks["sizes"];
        if (lacks_root(s)) ++lacks["roots"];
        if (trace::is_reduction(s.op) && s.redop.value == 0) ++lacks["reduce-operations"];
        if (!barrier && s.dtypes.value == 0) ++lacks["types"];
        if (!barrier && !trace::is_point_to_point(s.op) && call.what.value == 0) ++lacks["names"];
      }
    }
  }
  nlohmann::ordered_json unrecorded = lacks;
  if (!waits.empty()) unrecorded["waits"] = waits;
  claim("assume", assumed);
  claim("unrecorded", std::move(unrecorded));
}

void CertificateText::sequence(const std::string& part, std::int32_t rank, SequenceId sequence) {
  sequences_[part][digest(sequence)].push_back(rank);
}

// The SHA-256 of a list of its items: [how, channel, index there]; a call adds its key and splits.
const std::string& CertificateText::digest(SequenceId sequence) {
  const auto [known, fresh] = digests_.emplace(sequence, "");
  if (!fresh) return known->second;
  Sha256 hash;
  const char* before = "[";  // of the list of all items, which may be too long for one text
  for (const ProductItem& item : table_.sequences[sequence.value].items) {
    const char* how = item.kind == ItemKind::wait       ? "wait"
                      : item.kind == ItemKind::issue    ? "issue"
                      : item.kind == ItemKind::blocking ? "block"
                                                        : "batch";
    nlohmann::json shown = {how, channels_[item.channel.value], item.index};
    if (item.kind != ItemKind::wait) {
      const ExchangeSplits& cut = table_.exchanges[item.own];
      shown.push_back(shared_keys_[item.shared]);
      shown.push_back({cut.in, cut.out});
    }
    hash.add(std::exchange(before, ","));
    hash.add(compact_json(shown));
  }
  hash.add(table_.sequences[sequence.value].items.empty() ? "[]" : "]");
  return known->second = hash.finish();
}

void CertificateText::order(const std::string& situation, const Evaluation& evaluation,
                            bool device) {
  const std::vector<ProductInstance> order =
      order_instances(table_, distinct_sequences(evaluation), device).order;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::map<ChannelId, std::uint32_t> next;
  // Neighbours in the order that are on one channel share an entry.
  for (std::size_t i = 0; i < order.size();) {
    const ChannelId channel = order[i].channel;
    std::uint32_t length = 0;
    for (; i < order.size() && order[i].channel == channel; ++i, ++length)
      LOCKSTEP_CHECK(order[i].index == next[channel]++, "calls of a channel stand in their order");
    list.push_back({channels_[channel.value], length});
  }
  // Each situation comes once: no search for it among the ones before.
  orders_.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(situation, std::move(list));
}

std::string CertificateText::text() const {
  nlohmann::ordered_json claims = claims_;
  claims["sequences"] = sequences_;
  return json_lines({{"lockstep_certificate", 2}, {"claims", claims}, {"orders", orders_}}, 0)
      .append("\n");
}

}  // namespace lockstep::verify
