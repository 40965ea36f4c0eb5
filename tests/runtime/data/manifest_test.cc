#include "runtime/data/manifest.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "runtime/data/manifest_readers.h"
#include "tests/runtime/data/shared_data.h"
#include "tests/runtime/data/tar_bytes.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Manifest opened(const std::string& source) {
  Result<Manifest> data = Manifest::open({source});
  EXPECT_TRUE(data) << data.error().str();
  return std::move(*data);
}

std::string manifest_error(const std::string& source) {
  const Result<Manifest> data = Manifest::open({source});
  return data ? "" : data.error().str();
}

// "line: problem" of the items that have one.
std::vector<std::string> problems(const Manifest& data) {
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const ManifestItem& item = data.item(i);
    if (!item.problem.empty()) {
      out.push_back(std::to_string(item.location.line) + ": " + item.problem);
    }
  }
  return out;
}

TEST(CaptionsFolder, PairsImagesWithCaptions) {
  const TemporaryFolder folder;
  folder.write("a.png", "A");
  folder.write("sub/b.png", "B");
  folder.write("captions.csv",
               "image,caption\r\na.png,\"one, \"\"two\"\"\nthree\"\r\nsub/b.png,b\r\n,only text\r\n"
               "a.png,\r\n");
  const Manifest data = opened(folder.path().string());
  ASSERT_EQ(data.size(), 4);
  EXPECT_THAT(problems(data), IsEmpty());
  EXPECT_EQ(*data.item(0).text, "one, \"two\"\nthree");
  EXPECT_EQ(data.item(1).location.line, 4);
  EXPECT_EQ(*data.read_image(1), "B");
  EXPECT_FALSE(data.item(2).image);
  EXPECT_FALSE(data.item(3).text);
}

TEST(CaptionsFolder, SaysOfEachRowWhatIsWrong) {
  const TemporaryFolder folder;
  folder.write("data/a.png", "A");
  folder.write("data/forgotten.jpg", "F");
  folder.write("outside.png", "O");
  fs::create_symlink(folder.path() / "outside.png", folder.path() / "data/link.png");
  folder.write("data/captions.csv",
               "caption,image\nx,a.png\nx,missing.png\nx,../outside.png\nx,link.png\nx\n,\n"
               "x,a.png\nother,a.png\nx,.\n");
  const Manifest data = opened((folder.path() / "data").string());
  EXPECT_THAT(
      problems(data),
      ElementsAre("3: the image \"missing.png\" is not there",
                  "4: the image \"../outside.png\" is outside the data set's folder",
                  "5: the image \"link.png\" is outside the data set's folder",
                  "6: the row has 1 field and the header 2", "7: neither an image nor a text",
                  "8: the same image and caption are on line 2",
                  "10: the image \".\" is not a file"));
  EXPECT_THAT(data.notes(), ElementsAre(HasSubstr("1 image in the folder without a row")));
}

TEST(CaptionsFolder, RefusesAnotherFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(manifest_error(folder.path().string()), HasSubstr("captions.csv"));
  folder.write("captions.csv", "");
  EXPECT_THAT(manifest_error(folder.path().string()),
              HasSubstr("captions.csv:1: error: the first line"));
  folder.write("captions.csv", "image,caption\n");
  EXPECT_THAT(manifest_error(folder.path().string()), HasSubstr("without items"));
  folder.write("captions.csv", "image,caption\na,b\nc,\"d\n");
  EXPECT_THAT(manifest_error(folder.path().string()),
              HasSubstr(":3: error: a quote that is never closed"));
  folder.write("captions.csv", "image,caption\na,\"b\"c\n");
  EXPECT_THAT(manifest_error(folder.path().string()), HasSubstr(":2: error: text after"));
}

