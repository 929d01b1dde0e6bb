#include "replay_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "graphs.h"
#include "replay/check.h"
#include "replay/cpu/kernels.h"
#include "replay/device/device.h"
#include "replay/inputs.h"
#include "replay/memory_need.h"
#include "replay/steps.h"
#include "report.h"

namespace epweave::cli {
namespace {

using replay::NamedTensor;
using replay::Rank;

replay::RunOptions make_options(const ReplayOptions& options) {
  replay::RunOptions result;
  result.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(options.deadline * 1000));
  if (options.poison) result.fill = replay::HostMemory::Fill::kPoison;
  result.jitter = options.jitter;
  if (options.report_types) result.types = replay::RecordedTypes::kReport;
  return result;
}

// Recorded types that values contradicted, of all ranks; says the first on standard error.
std::uint64_t report_contradictions(const replay::RunResult& run, std::string_view graph, Console& console) {
  std::uint64_t count = 0;
  std::string first;
  for (const replay::RankResult& rank : run.ranks) {
    count += rank.contradictions;
    if (first.empty()) first = rank.first_contradiction;
  }
  if (count != 0)
    console.warn(fmt::format("{}: {} values are not what is recorded; first: {}", graph, count, first));
  return count;
}

// Where graphs run; null: the CPU.
std::unique_ptr<replay::Device> open_device(const std::string& name) {
  if (name == "cpu") return nullptr;
  if (name == "emulated") return replay::device::open_emulated_device();
  return replay::device::open_cuda_device(name == "cuda" ? 0 : std::stoi(name.substr(name.find(':') + 1)));
}

// A missing kernel is known before anything is allocated. The inputs are made on the CPU: `cpu` runs them.
void require_kernels(const Graph& graph, const replay::KernelTable& cpu, const replay::Device* device,
                     const InputOptions& input) {
  const auto missing = replay::find_missing_kernels(graph, device == nullptr ? cpu : device->kernels());
  if (missing.empty()) return;
  throw PassError("replay.no-kernel",
                  fmt::format("{}: {} of the graph's ops cannot be executed: {}", display_name(input),
                              missing.size(), fmt::join(missing, ", ")),
                  Site{},
                  device == nullptr ? "add a row for each to the kernel table (src/replay/cpu/)"
                                    : "add a row for each to the kernel table (src/replay/device/)");
}

replay::InputData make_data(const ReplayOptions& options) {
  return {options.seed, options.data == "integer" ? replay::DataKind::kInteger : replay::DataKind::kReal};
}

// Bytes of memory of this machine, or that the container allows.
double find_memory() {
  double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  double allowed = 0;
  if (std::ifstream limit("/sys/fs/cgroup/memory.max"); limit >> allowed) bytes = std::min(bytes, allowed);
  return bytes;
}

// What a run needs is known before anything is allocated.
void require_memory(const Graph& graph, const InputOptions& input, const replay::Device* device,
                    const ReplayOptions& options) {
  constexpr double kGib = 1073741824;
  const replay::MemoryNeed need = replay::find_memory_need(graph);
  const replay::Rank ranks = replay::derive_world(graph, options.ranks).size;
  const double needed = static_cast<double>(need.bytes()) * ranks;
  const double there = device == nullptr || device->memory_bytes() == 0
                           ? find_memory()
                           : static_cast<double>(device->memory_bytes());
  const double limit = options.memory != 0 ? options.memory * kGib : there;
  if (needed <= limit) return;
  throw PassError(
      "replay.memory",
      fmt::format("{}: {} ranks need {:.0f} bytes ({:.1f} GiB): each {} bytes of inputs and at most {} "
                  "bytes of values at a time; {:.1f} GiB are allowed",
                  display_name(input), ranks, needed, needed / kGib, need.inputs, need.values, limit / kGib),
      Site{}, "use a smaller configuration of the model, or allow more with --memory");
}

Json number_or_text(double number) {
  if (std::isfinite(number)) return number;
  return fmt::format("{}", number);  // JSON has no inf and NaN
}

struct OpTimes {
  std::string target;
  replay::OpTime time;  // of all ranks together
};

std::vector<OpTimes> sum_times(const replay::RunResult& run) {
  std::map<std::string, replay::OpTime> sums;
  for (const replay::RankResult& rank : run.ranks) {
    for (const auto& [target, time] : rank.times) {
      sums[target].seconds += time.seconds;
      sums[target].calls += time.calls;
    }
  }
  std::vector<OpTimes> times;
  for (const auto& [target, time] : sums) times.push_back({target, time});
  std::stable_sort(times.begin(), times.end(),
                   [](const OpTimes& a, const OpTimes& b) { return a.time.seconds > b.time.seconds; });
  return times;
}

bool is_loss(const NamedTensor& result) {
  return result.name == "loss" && result.tensor.numel() == 1;
}

Json describe_result(const NamedTensor& result) {
  Json entry = {{"name", result.name},
                {"dtype", info(result.tensor.dtype).short_name},
                {"sizes", result.tensor.sizes},
                {"hash", fmt::format("{:016x}", replay::hash_tensor(result.tensor))}};
  const auto norm = replay::find_norm(result.tensor);
  entry["norm"] = norm ? number_or_text(*norm) : Json();
  return entry;
}

// What a rank computed, for people: its loss, and gradients and buffers together.
std::string summarise(Rank rank, const std::vector<NamedTensor>& results) {
  std::string text = fmt::format("rank {}:", rank);
  double squares = 0;
  std::size_t gradients = 0, buffers = 0, others = 0;
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const NamedTensor& result : results) {
    hash = (hash ^ replay::hash_tensor(result.tensor)) * 0x100000001b3;
    if (is_loss(result)) {
      const double sign = *replay::find_norm(result.tensor);  // a loss is not negative
      text += fmt::format(" loss {:.9g},", sign);
    } else if (result.name.starts_with("grad")) {
      ++gradients;
      const double norm = replay::find_norm(result.tensor).value_or(0);
      squares += norm * norm;
    } else {
      ++(result.name.starts_with("buffer") ? buffers : others);
    }
  }
  if (gradients != 0) text += fmt::format(" {} gradients of norm {:.9g},", gradients, std::sqrt(squares));
  if (buffers != 0) text += fmt::format(" {} buffers,", buffers);
  if (others != 0) text += fmt::format(" {} outputs,", others);
  return text + fmt::format(" hash {:016x}\n", hash);
}

