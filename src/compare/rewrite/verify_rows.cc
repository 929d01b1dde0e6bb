#include "compare/rewrite/verify_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ops/op.h"

namespace epweave {
namespace {

// "mean" of "aten.mean.dim".
std::string_view base_name(const OpInfo& op) {
  std::string_view name = op.target;
  if (!name.starts_with("aten.")) return {};
  name.remove_prefix(5);
  return name.substr(0, name.find('.'));
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Over the dimensions named by `dim`, or all.
bool mixes_dim(const OpInfo& op) {
  return !op.find_param("other") && is_one_of(base_name(op), {"_softmax",
                                                              "_log_softmax",
                                                              "_softmax_backward_data",
                                                              "_log_softmax_backward_data",
                                                              "logsumexp",
                                                              "mean",
                                                              "var",
                                                              "var_mean",
                                                              "std",
                                                              "prod",
                                                              "amax",
                                                              "amin",
                                                              "max",
                                                              "min",
                                                              "argmax",
                                                              "argmin",
                                                              "median",
                                                              "all",
                                                              "any",
                                                              "linalg_vector_norm"});
}

// Over the last dimensions, as many as `normalized_shape` has.
bool normalizes(const OpInfo& op) {
  return is_one_of(base_name(op), {"_fused_rms_norm", "native_layer_norm"});
}

class MixedDimensions {
 public:
  MixedDimensions(const Context& context, const Node& node, std::size_t rank)
      : context_(context), node_(node), is_mixed_(rank) {
    const OpInfo& op = *node.op;
    if (normalizes(op)) {
      const Arg* shape = find(op, "normalized_shape");
      const std::size_t n = shape != nullptr && shape->is_list() ? context.args.children(*shape).size() : 0;
      for (std::size_t i = rank - std::min(n, rank); i < rank; ++i) is_mixed_[i] = true;
    } else if (mixes_dim(op)) {
      const Arg* dim = find(op, "dim");
      if (dim != nullptr && dim->is_int()) {
        add(dim->as_int());
      } else if (dim != nullptr && dim->is_list() && !context.args.children(*dim).empty()) {
        for (const Arg& item : context.args.children(*dim))
          if (item.is_int()) add(item.as_int());
      } else {
        is_mixed_.assign(rank, true);
      }
    }
  }

  bool operator[](std::size_t dim) const { return is_mixed_[dim]; }

 private:
  const Arg* find(const OpInfo& op, std::string_view param) const {
    const auto position = op.find_param(param);
    return position ? find_arg(context_, node_, *position, param) : nullptr;
  }
  void add(std::int64_t dim) {
    const std::int64_t at = dim < 0 ? dim + std::ssize(is_mixed_) : dim;
    if (at >= 0 && at < std::ssize(is_mixed_)) is_mixed_[static_cast<std::size_t>(at)] = true;
  }

  const Context& context_;
  const Node& node_;
  std::vector<bool> is_mixed_;
};

}  // namespace

void check_rows(RewriteClaims& claims, Numbers& numbers, NodeId part) {
  const Context& context = *claims.graph_b().context;
  const Node& node = claims.graph_b().step().nodes[part];
  if (node.op == nullptr || !(mixes_dim(*node.op) || normalizes(*node.op))) return;
  const auto before = context.args[claims.graph_a().step().nodes[claims[part].origin].args];
  const auto after = context.args[node.args];
  if (before.empty() || after.empty() || !before[0].is_node() || !after[0].is_node()) return;
  const TensorType* whole = claims.tensor_a(before[0].as_node());
  const TensorType* piece = claims.tensor_b(after[0].as_node());
  if (whole == nullptr || piece == nullptr || whole->sizes.size() != piece->sizes.size()) return;
  const MixedDimensions is_mixed(context, node, whole->sizes.size());
  for (std::size_t i = 0; i < whole->sizes.size(); ++i) {
    if (!is_mixed[i] || numbers.match(whole->sizes[i], piece->sizes[i], {}) == Fraction::kAll) continue;
    return claims.fail(part, "rewrite-rows",
                       fmt::format("mixes what lies along dimension {} of {}, of which it has {} of {}", i,
                                   claims.describe(after[0].as_node()),
                                   context.exprs.print(context.exprs.poly(piece->sizes[i])),
                                   context.exprs.print(context.exprs.poly(whole->sizes[i]))));
  }
}

}  // namespace epweave
