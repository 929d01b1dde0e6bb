#include "replay/nccl/place.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/parse_number.h"

namespace epweave::replay::nccl {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* local_ranks;  // null: not a number of its own
};

constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

class PlaceFinder {
 public:
  PlaceFinder(const PlaceOptions& options, const Variables& variables)
      : options_(options), variables_(variables) {}

  RankPlace find() {
    find_ranks();
    find_job();
    find_meeting_point();
    return place_;
  }

 private:
  bool has(const char* name) const { return !text(name).empty(); }
  std::string text(const char* name) const {
    const char* value = variables_(name);
    return value == nullptr ? "" : value;
  }
  std::optional<std::uint32_t> number(const char* name) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    const auto found = parse_number<std::uint32_t>(value);
    if (!found) throw UsageError(fmt::format("{}={} is not a number", name, value));
    return found;
  }

  void find_ranks() {
    place_.launcher = "options";
    std::optional<Rank> rank = options_.rank, ranks = options_.ranks, local_rank = options_.local_rank;
    const auto* launcher = std::find_if(std::begin(kLaunchers), std::end(kLaunchers),
                                        [&](const Launcher& l) { return has(l.rank) && has(l.ranks); });
    if (launcher != std::end(kLaunchers) && !(rank && ranks)) {
      place_.launcher = launcher->name;
      if (!rank) rank = number(launcher->rank);
      if (!ranks) ranks = number(launcher->ranks);
      if (!local_rank) local_rank = number(launcher->local_rank);
      const auto here = launcher->local_ranks == nullptr ? find_tasks_here() : number(launcher->local_ranks);
      place_.local_ranks = std::max<Rank>(1, here.value_or(1));
    }
    if (!rank || !ranks)
      throw UsageError(
          fmt::format("--transport nccl: no {} is known: start the ranks with torchrun, srun or mpirun, or "
                      "give --rank and "
                      "--world-size",
                      rank    ? "number of ranks"
                      : ranks ? "rank"
                              : "rank and number of ranks"));
    if (*rank >= *ranks) throw UsageError(fmt::format("rank {} is not one of {} ranks", *rank, *ranks));
    place_.rank = *rank;
    place_.ranks = *ranks;
    place_.local_rank = local_rank.value_or(0);
  }

  std::optional<std::uint32_t> find_tasks_here() const {
    const std::size_t host = number("SLURM_NODEID").value_or(0);
    for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
      if (has(name)) return tasks_of_host(text(name), host);
    return std::nullopt;
  }

  void find_job() {
    if (place_.launcher == "torchrun" && has("TORCHELASTIC_RUN_ID"))
      place_.job =
          fmt::format("torchrun {} {}", text("TORCHELASTIC_RUN_ID"), text("TORCHELASTIC_RESTART_COUNT"));
    if (place_.launcher == "srun" && has("SLURM_JOB_ID"))
      place_.job = fmt::format("srun {}.{}", text("SLURM_JOB_ID"), text("SLURM_STEP_ID"));
    if (place_.launcher != "mpirun") return;
    for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"})
      if (has(name) && place_.job.empty()) place_.job = fmt::format("mpirun {}", text(name));
  }

  void find_meeting_point() {
    const std::string& given = options_.rendezvous;
    if (given.starts_with("file:")) {
      place_.file = given.substr(5);
      if (place_.file.empty()) throw UsageError("--rendezvous file: names no file");
      return;
    }
    if (!given.empty()) {
      const std::size_t colon = given.rfind(':');
      if (colon == std::string::npos || colon == 0)
        throw UsageError(fmt::format("--rendezvous {}: is neither HOST:PORT nor file:PATH", given));
      place_.host = given.substr(0, colon);
      return set_port(parse_number<std::uint32_t>(given.substr(colon + 1)), "--rendezvous");
    }
    place_.host = find_host();
    if (!has("MASTER_PORT")) return derive_port();
    set_port(number("MASTER_PORT"), "MASTER_PORT");
    if (place_.launcher == "torchrun" && text("TORCHELASTIC_USE_AGENT_STORE") == "True")
      set_ports(place_.port + 1, "the port after MASTER_PORT");
  }

  void set_port(std::optional<std::uint32_t> port, std::string_view what) {
    if (!port || *port == 0 || *port > 65535) throw UsageError(fmt::format("{} is no port", what));
    place_.port = static_cast<std::uint16_t>(*port);
  }

  // A port that nobody chose may be taken by another program, or be tried by another job whose
  // launcher gave it the same name: the place is part of the job's.
  void set_ports(std::uint32_t port, std::string_view what) {
    set_port(port, what);
    place_.job += fmt::format(" at {}:{}", place_.host, place_.port);
    place_.ports = static_cast<std::uint16_t>(std::min<std::uint32_t>(8, 65536 - port));
  }

  std::string find_host() const {
    if (has("MASTER_ADDR")) return text("MASTER_ADDR");
    if (place_.launcher == "srun")
      for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"})
        if (has(name)) return first_host(text(name));
    if (place_.ranks == 1 || number("OMPI_COMM_WORLD_LOCAL_SIZE") == place_.ranks ||
        number("MPI_LOCALNRANKS") == place_.ranks)
      return "127.0.0.1";
    throw UsageError(
        "--transport nccl: where the ranks meet is not known: set MASTER_ADDR and MASTER_PORT, or give "
        "--rendezvous HOST:PORT or file:PATH");
  }

  void derive_port() {
    if (place_.job.empty() && place_.ranks != 1)
      throw UsageError(
          "--transport nccl: no port to meet at is known: set MASTER_PORT, or give --rendezvous HOST:PORT or "
          "file:PATH");
    std::uint32_t hash = 2166136261;
    for (char c : place_.job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    set_ports(20000 + hash % 20000, "the port that the job's name gives");
  }

  const PlaceOptions& options_;
  const Variables& variables_;
  RankPlace place_;
};

}  // namespace

RankPlace find_place(const PlaceOptions& options, const Variables& variables) {
  return PlaceFinder(options, variables).find();
}

std::string first_host(const std::string& node_list) {
  const std::size_t bracket = node_list.find('[');
  if (bracket == std::string::npos || node_list.find(',') < bracket)
    return node_list.substr(0, node_list.find(','));
  const std::size_t end = node_list.find_first_of(",-]", bracket);
  const std::size_t close = node_list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return node_list;
  const std::size_t comma = std::min(node_list.find(',', close), node_list.size());
  return node_list.substr(0, bracket) + node_list.substr(bracket + 1, end - bracket - 1) +
         node_list.substr(close + 1, comma - close - 1);
}

std::optional<std::uint32_t> tasks_of_host(std::string_view tasks, std::size_t host) {
  while (!tasks.empty()) {
    const std::size_t end = std::min(tasks.find(','), tasks.size());
    const std::string_view entry = tasks.substr(0, end);
    const std::size_t times = entry.find("(x");
    const auto count = parse_number<std::uint32_t>(entry.substr(0, times));
    std::optional<std::uint32_t> hosts = 1;
    if (times != std::string_view::npos)
      hosts = entry.ends_with(')')
                  ? parse_number<std::uint32_t>(entry.substr(times + 2, entry.size() - times - 3))
                  : std::nullopt;
    if (!count || !hosts) return std::nullopt;
    if (host < *hosts) return count;
    host -= *hosts;
    tasks.remove_prefix(std::min(end + 1, tasks.size()));
  }
  return std::nullopt;
}

}  // namespace epweave::replay::nccl
