// The reports that a CI service reads from a job, for `lockstep verify --ci`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::reports {

enum class CiService {
  github,  // GitHub Actions
  gitlab,  // GitLab CI
  junit,   // any other: all of them read it
};
std::optional<CiService> ci_service_named(std::string_view name);

// Environment variables that the services set in a job; passed in, so that tests need no
// environment.
// https://docs.github.com/actions/reference/variables
// https://docs.gitlab.com/ci/variables/predefined_variables
struct CiEnvironment {
  std::string github_actions;  // GITHUB_ACTIONS: "true"
  std::string gitlab_ci;       // GITLAB_CI: "true"
  std::string step_summary;    // GITHUB_STEP_SUMMARY: the file that becomes the step's summary
};
CiEnvironment ci_environment_of_this_process();

CiService ci_service(const CiEnvironment& environment);

// The reports that the service shows, as --output takes them: KIND=PATH.
std::vector<std::string> ci_outputs(CiService service, const CiEnvironment& environment);

}  // namespace lockstep::reports
