#include "compare/rewrite/moved_views.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "compare/lineage.h"
#include "compare/rewrite/rewrite_claims.h"
#include "ops/op.h"

namespace epweave {
namespace {

class ViewWriter {
 public:
  ViewWriter(const Graph& a, const Graph& b) : a_(a), b_(b), context_(*a.context) {
    for (NodeId id : a.step().order) in_a_.at(a.step().nodes[id].name) = id;
  }

  std::optional<Graph> run() {
    for (NodeId id : b_.step().order)
      if (const std::vector<StringId> values = find_values(id); !values.empty()) values_.at(id) = values;
    for (NodeId id : b_.step().order) find_users(id);
    find_waits();
    if (!has_users_) return std::nullopt;
    write();
    return std::move(result_);
  }

 private:
  // What the memory that a node of the rewrite makes stands for by a merge: A's values of its type,
  // of which a launch is none yet.
  std::vector<StringId> find_values(NodeId id) const {
    const Node& node = b_.step().nodes[id];
    std::vector<StringId> values;
    if (!is_merged_memory(node) || !has_numbers(node.type)) return values;
    const Provenance* made = find_maker(node);
    EPWEAVE_CHECK(made != nullptr);  // a merged node was added
    for (StringId origin : origins_of(node)) {
      const NodeId a = in_a_[origin];
      if (!a || std::ranges::find(made->origins, origin) != made->origins.end()) continue;
      if (!is_launch(a_.step().nodes[a]) && has_sizes_of(a, node)) values.push_back(origin);
    }
    return values;
  }

  bool has_numbers(TypeId type) const {
    const TensorType* tensor = tensor_of(context_, type);
    return tensor != nullptr && std::ranges::all_of(tensor->sizes, [&](ExprId size) {
             return context_.exprs.constant(size).has_value();
           });
  }

  bool has_sizes_of(NodeId a, const Node& node) const {
    const TensorType *was = tensor_of(context_, a_.step().nodes[a].type),
                     *is = tensor_of(context_, node.type);
    return was != nullptr && was->dtype == is->dtype && std::ranges::equal(was->sizes, is->sizes);
  }

  // Who takes it as a value of A: what the rewrite made itself takes the memory.
  void find_users(NodeId id) {
    const Lineage lineage = find_lineage(b_.step().nodes[id]);
    if (!lineage.is_whole() && !lineage.is_part()) return;
    for_each_input(context_, b_.step().nodes[id], [&](NodeId input) {
      if (values_[input].empty()) return;
      has_users_ = true;
      users_.insert(id);
      shown_.insert(input);
    });
  }

  // A wait is to be done, whoever takes what it gives: memory that stands for one is shown as that.
  void find_waits() {
    IdSet<StringId> claimed;
    for (NodeId id : b_.step().order) {
      const Lineage lineage = find_lineage(b_.step().nodes[id]);
      const bool is_claim = lineage.is_whole() || lineage.role == ProvenanceRole::kMaterialize;
      if (is_claim && !lineage.origins.empty()) claimed.insert(lineage.origins.front());
    }
    for (NodeId id : b_.step().order)
      for (StringId value : values_[id])
        if (is_wait(a_.step().nodes[in_a_[value]]) && !claimed.contains(value)) {
          has_users_ = true;
          shown_.insert(id);
        }
  }

  void write() {
    result_ = b_;
    Body& body = result_->step();
    IdSet<StringId> names;
    for (NodeId id : body.order) names.insert(body.nodes[id].name);
    std::vector<NodeId> order;
    SideTable<NodeId, NodeId> view_of;
    for (NodeId id : body.order) {
      if (users_.contains(id)) {
        const auto redirect = [&](Arg arg) {
          return arg.is_node() && view_of[arg.as_node()] ? Arg::node(view_of[arg.as_node()]) : arg;
        };
        map_arguments(context_, body, id, redirect);
      }
      order.push_back(id);
      if (!shown_.contains(id)) continue;
      view_of.at(id) = body.nodes.push_back(make_view(id));
      order.push_back(view_of[id]);
      const std::string wanted = fmt::format("{}_memory", context_.text(body.nodes[id].name));
      StringId name = result_->intern(wanted);
      for (std::size_t i = 1; names.contains(name); ++i)
        name = result_->intern(fmt::format("{}_{}", wanted, i));
      names.insert(name);
      body.nodes[id].name = name;
    }
    body.order = std::move(order);
  }

  // It has the name that messages call the value by.
  Node make_view(NodeId id) {
    const OpInfo& op = find_view();
    const Node& memory = b_.step().nodes[id];
    std::vector<Arg> sizes;
    for (ExprId size : tensor_of(context_, memory.type)->sizes)
      sizes.push_back(Arg::integer(*context_.exprs.constant(size)));
    const std::vector<Arg> args = {Arg::node(id), context_.args.add_tree(ArgKind::kList, sizes)};
    Node view{.name = memory.name,
              .target = result_->intern(op.target),
              .op = &op,
              .backward = memory.backward,
              .args = context_.args.add(args),
              .type = memory.type,
              .module = memory.module,
              .source = memory.source};
    const Provenance record{.pass = memory.provenance.back().pass,
                            .role = ProvenanceRole::kMaterialize,
                            .origins = context_.own(std::span<const StringId>(values_[id]))};
    view.provenance = context_.own(std::span<const Provenance>(&record, 1));
    return view;
  }

  const Graph& a_;
  const Graph& b_;
  Context& context_;
  std::optional<Graph> result_;
  SideTable<StringId, NodeId> in_a_;                 // by name
  SideTable<NodeId, std::vector<StringId>> values_;  // that memory of B stands for
  IdSet<NodeId> users_, shown_;
  bool has_users_ = false;
};

}  // namespace

std::optional<Graph> write_moved_views(const Graph& a, const Graph& b) {
  const Body& body = b.step();
  if (std::ranges::none_of(body.order, [&](NodeId id) { return is_merged_memory(body.nodes[id]); }))
    return std::nullopt;
  return ViewWriter(a, b).run();
}

}  // namespace epweave
