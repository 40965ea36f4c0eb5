// Forms: what a rank of a digest did, written so that ranks that play the same part have the same
// form.
//
// A trace is split into columns, each of which is often equal over many ranks:
//
//   form      what the rank did: every call, event and mark in order, how it ended. Groups stand in
//             it as indices into the rank's own list of groups, the other side of a message as the
//             distance in the group, a root as its group rank. So the ranks of a pipeline's stage,
//             or of all stages in its middle, have one form.
//   groups    which groups these indices are
//   ids       of the calls
//   steps, states, data, values   what is measured: losses, hashes and norms, sample ids, contents
//   times     of the few events whose times an analysis asks for (kept_times)
//   host      where it ran, and on which GPU
//
// Splitting loses all other times and the durations of spans, which decide nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/formats/digest/values.h"
#include "trace/run.h"

namespace lockstep::trace {

enum class DigestColumn : std::uint8_t {
  form,
  groups,
  ids,
  steps,
  states,
  data,
  values,
  times,
  host
};
inline constexpr std::size_t kDigestColumns = 9;
using CodedColumns = std::array<std::string, kDigestColumns>;
using ColumnViews = std::array<std::string_view, kDigestColumns>;

// Places of ranks in lists of them; each list is gone through once.
class RankIndices {
 public:
  static constexpr std::uint32_t kNowhere = UINT32_MAX;
  // kNowhere where the rank is not in the list, or a rank is in it twice.
  std::uint32_t of(const RankList& list, Rank rank);

 private:
  std::unordered_map<const void*, std::unordered_map<Rank, std::uint32_t>> rank_indices_;
};

// The events, by index, whose times are kept, with these: every one where lost messages are sought
// by them (verify/replay/channels.h), the newest and the last kCompletionsTimed completions of a
// rank that did not end cleanly (verify/blocking/blocking.h). From any other trace one time, as
// 0: it says that times were recorded.
std::vector<std::pair<std::uint32_t, Nanos>> kept_times(const RankTrace& trace,
                                                        const Tables& tables);
inline constexpr std::size_t kCompletionsTimed = 32;

// The columns of a trace, in the numbers of `values`. O(events).
CodedColumns code_columns(const RankTrace& trace, const Tables& tables, const DigestValues& values,
                          RankIndices& rank_indices);

// In addition to Call::flags: the call has values; it is one of a batch.
inline constexpr std::uint64_t kHasValues = 64;
inline constexpr std::uint64_t kHasBatch = 128;
inline constexpr std::uint64_t kHasThread = 256;

// Differences are coded modulo 2^64: damaged ones must not overflow.
inline std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

// A form that was read: a trace of nobody, and how to make it that of a rank.
struct DigestForm {
  // Something relative to the group in which a call is.
  struct Relative {
    enum class Kind : std::uint8_t { none, in_group, absolute } kind = Kind::none;
    std::int32_t value = 0;
  };
  // What calls have in common.
  struct CallKind {
    Signature signature;  // without root
    Relative root, peer;
    std::uint32_t slot = 0;  // of the group
  };
  RankTrace trace;  // its GroupIds are slots
  std::uint32_t slots = 0;
  std::vector<std::uint32_t> used_slots;  // that calls and counters speak of, each once
  std::vector<CallKind> kinds;
  std::vector<std::uint32_t> kind_of;  // by call
  // Which values the columns hold: by step mark 1 for a loss and 2 for samples, by state mark 1 for
  // a hash and 2 for a norm.
  std::vector<std::uint8_t> measured_steps, measured_states;
  std::vector<bool> has_values;  // by call
  std::size_t valued = 0;        // how many calls have
};

// Reads a form. Checks all that an analysis relies on: indices, order, numbers that grow. False:
// damaged. O(bytes).
bool read_form(std::string_view bytes, const DigestTables& tables, DigestForm& form);

// Makes the trace of one rank: `trace`, whose rank and world_size are set. False: damaged, or no
// room. O(events).
bool expand_form(const DigestForm& form, const ColumnViews& columns, const DigestTables& values,
                 Tables& tables, RankIndices& rank_indices, DigestRoom& room, RankTrace& trace);

}  // namespace lockstep::trace
