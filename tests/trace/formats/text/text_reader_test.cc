// The text form, read: every key, and what becomes of lines that cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_text.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kHeader = "{\"header\":1,\"rank\":1,\"world_size\":4}\n";

class TextReaderTest : public testing::Test {
 protected:
  RankTrace read(const std::string& text) {
    Result<RankTrace> trace = read_text_trace(text, "t", tables_);
    EXPECT_TRUE(trace) << (trace ? "" : trace.error().str());
    return trace ? std::move(*trace) : RankTrace{};
  }
  RankTrace read_events(const std::string& lines) { return read(kHeader + lines); }
  const Signature& signature(const Call& call) { return tables_.signatures[call.signature]; }

  std::string error(const std::string& text) {
    const Result<RankTrace> trace = read_text_trace(text, "t", tables_);
    return trace ? "none" : trace.error().location.str() + ": " + trace.error().message;
  }
  // The only damage of these lines after a header: "line: message".
  std::string damage(const std::string& lines) {
    const RankTrace trace = read_events(lines);
    if (trace.damaged_count == 0) return "none";
    return trace.damaged[0].location.str() + ": " + trace.damaged[0].message;
  }

  Tables tables_;
};

TEST_F(TextReaderTest, EveryKeyOfTheHeader) {
  const RankTrace trace = read(
      R"({"header":1,"rank":2,"world_size":4,"backend":"gloo","clock":"ns","host":"h","pid":123,)"
      R"("program":"p","dropped":7,"semantics":"mpi","new":{"a":[1]}})");
  EXPECT_EQ(trace.rank, Rank(2));
  EXPECT_EQ(trace.world_size, 4);
  EXPECT_EQ(trace.backend, "gloo");
  EXPECT_EQ(trace.host, "h");
  EXPECT_EQ(trace.pid, 123);
  EXPECT_EQ(trace.program, "p");
  EXPECT_EQ(trace.dropped, 7U);
  EXPECT_EQ(trace.semantics, Semantics::mpi);
  EXPECT_EQ(trace.end, End::cut);
  EXPECT_EQ(trace.source, "t");
}

TEST_F(TextReaderTest, AGroupInGroupRankOrder) {
  const RankTrace trace = read_events(R"({"group":"dp0","ranks":[2,0],"desc":"data parallel"})");
  ASSERT_THAT(trace.groups, SizeIs(1));
  EXPECT_EQ(tables_.str(trace.groups[0].group), "dp0");
  EXPECT_THAT(trace.groups[0].ranks, ElementsAre(Rank(2), Rank(0)));
  EXPECT_EQ(tables_.str(trace.groups[0].desc), "data parallel");
}

