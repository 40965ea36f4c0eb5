#include "verify/checker/statements.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <map>
#include <string>

#include "base/sha256.h"
#include "base/text.h"

namespace lockstep::verify::checked {

Statements::Statements(std::string_view text, std::string file)
    : file_(std::move(file)), text_(text) {
  if (!text.empty() && text.back() == '\n') {
    const std::string_view body = text.substr(0, text.size() - 1);
    const std::size_t before = body.rfind('\n');
    const std::size_t last = before == std::string_view::npos ? 0 : before + 1;
    seal_ = "end " + sha256(text.substr(0, last));
    if (body.substr(last) == seal_) return;
  }
  number_ = std::count(text.begin(), text.end(), '\n') + 1;
  refuse("the last line is not the digest of what stands above it");
}

std::string_view Statements::peek() const {
  return at_ < text_.size() ? text_.substr(at_, text_.find('\n', at_) - at_) : std::string_view();
}

void Statements::skip() {
  if (at_ >= text_.size()) return;
  at_ = std::min(text_.find('\n', at_), text_.size() - 1) + 1;
  ++number_;
}

void Statements::expect(const std::string& line) {
  if (refused()) return;
  const std::string_view said = peek();
  skip();
  if (said != line) {
    refuse("it says \"" + printable(said.substr(0, 200)) + "\" where the folder says \"" +
           printable(std::string_view(line).substr(0, 200)) + "\"");
  }
}

void Statements::expect_end() {
  expect(seal_);
  if (at_ != text_.size()) refuse("something follows the end");
}

void Statements::refuse(const std::string& why) {
  if (refused()) return;
  error_ = Error{"refused: " + why,
                 {file_, static_cast<int>(std::min<std::int64_t>(number_, INT_MAX)), 0},
                 "record or derive again, and write the certificate anew"};
}

std::optional<std::array<std::string_view, 4>> four_words(std::string_view line) {
  std::array<std::string_view, 4> out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t end = std::min(line.find(' '), line.size());
    out[i] = line.substr(0, end);
    if (out[i].empty() || (i + 1 < out.size()) != (end < line.size())) return std::nullopt;
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return out;
}

std::optional<std::uint32_t> plain_number(std::string_view text) {
  std::uint32_t out = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  const bool whole = failed == std::errc() && end == text.data() + text.size();
  if (!whole || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  return out;
}

namespace {

struct Claim {
  std::uint32_t size = 0;
  std::string digest;
  std::vector<std::uint64_t> position;                   // of each meeting in the order; 0: not yet
  std::map<std::int32_t, const Part::Projection*> cuts;  // by rank
};

std::vector<std::int64_t> numbers(std::string_view list) {
  std::vector<std::int64_t> out;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    std::int64_t n = -1;  // "-": none
    std::from_chars(list.data() + at, list.data() + end, n);
    out.push_back(n);
    at = end + 1;
  }
  return out;
}

class Judge {
 public:
  Judge(Statements& text, const PartTable& table, const Options& options, bool device)
      : text_(text), table_(table), options_(options), device_(device) {}

  void judge() {
    channels_of_.assign(options_.size(), 0);
    read_claims();
    std::set<std::uint32_t> bodies;
    for (std::size_t r = 0; r < options_.size() && !text_.refused(); ++r) {
      for (const std::uint32_t body : options_[r]) {
        if (body >= table_.all.size()) return text_.refuse("a part was not recorded");
        bodies.insert(body);
        compare(static_cast<std::int32_t>(r), table_.all[body]);
      }
    }
    for (const auto& [channel, claim] : claims_) {
      if (!text_.refused() && !exchanges_fit(table_.channels[channel], claim)) {
        text_.refuse("an exchange in " + printable(table_.channels[channel].name) +
                     " does not fit");
      }
    }
    for (const std::uint32_t body : bodies) {
      if (!text_.refused()) follow_order(table_.all[body]);
    }
  }

 private:
  // "agree CHANNEL CALLS DIGEST", then "meet CHANNEL FIRST LENGTH".
  void read_claims() {
    while (!text_.refused()) {
      const auto words = four_words(text_.peek());
      if (!words || ((*words)[0] != "agree" && (*words)[0] != "meet")) break;
      text_.skip();
      const auto channel = table_.channel_named.find(std::string((*words)[1]));
      const auto number = plain_number((*words)[2]);
      if (!number || channel == table_.channel_named.end() ||
          !table_.channels[channel->second].matters())
        return text_.refuse("this line says nothing that could be checked");
      if ((*words)[0] == "agree") {
        take_agreement(channel->second, *number, (*words)[3]);
      } else {
        take_meetings(channel->second, *number, plain_number((*words)[3]).value_or(0));
      }
    }
    for (const auto& [channel, claim] : claims_) {
      if (claim.position.size() != claim.size ||
          std::count(claim.position.begin(), claim.position.end(), 0U) > 0) {
        text_.refuse("the order leaves out meetings of " +
                     printable(table_.channels[channel].name));
      }
    }
  }

  void take_agreement(std::uint32_t channel, std::uint32_t size, std::string_view digest) {
    // What no part does is no agreement; nor may a line decide how much memory is taken.
    if (size == 0 || size > table_.channels[channel].longest)
      return text_.refuse("nobody makes so many calls there");
    if (last_ > 0 || !claims_.emplace(channel, Claim{size, std::string(digest), {}, {}}).second)
      return text_.refuse("a channel is stated twice, or too late");
    for (const std::int32_t r : table_.channels[channel].members)
      ++channels_of_[static_cast<std::size_t>(r)];
  }

  void take_meetings(std::uint32_t channel, std::uint32_t first, std::uint32_t length) {
    const auto claim = claims_.find(channel);
    if (claim == claims_.end() || length == 0 || first > claim->second.size ||
        length > claim->second.size - first)
      return text_.refuse("there are no such meetings");
    claim->second.position.resize(claim->second.size, 0);
    for (std::uint32_t i = 0; i < length; ++i) {
      if (claim->second.position[first + i] != 0) return text_.refuse("a meeting stands twice");
      claim->second.position[first + i] = ++last_;
    }
  }

  void compare(std::int32_t rank, const Part& part) {
    std::size_t met = 0;
    for (const auto& [channel, projection] : part.projections) {
      const Channel& where = table_.channels[channel];
      if (!where.matters()) continue;
      const auto claim = claims_.find(channel);
      if (claim == claims_.end() || claim->second.size != projection.size ||
          claim->second.digest != projection.digest) {
        return text_.refuse("rank " + std::to_string(rank) + " may do something else in " +
                            printable(where.name));
      }
      ++met;
      const auto [known, fresh] = claim->second.cuts.emplace(rank, &projection);
      if (!fresh && known->second->cuts != projection.cuts)
        return text_.refuse("rank " + std::to_string(rank) + " may cut an exchange in two ways");
    }
    if (met != channels_of_[static_cast<std::size_t>(rank)])
      text_.refuse("rank " + std::to_string(rank) + " may leave out the calls of a channel");
  }

  bool exchanges_fit(const Channel& channel, const Claim& claim) const {
    const bool even = std::all_of(claim.cuts.begin(), claim.cuts.end(),
                                  [](const auto& of_rank) { return of_rank.second->even; });
    if (channel.message || even) return true;
    const std::size_t n = channel.members.size();
    for (std::size_t place = 0; place < claim.size; ++place) {
      std::vector<std::vector<std::int64_t>> in, out;
      bool plain = true;
      for (const std::int32_t r : channel.members) {
        const std::string_view cut = table_.texts[claim.cuts.at(r)->cuts[place]];
        const std::size_t space = cut.find(' ');
        plain = plain && cut == "- -";
        in.push_back(numbers(cut.substr(0, space)));
        out.push_back(numbers(cut.substr(space + 1)));
      }
      for (std::size_t i = 0; i < n && !plain; ++i) {
        if (in[i].size() != n || out[i].size() != n) return false;
        for (std::size_t j = 0; j < i + 1; ++j) {
          if (in[i][j] != out[j][i] || in[j][i] != out[i][j] || in[i][j] < 0) return false;
        }
      }
    }
    return true;
  }

  // A rank comes to no meeting that stands before one that it has waited for.
  void follow_order(const Part& part) {
    std::uint64_t waited = 0;
    std::uint64_t batch = 0;
    for (const Line& line : part.lines) {
      const Channel& channel = table_.channels[line.channel];
      if (channel.matters()) {
        const std::uint64_t position = claims_.at(line.channel).position[line.place];
        if (line.kind != 'w' && position <= waited) {
          return text_.refuse("a rank waits for a meeting before it comes to call " +
                              std::to_string(line.place) + " of " + printable(channel.name) +
                              ", which stands before it in the order");
        }
        const bool holds = line.kind != 'i' || (device_ && !channel.message);
        if (holds) batch = std::max(batch, position);
      }
      if (line.kind != 'g') waited = std::max(waited, batch);
    }
  }

  Statements& text_;
  const PartTable& table_;
  const Options& options_;
  const bool device_;
  std::map<std::uint32_t, Claim> claims_;  // by channel
  std::vector<std::size_t> channels_of_;   // by rank: how many claims it is a member of
  std::uint64_t last_ = 0;                 // meetings taken
};

}  // namespace

void check_situation(Statements& text, const PartTable& table, const Options& options,
                     bool device) {
  Judge(text, table, options, device).judge();
}

}  // namespace lockstep::verify::checked