Json describe_difference(const replay::TensorDifference& difference) {
  if (!difference.problem.empty()) return {{"problem", difference.problem}};
  return {{"differing", difference.differing},
          {"index", difference.index},
          {"bits", {difference.bits_a, difference.bits_b}},
          {"ulp", difference.ulp ? Json(*difference.ulp) : Json()},
          {"relative_error", number_or_text(difference.relative_error)}};
}

Json describe_rank(const replay::RankCheck& rank) {
  Json nodes = Json::object();
  for (std::size_t i = 0; i < replay::kVerdicts; ++i)
    nodes[std::string(replay::name_of(static_cast<replay::Verdict>(i)))] = rank.nodes[i];
  return {{"nodes", std::move(nodes)}, {"unverified", rank.unverified}, {"skipped", rank.skipped}};
}

Json describe_check(const replay::CheckReport& report, const Graph& b) {
  Json outputs = Json::array(), ranks = Json::array();
  for (const replay::OutputCheck& output : report.outputs) {
    if (output.verdict == replay::Verdict::kEqual) continue;
    Json entry = describe_difference(output.difference);
    entry["rank"] = output.rank;
    entry["name"] = output.name;
    entry["verdict"] = replay::name_of(output.verdict);
    if (output.bound) entry["share_of_bound"] = number_or_text(output.bound->largest_share);
    outputs.push_back(std::move(entry));
  }
  for (const replay::RankCheck& rank : report.ranks) ranks.push_back(describe_rank(rank));
  Json result = {{"same", report.is_same()},
                 {"baseline_is_deterministic", report.baseline_is_deterministic},
                 {"devices_agree", report.devices_agree},
                 {"outputs", report.outputs.size()},
                 {"outputs_not_equal", std::move(outputs)},
                 {"largest_share_of_bound", number_or_text(report.largest_share)},
                 {"ranks", std::move(ranks)},
                 {"first_divergence", nullptr},
                 {"seconds", {report.run_a.seconds, report.run_b.seconds}}};
  if (report.first) {
    Json first = {
        {"rank", report.first->rank}, {"origin", report.first->origin}, {"reason", report.first->reason}};
    if (report.first->difference) first["difference"] = describe_difference(*report.first->difference);
    add_site(first, site_of(b, b.step().nodes[report.first->node]));
    result["first_divergence"] = std::move(first);
  }
  return result;
}

