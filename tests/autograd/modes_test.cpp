#include <gmock/gmock.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/grad_mode.h>
#include <heed/autograd/ops.h>

#include <limits>
#include <thread>

#include "close.h"

// What a user does with one tensor: ask for gradients, name it, look at it, write to it; and plain numbers beside tensors.

namespace heed::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Modes, no_grad_records_nothing_and_ends) {
  const Tensor x = leaf(ones({2}, f64));
  {
    const NoGrad off;
    EXPECT_FALSE((x * 2).requires_grad());
    EXPECT_TRUE((x * 2).is_leaf());
    EXPECT_TRUE(x.requires_grad());
    {
      const NoGrad nested;
      EXPECT_FALSE((x * 2).requires_grad());
    }
    EXPECT_FALSE((x * 2).requires_grad()) << "the end of an inner guard is not the end of the outer";
  }
  EXPECT_TRUE((x * 2).requires_grad());
  try {
    const NoGrad off;
    throw Error("");
  } catch (const Error&) {
  }
  EXPECT_TRUE((x * 2).requires_grad());
}

TEST(Modes, no_grad_is_of_its_thread) {
  const Tensor x = leaf(ones({2}, f64));
  const NoGrad off;
  bool recorded = false;
  std::thread([&] { recorded = (x * 2).requires_grad(); }).join();
  EXPECT_TRUE(recorded);
}

TEST(Modes, detach_shares_elements_and_has_no_history) {
  Tensor x = leaf(tensor({1, 2}, f64));
  const Tensor y = x * x;
  Tensor d = y.detach();
  EXPECT_FALSE(d.requires_grad());
  EXPECT_TRUE(d.is_leaf());
  EXPECT_EQ(d.data<double>(), y.data<double>());
  EXPECT_NE(d.id(), y.id());
  (sum(y) * sum(d)).backward();
  EXPECT_TRUE(holds(x.grad(), {10, 20}));
  d.requires_grad_();
  EXPECT_TRUE(d.requires_grad());
  EXPECT_FALSE(x.detach().requires_grad());
}

TEST(Modes, requires_grad_is_for_float_leaves) {
  Tensor x = ones({2}, f64);
  EXPECT_TRUE(x.is_leaf() && !x.requires_grad());
  EXPECT_EQ(&x.requires_grad_(), &x);
  EXPECT_TRUE(x.is_leaf() && x.requires_grad());
  Tensor y = x * 2;
  EXPECT_FALSE(y.is_leaf());
  EXPECT_THAT(thrown<GradError>([&] { y.requires_grad_(); }), AllOf(HasSubstr("requires_grad_"), HasSubstr("mul")));
  EXPECT_THROW(y.requires_grad_(false), GradError);
  EXPECT_THAT(thrown<DTypeError>([] { ones({2}, i64).requires_grad_(); }), HasSubstr("i64"));
  EXPECT_THAT(thrown<DTypeError>([] { ones({2}, boolean).requires_grad_(); }), HasSubstr("boolean"));
  EXPECT_NO_THROW(ones({2}, i64).requires_grad_(false));
  x.requires_grad_(false);
  EXPECT_FALSE((x * 2).requires_grad());
  sum(y).backward();
  EXPECT_FALSE(ones({2}, f64).grad().defined());
  // Handles of one tensor are one.
  Tensor alias = x;
  alias.requires_grad_();
  EXPECT_TRUE(x.requires_grad());
}

TEST(Modes, a_leaf_that_stops_asking_gets_nothing) {
  Tensor x = leaf(tensor({1, 2}, f64)), w = leaf(tensor({3, 4}, f64));
  const Tensor y = sum(x * w);
  w.requires_grad_(false);
  y.backward();
  EXPECT_TRUE(holds(x.grad(), {3, 4}));
  EXPECT_FALSE(w.grad().defined());
}

TEST(Modes, gradients_flow_between_float_types_only) {
  Tensor x = leaf(tensor({1.5, -2.5}, f64));
  const Tensor y = x.to(f32);
  EXPECT_EQ(y.dtype(), f32);
  sum(y * y).backward();
  EXPECT_EQ(x.grad().dtype(), f64);
  EXPECT_TRUE(holds(x.grad(), {3, -5}));
  EXPECT_FALSE(x.to(i64).requires_grad());
  EXPECT_FALSE(x.to(boolean).requires_grad());
  EXPECT_EQ(x.to(f64).id(), x.id());
  EXPECT_THAT(thrown<DTypeError>([&] { (void)(x + y); }), AllOf(HasSubstr("add"), HasSubstr("f64"), HasSubstr("f32")));
}

