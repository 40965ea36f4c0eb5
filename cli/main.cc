#include "cli/program.h"

int main(int argc, char** argv) { return lockstep::run_program(argc, argv); }
