#include "compare/rewrite/verify_rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "analysis/fused_products.h"
#include "analysis/missing_types.h"
#include "compare/pairing.h"
#include "compare/rebase.h"
#include "compare/rewrite/host_copies.h"
#include "compare/rewrite/moved_views.h"
#include "compare/rewrite/part_symbols.h"
#include "compare/rewrite/prefix_keys.h"
#include "compare/rewrite/repeats.h"
#include "compare/rewrite/rewrite_assumptions.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/rewrite_numerics.h"
#include "compare/rewrite/row_blocks.h"
#include "compare/rewrite/schema_order.h"
#include "compare/rewrite/verify_aliases.h"
#include "compare/rewrite/verify_calls.h"
#include "compare/rewrite/verify_frames.h"
#include "compare/rewrite/verify_interface.h"
#include "compare/rewrite/verify_joins.h"
#include "compare/rewrite/verify_movement.h"
#include "compare/rewrite/verify_rows.h"
#include "compare/rewrite/verify_storage.h"
#include "compare/rewrite/verify_strides.h"
#include "compare/rewrite/verify_taken_rows.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

class RewriteVerifier {
 public:
  // `prefix`: what was read otherwise of B; none: nothing.
  RewriteVerifier(RewriteClaims& claims, const PrefixCalls* prefix, const LoadedResults& loaded,
                  RewriteReport& report)
      : claims_(claims),
        prefix_(prefix),
        a_(claims.graph_a()),
        b_(claims.graph_b()),
        numbers_(a_, b_),
        calls_(claims, numbers_),
        joins_(claims, numbers_),
        storage_(claims),
        rows_(claims, numbers_),
        later_a_(storage_.effects_of_a()),
        later_b_(storage_.effects_of_b()),
        strides_(claims, numbers_, later_a_, later_b_),
        blocks_(claims),
        movement_(claims, numbers_, storage_.effects_of_a(), later_b_),
        aliases_(claims, storage_.effects_of_a(), storage_.effects_of_b(), loaded),
        taken_rows_(claims, numbers_, later_a_, later_b_),
        report_(report) {
    if (prefix_ == nullptr) return;
    calls_.set_prefix_calls(&prefix_->calls);
    for (NodeId sum : prefix_->sums) claims_.set_regrouped(sum);
  }

  void run() {
    joins_.learn_divisions();
    joins_.learn_sums();
    check_inputs(claims_, numbers_);
    claims_.check_parts();
    for (NodeId id : b_.step().order) check_node(id);
    movement_.settle_launches();
    if (movement_.has_moved())
      for (NodeId id : b_.step().order)
        if (!movement_.accounts_for(id)) calls_.check_added(id);
    PartFacts facts(claims_, numbers_, storage_.effects_of_a(), blocks_);
    calls_.group_uses();
    const std::vector<std::string> about_orders = check_orders(facts);
    calls_.check_uniform(facts, blocks_);
    check_joined_orders();
    calls_.check_shared_writes(facts);
    calls_.check_summands(facts);
    taken_rows_.check_facts(facts, blocks_);
    storage_.check_updates(movement_.waited());
    storage_.check_last_writes();
    storage_.check_order();
    aliases_.check();
    check_world(claims_);
    check_groups(claims_);
    storage_.check_host_reads();
    check_nested(claims_, numbers_);
    check_part_symbols(a_, b_, report_.violations);
    check_binders(claims_);
    check_symbol_facts(claims_, numbers_);
    for (NodeId id : a_.step().order) report_.divided += !claims_.parts(id).empty();
    assume(list_assumptions(claims_, numbers_));
    assume(blocks_.assumptions());
    assume(about_orders);
    assume(strides_.assumptions());
    assume(aliases_.assumptions());
    assume(calls_.assumptions());
    if (facts.rests_on_own_sums())
      assume(
          {"where a part takes a sum, that of its own rows is meant (contract=own-sums in the second graph's "
           "log)"});
    report_.outputs = classify_outputs(claims_, storage_.writers_of_b());
  }

