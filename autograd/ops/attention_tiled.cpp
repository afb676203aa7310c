#include "../../tensor/kernels/attention.h"

#include <algorithm>
#include <memory>

#include "../../tensor/random.h"
#include "attention_parts.h"

// Flash attention as an op: Dao, Fu, Ermon, Rudra and Re, "FlashAttention", 2022; the mathematics is in tensor/kernels/attention.h.

namespace heed::detail {
namespace {

Dims leading(const Dims& shape) {
  Dims d = shape;
  d.pop_back(), d.pop_back();
  return d;
}
Dims with_matrix(Dims batch, Index rows, Index columns) {
  batch.push_back(rows), batch.push_back(columns);
  return batch;
}

/// Rows that are dense in memory, by a copy if need be.
Tensor dense_rows(const Tensor& t) { return t.size(-1) <= 1 || t.strides().back() == 1 ? t : contiguous_data(t); }

/// Where the matrices of `t`, broadcast over the batch, begin.
std::vector<Index> offsets(const Tensor& t, const Dims& batch) {
  const Layout wide = expand("attention", t.ref()->layout, with_matrix(batch, t.size(-2), t.size(-1)));
  std::vector<Index> out;
  const Index count = numel(batch);
  out.reserve(static_cast<std::size_t>(count));
  for (Index p = 0; p < count; ++p) {
    Index at = 0;
    for (std::size_t d = batch.size(), rest = static_cast<std::size_t>(p); d-- > 0; rest /= static_cast<std::size_t>(batch[d]))
      at += static_cast<Index>(rest % static_cast<std::size_t>(batch[d])) * wide.strides[d];
    out.push_back(at);
  }
  return out;
}

/// Uninitialized, its dims in memory in the order of those of `like`, rows dense: heads that were split from one row are beside each other again, and
/// joining them copies nothing.
Tensor empty_in_order_of(const Tensor& like, const Dims& shape, const OpName& op) {
  const Tensor row_major = make_empty(shape, like.dtype(), op);
  if (like.is_contiguous() || like.shape().size() != shape.size()) return row_major;
  std::vector<std::size_t> order;  // of all dims but the last, from the outermost inwards
  for (std::size_t d = 0; d + 1 < shape.size(); ++d) {
    const auto before = [&](std::size_t other) { return like.strides()[other] < like.strides()[d]; };
    order.insert(std::find_if(order.begin(), order.end(), before), d);
  }
  Layout layout = row_major.ref()->layout;
  Index stride = shape.back();
  for (std::size_t i = order.size(); i-- > 0; stride *= std::max<Index>(shape[order[i]], 1)) layout.strides[order[i]] = stride;
  return make_view(row_major, layout);
}

/// The index of every batch entry along one dim of the batch.
std::vector<std::size_t> places(const Dims& batch, std::size_t dim) {
  std::size_t inner = 1;
  for (std::size_t d = dim + 1; d < batch.size(); ++d) inner *= static_cast<std::size_t>(batch[d]);
  std::vector<std::size_t> out(static_cast<std::size_t>(numel(batch)));
  for (std::size_t p = 0; p < out.size(); ++p) out[p] = p / inner % static_cast<std::size_t>(batch[dim]);
  return out;
}

/// A tensor that broadcasts to the scores, as the kernel reads it.
struct Matrices {
  Tensor tensor;
  std::vector<Index> begins;
  Index row_stride = 0, column_stride = 0;

  Matrices() = default;
  Matrices(const Tensor& t, const Dims& batch, Index Tq, Index Tk) {
    if (!t.defined()) return;
    tensor = t;
    while (tensor.dim() < 2) tensor = make_view(tensor, unsqueeze(tensor.ref()->layout, 0));
    begins = offsets(tensor, batch);
    row_stride = tensor.size(-2) == Tq && Tq > 1 ? tensor.strides()[tensor.shape().size() - 2] : 0;
    column_stride = tensor.size(-1) == Tk && Tk > 1 ? tensor.strides().back() : 0;
    if (tensor.size(-1) == Tk && column_stride != 1 && Tk > 1 && tensor.strides().back() != 0)
      *this = Matrices(contiguous_data(tensor), batch, Tq, Tk);
  }
};

/// A batch of matrices with dense rows, as the kernels take it; an absent tensor gives null.
template <class T>
struct Rows {
  Tensor tensor;
  std::vector<Index> begins;  ///< none for a single matrix: small calls are to allocate little
  Index single = 0;

  Rows(const Tensor& t, const Dims& batch) : tensor(t), begins(t.defined() && !batch.empty() ? offsets(t, batch) : std::vector<Index>()) {}
  kernels::Batched<const T> read() const { return {tensor.defined() ? tensor.data<T>() : nullptr, where(), stride()}; }
  kernels::Batched<T> write() { return {tensor.defined() ? tensor.mutable_data<T>() : nullptr, where(), stride()}; }
  std::span<const Index> where() const { return begins.empty() ? std::span(&single, 1) : std::span(begins); }
  Index stride() const { return tensor.defined() ? tensor.strides()[tensor.shape().size() - 2] : 0; }
};

/// What forward and backward of one call have in common.
struct Problem {
  Dims batch;
  kernels::AttentionSizes sizes;
  double scale;
  bool causal;
  Index offset, window;
  std::vector<Index> lengths;
  std::vector<double> slopes;
  kernels::AttentionDropout dropout;

