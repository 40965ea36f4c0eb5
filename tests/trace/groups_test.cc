// Communicators of which each process knows its own group rank only, combined over all ring files.

#include "trace/groups.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "trace/formats/digest/digest.h"
#include "trace/formats/format.h"
#include "trace/formats/ring/ring_file.h"
#include "trace/formats/ring/writer.h"
#include "trace/load.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct GroupMember {
  std::string name;
  std::int32_t group_rank, size;
};

class Communicators : public testing::Test {
 protected:
  // A rank's file: in each of its communicators a broadcast from group rank 0 and a message to 1.
  void write(std::int32_t rank, std::int32_t world_size, const std::vector<GroupMember>& members) {
    RingWriter::Options options;
    options.path = folder_.file(fmt::format("rank_{}.ring", rank));
    options.rank = Rank(rank);
    options.world_size = world_size;
    options.capacity = 16;
    options.table_bytes = 4096;
    const auto ring = std::move(*RingWriter::create(options));
    for (const GroupMember& each : members) {
      RingWriter::Issue call;
      call.group = ring->make_communicator(each.name, each.group_rank, each.size, "told");
      RingWriter::SignatureFields fields;
      fields.op = Op::broadcast;
      fields.root = 0;
      call.signature = ring->make_signature(fields);
      ring->issue(call);
      fields = {};
      fields.op = Op::send;
      call.signature = ring->make_signature(fields);
      call.peer = 1;
      ring->issue(call);
    }
    ring->finish(End::clean);
  }
  // "name members" for each group, then "name root" and "name >peer" for each call.
  std::vector<std::string> seen(std::int32_t rank) {
    const auto run = load_run({folder_.path()});
    if (!run || run->find(Rank(rank)) == nullptr) return {"not there"};
    const RankTrace& trace = *run->find(Rank(rank));
    std::vector<std::string> out;
    for (const auto& m : trace.groups) {
      out.push_back(run->tables.str(m.group));
      for (const Rank member : m.ranks) out.back() += fmt::format(" {}", member.value);
      out.back() += " " + run->tables.str(m.desc);
    }
    for (const Call& call : trace.calls) {
      const Signature& s = run->tables.signatures[call.signature];
      out.push_back(run->tables.str(call.group) + (s.op == Op::broadcast
                                                       ? fmt::format(" {}", s.root)
                                                       : fmt::format(" >{}", call.peer.value)));
    }
    return out;
  }
  TempDir folder_;
};

TEST_F(Communicators, GetTheirMembersFromAllFiles) {
  write(0, 3, {{"all", 0, 3}, {"pair", 1, 2}});
  write(1, 3, {{"all", 1, 3}});
  write(2, 3, {{"pair", 0, 2}, {"all", 2, 3}});
  EXPECT_THAT(seen(0), ElementsAre("world 0 1 2 told", "pair 2 0 told", "world 0", "world >1",
                                   "pair 2", "pair >0"));
  EXPECT_THAT(seen(2), ElementsAre("pair 2 0 told", "world 0 1 2 told", "pair 2", "pair >0",
                                   "world 0", "world >1"));
}

TEST_F(Communicators, HaveUnknownMembersWhereAFileIsMissing) {
  write(0, 4, {{"all", 0, 4}, {"pair", 0, 2}});
  write(2, 4, {{"all", 2, 4}});
  // Group ranks of the communicator of all are ranks; who else is in the pair is not known.
  EXPECT_THAT(seen(0), ElementsAre("world 0 1 2 3 told", "world 0", "world >1", "pair 0",
                                   fmt::format("pair >{}", kNone)));
}

TEST_F(Communicators, OfAllRanksInAnotherOrderHaveNoMembersWhereAFileIsMissing) {
  write(0, 3, {{"all", 1, 3}});
  write(1, 3, {{"all", 0, 3}});
  EXPECT_THAT(seen(0), ElementsAre("world 1", "world >0"));
  write(2, 3, {{"all", 2, 3}});
  EXPECT_THAT(seen(0), ElementsAre("world 1 0 2 told", "world 1", "world >0"));
}

TEST_F(Communicators, ThatContradictEachOtherHaveNoMembers) {
  write(0, 2, {{"all", 0, 2}});
  write(1, 2, {{"all", 0, 2}});  // the same group rank
  EXPECT_THAT(seen(0),
              ElementsAre(fmt::format("world {}", kNone), fmt::format("world >{}", kNone)));
}

