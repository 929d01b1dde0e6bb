#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/counted.h"
#include "base/memory_text.h"
#include "base/parallel.h"
#include "common/graphs.h"
#include "io/file.h"
#include "replay/check/output_check.h"
#include "replay/inputs/inputs.h"
#include "replay/kernels/host/kernels.h"
#include "replay/run/written_inputs.h"
#include "replay/values/hash.h"
#include "replay_commands.h"
#include "replay_environment.h"
#include "replay_fit.h"
#include "replay_measure.h"
#include "replay_process.h"
#include "replay_progress.h"
#include "replay_setup.h"

namespace epweave::cli {
namespace {

using replay::NamedTensor;
using replay::Rank;

// `rank0/NAME` for each tensor that a rank takes.
void save_inputs(const Graph& graph, const std::vector<replay::RankInputs>& inputs, const std::string& path) {
  const std::vector<replay::InputName> names = replay::list_input_names(graph);
  std::vector<replay::TensorToStore> tensors;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank)
    for (std::size_t i = 0; i < names.size(); ++i)
      if (inputs[rank][i].is_tensor())  // another process's rank has none
        tensors.push_back({fmt::format("rank{}/{}", rank, names[i].name), inputs[rank][i].tensor()});
  write_pieces(path, [&](const GiveBytes& give) { replay::encode_safetensors(std::move(tensors), give); });
}

// `rank0/loss`, `rank0/grad/NAME`; a name that a rank has twice is numbered: `rank0/output/1#2`.
void save_outputs(const std::vector<std::vector<NamedTensor>>& results, const std::string& path) {
  std::vector<replay::TensorToStore> tensors;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    std::map<std::string, int> uses;
    for (const NamedTensor& result : results[rank]) {
      std::string name = fmt::format("rank{}/{}", rank, result.name);
      std::replace(name.begin(), name.end(), ' ', '/');
      if (const int use = ++uses[name]; use > 1) name += fmt::format("#{}", use);
      tensors.push_back({std::move(name), result.tensor});
    }
  }
  write_pieces(path, [&](const GiveBytes& give) { replay::encode_safetensors(std::move(tensors), give); });
}

// Members of each group, as seen by each rank; null where they could not be derived.
Json describe_groups(const replay::World& world) {
  Json groups = Json::object();
  for (const auto& [name, members] : world.groups)
    groups[name] = members.of_rank.empty() ? Json() : Json(members.of_rank);
  return groups;
}

bool is_loss(const NamedTensor& result) {
  return result.name == "loss" && result.tensor.numel() == 1;
}

// What is told of a result's bits.
struct Digest {
  std::uint64_t hash = 0;
  std::optional<double> norm;
};
std::vector<Digest> digest(const std::vector<NamedTensor>& results) {
  std::vector<Digest> digests;
  for (const NamedTensor& result : results)
    digests.push_back({replay::hash_tensor(result.tensor), replay::find_norm(result.tensor)});
  return digests;
}

Json describe_result(const NamedTensor& result, const Digest& digest) {
  return {{"name", result.name},
          {"dtype", info(result.tensor.dtype).short_name},
          {"sizes", result.tensor.sizes},
          {"hash", fmt::format("{:016x}", digest.hash)},
          {"norm", digest.norm ? number_or_text(*digest.norm) : Json()}};
}

// What a rank computed, for people: its loss, and gradients and buffers together.
std::string summarise(Rank rank, const std::vector<NamedTensor>& results,
                      const std::vector<Digest>& digests) {
  std::string text = fmt::format("rank {}:", rank);
  double squares = 0;
  std::size_t gradients = 0, buffers = 0, others = 0;
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const NamedTensor& result = results[i];
    hash = (hash ^ digests[i].hash) * 0x100000001b3;
    if (is_loss(result)) {
      text += fmt::format(" loss {:.9g},", *digests[i].norm);  // a loss is not negative
    } else if (result.name.starts_with("grad")) {
      ++gradients;
      const double norm = digests[i].norm.value_or(0);
      squares += norm * norm;
    } else {
      ++(result.name.starts_with("buffer") ? buffers : others);
    }
  }
  if (gradients != 0)
    text += fmt::format(" {} of norm {:.9g},", counted(gradients, "gradient"), std::sqrt(squares));
  if (buffers != 0) text += fmt::format(" {},", counted(buffers, "buffer"));
  if (others != 0) text += fmt::format(" {},", counted(others, "output"));
  return text + fmt::format(" hash {:016x}\n", hash);
}

// --- reports ---

constexpr std::string_view kOwnKernel = "own kernel";  // an algorithm (LibraryProduct)

