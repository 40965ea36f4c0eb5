// Of JSON that is cut off or damaged, what is whole is read.
#include "trace/formats/flight_recorder/json.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::trace {
namespace {

using testing::ElementsAre;

// Three entries and two groups; PyTorch writes the keys sorted.
std::string sample() {
  const auto entry = [](int record) {
    const std::string n = std::to_string(record);
    return R"({"collective_seq_id":)" + n +
           R"(,"frames":[{"filename":"a, {b].py","line":3,"name":"f"},{"filename":"c.py",)" +
           R"("line":4,"name":"\"g"}],"input_sizes":[[8,)" + n + R"(]],"record_id":)" + n + "}";
  };
  return R"({"entries":[)" + entry(0) + "," + entry(1) + ", " + entry(2) +
         R"(],"pg_config":{"0":{"desc":"world","ranks":"[0, 1]"},"1":{"desc":"dp","ranks":"[0]"}},)"
         R"("version":"2.10"})";
}

constexpr std::int64_t kDamaged = -1;

// The numbers of the entries.
std::vector<std::int64_t> records(const Pickle& dump) {
  std::vector<std::int64_t> out;
  const DataTree& t = dump.tree;
  const DataTree::Value* const entries = t.find(t.root, "entries");
  if (entries == nullptr) return out;
  for (const DataTree::Value& entry : t.items(*entries)) {
    const DataTree::Value* const record = t.find(entry, "record_id");
    out.push_back(record == nullptr ? kDamaged : record->integer(kDamaged));
  }
  return out;
}

TEST(JsonDump, KeepsWhatIsWholeBeforeTheCut) {
  const std::string good = sample();
  const std::string_view last_key = R"("record_id":)";
  for (std::size_t cut = 1; cut < good.size(); ++cut) {
    const std::string bytes = good.substr(0, cut);
    std::vector<std::int64_t> whole;
    for (std::size_t at = bytes.find(last_key); at != std::string::npos;
         at = bytes.find(last_key, at + 1)) {
      if (at + last_key.size() + 1 < bytes.size()) whole.push_back(std::int64_t(whole.size()));
    }
    const Result<Pickle> dump = read_json_dump(bytes, "f");
    ASSERT_EQ(static_cast<bool>(dump), !whole.empty()) << bytes;
    if (!dump) continue;
    EXPECT_EQ(records(*dump), whole) << bytes;
    EXPECT_NE(dump->damage, "") << bytes;
    EXPECT_LE(dump->damage_at, cut);
  }
}

TEST(JsonDump, KeepsTheGroupsBeforeTheCut) {
  const std::string good = sample();
  const Result<Pickle> dump = read_json_dump(good.substr(0, good.find("dp")), "f");
  ASSERT_TRUE(dump);
  const DataTree& t = dump->tree;
  const DataTree::Value* const groups = t.find(t.root, "pg_config");
  ASSERT_NE(groups, nullptr);
  EXPECT_EQ(t.text(*t.find(*t.find(*groups, "0"), "desc")), "world");
  EXPECT_EQ(t.find(*groups, "1"), nullptr);
}

TEST(JsonDump, OnlyTheDamagedEntryIsLost) {
  const std::string good = sample();
  for (const std::string_view part :
       {R"("collective_seq_id":1)", R"([[8,1]])", R"("record_id":1})"}) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      std::string bytes = good;
      bytes[good.find(part) + i] = '\xff';  // never valid in JSON
      const Result<Pickle> dump = read_json_dump(bytes, "f");
      ASSERT_TRUE(dump) << bytes;
      EXPECT_THAT(records(*dump), ElementsAre(0, kDamaged, 2)) << bytes;
      EXPECT_EQ(dump->damage, "") << bytes;
      EXPECT_NE(dump->tree.find(dump->tree.root, "pg_config"), nullptr) << bytes;
    }
  }
}

TEST(JsonDump, ReadsNoGroupAfterADamagedOne) {
  std::string bytes = sample();
  bytes[bytes.find("dp")] = '\xff';
  const Result<Pickle> dump = read_json_dump(bytes, "f");
  ASSERT_TRUE(dump);
  const DataTree& t = dump->tree;
  EXPECT_THAT(records(*dump), ElementsAre(0, 1, 2));
  EXPECT_NE(dump->damage, "");
  EXPECT_NE(t.find(*t.find(t.root, "pg_config"), "0"), nullptr);
  EXPECT_EQ(t.find(*t.find(t.root, "pg_config"), "1"), nullptr);
}

TEST(JsonDump, SurvivesEveryFlippedBit) {
  const std::string good = sample();
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const Result<Pickle> dump = read_json_dump(bytes, "f");
    if (dump) {
      EXPECT_LE(records(*dump).size(), 4U) << bytes;  // one may look like two
    }
  }
}

// Each unclosed bracket could be searched for its end again.
TEST(JsonDump, UnclosedBracketsTakeLinearTime) {
  std::string bytes = R"({"entries":[)";
  for (int i = 0; i < 1 << 20; ++i) bytes += R"({"a":[)";
  EXPECT_FALSE(read_json_dump(bytes, "f"));
  bytes = R"({"pg_config":{)";
  for (int i = 0; i < 1 << 20; ++i) bytes += R"("a":{)";
  EXPECT_FALSE(read_json_dump(bytes, "f"));
}

TEST(JsonDump, WithoutAWholePartIsAnError) {
  for (const std::string_view bytes :
       {"", "{", "{\"entries\"", R"({"entries":)", R"({"entries":[)", R"({"entries":[{"a":1)",
        R"({"pg_config":)", R"({"pg_config":{"0":{)", R"({"version":"2.10",)", "[1, 2"}) {
    EXPECT_FALSE(read_json_dump(bytes, "f")) << bytes;
  }
}

}  // namespace
}  // namespace lockstep::trace
