#include "work.h"

namespace heed::bench {
namespace {

double real(Index n) { return static_cast<double>(n); }

/// x + c + c + ..., and its gradient.
class Overhead final : public Work {
 public:
  explicit Overhead(const Row& r) : Work(r) {
    const Dims shape = {row.sizes[0], row.sizes[1]};
    x_ = randn(shape, row.dtype).requires_grad_(), c_ = randn(shape, row.dtype), up_ = randn(shape, row.dtype);
    items = row.chain;
  }
  void run() override {
    x_.zero_grad();
    const Tensor y = forward();
    y.backward(up_);
    y_ = y.detach();
  }
  Tensor forward() override {
    Tensor y = x_;
    for (Index i = 0; i < row.chain; ++i) y = y + c_;
    return y;
  }
  NamedTensors inputs() const override { return {{"x", x_}, {"c", c_}, {"up", up_}}; }
  NamedTensors results() const override { return {{"y", y_}, {"dx", x_.grad()}}; }

 private:
  Tensor x_, c_, up_, y_;
};

class LinearTrain final : public Work {
 public:
  explicit LinearTrain(const Row& r) : Work(r), layer_(row.sizes[1], row.sizes[2]) {
    nn::to(layer_, row.dtype);
    x_ = randn({row.sizes[0], row.sizes[1]}, row.dtype).requires_grad_();
    up_ = randn({row.sizes[0], row.sizes[2]}, row.dtype);
    cost.flops = 6 * real(row.sizes[0]) * real(row.sizes[1]) * real(row.sizes[2]);
  }
  void run() override {
    x_.zero_grad();
    nn::zero_grad(layer_);
    const Tensor y = forward();
    y.backward(up_);
    y_ = y.detach();
  }
  Tensor forward() override { return layer_(x_); }
  NamedTensors inputs() const override { return {{"x", x_}, {"weight", layer_.weight}, {"bias", layer_.bias}, {"up", up_}}; }
  NamedTensors results() const override { return {{"y", y_}, {"dx", x_.grad()}, {"dweight", layer_.weight.grad()}, {"dbias", layer_.bias.grad()}}; }

 private:
  nn::Linear layer_;
  Tensor x_, up_, y_;
};

class Softmax final : public Work {
 public:
  Softmax(const Row& r, bool train) : Work(r), train_(train) {
    const Dims shape = {row.sizes[0], row.sizes[1]};
    x_ = randn(shape, row.dtype);
    if (train) x_.requires_grad_(), up_ = randn(shape, row.dtype);
    const double elements = real(row.sizes[0]) * real(row.sizes[1]), size = row.dtype == f64 ? 8 : 4;
    cost.exps = elements;
    cost.bytes = elements * size * (train ? 5 : 2);  // x -> y; y, dy -> dx
  }
  void run() override {
    y_ = Tensor();
    if (!train_) {
      const NoGrad off;
      y_ = forward();
      return;
    }
    x_.zero_grad();
    const Tensor y = forward();
    y.backward(up_);
    y_ = y.detach();
  }
  Tensor forward() override { return softmax(x_, -1); }
  NamedTensors inputs() const override {
    NamedTensors all = {{"x", x_}};
    if (train_) all.emplace_back("up", up_);
    return all;
  }
  NamedTensors results() const override {
    NamedTensors all = {{"y", y_}};
    if (train_) all.emplace_back("dx", x_.grad());
    return all;
  }

 private:
  bool train_;
  Tensor x_, up_, y_;
};

}  // namespace

std::int64_t Work::kept_bytes() {
  const auto bytes = [](const Tensor& t) { return t.numel() * (t.dtype() == f32 ? 4 : t.dtype() == boolean ? 1 : 8); };
  const Tensor root = forward();
  std::int64_t sum = bytes(root) + static_cast<std::int64_t>(saved_bytes(root));
  for (const auto& [name, t] : inputs()) sum += bytes(t) * (t.requires_grad() ? 2 + states : 1);
  return sum;
}

std::unique_ptr<Work> make_work(const Row& row) {
  if (row.kind == "overhead") return std::make_unique<Overhead>(row);
  if (row.kind == "linear") return std::make_unique<LinearTrain>(row);
  if (row.kind.starts_with("softmax")) return std::make_unique<Softmax>(row, row.kind == "softmax_train");
  if (row.kind == "gpt") return make_gpt(row);
  return make_attention(row);
}

}  // namespace heed::bench
