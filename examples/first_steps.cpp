// Train one attention head, look at its weights, prove its gradients.
#include <heed/heed.h>

#include <iostream>

using namespace heed;

int main() {
  manual_seed(1);
  nn::SingleHeadSelfAttention head(8, 4);  // W_q, W_k, W_v of (8, 4)
  nn::AdamW optimizer(nn::named_parameters(head), {.lr = 1e-2});
  const Tensor x = randn({6, 8}), target = randn({6, 4});

  for (int step = 0; step <= 200; ++step) {
    auto [output, weights] = head(x, Mask::causal());
    const Tensor loss = mse_loss(output, target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) std::cout << "step " << step << ", loss " << loss.item<float>() << "\n";
  }
  std::cout << nn::heat_map(head(x, Mask::causal()).weights, {.allowed = tril(ones({6, 6})).to(boolean)});

  nn::to(head, f64);
  const Tensor exact = x.to(f64);
  std::cout << gradcheck([&] { return head(exact, Mask::causal()).output; }, nn::named_parameters(head)).message << "\n";
}
