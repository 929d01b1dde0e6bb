// epweave-replay check: all ranks in this process, or each in its own.
#include <fmt/format.h>

#include "base/counted.h"
#include "common/graphs.h"
#include "replay/check/bound_plan.h"
#include "replay/check/check.h"
#include "replay/check/output_check.h"
#include "replay/kernels/host/kernels.h"
#include "replay/values/message.h"
#include "replay_check_report.h"
#include "replay_environment.h"
#include "replay_fit.h"
#include "replay_process.h"
#include "replay_progress.h"
#include "replay_setup.h"

namespace epweave::cli {
namespace {

using replay::Rank;

// A graph and what its ranks meet in.
struct Plan {
  Plan(const Graph& graph, const ReplayOptions& options)
      : world(replay::derive_world(graph, options.ranks)), steps(replay::plan_steps(graph, graph.step())) {}
  replay::World world;
  replay::Steps steps;
};

// --- devices ---

// A device for A and one for B, or one for both; null: the CPU.
struct Devices {
  std::unique_ptr<replay::Device> first, second;
  replay::Device* a = nullptr;
  replay::Device* b = nullptr;
  bool is_absent = false;  // a GPU that --dry-run names
};

// Where ranks are no processes.
bool is_same_device(const CheckCommandOptions& options) {
  return plain_device_name(options.name_of_a()) == plain_device_name(options.name_of_b());
}

Devices open_devices(const CheckCommandOptions& options) {
  Devices devices;
  const auto open = [&](const std::string& name) {
    OpenedDevice opened = open_for(options.replay, [&] { return open_device(name, options.replay); });
    devices.is_absent = devices.is_absent || opened.is_absent;
    return std::move(opened.device);
  };
  devices.first = open(options.name_of_a());
  devices.a = devices.b = devices.first.get();
  if (is_same_device(options)) return devices;
  devices.second = open(options.name_of_b());
  devices.b = devices.second.get();
  return devices;
}

// The communicators are those of one device: it serves the graphs that do not run on the CPU.
Devices open_own_device(const CheckCommandOptions& options, const replay::nccl::RankPlace& place) {
  const std::string &name_a = options.name_of_a(), &name_b = options.name_of_b();
  const std::string& name = name_a == "cpu" ? name_b : name_a;
  if (name_b != "cpu" && name_b != name)
    throw UsageError(
        fmt::format("over NCCL each process has one device: A on {} and B on {} need two; one of them may be "
                    "the CPU",
                    name_a, name_b));
  Devices devices;
  OpenedDevice opened = open_for(options.replay, [&] { return open_device_of(name, options.replay, place); });
  devices.is_absent = opened.is_absent;
  devices.first = std::move(opened.device);
  devices.a = name_a == "cpu" ? nullptr : devices.first.get();
  devices.b = name_b == "cpu" ? nullptr : devices.first.get();
  return devices;
}

// --- reports ---

// What is printed and written of the ranks' reports.
class Printer {
 public:
  Printer(const CheckCommandOptions& options, const Graph& b, Console& console)
      : options_(options), b_(b), console_(console) {}

  void write(Rank rank, const replay::CheckReport& report, const Json& environment) const {
    Json written = files();
    written["rank"] = rank;
    written.update(describe_check(report, b_));
    written["environment"] = environment;
    write_rank_report(options_.transport, rank, written);
  }

  // `environments`: of each rank, where they are processes; else of this one.
  void print(const replay::CheckReport& report, const std::vector<Json>& environments) const {
    report_contradictions(report.run_a, options_.a);
    report_contradictions(report.run_b, options_.b);
    for (const replay::OutputCheck& output : report.outputs)
      if (output.verdict == replay::Verdict::kSumOrder)
        console_.detail(fmt::format("rank {}: {}: {}; {}", output.rank, output.name,
                                    replay::describe(output.difference), replay::describe(*output.bound)));
    if (!console_.json()) return console_.print(summarise_check(report, b_));
    Json described = files();
    described.update(describe_check(report, b_));
    if (options_.transport.has_processes())
      for (std::size_t rank = 0; rank < environments.size(); ++rank)
        described["ranks"][rank]["environment"] = environments[rank];
    described["environment"] = environments[0];
    console_.print(report_text(described));
  }

 private:
  Json files() const { return {{"a", file_report(options_.a.path)}, {"b", file_report(options_.b.path)}}; }

