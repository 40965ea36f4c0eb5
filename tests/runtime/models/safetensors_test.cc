// The safetensors reader and writer: what is written comes back, and nothing in a file does harm.
#include "runtime/models/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  Safetensors()
      : folder_(fs::path(testing::TempDir()) / ("safetensors_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Safetensors() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "a.safetensors") const { return folder_ / name; }

  std::string put(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary) << bytes;
    return path();
  }
  static std::string bytes_in(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path folder_;
};

std::string with_header(const std::string& json, const std::string& data = {}) {
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i));
  return length + json + data;
}

template <class T>
TensorToStore tensor(const std::string& name, StoredType type, std::vector<std::int64_t> shape,
                     const std::vector<T>& values) {
  return {name, type, std::move(shape), std::as_bytes(std::span(values))};
}

// The tensor of that name, or nullptr.
const StoredTensor* find(const SafetensorsFile& file, const std::string& name) {
  const auto& all = file.header().tensors;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const StoredTensor& stored) { return stored.name == name; });
  return found == all.end() ? nullptr : &*found;
}

template <class T>
std::vector<T> values_of(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* found = find(file, name);
  if (found == nullptr) return {};
  std::vector<T> values(found->bytes() / sizeof(T));
  EXPECT_TRUE(file.read(*found, std::as_writable_bytes(std::span(values))));
  return values;
}

const std::vector<float> kSix = {1, 2, 3, 4, 5, 6};
const std::vector<std::int64_t> kOne = {7};
const std::vector<std::uint8_t> kThree = {8, 9, 10};

std::vector<TensorToStore> some_tensors() {
  return {tensor("odd", StoredType::U8, {3}, kThree), tensor("w", StoredType::F32, {2, 3}, kSix),
          tensor("steps", StoredType::I64, {}, kOne),
          tensor("none", StoredType::F32, {0, 4}, std::vector<float>{})};
}

TEST_F(Safetensors, WhatWasWrittenComesBack) {
  ASSERT_TRUE(write_safetensors(path(), some_tensors(), {{"format", "pt"}, {"step", "12"}}));
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file) << file.error().str();
  EXPECT_EQ(file->header().tensors.size(), 4U);
  EXPECT_THAT(values_of<float>(*file, "w"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(values_of<std::int64_t>(*file, "steps"), ElementsAre(7));
  EXPECT_THAT(values_of<std::uint8_t>(*file, "odd"), ElementsAre(8, 9, 10));
  EXPECT_THAT(find(*file, "w")->shape, ElementsAre(2, 3));
  EXPECT_THAT(find(*file, "none")->shape, ElementsAre(0, 4));
  EXPECT_EQ(find(*file, "w")->elements(), 6U);
  EXPECT_EQ(find(*file, "absent"), nullptr);
  EXPECT_EQ(file->header().metadata.at("step"), "12");
}

TEST_F(Safetensors, EveryTensorIsAlignedToItsType) {
  ASSERT_TRUE(write_safetensors(path(), some_tensors()));
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file);
  for (const StoredTensor& tensor : file->header().tensors) {
    EXPECT_EQ(tensor.begin % bytes_of(tensor.type), 0U) << tensor.name;
  }
  EXPECT_EQ(static_cast<unsigned char>(bytes_in(path())[0]) % 8, 0);
}