// Everything a run starts from.
struct Prepared {
  const Graph& graph;
  const replay::World& world;
  const replay::KernelTable& kernels;
  const std::vector<replay::RankInputs>& inputs;
};

// The products of a rank that the library computed: each shape and algorithm once, with the number
// of launches.
Json list_products(const replay::RankResult& result) {
  std::map<std::pair<std::string, std::string>, std::uint64_t> counts;
  for (const replay::LibraryProduct& product : result.products) ++counts[{product.shape, product.algorithm}];
  Json products = Json::array();
  for (const auto& [product, launches] : counts)
    products.push_back({{"shape", product.first}, {"algorithm", product.second}, {"launches", launches}});
  return products;
}

// Null without graphs.
Json describe_graph_use(const replay::RunResult& run, Rank rank) {
  const std::optional<replay::GraphUse>& use = run.ranks[rank].graphs;
  if (!use) return {};
  std::uint64_t launches = 0;
  for (const replay::Stretch& stretch : run.stretches) launches += stretch.launches;
  const auto count_launches = [](const replay::Steps& steps) {
    return std::count_if(steps.list.begin(), steps.list.end(),
                         [](const replay::Step& step) { return step.kind == replay::StepKind::kLaunch; });
  };
  return {{"stretches", run.stretches.size()},
          {"steps_in_stretches", launches},
          {"steps_that_launch", count_launches(run.steps)},
          {"instantiated", use->instantiated},
          {"updated", use->updated},
          {"replayed", use->replayed},
          {"kernels", use->kernels},
          {"seen_first", use->seen_first},
          {"launched_singly", use->launched_singly},
          {"refusals", use->refusals},
          {"interruptions", use->interruptions}};
}

// What one rank computed, for its own file and for rank 0.
Json report_of_rank(const Prepared& prepared, const replay::RunResult& run, Rank rank,
                    std::vector<NamedTensor> results) {
  const replay::RankResult& result = run.ranks[rank];
  Json entries = Json::array(), ops = Json::object();
  bool is_finite = true;
  const std::vector<Digest> digests = digest(results);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (is_loss(results[i])) is_finite = is_finite && replay::has_only_finite(results[i].tensor);
    entries.push_back(describe_result(results[i], digests[i]));
  }
  for (const auto& [target, time] : result.times) ops[target] = {time.calls, time.seconds};
  return {{"rank", rank},
          {"results", std::move(entries)},
          {"summary", summarise(rank, results, digests)},
          {"loss_is_finite", is_finite},
          {"contradicted_types", result.contradictions},
          {"first_contradiction", text_or_null(result.first_contradiction)},
          {"seconds", run.seconds},
          {"peak_bytes", run.peak_bytes},
          {"ops", std::move(ops)},
          {"library_products", list_products(result)},
          {"cuda_graphs", describe_graph_use(run, rank)},
          {"step_seconds", result.step_seconds},
          {"spans", list_spans(prepared.graph, run, rank)},
          {"start", {result.began, result.began_within}}};
}

// The ops of all ranks together, the longest first.
Json sum_ops(const std::vector<Json>& ranks) {
  std::map<std::string, std::pair<std::uint64_t, double>> sums;
  for (const Json& rank : ranks) {
    for (const auto& [target, time] : rank["ops"].items()) {
      sums[target].first += time[0].get<std::uint64_t>();
      sums[target].second += time[1].get<double>();
    }
  }
  std::vector<Json> ops;
  for (const auto& [target, sum] : sums)
    ops.push_back({{"target", target}, {"calls", sum.first}, {"seconds", sum.second}});
  std::stable_sort(ops.begin(), ops.end(), [](const Json& a, const Json& b) {
    return a["seconds"].get<double>() > b["seconds"].get<double>();
  });
  return ops;
}

// All ranks' reports as one, and what options ask for beside it.
class MergedReport {
 public:
  MergedReport(const RunCommandOptions& options, const Prepared& prepared, std::vector<Json> ranks)
      : options_(options), prepared_(prepared), ranks_(std::move(ranks)) {}

  void write_measurements(const Json& environment, Console& console) const {
    const MeasureOptions& measure = options_.measure;
    std::vector<Json> spans;
    std::vector<RankStart> starts;
    for (const Json& rank : ranks_) {
      spans.push_back(rank["spans"]);
      starts.push_back({rank["start"][0].get<double>(), rank["start"][1].get<double>()});
    }
    const Measurement measurement{spans, starts, environment, measure.warm_up, measure.repeat, measure.rank};
    if (!measure.timeline.empty()) write_bytes(measure.timeline, timeline_text(measurement));
    if (!measure.costs.empty()) write_bytes(measure.costs, indented_text(cost_report(measurement)));
    if (measure.rank) console.info(describe_alone(measurement));
  }

