#include <heed/autograd/gradcheck.h>

#include "op_test.h"

// The formulas (f64, against differences) and the kernels (f32, against f64).

namespace heed::test {
namespace {

class OpGradients : public OpTest {};

const GradcheckOptions every_element{.mode = GradcheckMode::full()};

/// Whether derivatives by differences make sense: results of a float type, finite, and few enough.
bool checkable(const OpRow& row) {
  if (row.size == ops::Size::large) return false;
  for (const Tensor& t : row.function(ops::make_inputs(row, f64)))
    if (!detail::is_float(t.dtype())) return false;
  return true;
}

TEST_P(OpGradients, first_order) {
  for_each_row([](const OpRow& row) {
    if (!checkable(row)) return;
    const GradcheckReport report = gradcheck([&](const Tensors& x) -> Tensors { return row.function(x); }, ops::make_inputs(row, f64), every_element);
    EXPECT_TRUE(report.ok) << report.message;
  });
}

TEST_P(OpGradients, second_order) {
  for_each_row([](const OpRow& row) {
    if (!checkable(row)) return;
    const GradcheckReport report =
        gradgradcheck([&](const Tensors& x) -> Tensors { return row.function(x); }, ops::make_inputs(row, f64), every_element);
    EXPECT_TRUE(report.ok) << report.message;
  });
}

TEST_P(OpGradients, single_precision_against_double) {
  for_each_row([](const OpRow& row) {
    Tensors x64 = ops::make_inputs(row, f64), x32 = ops::make_inputs(row, f32);
    require_grads(x64), require_grads(x32);
    const Results y64 = row.function(x64), y32 = row.function(x32);
    const double bound = row.f32_bound * epsilon(f32);
    ASSERT_EQ(y32.size(), y64.size());
    for (std::size_t i = 0; i < y64.size(); ++i) {
      EXPECT_EQ(y32[i].dtype(), y64[i].dtype() == f64 && row.name != "to" ? f32 : y64[i].dtype());
      EXPECT_TRUE(close(y32[i], y64[i], bound)) << "output " << i;
    }
    const Tensors along = cotangents(y64);  // between 0.6 and 2.4
    Tensors along32;
    for (std::size_t i = 0; i < y32.size(); ++i) along32.push_back(along[i].to(y32[i].dtype()));
    const Tensors dx64 = gradients(y64, x64, along), dx32 = gradients(y32, x32, along32);
    for (std::size_t i = 0; i < x64.size(); ++i) {
      EXPECT_TRUE(!dx32[i].defined() || dx32[i].dtype() == f32);
      // Where the terms cancel to nothing, what is left is their rounding.
      const double size = dx64[i].defined() ? magnitude(dx64[i]) : 0;
      EXPECT_TRUE(within(dx32[i], dx64[i], bound * (size > 1e-6 ? size : 1))) << "gradient of input " << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Rows, OpGradients, testing::ValuesIn(ops::op_names()), test_name);

}  // namespace
}  // namespace heed::test
