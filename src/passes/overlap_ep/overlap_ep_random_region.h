// Random chunked regions as text, for tests of overlap-ep.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

namespace epweave::testing {

using Random = std::mt19937;

inline unsigned below(Random& random, std::size_t bound) {
  return static_cast<unsigned>(random() % bound);
}

// Writes a graph: the parts of one region, each a sequence of computations and exchanges, traced in
// a random mix, with code outside in between.
class RegionGenerator {
 public:
  explicit RegionGenerator(Random& random) : random_(random) {}

  std::string write() {
    parts_ = 2 + below(random_, 3);
    exchanges_ = 1 + below(random_, 3);
    backward_ = below(random_, 2) == 0;
    root_ = below(random_, 2) == 0 ? "layers.0" : "layers.0.moe";
    counts_ = below(random_, 2) == 0;
    is_tangled_ = below(random_, 2) == 0;
    text_ = "epweave text 1\ndevice cuda:0\ngroup ep ranks=[0, 1]\ngroup dp ranks=[0, 1]\ngraph\n";
    for (const char* input : {"x", "buffer", "counts"})
      text_ += fmt::format("  %{} = placeholder : f32[4, 8]\n", input);
    values_.assign(parts_, {"x"});
    std::vector<std::vector<std::string>> left(parts_);
    for (auto& steps : left) steps = plan_part();
    while (std::any_of(left.begin(), left.end(), [](const auto& steps) { return !steps.empty(); })) {
      const unsigned part = below(random_, parts_);
      if (below(random_, 8) == 0) write_outside();
      if (left[part].empty()) continue;
      write_step(part, left[part].front());
      left[part].erase(left[part].begin());
    }
    return text_ + "  output([])\n";
  }

  bool is_tangled() const { return is_tangled_; }  // parts may depend on each other
  bool has_counts() const { return counts_; }      // the first exchange has token-count copies
  unsigned parts() const { return parts_; }
  unsigned exchanges() const { return exchanges_; }
  bool backward() const { return backward_; }

 private:
  std::vector<std::string> plan_part() {
    std::vector<std::string> steps;
    const auto add_some = [&] {
      for (unsigned i = below(random_, 4); i-- > 0;) steps.push_back(plan_computation());
    };
    for (unsigned k = 0; k < exchanges_; ++k) {
      add_some();
      if (k == 0 && counts_) steps.push_back("counts");
      steps.push_back(fmt::format("launch{}", k));
      add_some();
      steps.push_back(fmt::format("wait{}", k));
    }
    add_some();
    return steps;
  }

  std::string plan_computation() {
    static constexpr std::array<const char*, 4> kPlain = {"add", "add", "all_reduce", "hidden"};
    static constexpr std::array<const char*, 7> kTangled = {"update", "read", "view",   "draw",
                                                            "odd",    "add",  "foreign"};
    if (is_tangled_ && below(random_, 3) == 0) return kTangled[below(random_, kTangled.size())];
    return kPlain[below(random_, kPlain.size())];
  }

  std::string pick(unsigned part) {
    const bool is_foreign = is_tangled_ && below(random_, 12) == 0;
    const auto& from = values_[is_foreign ? below(random_, parts_) : part];
    // The latest, more often than not.
    return "%" + (below(random_, 3) == 0 ? from[below(random_, from.size())] : from.back());
  }

  std::string line(const std::string& call, const std::string& rest, const std::string& name = "") {
    const std::string result = name.empty() ? fmt::format("v{}", next_++) : name;
    text_ += fmt::format("  %{} = {} : {}\n", result, call, rest);
    return result;
  }

