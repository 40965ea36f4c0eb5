#include "verify/certificates/certificate.h"

#include <map>
#include <vector>

#include "base/sha256.h"
#include "base/text.h"
#include "verify/product/order_graph.h"

namespace lockstep::verify {

namespace {

class Writer {
 public:
  explicit Writer(const ProductModel& model)
      : model_(model), spec_(model.spec()), text_(model.sequences()) {}

  std::string text() {
    text_.line("lockstep-certificate 1");
    text_.line("kind program");
    text_.line("digest sha256");
    write_spec();
    text_.groups(model_.derivation().runs);
    write_sequences();
    for (const Situation& situation : model_.situations().all()) {
      text_.line("situation " + situation_name(situation));
      text_.meetings(model_.evaluate(situation), model_.nccl());
    }
    return std::move(text_).sealed();
  }

 private:
  void write_spec() {
    const bool agreed = spec_.choice == trace::ProductSpec::Choice::agreed;
    const auto word = certificate_word;
    text_.line("program " + word(spec_.program));
    text_.line("ranks " + number_text(spec_.world_size));
    text_.line("order " + std::string(model_.nccl() ? "device" : "host"));
    text_.line("choice " + std::string(agreed ? "agreed" : "free"));
    text_.line("steps " + (spec_.only_steps ? number_text(*spec_.only_steps) : "any"));
    for (const trace::ProductSpec::Condition& c : spec_.conditions) {
      text_.line("condition " + word(c.name) + " phase " + word(c.phase) + " has " +
                 comma_list(c.has, word));
    }
    for (const trace::ProductSpec::Allowed& rule : spec_.allowed) {
      text_.line("allowed ranks " + (rule.ranks.empty() ? "all" : ranges(rule.ranks)) + " steps " +
                 (rule.steps.empty() ? "all" : comma_list(rule.steps, number_text)) +
                 " conditions " + comma_list(rule.conditions, number_text));
    }
    for (const trace::ProductSpec::RankClass& c : spec_.classes)
      text_.line("class " + number_text(c.rank) + " ranks " + ranges(c.ranks));
    for (const trace::ProductSpec::History& h : spec_.histories)
      text_.line("history first " + number_text(h.first) + " folder " + word(h.folder));
    text_.line("recorded " + comma_list(spec_.steps, number_text));
    for (const std::string& assumption : spec_.assumptions)
      text_.line("assume " + word(assumption));
  }

