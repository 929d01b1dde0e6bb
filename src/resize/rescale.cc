#include "resize/rescale.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "analysis/merge_types.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/pass.h"
#include "passes/record.h"
#include "resize/count_bounds.h"
#include "resize/remedies.h"

namespace epweave {
namespace {

class Rescaler {
 public:
  Rescaler(const Graph& graph, const ScalingFactors& factors, const SizeChange& change, bool of_tokens)
      : in_(graph),
        context_(*graph.context),
        factors_(factors),
        change_(change),
        out_(with_new_sums(of_tokens)),
        facts_(out_) {
    pass_ = out_.intern("resize");
    reason_ = out_.intern(fmt::format("{} = {}", change.name, change.after));
    for (const SizeArgument& argument : factors.arguments) arguments_[argument.node].push_back(&argument);
  }

  Graph run() {
    for (NodeId id : in_.step().order) rewrite(id);
    return std::move(out_);
  }

 private:
  // factor * tokens, of one unit of the size.
  Rational of_unit(Rational factor) const { return factor * Rational::of(factors_.tokens, change_.before); }

  // factor * tokens at the new size. `about`: whose extent it is; none: of a recorded sum.
  std::int64_t scaled(Rational factor, NodeId about) const {
    const Rational after = of_unit(factor) * Rational{change_.after, 1};
    if (after.is_integer() && after.num > 0) return after.num;
    const Rational before = factor * Rational{factors_.tokens, 1};
    throw PassError(
        "resize.size",
        fmt::format("{} = {} leaves {} that is no whole number: it was {} of {}", change_.name, change_.after,
                    about ? fmt::format("an extent of %{}", in_.text(in_.step().nodes[about].name))
                          : std::string("a recorded sum"),
                    before.num, change_.before),
        about ? site_of(in_, in_.step().nodes[about]) : Site{},
        fmt::format("set a multiple of {}", find_step()));
  }

  // The least size of which every extent is a whole number.
  std::int64_t find_step() const {
    std::int64_t step = 1;
    const auto add = [&](Rational factor) { step = std::lcm(step, of_unit(factor).den); };
    for (NodeId id : in_.step().order)
      for (const auto& dims : factors_.of[id].tensors)
        for (const auto& factor : dims)
          if (factor) add(*factor);
    for (const SizeArgument& argument : factors_.arguments) add(argument.factor);
    for (const auto& [sum, factor] : factors_.sums) add(factor);
    return step;
  }

  // Eq(u4 + u5, 3072): what the pieces of an exchange add up to.
  Graph with_new_sums(bool of_tokens) const {
    Graph result = in_;
    ExprPool& pool = context_.exprs;
    const std::unordered_map<PolyId, Rational> factor_of(factors_.sums.begin(), factors_.sums.end());
    std::unordered_map<StringId, std::int64_t> sums;
    for (Symbol& symbol : result.symbols) {
      if (!symbol.asserts) continue;
      for (ExprId& fact : *symbol.asserts) {
        const Poly& poly = pool[pool.poly(fact)];
        if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) continue;
        const Atom atom = pool[poly.terms[0].atoms[0]];
        if (atom.kind != AtomKind::kEq || !pool.constant(atom.operands[1])) continue;
        const auto factor = factor_of.find(atom.operands[0]);
        if (factor == factor_of.end()) continue;
        for (StringId part : pool.symbols(atom.operands[0])) sums[part] = *pool.constant(atom.operands[1]);
        const std::int64_t number = scaled(factor->second, NodeId());
        // The text of the sum stays as it was.
        const std::string_view text = pool.text(fact);
        fact = pool.parse(fmt::format("{}, {})", text.substr(0, text.rfind(", ")), number));
      }
    }
    if (of_tokens) set_count_bounds(result, sums, {}, change_.before, change_.after);
    return result;
  }

  void rewrite(NodeId id) {
    const bool has_new_sizes = put_sizes(id);
    Node& node = out_.step().nodes[id];
    const TypeId before = node.type, after = new_type(id);
    if (!has_new_sizes && after == before) return;
    node.type = after;
    if (node.extra && node.extra->example_type && node.extra->example_type == before) {
      NodeExtra extra = *node.extra;
      extra.example_type = after;
      node.extra = context_.own(std::move(extra));
    }
    record_specialized(context_, node, pass_, reason_);
  }

