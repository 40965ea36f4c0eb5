#include "verify/product/check_certificate.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "base/sha256.h"
#include "base/text.h"
#include "verify/product/checked_parts.h"

namespace lockstep {

namespace {

using checked::Parts;
using checked::word;

class Checker {
 public:
  Checker(std::string_view text, const std::string& file, const Derivation& derivation,
          const Parts& parts)
      : file_(file), spec_(derivation.spec), parts_(parts) {
    recordings_.resize(spec_.conditions.size());
    for (const std::uint32_t c : spec_.steps) ++recordings_[c];
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      lines_.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    seal_ = text.size() > 0 && text.back() == '\n' && !lines_.empty()
                ? "end " + sha256(text.substr(0, text.size() - lines_.back().size() - 1))
                : "";
  }

  Status check() {
    if (lines_.empty() || lines_.back() != seal_) {
      at_ = lines_.size();
      refuse("the last line is not the digest of what stands above it");
    }
    statements();
    for (const std::string& situation : situations()) {
      if (error_) break;
      expect("situation " + situation);
      if (!error_) judge();
    }
    if (!error_) expect(seal_);
    if (!error_ && at_ != lines_.size()) refuse("something follows the end");
    return error_ ? Status(*error_) : Status::ok();
  }

 private:
  void refuse(const std::string& why) {
    if (error_) return;
    error_ = Error{"refused: " + why,
                   {file_, static_cast<int>(at_), 0},
                   "derive the program again and write the certificate anew"};
  }

  // The next line must be this one.
  void expect(const std::string& text) {
    if (error_) return;
    const std::string_view line = at_ < lines_.size() ? lines_[at_] : std::string_view();
    ++at_;
    if (line != text)
      refuse("it says \"" + printable(line.substr(0, 200)) + "\" where the folder says \"" +
             printable(text.substr(0, 200)) + "\"");
  }

  template <class List, class Show>
  static std::string comma(const List& list, Show show) {
    std::string out;
    for (const auto& item : list) out += (out.empty() ? "" : ",") + show(item);
    return out.empty() ? "-" : out;
  }

  void statements() {
    const auto number = [](std::int64_t n) { return std::to_string(n); };
    const bool agreed = spec_.choice == ProductSpec::Choice::agreed;
    expect("lockstep-certificate 1");
    expect("digest sha256");
    expect("program " + word(spec_.program));
    expect("ranks " + number(spec_.world_size));
    expect(parts_.nccl ? "order device" : "order host");
    expect(agreed ? "choice agreed" : "choice free");
    expect("steps " + (spec_.only_steps ? number(*spec_.only_steps) : "any"));
    for (const auto& c : spec_.conditions)
      expect("condition " + word(c.name) + " phase " + word(c.phase) + " has " +
             comma(c.has, word));
    for (const auto& a : spec_.allowed)
      expect("allowed ranks " + (a.ranks.empty() ? "all" : ranges(a.ranks)) + " steps " +
             (a.steps.empty() ? "all" : comma(a.steps, number)) + " conditions " +
             comma(a.conditions, number));
    for (const auto& h : spec_.histories)
      expect("history first " + number(h.first) + " folder " + word(h.folder));
    expect("recorded " + comma(spec_.steps, number));
    for (const std::string& text : spec_.assumptions) expect("assume " + word(text));
    for (const auto& [name, members] : parts_.groups)
      expect("group " + word(name) + " members " + comma(members, number));
    for (std::size_t h = 0; h < parts_.of.size(); ++h) {
      for (std::size_t part = 0; part < 3 + spec_.conditions.size(); ++part) sequences(h, part);
    }
  }