  // Recorded types that values contradicted, of all ranks.
  void report_contradictions(const replay::FirstRun& run, const InputOptions& graph) const {
    if (run.contradictions == 0) return;
    console_.warn(fmt::format("{}: {} {} not what is recorded; first: {}", display_name(graph),
                              counted(run.contradictions, "value"), is_or_are(run.contradictions),
                              run.first_contradiction));
  }

  const CheckCommandOptions& options_;
  const Graph& b_;
  Console& console_;
};

Json describe_devices(Json environment, const Devices& devices, const std::string& transport) {
  if (devices.a == devices.b) return environment;
  environment["device"] = describe_environment(devices.a, transport)["device"];
  environment["device_b"] = describe_environment(devices.b, transport)["device"];
  return environment;
}

// --- checks ---

struct PreparedPair {
  const CheckedGraphs& graphs;
  const Devices& devices;
  replay::CheckSetup& setup;
};

int exit_code_of(replay::CheckReport::Conclusion conclusion) {
  return conclusion == replay::CheckReport::Conclusion::kSame ? kFine : kDifferent;
}

int check_here(const CheckCommandOptions& options, const PreparedPair& prepared, Console& console) {
  const auto& [graphs, devices, setup] = prepared;
  const Printer printer(options, graphs.b, console);
  const Json environment = describe_devices(describe_environment(devices.a, options.transport.name), devices,
                                            options.transport.name);
  const replay::CheckedRanks checked = replay::check_ranks(graphs.a, graphs.b, setup);
  for (Rank rank = 0; rank < checked.reports.size(); ++rank)
    printer.write(rank, checked.reports[rank], environment);
  printer.print(replay::merge(checked.reports), {environment});
  return exit_code_of(checked.conclusion);
}

// One rank in this process; rank 0 prints what all found. Every process ends with the same exit
// code.
int check_process(const CheckCommandOptions& options, const PreparedPair& prepared,
                  const replay::nccl::RankPlace& place, Console& console) {
  const CheckedGraphs& graphs = prepared.graphs;
  const Devices& devices = prepared.devices;
  replay::CheckSetup& setup = prepared.setup;
  replay::require_comparable(graphs.a, graphs.b, setup);
  std::vector<Plan> plans;
  for (const Graph* graph : {&graphs.a, &graphs.b, graphs.reference})
    if (graph != nullptr) plans.emplace_back(*graph, options.replay);
  std::vector<replay::nccl::SessionGraph> of_session;
  for (const Plan& plan : plans) of_session.push_back({plan.world, plan.steps});
  replay::nccl::RendezvousOptions rendezvous;
  rendezvous.deadline = setup.options.deadline;
  rendezvous.program = describe_program(options, graphs);
  replay::nccl::Session session({place, of_session, *devices.first, rendezvous});
  setup.options.process = &session.process();
  const Json environment =
      describe_devices(describe_process(session, {place, *devices.first}, console), devices, "nccl");
  const Printer printer(options, graphs.b, console);
  replay::CheckedRanks checked;
  std::vector<replay::CheckReport> reports;
  std::vector<Json> environments;
  run_together(session, place.rank, [&] {
    checked = replay::check_ranks(graphs.a, graphs.b, setup);
    printer.write(place.rank, checked.reports[0], environment);
    const std::string own =
        replay::Writer().text(encode(checked.reports[0])).text(report_line(environment)).take();
    for (const std::string& text : session.conclude(own)) {
      replay::Reader reader(text);
      reports.push_back(replay::decode_check_report(reader.text()));
      environments.push_back(Json::parse(reader.text()));
    }
  });
  if (!reports.empty()) printer.print(replay::merge(reports), environments);  // else not rank 0
  return exit_code_of(checked.conclusion);
}

replay::Bounds find_bounds(const CheckCommandOptions& options) {
  if (options.bounds == "none") return replay::Bounds::kNone;
  const bool has_one_device = !options.transport.has_processes() && is_same_device(options);
  const bool is_default = options.bounds.empty() && has_one_device;
  return is_default || options.bounds == "device" ? replay::Bounds::kDevice : replay::Bounds::kCpu;
}

// --- memory ---

struct Ranks {
  const Devices& devices;
  Rank here = 1;
  std::uint32_t processes = 1;
};

// Both graphs are run once; A once more, or both with bounds where a sum may be regrouped. The run
// that locates a difference takes no more.
FitCommand find_need(const CheckCommandOptions& options, const CheckedGraphs& graphs, const Ranks& ranks) {
  replay::FollowedNodes followed;
  if (options.replay.math != "native" && options.bounds != "none")
    followed = replay::find_followed(graphs.a, graphs.b);
  const bool has_bounds = followed.is_any;
  const auto place_of = [&](const replay::Device* device, const std::string& name) {
    return FitPlace{device, ranks.devices.is_absent && device == nullptr && name != "cpu",
                    plain_device_name(name)};
  };
  FitCommand command{.graphs = {},
                     .options = options.replay,
                     .ranks = ranks.here,
                     .processes = ranks.processes,
                     .has_own_device = options.transport.has_processes(),
                     .compares = true};
  const bool on_device = find_bounds(options) == replay::Bounds::kDevice;
  const bool again = !has_bounds || (options.name_of_a() != "cpu" && !on_device);
  const auto add = [&](const Graph& graph, const InputOptions& input, const FitPlace& place,
                       std::uint32_t runs) -> FitGraph& {
    return command.graphs.emplace_back(
        FitGraph{graph, input, place, runs, has_bounds, on_device ? place : FitPlace{}, {}});
  };
  FitGraph& a = add(graphs.a, options.a, place_of(ranks.devices.a, options.name_of_a()), again ? 2U : 1U);
  a.followed = std::move(followed.a);
  add(graphs.b, options.b, place_of(ranks.devices.b, options.name_of_b()), 1).followed =
      std::move(followed.b);
  if (graphs.reference != nullptr)
    command.graphs.push_back({*graphs.reference, options.reference, {}, 1, 0, {}, {}});
  return command;
}

void require_inputs_of(const Graph& graph, const InputOptions& input, const ReplayOptions& options,
                       const InputSource& source) {
  replay::InputData data = source.data;
  data.path = display_name(input);
  replay::require_inputs(graph, replay::derive_world(graph, options.ranks), data);
}

}  // namespace

int replay_check(const CheckCommandOptions& given, Console& console) {
  CheckCommandOptions options = given;
  const bool is_process = options.transport.has_processes();
  require_report_dir(options.transport);
  const Graph a = read_written_out(options.a), b = read_written_out(options.b);
  replay::require_same_outputs(a, b);
  std::optional<Graph> reference;
  if (!options.reference.path.empty()) reference = read_written_out(options.reference);
  const CheckedGraphs graphs{a, b, reference ? &*reference : nullptr};
  const replay::KernelTable kernels = replay::make_cpu_kernels();
  const replay::World world = replay::derive_world(a, options.replay.ranks);
  const replay::nccl::RankPlace place =
      is_process ? find_place(options.transport, world) : replay::nccl::RankPlace();
  const Devices devices = is_process ? open_own_device(options, place) : open_devices(options);
  require_kernels(a, options.a, devices.a, kernels);
  require_kernels(b, options.b, devices.b, kernels);
  if (reference) require_kernels(*reference, options.reference, nullptr, kernels);
  const InputSource source(options.replay);
  source.files.require_all_used({{a, world.size}, {b, replay::derive_world(b, options.replay.ranks).size}});
  FitCommand command =
      find_need(options, graphs, {devices, is_process ? 1 : world.size, is_process ? place.local_ranks : 1});
  command.require_inputs = [&] {
    require_inputs_of(a, options.a, options.replay, source);
    require_inputs_of(b, options.b, options.replay, source);
    if (reference) require_inputs_of(*reference, options.reference, options.replay, source);
  };
  const Fitting fitting = fit(command, console);
  if (fitting.is_done) return kFine;
  take_deadline(fitting, options.replay);
  ReplayProgress progress(console, 3 + (reference ? 1 : 0));  // A, B, and A again, at least
  replay::CheckSetup setup{
      kernels,  options.replay.ranks, source.data, make_options(options.replay), graphs.reference, devices.a,
      devices.b};
  setup.bounds = find_bounds(options);
  setup.kept_bytes = fitting.kept_bytes;
  setup.path_a = display_name(options.a), setup.path_b = display_name(options.b);
  setup.path_reference = display_name(options.reference);
  setup.expect_runs = [&](std::size_t count) { progress.expect(count); };
  if (!is_process || place.rank == 0) setup.options.progress = progress.function();
  const PreparedPair prepared{graphs, devices, setup};
  return is_process ? check_process(options, prepared, place, console)
                    : check_here(options, prepared, console);
}

}  // namespace epweave::cli