TEST_F(Communicators, AreTheSameThroughDigestsOfEachFile) {
  write(0, 2, {{"all", 0, 2}});
  write(1, 2, {{"all", 1, 2}});
  const std::vector<std::string> before = seen(1);
  for (const char* const name : {"rank_0.ring", "rank_1.ring"}) {
    const Result<LoadedTraces> one = load_traces({folder_.file(name)});
    ASSERT_TRUE(one);
    const Digest digest =
        write_digest(one->traces, one->tables, {std::string(one->format->name), one->unreadable});
    std::filesystem::remove(folder_.file(name));
    folder_.write(std::string(name) + ".digest", digest.bytes);
  }
  EXPECT_EQ(seen(1), before);
}

// Whatever a file says, it is read or refused.
TEST_F(Communicators, SurviveEveryDamagedByteOfTheTable) {
  write(0, 2, {{"all", 0, 2}, {"pair", 1, 2}});
  write(1, 2, {{"all", 1, 2}, {"pair", 0, 2}});
  const std::string sound = TempDir::read(folder_.file("rank_0.ring"));
  constexpr std::size_t kUsed = 320;
  int read = 0;
  for (std::size_t at = ring::kHeaderBytes; at < ring::kHeaderBytes + kUsed; ++at) {
    for (const int value : {0, 0xff}) {
      std::string damaged = sound;
      damaged[at] = static_cast<char>(value);
      folder_.write("rank_0.ring", damaged);
      read += load_run({folder_.path()}) ? 1 : 0;
    }
  }
  EXPECT_GT(read, 0);
}

// Groups that share their name and nothing else are distinguished when a run is put together.

// A rank of four that declares group "1" and calls barrier in it.
std::string rank(int r, const std::vector<int>& group) {
  return header_line(r, 4) + group_line("1", group) + issue_line(0, "1", "barrier");
}

using Names = std::set<std::string>;

Names names_in(const Run& run) {
  Names out;
  for (const RankTrace& trace : run.ranks) {
    for (const auto& m : trace.groups) out.insert(run.tables.str(m.group));
    for (const Call& call : trace.calls) {
      EXPECT_EQ(call.group, trace.groups.at(0).group) << "a call stays in its group";
    }
  }
  return out;
}

TEST(Namesakes, ListsWithoutACommonRankAreDifferentGroups) {
  EXPECT_EQ(
      names_in(run_from_text({rank(0, {0, 2}), rank(1, {1, 3}), rank(2, {0, 2}), rank(3, {1, 3})})),
      (Names{"1 [0, 2]", "1 [1, 3]"}));
}

TEST(Namesakes, OneListIsOneGroup) {
  EXPECT_EQ(names_in(run_from_text({rank(0, {0, 1}), rank(1, {0, 1})})), Names{"1"});
}

TEST(Namesakes, ListsThatOverlapAreOneGroupThatRanksDisagreeAbout) {
  EXPECT_EQ(names_in(run_from_text({rank(0, {0, 1}), rank(1, {1, 2})})), Names{"1"});
}

TEST(Namesakes, AListThatARankOutsideGivesSaysThatItIsOneGroup) {
  EXPECT_EQ(names_in(run_from_text({rank(0, {0, 1}), rank(1, {2, 3})})), Names{"1"});
}

TEST(Namesakes, LongListsKeepDifferentNames) {
  EXPECT_EQ(names_in(run_from_text({R"({"header":1,"rank":0,"world_size":12}
{"group":"1","ranks":[0,1,2,3,4,5]})",
                                    R"({"header":1,"rank":6,"world_size":12}
{"group":"1","ranks":[6,7,8,9,10,11]})"})),
            (Names{"1 [0, 1, 2, 3, …]", "1 [6, 7, 8, 9, …]"}));
}

TEST(Namesakes, ThereIsOneWorld) {
  EXPECT_EQ(names_in(run_from_text({R"({"header":1,"rank":0,"world_size":4}
{"group":"world","ranks":[0,1]})",
                                    R"({"header":1,"rank":2,"world_size":4}
{"group":"world","ranks":[2,3]})"})),
            Names{"world"});
}

}  // namespace
}  // namespace lockstep::trace