  void sequences(std::size_t h, std::size_t part) {
    std::vector<std::uint32_t> order;
    std::map<std::uint32_t, std::vector<std::int32_t>> ranks;
    for (std::size_t r = 0; r < parts_.of[h].size(); ++r) {
      const std::uint32_t body = parts_.of[h][r][part];
      if (body == Parts::kMissing) continue;
      if (ranks[body].empty()) order.push_back(body);
      ranks[body].push_back(static_cast<std::int32_t>(r));
    }
    const std::string name = part == 0   ? "start"
                             : part == 1 ? "step0"
                             : part == 2 ? "end"
                                         : std::to_string(part - 3);
    for (const std::uint32_t body : order)
      expect("sequence " + std::to_string(h) + " " + name + " ranks " + ranges(ranks[body]) + " " +
             parts_.all[body].digest);
  }

  // Which conditions the rank may be in at a step, of those that may meet there.
  std::vector<std::uint32_t> may(std::int32_t rank, std::int64_t step,
                                 const std::vector<std::uint32_t>& meet) const {
    for (const auto& rule : spec_.allowed) {
      const bool fits =
          (rule.ranks.empty() || std::binary_search(rule.ranks.begin(), rule.ranks.end(), rank)) &&
          (rule.steps.empty() || std::binary_search(rule.steps.begin(), rule.steps.end(), step));
      if (!fits) continue;
      std::vector<std::uint32_t> out;
      for (const std::uint32_t c : meet) {
        if (std::count(rule.conditions.begin(), rule.conditions.end(), c) > 0) out.push_back(c);
      }
      return out;
    }
    return meet;
  }

  // The parts that each rank may do; empty where some rank has no condition.
  using Options = std::vector<std::set<std::uint32_t>>;

  Options fixed(std::size_t part) {
    Options out;
    for (std::int32_t r = 0; r < spec_.world_size; ++r) {
      out.emplace_back();
      for (const auto& history : parts_.of)
        out.back().insert(history[static_cast<std::size_t>(r)][part]);
      if (out.back().size() != 1) refuse("the start or the end depends on the first step");
    }
    return out;
  }

  Options at_step(std::int64_t step, const std::vector<std::uint32_t>& meet,
                  const std::vector<std::uint32_t>& first) {
    Options out;
    for (std::int32_t r = 0; r < spec_.world_size; ++r) {
      out.emplace_back();
      for (const std::uint32_t f : may(r, 0, step == 0 ? meet : first)) {
        const auto history = std::find_if(spec_.histories.begin(), spec_.histories.end(),
                                          [&](const auto& h) { return h.first == f; });
        if (history == spec_.histories.end()) {
          refuse("no history begins with condition " + std::to_string(f));
          return {};
        }
        const auto& mine = parts_.of[static_cast<std::size_t>(history - spec_.histories.begin())]
                                    [static_cast<std::size_t>(r)];
        if (step == 0) {
          out.back().insert(mine[1]);
          continue;
        }
        for (const std::uint32_t c : may(r, step, meet)) {
          if (recordings_[c] < 2)
            refuse("condition " + std::to_string(c) + " was not recorded twice");
          out.back().insert(mine[3 + c]);
        }
      }
      if (out.back().empty()) return {};
    }
    return out;
  }

  // All situations by name, in the order of the certificate; their options go to `options_`.
  std::vector<std::string> situations() {
    std::vector<std::vector<std::uint32_t>> meets;
    std::map<std::string, std::size_t> phases;
    for (std::uint32_t c = 0; c < spec_.conditions.size(); ++c) {
      const std::string key = spec_.choice == ProductSpec::Choice::agreed
                                  ? std::to_string(c)
                                  : spec_.conditions[c].phase;
      const auto [meet, fresh] = phases.emplace(key, meets.size());
      if (fresh) meets.emplace_back();
      meets[meet->second].push_back(c);
    }
    std::vector<std::string> out;
    const auto add = [&](const std::string& name, Options options) {
      if (options.empty()) return false;
      out.push_back(name);
      options_.push_back(std::move(options));
      return true;
    };
    add("start", fixed(0));
    std::vector<std::size_t> pasts;
    for (std::size_t m = 0; m < meets.size() && !error_; ++m) {
      if (add("step 0 meet " + std::to_string(m), at_step(0, meets[m], {}))) pasts.push_back(m);
    }
    std::set<std::int64_t> steps;
    for (const auto& rule : spec_.allowed) steps.insert(rule.steps.begin(), rule.steps.end());
    steps.erase(0);
    std::int64_t other = 1;
    while (steps.contains(other)) ++other;
    steps.insert(other);
    if (pasts.empty()) refuse("step 0 is possible for no choice of conditions");
    for (const std::int64_t step : steps) {
      if (error_ || (spec_.only_steps && step >= *spec_.only_steps)) break;
      bool any = false;
      for (std::size_t m = 0; m < meets.size(); ++m) {
        for (const std::size_t past : pasts)
          any |= add("step " + std::to_string(step) + (step == other ? " and-others" : "") +
                         " meet " + std::to_string(m) + " after " + std::to_string(past),
                     at_step(step, meets[m], meets[past]));
      }
      if (!any) refuse("step " + std::to_string(step) + " is possible for no choice");
    }
    add("end", fixed(2));
    return out;
  }

