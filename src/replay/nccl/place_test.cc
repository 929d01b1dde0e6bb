#include "replay/nccl/place.h"

#include <catch2/catch.hpp>
#include <map>

#include "base/error.h"

namespace epweave::replay::nccl {
namespace {

using Environment = std::map<std::string, std::string>;

RankPlace find(const Environment& environment, const PlaceOptions& options = {}) {
  return find_place(options, [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string problem_of(const Environment& environment, const PlaceOptions& options = {}) {
  try {
    find(environment, options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

const Environment kTorchrun{{"RANK", "5"},           {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "node"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "x"},
                            {"SLURM_PROCID", "0"},   {"SLURM_NTASKS", "1"}};

}  // namespace

TEST_CASE("torchrun's variables go before srun's, and its own port is left to it") {
  Environment environment = kTorchrun;
  RankPlace place = find(environment);
  CHECK(place.launcher == "torchrun");
  CHECK(place.rank == 5);
  CHECK(place.ranks == 8);
  CHECK(place.local_rank == 1);
  CHECK(place.local_ranks == 1);
  CHECK(place.host == "node");
  CHECK(place.port == 29500);
  CHECK(place.ports == 1);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  CHECK(find(environment).port == 29501);
  CHECK(find(environment).ports == 8);
  // Two launchers that were given no name, at ports whose ranges meet.
  const std::string job = find(environment).job;
  environment["MASTER_PORT"] = "29501";
  CHECK(find(environment).job != job);
  environment["MASTER_PORT"] = "65533";
  CHECK(find(environment).ports == 2);
  environment["TORCHELASTIC_RESTART_COUNT"] = "1";
  CHECK(find(environment).job != place.job);
}

TEST_CASE("srun's ranks meet at the first host of the step, at the job's port") {
  const Environment environment{{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "4"},
                                {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NODELIST", "gpu[07-08],login"},
                                {"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "0"}};
  const RankPlace place = find(environment);
  CHECK(place.launcher == "srun");
  CHECK(place.rank == 3);
  CHECK(place.host == "gpu07");
  CHECK(place.port >= 20000);
  Environment other = environment;
  other["SLURM_JOB_ID"] = "18";
  CHECK(find(other).port != place.port);
  other["MASTER_PORT"] = "1234";
  CHECK(find(other).port == 1234);
}

TEST_CASE("how many ranks are on this host") {
  Environment torchrun = kTorchrun;
  torchrun["LOCAL_WORLD_SIZE"] = "2";
  CHECK(find(torchrun).local_ranks == 2);

  Environment srun{{"SLURM_PROCID", "6"},        {"SLURM_NTASKS", "7"},
                   {"SLURM_NODEID", "3"},        {"SLURM_STEP_NODELIST", "gpu[1-4]"},
                   {"SLURM_JOB_ID", "17"},       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                   {"SLURM_TASKS_PER_NODE", "8"}};
  CHECK(find(srun).local_ranks == 1);
  srun["SLURM_NODEID"] = "2";
  CHECK(find(srun).local_ranks == 2);
  srun.erase("SLURM_STEP_TASKS_PER_NODE");
  srun["SLURM_NODEID"] = "0";
  CHECK(find(srun).local_ranks == 8);
  srun["SLURM_TASKS_PER_NODE"] = "many";
  CHECK(find(srun).local_ranks == 1);

  const Environment mpirun{{"OMPI_COMM_WORLD_RANK", "0"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"MASTER_PORT", "1"}};
  CHECK(find(mpirun).local_ranks == 4);
}

TEST_CASE("tasks of a host") {
  CHECK(tasks_of_host("4", 0) == 4U);
  CHECK(tasks_of_host("4", 1) == std::nullopt);
  CHECK(tasks_of_host("2(x3),1,5(x2)", 4) == 5U);
  CHECK(tasks_of_host("2(x3", 0) == std::nullopt);
  CHECK(tasks_of_host("", 0) == std::nullopt);
}

TEST_CASE("the first host of a list") {
  CHECK(first_host("a") == "a");
  CHECK(first_host("a,b") == "a");
  CHECK(first_host("a[3]") == "a3");
  CHECK(first_host("a[3,5-7]-ib,b[1-2]") == "a3-ib");
  CHECK(first_host("a,b[1-2]") == "a");
}

TEST_CASE("options go before variables") {
  const RankPlace place = find(kTorchrun, {1, 2, {}, "host:77"});
  CHECK(place.launcher == "options");
  CHECK(place.rank == 1);
  CHECK(place.ranks == 2);
  CHECK(place.host == "host");
  CHECK(place.port == 77);
  CHECK(find(kTorchrun, {{}, {}, {}, "file:/x/y"}).file == "/x/y");
  CHECK(find(kTorchrun, {2, {}, {}, ""}).ranks == 8);
}

TEST_CASE("what is missing or wrong is named") {
  CHECK(problem_of({}).find("no rank and number of ranks is known") != std::string::npos);
  CHECK(problem_of({}, {1, {}, {}, ""}).find("no number of ranks is known") != std::string::npos);
  CHECK(problem_of(kTorchrun, {8, {}, {}, ""}) == "rank 8 is not one of 8 ranks");
  CHECK(problem_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}) == "RANK=-1 is not a number");
  CHECK(problem_of(kTorchrun, {{}, {}, {}, "host"}) ==
        "--rendezvous host: is neither HOST:PORT nor file:PATH");
  CHECK(problem_of(kTorchrun, {{}, {}, {}, "host:0"}) == "--rendezvous is no port");
  CHECK(problem_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}})
            .find("no port to meet at") != std::string::npos);
}

}  // namespace epweave::replay::nccl
