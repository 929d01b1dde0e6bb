// The orders of values of A that have parts, one node of A after the other (verify_frames.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "analysis/effects.h"
#include "analysis/frame_terms.h"
#include "analysis/value_numbers.h"
#include "base/few_table.h"
#include "base/id.h"
#include "compare/rewrite/frame_order.h"
#include "compare/rewrite/part_facts.h"
#include "compare/rewrite/position_names.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/row_blocks.h"

namespace epweave {

class KnownOrders {
 public:
  using Operand = PartFacts::Operand;

  // All must outlive it. `effects`, `numbers`: of A.
  KnownOrders(const RewriteClaims& claims, const Effects& effects, const ValueNumbers& numbers,
              RowBlocks& blocks, FrameTerms& terms, PositionNames& names);

  // The order of the tokens, in so many blocks; 0: data of them that repeat themselves, which meet
  // all (RowBlocks sees where they begin again).
  FrameOrder tokens_in(std::int64_t blocks);
  FrameOrder plain_tokens() { return tokens_in(1); }
  // How a piece was cut; of a value of which that is not known, an order of its own.
  FrameOrder cut(NodeId share);
  bool is_tokens(const FrameOrder& order) const {
    return order.is_known() && terms_[order.frame].kind == FrameTerms::kTokenOrder;
  }
  // Of rows of the tokens in blocks of several lengths, one behind another.
  bool joins_tokens(const FrameOrder& order) const;
  bool is_unknown(const FrameOrder& order) const {
    return order.is_known() && terms_.is_unknown(order.frame);
  }
  // What only this value has, made of rows in a known order, or of none.
  FrameOrder unknown(NodeId value, FrameId base = {});
  // As data make it: it is not that of the tokens.
  FrameOrder own(NodeId value);
  // As many rows of each kind as a part's own counts say.
  FrameOrder runs_of(NodeId counts);

  FrameOrder of(const Operand& operand);
  FrameOrder of_share(NodeId share);  // of B
  FrameOrder numbered_by(const Operand& operand);
  FrameOrders operator[](NodeId a) const { return orders_of_[a]; }

  // Of a value, as the call that makes it leaves it.
  void set(NodeId a, const FrameOrders& orders) { set_by(a, a, orders); }
  // Rows of the value along this dimension may be seen through other views of its storage.
  void add_view(NodeId a, const std::vector<bool>& is_divided);
  // The call, which makes these, writes an operand with rows, which were in the order `before`.
  void note_write(NodeId call, const FrameOrders& made, const Operand& written, const FrameOrder& before);
  // Each node of A, behind what is known of it.
  void leave(NodeId a);

 private:
  // Of the rows of two views of one storage, row i of each begins where the other's does if stride
  // and count are equal: as many elements behind the row before. They are the same elements if all
  // is.
  struct Row {
    std::optional<std::int64_t> stride;  // none: its rows do not lie one behind another
    PolyId count;
    std::int64_t first = 0;  // element of the storage
    // Size and stride of each dimension of a row, but for those of size 1.
    std::vector<std::pair<std::int64_t, std::int64_t>> dims;
    DType dtype{};
    bool begins_with(const Row& other) const { return stride == other.stride && count == other.count; }
    friend bool operator==(const Row&, const Row&) = default;
  };
  struct View {
    NodeId value;
    Row row;
  };
  std::int64_t blocks_of(const FrameOrder& order) const;
  // As a call, which writes it, leaves it.
  void set_by(NodeId call, NodeId a, const FrameOrders& orders);
  std::span<const View> views_of(NodeId storage) const;
  bool shows_any_order(NodeId storage);
  void note_others(NodeId call);
  bool is_as_made(NodeId a) const { return contents_[a] == content_when_made_[a]; }
  Row row_of(NodeId value, const std::vector<bool>& is_divided) const;

  const RewriteClaims& claims_;
  const Effects& effects_;
  RowBlocks& blocks_;
  FrameTerms& terms_;
  PositionNames& names_;
  StorageContents contents_;
  SideTable<NodeId, std::uint32_t> content_when_made_;  // of a value's storage
  SideTable<NodeId, FrameOrders> orders_of_;
  FewTable<NodeId, std::vector<View>> views_;  // by storage
  // Of the node that is looked at:
  std::vector<NodeId> written_views_;  // of what it writes and returns
  bool keeps_order_ = false;
};

}  // namespace epweave
