// What is wrong with the arguments of a collective, whatever the other ranks launch.
//
//   all_reduce(%x, "summ", "dp")               no rank knows the reduction
//   broadcast(%x, 5, "dp")                     dp is [0, 1]: nobody sends
//   reduce_scatter_tensor(%x, "sum", 4, "dp")  dp has 2 members
//   all_to_all_single(%x, [1, 2, 3], [], "dp") an entry for each of 2 members is needed
//   all_to_all_single(%x, [], [], "dp")        %x: f32[5, 8]; 5 rows are no equal shares of 2 members
//   all_to_all_single(%x, [-1, 6], ..)         less than no rows
//   reduce_scatter_tensor(%x, "sum", 2, "dp")  %x: f32[5, 8]: no equal shares either
//
// An empty list of split sizes means equal shares of the operand's rows, as None does in torch's
// Python interface, which writes them out: no trace has an empty list. The bare op of torch reads
// one so for what is sent, but makes a result of no rows where that of what is received is empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

// The reductions that collectives name.
bool is_reduction(std::string_view name);
// Whether that of a sum is the sum of those of its summands: a sum or a mean, no maximum. A mean of
// integers drops its fraction: (1 + 2) // 2 + (1 + 2) // 2 is not (2 + 4) // 2.
bool is_linear_reduction(std::string_view name, DType dtype);

// The tensors of an operand: one, those of a list, or of a node that makes a list. Null where no
// type is recorded.
std::vector<const TensorType*> tensors_of(const Context& context, const Body& body, Arg operand);

// One sentence for each problem. `group` is the one that the call names. Arguments that are no
// numbers are not judged. Reductions, sources, group sizes, split sizes below zero:
std::vector<std::string> find_argument_problems(const Context& context, const Body& body, const Node& node,
                                                const ProcessGroup& group);
// Split tables, and the equal shares that stand where there is none, and of a reduce-scatter. They
// are judged where the ranks are (`verify --ranks`): a graph that is only rewritten may name a
// group of other ranks than it was written for.
std::vector<std::string> find_split_problems(const Context& context, const Body& body, const Node& node,
                                             const ProcessGroup& group);

// How many ranks an all-to-all exchanges rows with, where it sends as many to each and gets as many
// of each; none where that is not known.
//
//   all_to_all_single(%x, [%n, %n], [%n, %n], "dp")    2
//   all_to_all_single(%x, [], [], "dp")                2, if dp is [0, 1]
std::optional<std::int64_t> count_equal_shares(Facts& facts, const Graph& graph, const Node& node);

}  // namespace epweave
