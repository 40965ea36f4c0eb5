// docs/tutorial.md, as a reader would follow it: its files are saved and its commands run, in
// order, on real processes. A command ends with 0 unless a comment behind it says otherwise.
#include <sys/wait.h>

#include <cstdlib>
#include <sstream>

#include <gmock/gmock.h>

#include "support/temp_dir.h"

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

TEST(Tutorial, GoesAsItSays) {
  const TempDir folder;
  std::filesystem::create_directory_symlink(LOCKSTEP_SOURCE_DIR "/scenarios",
                                            folder.file("scenarios"));
  const std::vector<Action> actions =
      actions_of(TempDir::read(LOCKSTEP_SOURCE_DIR "/docs/tutorial.md"));
  std::size_t files = 0;
  for (const Action& action : actions) {
    if (action.command.empty()) {
      folder.write(action.file, action.text);
      ++files;
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
  EXPECT_EQ(files, 2U);
  EXPECT_GT(actions.size(), 12U);
}

}  // namespace
}  // namespace lockstep