  void print(const std::string& device, Json environment, Console& console) const {
    const Json ops = sum_ops(ranks_);
    std::string text;
    double seconds = 0, peak = 0;
    bool is_finite = true;
    std::uint64_t contradictions = 0;
    Json ranks = Json::array();
    for (const Json& rank : ranks_) {
      text += rank["summary"].get<std::string>();
      seconds = std::max(seconds, rank["seconds"].get<double>());
      peak = std::max(peak, rank["peak_bytes"].get<double>());
      is_finite = is_finite && rank["loss_is_finite"].get<bool>();
      contradictions += rank["contradicted_types"].get<std::uint64_t>();
      Json& entry = ranks.emplace_back(Json{{"rank", rank["rank"]},
                                            {"results", rank["results"]},
                                            {"library_products", rank["library_products"]},
                                            {"cuda_graphs", rank["cuda_graphs"]},
                                            {"step_seconds", rank["step_seconds"]}});
      if (rank.contains("environment")) entry["environment"] = rank["environment"];
    }
    for (const Json& op : ops)
      console.detail(fmt::format("{:9.3f} s {:6} {}", op["seconds"].get<double>(),
                                 op["calls"].get<std::uint64_t>(), op["target"].get<std::string>()));
    if (!is_finite) console.warn("the loss is not finite");
    warn_of_contradictions(contradictions, console);
    console.info(fmt::format("{}, {:.2f} s, {} at most", counted(prepared_.world.size, "rank"), seconds,
                             memory_text(peak)));
    say_how_long_a_step_took(console);
    say_what_graphs_did(console);
    say_who_multiplied(console);
    if (!console.json()) return console.print(text);
    const auto expected = replay::find_expected_loss(prepared_.graph, prepared_.world);
    console.print(report_text({{"file", options_.input.path},
                               {"seed", options_.replay.seed},
                               {"device", device},
                               {"environment", std::move(environment)},
                               {"ranks", std::move(ranks)},
                               {"groups", describe_groups(prepared_.world)},
                               {"loss_is_finite", is_finite},
                               {"expected_loss", expected ? Json(*expected) : Json()},
                               {"contradicted_types", contradictions},
                               {"seconds", seconds},
                               {"peak_bytes", static_cast<std::uint64_t>(peak)},
                               {"ops", ops}}));
  }

 private:
  // A run's step is over where the last of its ranks is done.
  void say_how_long_a_step_took(Console& console) const {
    std::vector<double> steps(ranks_[0]["step_seconds"].size());
    for (const Json& rank : ranks_) {
      const Json& measured = rank["step_seconds"];  // of another process, which may have measured nothing
      for (std::size_t i = 0; i < std::min(steps.size(), measured.size()); ++i)
        steps[i] = std::max(steps[i], measured[i].get<double>());
    }
    if (steps.empty()) return;
    std::sort(steps.begin(), steps.end());
    if (steps.size() == 1) return console.info(fmt::format("a step: {:.3f} ms, of 1 run", steps[0] * 1e3));
    console.info(fmt::format("a step: {:.3f} ms at least, {:.3f} ms median, {} runs", steps.front() * 1e3,
                             steps[(steps.size() - 1) / 2] * 1e3, steps.size()));
  }

  // In native math: how many products the library took.
  void say_who_multiplied(Console& console) const {
    if (options_.replay.math != "native") return;
    std::uint64_t own = 0, all = 0;
    for (const Json& rank : ranks_) {
      for (const Json& product : rank["library_products"]) {
        const auto launches = product["launches"].get<std::uint64_t>();
        all += launches;
        if (product["algorithm"] == kOwnKernel) own += launches;
      }
    }
    const std::string text = fmt::format("{} of {} products by cuBLASLt", all - own, all);
    if (own == 0) return console.info(text);
    console.warn(fmt::format("{}: it has no algorithm for the others, which kernels of ours made", text));
  }

