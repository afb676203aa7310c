#include <gmock/gmock.h>
#include <heed/autograd/grad_mode.h>
#include <heed/autograd/op.h>
#include <heed/autograd/ops.h>

#include "close.h"

// A value that was saved for backward and then written to is an error, however it was reached.

namespace heed::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The backward of what `make(a)` returns fails after `write(a)`, and names the op.
void expect_noticed(const char* op, const std::function<Tensor(const Tensor&)>& make, const std::function<void(Tensor&)>& write) {
  Tensor start = leaf(tensor({{1, 2}, {3, 4}}, f64));
  Tensor a = start * 1;
  const Tensor y = make(a);
  write(a);
  EXPECT_THAT(thrown<GradError>([&] { sum(y).backward(); }), AllOf(HasSubstr(op), HasSubstr("changed")));
  EXPECT_FALSE(start.grad().defined());
}

void add_one(Tensor t) { *t.mutable_data<double>() += 1; }

TEST(Saved, write_through_a_view_is_noticed) {
  const auto square = [](const Tensor& a) { return a * a; };
  expect_noticed("mul", square, [](Tensor& a) { add_one(a); });
  expect_noticed("mul", square, [](Tensor& a) { add_one(reshape(a, {4})); });
  expect_noticed("mul", square, [](Tensor& a) { add_one(transpose(a, 0, 1)); });
  expect_noticed("mul", square, [](Tensor& a) { add_one(slice(a, 0, 1, 2)); });
  expect_noticed("mul", square, [](Tensor& a) { add_one(a[0]); });
  expect_noticed("mul", square, [](Tensor& a) { add_one(a.detach()); });
  expect_noticed("mul", square, [](Tensor& a) { a.detach().fill_(7); });
  expect_noticed("mul", square, [](Tensor& a) { transpose(a, 0, 1).detach().copy_(ones({2, 2}, f64)); });
}

TEST(Saved, every_kind_of_saved_value_is_watched) {
  const auto write = [](Tensor& a) { add_one(a); };
  expect_noticed(
      "log", [](const Tensor& a) { return log(a); }, write);
  expect_noticed(
      "matmul", [](const Tensor& a) { return matmul(a, a); }, write);
  expect_noticed(
      "matmul",
      [](const Tensor& a) {
        return matmul(transpose(a, 0, 1), ones({2, 1}, f64).requires_grad_());
      },
      write);
  expect_noticed(
      "layer_norm", [](const Tensor& a) { return layer_norm(a, 2); }, write);
  expect_noticed(
      "pow", [](const Tensor& a) { return pow(a, 3); }, write);
  expect_noticed(
      "norm", [](const Tensor& a) { return norm(a); }, write);
}

TEST(Saved, an_ops_own_output_is_watched) {
  Tensor x = leaf(tensor({1, 2}, f64));
  Tensor y = exp(x);
  add_one(y);
  EXPECT_THAT(thrown<GradError>([&] { sum(y).backward(); }), HasSubstr("exp"));
}

TEST(Saved, values_that_no_rule_needs_may_change) {
  Tensor x = leaf(tensor({1, 2}, f64));
  Tensor a = x * 2;
  const Tensor y = a + 1, z = sum(a);
  add_one(a);
  (sum(y) + z).backward();
  EXPECT_TRUE(holds(x.grad(), {4, 4}));
  // A factor is needed for the other factor's gradient only.
  Tensor c = tensor({3, 4}, f64), w = leaf(tensor({1, 2}, f64));
  const Tensor p = c * w;
  {
    const NoGrad off;
    w.fill_(100);
  }
  x.zero_grad();
  sum(p).backward();
  EXPECT_TRUE(holds(w.grad(), {3, 4}));
}

TEST(Saved, a_step_of_an_optimizer_between_forward_and_backward_is_noticed) {
  Tensor w = leaf(ones({2, 2}, f64)), x = leaf(ones({2, 2}, f64));
  const Tensor y = matmul(transpose(w, 0, 1), x);
  {
    const NoGrad off;
    w.copy_(w - 0.1 * w);
  }
  EXPECT_THAT(thrown<GradError>([&] { sum(y).backward(); }), AllOf(HasSubstr("matmul"), HasSubstr("(2, 2)")));
}

TEST(Saved, absent_stays_absent) {
  EXPECT_FALSE(saved(Tensor()).get().defined());
  Tensor x = tensor({1, 2}, f64);
  const Saved s = saved(x), copy = s;
  EXPECT_EQ(copy.get().id(), x.id());
  add_one(x);
  EXPECT_THROW((void)s.get(), GradError);
  EXPECT_THROW((void)copy.get(), GradError);
}

}  // namespace
}  // namespace heed::test
