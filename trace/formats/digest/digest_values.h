// The tables of a digest: the values that traces refer to by ids (names, shapes, signatures, lists
// of ranks), once each and in an order that depends on nothing but the values. So two digests of
// the same traces are the same bytes, in whatever order and from however many parts they were
// merged.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/formats/digest/digest_bytes.h"
#include "trace/run.h"

namespace lockstep {

// Numbers the values that some traces use. Signatures are numbered without their root, which a
// call tells relative to its group (trace/digest_form.h).
class DigestValues {
 public:
  explicit DigestValues(const Tables& tables) : tables_(tables) {}

  // What the trace refers to takes part. O(calls + marks).
  void add(const RankTrace& trace);
  // Call once behind the last add(): gives the numbers.
  void number();
  void write(DigestWriter& out) const;

  std::uint64_t of(StringId id) const { return strings_.of(id.value); }
  std::uint64_t of(NameListId id) const { return name_lists_.of(id.value); }
  std::uint64_t of(IntListId id) const { return int_lists_.of(id.value); }
  std::uint64_t of(SignatureId id) const { return signatures_.of(id.value); }
  std::uint64_t of(GroupId id) const { return groups_.of(id.value); }
  std::uint64_t of(const RankList& list) const { return rank_lists_.at(list.identity()).number; }

 private:
  // Ids of one interner that are used, and their numbers. Id 0, "not recorded", is number 0.
  struct Used {
    std::vector<bool> is_used;
    std::vector<std::uint64_t> numbers;
    std::vector<std::string> coded;  // by number - 1

    void use(std::uint32_t id) {
      if (id >= is_used.size()) is_used.resize(std::size_t{id} + 1);
      is_used[id] = true;
    }
    std::uint64_t of(std::uint32_t id) const { return id == 0 ? 0 : numbers[id]; }
    template <class Code>
    void number(const Code& code);
    void write(DigestWriter& out) const;
  };
  struct NumberedList {
    RankList list;
    std::uint64_t number = 0;
  };

  void use(StringId id) { strings_.use(id.value); }
  void use_names(NameListId id);
  void use_signature(SignatureId id);
  void use_list(const RankList& list);
  std::string code(SignatureId id) const;

  const Tables& tables_;
  Used strings_, name_lists_, int_lists_, signatures_, groups_;
  std::unordered_map<const void*, NumberedList> rank_lists_;
  std::vector<std::string> coded_lists_;  // by number
};

// What a digest's tables say, in the ids of a Tables; index 0 is "not recorded".
struct DigestTables {
  std::vector<StringId> strings;
  std::vector<IntListId> int_lists;
  std::vector<NameListId> name_lists;
  std::vector<Signature> signatures;  // without roots
  std::vector<GroupId> groups;
  std::vector<RankList> rank_lists;  // from 0 on
};

// How much memory what a digest stands for may take: a few bytes can stand for very much.
struct DigestRoom {
  std::size_t most = 0;  // bytes
  std::size_t taken = 0;
  bool exceeded = false;

  // False: there is not so much room left.
  bool take(std::size_t bytes) {
    if (bytes > most - taken) {
      exceeded = true;
      return false;
    }
    taken += bytes;
    return true;
  }
};

// Reads what DigestValues::write wrote and interns it. Lists of ranks take room. False: damaged, or
// no room.
bool read_digest_tables(DigestReader& in, Tables& tables, DigestRoom& room, DigestTables& out);

}  // namespace lockstep