  void write_step(unsigned part, const std::string& step) {
    const std::string chunk = fmt::format(" chunk(@{} body {} {})", root_, part, backward_ ? "bwd" : "fwd");
    const std::string type = "f32[4, 8]" + chunk;
    auto& values = values_[part];
    if (step.starts_with("launch")) {
      const std::string k = step.substr(6);
      const std::string splits = k == "0" && counts_ ? fmt::format("[%i{0}], [%j{0}]", part) : "[], []";
      line(fmt::format("_c10d_functional.all_to_all_single.default({}, {}, \"ep\")", pick(part), splits),
           fmt::format("f32[4, 8] token_exchange={}{}", k == "1" ? "combine" : "dispatch", chunk),
           fmt::format("launch{}_{}", k, part));
    } else if (step.starts_with("wait")) {
      values.push_back(line(
          fmt::format("_c10d_functional.wait_tensor.default(%launch{}_{})", step.substr(4), part), type));
    } else if (step == "counts") {
      write_counts(part, chunk);
    } else if (step == "add") {
      values.push_back(line(fmt::format("aten.add.Tensor({}, {})", pick(part), pick(part)), type));
    } else if (step == "all_reduce") {
      const std::string sum =
          line(fmt::format("_c10d_functional.all_reduce.default({}, \"sum\", \"dp\")", pick(part)), type);
      values.push_back(line(fmt::format("_c10d_functional.wait_tensor.default(%{})", sum), type));
    } else if (step == "hidden") {
      values.push_back(line(fmt::format("aten.neg.default({})", pick(part)), "f32[4, 8]"));
    } else if (step == "foreign") {
      values.push_back(line(fmt::format("aten.neg.default({})", pick(part)),
                            fmt::format("f32[4, 8] chunk(@layers.9.moe body {} fwd)", part)));
    } else if (step == "update") {
      line(fmt::format("aten.add_.Tensor(%buffer, {})", pick(part)), type);
    } else if (step == "read") {
      values.push_back(line("aten.neg.default(%buffer)", type));
    } else if (step == "view") {
      values.push_back(line("aten.view.default(%buffer, [4, 8])", type));
    } else if (step == "draw") {
      values.push_back(line(fmt::format("aten.rand_like.default({})", pick(part)), type));
    } else {
      values.push_back(line(fmt::format("mine.odd.default({})", pick(part)), type));
    }
  }

  void write_counts(unsigned part, const std::string& chunk) {
    const std::string a =
        line(fmt::format("aten.neg.default({})", below(random_, 2) == 0 ? "%counts" : pick(part)),
             "f32[4, 8]" + chunk);
    const std::string copied = "f32[4, 8]@cpu token_count_sync=dispatch" + chunk;
    // Rarely, one copy needs the other: such a region is declined.
    const bool is_chained = is_tangled_ && below(random_, 12) == 0;
    line(fmt::format("aten._to_copy.default(%{}, device=@cpu)", a), copied, fmt::format("k{}", part));
    line(fmt::format("aten._to_copy.default(%{}, device=@cpu)", is_chained ? fmt::format("k{}", part) : a),
         copied, fmt::format("l{}", part));
    for (const auto& [item, copy] : {std::pair('i', 'k'), std::pair('j', 'l')})
      line(fmt::format("aten._local_scalar_dense.default(%{}{})", copy, part),
           fmt::format("SymInt(u{}{}){}", item, part, chunk), fmt::format("{}{}", item, part));
  }

  void write_outside() {
    const unsigned part = below(random_, parts_);
    if (below(random_, 3) == 0) {
      const std::string sum = line("_c10d_functional.all_reduce.default(%x, \"sum\", \"dp\")", "f32[4, 8]");
      line(fmt::format("_c10d_functional.wait_tensor.default(%{})", sum), "f32[4, 8]");
    } else {
      line(fmt::format("aten.neg.default({})", pick(part)), "f32[4, 8]");
    }
  }

  Random& random_;
  std::string text_, root_;
  unsigned parts_ = 2, exchanges_ = 1, next_ = 0;
  bool backward_ = false, counts_ = false, is_tangled_ = false;
  std::vector<std::vector<std::string>> values_;  // by part
};

}  // namespace epweave::testing