  struct Claim {
    std::uint32_t size = 0;
    std::string digest;
    std::vector<std::uint64_t> position;  // of each meeting in the order; 0: not yet
    std::map<std::int32_t, std::vector<std::string>> cuts;
  };

  // Reads `agree` and `meet` lines, and holds the options of all ranks against them.
  void judge() {
    const Options& options = options_[situation_++];
    std::map<std::uint32_t, Claim> claims;
    std::vector<std::size_t> claims_of(options.size(), 0);  // by rank
    read_claims(claims, claims_of);
    std::set<std::uint32_t> bodies;
    for (std::size_t r = 0; r < options.size() && !error_; ++r) {
      for (const std::uint32_t body : options[r]) {
        if (body == Parts::kMissing) return refuse("a part was not recorded");
        bodies.insert(body);
        compare(static_cast<std::int32_t>(r), parts_.all[body], claims, claims_of[r]);
      }
    }
    for (const auto& [channel, claim] : claims) {
      if (error_) return;
      if (!exchanges_fit(parts_.channels[channel], claim))
        refuse("an exchange in " + printable(parts_.channels[channel].name) + " does not fit");
    }
    for (const std::uint32_t body : bodies) {
      if (!error_) follow_order(parts_.all[body], claims);
    }
  }

  void read_claims(std::map<std::uint32_t, Claim>& claims, std::vector<std::size_t>& claims_of) {
    std::map<std::string, std::uint32_t> by_name;
    for (std::uint32_t c = 0; c < parts_.channels.size(); ++c) by_name[parts_.channels[c].name] = c;
    std::uint64_t next = 0;
    for (; at_ < lines_.size() && !error_; ++at_) {
      std::istringstream words{std::string(lines_[at_])};
      std::string kind, name, digest, more;
      std::uint32_t size = 0;
      if (!(words >> kind) || (kind != "agree" && kind != "meet")) break;
      const bool read = static_cast<bool>(words >> name >> size >> digest) && !(words >> more);
      const auto channel = by_name.find(name);
      if (!read || channel == by_name.end() || !parts_.channels[channel->second].matters()) {
        ++at_;
        return refuse("this line says nothing that could be checked");
      }
      if (kind == "agree") {
        Claim claim{size, digest, {}, {}};
        if (next > 0 || !claims.emplace(channel->second, std::move(claim)).second)
          refuse("a channel is stated twice, or too late");
        for (const std::int32_t r : parts_.channels[channel->second].members)
          ++claims_of[static_cast<std::size_t>(r)];
      } else {
        take_meetings(claims, channel->second, size, digest, next);
      }
    }
    for (const auto& [channel, claim] : claims) {
      if (claim.position.size() != claim.size ||
          std::count(claim.position.begin(), claim.position.end(), 0U) > 0)
        refuse("the order leaves out meetings of " + printable(parts_.channels[channel].name));
    }
  }

