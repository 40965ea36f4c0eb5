#include "verify/product/certificate.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/sha256.h"
#include "base/text.h"

namespace lockstep {

namespace {

using Kind = ProductItem::Kind;

// A name as one word: all but letters, digits and a few signs as %XX.
std::string word(const std::string& text) {
  constexpr std::string_view kPlain = "_-.+:@/#[]=()";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= 'a' && byte <= 'z') || kPlain.find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : std::string("%") + kDigits[byte >> 4U] + kDigits[byte & 15U];
  }
  return out.empty() ? "%" : out;
}

template <class List, class Show>
std::string joined(const List& list, Show show) {
  std::string out;
  for (const auto& item : list) out += (out.empty() ? "" : ",") + show(item);
  return out.empty() ? "-" : out;
}

std::string number_text(std::int64_t n) { return std::to_string(n); }

std::vector<std::int32_t> values(const RankList& ranks) {
  std::vector<std::int32_t> out;
  for (const Rank r : ranks) out.push_back(r.value);
  return out;
}

class Writer {
 public:
  explicit Writer(const ProductModel& model) : model_(model), spec_(model.spec()) {
    for (const std::string& key : model.sequences().shared_keys) keys_.push_back(word(key));
    for (const ProductChannel& channel : model.sequences().channels)
      channels_.push_back(channel_name(channel));
  }

  std::string text() {
    line("lockstep-certificate 1");
    line("digest sha256");
    write_spec();
    write_groups();
    write_sequences();
    for (const Situation& situation : model_.situations().all()) write_situation(situation);
    line("end " + sha256(out_));
    return std::move(out_);
  }

 private:
  void line(const std::string& text) { out_ += text + "\n"; }

  static std::string channel_name(const ProductChannel& channel) {
    if (!channel.message) return word(channel.name);
    return "message:" + number_text(channel.members[0].value) + ">" +
           number_text(channel.members[1].value) + ":" +
           (channel.tag == kNoPeerTag ? "-" : number_text(channel.tag)) + ":" + word(channel.name);
  }

  void write_spec() {
    line("program " + word(spec_.program));
    line("ranks " + number_text(spec_.world_size));
    line("order " + std::string(model_.nccl() ? "device" : "host"));
    line("choice " + std::string(spec_.choice == ProductSpec::Choice::agreed ? "agreed" : "free"));
    line("steps " + (spec_.only_steps ? number_text(*spec_.only_steps) : "any"));
    for (const ProductSpec::Condition& c : spec_.conditions)
      line("condition " + word(c.name) + " phase " + word(c.phase) + " has " + joined(c.has, word));
    for (const ProductSpec::Allowed& rule : spec_.allowed) {
      line("allowed ranks " + (rule.ranks.empty() ? "all" : ranges(rule.ranks)) + " steps " +
           (rule.steps.empty() ? "all" : joined(rule.steps, number_text)) + " conditions " +
           joined(rule.conditions, number_text));
    }
    for (const ProductSpec::History& h : spec_.histories)
      line("history first " + number_text(h.first) + " folder " + word(h.folder));
    line("recorded " + joined(spec_.steps, number_text));
    for (const std::string& assumption : spec_.assumptions) line("assume " + word(assumption));
  }

  // Members in group order, as every rank declares them.
  void write_groups() {
    std::map<std::string, std::string> groups;
    for (const Run& run : model_.derivation().runs) {
      for (const RankTrace& trace : run.ranks) {
        for (const RankTrace::Membership& group : trace.groups) {
          const std::string& name = run.tables.str(group.group);
          if (!groups.contains(name))
            groups.emplace(name, joined(values(group.ranks), number_text));
        }
      }
    }
    for (const auto& [name, members] : groups) line("group " + word(name) + " members " + members);
  }

  // A call, a line: how it blocks, channel, what all must agree on, how this rank cuts it.
  std::string canonical(const ProductSequence& sequence) const {
    std::string out;
    for (const ProductItem& item : sequence.items) {
      const std::string& channel = channels_[item.channel];
      if (item.kind == Kind::wait) {
        out += "wait " + channel + " " + number_text(item.place) + "\n";
        continue;
      }
      const char* kind = item.kind == Kind::issue      ? "issue "
                         : item.kind == Kind::blocking ? "block "
                                                       : "batch ";
      const ExchangeSplits& cut = model_.sequences().exchanges[item.own];
      out += kind + channel + " " + keys_[item.shared] + " " + joined(cut.in, number_text) + " " +
             joined(cut.out, number_text) + "\n";
    }
    return out;
  }

