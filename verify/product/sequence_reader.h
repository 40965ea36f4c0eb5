// Reads parts of traces into a SequenceTable: those of a derivation (sequences.h), or the whole
// traces of a recorded run (run_certificate.h).
//
// A wait belongs to a sequence if it waits for a call of the same part. A wait for an earlier call
// orders nothing within the part and cannot form a cycle (docs/certificates.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trace/run.h"
#include "verify/product/sequence_table.h"

namespace lockstep::verify {

struct ReadOptions {
  // Calls whose record names this step are left out, with their waits. By default none are.
  std::int32_t without_step = INT32_MIN;
  // Every call blocks where it stands: of traces whose waits were not recorded.
  bool all_block = false;
};

class SequenceReader {
 public:
  // Keeps a reference to `out`.
  SequenceReader(SequenceTable& out, std::int32_t world_size);

  // Begins a run; its traces are read next. `location`: its name in reasons, as in "rank 0 in
  // first-1".
  void enter(const trace::Run& run, std::string location = {});

  // The id of what the rank does in the events [begin, end) of its trace. What cannot be decided is
  // listed in `inconclusive`. O(events).
  SequenceId read(const trace::RankTrace& trace, std::uint32_t begin, std::uint32_t end,
                  const ReadOptions& options = {});

  // Adds a reason to `inconclusive`; the first few are kept.
  void add_reason(std::string reason);
  void add_reason(const trace::RankTrace& trace, const std::string& reason);
  static constexpr std::size_t kMaxReasons = 8;

 private:
  struct ListHash {
    std::size_t operator()(const std::vector<std::uint32_t>& list) const noexcept;
  };
  template <class T, class Hash = std::hash<T>>
  class Ids {
   public:
    // The id, and whether the value is new.
    std::pair<std::uint32_t, bool> intern(const T& value) {
      const auto [found, fresh] = ids_.emplace(value, static_cast<std::uint32_t>(ids_.size()));
      return {found->second, fresh};
    }

   private:
    std::unordered_map<T, std::uint32_t, Hash> ids_;
  };
  using ListIds = Ids<std::vector<std::uint32_t>, ListHash>;
  struct KnownCall {
    ChannelId channel;
    std::uint32_t shared = 0, own = 0;
  };

  void collect_members();
  bool is_disputed(const std::string& group) const;
  trace::RankList members_of(const std::string& name);
  ChannelId channel_of(const trace::RankTrace& trace, const trace::Call& call,
                       const trace::Signature& signature);
  KnownCall keys_of(const trace::RankTrace& trace, const trace::Call& call);
  SequenceId intern(ProductSequence sequence);
  static std::uint32_t list_id(ListIds& ids, std::vector<std::vector<std::uint32_t>>& lists,
                               const std::vector<std::uint32_t>& list);

  SequenceTable& out_;
  const std::int32_t world_size_;
  const trace::Run* run_ = nullptr;
  std::string location_;
  std::map<std::string, trace::RankList> members_;
  std::unordered_map<std::string, KnownCall> known_calls_;  // of the current run
  using Sizes = std::vector<std::int64_t>;
  std::map<std::pair<Sizes, Sizes>, std::uint32_t> exchange_ids_;
  Ids<std::string> channel_ids_, shared_ids_;
  ListIds sequence_ids_, shared_list_ids_, own_list_ids_;
};

// The keys of a call: what its peers must agree on, as text that does not depend on a Run's ids.

// Two calls on one channel can match, as far as was recorded, exactly if their shared keys are
// equal. The rules are those of verify/streams/agreement.h and, for messages, of message_differs().
// A JSON list: operation, sizes, types, reduce operation, root, names. null: not recorded.
std::string shared_key(const trace::Tables& tables, const trace::Call& call);

// Whether a call's sizes, or its root, must agree and were not recorded.
bool lacks_sizes(const trace::Signature& signature);
bool lacks_root(const trace::Signature& signature);

// As Python's json.dumps() writes it with separators (",", ":"), which the checker of certificates
// compares with: characters beyond ASCII as \uXXXX. Strings must be UTF-8.
std::string compact_json(const nlohmann::json& value);

// How an all-to-all is cut, else empty lists.
ExchangeSplits exchange_splits(const trace::Tables& tables, const trace::Call& call);

}  // namespace lockstep::verify
