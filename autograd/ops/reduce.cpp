#include "../../tensor/kernels/reduce.h"

#include <cmath>
#include <limits>

#include "forward.h"

namespace heed {
namespace {

using kernels::Axes;

/// The dims of x that stay and those that go.
struct Split {
  Axes kept, reduced;
  Split(const Tensor& x, const Dims& dims) {
    for (std::size_t i = 0; i < x.shape().size(); ++i) {
      Axes& axes = dims.contains(static_cast<Index>(i)) ? reduced : kept;
      axes.shape.push_back(x.shape()[i]), axes.strides.push_back(x.strides()[i]);
    }
  }
};

/// A reduced tensor with its size-1 dims back, so that it broadcasts against the input again.
Tensor with_dims(const Tensor& y, const Dims& x_shape, const Dims& dims) { return reshape(y, detail::reduced_shape(x_shape, dims, true)); }

Index count(const Dims& shape, const Dims& dims) {
  Index n = 1;
  for (Index d : dims) n *= shape[static_cast<std::size_t>(d)];
  return n;
}

void require_number(const OpName& op, const Tensor& x) {
  if (x.impl(op).dtype == DType::boolean) detail::raise<DTypeError>(op, "does not take boolean");
}

/// x with the reduced dims flattened into one at the end.
Tensor reduced_last(const Tensor& x, const Dims& dims, Caller caller) {
  Dims order, shape;
  for (std::size_t i = 0; i < x.shape().size(); ++i)
    if (!dims.contains(static_cast<Index>(i))) order.push_back(static_cast<Index>(i)), shape.push_back(x.shape()[i]);
  for (Index d : dims) order.push_back(d);
  shape.push_back(count(x.shape(), dims));
  return reshape(permute(x, order, caller), shape, caller);
}

Tensor position_forward(const OpName& op, bool largest, const Tensor& x, const Dims& dims) {
  require_number(op, x);
  if (count(x.shape(), dims) == 0 && detail::numel(detail::reduced_shape(x.shape(), dims, false)) != 0)
    detail::raise<ShapeError>(op, "over no elements: shape {}, dims {}", x.shape(), dims);
  // 0-d and other empty lists of dims reduce over one element.
  Tensor out = detail::make_empty(detail::reduced_shape(x.shape(), dims, false), i64, op);
  if (out.numel() == 0) return out;
  const Split split(x, dims);
  detail::dispatch(x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      (largest ? kernels::argmax<T> : kernels::argmin<T>)(out.mutable_data<Index>(), x.data<T>(), split.kept, split.reduced);
  });
  return out;
}

/// The extreme element and, for the gradient, where it stood: y = x[..., position].
Tensor extreme(const OpName& op, bool largest, const Tensor& x, const Dims& dims, bool keepdim) {
  require_number(op, x);
  const Dims wrapped = detail::wrap_dims(op, dims, x.shape());
  const Dims shape = detail::reduced_shape(x.shape(), wrapped, keepdim);
  Tensor position = position_forward(op, largest, x, wrapped);
  if (position.numel() == 0)
    return record(op, detail::make_empty(shape, x.dtype(), op), x,
                  [in = x.shape()](const BackwardContext&, const Tensor& dy) -> Grads { return {zeros(in, dy.dtype())}; });
  position = detail::make_view(position, detail::unsqueeze(position.ref()->layout, position.shape().size()));
  return reshape(gather(reduced_last(x, wrapped, op.caller), -1, position, op.caller), shape, op.caller);
}

// dx = factor dy, repeated
Tensor multiple_of_sum(const OpName& op, const Tensor& x, const Dims& dims, bool keepdim, double factor) {
  Tensor y = detail::make_empty(detail::reduced_shape(x.shape(), dims, keepdim), x.dtype(), op);
  const Split split(x, dims);
  if (x.dtype() == i64)
    kernels::sum(y.mutable_data<Index>(), x.data<Index>(), split.kept, split.reduced);
  else
    detail::dispatch_float(x.dtype(), [&]<class T>() { kernels::sum<T>(y.mutable_data<T>(), x.data<T>(), split.kept, split.reduced, factor); });
  return record(op, std::move(y), x, [shape = x.shape(), dims, factor](const BackwardContext&, const Tensor& dy) -> Grads {
    return {expand(with_dims(factor == 1 ? dy : dy * factor, shape, dims), shape)};
  });
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim, Caller caller) {
  const OpName op{"sum", caller};
  require_number(op, x);
  return multiple_of_sum(op, x, detail::wrap_dims(op, dims, x.shape()), keepdim, 1);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim, Caller caller) {
  const OpName op{"mean", caller};
  detail::require_float(op, x);
  const Dims wrapped = detail::wrap_dims(op, dims, x.shape());
  const Index n = count(x.shape(), wrapped);
  return multiple_of_sum(op, x, wrapped, keepdim, n == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / static_cast<double>(n));
}

Tensor max(const Tensor& x, const Dims& dims, bool keepdim, Caller caller) { return extreme({"max", caller}, true, x, dims, keepdim); }
Tensor min(const Tensor& x, const Dims& dims, bool keepdim, Caller caller) { return extreme({"min", caller}, false, x, dims, keepdim); }

// dx = 2 (x - mean) / divisor dy
Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim, Caller caller) {
  const OpName op{"var", caller};
  detail::require_float(op, x);
  const Dims wrapped = detail::wrap_dims(op, dims, x.shape());
  const double divisor = std::max(static_cast<double>(count(x.shape(), wrapped)) - correction, 0.0);
  Tensor y;
  {
    const detail::Unseen inside;
    y = detail::of_squares(x - mean(x, dims, true), [&](const Tensor& squares) { return sum(squares, dims, keepdim) / divisor; });
  }
  return record(op, y, x, [x = saved(x), y = saved(y), wrapped, divisor](const BackwardContext&, const Tensor& dy) -> Grads {
    const Tensor in = x.get(), up = with_dims(dy, in.shape(), wrapped);
    if (detail::all_finite(y.get())) return {(in - mean(in, wrapped, true)) * (up * (2 / divisor))};
    const Tensor half = 0.5 * in;  // x - mean may overflow
    return {(half - mean(half, wrapped, true)) * (up * (4 / divisor))};
  });
}