TEST_F(Safetensors, WritingReplacesAFileAndLeavesNothingBeside) {
  put("something else");
  ASSERT_TRUE(write_safetensors(path(), some_tensors()));
  EXPECT_TRUE(SafetensorsFile::open(path()));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Safetensors, WhatCannotBeStoredLeavesTheOldFile) {
  put("old");
  const auto refused = [&](const std::vector<TensorToStore>& tensors) {
    const Status written = write_safetensors(path(), tensors);
    return written ? std::string("written") : written.error().message;
  };
  EXPECT_THAT(
      refused({tensor("a", StoredType::U8, {3}, kThree), tensor("a", StoredType::U8, {3}, kThree)}),
      HasSubstr("appears twice"));
  EXPECT_THAT(refused({tensor("a", StoredType::U8, {4}, kThree)}), HasSubstr("takes 4"));
  EXPECT_THAT(refused({tensor("\xff", StoredType::U8, {3}, kThree)}), HasSubstr("UTF-8"));
  EXPECT_THAT(refused({tensor("__metadata__", StoredType::U8, {3}, kThree)}),
              HasSubstr("where the format allows none"));
  EXPECT_EQ(bytes_in(path()), "old");
  EXPECT_FALSE(write_safetensors(path("no/folder"), some_tensors()));
}

TEST_F(Safetensors, CutOffAnywhereItIsAnError) {
  ASSERT_TRUE(write_safetensors(path(), some_tensors(), {{"format", "pt"}}));
  const std::string whole = bytes_in(path());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto file = SafetensorsFile::open(put(whole.substr(0, size)));
    ASSERT_FALSE(file) << size;
    EXPECT_FALSE(file.error().fix.empty());
  }
}

TEST_F(Safetensors, NoFlippedBitOfTheLengthDoesHarm) {
  ASSERT_TRUE(write_safetensors(path(), some_tensors()));
  const std::string whole = bytes_in(path());
  for (std::size_t bit = 0; bit < 64; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(SafetensorsFile::open(put(bytes))) << bit;
  }
}

TEST_F(Safetensors, FilesOfOtherWritersNeedNotBePadded) {
  const auto file = SafetensorsFile::open(
      put(with_header(R"({"b":{"shape":[],"data_offsets":[0,1],"dtype":"BOOL"},)"
                      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[1,5]}})",
                      "\x01"
                      "abcd")));
  ASSERT_TRUE(file) << file.error().str();
  EXPECT_THAT(values_of<char>(*file, "a"), ElementsAre('a', 'b', 'c', 'd'));
}

TEST_F(Safetensors, AFileThatShrinksIsAnErrorWhenItIsRead) {
  ASSERT_TRUE(write_safetensors(path(), some_tensors()));
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file);
  fs::resize_file(path(), 20);
  std::vector<std::byte> values(24);
  const Status read = file->read(*find(*file, "w"), values);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("shorter"));
}

TEST_F(Safetensors, WhatIsNoSuchFileSaysSo) {
  EXPECT_FALSE(SafetensorsFile::open(path("absent")));
  EXPECT_FALSE(SafetensorsFile::open(folder_));
  EXPECT_THAT(SafetensorsFile::open(put("PK\x03\x04 a zip archive")).error().message,
              HasSubstr("header"));
  EXPECT_THAT(SafetensorsFile::open(put(std::string(8, '\0'))).error().message, HasSubstr("'{'"));
}

struct Bad {
  std::string json;
  std::uint64_t data_bytes;
  std::string problem;
};