TEST(Jsonl, ReadsItemsOfEveryKind) {
  const TemporaryFolder folder;
  folder.write("a.png", "A");
  const std::string file =
      folder.write("data.jsonl",
                   "{\"image\": \"a.png\", \"text\": \"t\", \"id\": \"first\"}\n\n"
                   "{\"image\": null, \"text\": \"only\", \"index\": 1}\n{\"image\": \"a.png\"}\n"
                   "{\"text\": \"\"}");
  const Manifest data = opened(file);
  ASSERT_EQ(data.size(), 4);
  EXPECT_THAT(problems(data), IsEmpty());
  EXPECT_EQ(data.item(0).id, "first");
  EXPECT_EQ(data.item(1).location.line, 3);
  EXPECT_EQ(data.item(2).id, "a.png");
  EXPECT_EQ(*data.item(3).text, "");
  EXPECT_EQ(data.misalignment(), "");
}

TEST(Jsonl, SaysOfEachLineWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string file = folder.write(
      "data.jsonl",
      "{\"text\": \"t\", \"index\": 0}\n{\"text\": \"t\", \"index\": 0}\n{\n[]\n{\"text\": 5}\n"
      "{\"image\": \"none.png\"}\n{}\n{\"text\": \"t\", \"id\": 7}\n{\"text\": \"u\", \"id\": 7}\n"
      "{\"text\": \"t\", \"index\": \"x\"}\n");
  EXPECT_THAT(problems(opened(file)),
              ElementsAre("2: the index 0 stands on line 1 already",
                          "3: the line is not a JSON object", "4: the line is not a JSON object",
                          "5: \"image\" and \"text\" are a string or null",
                          "6: the image \"none.png\" is not there",
                          "7: neither an image nor a text", "9: the id 7 stands on line 8 already",
                          "10: \"id\" is a string or a whole number, \"index\" a whole number"));
}

TEST(Jsonl, AnIndexOffByOneIsFound) {
  const TemporaryFolder folder;
  const std::string file = folder.write("data.jsonl",
                                        "{\"text\": \"a\", \"index\": 0}\n"
                                        "{\"text\": \"b\", \"index\": 2}\n");
  EXPECT_THAT(opened(file).misalignment(),
              HasSubstr("data.jsonl:2 declares index 2, but is item 1"));
}

TEST(Jsonl, RefusesAnotherKindOfFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(manifest_error(folder.write("x.txt", "hello\nworld\n")), HasSubstr("not a manifest"));
  EXPECT_THAT(manifest_error(folder.write("y.jsonl", "")), HasSubstr("without items"));
  EXPECT_THAT(manifest_error((folder.path() / "none.jsonl").string()), HasSubstr("cannot open"));
}

TEST(WebDataset, GroupsMembersByKeyAndReadsImagesInPlace) {
  const TemporaryFolder folder;
  const std::string long_key(150, 'k');
  folder.write("s-00.tar", tar_bytes({{"a/1.jpg", "JPEG-1"},
                                      {"a/1.txt", "one\n"},
                                      {"a/2.json", "{\"caption\": \"two\"}"},
                                      {"a/2.cls", "7"}}));
  folder.write("s-01.tar", tar_bytes({{long_key + ".png", std::string(1500, 'P')}}));
  const Manifest data = opened((folder.path() / "s-{00..01}.tar").string());
  ASSERT_EQ(data.size(), 3);
  EXPECT_THAT(problems(data), IsEmpty());
  EXPECT_EQ(data.item(0).id, "a/1");
  EXPECT_EQ(*data.item(0).text, "one");
  EXPECT_EQ(*data.read_image(0), "JPEG-1");
  EXPECT_EQ(*data.item(1).text, "two");
  EXPECT_FALSE(data.item(1).image);
  EXPECT_EQ(*data.read_image(2), std::string(1500, 'P'));
}

