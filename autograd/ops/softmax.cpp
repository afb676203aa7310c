#include "../../tensor/kernels/softmax.h"

#include "forward.h"

namespace heed {
namespace {

struct Rows {
  Index count, length;
  explicit Rows(const Tensor& x) : count(0), length(x.dim() ? x.shape().back() : 1) {
    if (x.numel()) count = x.numel() / length;
  }
};

template <class Kernel>
Tensor over_rows(const OpName& op, const Tensor& x, Kernel kernel) {
  const Tensor in = detail::contiguous_data(x);
  Tensor y = detail::make_empty(x.shape(), x.dtype(), op);
  const Rows rows(x);
  detail::dispatch_float(x.dtype(), [&]<class T>() { kernel.template operator()<T>(y.mutable_data<T>(), in.data<T>(), rows); });
  return y;
}

template <class Kernel>
Tensor over_rows(const Tensor& y, const Tensor& dy, Kernel kernel) {
  const Tensor a = detail::contiguous_data(y), b = detail::contiguous_data(dy);
  Tensor dx = detail::make_empty(y.shape(), y.dtype());
  const Rows rows(y);
  detail::dispatch_float(y.dtype(), [&]<class T>() { kernel.template operator()<T>(dx.mutable_data<T>(), a.data<T>(), b.data<T>(), rows); });
  return dx;
}

// dx = y (dy - sum y dy): one fused pass, or ops where it is differentiated again
Tensor softmax_gradient(const BackwardContext& ctx, const Tensor& y, const Tensor& dy) {
  if (ctx.creates_graph()) return y * (dy - (y.dim() ? sum(y * dy, -1, true) : y * dy));
  return over_rows(y, dy,
                   []<class T>(T* dx, const T* a, const T* b, const Rows& rows) { kernels::softmax_backward<T>(dx, a, b, rows.count, rows.length); });
}

Tensor softmax_rows(const OpName& op, const Tensor& x) {
  Tensor y = over_rows(op, x, []<class T>(T* out, const T* in, const Rows& rows) { kernels::softmax<T>(out, in, rows.count, rows.length); });
  return record(op, y, x, [y = saved(y)](const BackwardContext& ctx, const Tensor& dy) -> Grads { return {softmax_gradient(ctx, y.get(), dy)}; });
}

// dx = dy - exp(y) sum dy
Tensor log_softmax_rows(const OpName& op, const Tensor& x) {
  Tensor y = over_rows(op, x, []<class T>(T* out, const T* in, const Rows& rows) { kernels::log_softmax<T>(out, in, rows.count, rows.length); });
  return record(op, y, x, [y = saved(y)](const BackwardContext& ctx, const Tensor& dy) -> Grads {
    if (ctx.creates_graph()) return {dy - exp(y.get()) * (dy.dim() ? sum(dy, -1, true) : dy)};
    return {over_rows(y.get(), dy, []<class T>(T* dx, const T* a, const T* b, const Rows& rows) {
      kernels::log_softmax_backward<T>(dx, a, b, rows.count, rows.length);
    })};
  });
}

/// Rows are the last dim; another dim goes there and back.
Tensor along(const OpName& op, const Tensor& x, Index dim, Tensor (*rows)(const OpName&, const Tensor&)) {
  detail::require_float(op, x);
  const Index d = static_cast<Index>(detail::wrap_dim(op, dim, x.shape()));
  if (d + 1 >= x.dim()) return rows(op, x);
  return transpose(rows(op, transpose(x, d, -1, op.caller)), d, -1, op.caller);
}

}  // namespace

Tensor softmax(const Tensor& x, Index dim, Caller caller) { return along({"softmax", caller}, x, dim, softmax_rows); }
Tensor log_softmax(const Tensor& x, Index dim, Caller caller) { return along({"log_softmax", caller}, x, dim, log_softmax_rows); }

Tensor detail::softmax_or_zero(const Tensor& x, Caller caller) {
  const OpName op{"softmax_or_zero", caller};
  require_float(op, x);
  Tensor y = over_rows(op, x, []<class T>(T* out, const T* in, const Rows& rows) { kernels::softmax_or_zero<T>(out, in, rows.count, rows.length); });
  return record(op, y, x, [y = saved(y)](const BackwardContext& ctx, const Tensor& dy) -> Grads { return {softmax_gradient(ctx, y.get(), dy)}; });
}

}  // namespace heed