TEST(Modes, clone_is_differentiable) {
  Tensor x = leaf(tensor({1, 2}, f64));
  const Tensor y = x.clone();
  EXPECT_NE(y.data<double>(), x.data<double>());
  sum(y * y).backward();
  EXPECT_TRUE(holds(x.grad(), {2, 4}));
}

TEST(Modes, leaves_are_written_under_no_grad_only) {
  Tensor x = leaf(tensor({1, 2}, f64));
  EXPECT_THAT(thrown<GradError>([&] { x.fill_(3); }), AllOf(HasSubstr("fill_"), HasSubstr("NoGrad")));
  EXPECT_THAT(thrown<GradError>([&] { x.copy_(ones({2}, f64)); }), HasSubstr("copy_"));
  EXPECT_TRUE(holds(x, {1, 2}));
  Tensor y = x * 2;
  {
    const NoGrad off;
    EXPECT_THAT(thrown<GradError>([&] { y.fill_(3); }), HasSubstr("mul"));
    x.fill_(3);
    EXPECT_TRUE(holds(x, {3, 3}));
    x.copy_(tensor({4, 5}, f64));
    EXPECT_TRUE(holds(x, {4, 5}));
  }
  EXPECT_TRUE(x.requires_grad() && x.is_leaf());
  // A leaf that wants no gradient may be written at any time, but not with values that have a history: it would be lost.
  Tensor plain = zeros({2}, f64);
  plain.fill_(1).copy_(tensor({6, 7}, f64));
  EXPECT_TRUE(holds(plain, {6, 7}));
  EXPECT_THAT(thrown<GradError>([&] { plain.copy_(x); }), AllOf(HasSubstr("copy_"), HasSubstr("detach")));
  EXPECT_TRUE(holds(plain, {6, 7}));
  plain.copy_(x.detach());
  EXPECT_TRUE(holds(plain, {4, 5}));
}

TEST(Modes, copies_in_place_broadcast_and_convert) {
  Tensor x = zeros({2, 3}, f64);
  x.copy_(tensor({1, 2, 3}, f32));
  EXPECT_TRUE(holds(x, {1, 2, 3, 1, 2, 3}));
  transpose(x, 0, 1).copy_(tensor({{1}, {2}, {3}}, f64));
  EXPECT_TRUE(holds(x, {1, 2, 3, 1, 2, 3}));
  slice(x, 1, 0, 3, 2).fill_(9);
  EXPECT_TRUE(holds(x, {9, 2, 9, 9, 2, 9}));
  Tensor square = tensor({{1, 2}, {3, 4}}, f64);
  square.copy_(transpose(square, 0, 1));
  EXPECT_TRUE(holds(square, {1, 3, 2, 4})) << "source and target share elements";
  EXPECT_THROW(x.copy_(ones({2, 3}, i64)), DTypeError);
  EXPECT_THROW(x.copy_(ones({3, 2}, f64)), ShapeError);
  EXPECT_THAT(thrown<ShapeError>([&] { expand(ones({1}, f64), {3}).fill_(2); }), HasSubstr("share memory"));
  EXPECT_THROW(expand(ones({1}, f64), {3}).copy_(ones({3}, f64)), ShapeError);
  EXPECT_THROW(Tensor().fill_(1), Error);
  EXPECT_THROW(x.copy_(Tensor()), Error);
}

TEST(Modes, names) {
  Tensor w = ones({2}, f64);
  EXPECT_EQ(w.name(), "");
  EXPECT_EQ(w.named("W_q").id(), w.id());
  EXPECT_EQ(w.name(), "W_q");
  EXPECT_FALSE(w.requires_grad());
  w.requires_grad_();
  EXPECT_EQ(w.name(), "W_q");
  Tensor y = w * 2;
  EXPECT_EQ(y.name(), "");
  y.named("scores");
  EXPECT_EQ(y.name(), "scores");
  EXPECT_FALSE(y.is_leaf());
  std::vector<Tensor> parts = split(w * 1, 1);
  parts[1].named("second");
  EXPECT_EQ(parts[0].name(), "");
  EXPECT_EQ(parts[1].name(), "second");
}

TEST(Modes, numbers_on_both_sides) {
  const Tensor x = tensor({1, 2, 4}, f64);
  EXPECT_TRUE(holds(x + 1, {2, 3, 5}));
  EXPECT_TRUE(holds(1 + x, {2, 3, 5}));
  EXPECT_TRUE(holds(x - 0.5, {.5, 1.5, 3.5}));
  EXPECT_TRUE(holds(10 - x, {9, 8, 6}));
  EXPECT_TRUE(holds(x * 2.5f, {2.5, 5, 10}));
  EXPECT_TRUE(holds(3u * x, {3, 6, 12}));
  EXPECT_TRUE(holds(x / 2, {.5, 1, 2}));
  EXPECT_TRUE(holds(4 / x, {4, 2, 1}));
  EXPECT_TRUE(holds(pow(x, 2), {1, 4, 16}));
  EXPECT_TRUE(holds(pow(2, x), {2, 4, 16}));
  EXPECT_TRUE(holds(maximum(x, 3), {3, 3, 4}));
  EXPECT_TRUE(holds(gt(x, 1.5), {0, 1, 1}));
  EXPECT_EQ((x + 1).dtype(), f64);
  EXPECT_EQ((1.5 * ones({2})).dtype(), f32);
  EXPECT_TRUE(holds(-x, {-1, -2, -4}));
}