  void say_what_graphs_did(Console& console) const {
    if (ranks_[0]["cuda_graphs"].is_null()) return;
    const auto sum = [&](const char* name) {
      std::uint64_t total = 0;
      for (const Json& rank : ranks_) total += rank["cuda_graphs"][name].get<std::uint64_t>();
      return total;
    };
    const Json& first = ranks_[0]["cuda_graphs"];
    console.info(fmt::format("graphs: {} stretches of a rank hold {} of the {} steps that launch kernels",
                             first["stretches"].get<std::uint64_t>(),
                             first["steps_in_stretches"].get<std::uint64_t>(),
                             first["steps_that_launch"].get<std::uint64_t>()));
    console.info(
        fmt::format("graphs launched, by all ranks in all runs: {} captured, {} updated, {} replayed, {} "
                    "kernels in them; "
                    "seen for the first time, {}",
                    sum("instantiated"), sum("updated"), sum("replayed"), sum("kernels"), sum("seen_first")));
    if (options_.measure.warm_up + options_.measure.repeat == 1)
      console.warn("no stretch was captured: each is when it is seen a second time; give --repeat");
    const auto list = [&](const char* name, const char* what) {
      std::map<std::string, std::uint64_t> counts;
      for (const Json& rank : ranks_)
        for (const auto& [reason, count] : rank["cuda_graphs"][name].items())
          counts[reason] += count.get<std::uint64_t>();
      for (const auto& [reason, count] : counts)
        console.info(fmt::format("{} {} times: {}", what, count, reason));
    };
    list("refusals", "the device refused a graph");
    list("interruptions", "a stretch was interrupted");
  }

  void warn_of_contradictions(std::uint64_t count, Console& console) const {
    if (count == 0) return;
    const auto first = std::find_if(ranks_.begin(), ranks_.end(),
                                    [](const Json& rank) { return !rank["first_contradiction"].is_null(); });
    console.warn(fmt::format("{}: {} {} not what is recorded; first: {}", display_name(options_.input),
                             counted(count, "value"), is_or_are(count),
                             (*first)["first_contradiction"].get<std::string>()));
  }

  const RunCommandOptions& options_;
  const Prepared& prepared_;
  std::vector<Json> ranks_;
};

void write_own_report(const RunCommandOptions& options, const Json& report, const Json& environment) {
  Json written = report;
  written["environment"] = environment;
  written.erase("summary");
  written.erase("spans");
  written.erase("start");
  write_rank_report(options.transport, report["rank"].get<Rank>(), written);
}

// --- runs ---

replay::RunOptions options_of_run(const RunCommandOptions& options, replay::Device* device,
                                  replay::Measuring& measuring, ReplayProgress& progress) {
  replay::RunOptions run = make_options(options.replay);
  run.device = device;
  run.names_ranges = options.nvtx;
  const bool has_spans = !options.measure.timeline.empty() || !options.measure.costs.empty();
  measuring = {options.measure.warm_up, options.measure.repeat,
               has_spans ? replay::Spans::kOfNodes : replay::Spans::kNone, options.measure.rank};
  if (options.cuda_graphs) run.graphs = replay::Graphs::kStretches;
  if (options.measure.is_asked_for()) run.measuring = &measuring;
  run.progress = progress.function();
  return run;
}

// All ranks in this process.
int run_here(const RunCommandOptions& options, const Prepared& prepared, replay::Device* device,
             Console& console) {
  if (!options.save_inputs.empty()) save_inputs(prepared.graph, prepared.inputs, options.save_inputs);
  replay::Measuring measuring;
  ReplayProgress progress(console);
  const replay::RunOptions run_options = options_of_run(options, device, measuring, progress);
  const replay::RunResult run =
      replay::run_ranks(prepared.graph, prepared.world, prepared.kernels, prepared.inputs, run_options);
  const std::vector<bool> written = replay::find_written_inputs(prepared.graph);
  std::vector<std::vector<NamedTensor>> of_ranks(prepared.world.size);
  std::vector<Json> reports(prepared.world.size);
  const Json environment = describe_environment(device, "local");
  for_each_in_parallel(prepared.world.size, [&](std::size_t rank) {
    of_ranks[rank] =
        replay::list_results(prepared.graph, {run.ranks[rank].outputs, prepared.inputs[rank]}, written);
    reports[rank] = report_of_rank(prepared, run, static_cast<Rank>(rank), of_ranks[rank]);
  });
  for (const Json& report : reports) write_own_report(options, report, environment);
  if (!options.outputs.empty()) save_outputs(of_ranks, options.outputs);
  const MergedReport merged(options, prepared, std::move(reports));
  merged.write_measurements(environment, console);
  merged.print(device == nullptr ? "cpu" : device->describe(), environment, console);
  return kFine;
}

