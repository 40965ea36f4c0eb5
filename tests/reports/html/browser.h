// Opens report pages in Chromium, as a reader's browser would. Without Chromium the tests say that
// they were skipped.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace lockstep::reports {

struct Browsed {
  std::string dom;      // the document after parsing, as markup
  std::string console;  // what the page made the browser log
};

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("chromium --version >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "NOT TESTED: there is no chromium (scripts/setup core browser)";
  }

  Browsed open(const std::string& page) const {
    return browse(folder_.write("page.html", page), "");
  }

  // Opens a page inside of another one, whose script acts on it as a reader would: it can use
  // `doc`, the page's document. What `says`, an expression, then gives is in the result's dom.
  Browsed act(const std::string& page, const std::string& script, const std::string& says) const {
    folder_.write("page.html", page);
    return browse(
        folder_.write("outer.html",
                      "<iframe src=\"page.html\"></iframe><pre></pre><script>"
                      "document.querySelector('iframe').addEventListener('load', (event) => {"
                      "const doc = event.target.contentDocument;" +
                          script + ";document.querySelector('pre').textContent = " + says +
                          ";});</script>"),
        "--allow-file-access-from-files ");
  }

  // Lines that come from the page; the browser has much to say about itself.
  static std::string console(const std::string& log) {
    std::string out;
    for (std::size_t begin = 0; begin < log.size();) {
      const std::size_t end = std::min(log.find('\n', begin), log.size());
      const std::string line = log.substr(begin, end - begin);
      if (line.find("CONSOLE") != std::string::npos) out += line + "\n";
      begin = end + 1;
    }
    return out;
  }

 private:
  Browsed browse(const std::string& file, const std::string& options) const {
    // Without its sandbox, which containers rarely allow; what is opened is our own page.
    const std::string command =
        "timeout 120 chromium --headless --no-sandbox --disable-gpu --no-first-run "
        "--disable-dev-shm-usage --enable-logging=stderr " +
        options + "--user-data-dir=" + folder_.file("profile") + " --dump-dom file://" + file +
        " >" + folder_.file("dom") + " 2>" + folder_.file("log");
    EXPECT_EQ(std::system(command.c_str()), 0) << TempDir::read(folder_.file("log"));
    return {TempDir::read(folder_.file("dom")), console(TempDir::read(folder_.file("log")))};
  }

  TempDir folder_;
};

}  // namespace lockstep::reports
