#include "reports/html/page.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <gmock/gmock.h>

#include "reports/html/markup.h"
#include "tests/reports/html/page_reader.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(HtmlText, HasNoMeaningInMarkup) {
  EXPECT_EQ(html::text("rank 2, step 3"), "rank 2, step 3");
  EXPECT_EQ(html::text("<b a='1' c=\"2\">&"), "&lt;b a=&apos;1&apos; c=&quot;2&quot;&gt;&amp;");
  EXPECT_EQ(html::text("a\nb\x01\xff"), "a\\x0ab\\x01\xef\xbf\xbd");
  for (int c = 1; c < 128; ++c) {
    const std::string out = html::text(std::string(1, static_cast<char>(c)));
    EXPECT_EQ(out.find_first_of("<>\"'"), std::string::npos) << c;
  }
}

TEST(HtmlPage, IsWellFormed) {
  const Page page = read_page(html::page("a <title>", "<p>text</p>\n"));
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_EQ(page.texts("title").at(0), "a <title>");
  EXPECT_EQ(page.texts("p").at(0), "text");
}

// The hash of an empty style sheet, by `openssl dgst -sha256 -binary | base64`.
TEST(HtmlPage, ThePolicyAllowsItsStyleSheetAndNothingElse) {
  EXPECT_EQ(html::content_security_policy(""),
            "default-src 'none'; style-src 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; "
            "base-uri 'none'; form-action 'none'");
  EXPECT_THAT(html::content_security_policy("a{}"), Not(HasSubstr("47DEQpj8")));
  const std::string page = html::page("t", "");
  EXPECT_THAT(page, HasSubstr(html::content_security_policy(html::html_style())));
  EXPECT_LT(page.find("Content-Security-Policy"), page.find("<style>"));
}

TEST(HtmlPage, ThePolicyAllowsTheScriptOnlyWhereThePageHasIt) {
  EXPECT_THAT(html::page("t", ""), Not(HasSubstr("script")));
  const std::string page = html::page("t", "", html::Scripts::explore);
  EXPECT_THAT(page,
              HasSubstr(html::content_security_policy(html::html_style(), html::explore_script())));
  EXPECT_THAT(html::content_security_policy("", "x"), HasSubstr("; script-src 'sha256-"));
  EXPECT_THAT(read_page(page).errors, IsEmpty());
  // The script makes text only by textContent, and asks nothing of the network.
  for (const char* bad : {"innerHTML", "eval", "fetch", "http", "</", "insertAdjacentHTML"})
    EXPECT_THAT(std::string(html::explore_script()), Not(HasSubstr(bad))) << bad;
}

// --- Contrast (WCAG 2.2, 1.4.3): the ratio of relative luminances, as its definition has it.

double channel(const std::string& hex, std::size_t at) {
  const double value =
      static_cast<double>(std::strtol(hex.substr(at, 2).c_str(), nullptr, 16)) / 255;
  return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
}

double luminance(const std::string& hex) {
  return 0.2126 * channel(hex, 1) + 0.7152 * channel(hex, 3) + 0.0722 * channel(hex, 5);
}

double contrast(const std::string& a, const std::string& b) {
  const double light = std::max(luminance(a), luminance(b));
  const double dark = std::min(luminance(a), luminance(b));
  return (light + 0.05) / (dark + 0.05);
}

// The n-th value that the style sheet gives to a colour.
std::string colour(const std::string& name, int n) {
  const std::string style(html::html_style());
  std::size_t at = 0;
  for (int i = 0; i <= n; ++i) at = style.find("--" + name + ": #", at + 1);
  return at == std::string::npos ? "" : style.substr(at + name.size() + 4, 7);
}

TEST(HtmlStyle, TheContrastIsComputedAsDefined) {
  EXPECT_NEAR(contrast("#ffffff", "#000000"), 21, 1e-9);
  EXPECT_NEAR(contrast("#767676", "#ffffff"), 4.54, 0.01) << "the known grey of 4.5";
}

TEST(HtmlStyle, TextCanBeReadInLightInDarkAndInPrint) {
  for (int theme = 0; theme < 3; ++theme) {
    for (const char* ground : {"paper", "sheet", "faint"})
      for (const char* ink : {"ink", "soft", "link", "error", "warning", "good"})
        EXPECT_GE(contrast(colour(ink, theme), colour(ground, theme)), 4.5)
            << ink << " on " << ground << ", theme " << theme;
    for (const std::string look : {"error", "warning", "good"})
      for (const std::string& ink : {look, std::string("ink"), std::string("soft")})
        EXPECT_GE(contrast(colour(ink, theme), colour(look + "-ground", theme)), 4.5)
            << ink << " on " << look << ", theme " << theme;
  }
  EXPECT_EQ(colour("ink", 3), "") << "a fourth theme would not have been looked at";
}

}  // namespace
}  // namespace lockstep::reports
