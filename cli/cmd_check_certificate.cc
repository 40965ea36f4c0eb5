// lockstep check-certificate FILE PATH…: the independent checker.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/files/read_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "trace/derivation.h"
#include "trace/load.h"
#include "verify/checker/check_certificate.h"

namespace lockstep::cli {
namespace {

struct CheckCommand {
  std::string certificate;
  std::vector<std::string> paths;
  trace::LoadOptions load;
};

constexpr std::size_t kLargestCertificate = std::size_t{1} << 30U;

constexpr const char* kCheckCertificateFooter = R"(Examples:
  Write a certificate for a derived program, and check it:
    lockstep verify derived/ --certificate safe.txt
    lockstep check-certificate safe.txt derived/
  The same for a recorded run:
    lockstep verify traces/ --certificate run.txt
    lockstep check-certificate run.txt traces/
  In CI: is the program still the one that was proven safe?
    lockstep check-certificate safe.txt derived-today/

Exit status: 0 accepted, 1 refused (the line and the reason are printed),
2 a file cannot be read. docs/certificates.md says what is checked.)";

std::string accepted(const CheckCommand& command, const std::string& what) {
  return "ACCEPTED: " + printable(command.certificate) + " proves that " + what + "\n";
}

reports::ExitStatus check_program(const CheckCommand& command, const std::string& text) {
  if (command.paths.size() > 1) {
    return reports::fail({"the certificate is of a program, and several paths were given",
                          {command.paths[1]},
                          "give the folder that holds product.json"});
  }
  const Patience patience("checking");
  const Result<trace::Derivation> derivation = trace::load_derivation(command.paths.front());
  if (!derivation) return reports::fail(derivation.error());
  if (const Status ok = verify::check_certificate(text, command.certificate, *derivation); !ok)
    return reports::fail(ok.error(), reports::ExitStatus::findings);
  std::cout << accepted(command,
                        printable(command.paths.front()) + " neither diverges nor deadlocks");
  return reports::ExitStatus::clean;
}

reports::ExitStatus check_run(const CheckCommand& command, const std::string& text) {
  const Patience patience("checking");
  const Result<trace::Run> run = trace::load_run(command.paths, command.load);
  if (!run) return reports::fail(run.error());
  if (const Status ok = verify::check_run_certificate(text, command.certificate, *run); !ok)
    return reports::fail(ok.error(), reports::ExitStatus::findings);
  std::cout << accepted(command, "the run in " + printable(command.paths.front()) +
                                     " neither diverges nor deadlocks");
  return reports::ExitStatus::clean;
}

reports::ExitStatus run_check(const CheckCommand& command) {
  const Result<std::string> text = read_file(command.certificate, kLargestCertificate);
  if (!text) return reports::fail(text.error());
  const std::optional<verify::CertificateKind> kind = verify::certificate_kind(*text);
  if (!kind) {
    return reports::fail({"refused: it begins like no certificate that this version writes",
                          {command.certificate, 1, 0},
                          "give a file that --certificate wrote"},
                         reports::ExitStatus::findings);
  }
  return *kind == verify::CertificateKind::program ? check_program(command, *text)
                                                   : check_run(command, *text);
}

}  // namespace

void add_check_certificate(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("check-certificate", "Check the proof that a program or a run is safe");
  const auto options = std::make_shared<CheckCommand>();
  command->add_option("FILE", options->certificate, "The certificate")->type_name("")->required();
  command
      ->add_option("PATH", options->paths,
                   "What it certifies: the folder of the derivation, or\n"
                   "the traces of the run")
      ->type_name("")
      ->required();
  command->add_option("--format", options->load.format,
                      "For a run: read the files as this format;\ndefault: by content");
  command->add_option("--rank-pattern", options->load.rank_pattern,
                      "For a run: regular expression whose first\n"
                      "group is the rank in a file's name");
  command->footer(kCheckCertificateFooter);
  command->callback([options, &status] { status = run_check(*options); });
}

}  // namespace lockstep::cli
