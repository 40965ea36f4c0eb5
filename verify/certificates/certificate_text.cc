#include "verify/certificates/certificate_text.h"

#include "base/sha256.h"
#include "verify/product/order_graph.h"

namespace lockstep {

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
         (channel.tag == kNoPeerTag ? "-" : number_text(channel.tag)) + ":" +
         certificate_word(channel.name);
}

void CertificateText::groups(std::span<const Run> runs) {
  std::map<std::string, RankList> groups;
  for (const Run& run : runs) {
    for (const RankTrace& trace : run.ranks) {
      for (const RankTrace::Membership& group : trace.groups)
        groups.emplace(run.tables.str(group.group), group.ranks);
    }
  }
  for (const auto& [name, members] : groups) {
    line("group " + certificate_word(name) + " members " +
         comma_list(members, [](Rank r) { return number_text(r.value); }));
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

}  // namespace lockstep