std::string list_verdicts(const std::array<std::uint64_t, replay::kVerdicts>& counts) {
  std::string line;
  for (std::size_t i = 0; i < replay::kVerdicts; ++i)
    line += fmt::format("{}{} {}", i == 0 ? "" : ", ", counts[i],
                        replay::name_of(static_cast<replay::Verdict>(i)));
  return line;
}

std::string list_reasons(std::string_view what, const std::map<std::string, std::uint64_t>& reasons) {
  std::string text;
  for (const auto& [reason, count] : reasons) text += fmt::format("    {} {}: {}\n", count, what, reason);
  return text;
}

// The ranks' nodes: one entry for ranks with the same counts.
std::string summarise_nodes(const std::vector<replay::RankCheck>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    const replay::RankCheck& rank = ranks[first];
    std::size_t next = first + 1;
    while (next < ranks.size() && ranks[next].nodes == rank.nodes && ranks[next].skipped == rank.skipped &&
           ranks[next].unverified == rank.unverified)
      ++next;
    std::uint64_t skipped = 0;
    for (const auto& [reason, count] : rank.skipped) skipped += count;
    text += fmt::format("nodes of rank {}: {}; {} skipped\n",
                        next == first + 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, next - 1),
                        list_verdicts(rank.nodes), skipped);
    text += list_reasons("unverified", rank.unverified) + list_reasons("skipped", rank.skipped);
    first = next;
  }
  return text;
}

std::string describe_first(const replay::NodeCheck& first, const Graph& b) {
  const Site site = site_of(b, b.step().nodes[first.node]);
  std::string text =
      fmt::format("first node that differs: rank {}: %{} = {} for %{}{}{}: {}\n", first.rank, site.node,
                  site.op, first.origin, site.module.empty() ? "" : " in " + site.module,
                  site.source.empty() ? "" : " (" + site.source + ")", first.reason);
  if (first.difference) text += fmt::format("  {}\n", replay::describe(*first.difference));
  return text;
}

std::string summarise_check(const replay::CheckReport& report, const Graph& b) {
  std::string text;
  std::array<std::uint64_t, replay::kVerdicts> counts{};
  for (const replay::OutputCheck& output : report.outputs) {
    ++counts[static_cast<std::size_t>(output.verdict)];
    if (output.verdict == replay::Verdict::kEqual || output.verdict == replay::Verdict::kSumOrder) continue;
    text += fmt::format("rank {}: {} {}: {}{}\n", output.rank, output.name, replay::name_of(output.verdict),
                        replay::describe(output.difference),
                        output.bound ? "; " + replay::describe(*output.bound) : "");
  }
  if (report.first) text += describe_first(*report.first, b);
  if (!report.baseline_is_deterministic)
    text += "A is not deterministic: it gave other bits the second time\n";
  if (!report.devices_agree) text += "the device gives other bits than the CPU, where bounds are made\n";
  text += fmt::format("outputs: {}\n", list_verdicts(counts));
  if (counts[static_cast<std::size_t>(replay::Verdict::kSumOrder)] != 0)
    text +=
        fmt::format("sum-order outputs: at most {:.3g} of what their summands allow\n", report.largest_share);
  text += summarise_nodes(report.ranks);
  return text + (report.is_same() ? "same\n" : "different\n");
}

}  // namespace

