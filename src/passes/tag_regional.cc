#include "passes/tag_regional.h"

#include <fmt/format.h>

#include "analysis/element_call.h"
#include "analysis/regional_tag.h"
#include "base/counted.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "passes/node_names.h"

namespace epweave {
namespace {

constexpr int kDeepest = 16;  // levels of lists and objects among the options

void check_option(const Json& value, int depth, const std::string& path) {
  if (depth > kDeepest)
    throw InputError(fmt::format("{}: lists and objects lie deeper than {} levels", path, kDeepest));
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
    throw InputError(fmt::format("{}: {} is no number that 64 bits with a sign hold", path, value.dump()));
  for (const Json& item : value)
    if (value.is_structured()) check_option(item, depth + 1, path);
}

Arg encode(Context& context, const Json& value) {
  const auto text = [&](const std::string& x) { return Arg::text(context.strings.intern(x)); };
  if (value.is_boolean()) return Arg::boolean(value.get<bool>());
  if (value.is_number_integer()) return Arg::integer(value.get<std::int64_t>());
  if (value.is_number()) return Arg::real(value.get<double>());
  if (value.is_string()) return text(value.get<std::string>());
  if (!value.is_structured()) return Arg::none();
  std::vector<Arg> items;
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) items.push_back(text(key));
    items.push_back(encode(context, item));
  }
  return context.args.add_tree(value.is_object() ? ArgKind::kDict : ArgKind::kList, items);
}

Arg encode_tag(Graph& graph, const std::optional<Json>& configs) {
  Context& context = *graph.context;
  std::vector<Arg> entries;
  if (configs) entries = {Arg::text(graph.intern("inductor_configs")), encode(context, *configs)};
  return context.args.add_tree(ArgKind::kDict, entries);
}

class RegionalTagger {
 public:
  RegionalTagger(Graph& graph, const TagRegionalOptions& options)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        op_(options.op),
        value_(encode_tag(graph, options.configs)),
        function_value_(encode_tag(graph, options.function_configs)),
        pass_(graph.intern("tag-regional")),
        reason_(graph.intern("tagged for regional_inductor")),
        names_(graph, graph.step()) {}

  std::vector<std::string> run() {
    std::vector<NodeId> order;
    order.reserve(body_.order.size());
    for (NodeId id : body_.order) {
      if (is_selected(body_.nodes[id])) {
        ++calls_;
        tag(id);
        if (op_ == RegionalOp::kFlexAttention) tag_functions(id, order);
      } else if (op_ == RegionalOp::kRmsNorm && is_element_of_tagged(body_.nodes[id])) {
        tag(id);
      }
      order.push_back(id);
    }
    body_.order = std::move(order);
    tag_nested();
    return {note()};
  }

 private:
  bool is_selected(const Node& node) const {
    if (node.kind != NodeKind::kCall || node.op == nullptr) return false;
    switch (op_) {
      case RegionalOp::kFlexAttention:
        return node.op->family == OpFamily::kFlexAttention;
      case RegionalOp::kRmsNorm:
        return node.op->type_rule == rules::rms_norm || node.op->type_rule == rules::rms_norm_backward;
    }
    return false;
  }

  bool is_element_of_tagged(const Node& node) const {
    const NodeId tuple = tuple_of(context_, node);
    return tuple && is_selected(body_.nodes[tuple]);
  }

  void tag(NodeId id) {
    Node& node = body_.nodes[id];
    if (!RegionalTag::put(context_, node, value_)) return;
    ++tagged_;
    record(node);
  }

  void record(Node& node) {
    append_provenance(
        context_, node,
        {.pass = pass_, .role = ProvenanceRole::kKept, .origins = origins_of(node), .reason = reason_});
  }

  // The nodes of nested graphs that the call names; its own ones in place of those that another
  // call names, too.
  void tag_functions(NodeId call, std::vector<NodeId>& order) {
    for (NodeId function : list_functions(context_, body_, body_.nodes[call])) {
      tag(function);
      if (tagged_bodies_.insert(body_.nodes[function].attr.as_name())) ++nested_;
      if (is_read_.insert(function)) continue;
      const NodeId own = copy_function(function);
      order.push_back(own);
      replace_function(context_, body_.nodes[call], function, own);
    }
  }

  NodeId copy_function(NodeId function) {
    Node made = body_.nodes[function];
    append_provenance(context_, made,
                      {.pass = pass_,
                       .role = ProvenanceRole::kBody,
                       .origins = origins_of(made),
                       .parts = 1,
                       .reason = graph_.intern("regional_inductor compiles each call alone")});
    made.name = names_.make_like(graph_.text(made.target));
    ++copied_;
    return body_.nodes.push_back(made);
  }

  void tag_nested() {
    for (Body& nested : graph_.bodies) {
      if (!nested.name || !tagged_bodies_.contains(nested.name)) continue;
      for (NodeId id : nested.order)
        if (RegionalTag::put(context_, nested.nodes[id], function_value_)) ++inner_;
    }
  }

  std::string note() const {
    const std::string_view what = op_ == RegionalOp::kFlexAttention ? "FlexAttention" : "RMS norm";
    if (calls_ == 0) return fmt::format("unused: the step has no call of {}", what);
    std::string note =
        fmt::format("{} of {}: {} tagged", counted(calls_, "call"), what, counted(tagged_, "node"));
    if (op_ == RegionalOp::kFlexAttention)
      note += fmt::format(", and {} in {}", inner_, counted(nested_, "nested graph"));
    if (copied_ != 0)
      note += fmt::format("; {} added, so that each call names its own", counted(copied_, "node"));
    return note;
  }

  Graph& graph_;
  Context& context_;
  Body& body_;
  const RegionalOp op_;
  const Arg value_, function_value_;
  const StringId pass_, reason_;
  NodeNames names_;
  IdSet<NodeId> is_read_;          // of a function: by a call met so far
  IdSet<StringId> tagged_bodies_;  // by name
  std::size_t calls_ = 0, tagged_ = 0, inner_ = 0, nested_ = 0, copied_ = 0;
};

}  // namespace

Json parse_inductor_configs(std::string_view text, const std::string& path) {
  Json configs = parse_unique_json(text, path);
  if (!configs.is_object())
    throw InputError(fmt::format(
        "{}: no object of Inductor's options\n  expected as in {{\"max_autotune\": true}}", path));
  if (configs.contains("inductor_configs"))
    throw InputError(
        fmt::format("{}: \"inductor_configs\" is no option of Inductor\n  expected what it holds, "
                    "as in {{\"max_autotune\": true}}",
                    path));
  check_option(configs, 0, path);
  return configs;
}

PassResult tag_regional(const Graph& graph, const TagRegionalOptions& options) {
  PassResult result{graph};
  result.notes = RegionalTagger(result.graph, options).run();
  return result;
}

}  // namespace epweave
