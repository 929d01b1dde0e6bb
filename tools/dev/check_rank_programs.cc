// Random programs of several ranks: generalize and specialize are inverse, specialize and dce
// commute, no rank's own number is called baked, no axis wrong; and executed, the ranks' own
// programs, those that specialize makes, and the one graph for all give the same bits.
//
//   check_rank_programs [COUNT]
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <exception>
#include <iostream>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>

#include "analysis/rank_literals.h"
#include "analysis/world.h"
#include "compare/ranks/rank_axes.h"
#include "compare/ranks/rank_baked.h"
#include "compare/ranks/rank_slices.h"
#include "ir/text/text.h"
#include "passes/dce.h"
#include "passes/generalize/generalize.h"
#include "passes/specialize.h"
#include "replay/inputs/inputs.h"
#include "replay/kernels/host/kernels.h"
#include "replay/run/rank_runner.h"
#include "replay/run/written_inputs.h"

namespace epweave {
namespace {

struct Axis {
  std::string name;
  std::uint32_t stride = 1, extent = 2;
  std::uint32_t first_group = 0;  // torch numbers the groups of an axis one after the other

  GroupRule rule() const { return {stride, extent}; }
  std::int64_t coordinate(Rank rank) const { return rule().coordinate(rank); }
  std::string group(Rank rank) const { return std::to_string(first_group + rule().index(rank)); }
};

// A program with holes for what is a rank's own: the same seed gives every rank the same program.
class Program {
 public:
  explicit Program(std::uint32_t seed) : random_(seed), seed_(seed) {
    static constexpr const char* kNames[] = {"dp", "cp", "tp"};
    const std::uint32_t count = pick(1, 3);
    for (std::uint32_t i = 0; i < count; ++i) axes_.push_back({kNames[i], 1, pick(2, count == 3 ? 2 : 4), 0});
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
      axis->stride = size_;
      size_ *= axis->extent;
    }
    std::uint32_t next = 3;
    for (Axis& axis : axes_) {
      axis.first_group = next;
      next += size_ / axis.extent;
    }
  }

  std::uint32_t size() const { return size_; }

  std::string of_rank(Rank rank) {
    random_.seed(seed_ + 1);
    rank_ = rank;
    inputs_ = body_ = outputs_ = "";
    count_ = 0;
    inputs_ += "  %x = placeholder : f32[8, 16] role=user which=x\n";
    inputs_ += "  %ids = placeholder : i64[6] role=user which=tokens\n";
    const std::uint32_t statements = pick(3, 10);
    for (std::uint32_t i = 0; i < statements; ++i) write_statement();
    return header() + "graph\n" + inputs_ + body_ + "  output([%x" + outputs_ + "])\n";
  }

 private:
  std::uint32_t pick(std::uint32_t first, std::uint32_t last) {
    return first + static_cast<std::uint32_t>(random_() % (last - first + 1));
  }
  const Axis& pick_axis() { return axes_[pick(0, static_cast<std::uint32_t>(axes_.size()) - 1)]; }
  // A name no other node has; the node is an output.
  std::string name() { return fmt::format("v{}", count_++); }
  std::string result(const std::string& of) { return outputs_ += ", %" + of, of; }

  std::string header() const {
    std::string names, shape, groups;
    for (const Axis& axis : axes_) {
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", axis.name);
      shape += fmt::format("{}{}", shape.empty() ? "" : ", ", axis.extent);
      const std::vector<Rank> members = axis.rule().members(rank_);
      groups += fmt::format("group {} ranks=[{}] description=mesh_{} axes=[{}]\n", axis.group(rank_),
                            fmt::join(members, ", "), axis.name, axis.name);
    }
    return fmt::format(
        "epweave text 1\ndevice cuda:0\ninfo global_meshes = {{\"dense\": {{\"axes\": [{}], \"shape\": "
        "[{}]}}}}\n"
        "info world_size = {}\ninfo rank = {}\n{}",
        names, shape, size_, rank_, groups);
  }

  void write_statement() {
    switch (pick(0, 6)) {
      case 0:
        return write_gather();
      case 1:
        return write_number();
      case 2:
        return write_lookup();
      case 3:
        return write_element();
      case 4:
        return write_common_number();
      case 5:
        return write_sum();
      default:
        return write_mesh();
    }
  }

  void write_gather() {
    const Axis& axis = pick_axis();
    const std::string gathered = name(), waited = name();
    body_ += fmt::format(
        "  %{} = _c10d_functional.all_gather_into_tensor.default(%x, {}, \"{}\") : f32[{}, 16] @g\n",
        gathered, axis.extent, axis.group(rank_), 8 * axis.extent);
    body_ += fmt::format("  %{} = _c10d_functional.wait_tensor.default(%{}) : f32[{}, 16] @g\n",
                         result(waited), gathered, 8 * axis.extent);
  }

