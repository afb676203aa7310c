#include "support.h"

// Whole training runs: known losses, and the same bits again.

namespace heed {
namespace {

using test::Threads;
using test::values;

struct Layer {
  nn::LayerNorm norm;
  nn::SingleHeadSelfAttention attention;
  nn::Linear out;
  explicit Layer(Index dim) : norm(dim), attention(dim, dim), out(dim, dim) {}
  Tensor operator()(const Tensor& x) const { return x + out(attention(norm(x), Mask::causal()).output); }
  void visit(nn::Visitor& v) { v("norm", norm), v("attention", attention), v("out", out); }
};

struct Model {
  std::vector<Layer> layers;
  nn::Dropout drop{0.1};
  Model(Index depth, Index dim) {
    for (Index i = 0; i < depth; ++i) layers.emplace_back(dim);
  }
  Tensor operator()(Tensor x) const {
    for (const Layer& layer : layers) x = drop(layer(x));
    return x;
  }
  void visit(nn::Visitor& v) { v("layers", layers), v("drop", drop); }
};

struct History {
  std::vector<double> losses, weights;
};

/// Losses and weights of a run with a fixed seed.
History train(int threads) {
  const Threads scope(threads);
  manual_seed(11);
  Model model(2, 67);
  const Tensor x = randn({6, 45, 67}), target = randn({6, 45, 67});
  nn::AdamW opt(nn::parameters(model), {.lr = 3e-3});
  History history;
  for (int step = 0; step < 20; ++step) {
    opt.zero_grad();
    const Tensor loss = mse_loss(model(x), target);
    loss.backward();
    nn::clip_grad_norm(nn::parameters(model), 1);
    opt.step();
    history.losses.push_back(loss.item<double>());
  }
  for (const Tensor& p : nn::parameters(model))
    for (double v : values(p)) history.weights.push_back(v);
  return history;
}

TEST(Training, HasTheSameBitsAgain) {
  const History first = train(4), second = train(4), single = train(1);
  EXPECT_LT(first.losses.back(), first.losses.front());
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.weights, second.weights);
  for (std::size_t i = 0; i < first.losses.size(); ++i) EXPECT_NEAR(single.losses[i], first.losses[i], 1e-5 * first.losses[i]) << "step " << i;
}

TEST(Training, HasTheSameBitsForEveryNumberOfThreadsWhenAskedFor) {
  set_deterministic(true);
  const History four = train(4), one = train(1);
  set_deterministic(false);
  EXPECT_EQ(four.losses, one.losses);
  EXPECT_EQ(four.weights, one.weights);
}

/// A linear function is found to the last digits.
TEST(Training, FitsALine) {
  manual_seed(12);
  const Tensor x = randn({64, 3}, f64), w = tensor({{1.5}, {-2}, {0.5}}, f64);
  const Tensor y = matmul(x, w) + 0.25;
  nn::Linear m(3, 1);
  nn::to(m, f64);
  nn::SGD opt(nn::parameters(m), {.lr = 0.1, .momentum = 0.9});
  double loss = 1;
  for (int step = 0; step < 600; ++step) {
    opt.zero_grad();
    const Tensor l = mse_loss(m(x), y);
    l.backward();
    opt.step();
    loss = l.item<double>();
  }
  EXPECT_LT(loss, 1e-20);
  EXPECT_NEAR(m.weight[0][1].item<double>(), -2, 1e-9);
  EXPECT_NEAR(m.bias[0].item<double>(), 0.25, 1e-9);
}

/// Every token is to say what the token before it was: only attention to the position before can know. Guessing costs log 8 = 2.08.
TEST(Training, LearnsToLookOneTokenBack) {
  manual_seed(13);
  const Index tokens = 8, length = 12, dim = 24;
  struct Reader {
    nn::Embedding token, place;
    nn::SingleHeadSelfAttention head;
    nn::Linear out;
    Tensor operator()(const Tensor& ids) const {
      const Tensor x = token(ids) + place(arange(0, static_cast<double>(ids.size(1)), 1, i64));
      return out(head(x, Mask::causal()).output);
    }
    void visit(nn::Visitor& v) { v("token", token), v("place", place), v("head", head), v("out", out); }
  } model{{tokens, dim}, {length, dim}, {dim, dim}, {dim, tokens}};
  nn::AdamW opt(nn::named_parameters(model), {.lr = 1e-2, .weight_decay = 0});
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor ids = randint(0, tokens, {16, length});
    const Tensor logits = slice(model(ids), 1, 1, length);
    const Tensor l = cross_entropy(reshape(logits, {-1, tokens}), reshape(slice(ids, 1, 0, length - 1), {-1}));
    opt.zero_grad();
    l.backward();
    opt.step();
    loss = l.item<double>();
  }
  EXPECT_LT(loss, 0.1);
  EXPECT_TRUE(nn::missing_grads(model).empty());
  const NoGrad off;
  const Tensor ids = randint(0, tokens, {1, length});
  const Tensor x = model.token(ids) + model.place(arange(0, static_cast<double>(length), 1, i64));
  const Tensor weights = model.head(x, Mask::causal()).weights[0];
  for (Index i = 1; i < length; ++i) EXPECT_EQ(argmax(weights[i]).item<Index>(), i - 1) << "query " << i;
}

}  // namespace
}  // namespace heed