TEST_F(TextReaderTest, EveryKeyOfAnIssue) {
  const RankTrace trace = read_events(
      R"({"ev":"issue","id":17,"g":"world","op":"all_reduce","t":812345,"in":[[8,2],[]],)"
      R"("out":[[3]],"dtype":["float32","int64"],"redop":"sum","root":2,"peer":3,"ptag":5,)"
      R"("splits_in":[1,2],"splits_out":[3],"async":true,"coalesced":4,"stream":"comm",)"
      R"("what":["a.weight","a.bias"],"at":"trainer.cc:120","step":3,"tag":"bucket",)"
      R"("hash":"9f00000000000001","sketch":[1,-0.5],"count":6,"mode":"sync"})");
  ASSERT_THAT(trace.calls, SizeIs(1));
  const Call& call = trace.calls[0];
  EXPECT_EQ(call.id, 17);
  EXPECT_EQ(trace.events[0].time, 812345);
  EXPECT_EQ(tables_.str(call.group), "world");
  EXPECT_EQ(call.flags, kAsync);
  EXPECT_EQ(call.peer, Rank(3));
  EXPECT_EQ(call.ptag, 5);
  EXPECT_EQ(call.coalesced, 4);
  EXPECT_EQ(tables_.str(call.stream), "comm");
  EXPECT_THAT(tables_.names(call.what), ElementsAre("a.weight", "a.bias"));
  EXPECT_EQ(tables_.str(call.at), "trainer.cc:120");
  EXPECT_EQ(call.step, 3);
  EXPECT_EQ(tables_.str(call.tag), "bucket");
  const CallValues& values = trace.values.at(call.values - 1);
  EXPECT_EQ(values.hash, 0x9f00000000000001U);
  EXPECT_THAT(values.sketch, ElementsAre(1.0, -0.5));
  const Signature& s = signature(call);
  EXPECT_EQ(s.op, Op::all_reduce);
  EXPECT_THAT(tables_.int_lists[s.in], ElementsAre(8, 2, -1, -1));
  EXPECT_EQ(s.in_elements, 17);
  EXPECT_EQ(s.out_elements, 3);
  EXPECT_THAT(tables_.names(s.dtypes), ElementsAre("float32", "int64"));
  EXPECT_EQ(tables_.str(s.redop), "sum");
  EXPECT_EQ(s.root, 2);
  EXPECT_THAT(tables_.int_lists[s.splits_in], ElementsAre(1, 2));
  EXPECT_THAT(tables_.int_lists[s.splits_out], ElementsAre(3));
  EXPECT_EQ(s.count, 6);
  EXPECT_EQ(tables_.str(s.mode), "sync");
}

TEST_F(TextReaderTest, WhatIsAbsentOrNullIsNotRecorded) {
  const RankTrace trace =
      read_events(R"({"ev":"issue","id":0,"g":"world","op":"barrier","step":null,"in":null})");
  ASSERT_THAT(trace.calls, SizeIs(1));
  const Call& call = trace.calls[0];
  EXPECT_EQ(trace.events[0].time, kNoTime);
  EXPECT_EQ(call.step, kNone);
  EXPECT_EQ(call.peer, Rank(kNone));
  EXPECT_EQ(call.ptag, kNoPeerTag);
  EXPECT_EQ(call.coalesced, kNone);
  EXPECT_EQ(call.what, NameListId{});
  EXPECT_EQ(call.values, 0U);
  EXPECT_EQ(call.flags, 0);
  EXPECT_EQ(signature(call).in, IntListId{});
  EXPECT_EQ(signature(call).in_elements, kNone);
  EXPECT_EQ(signature(call).count, kNone);
  EXPECT_EQ(signature(call).root, kNone);
}

TEST_F(TextReaderTest, TheEventsOfACallSetItsFlags) {
  const RankTrace trace = read_events(R"({"ev":"issue","id":4,"g":"w","op":"recv_any"}
{"ev":"issue","id":9,"g":"w","op":"barrier"}
{"ev":"start","id":4,"t":1}
{"ev":"complete","id":4,"t":2,"from":3,"fromtag":8}
{"ev":"wait","id":9,"t":3}
{"ev":"waited","id":9,"t":4,"from":1}
{"ev":"use","id":4}
{"ev":"write","id":9})");
  ASSERT_THAT(trace.calls, SizeIs(2));
  EXPECT_EQ(trace.calls[0].flags, kStarted | kCompleted);
  EXPECT_EQ(trace.calls[1].flags, kWaitBegan | kWaitEnded);
  EXPECT_EQ(trace.values.at(trace.calls[0].values - 1).from, 3);
  EXPECT_EQ(trace.values.at(trace.calls[0].values - 1).fromtag, 8);
  EXPECT_EQ(trace.calls[1].values, 0U);  // only a complete says whom a receive met
  ASSERT_THAT(trace.events, SizeIs(8));
  EXPECT_EQ(trace.events[6].kind, EventKind::use);
  EXPECT_EQ(trace.events[7].kind, EventKind::write);
  EXPECT_EQ(trace.events[7].index, 1U);
  EXPECT_EQ(trace.damaged_count, 0U);
}

