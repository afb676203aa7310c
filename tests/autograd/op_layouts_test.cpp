#include <functional>
#include <limits>

#include "op_test.h"

// The same numbers, however the elements lie in memory.

namespace heed::test {
namespace {

class OpLayouts : public OpTest {};

/// NaN, where the dtype has it: elements that nobody may read.
Tensor filler(const Dims& shape, DType dtype) { return full(shape, detail::is_float(dtype) ? std::numeric_limits<double>::quiet_NaN() : 1, dtype); }

/// As if made by transposing: the first dim is the fastest.
Tensor reversed_storage(const Tensor& x) {
  Dims order;
  for (Index d = x.dim(); d-- > 0;) order.push_back(d);
  return permute(permute(x, order).contiguous(), order);
}

/// Every second element of larger storage along each dim, not from its beginning; NaN between.
Tensor with_gaps(const Tensor& x) {
  Dims wide;
  for (Index size : x.shape()) wide.push_back(2 * size + 1);
  Tensor view = filler(wide, x.dtype());
  for (Index d = 0; d < x.dim(); ++d) view = slice(view, d, 1, 2 * x.size(d) + 1, 2);
  return view.copy_(x);
}

/// Contiguous, but not at the beginning of its storage.
Tensor with_offset(const Tensor& x) {
  Tensor storage = filler({x.numel() + 3}, x.dtype());
  return reshape(slice(storage, 0, 3, x.numel() + 3), x.shape()).copy_(x);
}

/// One element repeated along one dim with a stride of 0.
Tensor repeated(const Tensor& x, Index d) { return expand(slice(x, d, 0, 1), x.shape()); }

/// Outputs and gradients of `row` for `views` are those for row-major copies of them, and the views are not written to.
void expect_like_contiguous(const OpRow& row, const Tensors& views, const char* kind) {
  SCOPED_TRACE(kind);
  Tensors plain = copies(views), leaves;
  const Tensors before = copies(views);
  for (const Tensor& view : views) leaves.push_back(view.detach());
  require_grads(plain), require_grads(leaves);
  const Results expected = row.function(plain), actual = row.function(leaves);
  // Sums may run in another order.
  const double bound = 4 * row.f32_bound * epsilon(views.empty() ? f64 : views[0].dtype());
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(close(actual[i], expected[i], bound)) << "output " << i;

  // The gradient that comes in lies in memory in another way, too.
  const Tensors along = cotangents(expected);
  Tensors along_with_gaps;
  for (const Tensor& t : along) along_with_gaps.push_back(with_gaps(t));
  const Tensors dx = gradients(expected, plain, along);
  // Where repeated elements make terms cancel, what is left is their rounding.
  double scale = 1;
  for (const Tensor& t : dx) scale = std::max(scale, t.defined() ? magnitude(t) : 0);
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (actual[i].requires_grad()) actual[i].backward(along_with_gaps[i], {.retain_graph = true});
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_TRUE(within(leaves[i].grad(), dx[i], bound * scale)) << "gradient of input " << i;
    EXPECT_TRUE(same(leaves[i], before[i])) << "input " << i << " was written to";
  }
}

void expect_like_contiguous(const OpRow& row, const char* kind, const std::function<Tensor(const Tensor&)>& arrange) {
  for (DType dtype : {f64, f32}) {
    Tensors views;
    for (const Tensor& x : ops::make_inputs(row, dtype)) views.push_back(arrange(x));
    expect_like_contiguous(row, views, kind);
  }
}

TEST_P(OpLayouts, not_contiguous) {
  for_each_row([](const OpRow& row) {
    expect_like_contiguous(row, "reversed storage", reversed_storage);
    expect_like_contiguous(row, "gaps", with_gaps);
    expect_like_contiguous(row, "offset", with_offset);
    expect_like_contiguous(row, "reversed storage with gaps", [](const Tensor& x) { return with_gaps(reversed_storage(x)); });
  });
}

TEST_P(OpLayouts, expanded) {
  for_each_row([](const OpRow& row) {
    for (Index d = 0; d < 4; ++d)
      expect_like_contiguous(row, "expanded", [d](const Tensor& x) { return d < x.dim() && x.size(d) > 1 ? repeated(x, d) : x; });
  });
}

INSTANTIATE_TEST_SUITE_P(Rows, OpLayouts, testing::ValuesIn(ops::op_names()), test_name);

}  // namespace
}  // namespace heed::test
