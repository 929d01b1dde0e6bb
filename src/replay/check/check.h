// Does graph B compute what graph A computes? Both are run on the same inputs; outputs, updated
// buffers and, by provenance, every node are compared.
//
// A node of B stands for a node of A of the first graph's name in its provenance (without
// provenance: of its own name; `mm_7_chunk1` is part 1 of mm_7): for all of it, or for part k of n.
// Per rank and node, the verdict is the first that holds:
//
//   equal       the bits are the same: of the value; of the parts laid end to end along the one
//               dimension in which they are smaller; of every part, or of the last where the op
//               writes its argument (a buffer updated part by part); or of numbers whose sum is the
//               whole (only values of up to 4096 elements)
//   reordered   the parts' rows are the whole's rows in another order
//   sum-order   the value is a floating-point sum that was regrouped (parts of the whole's size
//               that are not equal), or is computed from one, and no element is further off than
//               its summands allow: unit roundoff times the sum of their magnitudes, followed from
//               op to op (error_bounds.h); and, computed in float64 from the same summands, it is
//               the same sum (ideal_values.h)
//   library-kernel  in native math: a product for which the library took another algorithm than in
//               A, as it may for another number of rows, or what is computed from one
//               (library_kernels.h)
//   unverified  nothing above can tell: integers (an index counts the rows of its part), other
//               shapes, memory that is not written yet, what an op without a bound makes of a
//               regrouped sum
//   differs     everything else
//
// A view reads nothing, so it may stand on either side of a write to its storage: where it has
// other bits for that reason it is skipped, and those who read through it are compared. So are
// parts cut off a value that is written in place, and joins of its parts: they show it where they
// stand, which is where it is read.
//
// Of a part of rows that ranks exchange by equal shares, or reduce and scatter, a rank has other
// rows than of the whole (placed_rows.h): parts behind it that differ are skipped, and what joins
// them is compared.
//
// The verdict on B:
//
//   different      a node or an output differs
//   not verified   else, if an output is unverified or library-kernel, A does not give the same
//                  bits twice, or a device does not give the CPU's: nothing shows a difference, and
//                  nothing shows that there is none
//   same           else: every output is equal or sum-order
//
// Without bounds (--bounds none) the second run is of A alone, on its device.
//
// In native math (--math native) bounds are not followed: what comes from a regrouped sum and
// differs is unverified. Both graphs run on the same device then; with pinned rows
// (cublas/products.h) B's products take A's algorithms.
//
// A reference C, such as another tool's rewrite of A, is run on the same inputs and its outputs are
// compared with those of A and B. It changes no verdict.
//
// Each graph is run on its device. Bounds are made there where both graphs run on one device, or on
// the CPU, whose outputs must be the same bits then.
//
//   run A, run B        hashes of all values, made where they lie: verdicts but those on regrouped
//                       sums; of the results of B those are kept that differ from A's
//   run A, run B again  with bounds, where a sum was regrouped (without: A alone). A's values are
//                       kept until B's are made; where that is more than `kept_bytes`, once for
//                       each lot of values that fits
//   run A, run B again  for the one node that differs first, if one does: its index, bits and
//                       distance
//
// Where ranks are processes of their own (executor.h), each compares its own rank. What the runs
// depend on is agreed by all between them: which sums were regrouped on some rank, which node of
// all ranks differs first, and the verdict.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "replay/check/check_report.h"
#include "replay/check/output_check.h"
#include "replay/inputs/inputs.h"
#include "replay/run/executor.h"

namespace epweave::replay {

// What both graphs are run on.
struct CheckSetup {
  const KernelTable& kernels;
  std::uint32_t ranks = 0;  // 0: as the graphs say
  InputData data = 0;
  RunOptions options;
  const Graph* reference = nullptr;
  Device* device_a = nullptr;  // null: the CPU
  Device* device_b = nullptr;
  Bounds bounds = Bounds::kCpu;                   // kDevice: all ranks are in this process
  std::size_t kept_bytes = std::size_t{4} << 30;  // in each process, where bounds are made
  // How many runs there are in all, each time that is known better; for progress.
  std::function<void(std::size_t runs)> expect_runs = {};
  // Of the graphs' files, which errors name; empty: none.
  std::string path_a = {}, path_b = {}, path_reference = {};
};

// Throws UsageError if these graphs cannot be compared so. A check does this first.
void require_comparable(const Graph& a, const Graph& b, const CheckSetup& setup);

// What this process found, and the verdict of all ranks, which every process has.
struct CheckedRanks {
  std::vector<CheckReport> reports;  // of each rank that runs here
  CheckReport::Conclusion conclusion = CheckReport::Conclusion::kSame;
};
// Throws InputError or UsageError if the graphs cannot be compared.
CheckedRanks check_ranks(const Graph& a, const Graph& b, const CheckSetup& setup);

// All ranks in this process, together.
CheckReport check_graphs(const Graph& a, const Graph& b, const CheckSetup& setup);

}  // namespace epweave::replay