 private:
  // Each once.
  void assume(const std::vector<std::string>& assumed) {
    for (const std::string& text : assumed)
      if (assumed_.insert(text).second) report_.assumptions.push_back(text);
  }

  void check_node(NodeId id) {
    if (!movement_.has_moved()) calls_.check_added(id);
    calls_.check_kind(id);
    switch (claims_[id].kind) {
      case ClaimKind::kWhole:
        ++report_.whole;
        if (!taken_rows_.check(id, joins_)) calls_.check_call(id);
        calls_.check_type(id);
        storage_.check_effects(id);
        strides_.check(id);
        break;
      case ClaimKind::kPart:
        calls_.check_call(id);
        rows_.check(id);
        storage_.check_effects(id);
        strides_.check(id);
        break;
      case ClaimKind::kSplit:
        ++report_.splits;
        joins_.check_split(id);
        break;
      case ClaimKind::kPiece:
        joins_.check_piece(id);
        strides_.check_piece(id);
        break;
      case ClaimKind::kJoin:
        ++report_.joins;
        joins_.check_join(id);
        break;
      case ClaimKind::kMoved:
        ++report_.whole;
        calls_.check_type(id);
        break;
      case ClaimKind::kSize:
        calls_.check_size(id);
        break;
      case ClaimKind::kBlocks:  // with the split or join that is made with it
        strides_.check_piece(id);
        break;
      case ClaimKind::kNone:
        break;
    }
    movement_.visit(id);
  }

  // Of what parts take: gives what is assumed of the orders of rows. What is known of these is
  // large, and no other check asks for it.
  std::vector<std::string> check_orders(PartFacts& facts) {
    FrameCheck frames(claims_, {storage_.effects_of_a(), storage_.effects_of_b()}, blocks_);
    calls_.visit_divided(
        [&](NodeId origin, NodeId part, std::span<const PartOperand> operands) {
          facts.add(origin, part, operands);
          frames.add(origin, part, facts);
        },
        [&](NodeId node) { frames.note_writes_of(node); });
    return frames.assumptions();
  }

  void check_joined_orders() {
    for (NodeId id : b_.step().order) {
      const ClaimKind kind = claims_[id].kind;
      if (kind == ClaimKind::kJoin) blocks_.check_join(id);
      if (kind == ClaimKind::kPart && prefix_ != nullptr && prefix_->calls.contains(id))
        check_prefix_order(id);
    }
  }

  // Rows that were counted from the first token on are those of the tokens before, in their order.
  void check_prefix_order(NodeId call) {
    const Node& node = b_.step().nodes[call];
    for (const std::string_view param : {"query", "key", "value"}) {
      const Arg arg = arg_of(*b_.context, node, node.op->find_param(param).value());
      if (!arg.is_node() || !blocks_.has_token_order(arg.as_node()))
        claims_.fail(
            call, "rewrite-attention",
            fmt::format(
                "takes the keys up to its part's, and its {} is not known to be in the order of the tokens",
                param));
    }
  }

  RewriteClaims& claims_;
  const PrefixCalls* prefix_;
  const Graph& a_;
  const Graph& b_;
  Numbers numbers_;
  CallCheck calls_;
  JoinCheck joins_;
  StorageCheck storage_;
  RowCheck rows_;
  LaterWrites later_a_, later_b_;
  StrideCheck strides_;
  RowBlocks blocks_;
  MovementCheck movement_;
  AliasCheck aliases_;
  TakenRowsCheck taken_rows_;
  std::unordered_set<std::string> assumed_;
  RewriteReport& report_;
};