  void write_sum() {
    const Axis& axis = pick_axis();
    const std::string summed = name(), waited = name();
    const bool is_scattered = 8 % axis.extent == 0 && pick(0, 1) == 1;
    const std::string call = is_scattered
                                 ? fmt::format("reduce_scatter_tensor.default(%x, \"sum\", {}, ", axis.extent)
                                 : std::string("all_reduce.default(%x, \"sum\", ");
    const std::string type = fmt::format("f32[{}, 16]", is_scattered ? 8 / axis.extent : 8);
    body_ +=
        fmt::format("  %{} = _c10d_functional.{}\"{}\") : {} @r\n", summed, call, axis.group(rank_), type);
    body_ += fmt::format("  %{} = _c10d_functional.wait_tensor.default(%{}) : {} @r\n", result(waited),
                         summed, type);
  }

  // a + b * c, of one axis.
  void write_number() {
    const Axis& axis = pick_axis();
    const std::int64_t offset = pick(0, 50), scale = pick(1, 40);
    body_ += fmt::format("  %{} = aten.add.Scalar(%x, {}) : f32[8, 16] @n\n", result(name()),
                         offset + scale * axis.coordinate(rank_));
  }

  // Ids looked up in a shard of a table; nothing may be recorded of the whole.
  void write_lookup() {
    const Axis& axis = pick_axis();
    const std::int64_t rows = 4 * pick(1, 4), first = rows * axis.coordinate(rank_);
    const std::string table = name(), ge = name(), lt = name(), in = name(), shifted = name(),
                      clamped = name(), found = name();
    const std::string role = fmt::format("role=parameter fqn={}.weight", table);
    inputs_ += fmt::format("  %{} = placeholder : f32[{}, 4] {}", table, rows, role);
    if (pick(0, 1) == 1)
      inputs_ += fmt::format(" more{{global_shape=[{}, 4]}}\n  %{} = placeholder : {} {}", rows * axis.extent,
                             name(), mesh_along(axis), role);
    inputs_ += "\n";
    body_ += fmt::format("  %{} = aten.ge.Scalar(%ids, {}) : b8[6] @e\n", ge, first);
    body_ += fmt::format("  %{} = aten.lt.Scalar(%ids, {}) : b8[6] @e\n", lt, first + rows);
    body_ += fmt::format("  %{} = aten.bitwise_and.Tensor(%{}, %{}) : b8[6] @e\n", result(in), ge, lt);
    body_ += fmt::format("  %{} = aten.sub.Tensor(%ids, {}) : i64[6] @e\n", shifted, first);
    body_ += fmt::format("  %{} = aten.clamp.default(%{}, 0, {}) : i64[6] @e\n", clamped, shifted, rows - 1);
    body_ += fmt::format("  %{} = aten.embedding.default(%{}, %{}) : f32[6, 4] @e\n", result(found), table,
                         clamped);
  }

  // The rank's piece of a value that all have.
  void write_element() {
    const Axis& axis = pick_axis();
    const std::uint32_t pieces = axis.extent == 3 ? 0 : axis.extent, size = pieces == 0 ? 0 : 16 / pieces;
    if (pieces == 0) return write_gather();
    const bool is_sliced = pick(0, 1) == 1;
    const std::string split = name();
    const auto type_of = [&](std::uint32_t i) {
      return fmt::format("f32[8, {}]{{16, 1}}{}", size, i == 0 ? "" : fmt::format("+{}", i * size));
    };
    std::string types;
    for (std::uint32_t i = 0; i < pieces; ++i) types += (i == 0 ? "" : ", ") + type_of(i);
    if (!is_sliced)
      body_ += fmt::format("  %{} = aten.split.Tensor(%x, {}, 1) : [{}] @s\n", split, size, types);
    std::string own;
    for (std::uint32_t i = 0; i < pieces; ++i) {
      const std::string piece = name();
      if (i == axis.coordinate(rank_)) own = piece;
      const std::string call = is_sliced
                                   ? fmt::format("aten.slice.Tensor(%x, 1, {}, {})", i * size, (i + 1) * size)
                                   : fmt::format("operator.getitem(%{}, {})", split, i);
      body_ += fmt::format("  %{} = {} : {} @s\n", piece, call, type_of(i));
    }
    body_ += fmt::format(
        "  %{} = aten.clone.default(%{}, memory_format=torch.contiguous_format) : f32[8, {}] @s\n",
        result(name()), own, size);
  }

