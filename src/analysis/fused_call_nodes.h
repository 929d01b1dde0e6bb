// Nodes that stand for one fused call (fused_products.h), as its metadata names them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "analysis/fused_metadata.h"
#include "analysis/open_body.h"
#include "base/id.h"
#include "ir/graph.h"
#include "ir/types/layout.h"

namespace epweave {

class FusedCallNodes {
 public:
  using Text = std::optional<FusedNode>;  // what the metadata says of a node; it may say nothing

  // All but the call must outlive it. `regrouped`: takes what a kernel may sum in another order.
  FusedCallNodes(OpenBody& body, const Node& call, const FusedText& text, IdSet<StringId>& regrouped)
      : body_(body), call_(call), text_(text), regrouped_(regrouped) {}

  NodeId add(std::string_view target, std::vector<Arg> args, const Text& text, std::vector<Arg> kwargs = {});
  NodeId reshape(NodeId value, const Dims& sizes, const Text& text);
  NodeId permute(NodeId value, const std::vector<std::size_t>& dims);
  NodeId copy_contiguous(NodeId value);
  Arg list(const std::vector<Arg>& items) { return body_.context().args.add_tree(ArgKind::kList, items); }

  // Blocks of `ranks` that lie one behind another along `from`, along `to`. `cuts`: split, pieces,
  // join; or nothing.
  struct Regrouping {
    std::int64_t ranks;
    std::size_t from, to;
  };
  NodeId regroup(NodeId value, const Regrouping& how, std::vector<Text> cuts);

 private:
  StringId free_name(StringId wanted);
  bool is_front(NodeId id) const;
  NodeId split(NodeId value, ExprId size, const Regrouping& how, const Text& text);
  Arg extent(ExprId size) const;

  OpenBody& body_;
  const Node call_;
  const FusedText& text_;
  IdSet<StringId>& regrouped_;
  std::size_t written_ = 0;  // nodes that got names of their own
};

}  // namespace epweave