  // "meet CHANNEL FIRST LENGTH": so many meetings, one after the other.
  void take_meetings(std::map<std::uint32_t, Claim>& claims, std::uint32_t channel,
                     std::uint32_t first, const std::string& text, std::uint64_t& next) {
    std::uint32_t length = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), length).ptr;
    const auto claim = claims.find(channel);
    if (claim == claims.end() || end != text.data() + text.size() || length == 0 ||
        first > claim->second.size || length > claim->second.size - first ||
        longest_call_list() < claim->second.size)
      return refuse("there are no such meetings");
    claim->second.position.resize(claim->second.size, 0);
    for (std::uint32_t i = 0; i < length; ++i) {
      if (claim->second.position[first + i] != 0) return refuse("a meeting stands twice");
      claim->second.position[first + i] = ++next;
    }
  }

  // No claim can be larger than this, whatever the text says.
  std::size_t longest_call_list() {
    if (longest_ == 0) {
      for (const checked::Part& part : parts_.all) longest_ = std::max(longest_, part.lines.size());
    }
    return longest_;
  }

  void compare(std::int32_t rank, const checked::Part& part, std::map<std::uint32_t, Claim>& claims,
               std::size_t expected) {
    std::size_t met = 0;
    for (const auto& [channel, projection] : part.projections) {
      const checked::Channel& where = parts_.channels[channel];
      if (!where.matters()) continue;
      const auto claim = claims.find(channel);
      if (claim == claims.end() || claim->second.size != projection.size ||
          claim->second.digest != projection.digest)
        return refuse("rank " + std::to_string(rank) + " may do something else in " +
                      printable(where.name));
      ++met;
      const auto [known, fresh] = claim->second.cuts.emplace(rank, projection.cuts);
      if (!fresh && known->second != projection.cuts)
        return refuse("rank " + std::to_string(rank) + " may cut an exchange in two ways");
    }
    if (met != expected)
      refuse("rank " + std::to_string(rank) + " may leave out the calls of a channel");
  }

  static std::vector<std::int64_t> numbers(const std::string& list) {
    std::vector<std::int64_t> out;
    std::istringstream parts(list);
    for (std::string part; std::getline(parts, part, ',');)
      out.push_back(part == "-" ? -1 : std::stoll(part));
    return out;
  }

  static bool exchanges_fit(const checked::Channel& channel, const Claim& claim) {
    const std::size_t n = channel.members.size();
    for (std::size_t place = 0; place < claim.size && !channel.message; ++place) {
      std::vector<std::vector<std::int64_t>> in, out;
      bool plain = true;
      for (const std::int32_t r : channel.members) {
        const std::string& cut = claim.cuts.at(r)[place];
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
  void follow_order(const checked::Part& part, const std::map<std::uint32_t, Claim>& claims) {
    std::uint64_t waited = 0;
    std::uint64_t batch = 0;
    for (const checked::Line& line : part.lines) {
      const checked::Channel& channel = parts_.channels[line.channel];
      if (channel.matters()) {
        const std::uint64_t position = claims.at(line.channel).position[line.place];
        if (line.kind != 'w' && position <= waited)
          return refuse("a rank waits for a meeting before it comes to call " +
                        std::to_string(line.place) + " of " + printable(channel.name) +
                        ", which stands before it in the order");
        const bool holds = line.kind != 'i' || (parts_.nccl && !channel.message);
        if (holds) batch = std::max(batch, position);
      }
      if (line.kind != 'g') waited = std::max(waited, batch);
    }
  }

  const std::string& file_;
  const ProductSpec& spec_;
  const Parts& parts_;
  std::vector<std::string_view> lines_;
  std::string seal_;
  std::size_t at_ = 0;  // the next line
  std::vector<Options> options_;
  std::size_t situation_ = 0;
  std::size_t longest_ = 0;
  std::vector<std::size_t> recordings_;  // by condition, in later steps
  std::optional<Error> error_;
};

}  // namespace

Status check_certificate(std::string_view text, const std::string& file,
                         const Derivation& derivation) {
  const Result<Parts> parts = checked::read_parts(derivation);
  if (!parts) return parts.error();
  return Checker(text, file, derivation, *parts).check();
}

}  // namespace lockstep
