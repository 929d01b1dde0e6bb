// The `key=value` fields of each record of the text form, described once. The printer and the
// parser walk the same description, so what one writes the other reads.
//
// `fields(key, value)` handles one field by the type of `value`; a value that says nothing (absent,
// empty, false) is not written. `fields(yes, no, flag)` is a flag of three states. `fields.hex` is
// bytes, `fields.number` a number with a default, `fields.pairs` is named plain data. The other
// methods write forms of their own.
#pragma once

#include "ir/graph.h"

namespace epweave::text {

void visit_version(auto& fields, auto& version) {
  fields.number("format", version.format, 1);
  fields.number("min_reader", version.min_reader, 1);
  fields("producer", version.producer);
  fields("features", version.required_features);
  fields.hex("unknown", version.unknown_fields);
}

void visit_pass_run(auto& fields, auto& run) {
  fields("options", run.options);
  fields("tool", run.tool);
  fields.number("nodes_before", run.nodes_before, 0);
  fields.number("nodes_after", run.nodes_after, 0);
  fields("input_sha256", run.input_sha256);
  fields("notes", run.notes);
  fields.hex("unknown", run.unknown_fields);
}

void visit_group(auto& fields, auto& group) {
  fields("ranks", group.ranks);
  fields("description", group.description);
  fields("axes", group.axes);
  fields("priority", group.priority);
  fields("split_from", group.split_from);
  fields("backend", group.backend);
  fields.hex("unknown", group.unknown_fields);
}

void visit_symbol(auto& fields, auto& symbol) {
  fields.range(symbol.lower, symbol.upper);
  fields("hint", symbol.hint);
  fields("size_like", symbol.size_like);
  fields("unbacked", "backed", symbol.unbacked);
  fields("asserts", symbol.asserts);
  fields("replaced_by", symbol.replaced_by);
  fields("assume", symbol.assumptions);
  fields("part_of", symbol.part_of);
  fields.hex("unknown", symbol.unknown_fields);
}

// On the placeholder's own line, or a line of its own where inputs and placeholders do not match.
void visit_input(auto& fields, auto& input) {
  fields("role", input.role);
  fields("fqn", input.fqn);
  fields("which", input.which);
  fields.plain_pairs("more", input.more);
  fields.hex("input_unknown", input.unknown_fields);
}

void visit_output(auto& fields, auto& output) {
  fields("fqn", output.fqn);
  fields.plain_pairs("more", output.more);
  fields.hex("unknown", output.unknown_fields);
}

// What follows a node's type; its module comes first, as `@layers.1.moe`.
void visit_node(auto& fields, auto& node, auto& extra) {
  fields("attr", node.attr);
  fields("bwd", "fwd", node.backward);
  fields("seq", node.seq_nr);
  fields("ep", node.ep.ep);
  fields("token_exchange", node.ep.token_exchange);
  fields("token_exchange_wait", node.ep.token_exchange_wait);
  fields("token_count_exchange", node.ep.token_count_exchange);
  fields("token_count_sync", node.ep.token_count_sync);
  fields.chunk(node.chunk);
  fields("recompute", node.recompute);
  fields.bindings(extra.bindings);
  fields.hints(extra.chunk_hints);
  fields("example", extra.example_type);
  fields("py_type", extra.py_type);
  fields.custom(node, extra.custom);
  fields.pairs("meta", extra.meta);
  fields("src", node.source);
  fields.provenance(node.provenance);
  fields.hex("unknown", extra.unknown_fields);
}

}  // namespace epweave::text