TEST(Modes, numbers_beside_whole_numbers_stay_exact) {
  const Tensor ids = tensor({1, 2}, i64);
  EXPECT_EQ((ids + 1).dtype(), i64);
  EXPECT_TRUE(holds(2 * ids, {2, 4}));
  EXPECT_TRUE(holds(ids - 2.0, {-1, 0})) << "a whole number, however it is written";
  const Index large = (Index{1} << 53) + 1;
  EXPECT_EQ((tensor(0, i64) + large).item<Index>(), large);
  EXPECT_EQ((large - tensor(0, i64)).item<Index>(), large);
  const Tensor x = tensor({large - 1, large, large + 1}, i64);
  EXPECT_TRUE(holds(eq(x, large), {0, 1, 0}));
  EXPECT_TRUE(holds(ne(x, large), {1, 0, 1}));
  EXPECT_TRUE(holds(lt(x, large), {1, 0, 0}));
  EXPECT_TRUE(holds(ge(x, x[1]), {0, 1, 1}));
  EXPECT_EQ(masked_fill(tensor({1, 2}, i64), tensor({true, false}, boolean), large)[0].item<Index>(), large);
  EXPECT_EQ(where(tensor(false, boolean), x, -large)[0].item<Index>(), -large);
  EXPECT_EQ(maximum(x, large)[0].item<Index>(), large);
  EXPECT_EQ(minimum(x, x[1])[2].item<Index>(), large);
  EXPECT_EQ(max(x).item<Index>(), large + 1);
  EXPECT_EQ(min(-x).item<Index>(), -large - 1);
  EXPECT_EQ(argmax(x).item<Index>(), 2);
  EXPECT_EQ(sum(x).item<Index>(), 3 * large);
  EXPECT_EQ(sum(stack({x, -x})).item<Index>(), 0);
  EXPECT_THROW((void)eq(x, std::uint64_t{1} << 63), DTypeError);
  EXPECT_THAT(thrown<DTypeError>([&] { (void)(ids + 0.5); }), AllOf(HasSubstr("add"), HasSubstr("i64"), HasSubstr("0.5")));
  EXPECT_THAT(thrown<DTypeError>([&] { (void)(0.5 * ids); }), AllOf(HasSubstr("mul"), HasSubstr("i64")));
  EXPECT_THROW((void)gt(ids, 1.5), DTypeError);
  EXPECT_THROW((void)(ids + 1e30), DTypeError);
  EXPECT_THROW((void)(ids + std::numeric_limits<double>::quiet_NaN()), DTypeError);
  EXPECT_THROW((void)(ids + std::numeric_limits<double>::infinity()), DTypeError);
  EXPECT_THROW((void)(ids / 2), DTypeError) << "would not be a whole number";
  EXPECT_THROW((void)(ids + ones({2}, f64)), DTypeError);
}

TEST(Modes, whole_numbers_beyond_the_range_wrap) {
  constexpr Index most = std::numeric_limits<Index>::max(), least = std::numeric_limits<Index>::min();
  const Tensor x = tensor({most, least}, i64);
  const auto values = [](const Tensor& t) { return t.to_vector<Index>(); };
  using Whole = std::vector<Index>;
  EXPECT_EQ(values(x + 1), (Whole{least, least + 1}));
  EXPECT_EQ(values(x - 1), (Whole{most - 1, most}));
  EXPECT_EQ(values(x * 2), (Whole{-2, 0}));
  EXPECT_EQ(values(-x), (Whole{-most, least}));
  EXPECT_EQ(values(abs(x)), (Whole{most, least}));
  EXPECT_EQ(values(square(x)), (Whole{1, 0}));
  EXPECT_EQ(sum(stack({x, x}), 0).to_vector<Index>(), (Whole{-2, 0}));
}

TEST(Modes, numbers_get_no_gradient_and_give_the_right_one) {
  Tensor x = leaf(tensor({1, 2, 4}, f64));
  sum(3 * x - 1 + 8 / x + pow(x, 2)).backward();
  EXPECT_TRUE(holds(x.grad(), {3 - 8 + 2, 3 - 2 + 4, 3 - .5 + 8}));
}

}  // namespace
}  // namespace heed::test
