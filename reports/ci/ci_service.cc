// Which CI service runs this process, and which reports it shows.
#include <fmt/format.h>

#include "base/environment.h"
#include "reports/ci/ci_reports.h"

namespace lockstep::reports {

std::optional<CiService> ci_service_named(std::string_view name) {
  if (name == "github") return CiService::github;
  if (name == "gitlab") return CiService::gitlab;
  if (name == "junit") return CiService::junit;
  return std::nullopt;
}

CiEnvironment ci_environment_of_this_process() {
  return {environment_variable("GITHUB_ACTIONS"), environment_variable("GITLAB_CI"),
          environment_variable("GITHUB_STEP_SUMMARY")};
}

CiService ci_service(const CiEnvironment& environment) {
  if (environment.github_actions == "true") return CiService::github;
  if (environment.gitlab_ci == "true") return CiService::gitlab;
  return CiService::junit;
}

std::vector<std::string> ci_outputs(CiService service, const CiEnvironment& environment) {
  switch (service) {
    case CiService::github: {
      // Annotations are lines that the job prints.
      std::vector<std::string> out = {"sarif=lockstep.sarif", "github=-"};
      if (!environment.step_summary.empty())
        out.push_back(fmt::format("markdown={}", environment.step_summary));
      return out;
    }
    case CiService::gitlab:
      return {"junit=lockstep.xml", "gitlab=lockstep.codequality.json"};
    case CiService::junit:
      break;
  }
  return {"junit=lockstep.xml"};
}

}  // namespace lockstep::reports
