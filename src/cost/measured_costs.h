// Measured times, as `epweave-replay run --costs` writes them ("epweave costs 1"; docs/gpu.md).
//
//   a kernel      by op and operands: the row with the same ones, else between rows of the same op whose operands have the
//                 same dtypes and numbers of dimensions, by bytes
//   a collective  by op, ranks of the group and bytes of the operand, likewise
//
// Between two rows times are interpolated over bytes; outside they are scaled, by 2 at most. Of a
// row's samples the median counts. A span of several ranks includes waiting for the slowest of
// them: there the tenth percentile does.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace epweave {

class MeasuredCosts {
 public:
  // Throws InputError naming `path`: no such file of costs, an entry that is missing, negative,
  // unknown, given twice, or whose percentiles contradict each other.
  static MeasuredCosts parse(std::string_view text, const std::string& path);

  struct Found {
    double seconds = 0;
    bool is_exact = false;
  };
  // `operands` as the file has them: "f32[1024, 256], f32[256, 64]".
  std::optional<Found> find_kernel(std::string_view op, std::string_view operands) const;
  std::optional<Found> find_collective(std::string_view op, std::uint32_t ranks, std::int64_t bytes) const;

  std::size_t rows() const { return rows_; }
  // What the file says that it was measured on, as "NVIDIA H200"; empty where it does not.
  const std::string& device() const { return device_; }

 private:
  friend class CostFileReader;
  using Curve = std::map<std::int64_t, std::vector<double>>;  // seconds by bytes

  static std::optional<Found> read_curve(const Curve& curve, std::int64_t bytes);

  std::unordered_map<std::string, double> exact_;  // by op and operands
  std::unordered_map<std::string, Curve> curves_;  // by op and kinds of operands, or op and ranks
  std::size_t rows_ = 0;
  std::string device_;
};

}  // namespace epweave