// One rank in this process; rank 0 prints what all computed. The ranks meet, and then each makes
// its inputs with `make`: what keeps them from meeting is found at once.
int run_process(const RunCommandOptions& options, const Prepared& prepared, const OwnRank& own,
                const std::function<void()>& make, Console& console) {
  const Rank rank = own.place.rank;
  const auto file_of_rank = [&](const std::string& path) { return fmt::format("{}.rank{}", path, rank); };
  const replay::Steps steps = replay::plan_steps(prepared.graph, prepared.graph.step());
  replay::Measuring measuring;
  ReplayProgress progress(console);
  replay::RunOptions run_options = options_of_run(options, &own.device, measuring, progress);
  if (rank != 0) run_options.progress = {};
  replay::nccl::RendezvousOptions rendezvous;
  rendezvous.deadline = run_options.deadline;
  rendezvous.program = describe_program(options, prepared.graph);
  const std::vector<replay::nccl::SessionGraph> graphs{{prepared.world, steps}};
  replay::nccl::Session session(
      {own.place, graphs, own.device, rendezvous,
       options.transport.nccl_native ? replay::nccl::Sums::kLibrary : replay::nccl::Sums::kOwn});
  run_options.process = &session.process();
  const Json environment = describe_process(session, own, console);
  std::vector<Json> reports;
  run_together(session, rank, [&] {
    make();
    if (!options.save_inputs.empty())
      save_inputs(prepared.graph, prepared.inputs, file_of_rank(options.save_inputs));
    const replay::RunResult run =
        replay::run_ranks(prepared.graph, prepared.world, prepared.kernels, prepared.inputs, run_options);
    const std::vector<bool> written = replay::find_written_inputs(prepared.graph);
    std::vector<std::vector<NamedTensor>> of_ranks(prepared.world.size);
    of_ranks[rank] =
        replay::list_results(prepared.graph, {run.ranks[rank].outputs, prepared.inputs[rank]}, written);
    if (!options.outputs.empty()) save_outputs(of_ranks, file_of_rank(options.outputs));
    Json report = report_of_rank(prepared, run, rank, of_ranks[rank]);
    if (rank != 0) {
      const replay::nccl::ClockOffset offset = session.compare_clocks();
      report["start"] = {run.ranks[rank].began + offset.seconds,
                         run.ranks[rank].began_within + offset.within};
    }
    report["environment"] = environment;
    write_own_report(options, report, environment);
    for (const std::string& text : session.conclude(report_line(report)))
      reports.push_back(Json::parse(text));
  });
  if (reports.empty()) return kFine;  // not rank 0
  const MergedReport merged(options, prepared, std::move(reports));
  merged.write_measurements(environment, console);
  merged.print(own.device.describe(), environment, console);
  return kFine;
}

}  // namespace

int replay_run(const RunCommandOptions& given, Console& console) {
  RunCommandOptions options = given;
  const bool is_process = options.transport.has_processes();
  for (const std::string& path :
       {options.outputs, options.save_inputs, options.measure.timeline, options.measure.costs})
    if (!path.empty()) require_writable(path);
  require_report_dir(options.transport);
  const Graph graph = read_written_out(options.input);
  const replay::KernelTable kernels = replay::make_cpu_kernels();
  const replay::World world = replay::derive_world(graph, options.replay.ranks);
  if (options.measure.rank.value_or(0) >= world.size)
    throw UsageError(
        fmt::format("--measure-rank {}: the ranks are 0 to {}", *options.measure.rank, world.size - 1));
  const replay::nccl::RankPlace place =
      is_process ? find_place(options.transport, world) : replay::nccl::RankPlace();
  const OpenedDevice opened = open_for(options.replay, [&] {
    return is_process ? open_device_of(options.replay.device, options.replay, place)
                      : open_device(options.replay.device, options.replay);
  });
  replay::Device* device = opened.get();
  require_kernels(graph, options.input, device, kernels);
  FitCommand command{.graphs = {{graph,
                                 options.input,
                                 {device, opened.is_absent},
                                 options.measure.warm_up + options.measure.repeat}},
                     .options = options.replay,
                     .ranks = is_process ? 1 : world.size,
                     .processes = is_process ? place.local_ranks : 1,
                     .has_own_device = is_process};
  const InputSource source(options.replay);
  source.files.require_all_used({{graph, world.size}});
  replay::InputData data = source.data;
  data.path = display_name(options.input);
  command.require_inputs = [&] { replay::require_inputs(graph, world, data); };
  const Fitting fitting = fit(command, console);
  if (fitting.is_done) return kFine;
  take_deadline(fitting, options.replay);
  if (is_process) data.only = place.rank;
  std::vector<replay::RankInputs> inputs;
  const auto make = [&] { inputs = replay::make_inputs(graph, world, kernels, data); };
  if (device != nullptr) console.detail("device: " + device->describe());
  const Prepared prepared{graph, world, kernels, inputs};
  if (is_process) return run_process(options, prepared, {place, *device}, make, console);
  make();
  return run_here(options, prepared, device, console);
}

}  // namespace epweave::cli
