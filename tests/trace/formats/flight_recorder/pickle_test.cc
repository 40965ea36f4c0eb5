// Pickles are data and nothing else, whatever is in the file.
#include "trace/formats/flight_recorder/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/pickle_writer.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

std::string small_pickle() {
  PickleWriter w;
  w.begin_dict().text("a").begin_list().integer(1).integer(-70000).end_list();
  w.text("b").pair("x", "a").text("c").none().text("d").boolean(true).end_dict();
  return w.finish();
}

TEST(Pickle, ReadsWhatPyTorchWrites) {
  const std::string bytes = small_pickle();
  const Result<Pickle> p = read_pickle(bytes, "f");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->damage, "");
  const DataTree& t = p->tree;
  const auto list = t.items(*t.find(t.root, "a"));
  ASSERT_THAT(list, SizeIs(2));
  EXPECT_EQ(list[0].integer(0), 1);
  EXPECT_EQ(list[1].integer(0), -70000);
  EXPECT_EQ(t.text(t.items(*t.find(t.root, "b"))[1]), "a");
  EXPECT_TRUE(t.find(t.root, "c")->is(DataTree::Kind::none));
  EXPECT_TRUE(t.find(t.root, "d")->boolean());
  EXPECT_EQ(t.find(t.root, "e"), nullptr);
}

TEST(Pickle, ReadsLaterProtocols) {
  // pickle.dumps({"k": [1, 2]}, 4)
  const std::string bytes(
      "\x80\x04\x95\x0e\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01k\x94]\x94(K\x01K\x02"
      "es.",
      27);
  const Result<Pickle> p = read_pickle(bytes, "f");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->damage, "");
  EXPECT_THAT(p->tree.items(*p->tree.find(p->tree.root, "k")), SizeIs(2));
}

TEST(Pickle, RefusesToConstructOrCallAnything) {
  using namespace std::string_literals;  // they hold zeros
  for (const std::string& hostile : {"\x80\x02"
                                     "cos\nsystem\nX\x02\x00\x00\x00id\x85R."s,
                                     "\x80\x04\x8c\x02os\x8c\x06system\x93."s}) {
    const Result<Pickle> p = read_pickle(hostile, "f");
    ASSERT_FALSE(p);
    EXPECT_THAT(p.error().message, HasSubstr("GLOBAL at byte "));
  }
}

TEST(Pickle, KeepsWhatCameBeforeTheCut) {
  const std::string bytes = small_pickle();
  for (std::size_t cut = 2; cut < bytes.size(); ++cut) {
    const Result<Pickle> p = read_pickle(std::string_view(bytes).substr(0, cut), "f");
    ASSERT_TRUE(p) << cut;
    EXPECT_EQ(p->damage, "the pickle was cut off") << cut;
    EXPECT_LE(p->damage_at, cut);
  }
  const Result<Pickle> late = read_pickle(std::string_view(bytes).substr(0, bytes.size() - 2), "f");
  EXPECT_NE(late->tree.find(late->tree.root, "b"), nullptr);
}

// {"a": [{"k": 1, "v": 2}, {"k": 3, "v": 4}]}: a dict of the list is there with all its keys, or
// not at all.
TEST(Pickle, KeepsNoPartOfAListsDict) {
  using namespace std::string_literals;
  const auto dict = [](char k, char v) {
    return "}("s + "X\x01\x00\x00\x00kK"s + k + "X\x01\x00\x00\x00vK"s + v + "u"s;
  };
  const std::string bytes =
      "\x80\x02}(X\x01\x00\x00\x00"s + "a](" + dict(1, 2) + dict(3, 4) + "eu.";
  std::size_t most = 0;
  for (std::size_t cut = 2; cut <= bytes.size(); ++cut) {
    const Result<Pickle> p = read_pickle(std::string_view(bytes).substr(0, cut), "f");
    ASSERT_TRUE(p) << cut;
    const DataTree::Value* const list = p->tree.find(p->tree.root, "a");
    if (list == nullptr) continue;
    most = std::max(most, p->tree.items(*list).size());
    for (const DataTree::Value& entry : p->tree.items(*list)) {
      EXPECT_NE(p->tree.find(entry, "k"), nullptr) << cut;
      EXPECT_NE(p->tree.find(entry, "v"), nullptr) << cut;
    }
  }
  EXPECT_EQ(most, 2U);
}

TEST(Pickle, SurvivesEveryFlippedBit) {
  const std::string good = small_pickle();
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const Result<Pickle> p = read_pickle(bytes, "f");
    if (p) (void)p->tree.find(p->tree.root, "a");
  }
}

TEST(Pickle, HugeClaimsAndDeepNestingCostNothing) {
  const std::string header("\x80\x02", 2);
  EXPECT_EQ(read_pickle(header + std::string("X\xff\xff\xff\xff", 5) + "abc", "f")->damage,
            "the pickle was cut off");
  EXPECT_THAT(read_pickle(header + "N" + std::string("r\xff\xff\xff\x7f", 5) + ".", "f")->damage,
              HasSubstr("memoizes"));
  EXPECT_THAT(read_pickle(header + "h\x05.", "f")->damage, HasSubstr("number 5"));
  const Result<Pickle> deep = read_pickle(header + std::string(1 << 20, '('), "f");
  EXPECT_TRUE(deep);
  const Result<Pickle> lists = read_pickle(header + std::string(1 << 20, ']'), "f");
  EXPECT_TRUE(lists);
}

}  // namespace
}  // namespace lockstep::trace