  // Every rank's: not an offset, though it may be one of a shard.
  void write_common_number() {
    body_ += fmt::format("  %{} = aten.ge.Scalar(%ids, {}) : b8[6] @c\n", result(name()), 4 * pick(0, 4));
  }

  void write_mesh() {
    const Axis& axis = pick_axis();
    inputs_ += fmt::format("  %{} = placeholder : {}\n", result(name()), mesh_along(axis));
  }
  std::string mesh_along(const Axis& axis) const {
    return fmt::format("=mesh([\"{}\"], [{}], [{}], \"cuda\")", axis.name, axis.extent,
                       fmt::join(axis.rule().members(rank_), ", "));
  }

  std::mt19937 random_;
  std::uint32_t seed_;
  std::vector<Axis> axes_;
  std::uint32_t size_ = 1;
  Rank rank_ = 0;
  std::string inputs_, body_, outputs_;
  std::uint32_t count_ = 0;
};

// The groups and the step, without what says how the graph was made.
std::string print_program(Graph graph) {
  graph.passes.clear();
  graph.origins.clear();
  graph.info = Arg::none();
  for (NodeId id : graph.step().order) graph.step().nodes[id].provenance = {};
  return print_text(graph);
}

// With places for names, as passes and specialize name what they make.
std::string print_by_place(Graph graph) {
  std::size_t place = 0;
  for (NodeId id : graph.step().order) {
    Node& node = graph.step().nodes[id];
    node.name = graph.intern(fmt::format("n{}", place++));
    if (node.kind == NodeKind::kPlaceholder) node.target = node.name;
  }
  graph.inputs.clear();
  return print_program(std::move(graph));
}

// ------------------------------------------------------------------------ execution

// What the ranks returned, by rank and number; no bytes of what is no tensor.
using Returned = std::vector<std::vector<std::vector<std::byte>>>;

Returned bytes_of(const std::vector<replay::RankResult>& ranks) {
  Returned made;
  for (const replay::RankResult& rank : ranks) {
    auto& outputs = made.emplace_back();
    for (const replay::Value& value : rank.outputs) {
      auto& bytes = outputs.emplace_back();
      if (!value.is_tensor()) continue;
      const replay::Tensor& tensor = value.tensor();
      bytes.resize(static_cast<std::size_t>(tensor.numel()) * tensor.element_bytes());
      if (!bytes.empty()) replay::gather_elements(tensor, bytes.data());
    }
  }
  return made;
}

const replay::KernelTable& kernels() {
  static const replay::KernelTable kAll = replay::make_cpu_kernels();
  return kAll;
}

constexpr std::chrono::milliseconds kDeadline = std::chrono::seconds(60);

std::vector<replay::RankInputs> make_inputs(const Graph& graph, const World& world, std::uint64_t seed) {
  static const replay::Recipe kRecipe =
      replay::parse_recipe(R"({"inputs": [{"name": "tokens", "make": "integers", "below": 64}]})", "recipe");
  replay::InputData data(seed);
  data.recipe = &kRecipe;
  return replay::make_inputs(graph, world, kernels(), data);
}

// One graph that all ranks run.
Returned run_shared(const Graph& graph, std::uint64_t seed) {
  const World world = derive_world(graph);
  return bytes_of(
      replay::run_ranks(graph, world, kernels(), make_inputs(graph, world, seed), {.deadline = kDeadline})
          .ranks);
}

// Each rank its own graph, which calls the rank's groups by its own names.
class OwnPrograms {
 public:
  OwnPrograms(const std::vector<Graph>& graphs, std::uint64_t seed) : graphs_(graphs), seed_(seed) {
    for (const Graph& graph : graphs) worlds_.push_back(derive_world(graph));
    world_ = worlds_.front();
    world_.groups.clear();
    for (Rank rank = 0; rank < graphs.size(); ++rank)
      for (const ProcessGroup& group : graphs[rank].groups) {
        GroupMembers& members = world_.groups[std::string(graphs[rank].text(group.name))];
        members.of_rank.resize(graphs.size());
        members.of_rank[rank] = group.ranks;
      }
  }

  Returned run() {
    replay::LocalTransport transport(world_, kDeadline);
    results_.resize(graphs_.size());
    // All graphs share a context, which remembers what it was asked: one thread alone may ask.
    std::vector<replay::RankInputs> inputs;
    std::vector<replay::Program> programs;
    for (Rank rank = 0; rank < graphs_.size(); ++rank) {
      const Graph& graph = graphs_[rank];
      inputs.push_back(make_inputs(graph, worlds_[rank], seed_)[rank]);
      programs.push_back({graph,
                          graph.step(),
                          kernels(),
                          world_,
                          replay::plan_steps(graph, graph.step()),
                          {},
                          replay::find_written_inputs(graph)});
    }
    std::vector<std::exception_ptr> errors(graphs_.size());
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < graphs_.size(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          run_one(rank, programs[rank], inputs[rank], transport);
        } catch (const replay::Aborted&) {
          // the rank that failed reports
        } catch (const std::exception& error) {
          errors[rank] = std::current_exception();
          transport.abort(error.what());
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error != nullptr) std::rethrow_exception(error);
    return bytes_of(results_);
  }

