#include <algorithm>

#include "work.h"

namespace heed::bench {
namespace {

double real(Index n) { return static_cast<double>(n); }

Tensor leaf(Dims shape, DType dtype) { return randn(shape, dtype).requires_grad_(); }

/// Forward 2 products a pair, backward 5: the scores again, and the gradients of weights, values, queries and keys.
Cost attention_cost(double pairs, Index d, Index d_v, bool train) {
  return {.flops = pairs * (train ? 8 * real(d) + 6 * real(d_v) : 2 * real(d) + 2 * real(d_v)), .exps = train ? 2 * pairs : pairs};
}

class Sdpa final : public Work {
 public:
  Sdpa(const Row& r, bool train) : Work(r), train_(train) {
    const Index B = row.sizes[0], T = row.sizes[1], d = row.sizes[2];
    const auto input = [&](Index width) { return train ? leaf({B, T, width}, row.dtype) : randn({B, T, width}, row.dtype); };
    q_ = input(d), k_ = input(d), v_ = input(row.d_v);
    if (train) up_ = randn({B, T, row.d_v}, row.dtype);
    options_ = {.mask = mask(), .need_weights = false, .kernel = row.kernel};
    cost = attention_cost(allowed_pairs(row), d, row.d_v, train);
  }

  void run() override {
    if (!train_) {
      const NoGrad off;
      output_ = forward();
      return;
    }
    for (Tensor* t : {&q_, &k_, &v_}) t->zero_grad();
    output_ = Tensor();
    const Tensor output = forward();
    output.backward(up_);
    output_ = output.detach();
  }
  Tensor forward() override { return scaled_dot_product_attention(q_, k_, v_, options_).output; }

  NamedTensors inputs() const override {
    NamedTensors all = {{"q", q_}, {"k", k_}, {"v", v_}};
    if (train_) all.emplace_back("up", up_);
    if (!options_.mask.keeps().empty()) all.emplace_back("keep", options_.mask.keeps()[0]);
    return all;
  }
  NamedTensors results() const override {
    NamedTensors all = {{"output", output_}};
    if (train_) all.insert(all.end(), {{"dq", q_.grad()}, {"dk", k_.grad()}, {"dv", v_.grad()}});
    return all;
  }

 private:
  Mask mask() const {
    const Index B = row.sizes[0], T = row.sizes[1];
    switch (row.sight) {
      case Row::Sight::causal: return Mask::causal();
      case Row::Sight::full: return Mask::none();
      case Row::Sight::window: return Mask::causal() & Mask::window(row.window);
      case Row::Sight::keep: return Mask::keep(randint(0, 2, {T, T}).to(boolean));
      case Row::Sight::lengths: break;
    }
    std::vector<Index> lengths;
    for (Index b = 1; b <= B; ++b) lengths.push_back(T * b / B);
    return Mask::lengths(lengths);
  }

  bool train_;
  Tensor q_, k_, v_, up_, output_;
  AttentionOptions options_;
};

/// Training steps of one head, at one T or at several in turn.
class Steps final : public Work {
 public:
  Steps(const Row& r, Index first_T, Index last_T)
      : Work(r), head_(row.sizes[1], row.sizes[2]), optimizer_((nn::to(head_, row.dtype), nn::parameters(head_)), {.lr = 1e-3}) {
    const Index D = row.sizes[1], H = row.sizes[2];
    for (Index T = first_T; T <= last_T; ++T) {
      batches_.push_back({randn({T, D}, row.dtype), randn({T, H}, row.dtype)});
      const Cost one = attention_cost(real(T) * real(T + 1) / 2, H, H, true);
      cost.flops += one.flops + 12 * real(T) * real(D) * real(H);  // three products of forward, three of the weights' gradients
      cost.exps += one.exps;
    }
    items = last_T - first_T + 1;
  }

  void run() override {
    for (const Batch& b : batches_) {
      optimizer_.zero_grad();
      const Tensor loss = loss_of(b);
      loss.backward();
      optimizer_.step();
      loss_ = loss.detach();
    }
  }
  Tensor forward() override { return loss_of(batches_.back()); }

  NamedTensors inputs() const override {
    return {{"x", batches_.back().x}, {"target", batches_.back().target}, {"W_q", head_.W_q}, {"W_k", head_.W_k}, {"W_v", head_.W_v}};
  }
  NamedTensors results() const override {
    return {{"loss", loss_}, {"dW_q", head_.W_q.grad()}, {"dW_k", head_.W_k.grad()}, {"dW_v", head_.W_v.grad()}};
  }

 private:
  struct Batch {
    Tensor x, target;
  };
  Tensor loss_of(const Batch& b) const {
    return mse_loss(head_(b.x, AttentionOptions{.mask = Mask::causal(), .need_weights = false}).output, b.target);
  }

  nn::SingleHeadSelfAttention head_;
  nn::SGD optimizer_;
  std::vector<Batch> batches_;
  Tensor loss_;
};

}  // namespace

double allowed_pairs(const Row& row) {
  const double B = real(row.sizes[0]), T = real(row.sizes[1]);
  switch (row.sight) {
    case Row::Sight::causal: return B * T * (T + 1) / 2;
    case Row::Sight::full:
    case Row::Sight::keep: return B * T * T;
    case Row::Sight::window: {
      const double n = std::min(real(row.window), T);
      return B * (n * (n + 1) / 2 + (T - n) * n);
    }
    case Row::Sight::lengths: break;
  }
  double keys = 0;
  for (Index b = 1; b <= row.sizes[0]; ++b) keys += real(row.sizes[1] * b / row.sizes[0]);
  return T * keys;
}

std::unique_ptr<Work> make_attention(const Row& row) {
  if (row.kind == "attention_step") return std::make_unique<Steps>(row, row.sizes[0], row.sizes[0]);
  if (row.kind == "attention_shapes") return std::make_unique<Steps>(row, 1, row.sizes[0]);
  return std::make_unique<Sdpa>(row, row.kind == "sdpa_train");
}

}  // namespace heed::bench
