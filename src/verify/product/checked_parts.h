// What a derivation's ranks do in each part of the program, as check_certificate() reads it: a
// second cutting of the traces, which has nothing in common with sequences.h on purpose.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/derivation.h"

namespace lockstep::checked {

// A name as one word of a certificate.
std::string word(const std::string& text);

struct Line {
  char kind = 'i';            // i: issue, b: block, g: block behind the batch, w: wait
  std::uint32_t channel = 0;  // into Parts::channels
  std::uint32_t place = 0;
  std::string call;  // what all must agree on; of calls
  std::string cut;   // "in out", the splits; of calls
};
struct Part {
  std::string digest;
  std::vector<Line> lines;
  // By channel: how many calls, their digest, their splits.
  struct Projection {
    std::uint32_t size = 0;
    std::string digest;
    std::vector<std::string> cuts;
  };
  std::map<std::uint32_t, Projection> projections;
};
struct Channel {
  std::string name;
  bool message = false;
  std::vector<std::int32_t> members;  // in group order
  bool matters() const { return message || members.size() > 1; }
};

struct Parts {
  bool nccl = false;
  std::map<std::string, std::vector<std::int32_t>> groups;  // as declared, by name
  std::vector<Channel> channels;
  std::vector<Part> all;  // the different ones
  // By history and rank: start, step 0, end, then a part for each condition; into `all`.
  static constexpr std::uint32_t kMissing = UINT32_MAX;
  std::vector<std::vector<std::vector<std::uint32_t>>> of;
};

// Errors: a trace that does not end well, calls that belong to no step, a step that is not what an
// earlier one under its condition was, messages without their other side.
Result<Parts> read_parts(const Derivation& derivation);

}  // namespace lockstep::checked
