// What a counterexample says: who parts from whom, on which channel, at which call.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/product/decide.h"

namespace lockstep::verify {

// The members of a channel that do the same there.
struct ChannelParty {
  std::uint32_t shared = kNothing;  // kNothing: no call at all
  std::vector<trace::Rank> ranks;   // ascending
};
using ChannelParties = std::vector<ChannelParty>;

// `sequences`: by rank. Ordered by their lowest ranks.
ChannelParties parties_on(const ProductModel& model, std::uint32_t channel,
                          const std::vector<std::uint32_t>& sequences);
// The largest party; of equal ones the first.
std::size_t parties_reference(const ChannelParties& parties);

// Fills in the channel, the two sides, the parameters and the reason.
void describe_divergence(const ProductModel& model, const std::vector<std::uint32_t>& sequences,
                         Counterexample& out);
void describe_circle(const ProductModel& model, const Circle& circle, Counterexample& out);

// "group world", "messages from rank 0 to rank 1".
std::string channel_words(const ProductChannel& channel);

}  // namespace lockstep::verify