// Violations of a graph of write_moved_views speak of B's nodes: of the memory, which has another
// name there, and of the view, which is not in B.
void name_as_in(const Graph& b, const Graph& viewed, std::vector<Violation>& violations) {
  for (NodeId id : b.step().order) {
    const Node& memory = b.step().nodes[id];
    const std::string name(b.text(memory.name)), there(viewed.text(viewed.step().nodes[id].name));
    if (name == there) continue;
    for (Violation& violation : violations) {
      if (violation.site.node == there || violation.site.node == name) violation.site = site_of(b, memory);
      for (std::size_t at = 0; (at = violation.message.find("%" + there, at)) != std::string::npos; ++at)
        violation.message.replace(at + 1, there.size(), name);
    }
  }
}

// Names of calls that may sum in another order than written.
struct RegroupedCalls {
  IdSet<StringId> of_a, of_b;
};

// What was found of both graphs before they were written otherwise.
struct Findings {
  const RegroupedCalls& regrouped;
  LoadedResults loaded;
};

RewriteReport verify_derived(const Graph& a, const Graph& b, const Findings& found) {
  RewriteReport report;
  const std::optional<Graph> viewed = write_moved_views(a, b);
  const Graph& written = viewed ? *viewed : b;
  const std::optional<RepeatedGraphs> repeated = write_repeats(a, written);
  const Graph& before = repeated ? repeated->a : a;
  const std::optional<PrefixCalls> prefix =
      restore_prefix_calls(before, repeated ? repeated->b : written, report.violations);
  const Graph& after = prefix ? prefix->b : repeated ? repeated->b : written;
  RewriteClaims claims(before, after, repeated ? repeated->original : IdVector<NodeId, NodeId>(),
                       report.violations);
  if (claims.read()) {
    const auto& [of_a, of_b] = found.regrouped;
    for (NodeId id : after.step().order) {
      const Claim& claim = claims[id];
      if (!computes(claim.kind)) continue;
      const bool in_a = claim.origin && of_a.contains(before.step().nodes[claim.origin].name);
      if (in_a != of_b.contains(after.step().nodes[id].name)) claims.set_regrouped(id);
    }
    RewriteVerifier(claims, prefix ? &*prefix : nullptr, found.loaded, report).run();
  }
  if (viewed) name_as_in(b, *viewed, report.violations);
  return report;
}

// Whether B's names are those of a graph that A was made from, too.
bool is_chain(const Graph& a, const Graph& b) {
  return !derives_from(a, b) && share_origins(a, b);
}

RewriteReport verify_rebased(const Graph& a, const Graph& b, const Findings& found) {
  if (!is_chain(a, b)) return verify_derived(a, b, found);
  return verify_derived(a, rebase_provenance(a, b), found);
}

// What a graph says of a value that A loads back from the host, it says of what was sent.
// `is_of_both`: in names of the graph that both were made from.
void name_sent_values(const Graph& a, const SideTable<NodeId, NodeId>& value_of, bool is_of_both,
                      Graph& graph) {
  SideTable<StringId, StringId> sent;
  for (NodeId id : a.step().order) {
    if (!value_of[id]) continue;
    const Node &copy = a.step().nodes[id], &value = a.step().nodes[value_of[id]];
    const NameList names = origins_of(copy), values = origins_of(value);
    if (!is_of_both) {
      sent.at(copy.name) = value.name;
    } else if (!names.empty() && !values.empty()) {
      sent.at(names.front()) = values.front();
    }
  }
  for (NodeId id : graph.step().order) {
    Node& node = graph.step().nodes[id];
    std::vector<Provenance> records(node.provenance.begin(), node.provenance.end());
    for (Provenance& record : records) {
      std::vector<StringId> names(record.origins.begin(), record.origins.end());
      for (StringId& name : names)
        if (sent[name]) name = sent[name];
      record.origins = graph.context->own(std::span<const StringId>(names));
    }
    node.provenance = graph.context->own(std::span<const Provenance>(records));
  }
}

// B's origins without the copies that are gone from A.
void drop_origins(const Graph& a, const Graph& plain, Graph& b) {
  IdSet<StringId> left, gone;
  for (NodeId id : plain.step().order) left.insert(plain.step().nodes[id].name);
  for (NodeId id : a.step().order)
    if (!left.contains(a.step().nodes[id].name)) gone.insert(a.step().nodes[id].name);
  std::erase_if(b.origins, [&](const auto& origin) { return gone.contains(origin.name); });
}