 private:
  void run_one(Rank rank, const replay::Program& program, const replay::RankInputs& inputs,
               replay::LocalTransport& transport) {
    const replay::Progress silent;  // the counter keeps it by reference
    replay::StepCounter counter(silent, "", program.steps.list.size());
    const replay::RankSetup setup{rank, counter, memory_, nullptr, transport, &transport, nullptr, nullptr};
    results_[rank] = replay::run_rank(program, setup, inputs, {.deadline = kDeadline});
    transport.finish(rank);
  }

  const std::vector<Graph>& graphs_;
  const std::uint64_t seed_;
  std::vector<World> worlds_;  // as each rank's graph knows it
  World world_;                // what all of them call their groups
  replay::HostMemory memory_{replay::HostMemory::Fill::kNone};
  std::vector<replay::RankResult> results_;
};

// ---------------------------------------------------------------------------- checks

void require(bool holds, std::string_view what) {
  if (!holds) throw std::runtime_error(std::string(what));
}

void require_no_findings(const Graph& graph, Rank rank, bool is_shared) {
  const RankLiterals literals = find_rank_literals(graph, rank);
  require((is_shared ? find_baked(graph, literals, rank) : find_foreign(graph, literals, rank)).empty(),
          fmt::format("rank {}: a number is called one rank's", rank));
  require(find_baked_slices(graph).empty(), fmt::format("rank {}: a slice is called one rank's", rank));
  require(find_wrong_axes(graph).empty(), fmt::format("rank {}: an axis is called wrong", rank));
}

// Throws what does not hold of the program that the seed makes.
void check(std::uint32_t seed, std::map<std::string, std::size_t>& explained) {
  Program program(seed);
  std::vector<Graph> ranks, specialized;
  for (Rank rank = 0; rank < program.size(); ++rank)
    ranks.push_back(parse_text(program.of_rank(rank), "g.txt", ranks.empty() ? nullptr : ranks[0].context));
  const Generalization made = generalize(ranks, Repair::kNo);
  for (const Unexplained& row : made.unexplained)
    throw std::runtime_error(fmt::format("unexplained: %{}: {}", row.site.node, row.why));
  require(made.graph.has_value(), "no graph for all ranks");
  for (const Explained& row : made.explained) ++explained[row.kind];
  require_no_findings(*made.graph, 0, true);
  const Graph pruned = dce(*made.graph);
  for (Rank rank = 0; rank < program.size(); ++rank) {
    const Graph& own = specialized.emplace_back(specialize(*made.graph, {.rank = rank}).graph);
    require(print_program(own) == print_program(ranks[rank]),
            fmt::format("rank {}: specialize gives another program", rank));
    require_no_findings(own, rank, false);
    require(print_by_place(specialize(pruned, {.rank = rank}).graph) == print_by_place(dce(own)),
            fmt::format("rank {}: dce and specialize do not commute", rank));
  }
  const Returned returned = OwnPrograms(ranks, seed).run();
  require(OwnPrograms(specialized, seed).run() == returned,
          "the specialised programs return other bits than the ranks' own");
  require(run_shared(*made.graph, seed) == returned, "the graph for all ranks returns other bits");
}

int run(std::uint32_t count) {
  std::map<std::string, std::size_t> explained;  // kinds
  for (std::uint32_t seed = 0; seed < count; ++seed) {
    try {
      check(seed, explained);
    } catch (const std::exception& error) {
      std::cerr << fmt::format("seed {}: {}\nrank 0:\n{}", seed, error.what(), Program(seed).of_rank(0));
      return 1;
    }
  }
  std::cout << fmt::format("{} programs: generalized, specialised and executed alike;", count);
  for (const char* kind : {"coordinate", "element", "group", "mesh"}) {
    std::cout << fmt::format(" {} {}", explained[kind], kind);
    if (explained[kind] * 7 > count) continue;
    std::cerr << fmt::format("\ntoo few differences of kind {}\n", kind);
    return 1;
  }
  std::cout << "\n";
  return 0;
}

}  // namespace
}  // namespace epweave

int main(int argc, char** argv) {
  std::uint32_t count = 150;
  CLI::App app("Random programs of several ranks, generalized, specialised and executed");
  app.add_option("COUNT", count, "Programs to check")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return epweave::run(count);
}