TEST_F(TextReaderTest, TheOtherEvents) {
  const RankTrace trace = read_events(R"({"ev":"issue","id":0,"g":"w","op":"barrier"}
{"ev":"step","n":3,"loss":0.5,"samples":32}
{"ev":"state","n":3,"name":"a","hash":"ff","norm":2,"shape":[2,3],"dtype":"float32","kind":"grad","when":"local","sharded":true,"sketch":[1.5]}
{"ev":"data","n":3,"indices":[5,-1,7]}
{"ev":"modality","n":3,"has":["text","image"]}
{"ev":"span","name":"forward","t":10,"dur":20,"stream":0}
{"ev":"exception","what":"boom","id":0}
{"ev":"exception"}
{"ev":"from the future","id":99}
{"end":"exception"})");
  EXPECT_EQ(trace.damaged_count, 0U);
  EXPECT_EQ(trace.end, End::exception);
  EXPECT_EQ(trace.steps.at(0).loss, 0.5);
  EXPECT_EQ(trace.steps.at(0).samples, 32);
  const StateMark& state = trace.states.at(0);
  EXPECT_EQ(state.hash, 255U);
  EXPECT_EQ(state.norm, 2.0);
  EXPECT_THAT(tables_.int_lists[state.shape], ElementsAre(2, 3));
  EXPECT_EQ(state.kind, StateMark::Kind::grad);
  EXPECT_EQ(state.when, StateMark::When::local);
  EXPECT_TRUE(state.sharded);
  EXPECT_THAT(state.sketch, ElementsAre(1.5));
  EXPECT_THAT(trace.data.at(0).indices, ElementsAre(5, -1, 7));
  EXPECT_THAT(tables_.names(trace.modalities.at(0).has), ElementsAre("image", "text"));
  EXPECT_EQ(trace.spans[0].duration, 20);
  EXPECT_EQ(tables_.str(trace.spans[0].stream), "0");
  EXPECT_EQ(trace.exceptions.at(0).what, "boom");
  EXPECT_EQ(trace.exceptions.at(0).call, 0U);
  EXPECT_TRUE(trace.calls[0].has(kFailed));
  EXPECT_EQ(trace.exceptions.at(1).call, std::nullopt);
}