int replay_run(const RunCommandOptions& options, Console& console) {
  const Graph graph = read_sound_input(options.input);
  const replay::KernelTable kernels = replay::make_cpu_kernels();
  const std::unique_ptr<replay::Device> device = open_device(options.replay.device);
  require_kernels(graph, kernels, device.get(), options.input);
  require_memory(graph, options.input, device.get(), options.replay);
  const replay::World world = replay::derive_world(graph, options.replay.ranks);
  const auto inputs = replay::make_inputs(graph, world, kernels, make_data(options.replay));
  replay::RunOptions run_options = make_options(options.replay);
  run_options.device = device.get();
  if (device != nullptr) console.detail("device: " + device->describe());
  const replay::RunResult run = replay::run_ranks(graph, world, kernels, inputs, run_options);
  std::string text;
  Json ranks = Json::array();
  bool is_finite = true;
  for (Rank rank = 0; rank < world.size; ++rank) {
    const auto results = replay::list_results(graph, run.ranks[rank], inputs[rank]);
    text += summarise(rank, results);
    Json entries = Json::array();
    for (const NamedTensor& result : results) {
      if (is_loss(result)) is_finite = is_finite && replay::has_only_finite(result.tensor);
      entries.push_back(describe_result(result));
    }
    ranks.push_back({{"rank", rank}, {"results", std::move(entries)}});
  }
  const auto times = sum_times(run);
  for (const OpTimes& op : times)
    console.detail(fmt::format("{:9.3f} s {:6} {}", op.time.seconds, op.time.calls, op.target));
  if (!is_finite) console.warn("the loss is not finite");
  const std::uint64_t contradictions = report_contradictions(run, display_name(options.input), console);
  const auto expected = replay::find_expected_loss(graph, world);
  console.info(fmt::format("{} ranks, {:.2f} s, {:.1f} MiB at most", world.size, run.seconds,
                           static_cast<double>(run.peak_bytes) / 1048576));
  if (!console.json()) return console.print(text), kFine;
  Json ops = Json::array();
  for (const OpTimes& op : times)
    ops.push_back({{"target", op.target}, {"calls", op.time.calls}, {"seconds", op.time.seconds}});
  console.print(report_text({{"seed", options.replay.seed},
                             {"device", device == nullptr ? "cpu" : device->describe()},
                             {"ranks", std::move(ranks)},
                             {"loss_is_finite", is_finite},
                             {"expected_loss", expected ? Json(*expected) : Json()},
                             {"contradicted_types", contradictions},
                             {"seconds", run.seconds},
                             {"peak_bytes", run.peak_bytes},
                             {"ops", std::move(ops)}}));
  return kFine;
}

int replay_check(const CheckCommandOptions& options, Console& console) {
  const Graph a = read_sound_input(options.a), b = read_sound_input(options.b);
  const replay::KernelTable kernels = replay::make_cpu_kernels();
  const std::string& name_a = options.device_a.empty() ? options.replay.device : options.device_a;
  const std::string& name_b = options.device_b.empty() ? options.replay.device : options.device_b;
  const std::unique_ptr<replay::Device> device_a = open_device(name_a);
  const std::unique_ptr<replay::Device> other = name_a == name_b ? nullptr : open_device(name_b);
  replay::Device* device_b = name_a == name_b ? device_a.get() : other.get();
  require_kernels(a, kernels, device_a.get(), options.a);
  require_kernels(b, kernels, device_b, options.b);
  require_memory(a, options.a, device_a.get(), options.replay);
  require_memory(b, options.b, device_b, options.replay);
  const replay::CheckReport report =
      replay::check_graphs(a, b,
                           {kernels, options.replay.ranks, make_data(options.replay),
                            make_options(options.replay), device_a.get(), device_b});
  report_contradictions(report.run_a, display_name(options.a), console);
  report_contradictions(report.run_b, display_name(options.b), console);
  for (const replay::OutputCheck& output : report.outputs)
    if (output.verdict == replay::Verdict::kSumOrder)
      console.detail(fmt::format("rank {}: {}: {}; {}", output.rank, output.name,
                                 replay::describe(output.difference), replay::describe(*output.bound)));
  console.print(console.json() ? report_text(describe_check(report, b)) : summarise_check(report, b));
  return report.is_same() ? kFine : kDifferent;
}

int replay_steps(const InputOptions& options, Console& console) {
  const Graph graph = read_sound_input(options);
  const replay::Steps steps = replay::plan_steps(graph, graph.step());
  if (!console.json()) return console.print(replay::print_steps(graph, graph.step(), steps)), kFine;
  console.print(
      report_text({{"streams", steps.streams}, {"events", steps.events}, {"steps", steps.list.size()}}));
  return kFine;
}

}  // namespace epweave::cli