// Copies to the host are taken out of both first. What is wrong with those of A itself is not B's
// fault.
RewriteReport verify_without_host_copies(const Graph& a, const Graph& b, const RegroupedCalls& regrouped) {
  std::vector<Violation> of_a, of_b;
  WithoutHostCopies plain_a = remove_host_copies(a, of_a);
  Graph plain_b = remove_host_copies(b, of_b).graph;
  if (!of_a.empty()) return verify_rebased(a, b, {regrouped, {}});
  if (!of_b.empty()) return {.violations = std::move(of_b)};
  const bool is_of_both = is_chain(a, b);
  name_sent_values(a, plain_a.value_of, is_of_both, plain_b);
  if (is_of_both) name_sent_values(a, plain_a.value_of, is_of_both, plain_a.graph);
  if (!is_of_both) drop_origins(a, plain_a.graph, plain_b);
  return verify_rebased(plain_a.graph, plain_b,
                        {regrouped, {find_loaded_results(a), find_loaded_results(b)}});
}

RewriteReport verify_written_out(const Graph& a, const Graph& b, const RegroupedCalls& regrouped) {
  if (has_host_copies(a) || has_host_copies(b)) return verify_without_host_copies(a, b, regrouped);
  return verify_rebased(a, b, {regrouped, {}});
}

// Fused products of A that cannot be written out stay calls in both graphs, and are compared as
// calls. Returns what keeps others of B from being written out.
std::vector<Violation> keep_faulty_calls(const Graph& a, const Graph& b, FusedExpansion& of_a,
                                         FusedExpansion& of_b) {
  for (const FusedFault& fault : find_fused_faults(a)) of_a.kept.insert(fault.call);
  of_b.kept = of_a.kept;
  std::vector<Violation> own;
  for (FusedFault& fault : find_fused_faults(b))
    if (!of_a.kept.contains(fault.call)) own.push_back(std::move(fault.violation));
  return own;
}

RewriteReport verify_as_written(const Graph& a, const Graph& b) {
  // Fused products are written out, so that they can be compared with what they were made of and
  // with copies. Without a graph that both were made from, those that both make are compared as
  // calls.
  const auto of_a = list_fused_products(a), of_b = list_fused_products(b);
  const bool are_same = of_a == of_b && (of_a.empty() || !share_origins(a, b));
  if (are_same) return verify_written_out(a, b, {});
  FusedExpansion of_first, of_second;
  if (std::vector<Violation> own = keep_faulty_calls(a, b, of_first, of_second); !own.empty())
    return {.violations = std::move(own)};
  const Graph plain_a = expand_fused_products(a, of_first), plain_b = expand_fused_products(b, of_second);
  return verify_written_out(plain_a, plain_b, {of_first.regrouped, of_second.regrouped});
}

RewriteReport verify_typed(const Graph& a, const Graph& b) {
  RewriteReport report = verify_as_written(a, b);
  if (report.violations.empty()) return report;
  // What stands in the way may be how calls are spelled.
  const std::optional<Graph> plain_a = write_in_schema_order(a), plain_b = write_in_schema_order(b);
  if (!plain_a && !plain_b) return report;
  RewriteReport plain = verify_as_written(plain_a ? *plain_a : a, plain_b ? *plain_b : b);
  return plain.violations.empty() ? plain : report;
}

}  // namespace

RewriteReport verify_rewrite(const Graph& a, const Graph& b) {
  EPWEAVE_CHECK(a.context == b.context);
  EPWEAVE_CHECK(!a.bodies.empty() && !b.bodies.empty());
  const std::optional<Graph> typed_a = write_missing_types(a), typed_b = write_missing_types(b);
  return verify_typed(typed_a ? *typed_a : a, typed_b ? *typed_b : b);
}

}  // namespace epweave