TEST_F(TextReaderTest, CallsAreNumberedPerGroupAndPointToPointApart) {
  const RankTrace trace = read_events(R"({"ev":"issue","id":0,"g":"a","op":"barrier"}
{"ev":"issue","id":1,"g":"b","op":"barrier"}
{"ev":"issue","id":2,"g":"a","op":"send"}
{"ev":"issue","id":3,"g":"a","op":"barrier"})");
  std::vector<std::uint32_t> seqs;
  for (const Call& call : trace.calls) seqs.push_back(call.seq);
  EXPECT_THAT(seqs, ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(trace.first_seq, IsEmpty());
}

TEST_F(TextReaderTest, AStreamThatStartsMidRunIsNumberedByItsIdsWhereTheyTell) {
  const std::string header = "{\"header\":1,\"rank\":0,\"world_size\":2,\"dropped\":20}\n";
  const RankTrace one_group = read(header + R"({"ev":"complete","id":6}
{"ev":"issue","id":7,"g":"a","op":"barrier"}
{"ev":"issue","id":8,"g":"a","op":"barrier"})");
  EXPECT_EQ(one_group.damaged_count, 0U);  // call 6 was issued in what was dropped
  EXPECT_THAT(one_group.first_seq, ElementsAre(testing::Pair(one_group.calls[0].group, 7U)));
  EXPECT_EQ(one_group.calls[1].seq, 8U);

  const RankTrace two_groups = read(header + R"({"ev":"issue","id":7,"g":"a","op":"barrier"}
{"ev":"issue","id":8,"g":"b","op":"barrier"})");
  EXPECT_THAT(two_groups.first_seq, IsEmpty());
  EXPECT_EQ(two_groups.calls[1].seq, 0U);
}

TEST_F(TextReaderTest, BlankLinesCarriageReturnsAndAByteOrderMark) {
  const RankTrace trace = read("\xEF\xBB\xBF\r\n  \r\n" + kHeader +
                               "\n\t\n{\"ev\":\"step\",\"n\":1}\r\n\r\n{\"end\":\"clean\"}");
  EXPECT_EQ(trace.damaged_count, 0U);
  EXPECT_THAT(trace.steps, SizeIs(1));
  EXPECT_EQ(trace.end, End::clean);
}

TEST_F(TextReaderTest, InVersion2MembersMayBeRanges) {
  const std::string header = "{\"header\":2,\"rank\":1,\"world_size\":9}\n";
  const RankTrace trace = read(header + R"({"group":"a","ranks":[[0,3],8]}
{"group":"b","ranks":[[1,7,3],[0,0]]}
{"group":"c","ranks":[5,1]})");
  EXPECT_EQ(trace.damaged_count, 0U);
  ASSERT_THAT(trace.groups, SizeIs(3));
  EXPECT_THAT(trace.groups[0].ranks, ElementsAre(Rank(0), Rank(1), Rank(2), Rank(3), Rank(8)));
  EXPECT_THAT(trace.groups[1].ranks, ElementsAre(Rank(1), Rank(4), Rank(7), Rank(0)));
  EXPECT_THAT(trace.groups[2].ranks, ElementsAre(Rank(5), Rank(1)));
}

TEST_F(TextReaderTest, RangesOfNoRanksAreDamage) {
  const std::string header = "{\"header\":2,\"rank\":1,\"world_size\":9}\n";
  for (const char* ranks : {"[[3,0]]", "[[0,9]]", "[[0,4,3]]", "[[0,4,0]]", "[[0,4,-1]]", "[[0]]",
                            "[[]]", "[[0,1,1,1]]", "[[0,\"1\"]]", "[[[0,1]]]", "[-1]", "[9]"}) {
    const RankTrace trace = read(header + "{\"group\":\"a\",\"ranks\":" + ranks + "}");
    EXPECT_EQ(trace.damaged_count, 1U) << ranks;
    EXPECT_EQ(trace.damaged[0].message,
              "\"ranks\" holds what is neither a rank nor a range of ranks")
        << ranks;
  }
  const RankTrace twice = read(header + R"({"group":"a","ranks":[[0,3],2]})");
  EXPECT_EQ(twice.damaged[0].message, "a rank is in the group twice");
  // Readers of version 1 do not know them.
  const RankTrace old = read(kHeader + R"({"group":"a","ranks":[[0,1]]})");
  EXPECT_EQ(old.damaged[0].message, "\"ranks\" holds what is not an integer");
}

TEST_F(TextReaderTest, AnUnusableHeaderIsAnErrorWithItsLocation) {
  EXPECT_EQ(error(""), "t: the trace is empty");
  EXPECT_EQ(error("\n\n{\"ev\":\"step\",\"n\":1}\n"), "t:3: the first line is not a header");
  EXPECT_EQ(error("garbage\n" + kHeader), "t:1: no header: the line is not valid JSON");
  EXPECT_EQ(error(R"({"header":3,"rank":0,"world_size":1})"), "t:1: trace format 3 is not known");
  EXPECT_EQ(error(R"({"header":1,"world_size":1})"), "t:1: bad header: \"rank\" is missing");
  EXPECT_EQ(error(R"({"header":1,"rank":"0","world_size":1})"),
            "t:1: bad header: \"rank\" is not an integer");
  EXPECT_EQ(error(R"({"header":1,"rank":0,"world_size":0})"),
            "t:1: bad header: \"world_size\" is out of range");
  EXPECT_EQ(error(R"({"header":1,"rank":0,"world_size":16777217})"),
            "t:1: bad header: \"world_size\" is out of range");
  EXPECT_EQ(error(R"({"header":1,"rank":4,"world_size":4})"),
            "t:1: bad header: rank 4 is not below world_size 4");
  EXPECT_EQ(error(R"({"header":1,"rank":0,"world_size":4,"semantics":"x"})"),
            "t:1: bad header: \"semantics\" is not known");
}

struct DamageCase {
  const char* lines;
  const char* damage;
};

class DamagedLineTest : public TextReaderTest, public testing::WithParamInterface<DamageCase> {};

TEST_P(DamagedLineTest, IsCountedWithItsLocation) {
  EXPECT_EQ(damage(GetParam().lines), GetParam().damage);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, DamagedLineTest,
    testing::Values(
        DamageCase{"{\"ev\":\"step\",\"n\":1}\n{\"ev\":\n{}\n", "t:3: the line is not valid JSON"},
        DamageCase{"{\"ev\":\"step\",", "t:2: the line was cut off"},
        DamageCase{"[1]\n", "t:2: the line is not a JSON object"},
        DamageCase{"{\"end\":\"\xFF\"}\n", "t:2: the line is not valid UTF-8"},
        DamageCase{"{\"ev\":\"step\",\"n\":99999999999999999999}\n",
                   "t:2: the line holds a number out of range"},
        DamageCase{"{\"ev\":\"step\",\"n\":1e30}\n", "t:2: \"n\" is not an integer"},
        DamageCase{"{\"ev\":3}\n", "t:2: \"ev\" is not a string"},
        DamageCase{"{\"ev\":\"step\"}\n", "t:2: \"n\" is missing"},
        DamageCase{"{\"ev\":\"step\",\"n\":1,\"loss\":\"low\"}\n", "t:2: \"loss\" is not a number"},
        DamageCase{"{\"ev\":\"issue\",\"id\":1,\"g\":\"w\"}\n", "t:2: \"op\" is missing"},
        DamageCase{"{\"ev\":\"issue\",\"id\":-1,\"g\":\"w\",\"op\":\"barrier\"}\n",
                   "t:2: \"id\" is out of range"},
        DamageCase{"{\"ev\":\"issue\",\"id\":1,\"g\":\"w\",\"op\":\"barrier\",\"async\":1}\n",
                   "t:2: \"async\" is neither true nor false"},
        DamageCase{"{\"ev\":\"issue\",\"id\":1,\"g\":\"w\",\"op\":\"reduce\",\"root\":4}\n",
                   "t:2: \"root\" is out of range"},
        DamageCase{"{\"ev\":\"issue\",\"id\":1,\"g\":\"w\",\"op\":\"reduce\",\"in\":[[-1]]}\n",
                   "t:2: \"in\" holds a negative size"},
        DamageCase{"{\"ev\":\"issue\",\"id\":1,\"g\":\"w\",\"op\":\"reduce\",\"in\":[4]}\n",
                   "t:2: \"in\" holds what is not a shape"},
        DamageCase{"{\"ev\":\"issue\",\"id\":1,\"g\":\"w\",\"op\":\"reduce\",\"what\":[4]}\n",
                   "t:2: \"what\" holds what is not a string"},
        DamageCase{"{\"ev\":\"issue\",\"id\":1,\"g\":\"w\",\"op\":\"reduce\",\"hash\":\"xyz\"}\n",
                   "t:2: \"hash\" is not a 64-bit number in hexadecimal"},
        DamageCase{"{\"ev\":\"issue\",\"id\":2,\"g\":\"w\",\"op\":\"barrier\"}\n"
                   "{\"ev\":\"issue\",\"id\":2,\"g\":\"w\",\"op\":\"barrier\"}\n",
                   "t:3: the id does not grow"},
        DamageCase{"{\"ev\":\"complete\",\"id\":2}\n",
                   "t:2: no call with that id was issued before"},
        DamageCase{"{\"group\":\"w\"}\n", "t:2: \"ranks\" is missing"},
        DamageCase{"{\"group\":\"w\",\"ranks\":[]}\n", "t:2: a group without ranks"},
        DamageCase{"{\"group\":\"w\",\"ranks\":[0,4]}\n",
                   "t:2: a rank of the group is not below world_size"},
        DamageCase{"{\"group\":\"w\",\"ranks\":[1,0,1]}\n", "t:2: a rank is in the group twice"},
        DamageCase{"{\"group\":\"w\",\"ranks\":[0]}\n{\"group\":\"w\",\"ranks\":[1]}\n",
                   "t:3: the group was declared before with other ranks"},
        DamageCase{"{\"header\":1,\"rank\":0,\"world_size\":4}\n", "t:2: a second header"},
        DamageCase{"{\"end\":\"never\"}\n", "t:2: an end mark that is not known"},
        DamageCase{"{\"end\":\"clean\"}\n{\"end\":\"clean\"}\n",
                   "t:3: a line after the end mark"}));

TEST_F(TextReaderTest, NulBytesDamageTheirLineOnly) {
  const RankTrace trace =
      read_events(std::string("{\"ev\":\"step\",\0\"n\":1}\n{\"ev\":\"step\",\"n\":2}\n", 41));
  EXPECT_EQ(trace.damaged_count, 1U);
  ASSERT_THAT(trace.steps, SizeIs(1));
  EXPECT_EQ(trace.steps[0].n, 2);
}

TEST_F(TextReaderTest, OnlyTheFirstDamagedLinesAreKept) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\n";
  const RankTrace trace = read_events(lines);
  EXPECT_EQ(trace.damaged_count, 100U);
  EXPECT_THAT(trace.damaged, SizeIs(RankTrace::kDamagedKept));
}