TEST(WebDataset, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.tar", tar_bytes({{"1.jpg", "J"},
                                                            {"1.png", "P"},
                                                            {"2.json", "["},
                                                            {"3.txt", "three"},
                                                            {"1.txt", "late"},
                                                            {"4.json", "{}"}}));
  EXPECT_THAT(problems(opened(file)),
              ElementsAre("0: two images: \"1.png\"", "0: its .json member is not a JSON object",
                          HasSubstr("the key \"1\" is in"), "0: neither an image nor a text"));
  EXPECT_THAT(manifest_error(folder.write("t.tar", "no tar at all")), HasSubstr("tar archive"));
}

TEST(Manifests, CutAnywhereTheyAreReadOrRefused) {
  const TemporaryFolder folder;
  folder.write("a.png", png_of(gradient(3, 3)));
  const std::string csv = "image,caption\na.png,\"a \"\"quoted\"\" one\"\na.png,b\n";
  const std::string jsonl =
      "{\"image\": \"a.png\", \"text\": \"\\u00e9\", \"index\": 0}\n{\"text\": \"x\"}\n";
  const std::string tar = tar_bytes({{"1.png", png_of(gradient(3, 3))}, {"1.txt", "one"}});
  const auto try_all = [&](const std::string& name, const std::string& all,
                           const std::string& source) {
    for (std::size_t size = 0; size <= all.size(); ++size) {
      folder.write(name, std::string_view(all).substr(0, size));
      const Result<Manifest> data = Manifest::open({source});
      if (!data) continue;
      for (std::int64_t i = 0; i < data->size(); ++i) {
        if (data->item(i).image && data->item(i).problem.empty()) {
          EXPECT_TRUE(data->read_image(i) || size < all.size());
        }
      }
    }
  };
  try_all("captions.csv", csv, folder.path().string());
  try_all("m.jsonl", jsonl, (folder.path() / "m.jsonl").string());
  try_all("m.tar", tar, (folder.path() / "m.tar").string());
}

TEST(Manifests, ACutArchiveDoesNotPassUnseen) {
  const TemporaryFolder folder;
  const std::string all = tar_bytes({{"1.txt", "one"}, {"2.jpg", std::string(3000, 'x')}});
  const Manifest data = opened(folder.write("m.tar", std::string_view(all).substr(0, 2000)));
  EXPECT_THAT(problems(data), ElementsAre(HasSubstr("cut off")));
}

TEST(Manifests, TheReferenceManifestOpens) {
  const auto file = shared_data("images/captions.jsonl");
  SKIP_WITHOUT(file);
  const Manifest data = opened(file.string());
  EXPECT_EQ(data.size(), 13);
  EXPECT_EQ(data.misalignment(), "");
  EXPECT_THAT(problems(data), ElementsAre("13: the image \"images/missing.jpg\" is not there"));
}

TEST(IndexMap, DigestsDistinguishMaps) {
  const TemporaryFolder folder;
  const auto digest = [&](const std::string& text) {
    return opened(folder.write("m.jsonl", text)).map().digest();
  };
  const std::uint64_t one = digest("{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  EXPECT_EQ(one, digest("{\"text\": \"a\"}\n{\"text\": \"b\"}\n"));
  EXPECT_NE(one, digest("{\"text\": \"b\"}\n{\"text\": \"a\"}\n"));
  EXPECT_NE(one, digest("{\"text\": \"a\"}\n"));
}

TEST(Shards, BracesAreWrittenOut) {
  EXPECT_THAT(*expand_braces("a-{08..10}.tar"), ElementsAre("a-08.tar", "a-09.tar", "a-10.tar"));
  EXPECT_THAT(*expand_braces("{a,b}{0..1}"), ElementsAre("a0", "a1", "b0", "b1"));
  EXPECT_THAT(*expand_braces("plain"), ElementsAre("plain"));
  for (const char* bad : {"{0..1", "{3..1}", "{0..9999999}", "{a..b}", "{0..999}{0..999}{0..9}"}) {
    EXPECT_FALSE(expand_braces(bad)) << bad;
  }
}

}  // namespace
}  // namespace lockstep::runtime