  bool put_sizes(NodeId id) {
    const auto found = arguments_.find(id);
    if (found == arguments_.end()) return false;
    Node& node = out_.step().nodes[id];
    for (const SizeArgument* argument : found->second) {
      const Arg size = Arg::integer(scaled(argument->factor, id));
      const Arg value =
          argument->item ? with_item(arg_of(context_, node, argument->param), *argument->item, size) : size;
      set_arg(context_, node, argument->param, value);
    }
    return true;
  }

  Arg with_item(Arg list, std::size_t item, Arg value) {
    const auto children = context_.args.children(list);
    std::vector<Arg> items(children.begin(), children.end());
    items[item] = value;
    return context_.args.add_tree(list.kind(), items);
  }

  TypeId new_type(NodeId id) {
    const Node& node = out_.step().nodes[id];
    if (!node.type || node.kind == NodeKind::kOutput) return node.type;
    const auto& tensors = factors_.of[id].tensors;
    TypeId inferred;
    if (node.kind == NodeKind::kCall && has_type_rule(node) && (!tensors.empty() || has_new_input(id))) {
      try {
        inferred = infer_type(facts_, out_, out_.step(), node);
      } catch (const TypeMismatch& error) {
        throw PassError(
            "resize.type",
            fmt::format("with {} = {} it does not type-check: {}", change_.name, change_.after, error.what()),
            site_of(out_, node),
            "a number of this call or of one before it does not follow the size: " + find_other_way(in_));
      }
    }
    return merge_types(context_, node.type, inferred,
                       [&](std::size_t element, TypeId recorded, TypeId found) {
                         return merge(id, element, recorded, found);
                       });
  }

  bool has_new_input(NodeId id) {
    bool any = false;
    for_each_input(context_, out_.step().nodes[id], [&](NodeId input) {
      any = any || out_.step().nodes[input].type != in_.step().nodes[input].type;
    });
    return any;
  }

  // The recorded type with the extents that scale, laid out as the arguments say.
  TypeId merge(NodeId id, std::size_t element, TypeId recorded, TypeId inferred) {
    const TensorType* before = tensor_of(context_, recorded);
    if (before == nullptr) return inferred ? inferred : recorded;
    const TensorType* found = tensor_of(context_, inferred);
    TensorType after = *before;
    const auto& tensors = factors_.of[id].tensors;
    for (std::size_t dim = 0; dim < after.rank(); ++dim) {
      const bool scales = element < tensors.size() && tensors[element][dim].has_value();
      if (scales && context_.exprs.constant(before->sizes[dim]))
        after.sizes[dim] = context_.exprs.number(scaled(*tensors[element][dim], id));
    }
    if (found != nullptr && found->rank() == after.rank()) {
      if (!std::ranges::equal(found->sizes, after.sizes,
                              [&](ExprId a, ExprId b) { return facts_.equal(a, b); }))
        return inferred;  // what the arguments give: a later call says if that is wrong
      after.strides = found->strides;
      after.offset = found->offset;
    } else if (after.sizes != before->sizes) {
      after.strides =
          before->strides == contiguous_strides(facts_, before->sizes)
              ? contiguous_strides(facts_, after.sizes)
              : filled_strides(facts_, after.sizes, fill_order(facts_, before->strides, Ties::kFirstInside));
    }
    return after == *before ? recorded : context_.types.tensor(std::move(after));
  }

  const Graph& in_;
  Context& context_;
  const ScalingFactors& factors_;
  const SizeChange& change_;
  Graph out_;
  Facts facts_;
  StringId pass_, reason_;
  std::unordered_map<NodeId, std::vector<const SizeArgument*>> arguments_;
};

}  // namespace

Graph rescale(const Graph& graph, const std::vector<TokenInput>& inputs, ScalingOptions options,
              const SizeChange& change) {
  Facts facts(graph);
  const auto factors = [&] {
    try {
      return infer_scaling(graph, facts, inputs, options);
    } catch (const PassError& error) {
      throw PassError("resize.conflict",
                      fmt::format("what scales with {} contradicts itself: {}", change.name, error.problem()),
                      error.site(), find_other_way(graph));
    }
  }();
  return Rescaler(graph, factors, change, options.fixed_parameters).run();
}

}  // namespace epweave