TEST_F(TextReaderTest, DeepNestingIsDamageEvenInAKeyNobodyKnows) {
  const std::string deep(100000, '[');
  EXPECT_EQ(damage("{\"x\":" + deep + "\n"), "t:2: the line is not valid JSON");
  EXPECT_EQ(damage("{\"x\":" + deep + std::string(100000, ']') + "}\n"),
            "t:2: the line nests too deeply");
}

TEST_F(TextReaderTest, AShapeOfAMillionDimensionsAndSizesThatOverflow) {
  std::string shape;
  for (int i = 0; i < 1000000; ++i) shape += "9,";
  const RankTrace trace = read_events("{\"ev\":\"issue\",\"id\":0,\"g\":\"w\",\"op\":\"barrier\"," +
                                      ("\"in\":[[" + shape + "9]]}\n"));
  EXPECT_EQ(trace.damaged_count, 0U);
  EXPECT_EQ(signature(trace.calls[0]).in_elements, INT64_MAX);
}

TEST_F(TextReaderTest, AGroupOfAMillionRanks) {
  std::string ranks = "0";
  for (int i = 1; i < 1000000; ++i) ranks += "," + std::to_string(i);
  const RankTrace trace = read("{\"header\":1,\"rank\":0,\"world_size\":1000000}\n" +
                               ("{\"group\":\"world\",\"ranks\":[" + ranks + "]}\n"));
  EXPECT_EQ(trace.damaged_count, 0U);
  EXPECT_THAT(trace.groups.at(0).ranks, SizeIs(1000000));
}

TEST_F(TextReaderTest, ATypeListOfEqualNamesIsOneName) {
  const RankTrace trace = read_events(
      R"({"ev":"issue","id":0,"g":"w","op":"barrier","dtype":"float32"}
{"ev":"issue","id":1,"g":"w","op":"barrier","dtype":["float32","float32"]})");
  EXPECT_EQ(trace.calls[0].signature, trace.calls[1].signature);
}

TEST_F(TextReaderTest, AnOperationThatTheFormatDoesNotList) {
  const RankTrace trace = read_events(R"({"ev":"issue","id":0,"g":"w","op":"my_op"})");
  EXPECT_EQ(signature(trace.calls[0]).op, Op::other);
  EXPECT_EQ(tables_.str(signature(trace.calls[0]).other_op), "my_op");
}

}  // namespace
}  // namespace lockstep::trace
