// docs/tutorial.md and docs/replay.md, as a reader would follow them: their files are saved and
// their commands run, in order, on real processes. A command ends with 0 unless a comment after it
// says otherwise.
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

struct Action {
  std::string command;  // empty: a file is saved
  int status = 0;
  std::string file, text;
};

constexpr std::string_view kIndent = "    ";

Action command_of(const std::string& line) {
  Action out;
  const std::size_t comment = line.find('#');
  out.command = line.substr(0, comment);
  constexpr std::string_view kStatus = "# exit status ";
  if (comment != std::string::npos && line.substr(comment).starts_with(kStatus))
    out.status = std::stoi(line.substr(comment + kStatus.size()));
  return out;
}

std::vector<Action> actions_of(const std::string& page) {
  std::vector<Action> out;
  std::istringstream lines(page);
  std::string saved;  // the file that the next indented block is
  bool in_file = false;
  for (std::string line; std::getline(lines, line);) {
    const bool indented = line.starts_with(kIndent);
    if (indented && !saved.empty()) {
      out.push_back({"", 0, std::exchange(saved, ""), ""});
      in_file = true;
    }
    in_file = in_file && indented;
    const std::string text = indented ? line.substr(kIndent.size()) : "";
    if (in_file) {
      out.back().text += text + "\n";
    } else if (indented) {
      out.push_back(command_of(text));
    }
    constexpr std::string_view kSave = "ave as `";
    if (const std::size_t at = line.find(kSave); !indented && at != std::string::npos) {
      const std::size_t begin = at + kSave.size();
      saved = line.substr(begin, line.find('`', begin) - begin);
    }
  }
  return out;
}

// Does it all in a folder that holds `scenarios/`.
void follow(const std::vector<Action>& actions) {
  const TempDir folder;
  std::filesystem::create_directory_symlink(LOCKSTEP_SOURCE_DIR "/scenarios",
                                            folder.file("scenarios"));
  for (const Action& action : actions) {
    if (action.command.empty()) {
      folder.write(action.file, action.text);
      continue;
    }
    SCOPED_TRACE(action.command);
    const std::string run = "cd " + folder.path() +
                            " && PATH=" LOCKSTEP_PROGRAM_FOLDER ":$PATH && " + action.command +
                            " > log 2>&1";
    const int status = std::system(run.c_str());
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), action.status) << TempDir::read(folder.file("log"));
  }
}

TEST(Tutorial, GoesAsItSays) {
  const std::vector<Action> actions =
      actions_of(TempDir::read(LOCKSTEP_SOURCE_DIR "/docs/tutorial.md"));
  follow(actions);
  EXPECT_EQ(std::count_if(actions.begin(), actions.end(),
                          [](const Action& a) { return a.command.empty(); }),
            2);
  EXPECT_GT(actions.size(), 12U);
}

TEST(ReplayPage, GoesAsItSays) {
  const std::string page = TempDir::read(LOCKSTEP_SOURCE_DIR "/docs/replay.md");
  const std::size_t begin = page.find("## Try it"), end = page.find("## What is replayed");
  ASSERT_LT(begin, end);
  const std::vector<Action> actions = actions_of(page.substr(begin, end - begin));
  follow(actions);
  EXPECT_EQ(actions.size(), 7U);
}

}  // namespace
}  // namespace lockstep