  // Histories by number; parts: start, step0, end, and conditions by number. Ranks that do the same
  // share a line; the lines of a part stand by their lowest rank.
  void write_sequences() {
    std::map<std::uint32_t, std::string> digests;
    const auto parts =
        ProductSequences::kFirstCondition + static_cast<std::uint32_t>(spec_.conditions.size());
    for (std::uint32_t h = 0; h < model_.derivation().runs.size(); ++h) {
      for (std::uint32_t part = 0; part < parts; ++part) {
        std::vector<std::uint32_t> order;
        std::map<std::uint32_t, std::vector<std::int32_t>> ranks;
        for (std::int32_t r = 0; r < model_.ranks(); ++r) {
          const std::uint32_t s = model_.sequences().part(h, r, part).sequence;
          if (s == kNothing) continue;  // no step of the recording was under it
          if (!ranks.contains(s)) order.push_back(s);
          ranks[s].push_back(r);
        }
        for (const std::uint32_t s : order) {
          const ProductSequence& sequence = model_.sequences().sequences[s];
          if (!digests.contains(s)) digests.emplace(s, sha256(canonical(sequence)));
          line("sequence " + number_text(h) + " " + part_name(part) + " ranks " + ranges(ranks[s]) +
               " " + digests[s]);
        }
      }
    }
  }

  static std::string part_name(std::uint32_t part) {
    switch (part) {
      case ProductSequences::kStart:
        return "start";
      case ProductSequences::kFirst:
        return "step0";
      case ProductSequences::kEnd:
        return "end";
      default:
        return number_text(part - ProductSequences::kFirstCondition);
    }
  }

  static std::string situation_name(const Situation& s) {
    switch (s.kind) {
      case Situation::Kind::start:
        return "start";
      case Situation::Kind::end:
        return "end";
      case Situation::Kind::first:
        return "step 0 meet " + number_text(s.meet);
      case Situation::Kind::later:
        break;
    }
    return "step " + number_text(s.step) + (s.any_other ? " and-others" : "") + " meet " +
           number_text(s.meet) + " after " + number_text(s.past);
  }

  void write_situation(const Situation& situation) {
    line("situation " + situation_name(situation));
    const Evaluation evaluation = model_.evaluate(situation);
    std::map<std::string, std::string> agreements;  // by name: any order of channels will do
    for (const ChannelAgreement& a : evaluation.agreed) {
      std::string calls;
      for (const std::uint32_t key : model_.sequences().shared_lists[a.shared])
        calls += keys_[key] + "\n";
      agreements.emplace(channels_[a.channel], number_text(a.size) + " " + sha256(calls));
    }
    for (const auto& [channel, calls] : agreements) line("agree " + channel + " " + calls);
    const MeetingOrder order =
        order_meetings(model_.sequences(), ProductModel::distinct(evaluation), model_.nccl());
    // Neighbours in the order that follow each other on one channel share a line.
    for (std::size_t i = 0; i < order.order.size();) {
      const ProductMeeting first = order.order[i];
      std::uint32_t length = 1;
      while (i + length < order.order.size() && order.order[i + length].channel == first.channel &&
             order.order[i + length].place == first.place + length)
        ++length;
      line("meet " + channels_[first.channel] + " " + number_text(first.place) + " " +
           number_text(length));
      i += length;
    }
  }

  const ProductModel& model_;
  const ProductSpec& spec_;
  std::vector<std::string> keys_, channels_;
  std::string out_;
};

}  // namespace

Result<std::string> write_certificate(const ProductModel& model, const ProductDecision& decision) {
  if (decision.verdict != ProductVerdict::safe) {
    return Error{"there is no certificate for a program whose verdict is \"" +
                     std::string(to_string(decision.verdict)) + "\"",
                 {model.derivation().folder},
                 "mend the program first; the report says how it goes wrong"};
  }
  if (!decision.one_order) {
    return Error{"the program is safe, but no one order of its meetings suits all assignments",
                 {model.derivation().folder},
                 "make every rank come to its groups in the same order under all conditions"};
  }
  for (const Run& run : model.derivation().runs) {
    for (const RankTrace& trace : run.ranks) {
      if (trace.end == End::clean && trace.exceptions.empty()) continue;
      return Error{"a rank raised an exception, in a history that no rank may follow",
                   {trace.source},
                   "leave that history out of product.json"};
    }
  }
  return Writer(model).text();
}

}  // namespace lockstep