// dx = exp(x - y) dy, y being exactly max + log sum exp(x - max)
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim, Caller caller) {
  const OpName op{"logsumexp", caller};
  detail::require_float(op, x);
  const Dims wrapped = detail::wrap_dims(op, dims, x.shape());
  Tensor y, largest, total;
  {
    const detail::Unseen inside;
    const Dims shape = detail::reduced_shape(x.shape(), wrapped, true);
    if (count(x.shape(), wrapped) == 0) {
      largest = total = zeros(shape, x.dtype());
    } else {
      largest = max(x, dims, true);
      largest = where(isfinite(largest), largest, 0);  // infinities minus themselves are not wanted
      total = sum(exp(x - largest), dims, true);
    }
    y = reshape(log(total) + largest, detail::reduced_shape(x.shape(), wrapped, keepdim));
  }
  return record(op, y, x,
                [x = saved(x), largest = saved(largest), total = saved(total), wrapped](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  // Not from y: beside a large maximum it has lost the sum. The maximum is a constant here, since the quotient does not depend on it.
                  const Tensor e = exp(x.get() - largest.get()), sums = ctx.creates_graph() ? sum(e, wrapped, true) : total.get();
                  // Where all were -inf nothing moves the result.
                  return {e * (with_dims(dy, x.get().shape(), wrapped) / where(eq(sums, 0), 1, sums))};
                });
}

// dx = x / y dy, 0 where y is 0
Tensor norm(const Tensor& x, const Dims& dims, bool keepdim, Caller caller) {
  const OpName op{"norm", caller};
  detail::require_float(op, x);
  const Dims wrapped = detail::wrap_dims(op, dims, x.shape());
  Tensor y;
  {
    const detail::Unseen inside;
    if (count(x.shape(), wrapped) == 0) {
      y = zeros(detail::reduced_shape(x.shape(), wrapped, keepdim), x.dtype());
    } else {
      // Scaled by the largest element, so that squares neither overflow nor vanish.
      const Tensor largest = max(abs(x), dims, true);
      const Tensor scale = where(gt(largest, 0) & isfinite(largest), largest, 1);
      y = reshape(sqrt(sum(square(x / scale), dims, true)) * scale, detail::reduced_shape(x.shape(), wrapped, keepdim));
    }
  }
  return record(op, y, x, [x = saved(x), y = saved(y), wrapped](const BackwardContext&, const Tensor& dy) -> Grads {
    Tensor in = x.get(), out = with_dims(y.get(), in.shape(), wrapped);
    if (!detail::all_finite(out)) {  // the direction of x is that of a smaller x
      in = in * where(isfinite(out), full({}, 1, in.dtype()), 0x1p-64);
      out = norm(in, wrapped, true);
    }
    return {with_dims(dy, in.shape(), wrapped) * (in / where(eq(out, 0), 1, out))};
  });
}

Tensor argmax(const Tensor& x, std::optional<Index> dim, bool keepdim, Caller caller) {
  const OpName op{"argmax", caller};
  const Dims dims = detail::wrap_dims(op, dim ? Dims(*dim) : Dims(), x.impl(op).layout.shape);
  Tensor y = position_forward(op, true, x, dims);
  if (keepdim) y = y.detach(), y = detail::make_view(y, *detail::reshape(y.ref()->layout, detail::reduced_shape(x.shape(), dims, true)));
  const NoGrad off;
  return record(op, y, x, [](const BackwardContext&, const Tensor&) -> Grads { return {Tensor()}; });
}

Tensor detail::sum_to(const Tensor& x, const Dims& shape, Caller caller) {
  if (x.impl(OpName("sum_to", caller)).layout.shape == shape) return x;
  const std::size_t shift = x.shape().size() - shape.size();
  Dims dims;
  for (std::size_t i = 0; i < x.shape().size(); ++i)
    if (i < shift || (shape[i - shift] == 1 && x.shape()[i] != 1)) dims.push_back(static_cast<Index>(i));
  return reshape(dims.empty() ? x : sum(x, dims, true, caller), shape, caller);
}

}  // namespace heed
