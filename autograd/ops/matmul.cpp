#include "../../tensor/kernels/gemm.h"

#include "forward.h"

namespace heed {
namespace {

template <class T>
kernels::Matrix<T> matrix(const Tensor& t) {
  const Dims& s = t.strides();
  return {t.data<T>(), s[s.size() - 2], s.back()};
}

/// Stride from product to product where one number says it (0 for a single matrix), or nothing.
std::optional<Index> batch_stride(const detail::Layout& layout) {
  Dims shape = layout.shape, strides = layout.strides;
  shape.pop_back(), shape.pop_back(), strides.pop_back(), strides.pop_back();
  detail::coalesce(shape, {&strides, 1});
  if (shape.size() != 1) return std::nullopt;
  return strides[0];
}

/// (..., m, k) x (..., k, n) with batch dims that broadcast.
Tensor product_forward(const OpName& op, const Tensor& a, const Tensor& b) {
  Dims a_batch = a.shape(), b_batch = b.shape();
  const Index k = a.shape().back(), n = b.shape().back(), m = a.size(-2);
  a_batch.pop_back(), a_batch.pop_back(), b_batch.pop_back(), b_batch.pop_back();
  const Dims batch = a_batch == b_batch ? a_batch : detail::broadcast_shapes(op, a_batch, b_batch);
  Dims shape = batch;
  shape.push_back(m), shape.push_back(n);
  detail::checked_numel(op, shape, detail::size_of(a.dtype()));
  Tensor y = detail::make_empty(shape, a.dtype(), op);
  if (y.numel() == 0) return y;

  // One matrix on the right of many rows: a single tall product.
  if (b.dim() == 2 && k > 0) {
    if (const auto rows = detail::reshape(a.ref()->layout, {a.numel() / k, k})) {
      detail::dispatch_float(a.dtype(), [&]<class T>() {
        kernels::gemm<T>(a.numel() / k, n, k, {a.data<T>(), rows->strides[0], rows->strides[1]}, matrix<T>(b), y.mutable_data<T>(), n);
      });
      return y;
    }
  }
  detail::dispatch_float(a.dtype(), [&]<class T>() {
    const auto spread = [&](const Tensor& t) {
      Dims to = batch;
      to.push_back(t.size(-2)), to.push_back(t.size(-1));
      return detail::make_view(t, detail::expand(op, t.ref()->layout, to));
    };
    Tensor wide_a = spread(a), wide_b = spread(b);
    std::optional<Index> a_stride = batch_stride(wide_a.ref()->layout), b_stride = batch_stride(wide_b.ref()->layout);
    if (!a_stride) wide_a = detail::contiguous_data(wide_a), a_stride = m * k;
    if (!b_stride) wide_b = detail::contiguous_data(wide_b), b_stride = k * n;
    kernels::gemm_batched<T>(detail::numel(batch), m, n, k, matrix<T>(wide_a), *a_stride, matrix<T>(wide_b), *b_stride, y.mutable_data<T>());
  });
  return y;
}

/// da = dy b^T. Where one `b` served a whole batch this stays a single tall product.
Tensor left_gradient(const Tensor& dy, const Tensor& b) { return matmul(dy, transpose(b, -2, -1)); }

/// db = a^T dy, summed over the batch inside the product where b has none.
Tensor right_gradient(const Tensor& a, const Tensor& dy, std::size_t b_rank) {
  if (b_rank == 2 && a.dim() > 2) {
    Index rows = 1;
    for (Index d = 0; d < a.dim() - 1; ++d) rows *= a.size(d);
    return matmul(transpose(reshape(a, {rows, a.size(-1)}), 0, 1), reshape(dy, {rows, dy.size(-1)}));
  }
  return matmul(transpose(a, -2, -1), dy);
}

Tensor product(const OpName& op, const Tensor& a, const Tensor& b) {
  return record(op, product_forward(op, a, b), a, b,
                [a = saved(a), b = saved(b), b_rank = b.shape().size()](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  return {ctx.needs(0) ? left_gradient(dy, b.get()) : Tensor(), ctx.needs(1) ? right_gradient(a.get(), dy, b_rank) : Tensor()};
                });
}

/// One tall product, to which the bias comes along.
Tensor linear_forward(const OpName& op, const Tensor& x, const Tensor& weight, const Tensor& bias, Index rows) {
  const Index in = weight.size(1), out = weight.size(0);
  Dims shape = x.shape();
  shape.back() = out;
  detail::checked_numel(op, shape, detail::size_of(x.dtype()));
  Tensor y = detail::make_empty(shape, x.dtype(), op);
  if (y.numel() == 0) return y;
  const auto in_place = detail::reshape(x.ref()->layout, {rows, in});
  const Tensor from = in_place ? x : detail::contiguous_data(x), offset = bias.defined() ? detail::contiguous_data(bias) : bias;
  const Dims strides = in_place ? in_place->strides : Dims{in, 1};
  detail::dispatch_float(x.dtype(), [&]<class T>() {
    const kernels::Matrix<T> a{from.data<T>(), strides[0], strides[1]}, b{weight.data<T>(), weight.strides()[1], weight.strides()[0]};
    if (offset.defined())
      kernels::gemm_bias<T>(rows, out, in, a, b, offset.data<T>(), y.mutable_data<T>(), out);
    else
      kernels::gemm<T>(rows, out, in, a, b, y.mutable_data<T>(), out);
  });
  return y;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Caller caller) {
  const OpName op{"matmul", caller};
  detail::require_same_dtype(op, a, b);
  detail::require_float(op, a);
  if (a.dim() == 0 || b.dim() == 0) detail::raise<ShapeError>(op, "a tensor without dims: {} and {}", a.shape(), b.shape());
  const Index inner = b.dim() == 1 ? b.size(0) : b.size(-2);
  if (a.size(-1) != inner) detail::raise<ShapeError>(op, "inner sizes differ: {} has {}, {} has {}", a.shape(), a.size(-1), b.shape(), inner);
  if (a.dim() > 1 && b.dim() > 1) return product(op, a, b);
  Tensor y = product(op, a.dim() == 1 ? unsqueeze(a, 0, caller) : a, b.dim() == 1 ? unsqueeze(b, 1, caller) : b);
  if (b.dim() == 1) y = squeeze(y, -1, caller);
  if (a.dim() == 1) y = squeeze(y, b.dim() == 1 ? -1 : -2, caller);
  return y;
}

// dx = dy weight, dweight = dy^T x and dbias = sum dy over all rows
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Caller caller) {
  const OpName op{"linear", caller};
  detail::require_float(op, x);
  detail::require_same_dtype(op, x, weight);
  if (bias.defined()) detail::require_same_dtype(op, x, bias);
  if (weight.dim() != 2) detail::raise<ShapeError>(op, "wants a weight of (out, in): shape {}", weight.shape());
  if (x.dim() == 0 || x.size(-1) != weight.size(1))
    detail::raise<ShapeError>(op, "x {} does not end in in={} of the weight {}", x.shape(), weight.size(1), weight.shape());
  if (bias.defined() && bias.shape() != Dims{weight.size(0)})
    detail::raise<ShapeError>(op, "the bias {} is not of out={} of the weight {}", bias.shape(), weight.size(0), weight.shape());
  const Index in = weight.size(1), out = weight.size(0);
  Index rows = 1;
  for (Index d = 0; d < x.dim() - 1; ++d) rows *= x.size(d);
  return record(op, linear_forward(op, x, weight, bias, rows), x, weight, bias,
                [x = saved(x), weight = saved(weight), rows, in, out](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  Tensor dx, dweight, dbias;
                  if (ctx.needs(0)) dx = matmul(dy, weight.get());
                  if (ctx.needs(1)) dweight = matmul(transpose(reshape(dy, {rows, out}), 0, 1), reshape(x.get(), {rows, in}));
                  if (ctx.needs(2)) dbias = sum(reshape(dy, {rows, out}), 0);
                  return {dx, dweight, dbias};
                });
}

}  // namespace heed
