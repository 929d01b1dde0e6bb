#include "cost/measured_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "base/error.h"
#include "cost/unique_json.h"
#include "ir/types/type.h"

namespace epweave {
namespace {

constexpr double kFarthest = 2;    // outside of what was measured
constexpr double kLongest = 1e12;  // microseconds: 11 days

std::string key_of(std::string_view op, std::string_view operands) {
  return fmt::format("{}\n{}", op, operands);
}
std::string key_of(std::string_view op, std::uint32_t ranks) {
  return fmt::format("{}\n{} ranks", op, ranks);
}

// Takes ", " off the front of what is left of a list; whether the list goes on rightly: a comma
// stands between two entries, and there alone.
bool take_comma(std::string_view& rest) {
  if (rest.empty()) return true;
  if (!rest.starts_with(", ")) return false;
  rest.remove_prefix(2);
  return !rest.empty();
}

// "bf16[1024, 256], f32[64]": kinds "bf16 2 f32 1", and bytes.
struct OperandKinds {
  std::string kinds;
  std::int64_t bytes = 0;
};

std::optional<OperandKinds> read_operands(std::string_view text) {
  OperandKinds found;
  while (!text.empty()) {
    const std::size_t open = text.find('['), close = text.find(']');
    if (open == text.npos || close == text.npos || close < open) return std::nullopt;
    const auto dtype = find_dtype(text.substr(0, open));
    if (!dtype) return std::nullopt;
    std::int64_t bytes = info(*dtype).bytes;
    std::size_t dimensions = 0;
    for (std::string_view sizes = text.substr(open + 1, close - open - 1); !sizes.empty(); ++dimensions) {
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(sizes.data(), sizes.data() + sizes.size(), size);
      if (error != std::errc() || size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
        return std::nullopt;
      sizes.remove_prefix(static_cast<std::size_t>(end - sizes.data()));
      if (!take_comma(sizes)) return std::nullopt;
    }
    found.kinds += fmt::format("{} {} ", text.substr(0, open), dimensions);
    if (__builtin_add_overflow(found.bytes, bytes, &found.bytes)) return std::nullopt;
    text.remove_prefix(close + 1);
    if (!take_comma(text)) return std::nullopt;
  }
  return found;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

class CostFileReader {
 public:
  CostFileReader(std::string_view text, const std::string& path)
      : path_(path), file_(parse_unique_json(text, path)) {}

  MeasuredCosts run() {
    if (!file_.is_object() || !file_.contains("format") || file_["format"] != "epweave costs 1")
      fail("no file of costs: its \"format\" is not \"epweave costs 1\"");
    static constexpr std::array<std::string_view, 8> kKnown = {
        "format", "unit", "measured_on", "warm_up", "repeat", "ranks", "ops", "collectives"};
    for (const auto& [key, value] : file_.items())
      if (std::ranges::find(kKnown, key) == kKnown.end()) fail(fmt::format("no entry is called \"{}\"", key));
    if (!file_.contains("unit") || file_["unit"] != "microseconds") fail("\"unit\" is not \"microseconds\"");
    const Json& ranks = entry(file_, "ranks", "the file");
    if (!ranks.is_number_unsigned() || ranks.get<std::uint64_t>() == 0)
      fail("\"ranks\" is not a number of ranks");
    for (const char* key : {"warm_up", "repeat"})
      if (file_.contains(key) && !file_[key].is_number_unsigned())
        fail(fmt::format("\"{}\" is not a number of runs", key));
    if (file_.contains("measured_on") && !file_["measured_on"].is_object())
      fail("\"measured_on\" is no object of JSON");
    percentile_ = ranks.get<std::uint64_t>() == 1 ? "p50" : "p10";
    for (const Json& row : list("ops")) read_kernel(row);
    for (const Json& row : list("collectives")) read_collective(row);
    if (costs_.rows_ == 0) fail("it has no row");
    costs_.device_ = read_device();
    return std::move(costs_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}: {}", path_, what));
  }

  const Json& entry(const Json& object, const char* key, std::string_view what) const {
    if (!object.is_object() || !object.contains(key)) fail(fmt::format("{} has no \"{}\"", what, key));
    return object[key];
  }
  const Json& list(const char* key) const {
    const Json& found = entry(file_, key, "the file");
    if (!found.is_array()) fail(fmt::format("\"{}\" is no list", key));
    return found;
  }
  std::string text(const Json& row, const char* key, std::string_view what) const {
    const Json& found = entry(row, key, what);
    if (!found.is_string()) fail(fmt::format("{}: \"{}\" is no text", what, key));
    return found.get<std::string>();
  }
  std::int64_t count(const Json& row, const char* key, std::string_view what) const {
    const Json& found = entry(row, key, what);
    if (!found.is_number_unsigned() || found.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
      fail(fmt::format("{}: \"{}\" is not a whole number from 0 to {}", what, key, INT64_MAX));
    return found.get<std::int64_t>();
  }

  double time(const Json& row, const char* key, std::string_view what) const {
    const Json& found = entry(row, key, what);
    const double value = found.is_number() ? found.get<double>() : -1;
    if (!(value >= 0 && value <= kLongest))
      fail(fmt::format("{}: \"{}\" is no time from 0 to {:g} microseconds", what, key, kLongest));
    return value;
  }

  std::string read_device() const {
    const Json* found = &file_;
    for (const char* key : {"measured_on", "device", "name"}) {
      if (!found->is_object() || !found->contains(key)) return {};
      found = &(*found)[key];
    }
    return found->is_string() ? found->get<std::string>() : std::string();
  }

  // Seconds of the row; its figures must be in order.
  double seconds_of(const Json& row, const std::string& what,
                    std::initializer_list<const char*> names) const {
    for (const auto& [key, value] : row.items()) {
      static constexpr std::array<std::string_view, 8> kKnown = {"samples", "min", "p10", "p50",
                                                                 "p90",     "p99", "max", "mean"};
      if (std::ranges::find(kKnown, key) == kKnown.end() && std::ranges::find(names, key) == names.end())
        fail(fmt::format("{}: no entry is called \"{}\"", what, key));
    }
    if (count(row, "samples", what) == 0) fail(what + ": no sample");
    double before = 0;
    for (const char* key : {"min", "p10", "p50", "p90", "p99", "max"}) {
      const double value = time(row, key, what);
      if (value < before) fail(fmt::format("{}: \"{}\" is below what comes before it", what, key));
      before = value;
    }
    // A mean of equal samples may be rounded beyond them.
    constexpr double kRounding = 1e-9;
    if (const double mean = row.contains("mean") ? time(row, "mean", what) : before;
        mean < row["min"].get<double>() * (1 - kRounding) || mean > before * (1 + kRounding))
      fail(what + ": \"mean\" is not between \"min\" and \"max\"");
    return row[percentile_].get<double>() * 1e-6;
  }

  void read_kernel(const Json& row) {
    const std::string op = text(row, "op", "a row of \"ops\"");
    const std::string operands = text(row, "operands", op);
    const std::string what = fmt::format("{} of {}", op, operands.empty() ? "no tensor" : operands);
    const auto kinds = read_operands(operands);
    if (!kinds) fail(what + ": \"operands\" are no tensors; write them as bf16[1024, 256], f32[64]");
    const double seconds = seconds_of(row, what, {"op", "operands", "host_waits"});
    if (!costs_.exact_.emplace(key_of(op, operands), seconds).second) fail(what + " is given twice");
    if (row.contains("host_waits") && !row["host_waits"].is_boolean())
      fail(what + ": \"host_waits\" is neither true nor false");
    costs_.curves_[key_of(op, kinds->kinds)][kinds->bytes].push_back(seconds);
    ++costs_.rows_;
  }

  void read_collective(const Json& row) {
    const std::string op = text(row, "op", "a row of \"collectives\"");
    const std::int64_t ranks = count(row, "group_size", op), bytes = count(row, "bytes", op);
    const std::string what = fmt::format("{} of {} bytes on {} ranks", op, bytes, ranks);
    if (ranks == 0 || ranks > 1 << 30) fail(what + ": no group");
    const double seconds = seconds_of(row, what, {"op", "group_size", "bytes"});
    auto& at = costs_.curves_[key_of(op, static_cast<std::uint32_t>(ranks))][bytes];
    if (!at.empty()) fail(what + " is given twice");
    at.push_back(seconds);
    ++costs_.rows_;
  }

  const std::string& path_;
  Json file_;
  const char* percentile_ = "p50";
  MeasuredCosts costs_;
};

MeasuredCosts MeasuredCosts::parse(std::string_view text, const std::string& path) {
  return CostFileReader(text, path).run();
}

std::optional<MeasuredCosts::Found> MeasuredCosts::read_curve(const Curve& curve, std::int64_t bytes) {
  const auto above = curve.lower_bound(bytes);
  if (above != curve.end() && above->first == bytes) return Found{mean_of(above->second), false};
  const auto scaled = [&](const auto& row) -> std::optional<Found> {
    const double ratio = static_cast<double>(bytes) / static_cast<double>(row.first);
    if (!(ratio <= kFarthest && ratio >= 1 / kFarthest)) return std::nullopt;
    return Found{mean_of(row.second) * ratio, false};
  };
  if (above == curve.begin()) return scaled(*above);
  const auto below = std::prev(above);
  if (above == curve.end()) return scaled(*below);
  const double share =
      static_cast<double>(bytes - below->first) / static_cast<double>(above->first - below->first);
  return Found{mean_of(below->second) * (1 - share) + mean_of(above->second) * share, false};
}

std::optional<MeasuredCosts::Found> MeasuredCosts::find_kernel(std::string_view op,
                                                               std::string_view operands) const {
  if (const auto found = exact_.find(key_of(op, operands)); found != exact_.end())
    return Found{found->second, true};
  const auto kinds = read_operands(operands);
  const auto curve = kinds ? curves_.find(key_of(op, kinds->kinds)) : curves_.end();
  return curve == curves_.end() ? std::nullopt : read_curve(curve->second, kinds->bytes);
}

std::optional<MeasuredCosts::Found> MeasuredCosts::find_collective(std::string_view op, std::uint32_t ranks,
                                                                   std::int64_t bytes) const {
  const auto curve = curves_.find(key_of(op, ranks));
  if (curve == curves_.end()) return std::nullopt;
  auto found = read_curve(curve->second, bytes);
  if (found) found->is_exact = curve->second.contains(bytes);
  return found;
}

}  // namespace epweave
