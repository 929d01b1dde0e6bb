#include "analysis/fused_metadata.h"

#include <span>
#include <string_view>
#include <utility>

#include "analysis/fused_products.h"
#include "ops/bind.h"

namespace epweave {
namespace {

constexpr std::string_view kFusedFrom = "fused_from";

std::optional<ProvenanceRole> find_role(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ProvenanceRole::kSpecialized); ++i)
    if (name_of(static_cast<ProvenanceRole>(i)) == name) return static_cast<ProvenanceRole>(i);
  return std::nullopt;
}

class FusedWriter {
 public:
  FusedWriter(Graph& graph, StringId pass) : graph_(graph), context_(*graph.context), pass_(pass) {}

  Arg write(const FusedNodes& nodes) {
    std::vector<Arg> cuts, products;
    for (NodeId id : nodes.cuts) cuts.push_back(write(id));
    for (const FusedNodes::Product& product : nodes.products)
      products.push_back(tuple({write(product.front), write(product.call), write(product.back)}));
    const Arg cut = cuts.empty() ? Arg::none() : list(cuts);
    return tuple({write(nodes.launch), write(nodes.wait), cut, list(products)});
  }

 private:
  Arg write(NodeId id) {
    if (!id) return Arg::none();
    Node node = graph_.step().nodes[id];
    append_provenance(context_, node, {.pass = pass_, .origins = origins_of(node)});
    const std::vector<Arg> numbers = list_numbers(node);
    std::vector<Arg> records;
    for (const Provenance& record : node.provenance) records.push_back(write(record));
    return tuple({Arg::text(node.name), Arg::text(node.target), list(numbers), list(records)});
  }
  std::vector<Arg> list_numbers(const Node& node) const {
    const OpFamily family = node.op != nullptr ? node.op->family : OpFamily::kOpaque;
    if (family == OpFamily::kSlice) return {arg_of(context_, node, 2), arg_of(context_, node, 3)};
    if (family == OpFamily::kReshape) {
      const Arg sizes = arg_of(context_, node, 1);
      if (!sizes.is_tree()) return {};
      const auto items = context_.args.children(sizes);
      return {items.begin(), items.end()};
    }
    const std::size_t dim = family == OpFamily::kSplit ? 2 : 1;
    const bool has_dim = family == OpFamily::kSplit || family == OpFamily::kJoin;
    if (!has_dim || node.args.count <= dim) return {};
    return {arg_of(context_, node, dim)};
  }
  Arg write(const Provenance& record) {
    std::vector<Arg> origins;
    for (StringId origin : record.origins) origins.push_back(Arg::text(origin));
    return tuple({Arg::text(record.pass), Arg::text(graph_.intern(name_of(record.role))), list(origins),
                  Arg::integer(record.part), Arg::integer(record.parts)});
  }
  Arg list(std::span<const Arg> items) { return context_.args.add_tree(ArgKind::kList, items); }
  Arg tuple(std::initializer_list<Arg> items) {
    return context_.args.add_tree(ArgKind::kTuple, std::span(items.begin(), items.size()));
  }

  Graph& graph_;
  Context& context_;
  StringId pass_;
};

class FusedReader {
 public:
  explicit FusedReader(Context& context) : context_(context) {}

  FusedText read(const Node& call) const {
    FusedText text;
    const auto fields = items_of(find_entry(call));
    if (fields.size() != 4) return text;
    text.launch = read_node(fields[0]);
    text.wait = read_node(fields[1]);
    for (const Arg cut : items_of(fields[2])) text.cuts.push_back(read_node(cut));
    for (const Arg product : items_of(fields[3])) {
      const auto parts = items_of(product);
      if (parts.size() == 3)
        text.products.push_back({read_node(parts[0]), read_node(parts[1]), read_node(parts[2])});
    }
    return text;
  }

 private:
  Arg find_entry(const Node& call) const {
    if (call.extra == nullptr) return Arg::none();
    const auto meta = context_.args[call.extra->meta];
    for (std::size_t i = 0; i + 1 < meta.size(); i += 2)
      if (meta[i].is(ArgKind::kText) && context_.text(meta[i].as_name()) == kFusedFrom) return meta[i + 1];
    return Arg::none();
  }
  std::vector<Arg> items_of(Arg arg) const {
    if (!arg.is_list()) return {};
    const auto items = context_.args.children(arg);
    return {items.begin(), items.end()};
  }
  std::optional<FusedNode> read_node(Arg arg) const {
    const auto fields = items_of(arg);
    if (fields.size() != 4 || !fields[0].is(ArgKind::kText) || !fields[1].is(ArgKind::kText))
      return std::nullopt;
    FusedNode node{.name = fields[0].as_name(),
                   .op = find_op(context_.text(fields[1].as_name())),
                   .numbers = items_of(fields[2]),
                   .records = {}};
    for (const Arg record : items_of(fields[3])) {
      const auto read = read_record(record);
      if (!read) return std::nullopt;
      node.records.push_back(*read);
    }
    return node;
  }
  std::optional<Provenance> read_record(Arg arg) const {
    const auto fields = items_of(arg);
    if (fields.size() != 5 || !fields[0].is(ArgKind::kText) || !fields[1].is(ArgKind::kText) ||
        !fields[3].is_int() || !fields[4].is_int())
      return std::nullopt;
    const auto role = find_role(context_.text(fields[1].as_name()));
    if (!role) return std::nullopt;
    std::vector<StringId> origins;
    for (const Arg origin : items_of(fields[2]))
      if (origin.is(ArgKind::kText)) origins.push_back(origin.as_name());
    return Provenance{.pass = fields[0].as_name(),
                      .role = *role,
                      .origins = context_.own(origins),
                      .part = static_cast<std::uint32_t>(fields[3].as_int()),
                      .parts = static_cast<std::uint32_t>(fields[4].as_int())};
  }

  Context& context_;
};

}  // namespace

const NodeExtra* describe_fused(Graph& graph, const FusedNodes& nodes, NodeExtra like, StringId pass) {
  Context& context = *graph.context;
  const auto meta = context.args[like.meta];
  std::vector<Arg> all(meta.begin(), meta.end());
  all.push_back(Arg::text(graph.intern(kFusedFrom)));
  all.push_back(FusedWriter(graph, pass).write(nodes));
  like.meta = context.args.add(all);
  return context.own(std::move(like));
}

FusedText read_fused(Context& context, const Node& call) {
  return FusedReader(context).read(call);
}

}  // namespace epweave
