// Every case of testdata/kernels/cases.json (made by scripts/dev/kernel_conformance.py from
// PyTorch's CPU kernels) through our kernels, and what the cases cover.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "replay/kernels/host/conformance_cases.h"
#include "replay/kernels/host/conformance_run.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay {

TEST_CASE("kernels agree with PyTorch's") {
  const Json cases = read_cases();
  const KernelTable table = make_cpu_kernels();
  std::size_t number = 0;
  for (const Json& json : cases) {
    std::string difference;
    try {
      difference = run_case(table, json);
    } catch (const std::exception& error) {
      difference = std::string("throws: ") + error.what();
    }
    INFO("case " << number << " " << json["op"] << ": " << difference);
    CHECK(difference.empty());
    ++number;
  }
  CHECK(number > 2000);
}

namespace {

using Targets = std::set<std::string>;

// What the cases of one op have among their tensor arguments.
struct Coverage {
  bool has_tensor = false, has_empty = false, has_single = false, has_gaps = false;
};
void add_tensors(const Json& json, Coverage& coverage) {
  if (!json.is_object()) return;
  for (const Json& item : json.value("list", Json::array())) add_tensors(item, coverage);
  if (!json.contains("tensor")) return;
  const Json& tensor = json["tensor"];
  const auto sizes = tensor["sizes"].get<Extents>(), strides = tensor["strides"].get<Extents>();
  std::int64_t count = 1, dense = 1;
  bool has_gaps = false;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    count *= sizes[d];
    has_gaps = has_gaps || (sizes[d] != 1 && strides[d] != dense);
    dense *= sizes[d];
  }
  coverage.has_tensor = true;
  coverage.has_empty = coverage.has_empty || count == 0;
  coverage.has_single = coverage.has_single || count == 1;
  coverage.has_gaps = coverage.has_gaps || (count > 1 && has_gaps);
}
std::map<std::string, Coverage> read_coverage() {
  std::map<std::string, Coverage> ops;
  for (const Json& json : read_cases())
    for (const Json& arg : json["args"]) add_tensors(arg, ops[json["op"].get<std::string>()]);
  return ops;
}

// The ops with a tensor argument, of which no case has what `has` says. Without the entry points of
// attention: two kernels serve them all, and one of the entry points has each.
Targets find_lacking(bool Coverage::*has) {
  Targets lacking;
  for (const auto& [op, coverage] : read_coverage())
    if (coverage.has_tensor && !(coverage.*has) && op.find("attention") == op.npos) lacking.insert(op);
  return lacking;
}

}  // namespace

// But those of random numbers, which are not PyTorch's.
TEST_CASE("every CPU kernel has a case of PyTorch's") {
  const std::map<std::string, Coverage> covered = read_coverage();
  Targets lacking;
  for (const KernelRow& row : cpu_kernel_rows())
    if (!covered.contains(std::string(row.target)) && !find_op(row.target)->is_random)
      lacking.emplace(row.target);
  CHECK(lacking == Targets());
}

TEST_CASE("every CPU kernel has a case of no element") {
  const Targets lacking = {
      "ao.wait_tensor.default",      // looks at nothing
      "aten._assert_async.default",  // of one element
      "aten._assert_async.msg",      //
      "aten._grouped_mm.default",    // PyTorch refuses it; a group of no row has a case
      "aten._fused_rms_norm_backward.default",
      "aten.native_layer_norm_backward.default",  // of no row PyTorch makes gradients of weights by the device
      "bucketing._pre_bucket_all_gather.default",  // a bucket is not empty
      "bucketing._pre_bucket_reduce_scatter.default",
  };
  CHECK(find_lacking(&Coverage::has_empty) == lacking);
}

TEST_CASE("every CPU kernel has a case of one element") {
  const Targets lacking = {
      "ao.wait_tensor.default",        // looks at nothing
      "aten._grouped_mm.default",      // extents are multiples of 16 bytes
      "aten.glu.default",              // halves
      "aten.view_as_complex.default",  // pairs
      "aten._fused_rms_norm.default",  // one row has a case
      "aten.native_layer_norm.default",
      "bucketing._pre_bucket_all_gather.default",
  };
  CHECK(find_lacking(&Coverage::has_single) == lacking);
}

TEST_CASE("every CPU kernel has a case of operands with gaps or turned dimensions") {
  const Targets lacking = {
      "ao.wait_tensor.default",      // looks at nothing
      "aten._assert_async.default",  // of one element
      "aten._assert_async.msg",      //
      "aten.empty_like.default",     // reads nothing
      "aten.new_empty.default",
      "aten.new_empty_strided.default",  //
      "aten.view.dtype",                 // needs neighbours
      "bucketing._pre_bucket_all_gather.default",
  };
  CHECK(find_lacking(&Coverage::has_gaps) == lacking);
}

}  // namespace epweave::replay