TEST(SafetensorsHeader, SaysWhatIsWrong) {
  const std::string f4 = R"("dtype":"F32","shape":[1])";
  const std::vector<Bad> cases = {
      {"", 0, "begin with '{'"},
      {" {}", 0, "begin with '{'"},
      {"{", 0, "not JSON"},
      {"{}x", 0, "not JSON"},
      {"{}", 3, "3 bytes at the end belong to no tensor"},
      {R"({"a":1})", 0, "a number where"},
      {R"({"a":{"dtype":"F32"}})", 0, "needs 'dtype', 'shape' and 'data_offsets'"},
      {R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4, "'F99' is none of"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "a negative number"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "a fraction"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "a list in"},
      {R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4, "a list in"},
      {R"({"a":{)" + f4 + R"(,"data_offsets":[0]}})", 4, "needs two numbers"},
      {R"({"a":{)" + f4 + R"(,"data_offsets":[0,4,4]}})", 4, "a number in 'data_offsets'"},
      {R"({"a":{)" + f4 + R"(,"data_offsets":[4,0]}})", 4, "ends before it begins"},
      {R"({"a":{)" + f4 + R"(,"data_offsets":[0,8]}})", 4, "beyond the end of the file"},
      {R"({"a":{)" + f4 + R"(,"data_offsets":[0,3]}})", 3, "takes 4"},
      {R"({"a":{)" + f4 + R"(,"data_offsets":[1,5]}})", 5, "leaves a hole"},
      {R"({"a":{)" + f4 + R"(,"data_offsets":[0,4]},"b":{)" + f4 + R"(,"data_offsets":[2,6]}})", 6,
       "overlaps"},
      {R"({"a":{)" + f4 + R"(,"data_offsets":[0,4]},"a":{)" + f4 + R"(,"data_offsets":[4,8]}})", 8,
       "'a' appears twice"},
      {R"({"a":{)" + f4 + R"(,"shape":[1],"data_offsets":[0,4]}})", 4, "'shape' appears twice"},
      {R"({"a":{)" + f4 + R"(,"more":1,"data_offsets":[0,4]}})", 4, "unknown 'more'"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "more than a file can hold"},
      {R"({"__metadata__":{"a":1}})", 0, "a number in"},
      {R"({"a":null})", 0, "null where the format allows none"},
  };
  for (const Bad& bad : cases) {
    const auto header = parse_safetensors_header(bad.json, bad.data_bytes);
    ASSERT_FALSE(header) << bad.json;
    EXPECT_THAT(header.error().message, HasSubstr(bad.problem)) << bad.json;
  }
}

TEST(SafetensorsHeader, NoFlippedBitMakesATensorLeaveTheData) {
  std::string json = R"({"__metadata__":{"format":"pt"},"odd":{"dtype":"U8","shape":[3],)"
                     R"("data_offsets":[32,35]},"w":{"dtype":"F32","shape":[2,3],"data_offsets":)"
                     R"([8,32]},"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}   )";
  constexpr std::uint64_t kBytes = 35;
  ASSERT_TRUE(parse_safetensors_header(json, kBytes));
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * json.size(); ++bit) {
    json[bit / 8] = static_cast<char>(json[bit / 8] ^ (1 << bit % 8));
    const auto header = parse_safetensors_header(json, kBytes);
    if (!header) ++refused;
    // What still is a header (another name, F32 for I32) covers the data as before.
    std::uint64_t position = 0;
    for (const StoredTensor& each : header ? header->tensors : std::vector<StoredTensor>()) {
      EXPECT_EQ(each.begin, position);
      position = each.end;
    }
    EXPECT_TRUE(!header || position == kBytes) << bit;
    json[bit / 8] = static_cast<char>(json[bit / 8] ^ (1 << bit % 8));
  }
  EXPECT_GT(refused, 1000);
}

TEST(SafetensorsHeader, BracketsWithoutEndTakeNoMemory) {
  std::string json = R"({"a":{"dtype":"F32","data_offsets":[0,4],"shape":)";
  json.append(1'000'000, '[');
  EXPECT_THAT(parse_safetensors_header(json, 4).error().message, HasSubstr("a list in"));
  std::string ones = R"({"a":{"dtype":"U8","data_offsets":[0,1],"shape":[1)";
  for (int i = 0; i < 1000; ++i) ones += ",1";
  EXPECT_THAT(parse_safetensors_header(ones + "]}}", 1).error().message,
              HasSubstr("64 dimensions"));
}

TEST(SafetensorsHeader, NamesInMessagesAreSafeToPrint) {
  const auto header =
      parse_safetensors_header("{\"\\u001b[2J" + std::string(500, 'x') + "\":3}", 0);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().message.find('\x1b'), std::string::npos);
  EXPECT_LT(header.error().message.size(), 200U);
}

}  // namespace
}  // namespace lockstep::runtime
