// lockstep check-certificate FILE DIR: the independent checker.
#include <iostream>
#include <memory>
#include <string>

#include "base/read_file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/patience.h"
#include "trace/derivation.h"
#include "verify/product/check_certificate.h"

namespace lockstep {
namespace {

struct CheckCommand {
  std::string certificate, folder;
};

constexpr std::size_t kLargestCertificate = std::size_t{1} << 30U;

constexpr const char* kFooter = R"(Examples:
  Write a certificate for a derived program, and check it:
    lockstep verify --product derived/ --certificate safe.txt
    lockstep check-certificate safe.txt derived/
  In CI: the program still is the one that was proven safe:
    lockstep check-certificate safe.txt derived-today/

Exit status: 0 accepted, 1 refused (the line and the reason are printed),
2 a file cannot be read. docs/product.md says what is checked.)";

ExitStatus run_check(const CheckCommand& command) {
  const Result<std::string> text = read_file(command.certificate, kLargestCertificate);
  if (!text) return fail(text.error());
  const Patience patience("checking");
  const Result<Derivation> derivation = load_derivation(command.folder);
  if (!derivation) return fail(derivation.error());
  if (const Status accepted = check_certificate(*text, command.certificate, *derivation); !accepted)
    return fail(accepted.error(), ExitStatus::findings);
  std::cout << "ACCEPTED: " << printable(command.certificate) << " proves that "
            << printable(command.folder) << " neither diverges nor deadlocks\n";
  return ExitStatus::clean;
}

}  // namespace

void add_check_certificate(CLI::App& app, ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("check-certificate", "Check the proof that a program is safe");
  const auto options = std::make_shared<CheckCommand>();
  command->add_option("FILE", options->certificate, "The certificate")->type_name("")->required();
  command->add_option("DIR", options->folder, "The derivation that it speaks of")
      ->type_name("")
      ->required();
  command->footer(kFooter);
  command->callback([options, &status] { status = run_check(*options); });
}

}  // namespace lockstep
