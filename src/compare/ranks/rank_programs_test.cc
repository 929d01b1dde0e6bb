// Random programs of several ranks: generalize and specialize are inverse, specialize and dce
// commute, and no rank's own number is called baked.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "compare/ranks/rank_baked.h"
#include "ir/text/text.h"
#include "passes/dce.h"
#include "passes/generalize/generalize.h"
#include "passes/specialize.h"

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
    switch (pick(0, 5)) {
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

  // a + b * c, of one axis.
  void write_number() {
    const Axis& axis = pick_axis();
    const std::int64_t offset = pick(0, 50), scale = pick(1, 40);
    body_ += fmt::format("  %{} = aten.add.Scalar(%x, {}) : f32[8, 16] @n\n", result(name()),
                         offset + scale * axis.coordinate(rank_));
  }

  // Ids looked up in a shard of a table.
  void write_lookup() {
    const Axis& axis = pick_axis();
    const std::int64_t rows = 4 * pick(1, 4), first = rows * axis.coordinate(rank_);
    const std::string table = name(), ge = name(), lt = name(), in = name(), shifted = name(),
                      clamped = name(), found = name();
    inputs_ += fmt::format(
        "  %{} = placeholder : f32[{}, 4] role=parameter fqn={}.weight more{{global_shape=[{}, 4]}}\n", table,
        rows, table, rows * axis.extent);
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
    inputs_ += fmt::format("  %{} = placeholder : =mesh([\"{}\"], [{}], [{}], \"cuda\")\n", result(name()),
                           axis.name, axis.extent, fmt::join(axis.rule().members(rank_), ", "));
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

TEST_CASE("random programs: specialize is the inverse of generalize, and no rank's number is baked") {
  std::map<std::string, std::size_t> explained;  // kinds
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    Program program(seed);
    std::vector<Graph> ranks;
    std::vector<std::string> texts;
    for (Rank rank = 0; rank < program.size(); ++rank) {
      texts.push_back(program.of_rank(rank));
      ranks.push_back(parse_text(texts.back(), "g.txt", ranks.empty() ? nullptr : ranks[0].context));
    }
    INFO("seed " << seed << "\n" << texts[0]);
    const Generalization made = generalize(ranks, Repair::kNo);
    for (const Unexplained& row : made.unexplained) UNSCOPED_INFO(row.site.node << ": " << row.why);
    REQUIRE(made.graph);
    for (const Explained& row : made.explained) ++explained[row.kind];
    CHECK(find_baked(*made.graph, find_rank_literals(*made.graph, 0), 0).empty());
    const Graph pruned = dce(*made.graph);
    for (Rank rank = 0; rank < program.size(); ++rank) {
      INFO("rank " << rank << "\n" << texts[rank]);
      const Graph own = specialize(*made.graph, {.rank = rank}).graph;
      CHECK(print_program(own) == print_program(ranks[rank]));
      CHECK(find_foreign(own, find_rank_literals(own, rank), rank).empty());
      CHECK(print_by_place(specialize(pruned, {.rank = rank}).graph) == print_by_place(dce(own)));
    }
  }
  for (const char* kind : {"coordinate", "element", "group", "mesh"}) CHECK(explained[kind] > 20);
}

}  // namespace
}  // namespace epweave
