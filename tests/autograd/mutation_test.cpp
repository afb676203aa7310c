#include <heed/autograd/gradcheck.h>
#include <heed/autograd/kernelcheck.h>
#include <heed/autograd/op.h>
#include <heed/tensor/kernels/sanitizers.h>
#include <heed/tensor/random.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "op_test.h"

// The checker is checked: for every row of the op table, backwards that are wrong in a known way are planted through the public `record`, and each
// must be found. And it raises no false alarms.

namespace heed::test {
namespace {

/// A way to be wrong: what becomes of the right gradients.
struct Mutation {
  const char* name;
  Tensors (*spoil)(Tensors right);
};

/// The first gradient that is not 0, or the first that there is.
Tensor* main_gradient(Tensors& gradients) {
  Tensor* first = nullptr;
  for (Tensor& g : gradients) {
    if (!g.defined() || g.numel() == 0) continue;
    if (!first) first = &g;
    if (magnitude(g) > 1e-9) return &g;  // smaller ones are the rounding of 0
  }
  return first;
}

template <class F>
Tensors change(Tensors gradients, F f) {
  if (Tensor* g = main_gradient(gradients)) *g = f(*g);
  return gradients;
}

const Mutation mutations[] = {
    {"times 1.001", [](Tensors g) { return change(std::move(g), [](const Tensor& t) { return t * 1.001; }); }},
    {"times 0.5", [](Tensors g) { return change(std::move(g), [](const Tensor& t) { return t * 0.5; }); }},
    {"sign flipped", [](Tensors g) { return change(std::move(g), [](const Tensor& t) { return -t; }); }},
    {"one element wrong",
     [](Tensors g) {
       return change(std::move(g), [](const Tensor& t) {
         Tensor wrong = t.clone();
         const Index last = t.numel() - 1;
         wrong.mutable_data<double>()[last] += 0.1 * std::max(magnitude(t), 1e-3);
         return wrong;
       });
     }},
    {"one input dropped", [](Tensors g) { return change(std::move(g), [](const Tensor&) { return Tensor(); }); }},
    {"transposed",
     [](Tensors g) {
       return change(std::move(g), [](const Tensor& t) { return t.dim() >= 2 && t.size(-1) == t.size(-2) ? transpose(t, -1, -2) : t; });
     }},
    {"zero", [](Tensors g) { return change(std::move(g), [](const Tensor& t) { return t * 0; }); }},
};
constexpr const char* only_for_ones = "right only for a cotangent of ones";

/// The gradients of the row at `inputs`.
Tensors right_gradients(const OpRow& row, const Tensors& inputs, const Tensors& along) {
  const detail::GradModeScope on(true);
  Tensors leaves;
  for (const Tensor& t : inputs) leaves.push_back(t.detach().clone());
  return gradients(row.function(require_grads(leaves)), leaves, along);
}

/// The row with a planted backward; without a mutation, one that ignores what came in and takes ones.
Tensors planted(const OpRow& row, const Mutation* mutation, const Tensors& inputs) {
  Tensors outputs;
  {
    const NoGrad off;
    for (const Tensor& t : row.function(inputs)) outputs.push_back(t.clone());
  }
  Tensors shapes = outputs;
  return record("planted", outputs, inputs, [&row, mutation, inputs, shapes](const BackwardContext&, std::span<const Tensor> along) -> Grads {
    Tensors cotangents;
    for (std::size_t i = 0; i < shapes.size(); ++i)
      cotangents.push_back(!mutation            ? ones(shapes[i].shape(), shapes[i].dtype())
                           : along[i].defined() ? along[i]
                                                : zeros(shapes[i].shape(), shapes[i].dtype()));
    Tensors right = right_gradients(row, inputs, cotangents);
    return mutation ? mutation->spoil(std::move(right)) : right;
  });
}

bool checkable(const OpRow& row) {
  if (row.size == ops::Size::large || row.inputs.empty()) return false;
  Tensors leaves = ops::make_inputs(row, f64);
  for (const Tensor& t : row.function(require_grads(leaves)))
    if (!t.requires_grad() || t.numel() == 0) return false;  // what has no elements shows no derivative
  return true;
}

/// Whether the wrong backward gives the right gradients after all, as halving a gradient of 0 does.
bool equivalent(const OpRow& row, const Mutation* mutation) {
  for (std::uint64_t seed = 3; seed < 6; ++seed) {
    Tensors leaves = ops::make_inputs(row, f64);
    require_grads(leaves);
    const Tensors outputs = planted(row, mutation, leaves), along = cotangents(outputs, seed);
    const Tensors right = right_gradients(row, leaves, along), wrong = gradients(outputs, leaves, along);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      // An absent gradient is one of 0.
      const auto or_zero = [&](const Tensor& t) { return t.defined() ? t : zeros(leaves[i].shape(), f64); };
      const double size = magnitude(or_zero(right[i]));
      if (!within(or_zero(wrong[i]), or_zero(right[i]), 1e-9 * std::max(size, 1e-3))) return false;
    }
  }
  return true;
}

struct Score {
  int caught = 0, tried = 0, equal = 0;
};

/// Tries one mutant; what is not caught is a failure of the test, in words.
void attack(const OpRow& row, const Mutation* mutation, Score& score) {
  if (equivalent(row, mutation)) {
    ++score.equal;
    return;
  }
  ++score.tried;
  const GradcheckReport report = gradcheck([&](const Tensors& x) { return planted(row, mutation, x); }, ops::make_inputs(row, f64),
                                           {.mode = GradcheckMode::full(), .locate = false});
  if (report.ok)
    ADD_FAILURE() << row.name << " (" << row.variant << "), " << (mutation ? mutation->name : only_for_ones) << ": passed\n" << report.message;
  else
    ++score.caught;
}

TEST(Mutation, every_planted_bug_is_caught) {
  Score score;
  for (const OpRow& row : ops::op_table()) {
    if (!checkable(row)) continue;
    for (const Mutation& m : mutations) attack(row, &m, score);
    attack(row, nullptr, score);
  }
  std::printf("mutants caught: %d of %d (%d more change nothing)\n", score.caught, score.tried, score.equal);
  EXPECT_GT(score.tried, 500);
}

TEST(Mutation, the_wrong_node_is_blamed) {
  // In the middle of right ones.
  const OpRow row{"softmax", "", {ops::in({3, 4})}, [](const Tensors& x) { return softmax(x[0], -1); }};
  const Mutation doubled{"times 2", [](Tensors g) { return change(std::move(g), [](const Tensor& t) { return t * 2; }); }};
  const GradcheckReport report =
      gradcheck([&](const Tensors& x) { return sum(square(planted(row, &doubled, {x[0] * 3})[0]), 0); }, ops::make_inputs(row, f64));
  EXPECT_FALSE(report.ok);
  EXPECT_NE(report.message.find("planted, gradient of input 0 is wrong by a factor 2"), std::string::npos) << report.message;
  EXPECT_NE(report.message.find("mutation_test.cpp"), std::string::npos) << report.message;
  EXPECT_EQ(report.message.find("square, gradient"), std::string::npos) << report.message;
}

TEST(Mutation, an_input_that_is_cut_off_is_named) {
  const GradcheckReport report = gradcheck([](const Tensors& x) { return x[0] * exp(x[0].detach()); }, {randn({3}, f64)});
  EXPECT_FALSE(report.ok);
  EXPECT_NE(report.message.find("is cut off from it"), std::string::npos) << report.message;
  EXPECT_NE(report.message.find("input 1 of node 0, mul, changes with 0"), std::string::npos) << report.message;
}

TEST(Mutation, a_wrong_element_is_not_called_a_wrong_factor) {
  const auto off_by_little = [](const Tensor& x) {
    return record("first_row_off", square(x.detach()), x, [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads {
      const Tensor factor = cat({full({1, 3}, 1.0001, f64), ones({2, 3}, f64)}, 0);
      return {dy * x.get() * 2 * factor};
    });
  };
  const GradcheckReport report = gradcheck([&](const Tensors& x) -> Tensors { return {off_by_little(x[0])}; }, {randn({3, 3}, f64)});
  EXPECT_FALSE(report.ok);
  EXPECT_NE(report.message.find("first_row_off, gradient of input 0 is wrong, called"), std::string::npos) << report.message;
}

TEST(Mutation, no_false_alarms) {
#if defined(HEED_SANITIZED) || !defined(NDEBUG)
  constexpr std::uint64_t seeds = 3;
#else
  constexpr std::uint64_t seeds = 200;
#endif
  int checks = 0;
  for (const OpRow& row : ops::op_table()) {
    if (!checkable(row)) continue;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed, ++checks) {
      const GradcheckReport report = gradcheck([&](const Tensors& x) -> Tensors { return row.function(x); }, ops::make_inputs(row, f64, seed),
                                               {.mode = GradcheckMode::full(), .seed = seed, .locate = false});
      ASSERT_TRUE(report.ok) << row.name << " (" << row.variant << "), seed " << seed << "\n" << report.message;
    }
  }
  std::printf("no false alarm in %d checks\n", checks);
}

TEST(Kernelcheck, every_row_in_f32_is_near_f64) {
  for (const OpRow& row : ops::op_table()) {
    if (row.inputs.empty() || row.name == "to") continue;
    const KernelcheckReport report = kernelcheck([&](const Tensors& x) -> Tensors { return row.function(x); }, ops::make_inputs(row, f32));
    EXPECT_TRUE(report.ok) << row.name << " (" << row.variant << ")\n" << report.message;
  }
}

TEST(Kernelcheck, a_result_of_cancelled_inputs_passes_and_a_kernel_that_cancels_fails) {
  const Tensor x = tensor({0.7, -1.3, 2.1}), near = x * (1 + 3e-6);
  const KernelcheckReport difference = kernelcheck([](const Tensors& in) { return in[0] - in[1]; }, {x, near});
  EXPECT_TRUE(difference.ok) << difference.message;
  const KernelcheckReport lossy = kernelcheck([](const Tensors& in) { return exp(in[0]) - 1; }, {tensor({1.1e-4, 2.3e-4, -1.7e-4})});
  EXPECT_FALSE(lossy.ok) << lossy.message;
}

}  // namespace
}  // namespace heed::test