  template <class T>
  struct Arguments {
    Rows<T> q, k, v;
    Matrices keep, bias;
    std::vector<T> slopes;
    kernels::AttentionMask<T> mask;

    Arguments(const Problem& p, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const Tensor& keep_in, const Tensor& bias_in)
        : q(dense_rows(q_in), p.batch),
          k(dense_rows(k_in), p.batch),
          v(v_in.defined() ? dense_rows(v_in) : v_in, p.batch),
          keep(keep_in, p.batch, p.sizes.Tq, p.sizes.Tk),
          bias(bias_in, p.batch, p.sizes.Tq, p.sizes.Tk),
          slopes(p.slopes.begin(), p.slopes.end()) {
      mask.causal = p.causal, mask.offset = p.offset, mask.window = p.window;
      mask.lengths = p.lengths, mask.slopes = slopes;
      if (keep.tensor.defined()) mask.keep = {keep.tensor.data<bool>(), keep.begins, keep.row_stride}, mask.keep_column_stride = keep.column_stride;
      if (bias.tensor.defined()) mask.bias = {bias.tensor.data<T>(), bias.begins, bias.row_stride}, mask.bias_column_stride = bias.column_stride;
    }
  };
};

Problem problem_of(const AttentionCall& call, const Dims& batch) {
  const Mask& mask = call.options.mask;
  const OffsetAndWindow position = offset_and_window(mask);
  Problem p{batch,
            {numel(batch), call.q.size(-2), call.k.size(-2), call.q.size(-1), call.v.size(-1)},
            call.scale,
            mask.is_causal(),
            position.offset,
            position.window,
            {},
            {},
            {}};
  if (!mask.key_lengths().empty())  // over dim 0 of the scores, which is a later dim of a batch that only v makes longer
    for (std::size_t b : places(batch, batch.size() - (call.scores.size() - 2)))
      p.lengths.push_back(mask.key_lengths()[b % mask.key_lengths().size()]);
  if (mask.alibi_heads()) {
    const std::vector<double> slopes = alibi_slopes(*mask.alibi_heads());
    for (std::size_t h : places(batch, batch.size() - 1)) p.slopes.push_back(slopes[h % slopes.size()]);
  }
  return p;
}

Tensor all_of(const std::vector<Tensor>& keeps, Caller caller) {
  Tensor all;
  for (const Tensor& t : keeps) all = all.defined() ? all & Operand(t, caller) : t;
  return all;
}
Tensor sum_of(const std::vector<Tensor>& biases, Caller caller) {
  Tensor total;
  for (const Tensor& t : biases) total = total.defined() ? total + Operand(t, caller) : t;
  return total;
}

/// A mask of the same positions, with these tensors.
Mask rebuilt(const Mask& positions, const Tensor& keep, const Tensor& bias) {
  Mask m = positions;
  if (keep.defined()) m = m & Mask::keep(keep);
  if (bias.defined()) m = m & Mask::bias(bias);
  return m;
}
/// The parts of a mask that are not tensors.
Mask positions_of(const Mask& mask) {
  Mask m;
  if (mask.is_causal()) m = mask.offset() ? Mask::causal(*mask.offset()) : Mask::causal();
  if (mask.window()) m = m & Mask::window(*mask.window());
  if (mask.alibi_heads()) m = m & Mask::alibi(*mask.alibi_heads());
  if (!mask.key_lengths().empty()) m = m & Mask::lengths(mask.key_lengths());
  return mask.offset() ? m.at(*mask.offset()) : m;
}

// P = softmax(scale q k^T + mask), dS = P (dP - rowsum(P dP)): dq = scale dS k, dk = scale dS^T q, dbias = dS
Tensor weights_op(const AttentionCall& call, const Problem& p, const Tensor& keep, const Tensor& bias, const Tensor& row_max, const Tensor& row_sum) {
  Tensor weights = make_empty(with_matrix(p.batch, p.sizes.Tq, p.sizes.Tk), call.q.dtype(), call.op);
  dispatch_float(call.q.dtype(), [&]<class T>() {
    const Problem::Arguments<T> a(p, call.q, call.k, {}, keep, bias);
    kernels::attention_weights<T>(p.sizes, a.q.read(), a.k.read(), static_cast<T>(p.scale), a.mask, {row_max.data<T>(), row_sum.data<T>()},
                                  weights.mutable_data<T>());
  });
  return record(
      {"attention_weights", call.op.caller}, weights, call.q, call.k, bias,
      [q = saved(call.q), k = saved(call.k), weights = saved(weights), scale = p.scale](const BackwardContext& ctx, const Tensor& dy) -> Grads {
        const Tensor P = weights.get(), dS = P * (dy - sum(P * dy, -1, true));
        return {ctx.needs(0) ? matmul(dS, k.get()) * scale : Tensor(), ctx.needs(1) ? matmul(transpose(dS, -2, -1), q.get()) * scale : Tensor(), dS};
      });
}

/// What a forward leaves for its backward.
struct Kept {
  Tensor q, k, v, keep, bias, out, row_max, row_sum;
};

Grads gradients(const BackwardContext& ctx, const Problem& p, const Kept& x, const Tensor& dy) {
  const auto gradient = [&](std::size_t i, const Tensor& of, Index rows) {
    return ctx.needs(i) ? empty_in_order_of(of, with_matrix(p.batch, rows, of.size(-1)), "attention") : Tensor();
  };
  const Tensor dq = gradient(0, x.q, p.sizes.Tq), dk = gradient(1, x.k, p.sizes.Tk), dv = gradient(2, x.v, p.sizes.Tk);
  Tensor dbias = ctx.needs(3) ? make_empty(with_matrix(p.batch, p.sizes.Tq, p.sizes.Tk), dy.dtype()) : Tensor();
  dispatch_float(dy.dtype(), [&]<class T>() {
    const Problem::Arguments<T> a(p, x.q, x.k, x.v, x.keep, x.bias);
    const Rows<T> up(dense_rows(dy), p.batch), out(x.out, p.batch);
    Rows<T> q(dq, p.batch), k(dk, p.batch), v(dv, p.batch);
    kernels::attention_backward<T>(p.sizes, a.q.read(), a.k.read(), a.v.read(), static_cast<T>(p.scale), a.mask, p.dropout, out.read(),
                                   {x.row_max.data<T>(), x.row_sum.data<T>()}, up.read(),
                                   {q.write(), k.write(), v.write(), dbias.defined() ? dbias.mutable_data<T>() : nullptr});
  });
  return {dq, dk, dv, dbias};
}

}  // namespace

Attention tiled_attention(const AttentionCall& call) {
  const DType dtype = call.q.dtype();
  const Dims batch = broadcast_shapes(call.op, leading(call.scores), leading(call.v.shape()));
  Problem p = problem_of(call, batch);
  if (call.options.training && call.options.dropout_p > 0) {
    const double drop = call.options.dropout_p;
    const RngState from = drop == 1 ? RngState{} : reserve_random(static_cast<std::uint64_t>(numel(batch) * p.sizes.Tq * p.sizes.Tk));
    p.dropout = {drop, from.seed, from.offset};
  }
  const Caller caller = call.op.caller;
  const Tensor keep = all_of(call.options.mask.keeps(), caller), bias = sum_of(call.options.mask.biases(), caller);

  Tensor output = empty_in_order_of(call.q, with_matrix(batch, p.sizes.Tq, p.sizes.d_v), call.op);
  Tensor row_max, row_sum;
  if (call.options.need_weights || is_recorded(call.q, call.k, call.v, bias))
    for (Tensor* rows : {&row_max, &row_sum}) *rows = make_empty({p.sizes.batch, p.sizes.Tq}, dtype, call.op);
  dispatch_float(dtype, [&]<class T>() {
    const Problem::Arguments<T> a(p, call.q, call.k, call.v, keep, bias);
    Rows<T> out(output, batch);
    kernels::attention<T>(p.sizes, a.q.read(), a.k.read(), a.v.read(), static_cast<T>(p.scale), a.mask, p.dropout, out.write(),
                          {row_max.defined() ? row_max.mutable_data<T>() : nullptr, row_sum.defined() ? row_sum.mutable_data<T>() : nullptr});
  });

  Attention result;
  if (call.options.need_weights) {
    // Over the batch of the scores alone: v may make the output's longer, but not the weights'.
    const bool same_batch = batch == leading(call.scores);
    result.weights = same_batch ? weights_op(call, p, keep, bias, row_max, row_sum) : composed_attention(call).weights;
  }
  result.output = record(
      {"attention", call.op.caller}, output, call.q, call.k, call.v, bias,
      [q = saved(call.q), k = saved(call.k), v = saved(call.v), bias = saved(bias), keep = saved(keep), out = saved(output), row_max = saved(row_max),
       row_sum = saved(row_sum), p, positions = positions_of(call.options.mask),
       scores = call.scores](const BackwardContext& ctx, const Tensor& dy) -> Grads {
        if (!ctx.creates_graph())
          return gradients(ctx, p, {q.get(), k.get(), v.get(), keep.get(), bias.get(), out.get(), row_max.get(), row_sum.get()}, dy);
        return differentiate_twin(ctx, {q.get(), k.get(), v.get(), bias.get()}, dy, [&](const std::vector<Tensor>& in) {
          AttentionOptions options;
          options.mask = rebuilt(positions, keep.get(), in[3]);
          const Tensor weights = composed_attention({"attention", in[0], in[1], in[2], options, p.scale, scores}).weights;
          const bool drops = p.dropout.p > 0;
          return matmul(
              drops ? dropout_from(expand(weights, with_matrix(p.batch, p.sizes.Tq, p.sizes.Tk)), p.dropout.p, {p.dropout.seed, p.dropout.offset})
                    : weights,
              in[2]);
        });
      });
  return result;
}

}  // namespace heed::detail
