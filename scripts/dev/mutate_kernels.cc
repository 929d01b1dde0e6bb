// Runs the cases of testdata/kernels/cases.json on kernels with one wrong formula each, on the CPU and on the emulated
// device. Built by
// scripts/dev/mutate_kernels.py, which put the wrong formulas into a copy of the kernels' sources; each is behind
// `ew_mutant(n)`, so that one program holds them all.
//
// The test "[.mutants]" writes to EPWEAVE_MUTATION_RESULT a line per kernel and mutant that it reaches:
// "TARGET MUTANT found" or "TARGET MUTANT survives", until one finds it. A mutant is run in a child: it may crash or
// never end. EPWEAVE_MUTATION_PART of EPWEAVE_MUTATION_PARTS: only every so many kernels, so that several processes
// share the work. EPWEAVE_MUTATION_ONLY: the mutants to try, all if it is not set. EPWEAVE_MUTANT=n switches mutant n on in every other test.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "replay/kernels/device/both_devices.h"
#include "replay/kernels/host/conformance_run.h"
#include "replay/kernels/host/kernels.h"

int ew_active = std::getenv("EPWEAVE_MUTANT") ? std::atoi(std::getenv("EPWEAVE_MUTANT")) : 0;
unsigned char ew_reached[EW_MUTANTS + 1];

namespace epweave::replay {
namespace {

// Of processor time, the machine may be busy: beside several times what the cases take without a wrong formula.
constexpr rlim_t kSecondsOfMutant = 5;
rlim_t seconds_of_cases = 0;

// "" or how the device's kernel differs from the CPU's.
std::string difference_on_device(const Json& json) {
  HostMemory memory;
  CaseReader reader(memory, call_where_args_are);
  std::vector<Value> args;
  for (const Json& arg : json.at("args")) args.push_back(reader.value(arg));
  const std::string difference = run_both(*find_op(json.at("op").get<std::string>()), args);
  return difference == "refused" ? "" : difference;
}

// "" or how the CPU's kernel differs from PyTorch, or the device's from the CPU's.
std::string difference_of(const KernelTable& table, const Json& json) {
  try {
    const std::string difference = run_case(table, json);
    return difference.empty() ? difference_on_device(json) : difference;
  } catch (const std::exception& error) {
    return std::string("throws: ") + error.what();
  }
}

bool all_pass(const KernelTable& table, const std::vector<Json>& cases) {
  return std::all_of(cases.begin(), cases.end(),
                     [&](const Json& json) { return difference_of(table, json).empty(); });
}

// The child's exit is 0 where the mutant survives.
bool survives(int mutant, const KernelTable& table, const std::vector<Json>& cases) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlim_t seconds = kSecondsOfMutant + 4 * seconds_of_cases;
    const rlimit time{seconds, seconds};
    setrlimit(RLIMIT_CPU, &time);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
    close(STDERR_FILENO);  // where the allocator and the sanitizer would complain
    ew_active = mutant;
    _exit(all_pass(table, cases) ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int number_in(const char* variable, int otherwise) {
  const char* given = std::getenv(variable);
  return given == nullptr ? otherwise : std::atoi(given);
}

std::set<int> wanted_mutants() {
  const char* given = std::getenv("EPWEAVE_MUTATION_ONLY");
  std::istringstream numbers(given == nullptr ? "" : given);
  return {std::istream_iterator<int>(numbers), std::istream_iterator<int>()};
}

}  // namespace

TEST_CASE("each mutant by the cases of each kernel that reaches it", "[.mutants]") {
  std::map<std::string, std::vector<Json>> by_op;
  for (const Json& json : read_cases()) by_op[json["op"].get<std::string>()].push_back(json);
  const KernelTable table = make_cpu_kernels();
  std::ofstream out(std::getenv("EPWEAVE_MUTATION_RESULT"));
  const std::set<int> wanted = wanted_mutants();
  const int parts = number_in("EPWEAVE_MUTATION_PARTS", 1);
  int turn = -number_in("EPWEAVE_MUTATION_PART", 0);
  std::set<int> found;
  for (const auto& [op, cases] : by_op) {
    if (turn++ % parts != 0) continue;
    std::fill(std::begin(ew_reached), std::end(ew_reached), std::uint8_t{0});
    const std::clock_t start = std::clock();
    bool is_right = true;
    for (const Json& json : cases) {
      INFO(op);
      const std::string difference = difference_of(table, json);
      CHECK(difference == "");
      is_right = is_right && difference.empty();
    }
    if (!is_right) continue;
    seconds_of_cases = static_cast<rlim_t>((std::clock() - start) / CLOCKS_PER_SEC);
    const std::vector<unsigned char> reached(std::begin(ew_reached), std::end(ew_reached));
    for (int mutant = 1; mutant <= EW_MUTANTS; ++mutant)
      if (reached[static_cast<std::size_t>(mutant)] != 0 && !found.contains(mutant) &&
          (wanted.empty() || wanted.contains(mutant))) {
        const bool is_found = !survives(mutant, table, cases);
        if (is_found) found.insert(mutant);
        out << op << ' ' << mutant << (is_found ? " found\n" : " survives\n");
      }
    out.flush();
  }
}

}  // namespace epweave::replay
