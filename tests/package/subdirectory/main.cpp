#include <heed/heed.h>

#include <iostream>

int main() {
  heed::Tensor x = heed::tensor({1, 2, 3}).requires_grad_();
  heed::sum(x * x).backward();
  std::cout << x.grad() << "\n";
  return x.grad().to_vector<float>() == std::vector<float>{2, 4, 6} ? 0 : 1;
}