  // Histories by number; parts: start, step0, step1 where it is one, end, and conditions by number.
  // Ranks that do the same share a line; the lines of a part stand by their lowest rank.
  void write_sequences() {
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
          text_.line("sequence " + number_text(h) + " " + part_name(part) + " ranks " +
                     ranges(ranks[s]) + " " + text_.digest(s));
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
      case ProductSequences::kSecond:
        return "step1";
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

  const ProductModel& model_;
  const trace::ProductSpec& spec_;
  CertificateText text_;
};

}  // namespace

Result<std::string> write_certificate(const ProductModel& model, const ProductDecision& decision) {
  if (decision.verdict != ProductVerdict::safe) {
    return Error{"there is no certificate for a program whose verdict is \"" +
                     std::string(to_string(decision.verdict)) + "\"",
                 {model.derivation().folder},
                 "mend the program first; the report says how it goes wrong"};
  }
  if (decision.varying) {
    return Error{
        "the program is safe, but what ranks that share a batch send each other depends on "
        "the batch, which no line of a certificate can say yet",
        {model.derivation().folder},
        "the verdict stands without one; a program whose ranks share one batch has one"};
  }
  if (!decision.one_order) {
    return Error{"the program is safe, but no one order of its meetings suits all assignments",
                 {model.derivation().folder},
                 "make every rank come to its groups in the same order under all conditions"};
  }
  for (const trace::Run& run : model.derivation().runs) {
    for (const trace::RankTrace& trace : run.ranks) {
      if (trace.end == trace::End::clean && trace.exceptions.empty()) continue;
      return Error{"a rank raised an exception, in a history that no rank may follow",
                   {trace.source},
                   "leave that history out of product.json"};
    }
  }
  return Writer(model).text();
}

namespace {

using ItemKind = ProductItem::Kind;

}  // namespace

std::string certificate_word(const std::string& text) {
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

CertificateText::CertificateText(const SequenceTable& table) : table_(table) {
  for (const std::string& key : table.shared_keys) keys_.push_back(certificate_word(key));
  for (const ProductChannel& channel : table.channels) channels_.push_back(channel_name(channel));
}

std::string CertificateText::channel_name(const ProductChannel& channel) {
  if (!channel.message) return certificate_word(channel.name);
  return "message:" + number_text(channel.members[0].value) + ">" +
         number_text(channel.members[1].value) + ":" +
         (channel.tag == trace::kNoPeerTag ? "-" : number_text(channel.tag)) + ":" +
         certificate_word(channel.name);
}

void CertificateText::groups(std::span<const trace::Run> runs) {
  std::map<std::string, trace::RankList> groups;
  for (const trace::Run& run : runs) {
    for (const trace::RankTrace& trace : run.ranks) {
      for (const trace::RankTrace::Membership& group : trace.groups)
        groups.emplace(run.tables.str(group.group), group.ranks);
    }
  }
  for (const auto& [name, members] : groups) {
    line("group " + certificate_word(name) + " members " +
         comma_list(members, [](trace::Rank r) { return number_text(r.value); }));
  }
}

// A call, a line: how it blocks, channel, what all must agree on, how this rank cuts it.
const std::string& CertificateText::digest(std::uint32_t sequence) {
  const auto [known, fresh] = digests_.emplace(sequence, "");
  if (!fresh) return known->second;
  Sha256 hash;
  for (const ProductItem& item : table_.sequences[sequence].items) {
    const std::string& channel = channels_[item.channel];
    if (item.kind == ItemKind::wait) {
      hash.add("wait " + channel + " " + number_text(item.place) + "\n");
      continue;
    }
    const char* kind = item.kind == ItemKind::issue      ? "issue "
                       : item.kind == ItemKind::blocking ? "block "
                                                         : "batch ";
    const ExchangeSplits& cut = table_.exchanges[item.own];
    hash.add(kind + channel + " " + keys_[item.shared] + " " + comma_list(cut.in, number_text) +
             " " + comma_list(cut.out, number_text) + "\n");
  }
  return known->second = hash.finish();
}

void CertificateText::meetings(const Evaluation& evaluation, bool device) {
  std::map<std::string, std::string> agreements;  // by name: any order of channels will do
  std::map<std::uint32_t, std::string> digests;   // by list
  for (const ChannelAgreement& a : evaluation.agreed) {
    const auto [calls, fresh] = digests.emplace(a.shared, "");
    if (fresh) {
      Sha256 hash;
      for (const std::uint32_t key : table_.shared_lists[a.shared]) hash.add(keys_[key] + "\n");
      calls->second = hash.finish();
    }
    agreements.emplace(channels_[a.channel], number_text(a.size) + " " + calls->second);
  }
  for (const auto& [channel, calls] : agreements) line("agree " + channel + " " + calls);
  const std::vector<ProductMeeting> order =
      order_meetings(table_, distinct_sequences(evaluation), device).order;
  // Neighbours in the order that follow each other on one channel share a line.
  for (std::size_t i = 0; i < order.size();) {
    const ProductMeeting first = order[i];
    std::uint32_t length = 1;
    while (i + length < order.size() && order[i + length].channel == first.channel &&
           order[i + length].place == first.place + length)
      ++length;
    line("meet " + channels_[first.channel] + " " + number_text(first.place) + " " +
         number_text(length));
    i += length;
  }
}

std::string CertificateText::sealed() && {
  line("end " + sha256(out_));
  return std::move(out_);
}

}  // namespace lockstep::verify
