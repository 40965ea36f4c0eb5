#include "runtime/worker/commands.h"

#include <algorithm>
#include <sstream>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>

#include "tests/runtime/data/shared_data.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Ran {
  int status = 0;
  std::string out, err;
};

// `lockstep-worker data …`, in this process.
Ran run(std::vector<std::string> arguments) {
  CLI::App app("lockstep-worker");
  const DataCommands data(app);
  arguments.insert(arguments.begin(), "data");
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Ran ran;
  try {
    app.parse(arguments);
    ran.status = data.run();
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    ran.status = app.exit(error, out, out) == 0 ? 0 : 2;
    std::fputs(out.str().c_str(), stdout);
  }
  ran.out = testing::internal::GetCapturedStdout();
  ran.err = testing::internal::GetCapturedStderr();
  return ran;
}

TEST(DataSampler, PrintsALinePerRank) {
  const Ran ran = run({"sampler", "--n", "10", "--world-size", "3", "--seed", "0", "--epoch", "1"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out,
            "{\"rank\":0,\"indices\":[5,2,9,4]}\n{\"rank\":1,\"indices\":[6,0,3,5]}\n"
            "{\"rank\":2,\"indices\":[1,8,7,6]}\n");
  EXPECT_EQ(run({"sampler", "--n", "4", "--world-size", "2", "--no-shuffle", "--drop-last"}).out,
            "{\"rank\":0,\"indices\":[0,2]}\n{\"rank\":1,\"indices\":[1,3]}\n");
  EXPECT_EQ(run({"sampler", "--n", "0", "--world-size", "2"}).status, 2);
}

TEST(DataCheckCommand, ExitsByWhatItFound) {
  const TemporaryFolder folder;
  const std::string shapes = (folder.path() / "shapes").string();
  ASSERT_EQ(run({"shapes", shapes, "--items", "5", "--side", "8"}).status, 0);
  const Ran fine = run({"check", shapes, "--vocab", shapes + "/vocab.txt"});
  EXPECT_EQ(fine.status, 0);
  EXPECT_THAT(fine.out, HasSubstr("items           5\nimage and text  5 (100 %)"));
  fs::resize_file(shapes + "/images/000003.png", 20);
  const Ran found = run({"check", shapes});
  EXPECT_EQ(found.status, 1);
  EXPECT_THAT(found.out, HasSubstr("captions.csv:5: image \"images/000003.png\": not a readable"));
  const Ran bad = run({"check", shapes + "/none"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr("error:"));
}

TEST(DataImage, WritesAnArray) {
  const TemporaryFolder folder;
  const std::string image = folder.write("a.png", png_of(gradient(5, 4)));
  const std::string array = (folder.path() / "a.npy").string();
  EXPECT_EQ(run({"image", image, "--npy", array, "--side", "6"}).status, 0);
  EXPECT_EQ(fs::file_size(array), 128U + 3U * 6U * 6U * 4U);
  EXPECT_EQ(run({"image", folder.write("b.png", "x"), "--npy", array}).status, 2);
  EXPECT_EQ(run({"image", image, "--npy", "/nowhere/at/all.npy"}).status, 2);
}

TEST(DataCommand, HelpFitsEightyColumns) {
  for (const char* command : {"check", "tokenize", "sampler", "image", "shapes"}) {
    std::istringstream help(run({command, "--help"}).out);
    for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

}  // namespace
}  // namespace lockstep::runtime
